//! Spinning: the only place that executes the processor's spin-loop hint.
//!
//! The hint (PAUSE on x86-64, ISB on arm64) takes 1 to 70 ns: 25 ns on one AMD EPYC, 62 ns on one Intel Xeon. A number of
//! hints is therefore not a time. Every wait of Crossway is stated as a time, and the number of hints that it takes on
//! this processor is computed here from the cost of one hint, which is measured once per process.
//!
//! The measurement takes about 20 µs, as long as reading a stored result from a file would take, so the result is not
//! stored.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::clock::{monotonic_ns, tsc};

/// The time between two looks at memory that another CPU is about to write, while the answer is expected within a
/// microsecond. Looks that follow each other faster take the cache line away from the CPU that writes it; looks that
/// are further apart delay the answer. This is what a hint takes on the processors on which one hint between two looks
/// gave the fastest round trips.
const LOOK_APART: Duration = Duration::from_nanos(25);

/// Number of hints in one measurement: long enough for most clocks, short enough to be undisturbed. Where hints take no
/// longer than the clock that times them, as on an emulated processor, a measurement has more of them, at most
/// [`MOST_HINTS_MEASURED`].
const HINTS_MEASURED: u32 = 64;
const MOST_HINTS_MEASURED: u32 = HINTS_MEASURED << 8;
/// A hint costs at least about one cycle. Less is an error of the measurement, by which a wait of microseconds would
/// last for a tenth of a second.
const LEAST_HINT_PS: u64 = 250;
/// Number of measurements. The shortest one counts: whatever disturbs a measurement makes it longer.
const MEASUREMENTS: usize = 5;

/// The cost of one hint in picoseconds; 0 before it has been measured.
static HINT_PS: AtomicU32 = AtomicU32::new(0);
/// The number of ticks of the time stamp counter between two quick looks; 0 if a hint is short enough.
static TICKS_APART: AtomicU32 = AtomicU32::new(0);

/// Executes one spin-loop hint, for loops that read a clock or make a system call in each round.
#[inline(always)]
pub fn hint() {
    std::hint::spin_loop();
}

/// How many hints take about this time on this processor; at least 1.
#[inline]
pub fn hints_in(time: Duration) -> u32 {
    count_in(time, hint_ps())
}

/// Spins for about this time without reading memory or a clock.
#[inline]
pub fn idle_for(time: Duration) {
    for _ in 0..hints_in(time) {
        hint();
    }
}

/// Waits as long as two looks at memory should be apart if the answer is expected soon. Where the hint takes much
/// longer than that, waits by the time stamp counter instead. A loop that has waited for some microseconds should use
/// [`hint`], which leaves more of a shared core to the other thread.
#[inline]
pub fn between_quick_looks() {
    let ticks = TICKS_APART.load(Ordering::Relaxed);
    if ticks == 0 {
        hint();
    } else {
        wait_ticks(ticks);
    }
}

/// Measures the costs now, so that no later call on a measured path has to.
pub fn measure_costs() {
    hint_ps();
}

/// A bounded number of attempts, as many as fit into a time if an attempt costs nothing but one hint.
#[derive(Debug)]
pub struct Attempts {
    left: u32,
}

impl Attempts {
    /// Attempts for about this time.
    #[inline]
    pub fn lasting(time: Duration) -> Self {
        Attempts { left: hints_in(time) }
    }

    /// Executes a hint and returns whether another attempt is due.
    #[inline]
    pub fn go_on(&mut self) -> bool {
        hint();
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }
}

#[inline]
fn hint_ps() -> u32 {
    match HINT_PS.load(Ordering::Relaxed) {
        0 => measure(),
        known => known,
    }
}

fn count_in(time: Duration, hint_ps: u32) -> u32 {
    let ps = time.as_nanos().saturating_mul(1000);
    u32::try_from(ps / u128::from(hint_ps.max(1))).unwrap_or(u32::MAX).max(1)
}

#[cold]
fn measure() -> u32 {
    let time = |work: &dyn Fn()| {
        let (begin, tick) = (monotonic_ns(), tsc());
        work();
        let ticks = tsc().wrapping_sub(tick);
        (monotonic_ns() - begin, ticks)
    };
    let mut count = HINTS_MEASURED;
    let (empty, (hints, ticks), counters) = loop {
        let [mut empty, mut hints, mut counters] = [(u64::MAX, 0); 3];
        // In turns, since what makes the first ones longer, such as code that is executed for the first time, lasts.
        for _ in 0..MEASUREMENTS {
            empty = empty.min(time(&|| {}));
            hints = hints.min(time(&|| (0..count).for_each(|_| hint())));
            counters = counters.min(time(&|| {
                (0..count).for_each(|_| {
                    std::hint::black_box(tsc());
                });
            }));
        }
        if hints.0 >= 2 * empty.0 || count >= MOST_HINTS_MEASURED {
            break (empty.0, hints, counters.0);
        }
        count *= 4;
    };
    let each_ps = |ns: u64| ns.saturating_sub(empty) * 1000 / u64::from(count);
    let (hint_ps, counter_ps) = (each_ps(hints).max(LEAST_HINT_PS), each_ps(counters));
    let ticks_per_ps = ticks as f64 / (hints.max(1) * 1000) as f64;
    TICKS_APART.store(ticks_apart(hint_ps, counter_ps, ticks_per_ps), Ordering::Relaxed);
    let hint_ps = u32::try_from(hint_ps).unwrap_or(u32::MAX);
    HINT_PS.store(hint_ps, Ordering::Relaxed);
    hint_ps
}

/// The ticks of the counter between two quick looks, or 0 if the hint serves as well: it is not much longer than
/// [`LOOK_APART`], or the counter itself takes too long (some hypervisors trap the instruction).
fn ticks_apart(hint_ps: u64, counter_ps: u64, ticks_per_ps: f64) -> u32 {
    let apart_ps = LOOK_APART.as_nanos() as u64 * 1000;
    if cfg!(target_arch = "x86_64") && hint_ps * 2 > apart_ps * 3 && counter_ps <= apart_ps {
        (apart_ps as f64 * ticks_per_ps) as u32
    } else {
        0
    }
}

#[inline]
fn wait_ticks(ticks: u32) {
    let begin = tsc();
    while tsc().wrapping_sub(begin) < u64::from(ticks) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_the_same_number_of_hints_until_the_process_ends() {
        measure_costs();
        let first = hint_ps();
        assert!(u64::from(first) >= LEAST_HINT_PS);
        idle_for(Duration::from_micros(3));
        between_quick_looks();
        assert_eq!(hint_ps(), first);
    }

    #[test]
    fn hints_are_counted_by_their_cost() {
        let micro = Duration::from_micros(1);
        assert_eq!(count_in(micro, 25_000), 40);
        assert_eq!(count_in(micro, 62_000), 16);
        assert_eq!(count_in(Duration::ZERO, 25_000), 1, "a wait makes at least one attempt");
        assert_eq!(count_in(Duration::MAX, 1), u32::MAX);
    }

    #[test]
    fn only_a_slow_hint_is_replaced_by_a_quick_counter() {
        // 2.6 GHz.
        let ticks_per_ps = 0.0026;
        assert_eq!(ticks_apart(25_000, 9_000, ticks_per_ps), 0, "an EPYC's hint");
        assert_eq!(ticks_apart(1_000, 9_000, ticks_per_ps), 0, "a hint that does nothing");
        assert_eq!(ticks_apart(62_000, 1_200_000, ticks_per_ps), 0, "a counter that traps");
        let by_counter = ticks_apart(62_000, 9_000, ticks_per_ps);
        assert_eq!(by_counter, if cfg!(target_arch = "x86_64") { 65 } else { 0 }, "a Xeon's hint");
    }

    #[test]
    fn attempts_end() {
        let mut attempts = Attempts { left: 3 };
        let made = std::iter::from_fn(|| attempts.go_on().then_some(())).count();
        assert_eq!(made, 2, "the first attempt is made before the first hint");
        assert!(!attempts.go_on());
    }

    #[test]
    fn the_counter_wait_ends() {
        wait_ticks(100);
    }
}
