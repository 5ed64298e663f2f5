//! Checks whether trials that are compared or belong to one case were planned to last equally long.

use crate::sorting::CollectTree;
use std::collections::BTreeSet;

use crate::cases::Case;
use crate::inputs::Inputs;

/// Matched cases whose trials have different durations on the two sides.
#[derive(Debug, Default)]
pub(super) struct Durations {
    /// Number of matched cases.
    cases: usize,
    /// Number of matched cases whose durations differ.
    differing: usize,
    /// The durations of A and of B in these cases.
    of: [BTreeSet<Planned>; 2],
}

/// Warm-up and measured time of a trial, milliseconds. The measured time is `None` for a trial with a fixed number of
/// messages, which may take any time.
pub type Planned = (u64, Option<u64>);

/// Why trials of different durations should not be compared.
pub const CHANGES_FIGURES: &str =
    "which changes figures by itself: short trials have faster wake-ups (docs/BIAS.md)";

/// The duration for which a trial with these inputs was planned.
pub fn planned(inputs: &Inputs) -> Planned {
    (inputs.warmup_ms, inputs.messages.is_none().then_some(inputs.measure_ms))
}

/// The durations for which the trials of a case that count were planned.
fn of(case: &Case) -> BTreeSet<Planned> {
    case.good().map(|r| planned(&r.inputs)).collect_tree()
}

/// A remark on cases whose own trials have different durations, so that their figures are of no single duration; `None`
/// if there are none.
pub fn pooled(cases: &[Case]) -> Option<String> {
    let different: Vec<BTreeSet<Planned>> =
        cases.iter().map(of).filter(|durations| durations.len() > 1).collect();
    if different.is_empty() {
        return None;
    }
    let all = different.iter().flatten().copied().collect();
    Some(format!(
        "the trials of one case have different durations in {} of {} cases ({}), {CHANGES_FIGURES}; measure each \
         case with one duration, or look at one group with `crossway rank --filter`",
        different.len(),
        cases.len(),
        names(&all)
    ))
}

/// The durations in words.
pub fn names(of: &BTreeSet<Planned>) -> String {
    let name = |(warmup, measured): &Planned| match measured {
        Some(measured) => format!("{measured} ms after a warm-up of {warmup} ms"),
        None => format!("a fixed number of messages after a warm-up of {warmup} ms"),
    };
    of.iter().map(name).collect::<Vec<_>>().join(", or ")
}

impl Durations {
    /// Compares the durations of a case of A with those of the matching case of B, and counts the result.
    pub(super) fn add(&mut self, a: &Case, b: &Case) {
        let [of_a, of_b] = [of(a), of(b)];
        if of_a.is_empty() || of_b.is_empty() {
            return;
        }
        self.cases += 1;
        if of_a != of_b {
            self.differing += 1;
            self.of[0].extend(of_a);
            self.of[1].extend(of_b);
        }
    }

    /// The remark on cases whose durations differ; `None` if there are none.
    pub(super) fn warning(&self) -> Option<String> {
        if self.differing == 0 {
            return None;
        }
        Some(format!(
            "trials of the two sides have different durations in {} of {} cases (A: {}; B: {}), \
             {CHANGES_FIGURES}; measure both with the same --measure-ms and --warmup-ms",
            self.differing,
            self.cases,
            names(&self.of[0]),
            names(&self.of[1])
        ))
    }
}
