//! Clocks: CLOCK_MONOTONIC for instants that several processes compare, the processor's time stamp counter for timing
//! in a loop, and absolute sleeps for pacing.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::OsError;

/// Nanoseconds on CLOCK_MONOTONIC, which is the same for all processes of a host.
#[inline]
pub fn monotonic_ns() -> u64 {
    read_ns(ClockId::Monotonic)
}

/// Milliseconds since 1970-01-01 UTC.
pub fn unix_ms() -> u64 {
    unix_ns() / 1_000_000
}

/// Nanoseconds since 1970-01-01 UTC.
#[inline]
pub fn unix_ns() -> u64 {
    read_ns(ClockId::Realtime)
}

#[inline]
fn read_ns(id: ClockId) -> u64 {
    let t = clock_gettime(id);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// A duration, or the time since a clock's beginning, in the form of the C library, whose numbers have 32 bits on some
/// processors; the longest that this form can have if it is longer.
pub fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        // Below a thousand million, which 32 bits hold.
        tv_nsec: time.subsec_nanos() as libc::c_long,
    }
}

/// Sleeps until an instant on CLOCK_MONOTONIC (clock_nanosleep, absolute); signals do not end the sleep.
pub fn sleep_until_ns(instant_ns: u64) {
    let request = timespec(Duration::from_nanos(instant_ns));
    loop {
        // SAFETY: the request lives through the call; an absolute sleep writes no remainder.
        let result = unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &request,
                std::ptr::null_mut(),
            )
        };
        if result != libc::EINTR {
            return;
        }
    }
}

/// Sets the calling thread's timer slack: how late, in nanoseconds, the kernel may end its sleeps. With the default of
/// 50,000, the kernel may delay timers so that several expire together. The slack is added to every sleep of a thread
/// that is not real-time; see PR_SET_TIMERSLACK in prctl(2).
///
/// # Errors
/// The kernel refuses (for example because of a seccomp filter).
pub fn set_timer_slack_ns(slack_ns: NonZeroU64) -> Result<(), OsError> {
    rustix::thread::set_current_timer_slack(Some(slack_ns))
        .map_err(|e| OsError::new("prctl(PR_SET_TIMERSLACK)", slack_ns, e))
}

/// The calling thread's timer slack in nanoseconds.
///
/// # Errors
/// The kernel refuses the call.
pub fn timer_slack_ns() -> Result<u64, OsError> {
    rustix::thread::current_timer_slack()
        .map_err(|e| OsError::new("prctl(PR_GET_TIMERSLACK)", "", e))
}

/// The [`std::time::Instant`] `ns` nanoseconds after the zero of CLOCK_MONOTONIC, the clock that `Instant` uses on
/// Linux.
pub fn instant_at(ns: u64) -> Instant {
    let (now, now_ns) = (Instant::now(), monotonic_ns());
    if ns >= now_ns {
        now + Duration::from_nanos(ns - now_ns)
    } else {
        now.checked_sub(Duration::from_nanos(now_ns - ns)).unwrap_or(now)
    }
}

/// The clock that timed loops read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "source")]
pub enum Ticker {
    /// The time stamp counter, read by one instruction.
    Tsc {
        /// Nanoseconds per tick.
        ns_per_tick: f64,
    },
    /// CLOCK_MONOTONIC through the vDSO: one tick is a nanosecond.
    Monotonic,
}

impl Ticker {
    /// Chooses the time stamp counter if it runs at a constant rate and never stops, and calibrates it against
    /// CLOCK_MONOTONIC_RAW for the duration `calibration`. Otherwise chooses CLOCK_MONOTONIC.
    pub fn calibrate(calibration: Duration) -> Ticker {
        if !tsc_is_steady() {
            return Ticker::Monotonic;
        }
        let (raw_start, tsc_start) = raw_and_tsc();
        std::thread::sleep(calibration);
        let (raw_end, tsc_end) = raw_and_tsc();
        if tsc_end <= tsc_start || raw_end <= raw_start {
            return Ticker::Monotonic;
        }
        Ticker::Tsc { ns_per_tick: (raw_end - raw_start) as f64 / (tsc_end - tsc_start) as f64 }
    }

    /// The current reading in ticks.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        match self {
            Ticker::Tsc { .. } => tsc(),
            Ticker::Monotonic => monotonic_ns(),
        }
    }

    /// Converts ticks to nanoseconds.
    #[inline]
    pub fn ns(&self, ticks: u64) -> u64 {
        match self {
            Ticker::Tsc { ns_per_tick } => (ticks as f64 * ns_per_tick).round() as u64,
            Ticker::Monotonic => ticks,
        }
    }

    /// The length of one tick in nanoseconds.
    pub fn ns_per_tick(&self) -> f64 {
        match self {
            Ticker::Tsc { ns_per_tick } => *ns_per_tick,
            Ticker::Monotonic => 1.0,
        }
    }
}

/// Reads CLOCK_MONOTONIC_RAW (in nanoseconds) and the time stamp counter (in ticks) at the same instant, as nearly as
/// possible: each attempt reads the counter before and after the clock, and the attempt with the shortest interval
/// between the two counter reads is returned.
fn raw_and_tsc() -> (u64, u64) {
    (0..16)
        .map(|_| {
            let before = tsc();
            let raw = read_ns(ClockId::MonotonicRaw);
            let after = tsc();
            (after.wrapping_sub(before), raw, before.wrapping_add(after.wrapping_sub(before) / 2))
        })
        .min()
        .map_or((0, 0), |(_, raw, tsc)| (raw, tsc))
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn tsc() -> u64 {
    // SAFETY: every x86-64 processor has the instruction; Linux does not forbid it (PR_SET_TSC is not used here).
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn tsc() -> u64 {
    monotonic_ns()
}

/// Whether the time stamp counter is steady: /proc/cpuinfo reports that it has a constant rate and never stops, and the
/// kernel lists it as an available clock source (it does not list an unstable one).
fn tsc_is_steady() -> bool {
    if !cfg!(target_arch = "x86_64") {
        return false;
    }
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = cpuinfo.lines().find(|l| l.starts_with("flags")).unwrap_or_default();
    let has = |flag| flags.split_ascii_whitespace().any(|f| f == flag);
    let available = std::fs::read_to_string(
        "/sys/devices/system/clocksource/clocksource0/available_clocksource",
    )
    .unwrap_or_default();
    has("constant_tsc") && has("nonstop_tsc") && available.split_whitespace().any(|c| c == "tsc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_agree_with_the_monotonic_clock() {
        let ticker = Ticker::calibrate(Duration::from_millis(20));
        // The scheduler may run between the reads, so the clock is read before and after the ticks.
        let read = || (monotonic_ns(), ticker.now(), monotonic_ns());
        let begin = read();
        std::thread::sleep(Duration::from_millis(30));
        let end = read();
        let by_ticks = ticker.ns(end.1 - begin.1) as f64;
        let (least, most) = ((end.0 - begin.2) as f64, (end.2 - begin.0) as f64);
        assert!(by_ticks > least * 0.8 && by_ticks < most * 1.2, "{by_ticks}: {least} to {most}");
    }

    #[test]
    fn timer_slack_is_the_threads_own() {
        std::thread::spawn(|| {
            set_timer_slack_ns(NonZeroU64::MIN).expect("prctl");
            assert_eq!(timer_slack_ns().expect("prctl"), 1);
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn absolute_sleep_never_ends_early() {
        let until = monotonic_ns() + 2_000_000;
        sleep_until_ns(until);
        assert!(monotonic_ns() >= until);
    }
}
