//! Lists cases that cannot be compared, and trials that failed.

use super::ComparisonReport;
use crate::cases::Case;
use crate::inputs::Measure;
use crate::record::Status;

/// The case's label with the number of its failed trials and the reason of the first failure; `None` if none failed.
pub(super) fn failed(case: &Case) -> Option<String> {
    Some(format!("{}: {}", case.key.label(), trials_with(case, Status::Failed)?))
}

/// Adds a case with good trials on at most one side to the list that says why it cannot be compared. A case with failed
/// trials on the other side needs no such entry, because failed trials are listed separately for all cases.
pub(super) fn list(a: &Case, b: &Case, label: String, report: &mut ComparisonReport) {
    let degraded = trials_with(b, Status::Degraded);
    let fails = |case: &Case| case.records.iter().any(|r| r.status == Status::Failed);
    match (a.trials() > 0, b.trials() > 0, degraded) {
        (_, true, _) => match trials_with(a, Status::Degraded) {
            _ if fails(a) => {}
            Some(why) => report.degraded_in_a.push(format!("{label}: {why}")),
            None => report.only_in_b.push(label),
        },
        _ if fails(b) => {}
        (true, false, Some(why)) => report.degraded_in_b.push(format!("{label}: {why}")),
        (true, false, None) => report.only_in_a.push(label),
        (false, false, degraded) => {
            // Where no trial ran on either side, nothing could have changed.
            let in_a = || {
                let status = [Status::Degraded, Status::Failed];
                let why = status.into_iter().find_map(|status| trials_with(a, status))?;
                Some(format!("{why} in A; no trial ran in B"))
            };
            let why = degraded.or_else(in_a);
            report.without_figures.extend(why.map(|why| format!("{label}: {why}")));
        }
    }
}

/// How many of the case's trials have this status, and the reason of the first; `None` if none has it.
fn trials_with(case: &Case, status: Status) -> Option<String> {
    let those = || case.records.iter().filter(|r| r.status == status);
    let reason = those().next()?.reason.as_deref().unwrap_or("no reason given");
    let word = if status == Status::Failed { "failed" } else { "degraded" };
    let (n, all) = (those().count(), case.records.len());
    let trials = if all == 1 { "trial" } else { "trials" };
    Some(format!("{n} of {all} {trials} {word}: {reason}"))
}

/// Why two cases with good trials have no figure in common.
pub(super) fn why_not_compared(a: &Case, b: &Case) -> String {
    let counted = |case: &Case| {
        let first = case.good().next()?;
        Some(match first.inputs.workload.facts().measure {
            Measure::Rate | Measure::OneWay => "one-way messages",
            Measure::RoundTrip => "round trips",
            Measure::Exchange => "exchanges with connecting and closing",
        })
    };
    match (counted(a), counted(b)) {
        (Some(a), Some(b)) if a != b => {
            format!("A counts {a} and B counts {b}; their figures mean different things")
        }
        _ => "the trials of the two sides have no figure in common".to_owned(),
    }
}
