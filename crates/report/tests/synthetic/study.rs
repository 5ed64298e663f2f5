//! SYNTHETIC trials of TCP and TIPC between two hosts, as in the studies.

use crossway_lab::moves::MoveRecord;
use crossway_lab::mpi::{Library, MpiRecord, MpiResult, Way};
use crossway_records::inputs::{Ends, Wait, Workload};
use crossway_records::record::{HostMeters, IfaceMeters, Record, Span, Status};

use super::{Ask, MADE, Noise};

/// The invented performance of one protocol at one size.
#[derive(Clone, Copy)]
pub(crate) struct Does {
    /// Nanoseconds per message, round trip or exchange.
    pub(crate) ns: f64,
    /// Packets per message in the direction of the messages and in the other one.
    pub(crate) packets: (f64, f64),
    /// Busy share of the CPUs of the sender's and of the receiver's host.
    pub(crate) load: (f64, f64),
    /// Bytes on the wire per byte of payload.
    pub(crate) overhead: f64,
    /// Relative scatter of the trials.
    pub(crate) scatter: f64,
}

/// A protocol without peculiarities.
pub(crate) const DOES: Does =
    Does { ns: 100_000.0, packets: (1.0, 0.5), load: (0.2, 0.2), overhead: 1.05, scatter: 0.01 };

/// Builds five trials of each of the two protocols on a testbed.
pub(crate) struct Made {
    /// The trials.
    pub(crate) records: Vec<Record>,
    /// The trials in which a process moved.
    pub(crate) moves: Vec<MoveRecord>,
    /// The trials of MPI.
    pub(crate) mpi: Vec<MpiRecord>,
    noise: Noise,
}

impl Made {
    /// Creates no trials.
    pub(crate) fn new() -> Made {
        Made { records: Vec::new(), moves: Vec::new(), mpi: Vec::new(), noise: Noise::new(77) }
    }

    /// Adds `trials` of a library of MPI over TCP, where the application takes 100 ms, and over TIPC, where it takes
    /// `times` as long.
    pub(crate) fn mpi(&mut self, library: Library, times: f64, trials: u32) {
        for trial in 0..trials {
            for way in Way::ALL {
                let slower = if way == Way::Tcp { 1.0 } else { times };
                let time = |ns: f64, noise: &mut Noise| ns * slower * noise.around(0.01);
                let result = MpiResult {
                    small_one_way_ns: time(20e3, &mut self.noise),
                    large_one_way_ns: time(200e3, &mut self.noise),
                    small_msgs_per_s: 1e9 / time(5e3, &mut self.noise),
                    large_bytes_per_s: 1e18 / time(2e9, &mut self.noise),
                    halo_ns: time(100e6, &mut self.noise),
                    halo_in_mpi: 0.5,
                    halo_sum: 1.0,
                };
                self.mpi.push(MpiRecord {
                    schema: 1,
                    run: "r".to_owned(),
                    started_unix_ms: 1,
                    trial,
                    library: Some(library),
                    way: Some(way),
                    status: Status::Ok,
                    reason: None,
                    remedy: None,
                    result: Some(result),
                });
            }
        }
    }

    /// Adds five trials of a mechanism, and returns them.
    pub(crate) fn add(
        &mut self,
        mechanism: &str,
        workload: Workload,
        ends: Ends,
        bytes: u64,
        does: Does,
    ) -> &mut [Record] {
        let ask = Ask::idle(workload, bytes);
        let first = self.records.len();
        for trial in 0..5 {
            let mut r = super::trial(&MADE[0], &ask, trial, 5, trial, &mut self.noise);
            let ns = does.ns * self.noise.around(does.scatter);
            r.plan = "own".to_owned();
            r.mechanism = mechanism.to_owned();
            r.case = format!("{mechanism}/{workload:?}/{bytes}/{ends:?}");
            r.inputs.wait = Wait::Block;
            (r.status, r.reason, r.remedy) = (Status::Ok, None, None);
            r.inputs.testbed = Some("ethernet".to_owned());
            r.inputs.ends = ends;
            r.inputs.testbed_spec = Some(
                serde_json::from_value(serde_json::json!({
                    "name": "ethernet", "kind": "guests", "rate": "100mbit", "mtu_bytes": 1500, "offloads": "off",
                    "tipc": ["kernel"],
                }))
                .expect("a testbed"),
            );
            r.host = "a to b".to_owned();
            let messages = 1000;
            let counts = r.counts.as_mut().expect("counted");
            (counts.sent, counts.received, counts.bytes) = (messages, messages, messages * bytes);
            let throughput = r.throughput.as_mut().expect("timed");
            throughput.wall_ns = (ns * messages as f64) as u64;
            throughput.msgs_per_s = 1e9 / ns;
            throughput.bytes_per_s = throughput.msgs_per_s * bytes as f64;
            for latency in r.latency_ns.iter_mut().filter(|l| l.span == Span::RoundTrip) {
                latency.p50 = ns as u64;
            }
            let wall = throughput.wall_ns;
            let there = if ends == Ends::Between { "b" } else { "a" };
            (r.roles[0].host, r.roles[1].host) = ("a".to_owned(), there.to_owned());
            r.host_cpu = [("a", does.load.0), ("b", does.load.1)]
                .into_iter()
                .map(|(host, share)| HostMeters {
                    host: host.to_owned(),
                    busy_ns: (share * wall as f64 * self.noise.around(does.scatter)) as u64,
                    softirq_ns: 0,
                    irq_ns: 0,
                    steal_ns: 0,
                    cpus: 1,
                    span_ns: Some(wall),
                })
                .collect();
            r.net = [("a", does.packets.0), ("b", does.packets.1)]
                .into_iter()
                .map(|(host, packets)| IfaceMeters {
                    host: host.to_owned(),
                    name: "eth0".to_owned(),
                    tx_packets: (packets * messages as f64) as u64,
                    tx_bytes: (does.overhead * (messages * bytes) as f64) as u64,
                    ..IfaceMeters::default()
                })
                .collect();
            self.records.push(r);
        }
        &mut self.records[first..]
    }

    /// Adds five trials of each protocol.
    pub(crate) fn both(
        &mut self,
        workload: Workload,
        ends: Ends,
        bytes: u64,
        tcp: Does,
        tipc: Does,
    ) -> &mut Made {
        self.add("tcp", workload, ends, bytes, tcp);
        self.add("tipc-kernel-stream", workload, ends, bytes, tipc);
        self
    }
}

/// Returns trials of the plan `toshiba`: a sweep of sizes, the sizes around its step, round trips and a steady stream.
pub(crate) fn toshiba() -> Vec<Record> {
    let mut made = Made::new();
    let between = Ends::Between;
    let packets = |bytes: u64| (bytes as f64 / 1476.0).ceil();
    let one_way = |bytes: u64, each: f64| Does {
        ns: 20_000.0 + 30_000.0 * each + bytes as f64,
        packets: (each, 0.5 * each),
        ..DOES
    };
    for bytes in (1..=16).map(|n| 512 * n).chain(2940..=2966) {
        let tcp = one_way(bytes, bytes as f64 / 1460.0);
        made.both(Workload::Throughput, between, bytes, tcp, one_way(bytes, packets(bytes)));
    }
    for bytes in [16, 512, 4096, 16_384] {
        made.both(Workload::PingPong, between, bytes, DOES, Does { ns: 1.1 * DOES.ns, ..DOES });
    }
    let stream = Workload::Paced { burst_bytes: 262_144, period_us: 80_000 };
    made.both(stream, between, 262_144, DOES, Does { load: (0.1, 0.1), ..DOES });
    of_plan("toshiba", made)
}

/// Returns trials of the plan `cluster`: exchanges between two hosts and within one, and streams with set socket
/// buffers.
pub(crate) fn cluster() -> Vec<Record> {
    let mut made = Made::new();
    for ends in [Ends::Between, Ends::Within] {
        for bytes in [64, 256, 1024, 2048, 4096, 16_384, 65_536] {
            let does =
                |ns: f64, each| Does { ns: ns + bytes as f64, packets: (each, each), ..DOES };
            made.both(Workload::Exchange, ends, bytes, does(100_000.0, 4.5), does(60_000.0, 2.0));
        }
    }
    for length in [1024u64, 4096, 16_384] {
        for power in 11..=17 {
            let ns = if 1 << power < length { 40_000.0 } else { 20_000.0 } + length as f64;
            let does = Does { ns, ..DOES };
            for r in made.add("tcp", Workload::Throughput, Ends::Between, length, does) {
                r.inputs.socket_buffer_bytes = Some(1 << power);
            }
        }
    }
    of_plan("cluster", made)
}

fn of_plan(plan: &str, mut made: Made) -> Vec<Record> {
    made.records.iter_mut().for_each(|r| r.plan = plan.to_owned());
    made.records
}
