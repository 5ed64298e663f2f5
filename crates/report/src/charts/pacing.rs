//! The chart of latency and CPU share of paced streams by rate.

use crossway_records::inputs::{Workload, messages_per_burst};
use crossway_records::record::Span;
use crossway_records::stats::Estimate;

use super::{Axis, Chart, ChartKind, Scale, Series, View, compact};
use crate::summary::{Case, Summary};

/// Returns the messages per second of a paced workload; `None` for other workloads.
fn rate(workload: Workload, size: u64) -> Option<f64> {
    match workload {
        Workload::Paced { burst_bytes, period_us } if size > 0 && period_us > 0 => {
            Some(messages_per_burst(burst_bytes, size) as f64 * 1e6 / period_us as f64)
        }
        _ => None,
    }
}

/// Returns the CPU share of the busiest kind of role; `None` if no share was measured.
fn busiest(case: &Case) -> Option<Estimate> {
    case.role_shares.iter().map(|r| r.share).max_by(|a, b| a.value.total_cmp(&b.value))
}

/// Returns whether the series have points at more than one rate.
fn several_rates(series: &[Series]) -> bool {
    let mut rates = series.iter().flat_map(|s| &s.x);
    let first = rates.next();
    rates.any(|rate| Some(rate) != first)
}

pub(super) fn by_rate(summary: &Summary) -> Option<Chart> {
    type Figure = fn(&Case) -> Option<Estimate>;
    let figures: [(&str, Axis, f64, Figure); 4] = [
        ("median", Axis::new("Latency from the intended time", Scale::Log, "s"), 1e-9, |c| {
            c.latency(Span::OneWay).map(|l| l.p50)
        }),
        (
            "99th percentile",
            Axis::new("Latency from the intended time", Scale::Log, "s"),
            1e-9,
            |c| c.latency(Span::OneWay).and_then(|l| l.p99),
        ),
        (
            "CPU share",
            Axis::new("CPU share of the busiest end", Scale::Linear, "%"),
            100.0,
            busiest,
        ),
        ("late bursts", Axis::new("Bursts begun late", Scale::Linear, "%"), 100.0, |c| {
            // The share of all bursts together has no interval.
            c.pacing.as_ref().map(|p| Estimate {
                value: p.late_share,
                low: p.late_share,
                high: p.late_share,
                n: p.reached_share.n,
            })
        }),
    ];
    let paced = |c: &Case| rate(c.workload, c.size_bytes).is_some();
    let mut views = Vec::new();
    for (name, axis, factor, figure) in figures {
        for setting in super::settings_with(summary, paced) {
            for size in summary.sizes(|c| c.setting == setting && paced(c)) {
                let mut series: Vec<Series> = Vec::new();
                for case in
                    summary.cases.iter().filter(|c| c.setting == setting && c.size_bytes == size)
                {
                    let (Some(rate), Some(value)) = (rate(case.workload, size), figure(case))
                    else {
                        continue;
                    };
                    if series.last().is_none_or(|s| s.contender != Some(case.contender)) {
                        series.push(Series::of_contender(case.contender));
                    }
                    if let Some(line) = series.last_mut() {
                        line.push(compact(rate), &value, factor, case.degraded);
                    }
                }
                // A single rate needs a table, not a chart.
                if !several_rates(&series) {
                    continue;
                }
                views.extend(View::of_size(summary, (name, &axis), (size, setting), series));
            }
        }
    }
    (!views.is_empty()).then(|| Chart {
        id: "pacing",
        title: "Paced streams".to_owned(),
        findings: Vec::new(),
        reading: "Messages are due at fixed times, whatever happened before. Latency counts from the time at which a \
                  message was due, so a stall shows in the latency of every message that it delays. At low rates both \
                  ends sleep between messages, and the latency is mostly the time that the machine takes to wake \
                  them."
            .to_owned(),
        kind: ChartKind::Lines,
        x: Axis::new("Messages per second", Scale::Log, "msg/s"),
        y: Axis::new("Latency from the intended time", Scale::Log, "s"),
        views,
        initial: 0,
        workloads: &["paced"],
    })
}
