//! The conclusions on messages that are sent at a fixed rate.

use std::cmp::Ordering;

use crossway_records::figure::Figure;
use crossway_records::percentile::Percentile;
use crossway_records::record::RATE_REACHED;

use super::{list, usual};
use crate::ranking::Metric;
use crate::summary::{Case, Summary};

/// Returns the figure by which paced mechanisms are compared in the first setting, and the message size: at the highest
/// rate at which several of one wait class have good trials, the figure by which `crossway rank` ranks them. A higher rate has more
/// samples. `None` if there are no good paced trials.
pub(super) fn metric(summary: &Summary) -> Option<(Metric, u64)> {
    let paced = |case: &Case| case.setting == 0 && !case.degraded && case.workload.facts().paced();
    let size = usual(&summary.sizes(paced))?;
    let cases = || summary.cases.iter().filter(|c| paced(c) && c.size_bytes == size);
    let rate = |case: &&Case| case.pacing.as_ref().map_or(0.0, |p| p.intended_msgs_per_s);
    let several = |case: &Case| {
        let alike = |c: &&Case| c.workload == case.workload && c.class == case.class;
        cases().filter(alike).count() > 1
    };
    let order = |case: &&Case| (several(case), rate(case));
    let workload =
        cases().max_by(|a, b| order(a).partial_cmp(&order(b)).unwrap_or(Ordering::Equal))?.workload;
    let latency = |percentile| {
        let figure = Figure::latency(workload.facts().measure, percentile)?;
        Some(Metric { workload, figure })
    };
    let (p50, p99) = (latency(Percentile::P50)?, latency(Percentile::P99)?);
    let mut rivals = cases().filter(|c| c.workload == workload);
    let has_p99 = !workload.facts().has_replies && rivals.all(|case| p99.of(case).is_some());
    Some((if has_p99 { p99 } else { p50 }, size))
}

/// Returns a sentence on the contenders whose median trial missed the rate; they are not ranked.
pub(super) fn rate_not_kept(summary: &Summary, metric: Metric, size: u64) -> Option<String> {
    let behind = |case: &&Case| {
        let reached = case.pacing.as_ref().map(|p| p.reached_share.value);
        case.setting == 0
            && case.degraded
            && (case.workload, case.size_bytes) == (metric.workload, size)
            && reached.is_some_and(|share| share < RATE_REACHED)
    };
    let names: Vec<String> = summary
        .cases
        .iter()
        .filter(behind)
        .map(|case| summary.contenders[case.contender].label())
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            " Not ranked, because most of their trials did not achieve the rate: {}.",
            list(names.into_iter())
        )
    })
}
