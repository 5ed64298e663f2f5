//! Marks ends that may block but hardly ever slept ([`crossway_records::awake`]).

use crossway_records::awake::{self, SLEPT};
use crossway_records::rank::WaitClass;

use crate::contender::Contender;
use crate::ranking::{Metric, Ranking};
use crate::summary::{Case, Summary};
use crate::verdict::{list, plural};

/// Footnote mark of a round trip in which the ends hardly slept.
pub const AWAKE: char = '¶';

/// Returns the text of the footnote for [`AWAKE`].
pub fn awake_explained() -> String {
    format!("its ends may block, but {SLEPT}")
}

/// Returns whether the ends of this round-trip case hardly slept although they may block.
pub(crate) fn hardly_slept(contender: &Contender, case: &Case) -> bool {
    contender.discipline() == WaitClass::Blocking
        && case
            .switches_per_msg
            .is_some_and(|switches| awake::hardly_slept(case.workload, switches.value))
}

/// Returns a sentence that names the mechanisms whose ends hardly slept, among the best blocking mechanisms of the
/// first setting; `None` if there are none.
pub(crate) fn sentence(summary: &Summary, size: u64) -> Option<String> {
    let ranking = Ranking::of(summary, Metric::RoundTripP50, 0, size, WaitClass::Blocking)?;
    let is_awake = |index: usize| {
        let of_it = |c: &&Case| c.contender == index && c.setting == 0 && c.size_bytes == size;
        let mut cases = summary.cases.iter().filter(of_it);
        cases.any(|case| hardly_slept(&summary.contenders[index], case))
    };
    let awake: Vec<String> = ranking
        .leaders()
        .iter()
        .filter(|entry| is_awake(entry.contender))
        .map(|entry| summary.contenders[entry.contender].label())
        .collect();
    (!awake.is_empty()).then(|| {
        let whose = plural(awake.len(), "its", "their");
        let names = list(awake.into_iter());
        format!("{AWAKE} {names} may block, but {whose} ends {SLEPT}.")
    })
}
