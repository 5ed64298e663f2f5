//! The trials that the figures do not include, and why.

use std::fmt::Write;

use crossway_lab::record::Status;

use super::wrap;
use crate::summary::{Summary, by_reason};
use crate::units::count;
use crate::verdict::list;

/// Number of reasons shown for each status, the most frequent first; the report has all.
const REASONS: usize = 3;

pub(super) fn left_out(summary: &Summary, width: u16) -> String {
    let mut out = String::new();
    let skipped = summary.skipped_mechanisms();
    if !skipped.is_empty() {
        let text = format!(
            "Skipped: {} ({}). `crossway doctor` says what each needs.",
            count(skipped.len(), "mechanism", "mechanisms"),
            list(skipped.iter().map(|s| (*s).to_owned()))
        );
        let _ = writeln!(out, "\n{}", wrap(&text, width));
    }
    for (status, what) in [
        (Status::Failed, "failed"),
        (Status::Degraded, "degraded: kept, but left out of the figures where clean trials exist"),
    ] {
        let n = summary.trials(status);
        if n > 0 {
            let text = format!("{} {what}.", count(n, "trial", "trials"));
            let _ = writeln!(out, "\n{}", wrap(&text, width));
        }
        for reason in by_reason(&summary.troubles, status).into_iter().take(REASONS) {
            let example = if reason.several { ", for example" } else { "" };
            let remedy = reason.first.remedy.as_deref().map(|r| format!("; {r}"));
            let text = format!(
                "{}{example}: {}{} ({})",
                count(reason.trials, "trial", "trials"),
                reason.first.reason,
                remedy.unwrap_or_default(),
                few(&reason.mechanisms)
            );
            let _ = writeln!(out, "{}", wrap(&format!("- {text}"), width));
        }
    }
    out
}

/// The first names, and the number of the others.
fn few(names: &[&str]) -> String {
    match names.len() {
        0..=4 => names.join(", "),
        n => format!("{} and {} more", names[..3].join(", "), n - 3),
    }
}
