//! The machine's physical limits, as levels in charts and as yardsticks beside figures.

use crate::estimate::Estimate;

/// CPUs, and a figure by pair of them.
pub type CorePairs = (Vec<u32>, Vec<(u32, u32, Estimate)>);

/// What of the limits the report uses.
#[derive(Clone, Debug, Default)]
pub struct Limits {}

impl Limits {
    /// Levels for round-trip charts: name and nanoseconds.
    pub fn round_trip_levels(&self) -> Vec<(String, f64)> {
        Vec::new()
    }

    /// Levels for throughput charts: name, and bytes per second by size in bytes.
    pub fn copy_levels(&self) -> Vec<(String, Vec<(f64, f64)>)> {
        Vec::new()
    }

    /// The cache-line round trip by pair of CPUs, nanoseconds.
    pub fn core_pairs(&self) -> Option<CorePairs> {
        None
    }
}
