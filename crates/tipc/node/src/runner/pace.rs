//! Decides when a bearer's frames are fetched: as soon as one arrives or, during a bulk transfer, several at a time.
//!
//! On a link that is slower than the CPU, every frame of a transfer would wake the node and its program. During a
//! transfer the node therefore fetches frames at intervals of a few frames. A transfer is recognised by many long
//! frames in succession, without a pause and without a long frame in the opposite direction, so that neither requests
//! nor their answers wait.

use std::time::Duration;

use crossway_tipc_proto::time::Nanos;

/// Minimum length in bytes of the frames of a bulk transfer.
const LONG: usize = 512;

/// Number of long frames after which a transfer counts as bulk: more than the fragments of one message on Ethernet.
const BULK_FRAMES: usize = 64;

/// Number of frames for which to wait during a bulk transfer.
const FRAMES_PER_FETCH: u32 = 8;

/// Maximum time between two fetches during a bulk transfer.
const HOLD_MAX: Duration = Duration::from_millis(1);

/// Minimum time between two fetches during a bulk transfer. On a link on which eight frames arrive in less time, the
/// node finds several frames each time anyway.
const HOLD_MIN: Duration = Duration::from_micros(50);

/// A pause of this length ends a transfer.
const PAUSE: Duration = Duration::from_millis(2);

/// The pace at which one bearer's frames are fetched.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Number of long frames since the last pause or long frame in the opposite direction.
    run: usize,
    /// When frames were last fetched.
    last: Nanos,
    /// Mean time between two frames; zero if it is not known.
    gap: Duration,
    /// The time of the next fetch during a bulk transfer, otherwise `None`.
    next: Option<Nanos>,
}

impl Pace {
    #[cfg(test)]
    pub(crate) const fn held_until(at: Nanos) -> Self {
        Self { run: BULK_FRAMES, last: Nanos(0), gap: Duration::ZERO, next: Some(at) }
    }

    /// The time before which no frames are to be fetched; `None` if they are to be fetched as soon as one arrives.
    pub(crate) const fn next(&self) -> Option<Nanos> {
        self.next
    }

    /// Records that frames were fetched: their number, their total length in bytes, and whether there may be more.
    pub(crate) fn fetched(&mut self, now: Nanos, frames: usize, bytes: usize, more: bool) {
        let since = now.since(self.last);
        self.last = now;
        let was_held = self.next.take().is_some();
        let Some(gap) = u32::try_from(frames).ok().and_then(|n| since.checked_div(n)) else {
            self.run = 0;
            return;
        };
        if since > PAUSE || bytes < frames * LONG || (was_held && frames < 2) {
            self.run = 0;
        }
        self.gap = match since {
            // Neither an interval between frames nor one of the transfer before the pause.
            _ if since > PAUSE => Duration::ZERO,
            _ if self.gap.is_zero() => gap,
            _ => (self.gap * 3 + gap) / 4,
        };
        self.run = (self.run + frames).min(BULK_FRAMES);
        let hold = self.gap * FRAMES_PER_FETCH;
        // On slower links, wake-ups are rare.
        if self.run == BULK_FRAMES && (HOLD_MIN..=HOLD_MAX).contains(&hold) {
            self.next = Some(if more { now } else { now + hold });
        }
    }

    /// Records that a frame of this length is sent.
    pub(crate) const fn sent(&mut self, len: usize) {
        if len >= LONG {
            self.run = 0;
            self.next = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often frames were fetched, and how long they waited.
    #[derive(Debug, Default)]
    struct Outcome {
        fetches: usize,
        longest_wait: Duration,
    }

    /// Simulates frames with these arrival times, in nanoseconds, and lengths, in bytes.
    fn fetch(pace: &mut Pace, arrivals: &[(u64, usize)]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut left = arrivals;
        while let Some((first, _)) = left.first() {
            let at = pace.next().unwrap_or(Nanos(*first));
            let count = left.iter().take_while(|(arrival, _)| Nanos(*arrival) <= at).count();
            let (frames, rest) = left.split_at(count);
            if let Some((arrival, _)) = frames.first() {
                outcome.longest_wait = outcome.longest_wait.max(at.since(Nanos(*arrival)));
            }
            pace.fetched(at, count, frames.iter().map(|(_, len)| len).sum(), false);
            outcome.fetches += 1;
            left = rest;
        }
        outcome
    }

    /// Returns `count` frames at equal intervals from the time `from` on.
    fn flow(from: u64, gap: u64, count: u64, len: usize) -> Vec<(u64, usize)> {
        (0..count).map(|n| (from + n * gap, len)).collect()
    }

    const START: u64 = 1_000_000_000;

    /// Time between two frames of 1,514 bytes at 100 Mbit/s, in nanoseconds.
    const GAP_100MBIT: u64 = 121_120;
    const GAP_1GBIT: u64 = GAP_100MBIT / 10;

    #[test]
    fn a_bulk_transfer_is_fetched_several_frames_at_a_time_and_no_frame_waits_long() {
        for gap in [GAP_100MBIT, 30_000, GAP_1GBIT] {
            let frames = 10_000;
            let outcome = fetch(&mut Pace::default(), &flow(START, gap, frames, 1500));
            let most = BULK_FRAMES + frames as usize / (FRAMES_PER_FETCH as usize - 1);
            assert!(outcome.fetches <= most, "gap {gap} ns: {outcome:?}");
            let limit = Duration::from_nanos(gap) * FRAMES_PER_FETCH;
            assert!(outcome.longest_wait <= limit.min(HOLD_MAX), "gap {gap} ns: {outcome:?}");
        }
    }

    #[test]
    fn frames_on_slow_and_fast_links_short_frames_and_those_of_few_messages_do_not_wait() {
        let few = BULK_FRAMES as u64 - 1;
        for (gap, count, len) in [
            (GAP_100MBIT * 10, 1_000, 1500),
            (GAP_1GBIT / 10, 1_000, 1500),
            (GAP_100MBIT, 1_000, 100),
            (GAP_100MBIT, few, 1500),
        ] {
            let outcome = fetch(&mut Pace::default(), &flow(START, gap, count, len));
            assert_eq!(outcome.fetches as u64, count, "each as soon as it arrives");
            assert_eq!(outcome.longest_wait, Duration::ZERO);
        }
    }

    #[test]
    fn large_messages_that_are_answered_by_large_ones_do_not_wait() {
        let mut pace = Pace::default();
        let mut at = START;
        for _ in 0..100 {
            let outcome = fetch(&mut pace, &flow(at, GAP_100MBIT, 46, 1500));
            assert_eq!(outcome.fetches, 46);
            pace.sent(1500);
            at += 2 * 46 * GAP_100MBIT;
        }
    }

    #[test]
    fn a_long_frame_in_the_opposite_direction_ends_a_wait_and_a_short_one_does_not() {
        let mut pace = Pace::default();
        fetch(&mut pace, &flow(START, GAP_100MBIT, 200, 1500));
        pace.sent(100);
        assert!(pace.next().is_some(), "an acknowledgement");
        pace.sent(1500);
        assert_eq!(pace.next(), None);
    }

    #[test]
    fn the_frame_after_a_transfer_is_fetched_as_soon_as_it_arrives() {
        let mut pace = Pace::default();
        fetch(&mut pace, &flow(START, GAP_100MBIT, 200, 1500));
        let due = pace.next().expect("the last frames are waited for");
        pace.fetched(due, 0, 0, false);
        assert_eq!(pace.next(), None);
        let after = fetch(&mut pace, &flow(due.0 + 1_000, GAP_100MBIT, 10, 1500));
        assert_eq!((after.fetches, after.longest_wait), (10, Duration::ZERO));
    }

    #[test]
    fn frames_beyond_one_turn_are_fetched_in_the_next() {
        let mut pace = Pace::default();
        pace.fetched(Nanos(START), 1, 1500, false);
        pace.fetched(Nanos(START + 1_600_000), 128, 128 * 1500, true);
        assert_eq!(pace.next(), Some(Nanos(START + 1_600_000)));
    }
}
