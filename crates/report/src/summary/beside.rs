//! The figures of background workloads, which run at the same time as a case, over the case's trials.

use crossway_records::record::{BesideFigures, Record};
use crossway_records::stats::Estimate;

/// The figures of a background workload, over the trials of the case during which it ran.
#[derive(Clone, Debug)]
pub struct BesideSummary {
    /// Messages received per second.
    pub msgs_per_s: Option<Estimate>,
    /// Payload bytes received per second.
    pub bytes_per_s: Option<Estimate>,
    /// Rate requested by the plan, messages per second; paced streams only.
    pub intended_msgs_per_s: Option<f64>,
    /// Rate achieved over rate requested; paced streams only.
    pub reached_share: Option<Estimate>,
    /// Median latency in nanoseconds: of round trips or, for a paced stream, one way.
    pub p50: Option<Estimate>,
    /// 99th percentile of the latency, nanoseconds; `None` unless every trial has it.
    pub p99: Option<Estimate>,
    /// Largest latency of any trial, nanoseconds.
    pub max: Option<u64>,
}

impl BesideSummary {
    /// Returns one summary per background workload, in the order in which the records list them.
    pub(super) fn all(trials: &[&Record]) -> Vec<BesideSummary> {
        let count = trials.iter().map(|r| r.beside.len()).max().unwrap_or(0);
        (0..count).map(|at| BesideSummary::of(trials, at)).collect()
    }

    fn of(trials: &[&Record], at: usize) -> BesideSummary {
        let those: Vec<&BesideFigures> = trials.iter().filter_map(|r| r.beside.get(at)).collect();
        let over = |get: &dyn Fn(&BesideFigures) -> Option<f64>| {
            Estimate::of(&those.iter().filter_map(|b| get(b)).collect::<Vec<_>>())
        };
        // Left out unless every trial has the percentile: a median over some of the trials would be biased.
        let p99s: Option<Vec<f64>> =
            those.iter().map(|b| b.latency_ns.first()?.p99.map(|ns| ns as f64)).collect();
        BesideSummary {
            msgs_per_s: over(&|b| Some(b.throughput.msgs_per_s)),
            bytes_per_s: over(&|b| Some(b.throughput.bytes_per_s)),
            intended_msgs_per_s: those
                .iter()
                .find_map(|b| Some(b.pacing?.intended_msgs_per_s(b.size_bytes))),
            reached_share: over(&|b| Some(b.pacing?.reached_share())),
            p50: over(&|b| Some(b.latency_ns.first()?.p50 as f64)),
            p99: p99s.and_then(|values| Estimate::of(&values)),
            max: those.iter().filter_map(|b| Some(b.latency_ns.first()?.max)).max(),
        }
    }
}
