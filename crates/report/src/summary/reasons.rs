//! Groups the reasons why trials were skipped, failed or degraded.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crossway_lab::record::Status;

use super::Trouble;

/// A reason with the trials to which it applies.
pub(crate) struct Reason<'a> {
    /// The first trouble with this reason; its wording and remedy are shown for all of them.
    pub(crate) first: &'a Trouble,
    /// Whether further troubles have the same reason, but with other numbers than in `first`.
    pub(crate) several: bool,
    pub(crate) mechanisms: Vec<&'a str>,
    pub(crate) cases: BTreeSet<&'a str>,
    pub(crate) trials: usize,
}

/// Returns the reasons of all trials that have this status, the most frequent first. Reasons that differ only in their
/// numbers are merged.
pub(crate) fn by_reason(troubles: &[Trouble], status: Status) -> Vec<Reason<'_>> {
    let mut reasons: Vec<(String, Reason<'_>)> = Vec::new();
    for trouble in troubles.iter().filter(|t| t.status == status) {
        let key = without_numbers(&trouble.reason);
        let at = reasons.iter().position(|(of, _)| *of == key).unwrap_or_else(|| {
            let reason = Reason {
                first: trouble,
                several: false,
                mechanisms: Vec::new(),
                cases: BTreeSet::new(),
                trials: 0,
            };
            reasons.push((key, reason));
            reasons.len() - 1
        });
        let reason = &mut reasons[at].1;
        reason.several |= trouble.reason != reason.first.reason;
        if !reason.mechanisms.contains(&trouble.mechanism.as_str()) {
            reason.mechanisms.push(&trouble.mechanism);
        }
        reason.cases.extend(trouble.cases.iter().map(String::as_str));
        reason.trials += trouble.trials;
    }
    reasons.sort_by_key(|(_, reason)| Reverse(reason.trials));
    reasons.into_iter().map(|(_, reason)| reason).collect()
}

fn without_numbers(text: &str) -> String {
    let mut out = text.replace(|c: char| c.is_ascii_digit() || ".,".contains(c), "#");
    while out.contains("##") {
        out = out.replace("##", "#");
    }
    out
}
