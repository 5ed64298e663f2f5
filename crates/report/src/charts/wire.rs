//! The charts of hosts and network: packets over time, packets in each direction, load of the hosts.

use super::{Axis, Chart, ChartKind, Scale, Series, View, compact, lines_over_size, settings_with};
use crate::summary::{Case, Summary, workload_name};
use crate::units;
use crossway_records::stats::Estimate;

/// Charts the packets per second over time, by interface and direction (item T5 of the Toshiba study).
pub(super) fn over_time(summary: &Summary) -> Option<Chart> {
    let mut views: Vec<View> = Vec::new();
    for case in &summary.cases {
        for flow in &case.wire.series {
            for (direction, rates) in
                [("sent", &flow.sent_per_s), ("received", &flow.received_per_s)]
            {
                let label = format!(
                    "{direction} at {}, {}, {}, {}",
                    flow.place,
                    workload_name(case.workload, case.size_bytes),
                    units::size(case.size_bytes),
                    summary.settings[case.setting].label()
                );
                let line = Series {
                    x: flow.at_s.iter().map(|s| compact(*s)).collect(),
                    y: rates.iter().map(|rate| compact(*rate)).collect(),
                    lo: rates.iter().map(|rate| compact(*rate)).collect(),
                    hi: rates.iter().map(|rate| compact(*rate)).collect(),
                    n: vec![1; rates.len()],
                    ..Series::of_contender(case.contender)
                };
                match views.iter_mut().find(|view| view.label == label) {
                    Some(view) => view.series.push(line),
                    None => views.push(View {
                        label,
                        size_bytes: Some(case.size_bytes),
                        series: vec![line],
                        ..View::default()
                    }),
                }
            }
        }
    }
    (!views.is_empty()).then(|| Chart {
        id: "packets-over-time",
        title: "Packets over time".to_owned(),
        findings: Vec::new(),
        reading: "The chart shows the packets per second on one host's interface, in the last trial of each case. A \
                  line begins a little before the measured part and ends a little after it. A protocol that puts \
                  several small messages into a packet stays below one that does not. The packets that the receiver \
                  sends are acknowledgements or replies."
            .to_owned(),
        kind: ChartKind::Lines,
        x: Axis::new("Time", Scale::Linear, "s"),
        y: Axis::new("Packets per second", Scale::Linear, "/s"),
        views,
        initial: 0,
        workloads: &[],
    })
}

/// Charts messages per packet, packets in the reverse direction, retransmissions, and the load of the hosts.
pub(super) fn hosts(summary: &Summary) -> Option<Chart> {
    type Figure = fn(&Case) -> Option<Estimate>;
    let figures: [(&str, &str, f64, Figure); 5] = [
        ("messages per packet", "", 1.0, |c| c.wire.msgs_per_packet),
        ("packets back per packet forward", "", 1.0, |c| c.wire.reverse_per_forward),
        ("retransmitted", "%", 100.0, |c| c.wire.again_share),
        ("load of the sender's host", "%", 100.0, |c| Some(c.wire.loads.first()?.1)),
        ("load of the receiver's host", "%", 100.0, |c| Some(c.wire.loads.last()?.1)),
    ];
    let mut workloads = Vec::new();
    for case in &summary.cases {
        if !workloads.contains(&case.workload) {
            workloads.push(case.workload);
        }
    }
    let mut views = Vec::new();
    for (what, unit, factor, figure) in figures {
        for &workload in &workloads {
            // Within one host these figures add nothing to the other charts.
            let of_it = |c: &Case| {
                let two_hosts = c.wire.loads.len() > 1;
                if c.workload == workload && two_hosts { figure(c) } else { None }
            };
            for setting in settings_with(summary, |c| of_it(c).is_some()) {
                views.push(View {
                    label: format!(
                        "{what}, {}, {}",
                        workload_name(workload, 0),
                        summary.settings[setting].label()
                    ),
                    value_axis: Some(Axis::new(what, Scale::Linear, unit)),
                    series: lines_over_size(summary, setting, factor, of_it),
                    ..View::default()
                });
            }
        }
    }
    (!views.is_empty()).then(|| Chart {
        id: "hosts",
        title: "Hosts and their packets".to_owned(),
        findings: Vec::new(),
        reading: "Forward is the direction of the messages or requests. Packets back are acknowledgements and, for \
                  round trips, the replies. “Retransmitted” is the share of retransmissions in all that the transport \
                  protocols sent. A host's load is the busy share of its CPUs, including interrupts; on a host that \
                  runs other programs, their load is included."
            .to_owned(),
        kind: ChartKind::Lines,
        x: Axis::size(),
        y: Axis::new("Messages per packet", Scale::Linear, ""),
        views,
        initial: 0,
        workloads: &[],
    })
}
