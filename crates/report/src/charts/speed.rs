//! The charts of round trip and throughput against message size.

use super::{Axis, Chart, ChartKind, Level, Scale, View, lines_over_size, settings_with};
use crate::limits::Limits;
use crate::ranking::Metric;
use crate::summary::Summary;

pub(super) fn round_trip(summary: &Summary, limits: &Limits) -> Option<Chart> {
    let settings = settings_with(summary, |c| Metric::ROUND_TRIP_P50.of(c).is_some());
    let mut views = Vec::new();
    for (metric, name) in
        [(Metric::ROUND_TRIP_P50, "median"), (Metric::ROUND_TRIP_P99, "99th percentile")]
    {
        for &setting in &settings {
            let series = lines_over_size(summary, setting, 1e-9, |c| metric.of(c));
            if series.is_empty() {
                continue;
            }
            let levels = limits
                .round_trip_levels(summary)
                .into_iter()
                .map(|(name, ns)| Level { name, x: Vec::new(), y: vec![ns * 1e-9] })
                .collect();
            views.push(View {
                label: format!("{name}, {}", summary.settings[setting].label()),
                setting: Some(setting),
                series,
                levels,
                ..View::default()
            });
        }
    }
    (!views.is_empty()).then(|| Chart {
        id: "round-trip",
        title: "Round trip against message size".to_owned(),
        findings: Vec::new(),
        reading: "Time from sending a request to receiving its reply, which has the same size unless stated; lower is better. Each marker is the \
                  median over trials. Both axes are logarithmic: equal distances are equal \
                  factors. A round trip is shown as measured, never halved."
            .to_owned(),
        kind: ChartKind::Lines,
        x: Axis::size(),
        y: Axis::new("Round trip", Scale::Log, "s"),
        views,
        initial: 0,
        workloads: &["ping-pong"],
    })
}

pub(super) fn throughput(summary: &Summary, limits: &Limits) -> Option<Chart> {
    let settings = settings_with(summary, |c| Metric::BYTE_RATE.of(c).is_some());
    let mut views = Vec::new();
    for (metric, name, axis) in [
        (Metric::BYTE_RATE, "bytes", Axis::new("Payload bytes per second", Scale::Log, "B/s")),
        (Metric::MESSAGE_RATE, "messages", Axis::new("Messages per second", Scale::Log, "msg/s")),
    ] {
        for &setting in &settings {
            let series = lines_over_size(summary, setting, 1.0, |c| metric.of(c));
            if series.is_empty() {
                continue;
            }
            let levels =
                if metric == Metric::BYTE_RATE { limits.copy_levels() } else { Vec::new() };
            views.push(View {
                label: format!("{name}, {}", summary.settings[setting].label()),
                setting: Some(setting),
                value_axis: Some(axis.clone()),
                series,
                levels: levels
                    .into_iter()
                    .map(|(name, points)| {
                        let (x, y) = points.into_iter().unzip();
                        Level { name, x, y }
                    })
                    .collect(),
                ..View::default()
            });
        }
    }
    (!views.is_empty()).then(|| Chart {
        id: "throughput",
        title: "Throughput against message size".to_owned(),
        findings: Vec::new(),
        reading: "One end sends as fast as the other receives; the sender writes every byte and the receiver reads \
                  every byte. Higher is better. Markers are medians over trials. Small messages \
                  are limited by the cost per message, large ones by the cost per byte; a line bends where one takes \
                  over from the other."
            .to_owned(),
        kind: ChartKind::Lines,
        x: Axis::size(),
        y: Axis::new("Payload bytes per second", Scale::Log, "B/s"),
        views,
        initial: 0,
        workloads: &["throughput"],
    })
}
