//! The chart of latency distributions, as percentile curves.

use crossway_records::record::Span;
use crossway_records::sorting::SortSmall;

use super::{Axis, Chart, ChartKind, Scale, Series, View, compact};
use crate::histograms::Histograms;
use crate::summary::{LatencySummary, Summary, workload_name};
use crate::units;

pub(super) fn percentiles(summary: &Summary, histograms: &Histograms) -> Option<Chart> {
    let mut views = Vec::new();
    for span in [Span::RoundTrip, Span::OneWay] {
        let sizes = summary.sizes(|c| c.latency(span).is_some());
        for setting in super::settings_with(summary, |c| c.latency(span).is_some()) {
            for &size in &sizes {
                // Paced cases differ in rate: each rate gets a view of its own.
                let mut workloads: Vec<_> = summary
                    .cases
                    .iter()
                    .filter(|c| c.setting == setting && c.size_bytes == size)
                    .filter(|c| c.latency(span).is_some())
                    .map(|c| c.workload)
                    .collect();
                workloads.sort_small_by_key(|w| crate::summary::workload_rank(*w));
                workloads.dedup();
                for workload in workloads {
                    let series: Vec<Series> = summary
                        .cases
                        .iter()
                        .filter(|c| {
                            c.setting == setting && c.size_bytes == size && c.workload == workload
                        })
                        .filter_map(|c| Some(curve(c.contender, c.latency(span)?, histograms)))
                        .collect();
                    views.push(View {
                        label: format!(
                            "{}, {}, {}",
                            workload_name(workload, size),
                            units::size(size),
                            summary.settings[setting].label()
                        ),
                        size_bytes: Some(size),
                        series,
                        ..View::default()
                    });
                }
            }
        }
    }
    (!views.is_empty()).then(|| Chart {
        id: "distribution",
        title: "Latency distributions".to_owned(),
        findings: Vec::new(),
        reading: format!(
            "At 99 %, the curve shows the latency that 99 of 100 messages did not exceed. A flat curve means a steady \
             latency; a curve that climbs to the right has a tail. A percentile is drawn only if at least ten samples \
             lie beyond it. {}",
            histograms.note()
        ),
        kind: ChartKind::Lines,
        x: Axis::new("Percentile", Scale::Nines, "%"),
        y: Axis::new("Latency", Scale::Log, "s"),
        views,
        initial: 0,
        workloads: &["ping-pong", "paced", "requests"],
    })
}

/// Converts a quantile to its number of nines: 0.9 is 1, 0.99 is 2.
fn nines(quantile: f64) -> f64 {
    -(1.0 - quantile).log10()
}

fn curve(contender: usize, latency: &LatencySummary, histograms: &Histograms) -> Series {
    let mut series = Series::of_contender(contender);
    if let Some(points) = histograms.curve(latency.span, &latency.histograms) {
        for (quantile, ns) in points {
            series.x.push(compact(nines(quantile)));
            series.y.push(compact(ns * 1e-9));
        }
        return series;
    }
    let known = [
        (0.5, Some(latency.p50)),
        (0.9, Some(latency.p90)),
        (0.99, latency.p99),
        (0.999, latency.p999),
        (0.9999, latency.p9999),
    ];
    for (quantile, figure) in known {
        if let Some(figure) = figure {
            series.push(compact(nines(quantile)), &figure, 1e-9, false);
        }
    }
    series
}
