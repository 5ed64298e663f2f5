//! Load of the hosts and packets on the network over a case's trials: packets in each direction, retransmissions,
//! packets over time.

use crossway_records::record::{PacketSeries, Record};
use crossway_records::stats::Estimate;

/// Maximum number of points of a packet series.
const POINTS_AT_MOST: usize = 400;

/// Load and packets of one case.
#[derive(Clone, Debug, Default)]
pub struct Wire {
    /// Messages per packet in the direction of the messages.
    pub msgs_per_packet: Option<Estimate>,
    /// Packets in the reverse direction per packet in the direction of the messages.
    pub reverse_per_forward: Option<Estimate>,
    /// Share of retransmissions in everything that the transport protocols sent.
    pub again_share: Option<Estimate>,
    /// Busy share of each host's CPUs; the sender's or client's host comes first.
    pub loads: Vec<(String, Estimate)>,
    /// Packets over time in the last trial.
    pub series: Vec<Flow>,
}

/// Packets of one interface over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// The host and its interface, `host/interface`.
    pub place: String,
    /// End of each interval, seconds since the first sample.
    pub at_s: Vec<f64>,
    /// Packets sent per second in each interval.
    pub sent_per_s: Vec<f64>,
    /// Packets received per second in each interval.
    pub received_per_s: Vec<f64>,
}

impl Wire {
    /// Aggregates the trials that count for the case.
    pub(crate) fn of(used: &[&Record]) -> Wire {
        let over = |get: &dyn Fn(&Record) -> Option<f64>| {
            let values: Vec<f64> = used.iter().filter_map(|r| get(r)).collect();
            Estimate::of(&values)
        };
        let hosts = used.last().map(|r| r.host_cpu.as_slice()).unwrap_or_default();
        let load_of = |host: &str| {
            over(&|r| r.host_cpu.iter().find(|h| h.host == host).and_then(|h| h.load()))
        };
        Wire {
            msgs_per_packet: over(&|r| Some(r.packets?.msgs_per_packet)),
            reverse_per_forward: over(&|r| r.packets?.reverse_per_forward),
            again_share: over(&|r| {
                let (sent, again) = r
                    .retransmissions
                    .iter()
                    .fold((0, 0), |(sent, again), t| (sent + t.sent, again + t.again));
                (sent > 0).then(|| again as f64 / (sent + again) as f64)
            }),
            loads: hosts.iter().filter_map(|h| Some((h.host.clone(), load_of(&h.host)?))).collect(),
            series: used
                .last()
                .map(|r| r.packet_series.iter().map(Flow::of).collect())
                .unwrap_or_default(),
        }
    }
}

impl Flow {
    fn of(series: &PacketSeries) -> Flow {
        let step = series.samples.len().div_ceil(POINTS_AT_MOST).max(1);
        let kept: Vec<_> = series.samples.iter().step_by(step).collect();
        let mut flow = Flow {
            place: format!("{}/{}", series.host, series.interface),
            at_s: Vec::new(),
            sent_per_s: Vec::new(),
            received_per_s: Vec::new(),
        };
        for pair in kept.windows(2) {
            let seconds = (pair[1].at_ns - pair[0].at_ns) as f64 * 1e-9;
            let rate = |now: u64, before: u64| (now - before) as f64 / seconds.max(1e-9);
            flow.at_s.push(pair[1].at_ns as f64 * 1e-9);
            flow.sent_per_s.push(rate(pair[1].tx_packets, pair[0].tx_packets));
            flow.received_per_s.push(rate(pair[1].rx_packets, pair[0].rx_packets));
        }
        flow
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossway_records::record::PacketSample;

    #[test]
    fn a_flow_is_packets_per_second_of_each_interval() {
        let sample = |ms: u64, tx_packets, rx_packets| PacketSample {
            at_ns: ms * 1_000_000,
            tx_packets,
            rx_packets,
        };
        let series = PacketSeries {
            host: "a".to_owned(),
            interface: "eth0".to_owned(),
            interval_ms: 10,
            samples: vec![sample(0, 0, 0), sample(10, 30, 1), sample(30, 30, 2)],
            cost_ns: 1,
        };
        let flow = Flow::of(&series);
        assert_eq!(flow.place, "a/eth0");
        let rounded = |values: &[f64]| values.iter().map(|v| v.round()).collect::<Vec<_>>();
        assert_eq!(rounded(&flow.sent_per_s), [3000.0, 0.0]);
        assert_eq!(rounded(&flow.received_per_s), [100.0, 50.0]);
        let long =
            PacketSeries { samples: (0..5_000).map(|ms| sample(ms, ms, ms)).collect(), ..series };
        assert!(Flow::of(&long).at_s.len() <= POINTS_AT_MOST);
    }
}
