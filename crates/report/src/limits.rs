//! The machine's physical limits: levels for charts, and what binds a contender's figure.

use crossway_lab::limits::{CopyLimit, Limits as Measured, Spread, WakeKind};
use crossway_lab::rank::WaitClass;
use crossway_lab::stats;

use crate::contender::{Contender, Family};
use crate::estimate::Estimate;
use crate::summary::{Case, Summary};

/// CPUs, and a figure by pair of them.
pub type CorePairs = (Vec<u32>, Vec<(u32, u32, Estimate)>);

/// A level over message sizes: its name, and value by size in bytes.
pub type Level = (String, Vec<(f64, f64)>);

/// What of the limits the report uses; empty where they were not measured.
#[derive(Clone, Debug, Default)]
pub struct Limits(pub Option<Measured>);

/// The middle 80 % of the samples stand in for an interval: a yardstick's spread, not the error of its median.
pub(crate) fn estimate(spread: &Spread) -> Estimate {
    Estimate { value: spread.median, low: spread.p10, high: spread.p90, n: spread.n }
}

impl Limits {
    /// Levels for round-trip charts: name and nanoseconds.
    pub fn round_trip_levels(&self, summary: &Summary) -> Vec<(String, f64)> {
        let Some(limits) = &self.0 else { return Vec::new() };
        let mut levels = Vec::new();
        // Where the cores move, one reading before the run may be several times what the trials met: theirs count.
        let met: Vec<f64> =
            summary.cases.iter().filter_map(|c| c.cache_line_ns.map(|e| e.value)).collect();
        let least = || {
            let pairs = limits.cache_lines.iter().filter(|p| p.a != p.b);
            pairs.map(|p| p.two_lines_ns.median).min_by(f64::total_cmp)
        };
        let line = stats::median(&met).or_else(least);
        levels.extend(line.map(|ns| ("cache-line round trip".to_owned(), ns)));
        levels.extend(self.two_wakes_ns().map(|ns| ("two futex wake-ups".to_owned(), ns)));
        levels
    }

    /// What waking the other end costs there and back, after short idleness, nanoseconds.
    fn two_wakes_ns(&self) -> Option<f64> {
        let wakes = self.0.as_ref()?.wakes.iter();
        wakes
            .filter(|w| w.kind == WakeKind::Futex)
            .min_by_key(|w| w.idle_us)
            .map(|w| 2.0 * w.wake_to_run_ns.median)
    }

    /// Levels for throughput charts, bytes per second.
    pub fn copy_levels(&self) -> Vec<Level> {
        [(1, "one copy between cores"), (2, "two copies")]
            .into_iter()
            .filter_map(|(copies, name)| {
                let mut points: Vec<(f64, f64)> = self
                    .copies(copies)
                    .map(|c| (c.size_bytes as f64, c.bytes_per_s.median))
                    .collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
                // Of several pairs of cores the best is the limit.
                points.dedup_by_key(|p| p.0);
                (points.len() > 1).then(|| (name.to_owned(), points))
            })
            .collect()
    }

    fn copies(&self, copies: u32) -> impl Iterator<Item = &CopyLimit> {
        self.0.iter().flat_map(|l| &l.copies).filter(move |c| c.copies == copies)
    }

    /// The cache-line round trip by pair of CPUs, nanoseconds.
    pub fn core_pairs(&self) -> Option<CorePairs> {
        let lines = &self.0.as_ref()?.cache_lines;
        let mut cpus: Vec<u32> = lines.iter().flat_map(|p| [p.a, p.b]).collect();
        cpus.sort_unstable();
        cpus.dedup();
        // Two cores are one figure: a table says that better than a map.
        (cpus.len() > 2).then(|| {
            let both = lines.iter().flat_map(|p| {
                let figure = estimate(&p.two_lines_ns);
                [(p.a, p.b, figure), (p.b, p.a, figure)]
            });
            (cpus, both.collect())
        })
    }

    /// The limit that binds a round trip of a contender: name and nanoseconds.
    pub(crate) fn round_trip_limit(
        &self,
        contender: &Contender,
        case: &Case,
    ) -> Option<(&'static str, f64)> {
        if contender.discipline() == WaitClass::Blocking {
            return self.two_wakes_ns().map(|ns| ("two futex wake-ups", ns));
        }
        // The reading of the same run is nearer to the truth than one of an hour ago.
        let own = case.cache_line_ns.map(|e| e.value);
        let pair = match (&self.0, case.cpus.as_slice()) {
            (Some(limits), [a, b, ..]) => limits.two_lines_ns(*a, *b),
            _ => None,
        };
        own.or(pair).map(|ns| ("cache-line round trip", ns))
    }

    /// The limit that binds a contender's throughput at a size: name and bytes per second.
    pub(crate) fn throughput_limit(
        &self,
        contender: &Contender,
        size: u64,
    ) -> Option<(&'static str, f64)> {
        let (copies, name) = copies_of(contender);
        let limit = self.0.as_ref()?.copy_limit(copies, size)?;
        Some((name, limit.bytes_per_s.median))
    }
}

/// How often a contender's payload is copied on its way: into shared memory and read there, or into the kernel and out again.
fn copies_of(contender: &Contender) -> (u32, &'static str) {
    let once = contender.family() == Family::SharedMemory
        || ["cma", "vmsplice"].contains(&contender.mechanism.as_str());
    if once { (1, "one copy") } else { (2, "two copies") }
}
