//! The physical limits of a machine, which no mechanism on it can beat, as `limits.json` contains them.
//!
//! They are measured with every run, so that each figure can be compared with the limit that applies to it.

pub mod bound;
mod moved;
mod readings;

use serde::{Deserialize, Serialize};

pub use moved::{MOVED_FACTOR, cores_moved, cores_moved_between};
pub use readings::{
    ControlRate, CopyLimit, Exchange, ExchangeKind, Layout, RATES_TOO_LARGE, TWO_COPIES_FASTER,
    Wake, WakeKind,
};

use crate::stats;

/// Current value of [`Limits::schema`].
pub const SCHEMA: u32 = 1;

/// A median with its spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Number of samples.
    pub n: usize,
    /// Minimum.
    pub min: f64,
    /// 10th percentile.
    pub p10: f64,
    /// Median.
    pub median: f64,
    /// 90th percentile.
    pub p90: f64,
}

impl Spread {
    /// The spread of these samples; `None` if there are none.
    pub fn of(samples: &[f64]) -> Option<Spread> {
        let sorted = stats::sorted(samples)?;
        let at = |q| stats::quantile_of_sorted(&sorted, q);
        Some(Spread { n: sorted.len(), min: at(0.0), p10: at(0.1), median: at(0.5), p90: at(0.9) })
    }

    /// The spread of `factor` divided by each sample: converts times to rates.
    pub fn inverse(samples: &[f64], factor: f64) -> Option<Spread> {
        Self::of(&samples.iter().map(|s| factor / s).collect::<Vec<_>>())
    }
}

/// Round trips between two CPUs through cache lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairLines {
    /// The CPU that sends the request.
    pub a: u32,
    /// The CPU that replies.
    pub b: u32,
    /// Proximity of the two CPUs in words; empty if the system does not report it.
    pub relation: String,
    /// Round trip through one cache line that both CPUs write in turn, nanoseconds.
    pub one_line_ns: Spread,
    /// Round trip through two cache lines, one per direction, as a request and a reply through memory need,
    /// nanoseconds.
    pub two_lines_ns: Spread,
}

/// Copying on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Memcpy {
    /// Bytes per copy. All copies use the same two buffers, so small ones stay in the caches.
    pub size_bytes: u64,
    /// Bytes per second.
    pub bytes_per_s: Spread,
}

/// All limits. A limit that could not be measured is absent, and `gaps` has the reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Version of the schema, [`SCHEMA`].
    pub schema: u32,
    /// Time of the measurement, milliseconds since 1970 UTC.
    pub taken_unix_ms: u64,
    /// One getppid call, nanoseconds.
    pub system_call_ns: Spread,
    /// One CLOCK_MONOTONIC reading, nanoseconds.
    pub clock_read_ns: Spread,
    /// One reading of the time stamp counter, nanoseconds.
    pub counter_read_ns: Spread,
    /// Cache-line round trips of the measured pairs of CPUs.
    pub cache_lines: Vec<PairLines>,
    /// Latency of waking a sleeping thread on another core.
    pub wakes: Vec<Wake>,
    /// Blocking exchanges between two CPUs and on one CPU; empty in files from before 0.1.0.
    #[serde(default)]
    pub exchanges: Vec<Exchange>,
    /// Copying on one CPU.
    pub memcpy: Vec<Memcpy>,
    /// Throughput of one copy and two copies between two CPUs.
    pub copies: Vec<CopyLimit>,
    /// Rates of creating, querying and removing IPC objects; empty in files from before 0.1.0.
    #[serde(default)]
    pub control: Vec<ControlRate>,
    /// The limits that are missing, each with the reason.
    pub gaps: Vec<String>,
}

impl Limits {
    /// The median round trip between two CPUs through two cache lines, nanoseconds; `None` if it was not measured. The
    /// order of the CPUs does not matter.
    pub fn two_lines_ns(&self, a: u32, b: u32) -> Option<f64> {
        let pair = |p: &&PairLines| (p.a, p.b) == (a, b) || (p.a, p.b) == (b, a);
        self.cache_lines.iter().find(pair).map(|p| p.two_lines_ns.median)
    }

    /// The throughput with this number of copies (1 or 2) at this size, between the last of the measured pairs of CPUs.
    /// If the size was not measured, the next smaller measured size is used, because a larger message never takes less
    /// time. `None` if there is no such measurement.
    pub fn copy_limit(&self, copies: u32, size_bytes: u64) -> Option<&CopyLimit> {
        self.copies
            .iter()
            .filter(|c| c.copies == copies)
            .filter(|c| c.size_bytes <= size_bytes.max(64))
            .max_by_key(|c| c.size_bytes)
    }
}
