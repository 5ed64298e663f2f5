//! Whether the trials of both sides were planned to last equally long.

use std::collections::BTreeSet;

use crate::cases::Case;

/// Durations of the trials of matched cases that are not the same on both sides.
#[derive(Debug, Default)]
pub(super) struct Durations {
    /// Number of matched cases.
    cases: usize,
    /// Number of matched cases whose durations differ.
    differing: usize,
    /// The durations of A and of B in these cases.
    of: [BTreeSet<Duration>; 2],
}

/// Warm-up and measured time of a trial, milliseconds. The measured time of a trial with a fixed number of messages is
/// not planned.
type Duration = (u64, Option<u64>);

impl Durations {
    /// Adds a case of A and the matching one of B.
    pub(super) fn add(&mut self, a: &Case, b: &Case) {
        let [of_a, of_b] = [a, b].map(|case| -> BTreeSet<Duration> {
            case.good()
                .map(|r| &r.inputs)
                .map(|i| (i.warmup_ms, i.messages.is_none().then_some(i.measure_ms)))
                .collect()
        });
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

    /// The remark on cases whose trials last longer on one side.
    pub(super) fn warning(&self) -> Option<String> {
        if self.differing == 0 {
            return None;
        }
        let name = |(warmup, measured): &Duration| match measured {
            Some(measured) => format!("{measured} ms after a warm-up of {warmup} ms"),
            None => format!("a fixed number of messages after a warm-up of {warmup} ms"),
        };
        let side = |of: &BTreeSet<Duration>| of.iter().map(name).collect::<Vec<_>>().join(", or ");
        Some(format!(
            "trials of the two sides have different durations in {} of {} cases (A: {}; B: {}), which changes figures \
             by itself: short trials have faster wake-ups (docs/BIAS.md); measure both with the same --measure-ms and \
             --warmup-ms",
            self.differing,
            self.cases,
            side(&self.of[0]),
            side(&self.of[1])
        ))
    }
}
