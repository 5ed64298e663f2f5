//! Why cases in a table have no CPU time.

use crate::summary::{Case, Summary, without_numbers};
use crate::verdict::list;

/// Returns a footnote for each reason why some of these cases have no CPU time. Reasons that differ only in numbers are
/// merged.
pub(super) fn notes<'a>(
    summary: &Summary,
    cases: impl IntoIterator<Item = &'a Case>,
) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for case in cases {
        let Some(why) = &case.no_cpu_time else { continue };
        let same = |(of, _): &(&str, _)| without_numbers(of) == without_numbers(why);
        let at = reasons.iter().position(same).unwrap_or_else(|| {
            reasons.push((why, Vec::new()));
            reasons.len() - 1
        });
        let label = summary.contenders[case.contender].label();
        if !reasons[at].1.contains(&label) {
            reasons[at].1.push(label);
        }
    }
    let note = |(why, labels): (&str, Vec<String>)| {
        format!("no CPU time is shown for {}: {why}", list(labels.into_iter()))
    };
    reasons.into_iter().map(note).collect()
}
