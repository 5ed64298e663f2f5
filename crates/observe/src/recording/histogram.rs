//! Sizes and gaps of each channel and direction, counted by powers of two.

use std::collections::BTreeMap;

use super::{Direction, Operation, Recording};

/// Numbers of values by their magnitude: `counts[n]` values have n significant bits, so that they are at least 2^(n-1)
/// and below 2^n; `counts[0]` are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Magnitudes {
    /// The numbers; the last one is not 0.
    pub counts: Vec<u64>,
}

impl Magnitudes {
    fn add(&mut self, value: u64) {
        let bits = (u64::BITS - value.leading_zeros()) as usize;
        if self.counts.len() <= bits {
            self.counts.resize(bits + 1, 0);
        }
        self.counts[bits] += 1;
    }

    /// The smallest value that belongs to `counts[bits]`.
    pub fn from(bits: usize) -> u64 {
        if bits == 0 { 0 } else { 1 << (bits - 1) }
    }
}

/// The histograms of a channel in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histograms {
    /// Sizes of messages, bytes.
    pub sizes: Magnitudes,
    /// Times between the begins of two messages, nanoseconds.
    pub gaps: Magnitudes,
}

impl Histograms {
    /// The histograms of all channels and directions: of sends, or of receives if no send was recorded.
    pub fn of(recording: &Recording) -> BTreeMap<(u32, Direction), Histograms> {
        type Times = Vec<(i64, u64)>;
        let mut messages: BTreeMap<(u32, Direction), (Times, Times)> = BTreeMap::new();
        for event in &recording.events {
            let Some(channel) = event.channel else { continue };
            let (sends, receives) = messages.entry((channel, event.direction)).or_default();
            match event.operation {
                Operation::Send => sends.push((event.at_ns, event.size_bytes)),
                Operation::Receive => receives.push((event.at_ns, event.size_bytes)),
                Operation::Wait => {}
            }
        }
        let found = messages.into_iter().map(|(key, (sends, receives))| {
            let mut seen = if sends.is_empty() { receives } else { sends };
            let mut histograms = Histograms::default();
            seen.iter().for_each(|(_, size)| histograms.sizes.add(*size));
            seen.sort_unstable();
            for pair in seen.windows(2) {
                histograms.gaps.add(pair[1].0.abs_diff(pair[0].0));
            }
            (key, histograms)
        });
        found.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Magnitudes;

    #[test]
    fn values_are_counted_by_their_highest_bit() {
        let mut magnitudes = Magnitudes::default();
        for value in [0, 1, 2, 3, 64, 127, u64::MAX] {
            magnitudes.add(value);
        }
        let counts = &magnitudes.counts;
        assert_eq!((counts[0], counts[1], counts[2], counts[7], counts[64]), (1, 1, 2, 2, 1));
        assert_eq!((Magnitudes::from(0), Magnitudes::from(1), Magnitudes::from(7)), (0, 1, 64));
    }
}
