//! Summarises fault records: one row per mechanism.

use std::collections::BTreeMap;

use super::{Fault, FaultRecord, Leftover, Outcome, Remover};
use crossway_records::record::Status;
use crossway_records::sorting::CollectTree;
use crossway_records::stats;

/// Summary of all attempts with one fault.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultSummary {
    /// Number of attempts that were measured.
    pub attempts: usize,
    /// The worst outcome; null if nothing was measured.
    pub worst: Option<Outcome>,
    /// Number of attempts in which the survivor hung.
    pub hung: usize,
    /// Median time until the survivor was notified, nanoseconds; null if it never was.
    pub detected_after_ns_median: Option<f64>,
    /// Longest time until the survivor was notified, nanoseconds; null if it never was.
    pub detected_after_ns_max: Option<u64>,
    /// Number of messages received that were not sent, over all attempts.
    pub received_not_sent: u64,
    /// Number of messages that were accepted and lost, over all attempts.
    pub sent_lost: u64,
    /// Number of attempts that failed.
    pub failed: usize,
    /// The first reason why an attempt was skipped or failed; null if all attempts were measured.
    pub reason: Option<String>,
}

/// Summary of the matrix for one mechanism.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The mechanism's id.
    pub mechanism: String,
    /// Summaries by fault.
    pub faults: BTreeMap<Fault, FaultSummary>,
    /// Objects left behind after a death, even after the survivor had closed its end; one example for each combination
    /// of kind and remover.
    pub left_behind: Vec<Leftover>,
    /// Whether leftovers were looked for.
    pub looked_for_leftovers: bool,
}

/// One summary per mechanism, in the order of the records.
pub fn summaries(records: &[FaultRecord]) -> Vec<Summary> {
    let mut rows: Vec<Summary> = Vec::new();
    for record in records {
        if !rows.iter().any(|row| row.mechanism == record.mechanism) {
            let of_it = records.iter().filter(|r| r.mechanism == record.mechanism);
            rows.push(summary(&record.mechanism, of_it.collect()));
        }
    }
    rows
}

fn summary(mechanism: &str, records: Vec<&FaultRecord>) -> Summary {
    let mut by_fault = BTreeMap::<Fault, Vec<&FaultRecord>>::new();
    for &record in &records {
        by_fault.entry(record.fault).or_default().push(record);
    }
    let mut left_behind: Vec<Leftover> = Vec::new();
    let looked = records.iter().filter_map(|r| r.left_behind.as_ref());
    for leftover in looked.clone().flatten().filter(|l| l.remover != Remover::Survivor) {
        if !left_behind.iter().any(|l| (l.kind, l.remover) == (leftover.kind, leftover.remover)) {
            left_behind.push(leftover.clone());
        }
    }
    Summary {
        mechanism: mechanism.to_owned(),
        faults: by_fault.into_iter().map(|(fault, of_it)| (fault, of_fault(&of_it))).collect_tree(),
        left_behind,
        looked_for_leftovers: looked.count() > 0,
    }
}

fn of_fault(records: &[&FaultRecord]) -> FaultSummary {
    let ok: Vec<_> = records.iter().filter(|r| r.status == Status::Ok).collect();
    let detected: Vec<f64> =
        ok.iter().filter_map(|r| r.detected_after_ns).map(|ns| ns as f64).collect();
    FaultSummary {
        attempts: ok.len(),
        worst: ok.iter().filter_map(|r| r.outcome).max(),
        hung: ok.iter().filter(|r| r.hung).count(),
        detected_after_ns_median: stats::sorted(&detected)
            .map(|s| stats::quantile_of_sorted(&s, 0.5)),
        detected_after_ns_max: ok.iter().filter_map(|r| r.detected_after_ns).max(),
        received_not_sent: ok.iter().filter_map(|r| r.received_not_sent).sum(),
        sent_lost: ok.iter().filter_map(|r| r.sent_lost).sum(),
        failed: records.iter().filter(|r| r.status == Status::Failed).count(),
        reason: records.iter().find_map(|r| r.reason.clone()),
    }
}
