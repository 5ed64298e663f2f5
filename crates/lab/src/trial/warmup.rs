//! The length of a trial's warm-up: windows grow until the rate is stable. That rate determines the size of the
//! measured window.

/// Number of messages in the first window.
const FIRST_WINDOW: u64 = 8;
/// A window has at least this many times as many messages as the previous window, and at most `MOST_GROWTH` times as
/// many. Windows of different lengths make it possible to distinguish a rate from a delay that occurs once per window.
const LEAST_GROWTH: u64 = 2;
const MOST_GROWTH: u64 = 16;
/// Two windows agree if their rates differ by less than this fraction.
const AGREEMENT: f64 = 0.05;
/// If a window with at least twice the messages of the previous one takes less than this many times as long, its
/// duration consists mostly of a delay.
const PROPORTIONAL: f64 = 1.5;
/// The longest delay that can occur once per window, whatever its number of messages: TCP's minimum retransmission
/// time-out or its maximum delayed acknowledgement (200 ms each on Linux), with a margin. A longer window is slow for
/// another reason.
const LONGEST_DELAY_NS: u64 = 250_000_000;

/// The next step of the warm-up after a window.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// Another window, with this number of messages.
    Window(u64),
    /// The end: the rate in messages per second is known as well as the time permits.
    Rate(f64),
}

/// The windows of a warm-up so far.
pub(super) struct WarmUp {
    limit_ns: u64,
    spent_ns: u64,
    previous: Option<(u64, u64)>,
}

impl WarmUp {
    /// Creates a warm-up that ends after `limit_ns` at the latest, unless the rate is still completely unknown at that
    /// time.
    pub(super) fn new(limit_ns: u64) -> WarmUp {
        WarmUp { limit_ns, spent_ns: 0, previous: None }
    }

    /// The number of messages of the first window.
    pub(super) fn first(&self) -> u64 {
        FIRST_WINDOW
    }

    /// Determines the next step after a window of `messages` messages that took `wall_ns`.
    pub(super) fn after(&mut self, messages: u64, wall_ns: u64) -> Next {
        let wall_ns = wall_ns.max(1);
        let target_ns = (self.limit_ns / 5).max(100_000);
        self.spent_ns += wall_ns;
        let previous = self.previous.replace((messages, wall_ns));
        let rate = messages as f64 * 1e9 / wall_ns as f64;
        let long_enough = |ns: u64| ns >= target_ns / 2;
        let agreed = previous.is_some_and(|(n, ns)| {
            let former = n as f64 * 1e9 / ns as f64;
            long_enough(ns) && (former / rate - 1.0).abs() < AGREEMENT
        });
        let in_time = self.spent_ns < self.limit_ns;
        if (long_enough(wall_ns) && agreed) || (!in_time && wall_ns >= LONGEST_DELAY_NS) {
            return Next::Rate(rate);
        }
        let wanted = (rate * target_ns as f64 / 1e9) as u64;
        let grown = wanted.clamp(messages * LEAST_GROWTH, messages * MOST_GROWTH);
        match previous {
            // One window cannot distinguish a rate from a delay.
            None => Next::Window(grown),
            _ if in_time => Next::Window(grown),
            // Nor can one that is hardly longer than a shorter one: it takes many more messages to see the rate.
            Some((_, ns)) if (wall_ns as f64) < ns as f64 * PROPORTIONAL => {
                Next::Window(messages * MOST_GROWTH)
            }
            Some(_) => Next::Rate(rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Simulates a warm-up of 20 ms. `wall_ns` is the duration of a window as a function of its number of messages.
    /// Returns the rate and the time spent.
    fn warm_up(mut wall_ns: impl FnMut(u64) -> u64) -> (f64, u64) {
        let mut warm_up = WarmUp::new(20 * MS);
        let mut messages = warm_up.first();
        for _ in 0..100 {
            match warm_up.after(messages, wall_ns(messages)) {
                Next::Window(n) => messages = n,
                Next::Rate(rate) => return (rate, warm_up.spent_ns),
            }
        }
        panic!("the warm-up does not end");
    }

    /// TCP's delayed acknowledgement delays the last segment of a window by 40 ms, however many messages the window
    /// has.
    #[test]
    fn a_delay_of_each_window_does_not_pass_for_the_rate() {
        for per_message_ns in [100, 800, 3_000, 40_000] {
            let (rate, spent_ns) = warm_up(|n| 40 * MS + n * per_message_ns);
            let share = rate * per_message_ns as f64 / 1e9;
            assert!(share > 0.3, "{per_message_ns} ns: {rate} msg/s are {share} of the rate");
            assert!(spent_ns < 1_000 * MS, "{per_message_ns} ns: {spent_ns} ns");
        }
    }

    #[test]
    fn a_steady_rate_is_found_in_the_time_allowed() {
        for per_message_ns in [20, 300, 10_000, 400_000] {
            let (rate, spent_ns) = warm_up(|n| n * per_message_ns);
            assert!((rate * per_message_ns as f64 / 1e9 - 1.0).abs() < 0.01, "{rate}");
            assert!(spent_ns < 20 * MS, "{per_message_ns} ns: {spent_ns} ns");
        }
    }

    #[test]
    fn a_slow_mechanism_is_not_warmed_up_for_long() {
        // Eight messages already exceed the limit; a second window shows that it is the messages.
        assert_eq!(warm_up(|n| n * 5 * MS), (200.0, 40 * MS + 80 * MS));
        // Longer than any delay of a protocol: accepted without a second window.
        assert_eq!(warm_up(|n| n * 100 * MS), (10.0, 800 * MS));
    }

    #[test]
    fn a_disturbance_of_one_window_does_not_decide() {
        let mut windows = 0;
        let (rate, _) = warm_up(|n| {
            windows += 1;
            n * 1_000 + if windows == 1 { 40 * MS } else { 0 }
        });
        assert!(rate > 5e5, "{rate}");
    }
}
