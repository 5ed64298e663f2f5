//! Recognises frames that were received before.

use alloc::vec::Vec;

/// Number of frames that may overtake another one. A link's window is as large.
const WINDOW: u64 = 8_192;
const WORDS: usize = WINDOW as usize / 64;

/// Numbers at most this far apart are of the same series. A sender begins a new one when it starts, at a random number;
/// kernels begin at 1.
const SERIES_SPAN: u64 = 1 << 32;

/// Numbers below this one are a kernel's. This implementation begins above it.
pub(super) const KERNELS_BELOW: u64 = 1 << 48;

/// Series remembered of one sender and key. Frames of older ones are not recognised.
const SERIES: usize = 4;

/// The frames received of one series.
#[derive(Clone, Debug)]
struct Series {
    highest: u64,
    /// For each of the last numbers, by the number's remainder: whether it was received.
    seen: [u64; WORDS],
}

impl Series {
    fn place(number: u64) -> (usize, u64) {
        ((number / 64) as usize % WORDS, 1 << (number % 64))
    }

    fn is_fresh(&self, number: u64) -> bool {
        let (word, bit) = Self::place(number);
        number > self.highest || self.highest - number < WINDOW && self.seen[word] & bit == 0
    }

    fn mark(&mut self, number: u64) {
        if number > self.highest {
            let steps = number - self.highest;
            if steps >= WINDOW {
                self.seen = [0; WORDS];
            } else {
                for passed in self.highest + 1..=number {
                    let (word, bit) = Self::place(passed);
                    self.seen[word] &= !bit;
                }
            }
            self.highest = number;
        }
        let (word, bit) = Self::place(number);
        self.seen[word] |= bit;
    }
}

/// The frames received with one key from one sender.
#[derive(Clone, Debug, Default)]
pub(super) struct Replay {
    series: Vec<Series>,
}

impl Replay {
    fn series_of(&self, number: u64) -> Option<usize> {
        self.series.iter().position(|s| s.highest.abs_diff(number) <= SERIES_SPAN)
    }

    /// Whether a frame with this number has not been received, as far as that is known. Frames more than a window behind
    /// the newest one count as received.
    pub(super) fn is_fresh(&self, number: u64) -> bool {
        self.series_of(number).is_none_or(|n| self.series[n].is_fresh(number))
    }

    /// Notes that a genuine frame with this number was received.
    pub(super) fn mark(&mut self, number: u64) {
        if let Some(n) = self.series_of(number) {
            self.series[n].mark(number);
            return;
        }
        if self.series.len() == SERIES {
            self.series.remove(0);
        }
        let mut series = Series { highest: number, seen: [0; WORDS] };
        series.mark(number);
        self.series.push(series);
    }

    /// Accepts numbers that begin at 1 again, as those of a kernel that has restarted.
    pub(super) fn forget_kernels(&mut self) {
        self.series.retain(|s| s.highest >= KERNELS_BELOW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_fresh_once_in_any_order_within_the_window() {
        for first in [1, 1 << 62] {
            let mut replay = Replay::default();
            for block in 0..40 {
                // Backwards in blocks: every frame but the last of a block was overtaken.
                for n in (0..1000).rev() {
                    let number = first + block * 1000 + n;
                    assert!(replay.is_fresh(number), "{number}");
                    replay.mark(number);
                    assert!(!replay.is_fresh(number), "{number}");
                }
            }
            assert!(!replay.is_fresh(first), "behind the window");
            replay.mark(first + 1_000_000);
            assert!(!replay.is_fresh(first + 39_999), "far behind");
            assert!(replay.is_fresh(first + 999_999));
        }
    }

    #[test]
    fn a_sender_that_restarts_is_heard_and_what_it_sent_before_is_not() {
        let mut replay = Replay::default();
        for start in [1 << 62, 5 << 60, 6 << 60] {
            for n in start..start + 100 {
                assert!(replay.is_fresh(n));
                replay.mark(n);
            }
        }
        assert!(!replay.is_fresh(1 << 62), "of its first life");
        replay.mark(100);
        assert!(!replay.is_fresh(100));
        replay.forget_kernels();
        assert!(replay.is_fresh(100));
        assert!(!replay.is_fresh(5 << 60), "only kernels are given a second chance");
    }
}
