//! Tables of paced streams: one per pace and size. Percentiles that no case has are left out.

use super::by_workload::by_workload;
use super::{CPU_ROUND_TRIP, duration, pooled, text_figure};
use crate::sheet::{Cell, Sheet};
use crate::summary::{Case, LatencySummary, Summary};
use crate::units::{Quantity, three_digits};
use crossway_records::stats::Estimate;

/// Head of the column with the share of late bursts.
pub(crate) const LATE: &str = "Late bursts";
/// Explains that column.
pub(crate) const LATE_EXPLAINED: &str = "the share of the bursts of all good trials together that began more than a tenth of \
                                         the period, or a millisecond if that is less, after their intended time";
/// Head of the column with the sender's own delay.
pub(crate) const SENDER_LATE: &str = "Sender late";
/// Explains that column, which stands beside [`LATE`].
pub(crate) const SENDER_LATE_EXPLAINED: &str = "the median delay that the sender itself added to its bursts, without the \
                                                time for which an earlier burst held it up, so it can be small \
                                                although nearly all bursts are late";

/// Returns the tables of paced streams (open loop): one per pace and size.
pub(super) fn sheets(summary: &Summary, setting: usize) -> Vec<Sheet> {
    let heads = |cpu| ["Offered", "Achieved", SENDER_LATE, "p50", "p99", "p99.9", "max", LATE, cpu];
    let row = |case: &Case| {
        let latency = case.workload.facts().measure.span().and_then(|span| case.latency(span));
        let pacing = case.pacing.as_ref();
        let estimate = |get: fn(&LatencySummary) -> Option<Estimate>| {
            Cell::figure(Quantity::Duration, latency.and_then(get))
        };
        // The percentile over all trials together, if no trial has one of its own.
        let percentile = |own: fn(&LatencySummary) -> Option<Estimate>, of_all| {
            let all = latency.filter(|l| own(l).is_none()).and_then(|l| pooled(l, of_all));
            all.unwrap_or_else(|| estimate(own))
        };
        let rate = |msgs_per_s| text_figure(Quantity::MessageRate, msgs_per_s);
        let offered = pacing.map(|p| p.intended_msgs_per_s);
        let mut achieved = rate(pacing.map(|p| p.intended_msgs_per_s * p.reached_share.value));
        achieved.note =
            pacing.map(|p| format!("{} %", three_digits(p.reached_share.value * 100.0)));
        if let Some(p) = pacing.filter(|p| p.missed_trials > 0 && !case.degraded) {
            achieved.note = Some(format!(
                "{} %, missed in {} of {} trials",
                three_digits(p.reached_share.value * 100.0),
                p.missed_trials,
                p.reached_share.n
            ));
        }
        vec![
            rate(offered),
            achieved,
            Cell::figure(Quantity::Duration, pacing.and_then(|p| p.lateness_p50_ns)),
            estimate(|l| Some(l.p50)),
            percentile(|l| l.p99, |all| all.p99),
            percentile(|l| l.p999, |all| all.p999),
            latency.map_or(Cell::text("–"), |l| duration(l.max)),
            text_figure(Quantity::Share, pacing.map(|p| p.late_share)),
            Cell::figure(Quantity::Duration, case.cpu_ns_per_msg),
        ]
    };
    let p50 = |case: &Case| {
        let latency = case.workload.facts().measure.span().and_then(|span| case.latency(span));
        latency.map(|l| l.p50)
    };
    let noise = |case: &Case| [p50(case), None];
    let order = |case: &Case| p50(case).map_or(f64::INFINITY, |p50| p50.value);
    let mut sheets = Vec::new();
    for (has_replies, cpu) in [(false, "CPU / message"), (true, CPU_ROUND_TRIP)] {
        let of_kind = |case: &Case| {
            let facts = case.workload.facts();
            facts.paced() && facts.has_replies == has_replies
        };
        sheets.extend(by_workload(summary, setting, of_kind, &heads(cpu), row, noise, order));
    }
    sheets.iter_mut().for_each(leave_out_empty_percentiles);
    sheets
}

/// The percentiles, with the number of samples that each needs.
const PERCENTILES: [(&str, &str); 2] = [("p99", "1,000"), ("p99.9", "10,000")];

/// Removes the columns of percentiles that no row has, and adds a note on how to measure them.
fn leave_out_empty_percentiles(sheet: &mut Sheet) {
    let empty: Vec<(&str, &str)> = PERCENTILES
        .into_iter()
        .filter(|(name, _)| {
            let at = sheet.heads.iter().position(|head| head == name);
            at.is_some_and(|at| sheet.rows.iter().all(|row| row.cells[at].sort.is_none()))
        })
        .collect();
    if empty.is_empty() {
        return;
    }
    for (name, _) in &empty {
        if let Some(at) = sheet.heads.iter().position(|head| head == name) {
            sheet.heads.remove(at);
            sheet.rows.iter_mut().for_each(|row| drop(row.cells.remove(at)));
        }
    }
    let names: Vec<&str> = empty.iter().map(|(name, _)| *name).collect();
    let verb = if empty.len() == 1 { "is" } else { "are" };
    let needed: Vec<&str> = empty.iter().map(|(_, samples)| *samples).collect();
    sheet.notes.push(format!(
        "{} {verb} not shown, because no case has enough samples ({} needed); measure longer (--measure-ms) or run more trials (--trials)",
        names.join(" and "),
        needed.join(" and "),
    ));
}
