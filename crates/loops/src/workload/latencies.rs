//! Latencies of messages that are sent at a fixed rate, and whether they grow in the course of a window.

use crossway_sys::clock::monotonic_ns;

use super::paced::Pace;
use crate::Outcome;
use crate::payload::Checker;
use crate::role_context::Distribution;
use crossway_records::inputs::Span;

/// Latencies of a paced stream, counted from the send times.
pub(crate) struct Latencies<'a> {
    pace: &'a Pace,
    all: Distribution,
    growth: Growth,
}

impl<'a> Latencies<'a> {
    pub(super) fn new(pace: &'a Pace) -> Latencies<'a> {
        Latencies { pace, all: Distribution::new(), growth: Growth::default() }
    }

    /// Adds a message of this burst that arrived at `now_ns`, CLOCK_MONOTONIC. If the sender has another clock, the
    /// latency contains the offset of the clocks, which does not affect the growth.
    pub(super) fn add(&mut self, burst: u64, now_ns: u64) {
        self.add_of(burst, 0, now_ns);
    }

    /// The same if the message's sender began its schedule `phase_ns` later.
    fn add_of(&mut self, burst: u64, phase_ns: u64, now_ns: u64) {
        let instant_ns = self.pace.instant_ns(burst) + phase_ns;
        self.all.record(now_ns.saturating_sub(instant_ns));
        self.growth.add(burst as f64, now_ns as i64 - instant_ns as i64);
    }

    /// The schedule from which the latencies count.
    pub(super) fn pace(&self) -> &'a Pace {
        self.pace
    }

    /// Enters the latencies as those of `span`.
    pub(super) fn enter(self, span: Span, outcome: &mut Outcome) {
        let period_ns = self.pace.period_ns() as f64;
        outcome.latency_growth = self.growth.slope().map(|ns| ns / period_ns);
        outcome.histograms.push((span, self.all.encode()));
    }
}

/// The messages of paced streams as they arrive.
pub(crate) struct Arrivals<'a> {
    latencies: Latencies<'a>,
    /// Of each sender: the position of the receiver's checker before the first message, and how
    /// much later its schedule begins, nanoseconds.
    begins: Vec<(u64, u64)>,
    first_ns: Option<u64>,
    last_ns: u64,
}

impl<'a> Arrivals<'a> {
    /// One checker per sender; the schedule of a sender without a phase begins with `pace`.
    pub(super) fn new(pace: &'a Pace, checkers: &[Checker], phases_ns: &[u64]) -> Arrivals<'a> {
        let phases = phases_ns.iter().copied().chain(std::iter::repeat(0));
        Arrivals {
            latencies: Latencies::new(pace),
            begins: checkers.iter().map(Checker::position).zip(phases).collect(),
            first_ns: None,
            last_ns: monotonic_ns(),
        }
    }

    /// Notes that the message at this position of a sender's checker has arrived now.
    #[inline]
    pub(super) fn note(&mut self, sender: usize, position: u64) {
        self.last_ns = monotonic_ns();
        self.first_ns.get_or_insert(self.last_ns);
        let (before, phase_ns) = self.begins[sender];
        let burst = self.latencies.pace.burst_of(position - before);
        self.latencies.add_of(burst, phase_ns, self.last_ns);
    }

    /// Enters the latencies and the times of the first and last message.
    pub(super) fn enter(self, outcome: &mut Outcome) {
        outcome.first_receipt_ns = self.first_ns;
        // Excludes the wait for the end of the last period.
        outcome.end_ns = self.last_ns;
        self.latencies.enter(Span::OneWay, outcome);
    }
}

/// The slope of a straight line through points, by least squares. The sums count from the first point, so that they stay
/// small.
#[derive(Default)]
struct Growth {
    first: Option<(f64, i64)>,
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Growth {
    fn add(&mut self, x: f64, y: i64) {
        let (first_x, first_y) = *self.first.get_or_insert((x, y));
        let (x, y) = (x - first_x, (y - first_y) as f64);
        self.n += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.xy += x * y;
    }

    /// `None` unless there are points at two places.
    fn slope(&self) -> Option<f64> {
        let spread = self.n * self.xx - self.x * self.x;
        (spread > 0.0).then(|| (self.n * self.xy - self.x * self.y) / spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The growth of latencies of messages that are sent each half millisecond.
    fn growth(latencies_ns: impl IntoIterator<Item = u64>) -> Option<f64> {
        let pace = Pace::of_one(MS / 2, 77 * MS);
        let mut latencies = Latencies::new(&pace);
        for (burst, latency_ns) in latencies_ns.into_iter().enumerate() {
            latencies.add(burst as u64, pace.instant_ns(burst as u64) + latency_ns);
        }
        let mut outcome = Outcome::default();
        latencies.enter(Span::OneWay, &mut outcome);
        outcome.latency_growth
    }

    #[test]
    fn latencies_grow_if_messages_take_longer_than_the_period() {
        // Each message takes 0.55 ms: every one is 0.05 ms later than the one before.
        let grown = growth((0..1000).map(|n| n * MS / 20)).unwrap();
        assert!((grown - 0.1).abs() < 1e-9, "{grown}");
        assert_eq!(growth([3 * MS; 100]), Some(0.0));
        assert_eq!(growth([MS]), None, "a single send time");
    }

    #[test]
    fn latencies_that_rise_and_fall_do_not_grow() {
        // Whatever is sent during 40 ms arrives together at the end of that time, as with a delayed acknowledgement.
        let grown = growth((0..1000).map(|n| 40 * MS - n * MS / 2 % (40 * MS))).unwrap();
        assert!(grown.abs() < 0.01, "{grown}");
        // One stall, of which all messages but the last ones are past.
        let stalled = (0..1000).map(|n: u64| if n > 980 { (n - 980) * MS / 2 } else { MS / 10 });
        let grown = growth(stalled).unwrap();
        assert!(grown < 0.01, "{grown}");
    }
}
