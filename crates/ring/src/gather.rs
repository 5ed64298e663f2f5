//! How long a receiver that has emptied a stream's ring lets the sender get ahead before it looks again.
//!
//! Each look at the line that the sender is writing takes that line away from it, and reading messages as soon as they
//! are written means to fetch each line from the other core's own caches. A longer pause may therefore make a stream
//! several times as fast; or slower, if the sender waits for the receiver after some messages; or only later, if it
//! sends at a rate. Which of these it is depends on both programs and on the processor, so it is measured: the receiver
//! tries a short and a long pause in turn, and keeps the one with which more messages arrived per time.

use std::time::{Duration, Instant};

/// The pauses: the time in which a sender writes some messages, and some pages of them.
const PAUSES: [Duration; 2] = [Duration::from_nanos(1600), Duration::from_nanos(6400)];
/// The long pause must carry this many times the messages of the short one, since messages arrive later with it.
const WORTH: f64 = 1.1;
/// Number of pauses that are measured together.
const BLOCK: u32 = 16;
/// After this many stops without a whole block, nothing that was learnt holds any more: what comes is no stream but
/// bursts, which gain nothing from a long pause.
const STOPS_MOST: u32 = 16;
/// The most blocks between two comparisons.
const STAY_MOST: u32 = 64;

/// The choice between the pauses.
#[derive(Debug)]
pub(crate) struct Gather {
    /// Index of the pause in use.
    pause: usize,
    /// Messages per second with each pause, when last measured; 0 before.
    rates: [f64; 2],
    /// Start of the current block, its pauses and its messages.
    start: Option<Instant>,
    pauses: u32,
    messages: u64,
    /// Blocks until the other pause is tried, and how many there were before the last time.
    left: u32,
    stay: u32,
    /// Whether the current block tries the other pause.
    tries: bool,
    /// Stops since the last whole block.
    stops: u32,
}

impl Gather {
    pub(crate) const fn new() -> Self {
        Gather {
            pause: 0,
            rates: [0.0; 2],
            start: None,
            pauses: 0,
            messages: 0,
            left: 1,
            stay: 1,
            tries: false,
            stops: 0,
        }
    }

    /// How long to pause now that the ring is empty, after `messages` have arrived since the last pause.
    pub(crate) fn pause(&mut self, messages: u32, now: impl FnOnce() -> Instant) -> Duration {
        self.pauses += 1;
        self.messages += u64::from(messages);
        if self.start.is_none() {
            self.begin(now());
        } else if self.pauses == BLOCK {
            let now = now();
            self.end_block(now);
            self.begin(now);
        }
        PAUSES[self.pause]
    }

    /// Says that the stream has stopped for a while: a block with such a wait would measure the wait.
    pub(crate) fn stopped(&mut self) {
        if self.start.take().is_some() {
            self.stops += 1;
            if self.stops == STOPS_MOST {
                *self = Gather::new();
            }
        }
    }

    fn begin(&mut self, now: Instant) {
        (self.start, self.pauses, self.messages) = (Some(now), 0, 0);
    }

    fn end_block(&mut self, now: Instant) {
        self.stops = 0;
        let seconds = self.start.map_or(0.0, |start| (now - start).as_secs_f64());
        self.rates[self.pause] = self.messages as f64 / seconds.max(1e-9);
        if self.tries {
            self.tries = false;
            let before = 1 - self.pause;
            self.pause = usize::from(self.rates[1] > WORTH * self.rates[0]);
            self.stay = if self.pause == before { (self.stay * 2).min(STAY_MOST) } else { 1 };
            self.left = self.stay;
        } else {
            self.left -= 1;
            if self.left == 0 {
                (self.pause, self.tries) = (1 - self.pause, true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of long pauses of a receiver from which the sender is `found` messages ahead after a pause, and that
    /// takes 10 ns for each.
    fn share_of_long(found: impl Fn(Duration) -> u32) -> f64 {
        let (mut gather, mut now) = (Gather::new(), Instant::now());
        let (mut messages, mut long) = (8, 0);
        for _ in 0..100_000 {
            let pause = gather.pause(messages, || now);
            long += usize::from(pause == PAUSES[1]);
            messages = found(pause);
            now += pause + Duration::from_nanos(10) * messages;
        }
        long as f64 / 1e5
    }

    #[test]
    fn the_pause_that_carries_more_is_kept() {
        // A sender that is disturbed by looks: twice the messages per time in a long pause.
        let disturbed = |pause: Duration| (pause.as_nanos() * pause.as_nanos() / 40_000) as u32;
        assert!(share_of_long(disturbed) > 0.95);
        // A sender that waits after 100 messages.
        assert!(share_of_long(|_| 100) < 0.05);
        // A sender at a rate: nothing is gained, so messages should not wait.
        assert!(share_of_long(|pause| (pause.as_nanos() / 100) as u32) < 0.05);
    }

    #[test]
    fn it_follows_a_sender_that_changes() {
        let (mut gather, mut now) = (Gather::new(), Instant::now());
        let (mut messages, mut last) = (8, Duration::ZERO);
        for n in 0..60_000 {
            last = gather.pause(messages, || now);
            let per_us = if last == PAUSES[1] && n < 30_000 { 100 } else { 20 };
            messages = (last.as_nanos() as u32 * per_us) / 1000;
            now += last;
            if n == 29_999 {
                assert_eq!(last, PAUSES[1]);
            }
        }
        assert_eq!(last, PAUSES[0]);
    }

    #[test]
    fn a_stream_that_stops_is_not_compared() {
        let (mut gather, mut now) = (Gather::new(), Instant::now());
        for _ in 0..1000 {
            for _ in 0..BLOCK - 1 {
                assert_eq!(gather.pause(100, || now), PAUSES[0]);
                now += Duration::from_micros(2);
            }
            gather.stopped();
        }
    }

    #[test]
    fn bursts_after_a_stream_get_short_pauses_again() {
        let (mut gather, mut now) = (Gather::new(), Instant::now());
        let mut last = PAUSES[0];
        while last == PAUSES[0] {
            last = gather.pause(100, || now);
            now += last;
        }
        for _ in 0..STOPS_MOST {
            gather.pause(100, || now);
            gather.stopped();
        }
        assert_eq!(gather.pause(100, || now), PAUSES[0]);
    }
}
