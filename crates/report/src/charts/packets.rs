//! The chart of packets per message on the interfaces that carried the traffic.

use crossway_records::inputs::Workload;

use super::{Axis, Chart, ChartKind, Scale, View, lines_over_size, settings_with};
use crate::summary::{Case, Packets, Summary};

pub(super) fn per_message(summary: &Summary) -> Option<Chart> {
    let mut views = Vec::new();
    for (workload, name) in [
        (Workload::Throughput, "one way"),
        (Workload::PingPong, "per round trip"),
        (Workload::Exchange, "per exchange"),
    ] {
        let first = |c: &Case| -> Option<Packets> {
            (c.workload == workload).then(|| c.packets.first().cloned()).flatten()
        };
        for setting in settings_with(summary, |c| first(c).is_some()) {
            for (direction, pick) in [
                ("sent", (|p: &Packets| p.tx_per_msg) as fn(&Packets) -> _),
                ("received", |p: &Packets| p.rx_per_msg),
            ] {
                let series = lines_over_size(summary, setting, 1.0, |c| first(c).map(|p| pick(&p)));
                views.push(View {
                    label: format!("{direction}, {name}, {}", summary.settings[setting].label()),
                    series,
                    ..View::default()
                });
            }
        }
    }
    (!views.is_empty()).then(|| Chart {
        id: "packets",
        title: "Packets per message".to_owned(),
        findings: Vec::new(),
        reading: "Packets on the interface during the trial, divided by the messages received. Below one, the mechanism puts \
                  several messages into a packet; above one, it cuts them up or adds acknowledgements. On the loopback interface \
                  every packet is counted as sent and as received, and acknowledgements are included."
            .to_owned(),
        kind: ChartKind::Lines,
        x: Axis::size(),
        y: Axis::new("Packets per message", Scale::Log, ""),
        views,
        initial: 0,
        workloads: &["throughput", "ping-pong", "exchange"],
    })
}
