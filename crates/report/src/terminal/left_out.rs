//! The trials and messages that the figures do not include, and why.

use std::collections::BTreeSet;
use std::fmt::Write;

use crossway_records::record::Status;
use crossway_records::sorting::CollectTree;

use super::wrap;
use crate::summary::{Summary, by_reason};
use crate::units::{count, three_digits};
use crate::verdict::list;

/// Number of reasons shown for each status, the most frequent first; the page shows all.
const REASONS: usize = 8;

pub(super) fn left_out(summary: &Summary, width: u16) -> String {
    let mut out = String::new();
    let degraded = format!("degraded ({})", summary.degraded_means());
    for (status, what) in [
        (Status::Skipped, "skipped"),
        (Status::Failed, "failed"),
        (Status::Degraded, degraded.as_str()),
    ] {
        let reasons = by_reason(&summary.troubles, status);
        // A case that fails repeatedly leaves a skipped record for each of its remaining trials.
        let cases: BTreeSet<&str> =
            reasons.iter().flat_map(|r| r.cases.iter().copied()).collect_tree();
        let (n, nouns) = match status {
            Status::Skipped => (cases.len(), ("case", "cases")),
            _ => (summary.trials(status), ("trial", "trials")),
        };
        if n > 0 {
            let mut text = format!("{} {what}", count(n, nouns.0, nouns.1));
            let whole = summary.skipped_mechanisms();
            if status == Status::Skipped && !whole.is_empty() {
                text.push_str(", including all cases of ");
                text.push_str(&list(whole.iter().map(|id| (*id).to_owned())));
            }
            if reasons.len() > REASONS {
                let most = format!("; the {REASONS} most frequent of {} reasons", reasons.len());
                text.push_str(&most);
            }
            text.push(if reasons.is_empty() { '.' } else { ':' });
            let _ = writeln!(out, "\n{}", wrap(&text, width));
        }
        for reason in reasons.into_iter().take(REASONS) {
            let example = if reason.several { ", for example" } else { "" };
            let remedy = reason.first.remedy.as_deref().map(|r| format!("; {r}"));
            let of_reason =
                if status == Status::Skipped { reason.cases.len() } else { reason.trials };
            let text = format!(
                "{}{example}: {}{} ({})",
                count(of_reason, nouns.0, nouns.1),
                reason.first.reason,
                remedy.unwrap_or_default(),
                few(&reason.mechanisms)
            );
            let _ = writeln!(out, "{}", wrap(&format!("- {text}"), width));
        }
    }
    if !summary.losses.is_empty() {
        let text = "Lost messages, in the cases with losses; throughput counts only what arrived:";
        let _ = writeln!(out, "\n{}", wrap(text, width));
        for (mechanism, loss) in &summary.losses {
            let share = three_digits(loss.lost as f64 / loss.sent as f64 * 100.0);
            let trials = count(loss.of_trials, "trial", "trials");
            let text = format!(
                "- {mechanism}: {} of {} ({share} %), in {} of {trials}",
                loss.lost, loss.sent, loss.trials
            );
            let _ = writeln!(out, "{}", wrap(&text, width));
        }
    }
    out
}

/// Lists up to four names, or else the first three and the number of the others.
fn few(names: &[&str]) -> String {
    match names.len() {
        0..=4 => names.join(", "),
        n => format!("{} and {} more", names[..3].join(", "), n - 3),
    }
}
