//! Groups the reasons why trials were skipped, failed or degraded.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crossway_records::record::Status;
use crossway_records::sorting::SortSmall;

use super::Trouble;

/// A reason with the trials to which it applies.
pub(crate) struct Reason<'a> {
    /// The first trouble with this reason; its wording and remedy are shown for all of them.
    pub(crate) first: &'a Trouble,
    /// Whether further troubles have the same reason and remedy, but with other numbers than in `first`.
    pub(crate) several: bool,
    pub(crate) mechanisms: Vec<&'a str>,
    pub(crate) cases: BTreeSet<&'a str>,
    pub(crate) trials: usize,
}

/// Returns the reasons of all trials that have this status, the most frequent first. Those that differ only in numbers, in
/// the reason or the remedy, are merged.
pub(crate) fn by_reason(troubles: &[Trouble], status: Status) -> Vec<Reason<'_>> {
    let mut reasons: Vec<([String; 2], Reason<'_>)> = Vec::new();
    for trouble in troubles.iter().filter(|t| t.status == status) {
        let remedy = trouble.remedy.as_deref().unwrap_or_default();
        let key = [&trouble.reason, remedy].map(without_numbers);
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
        let first = reason.first;
        reason.several |= (&trouble.reason, &trouble.remedy) != (&first.reason, &first.remedy);
        if !reason.mechanisms.contains(&trouble.mechanism.as_str()) {
            reason.mechanisms.push(&trouble.mechanism);
        }
        reason.cases.extend(trouble.cases.iter().map(String::as_str));
        reason.trials += trouble.trials;
    }
    reasons.sort_small_by_key(|(_, reason)| Reverse(reason.trials));
    reasons.into_iter().map(|(_, reason)| reason).collect()
}

/// Returns the text with a placeholder for each number.
pub(crate) fn without_numbers(text: &str) -> String {
    let mut out = text.replace(|c: char| c.is_ascii_digit() || ".,".contains(c), "#");
    while out.contains("##") {
        out = out.replace("##", "#");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_merged_unless_their_remedies_differ() {
        let trouble = |mechanism: &str, reason: &str, remedy: &str| Trouble {
            status: Status::Skipped,
            mechanism: mechanism.to_owned(),
            reason: reason.to_owned(),
            remedy: Some(remedy.to_owned()),
            cases: vec![mechanism.to_owned()],
            trials: 1,
        };
        let troubles = [
            trouble("signal", "its largest message is 8 bytes", "use a smaller size"),
            trouble("posix-mq", "its largest message is 8192 bytes", "sysctl msgsize_max=65536"),
            trouble("sysv-mq", "its largest message is 8192 bytes", "sysctl msgmax=65536"),
            trouble("udp", "its largest message is 65527 bytes", "use a smaller size"),
        ];
        let reasons = by_reason(&troubles, Status::Skipped);
        let of: Vec<_> = reasons.iter().map(|r| (r.mechanisms.join(" "), r.several)).collect();
        let expected = [("signal udp", true), ("posix-mq", false), ("sysv-mq", false)];
        assert_eq!(of, expected.map(|(names, several)| (names.to_owned(), several)));
    }
}
