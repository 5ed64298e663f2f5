//! The charts of CPU time against speed and against message size.

use super::{Axis, Chart, ChartKind, Scale, Series, View, compact, lines_over_size, settings_with};
use crate::ranking::Metric;
use crate::summary::Summary;

pub(super) fn trade_off(summary: &Summary) -> Option<Chart> {
    let mut views = Vec::new();
    for (metric, cost, name, axis) in [
        (
            Metric::ROUND_TRIP_P50,
            Metric::CPU_PER_ROUND_TRIP,
            "round trip",
            Axis::new("Median round trip", Scale::Log, "s"),
        ),
        (
            Metric::MESSAGE_RATE,
            Metric::CPU_PER_MESSAGE,
            "message rate",
            Axis::new("Messages per second", Scale::Log, "msg/s"),
        ),
    ] {
        let factor = if metric == Metric::ROUND_TRIP_P50 { 1e-9 } else { 1.0 };
        let settings = settings_with(summary, |c| metric.of(c).is_some() && cost.of(c).is_some());
        for setting in settings {
            for size in summary.sizes(|c| c.setting == setting && metric.of(c).is_some()) {
                let series: Vec<Series> = summary
                    .cases
                    .iter()
                    .filter(|c| c.setting == setting && c.size_bytes == size)
                    .filter_map(|c| {
                        let (speed, cost) = (metric.of(c)?, cost.of(c)?);
                        let mut point = Series::of_contender(c.contender);
                        point.push(compact(cost.value * 1e-9), &speed, factor, c.degraded);
                        let (low, high) = cost.bar();
                        point.xlo.push(compact(low * 1e-9));
                        point.xhi.push(compact(high * 1e-9));
                        Some(point)
                    })
                    .collect();
                views.extend(View::of_size(summary, (name, &axis), (size, setting), series));
            }
        }
    }
    (!views.is_empty()).then(|| Chart {
        id: "trade-off",
        title: "What the speed costs".to_owned(),
        findings: Vec::new(),
        reading: "Each marker is one mechanism at one message size: how fast it is (vertical) and how much CPU time \
                  both ends together spend for one message or one round trip (horizontal). Further left is cheaper. \
                  Mechanisms that spin, even for a limited time, buy their speed with CPU time. Their markers are \
                  hollow, and so are those of degraded cases."
            .to_owned(),
        kind: ChartKind::Scatter,
        x: Axis::new("CPU time per message, both ends", Scale::Log, "s"),
        y: Axis::new("Median round trip", Scale::Log, "s"),
        views,
        initial: 0,
        workloads: &["ping-pong", "throughput"],
    })
}

pub(super) fn cpu_per_message(summary: &Summary) -> Option<Chart> {
    let mut views = Vec::new();
    for (metric, name) in [
        (Metric::CPU_PER_MESSAGE, "per message, one way"),
        (Metric::CPU_PER_ROUND_TRIP, "per round trip"),
    ] {
        for setting in settings_with(summary, |c| metric.of(c).is_some()) {
            let series = lines_over_size(summary, setting, 1e-9, |c| metric.of(c));
            views.push(View {
                label: format!("{name}, {}", summary.settings[setting].label()),
                series,
                ..View::default()
            });
        }
    }
    for setting in settings_with(summary, |c| c.bits_per_cpu_s.is_some()) {
        let series = lines_over_size(summary, setting, 1.0, |c| {
            c.bits_per_cpu_s.filter(|_| Metric::BYTE_RATE.of(c).is_some())
        });
        if !series.is_empty() {
            views.push(View {
                label: format!("bits per CPU-second, {}", summary.settings[setting].label()),
                value_axis: Some(Axis::new("Payload bits per CPU-second", Scale::Log, "bit/s")),
                series,
                ..View::default()
            });
        }
    }
    (!views.is_empty()).then(|| Chart {
        id: "cpu",
        title: "CPU time against message size".to_owned(),
        findings: Vec::new(),
        reading: "User and system time of both ends for one message or round trip; lower is better. In the views of \
                  bits per CPU-second, higher is better. Work that the kernel does in soft interrupts on behalf of a \
                  socket is charged to whichever process was running, so network mechanisms may cost a little more \
                  than shown."
            .to_owned(),
        kind: ChartKind::Lines,
        x: Axis::size(),
        y: Axis::new("CPU time per message", Scale::Log, "s"),
        views,
        initial: 0,
        workloads: &["ping-pong", "throughput"],
    })
}
