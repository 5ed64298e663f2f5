//! SYNTHETIC records, computed from a formula and seeded noise, for tests and for trying the report. None of their
//! figures was measured, and none says anything about a mechanism.

#![allow(dead_code)]

pub(crate) mod limits;
pub(crate) mod study;
mod trial;

use std::io::Write;
use std::path::Path;

use crossway_lab::env::Environment;
use crossway_records::inputs::{Load, Placement, Wait, Workload};
use crossway_records::record::{Record, Status};

pub(crate) use limits::limits;
pub(crate) use trial::trial;

/// A source of pseudo-random noise that is the same in every run.
pub(crate) struct Noise(u64);

impl Noise {
    /// Creates a source of noise from a seed.
    pub(crate) fn new(seed: u64) -> Noise {
        Noise(seed | 1)
    }

    /// Returns a number that is uniformly distributed in 0..1 (xorshift64*).
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a factor between 1 - `share` and 1 + `share`.
    pub(crate) fn around(&mut self, share: f64) -> f64 {
        1.0 + share * (self.next() + self.next() - 1.0)
    }
}

/// An invented mechanism: the cost in nanoseconds of an empty message, and of each byte, for round trips and one way.
pub(crate) struct Made {
    /// Id of the mechanism.
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

/// The invented mechanisms.
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

/// The inputs of one trial.
#[derive(Clone)]
pub(crate) struct Ask {
    /// The workload.
    pub(crate) workload: Workload,
    /// Message size, bytes.
    pub(crate) size_bytes: u64,
    /// Placement of the roles.
    pub(crate) placement: Placement,
    /// Background load.
    pub(crate) load: Load,
    /// Size of the socket buffer in bytes; `None` for the default.
    pub(crate) socket_buffer_bytes: Option<u64>,
}

impl Ask {
    /// Returns the inputs of a trial between two idle cores.
    pub(crate) fn idle(workload: Workload, size_bytes: u64) -> Ask {
        Ask {
            workload,
            size_bytes,
            placement: Placement::SharedCache,
            load: Load::default(),
            socket_buffer_bytes: None,
        }
    }

    /// Returns a name that distinguishes these inputs from all others.
    fn name(&self) -> String {
        let mut name = format!("{:?}/{}", self.workload, self.size_bytes);
        if self.placement != Placement::SharedCache {
            name += &format!("/{:?}", self.placement);
        }
        if self.load != Load::default() {
            name += "/loaded";
        }
        if let Some(bytes) = self.socket_buffer_bytes {
            name += &format!("/buffer={bytes}");
        }
        name
    }
}

/// Returns a record of a mechanism that cannot run here.
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

/// Returns all trials of these mechanisms with these inputs.
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

/// Returns the records of a run with data for every chart: 26 contenders, sizes, load, core pairs, buffers, pacing,
/// exchanges, many roles.
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
        asks.push(Ask::idle(Workload::FanIn { senders: n, receiver_us: 0, period_us: 0 }, 64));
        asks.push(Ask::idle(Workload::Pairs { pairs: n }, 64));
    }
    records.extend(run(&MADE[..14], &asks, 5, 14));
    records.push(skipped("vsock", "no vsock transport is loaded", "modprobe vsock_loopback"));
    for id in ["tipc-kernel-stream", "tipc-kernel-rdm"] {
        records.push(skipped(id, "this kernel has no AF_TIPC", "modprobe tipc, as root"));
    }
    records
}

/// Returns the records of a run of paced streams and of requests, at several rates and sizes.
pub(crate) fn paced() -> Vec<Record> {
    let mut asks = Vec::new();
    for size in [64, 4096] {
        for rate in [1_000, 10_000, 100_000] {
            let workload = Workload::Paced { burst_bytes: size, period_us: 1_000_000 / rate };
            asks.push(Ask::idle(workload, size));
        }
    }
    let mut records = run(&MADE[..20], &asks, 5, 15);
    for record in &mut records {
        record.plan = "paced".to_owned();
    }
    records
}

/// Writes the records to a run's directory.
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

/// Writes the other files of a run: invented limits, and a fingerprint that states that it is invented.
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
