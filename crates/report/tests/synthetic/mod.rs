//! SYNTHETIC records: made up from a formula and seeded noise, for tests and for looking at the report. No figure in them was
//! measured, and none says anything about any mechanism.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use crossway_lab::env::Environment;
use crossway_lab::inputs::{Access, Inputs, Load, Placement, Wait, Workload};
use crossway_lab::limits::{CopyLimit, Layout, Limits, Memcpy, PairLines, Spread, Wake, WakeKind};
use crossway_lab::record::{
    Calibration, Cost, Counts, Fairness, IfaceMeters, Latency, Pacing, Packets, Record, RoleMeters,
    SCHEMA, Span, Status, Throughput,
};

/// Noise that is the same in every run.
pub(crate) struct Noise(u64);

impl Noise {
    /// From a seed.
    pub(crate) fn new(seed: u64) -> Noise {
        Noise(seed | 1)
    }

    /// Uniform in 0..1 (xorshift64*).
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Around 1, give or take `share`.
    pub(crate) fn around(&mut self, share: f64) -> f64 {
        1.0 + share * (self.next() + self.next() - 1.0)
    }
}

/// A made-up mechanism: round trip and one-way cost of an empty message, and of a byte; nanoseconds.
pub(crate) struct Made {
    /// Its id.
    pub(crate) id: &'static str,
    wait: Wait,
    round_trip_ns: f64,
    message_ns: f64,
    byte_ns: f64,
    suffers: f64,
}

const fn made(
    id: &'static str,
    wait: Wait,
    round_trip_ns: f64,
    message_ns: f64,
    byte_ns: f64,
    suffers: f64,
) -> Made {
    Made { id, wait, round_trip_ns, message_ns, byte_ns, suffers }
}

/// The made-up mechanisms.
pub(crate) const MADE: [Made; 26] = [
    made("pipe", Wait::Block, 13_000.0, 900.0, 0.22, 1.4),
    made("fifo", Wait::Block, 13_200.0, 910.0, 0.22, 1.4),
    made("vmsplice", Wait::Block, 14_500.0, 1_900.0, 0.12, 1.6),
    made("uds-stream", Wait::Block, 12_500.0, 1_000.0, 0.18, 2.6),
    made("uds-dgram", Wait::Block, 12_900.0, 1_150.0, 0.20, 2.5),
    made("uds-seqpacket", Wait::Block, 12_100.0, 1_020.0, 0.19, 2.7),
    made("tcp", Wait::Block, 26_000.0, 640.0, 0.24, 1.2),
    made("tcp-nodelay", Wait::Block, 25_000.0, 1_900.0, 0.25, 1.2),
    made("udp", Wait::Block, 21_000.0, 1_700.0, 0.30, 1.5),
    made("mptcp", Wait::Block, 31_000.0, 900.0, 0.31, 1.3),
    made("posix-mq", Wait::Block, 11_700.0, 820.0, 0.26, 2.0),
    made("sysv-mq", Wait::Block, 12_000.0, 700.0, 0.28, 2.1),
    made("shm-futex", Wait::Block, 9_600.0, 75.0, 0.062, 1.7),
    made("shm-pipe", Wait::Block, 12_800.0, 860.0, 0.065, 1.5),
    made("shm-eventfd", Wait::Block, 11_900.0, 480.0, 0.064, 1.6),
    made("sysv-shm", Wait::Block, 13_900.0, 1_100.0, 0.066, 1.9),
    made("memfd-uds", Wait::Block, 16_000.0, 3_800.0, 0.068, 1.8),
    made("cma", Wait::Block, 17_000.0, 2_600.0, 0.09, 1.8),
    made("uring-pipe", Wait::Block, 15_100.0, 1_300.0, 0.23, 1.5),
    made("uring-uds", Wait::Block, 14_400.0, 1_250.0, 0.19, 2.2),
    made("uring-tcp", Wait::Block, 27_400.0, 1_000.0, 0.25, 1.3),
    made("linx", Wait::Block, 19_000.0, 2_100.0, 0.21, 1.9),
    made("shm-futex", Wait::Hybrid { spin_us: 20 }, 420.0, 62.0, 0.062, 3.0),
    made("shm-spin", Wait::Spin, 240.0, 58.0, 0.060, 4.5),
    made("uds-stream", Wait::Spin, 3_900.0, 1_050.0, 0.18, 3.5),
    made("pipe", Wait::Spin, 3_600.0, 940.0, 0.22, 3.4),
];

/// What one trial asks for.
#[derive(Clone)]
pub(crate) struct Ask {
    /// What is done.
    pub(crate) workload: Workload,
    /// Message size.
    pub(crate) size_bytes: u64,
    /// Where.
    pub(crate) placement: Placement,
    /// Beside what.
    pub(crate) load: Load,
    /// Socket buffer.
    pub(crate) socket_buffer_bytes: Option<u64>,
}

impl Ask {
    /// On two idle cores.
    pub(crate) fn idle(workload: Workload, size_bytes: u64) -> Ask {
        Ask {
            workload,
            size_bytes,
            placement: Placement::SharedCache,
            load: Load::default(),
            socket_buffer_bytes: None,
        }
    }
}

fn latency(span: Span, p50: f64, n: u64, noise: &mut Noise) -> Latency {
    let at = |factor: f64| (p50 * factor) as u64;
    let tail = noise.around(0.3);
    Latency {
        span,
        n,
        min: at(0.8),
        mean: p50 * 1.06,
        p50: at(1.0),
        p90: at(1.12),
        p99: (n >= 1_000).then(|| at(1.5 * tail)),
        p999: (n >= 10_000).then(|| at(3.0 * tail)),
        p9999: (n >= 100_000).then(|| at(9.0 * tail)),
        max: at(40.0 * tail),
        batch: 1,
        histogram: None,
    }
}

/// One trial of a made-up mechanism.
pub(crate) fn trial(
    made: &Made,
    ask: &Ask,
    trial: u32,
    trials: u32,
    order: u32,
    noise: &mut Noise,
) -> Record {
    let size = ask.size_bytes as f64;
    let apart: f64 = match ask.placement {
        Placement::Cpus { a, b } if a == b => 0.7,
        Placement::Cpus { a, b } if a / 2 == b / 2 => 0.6,
        Placement::Cpus { a, b } if a / 4 == b / 4 => 1.0,
        Placement::Cpus { .. } => 1.7,
        Placement::SameCore => 0.7,
        Placement::CrossSocket => 1.8,
        _ => 1.0,
    };
    let loaded = if ask.load.is_idle() { 1.0 } else { made.suffers };
    let buffer = ask.socket_buffer_bytes.map_or(1.0, |w| {
        let fits = w as f64 / size.max(1.0);
        if fits >= 2.0 { 1.0 } else { 2.6 - 0.7 * fits.max(0.2) }
    });
    let shaky = noise.around(0.05) * if noise.next() > 0.97 { 1.4 } else { 1.0 };
    let message_ns =
        (made.message_ns + made.byte_ns * size) * apart.sqrt() * loaded * buffer * shaky;
    let round_trip_ns = (made.round_trip_ns + 2.0 * made.byte_ns * size) * apart * loaded * shaky;
    let spins = matches!(made.wait, Wait::Spin);
    let wall_ns = 200e6;
    let roles_n = match ask.workload {
        Workload::FanIn { senders, .. } => senders,
        Workload::FanOut { receivers } => receivers,
        Workload::Pairs { pairs } => pairs,
        _ => 1,
    };
    let (messages, latencies) = match ask.workload {
        Workload::PingPong => {
            let n = wall_ns / round_trip_ns;
            (n, vec![latency(Span::RoundTrip, round_trip_ns, n as u64, noise)])
        }
        Workload::Paced { burst_bytes, period_us } => {
            let n =
                (wall_ns * 10.0 / (period_us as f64 * 1e3) * (burst_bytes as f64 / size)).max(1.0);
            let wake = round_trip_ns / 2.0 * (1.0 + (period_us as f64 / 1000.0).ln_1p() * 0.4);
            (n, vec![latency(Span::OneWay, wake, n as u64, noise)])
        }
        Workload::Exchange => (
            3_000.0,
            vec![
                latency(Span::SetUp, made.round_trip_ns * 1.8 * shaky, 3_000, noise),
                latency(Span::Exchange, round_trip_ns, 3_000, noise),
                latency(Span::TearDown, made.round_trip_ns * 0.6 * shaky, 3_000, noise),
            ],
        ),
        _ => (wall_ns / message_ns * f64::from(roles_n).sqrt(), Vec::new()),
    };
    let per_message_ns = wall_ns / messages;
    let cpu_ns_per_msg = if spins {
        2.0 * per_message_ns
    } else {
        (match ask.workload {
            Workload::PingPong => made.round_trip_ns * 0.55 + 2.0 * made.byte_ns * size,
            _ => 1.5 * message_ns,
        }) * noise.around(0.04)
    };
    let network = ["tcp", "tcp-nodelay", "udp", "mptcp", "uring-tcp"].contains(&made.id);
    let packets = messages
        * match made.id {
            "tcp" | "uring-tcp" | "mptcp" => (size / 40_000.0).max(0.05) * 1.5,
            _ => (size / 65_000.0).ceil().max(1.0),
        };
    let role_names: Vec<String> = match ask.workload {
        Workload::PingPong | Workload::Exchange => vec!["client".into(), "server".into()],
        Workload::FanIn { senders, .. } => {
            (0..senders).map(|i| format!("sender-{i}")).chain(["receiver".to_owned()]).collect()
        }
        _ => vec!["sender".into(), "receiver".into()],
    };
    let cpu_each = (cpu_ns_per_msg * messages / role_names.len() as f64) as u64;
    let roles = role_names
        .into_iter()
        .enumerate()
        .map(|(at, role)| RoleMeters {
            role,
            host: "local".to_owned(),
            cpu: Some(at as u32),
            user_ns: cpu_each / 4,
            system_ns: cpu_each / 4 * 3,
            switches_voluntary: if spins { 0 } else { messages as u64 },
            switches_involuntary: 3,
            faults_minor: 2,
            faults_major: 0,
            cycles: None,
            instructions: None,
            cache_misses: None,
            messages: messages as u64,
            longest_wait_ns: None,
        })
        .collect();
    let fairness = (roles_n > 1).then(|| {
        let skew = if made.id.starts_with("uds") { 0.5 } else { 0.05 };
        let raw: Vec<f64> =
            (0..roles_n).map(|i| 1.0 + skew * f64::from(i) + 0.05 * noise.next()).collect();
        let sum: f64 = raw.iter().sum();
        let shares: Vec<f64> = raw.iter().map(|s| s / sum).collect();
        let jain = crossway_lab::stats::jain(&shares).expect("shares are positive");
        Fairness {
            shares,
            jain,
            longest_wait_ns: (message_ns * 400.0 * (1.0 + skew)) as u64,
            sleeps_per_msg: Some(0.4),
            wasted_wakeups_per_msg: Some(0.1),
        }
    });
    let pacing = match ask.workload {
        Workload::Paced { burst_bytes, period_us } => {
            let intended = burst_bytes as f64 * 8e6 / period_us as f64;
            let bursts = (wall_ns * 10.0 / (period_us as f64 * 1e3)) as u64;
            Some(Pacing {
                bursts,
                late_bursts: (bursts as f64 * 0.01 * noise.next()) as u64,
                drift_ns: 12_000,
                intended_bits_per_s: intended,
                reached_bits_per_s: intended * 0.9997,
            })
        }
        _ => None,
    };
    let wait_name = match made.wait {
        Wait::Block => "block",
        Wait::Spin => "spin",
        Wait::Hybrid { .. } => "hybrid",
    };
    let degraded = noise.next() > 0.985;
    Record {
        schema: SCHEMA,
        run: "2026-01-02T03:04:05Z-synthetic".to_owned(),
        plan: "synthetic".to_owned(),
        group: "synthetic".to_owned(),
        case: format!("synthetic/{}/{wait_name}/{:?}/{}", made.id, ask.workload, ask.size_bytes),
        mechanism: made.id.to_owned(),
        mechanism_version: Some("synthetic".to_owned()),
        host: "local".to_owned(),
        hosts: Vec::new(),
        inputs: Inputs {
            testbed: None,
            ends: Default::default(),
            testbed_spec: None,
            workload: ask.workload,
            size_bytes: ask.size_bytes,
            wait: made.wait,
            access: Access::Copy,
            placement: ask.placement,
            cpus: vec![0, 1],
            load: ask.load,
            socket_buffer_bytes: ask.socket_buffer_bytes,
            capacity_bytes: None,
            messages: None,
            study_messages: None,
            packet_series_ms: None,
            warmup_ms: 100,
            measure_ms: 200,
            trial,
            trials,
            order,
            seed: 7,
        },
        status: if degraded { Status::Degraded } else { Status::Ok },
        reason: degraded.then(|| "the cores moved during the trial (synthetic)".to_owned()),
        remedy: degraded.then(|| "measure again (synthetic)".to_owned()),
        started_unix_ms: 1_767_323_045_000 + u64::from(order) * 250,
        counts: Some(Counts {
            sent: messages as u64,
            received: messages as u64,
            bytes: (messages * size) as u64,
            out_of_order: 0,
            corrupt: 0,
            warmup: 500,
        }),
        throughput: Some(Throughput {
            wall_ns: wall_ns as u64,
            msgs_per_s: 1e9 / per_message_ns,
            bytes_per_s: 1e9 / per_message_ns * size,
            sender_wall_ns: None,
        }),
        latency_ns: latencies,
        pacing,
        roles,
        servers: Vec::new(),
        host_cpu: Vec::new(),
        cost: Some(Cost {
            cpu_ns_per_msg,
            bits_per_cpu_s: size * 8.0 * 1e9 / cpu_ns_per_msg,
            host_ns_per_msg: Some(cpu_ns_per_msg * 1.2),
        }),
        net: if network {
            vec![IfaceMeters {
                host: "local".to_owned(),
                name: "lo".to_owned(),
                tx_packets: packets as u64,
                rx_packets: packets as u64,
                tx_bytes: (messages * size * 1.03) as u64,
                rx_bytes: (messages * size * 1.03) as u64,
                tx_dropped: Some(0),
                rx_dropped: Some(0),
            }]
        } else {
            Vec::new()
        },
        packets: network.then(|| Packets {
            per_msg: packets / messages,
            msgs_per_packet: messages / packets,
            reverse_per_forward: None,
        }),
        packet_series: Vec::new(),
        retransmissions: Vec::new(),
        fairness,
        calibration: Calibration {
            clock_read_ns: 21.0,
            clock_step_ns: 1.0,
            empty_loop_ns: 1.3,
            cpu_clock_step_ns: Some(100.0),
            cache_line_before_ns: Some(96.0 * noise.around(0.1)),
            cache_line_after_ns: Some(97.0 * noise.around(0.1)),
        },
        facts: BTreeMap::new(),
        nulls: BTreeMap::from([(
            "roles.cycles".to_owned(),
            "no hardware counters in this synthetic machine".to_owned(),
        )]),
        warnings: Vec::new(),
    }
}

/// A record of a mechanism that cannot run here.
pub(crate) fn skipped(mechanism: &str, reason: &str, remedy: &str) -> Record {
    let mut record =
        trial(&MADE[0], &Ask::idle(Workload::PingPong, 64), 0, 1, 0, &mut Noise::new(1));
    record.mechanism = mechanism.to_owned();
    record.case = format!("synthetic/{mechanism}");
    record.status = Status::Skipped;
    record.reason = Some(reason.to_owned());
    record.remedy = Some(remedy.to_owned());
    record.throughput = None;
    record.latency_ns.clear();
    record.cost = None;
    record.counts = None;
    record.roles.clear();
    record
}

/// All trials of these mechanisms and questions.
pub(crate) fn run(made: &[Made], asks: &[Ask], trials: u32, seed: u64) -> Vec<Record> {
    let mut noise = Noise::new(seed);
    let mut records = Vec::new();
    for index in 0..trials {
        for ask in asks {
            for made in made {
                let order = records.len() as u32;
                records.push(trial(made, ask, index, trials, order, &mut noise));
            }
        }
    }
    records
}

/// A run that has something for every chart: 26 contenders, sizes, load, core pairs, buffers, pacing, exchanges, many roles.
pub(crate) fn rich() -> Vec<Record> {
    let sizes = [16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1 << 20];
    let loaded = Load { cpu: 2, memory: 1, io: 1 };
    let mut asks = Vec::new();
    for size in sizes {
        asks.push(Ask::idle(Workload::PingPong, size));
        asks.push(Ask::idle(Workload::Throughput, size));
    }
    for size in [64, 4096, 65_536] {
        for workload in [Workload::PingPong, Workload::Throughput] {
            asks.push(Ask { load: loaded, ..Ask::idle(workload, size) });
            asks.push(Ask { placement: Placement::SameCore, ..Ask::idle(workload, size) });
        }
    }
    let mut records = run(&MADE, &asks, 5, 11);

    let few = &MADE[..6];
    let mut asks = Vec::new();
    for a in 0..8 {
        for b in 0..8 {
            let placement = Placement::Cpus { a, b };
            asks.push(Ask { placement, ..Ask::idle(Workload::PingPong, 64) });
        }
    }
    records.extend(run(&few[..2], &asks, 5, 12));

    let mut asks = Vec::new();
    for size in [1024, 2048, 4096, 8192, 16_384] {
        for shift in 11..19 {
            let ask = Ask::idle(Workload::Throughput, size);
            asks.push(Ask { socket_buffer_bytes: Some(1 << shift), ..ask });
        }
    }
    records.extend(run(&MADE[3..9], &asks, 5, 13));

    let mut asks = Vec::new();
    for rate in [1u64, 10, 100, 1000] {
        let workload = Workload::Paced { burst_bytes: 64, period_us: 1_000_000 / rate };
        asks.push(Ask::idle(workload, 64));
    }
    let stream = Workload::Paced { burst_bytes: 262_144, period_us: 80_000 };
    asks.push(Ask::idle(stream, 4096));
    asks.push(Ask::idle(Workload::Exchange, 64));
    asks.push(Ask::idle(Workload::Exchange, 4096));
    for n in [2, 4, 8] {
        asks.push(Ask::idle(Workload::FanIn { senders: n, receiver_us: 0 }, 64));
        asks.push(Ask::idle(Workload::Pairs { pairs: n }, 64));
    }
    records.extend(run(&MADE[..14], &asks, 5, 14));
    records.push(skipped("vsock", "no vsock transport is loaded", "modprobe vsock_loopback"));
    for id in ["tipc-kernel-stream", "tipc-kernel-rdm"] {
        records.push(skipped(id, "this kernel has no AF_TIPC", "modprobe tipc, as root"));
    }
    records
}

/// The records as a run's directory.
pub(crate) fn write(dir: &Path, records: &[Record]) {
    std::fs::create_dir_all(dir).expect("the directory can be made");
    let file = std::fs::File::create(dir.join("results.jsonl")).expect("the file can be made");
    let mut out = std::io::BufWriter::new(file);
    for record in records {
        serde_json::to_writer(&mut out, record).expect("a record is JSON");
        out.write_all(b"\n").expect("the disk has room");
    }
    out.flush().expect("the disk has room");
}

fn spread(median: f64) -> Spread {
    Spread { n: 15, min: median * 0.9, p10: median * 0.95, median, p90: median * 1.1 }
}

/// Made-up limits of eight CPUs in two clusters.
pub(crate) fn limits() -> Limits {
    let mut cache_lines = Vec::new();
    for a in 0..8u32 {
        for b in a + 1..8 {
            let near = if a / 2 == b / 2 {
                40.0
            } else if a / 4 == b / 4 {
                90.0
            } else {
                190.0
            };
            cache_lines.push(PairLines {
                a,
                b,
                relation: "synthetic".to_owned(),
                one_line_ns: spread(near),
                two_lines_ns: spread(near * 1.6),
            });
        }
    }
    let copies = [1u32, 2]
        .into_iter()
        .flat_map(|copies| (6..=20).step_by(2).map(move |power| (copies, 1u64 << power)))
        .map(|(copies, size_bytes)| {
            let bytes = 18e9 / f64::from(copies) * size_bytes as f64 / (size_bytes as f64 + 900.0);
            CopyLimit {
                copies,
                a: 0,
                b: 1,
                size_bytes,
                msgs_per_s: spread(bytes / size_bytes as f64),
                each_by_itself_msgs_per_s: spread(bytes / size_bytes as f64),
                bytes_per_s: spread(bytes),
                layout: Layout {
                    ring_bytes: 1 << 17,
                    hand_over_bytes: 1 << 10,
                    working_set_bytes: 1 << 23,
                },
            }
        })
        .collect();
    Limits {
        schema: 1,
        taken_unix_ms: 1_767_323_045_000,
        system_call_ns: spread(90.0),
        clock_read_ns: spread(21.0),
        counter_read_ns: spread(9.0),
        cache_lines,
        wakes: [(50, 4_300.0), (10_000, 32_000.0)]
            .map(|(idle_us, ns)| Wake {
                kind: WakeKind::Futex,
                a: 0,
                b: 1,
                idle_us,
                wake_to_run_ns: spread(ns),
            })
            .to_vec(),
        memcpy: [64u64, 4096, 1 << 20]
            .map(|size_bytes| Memcpy { size_bytes, bytes_per_s: spread(25e9) })
            .to_vec(),
        copies,
        gaps: Vec::new(),
    }
}

/// Writes what lies beside the records: made-up limits, and a fingerprint that says that it is made up.
pub(crate) fn write_surroundings(dir: &Path) {
    let limits = serde_json::to_vec(&limits()).expect("limits are JSON");
    std::fs::write(dir.join("limits.json"), limits).expect("the disk has room");
    let mut environment = Environment::take().expect("this machine has a fingerprint");
    environment.processor.model_name = Some("SYNTHETIC processor".to_owned());
    let environment = serde_json::to_vec(&environment).expect("a fingerprint is JSON");
    std::fs::write(dir.join("env.json"), environment).expect("the disk has room");
    std::fs::write(dir.join("plan.toml"), "# synthetic: made by a test\n")
        .expect("the disk has room");
}
