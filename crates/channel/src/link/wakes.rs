//! Counts how often the receivers of a channel are woken. From these counts, the policy estimates the cost of wake-ups.

use std::sync::PoisonError;

use super::Link;

/// A number of messages, and how often their receivers were woken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wakes {
    msgs: u64,
    wakes: u64,
}

impl Wakes {
    /// Returns the wake-ups per message, at most 1; `None` without messages. A receiver that gives up waiting and waits
    /// again is counted each time.
    pub(crate) fn per_msg(self) -> Option<f64> {
        (self.msgs > 0).then(|| (self.wakes as f64 / self.msgs as f64).min(1.0))
    }
}

/// The counts that one half has already reported for its current transport.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// The number of messages on all transports at the last report.
    sequence: u64,
    /// The number of wake-ups on this transport at the last report.
    wakes: u64,
}

impl Tally {
    /// Returns the counts for a new transport, which begins after message `sequence` of the channel.
    pub(crate) const fn from(sequence: u64) -> Tally {
        Tally { sequence, wakes: 0 }
    }

    /// Returns what has been added since the last call; zeroes if the transport does not count wake-ups.
    fn advance(&mut self, sequence: u64, wakes: Option<u64>) -> Wakes {
        let Some(wakes) = wakes else { return Wakes::default() };
        let added = Wakes {
            msgs: sequence.saturating_sub(self.sequence),
            wakes: wakes.saturating_sub(self.wakes),
        };
        *self = Tally { sequence, wakes };
        added
    }
}

impl Link {
    /// Adds the messages and wake-ups of a half since its last report to the totals of this end.
    pub(crate) fn count_wakes(&self, tally: &mut Tally, sequence: u64, wakes: Option<u64>) {
        let added = tally.advance(sequence, wakes);
        let mut sum = self.wakes.lock().unwrap_or_else(PoisonError::into_inner);
        sum.msgs += added.msgs;
        sum.wakes += added.wakes;
    }

    /// Returns what both halves of this end have reported since the last call. Messages of both directions are counted.
    pub(crate) fn take_wakes(&self) -> Wakes {
        std::mem::take(&mut self.wakes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::link::flag;
    use crate::{Directory, Options, Policy, Transport};

    /// A deadline that only serves to catch hangs.
    fn soon() -> Option<Instant> {
        Some(Instant::now() + Duration::from_secs(120))
    }

    #[test]
    fn rings_report_the_wake_ups_of_receivers_that_sleep_and_none_for_a_stream() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            policy: Policy { pin: Some(Transport::ShmFutex), ..Policy::default() },
            directory: Directory::at(dir.path()),
            ..Options::default()
        };
        let listener = options.clone().listen("wakes").unwrap();
        // Only this test takes the counts of the connecting end.
        let mut there = options.connect("wakes", soon()).unwrap();
        let mut here = listener.accept(soon()).unwrap();
        let link = there.link();
        let limit = soon().unwrap();
        while [here.handle(), there.handle()].iter().any(|h| h.transport() != Transport::ShmFutex) {
            assert!(Instant::now() < limit, "{:?}", there.handle().log());
            std::thread::yield_now();
        }
        let mut buf = [0; 8];
        for _ in 0..1000 {
            there.sender().send(b"there", soon()).unwrap();
            here.receiver().recv(&mut buf, soon()).unwrap();
            here.sender().send(b"back", soon()).unwrap();
            there.receiver().recv(&mut buf, soon()).unwrap();
        }
        let report = |there: &mut crate::Channel| {
            link.tx.raise(flag::NOTE);
            there.sender().send(b"there", soon()).unwrap();
        };
        link.rx.raise(flag::NOTE);
        here.sender().send(b"back", soon()).unwrap();
        there.receiver().recv(&mut buf, soon()).unwrap();
        report(&mut there);
        // What is sent or received by the call that reports is in the next report.
        assert_eq!(link.take_wakes(), Wakes { msgs: 2000, wakes: 0 });
        let (_sender, mut receiver) = here.split();
        let receiving =
            std::thread::spawn(move || while receiver.recv(&mut [0; 8], None).is_ok() {});
        let mut seen = Wakes::default();
        while seen.wakes == 0 {
            assert!(Instant::now() < limit, "{seen:?}");
            std::thread::sleep(Duration::from_millis(1));
            report(&mut there);
            seen = link.take_wakes();
        }
        assert!(seen.per_msg().is_some_and(|share| share > 0.0), "{seen:?}");
        drop(there);
        receiving.join().unwrap();
    }

    #[test]
    fn a_tally_gives_what_its_own_transport_added() {
        let mut tally = Tally::from(100);
        assert_eq!(tally.advance(1_100, Some(10)).per_msg(), Some(0.01));
        assert_eq!(tally.advance(1_102, Some(12)), Wakes { msgs: 2, wakes: 2 });
        assert_eq!(tally.advance(1_102, Some(13)).per_msg(), None, "no message");
        // A receiver that looks again and again wakes no more than once for a message.
        assert_eq!(tally.advance(1_103, Some(23)).per_msg(), Some(1.0));
        assert_eq!(tally.advance(2_000, None).per_msg(), None, "it does not count");
    }
}
