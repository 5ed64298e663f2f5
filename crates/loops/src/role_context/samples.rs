//! Memory in which a timed loop stores its samples. A sample costs only one store into memory that was touched before;
//! histograms are built after the loop.

use crossway_sys::clock::Ticker;
use hdrhistogram::Histogram;

use crossway_records::histogram;

/// Elapsed ticks, one per sample.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    ticks: Vec<u32>,
    at: usize,
    /// Samples that do not fit into 32 bits (longer than about a second).
    long: Vec<u64>,
}

impl Samples {
    /// Allocates room for this many samples and touches every page.
    pub(crate) fn prepare(&mut self, room: usize) {
        self.ticks.clear();
        // Filled with a value other than zero, since the allocator would hand out untouched pages for zeros.
        self.ticks.resize(room, 1);
        self.long.clear();
        self.at = 0;
    }

    /// Stores a sample; there must be room.
    #[inline(always)]
    pub(crate) fn store(&mut self, ticks: u64) {
        let Some(slot) = self.ticks.get_mut(self.at) else { return };
        self.at += 1;
        if ticks < u64::from(u32::MAX) {
            *slot = ticks as u32;
        } else {
            *slot = u32::MAX;
            self.keep_long(ticks);
        }
    }

    #[cold]
    fn keep_long(&mut self, ticks: u64) {
        self.long.push(ticks);
    }

    /// All samples as a histogram of nanoseconds per message.
    pub(crate) fn distribution(&self, ticker: &Ticker, batch: u32) -> Distribution {
        let mut distribution = Distribution::new();
        let per_message = ticker.ns_per_tick() / f64::from(batch.max(1));
        let mut long = self.long.iter();
        for &ticks in &self.ticks[..self.at] {
            let ticks = if ticks == u32::MAX {
                long.next().copied().unwrap_or(u64::from(ticks))
            } else {
                u64::from(ticks)
            };
            distribution.record((ticks as f64 * per_message).round() as u64);
        }
        distribution
    }
}

/// A histogram of nanoseconds that accepts every value.
#[derive(Debug)]
pub struct Distribution(Histogram<u64>);

impl Default for Distribution {
    fn default() -> Self {
        Distribution::new()
    }
}

impl Distribution {
    /// Creates an empty histogram.
    pub fn new() -> Self {
        Distribution(histogram::empty())
    }

    /// Adds a value.
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns.max(1));
    }

    /// Adds a value that occurred so often.
    pub fn record_many(&mut self, ns: u64, count: u64) {
        self.0.saturating_record_n(ns.max(1), count);
    }

    /// The histogram as records have it: HDR V2 in base64.
    pub fn encode(&self) -> String {
        histogram::encode(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_samples_keep_their_value_and_place() {
        let mut samples = Samples::default();
        samples.prepare(3);
        for ticks in [100, 7_000_000_000, 300] {
            samples.store(ticks);
        }
        samples.store(5);
        let h = samples.distribution(&Ticker::Monotonic, 1).0;
        assert_eq!(h.len(), 3);
        assert!(h.equivalent(h.max(), 7_000_000_000));
        assert_eq!(h.min(), 100);
    }
}
