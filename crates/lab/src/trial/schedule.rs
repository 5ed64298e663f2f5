//! The send times of a paced window, and how many of them fit into the requested time if the offered rate cannot be
//! achieved.

use crossway_records::inputs::messages_per_burst;

/// If a window takes at least this many times its scheduled time, the rate cannot be achieved. Windows whose rate is
/// achieved are never shortened; others take at most about this many times the requested time.
const MISSED_FACTOR: u64 = 2;
/// A delay shorter than this, in nanoseconds, may be that of the first messages and says nothing about the rate.
const SHORT_NS: u64 = 2_000_000;

/// When the messages of a paced stream are due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    period_ns: u64,
    /// Number of messages due at each send time.
    pub(super) at_once: u64,
}

impl Schedule {
    pub(super) fn new(period_ns: u64, burst_bytes: Option<u64>, size_bytes: u64) -> Schedule {
        let at_once = burst_bytes.map_or(1, |bytes| messages_per_burst(bytes, size_bytes));
        Schedule { period_ns: period_ns.max(1), at_once }
    }

    /// The offered rate in messages per second.
    pub(super) fn rate(&self) -> f64 {
        self.at_once as f64 * 1e9 / self.period_ns as f64
    }

    /// Number of send times in a span, at least one.
    pub(super) fn instants_in(&self, span_ns: u64) -> u64 {
        (span_ns / self.period_ns).max(1)
    }

    /// Whether a warm-up window with this number of send times took much longer than scheduled, and more than a quarter
    /// of `limit_ns`, the maximum duration of the warm-up.
    pub(super) fn is_missed(&self, instants: u64, wall_ns: u64, limit_ns: u64) -> bool {
        wall_ns > (instants * self.period_ns).saturating_mul(MISSED_FACTOR)
            && wall_ns > (limit_ns / 4).max(SHORT_NS)
    }

    /// Whether the offered rate is more than [`MISSED_FACTOR`] times the achieved one.
    pub(super) fn is_beyond(&self, achieved: f64) -> bool {
        self.rate() > achieved * MISSED_FACTOR as f64
    }

    /// Number of messages of a measured window: all that are due in its time, at two send times at least, since one has
    /// no rate, or, if the offered rate is far above the
    /// achieved one, as many as can be sent in that time at the achieved rate.
    pub(super) fn messages_in(&self, measure_ms: u64, achieved: f64) -> u64 {
        let due = self.instants_in(measure_ms * 1_000_000).max(2);
        if !self.is_beyond(achieved) {
            return due * self.at_once;
        }
        let carried = achieved * measure_ms as f64 / 1e3 / self.at_once as f64;
        (carried as u64).clamp(1, due) * self.at_once
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_rate_that_is_achieved_or_nearly_so_has_all_its_instants() {
        // 64 messages every 80 ms.
        let schedule = Schedule::new(80 * MS, Some(256 * 1024), 4096);
        assert_eq!((schedule.at_once, schedule.instants_in(1_000 * MS)), (64, 12));
        for achieved in [schedule.rate(), schedule.rate() * 0.6] {
            assert_eq!(schedule.messages_in(1_000, achieved), 12 * 64);
        }
        assert!(!schedule.is_missed(1, 150 * MS, 100 * MS));
        assert_eq!(
            schedule.messages_in(100, schedule.rate()),
            2 * 64,
            "one period and a part of the next"
        );
        // A late first message does not show that a schedule with short periods was missed.
        assert!(!Schedule::new(10_000, None, 64).is_missed(1, MS, 0));
    }

    #[test]
    fn a_rate_far_beyond_reach_does_not_lengthen_the_trial() {
        // 409.6 million messages a second are offered, 0.65 million are achieved: 630 times too many.
        let schedule = Schedule::new(10_000, Some(262_144), 64);
        assert!(schedule.is_missed(1, 6 * MS, 20 * MS));
        let messages = schedule.messages_in(500, 650_000.0);
        assert_eq!(messages, 79 * 4096);
        assert!(messages as f64 / 650_000.0 < 0.5);
        // A burst is never cut.
        assert_eq!(schedule.messages_in(1, 650_000.0), 4096);
    }
}
