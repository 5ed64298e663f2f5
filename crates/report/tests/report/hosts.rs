//! Runs between hosts and containers.

use crossway_records::record::{
    HostMeters, PacketSample, PacketSeries, Packets, Record, Retransmissions, Status, Transport,
};
use crossway_report::charts;

use super::page::page;
use super::{FAST, Wait, round_trips, run_of};

/// Returns trials between two hosts, with everything that is measured there.
fn between_hosts() -> Vec<Record> {
    let mut records = round_trips("tcp", Wait::Block, &FAST);
    for record in &mut records {
        record.host_cpu = [("a", 50), ("b", 25)]
            .map(|(host, busy_ns)| HostMeters {
                host: host.to_owned(),
                busy_ns,
                softirq_ns: 1,
                irq_ns: 0,
                steal_ns: 0,
                cpus: 1,
                span_ns: Some(100),
            })
            .to_vec();
        record.packets =
            Some(Packets { per_msg: 1.5, msgs_per_packet: 1.0, reverse_per_forward: Some(0.5) });
        record.retransmissions = vec![Retransmissions {
            host: "a".to_owned(),
            transport: Transport::Tcp,
            sent: 90,
            again: 10,
        }];
        let samples = (0..3).map(|n| PacketSample {
            at_ns: n * 10_000_000,
            tx_packets: n * n * 10,
            rx_packets: n * 5,
        });
        record.packet_series = vec![PacketSeries {
            host: "a".to_owned(),
            interface: "eth0".to_owned(),
            interval_ms: 10,
            samples: samples.collect(),
            cost_ns: 1000,
        }];
    }
    records
}

#[test]
fn a_mechanism_that_fails_between_containers_keeps_its_whole_reason() {
    let mut records = round_trips("fifo", Wait::Block, &FAST);
    for record in &mut records {
        let spec = serde_json::json!({
            "name": "apart", "kind": "containers", "mtu_bytes": 1500, "offloads": "off", "tipc": [],
        });
        record.inputs.testbed = Some("apart".to_owned());
        record.inputs.testbed_spec = Some(serde_json::from_value(spec).expect("a testbed"));
        record.latency_ns.clear();
        record.status = Status::Skipped;
        record.reason = Some(
            "the ends cannot communicate between these containers: open /tmp/x: No such file or directory"
                .to_owned(),
        );
    }
    let page = page(&run_of(vec![records]));
    let (_, section) = page.split_once("<section id=\"containers\"").expect("the section");
    let (section, _) = section.split_once("</section>").expect("its end");
    assert!(section.contains("open &#x2f;tmp&#x2f;x: No such file or directory"), "{section}");
    assert!(!section.contains("the ends cannot communicate"), "{section}");
}

#[test]
fn what_hosts_and_their_packets_did_is_drawn() {
    let run = run_of(vec![between_hosts()]);
    let all = charts::all(&run.summary, &run.limits, &run.histograms);
    let values = |id: &str, label: &str| -> Vec<f64> {
        let chart = all.iter().find(|c| c.id == id).expect(id);
        let view = chart.views.iter().find(|v| v.label.starts_with(label)).expect(label);
        view.series[0].y.clone()
    };
    assert_eq!(values("packets-over-time", "sent at a/eth0, round trip"), [1000.0, 3000.0]);
    assert_eq!(values("packets-over-time", "received at a/eth0"), [500.0, 500.0]);
    assert_eq!(values("hosts", "packets back per packet forward, round trip"), [0.5]);
    assert_eq!(values("hosts", "retransmitted"), [10.0]);
    assert_eq!(values("hosts", "load of the sender's host"), [50.0]);
    assert_eq!(values("hosts", "load of the receiver's host"), [25.0]);
    let page = page(&run);
    assert!(page.contains("Packets over time") && page.contains("Hosts and their packets"));
    // One machine alone has no ways to tell apart.
    let run = run_of(vec![round_trips("tcp", Wait::Block, &FAST)]);
    let all = charts::all(&run.summary, &run.limits, &run.histograms);
    assert!(all.iter().all(|c| c.id != "hosts" && c.id != "packets-over-time"));
}
