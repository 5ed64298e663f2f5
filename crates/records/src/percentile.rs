//! Percentiles of a latency: what they are called, and how many samples each needs.

use serde::{Deserialize, Serialize};

use crate::record::Latency;

/// How many samples must lie beyond a percentile for it to be given.
pub const SAMPLES_BEYOND: f64 = 10.0;

/// A percentile of a latency distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Percentile {
    /// The median.
    P50,
    /// The 90th percentile.
    P90,
    /// The 99th percentile.
    P99,
    /// The 99.9th percentile.
    P999,
    /// The 99.99th percentile.
    P9999,
    /// The maximum.
    Max,
}

impl Percentile {
    /// All percentiles, ascending.
    pub const ALL: [Percentile; 6] = [
        Percentile::P50,
        Percentile::P90,
        Percentile::P99,
        Percentile::P999,
        Percentile::P9999,
        Percentile::Max,
    ];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Percentile::P50 => "p50",
            Percentile::P90 => "p90",
            Percentile::P99 => "p99",
            Percentile::P999 => "p99.9",
            Percentile::P9999 => "p99.99",
            Percentile::Max => "max",
        }
    }

    /// The key of a bound in plans, questions and records; the bound is in microseconds.
    pub fn key(self) -> &'static str {
        match self {
            Percentile::P50 => "p50_us",
            Percentile::P90 => "p90_us",
            Percentile::P99 => "p99_us",
            Percentile::P999 => "p999_us",
            Percentile::P9999 => "p9999_us",
            Percentile::Max => "max_us",
        }
    }

    /// The name within the keys of figures.
    pub fn word(self) -> &'static str {
        self.key().trim_end_matches("_us")
    }

    /// The name in titles.
    pub fn words(self) -> &'static str {
        match self {
            Percentile::P50 => "median",
            Percentile::P90 => "90th percentile",
            Percentile::P99 => "99th percentile",
            Percentile::P999 => "99.9th percentile",
            Percentile::P9999 => "99.99th percentile",
            Percentile::Max => "maximum",
        }
    }

    /// How many samples a trial needs for this percentile, so that [`SAMPLES_BEYOND`] lie beyond
    /// it.
    pub fn samples_needed(self) -> u64 {
        match self {
            Percentile::P50 | Percentile::P90 | Percentile::Max => 1,
            Percentile::P99 => 1_000,
            Percentile::P999 => 10_000,
            Percentile::P9999 => 100_000,
        }
    }

    /// The percentile of a trial's latency, nanoseconds; `None` if the trial has too few samples.
    pub fn of(self, latency: &Latency) -> Option<u64> {
        match self {
            Percentile::P50 => Some(latency.p50),
            Percentile::P90 => Some(latency.p90),
            Percentile::P99 => latency.p99,
            Percentile::P999 => latency.p999,
            Percentile::P9999 => latency.p9999,
            Percentile::Max => Some(latency.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;

    use super::*;
    use crate::histogram::summary;
    use crate::record::Span;

    #[test]
    fn a_percentile_is_given_from_exactly_as_many_samples_as_it_needs() {
        let mut histogram = Histogram::<u64>::new(3).expect("a precision");
        let given = |histogram: &Histogram<u64>, percentile: Percentile| {
            percentile.of(&summary(Span::RoundTrip, histogram, 1, None)).is_some()
        };
        for percentile in [Percentile::P99, Percentile::P999, Percentile::P9999] {
            let missing = percentile.samples_needed() - histogram.len();
            histogram.record_n(7, missing - 1).expect("in range");
            assert!(!given(&histogram, percentile), "{percentile:?}");
            histogram.record(7).expect("in range");
            assert!(given(&histogram, percentile), "{percentile:?}");
        }
    }
}
