//! How long a thread that sleeps on another core takes to run again after it is woken.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::{Patience, on_two_cpus};
use crate::clock::{monotonic_ns, sleep_until_ns};
use crate::eventfd::EventFd;
use crate::{OsError, futex};

/// How the thread is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeKind {
    /// FUTEX_WAKE of a word on which the thread sleeps in FUTEX_WAIT.
    Futex,
    /// A write to an eventfd on which the thread sleeps in read.
    EventFd,
}

/// Pauses up to this length are spent spinning, as a busy program would; during longer ones both sides sleep.
const SPIN_UP_TO: Duration = Duration::from_micros(200);
/// Time after which a thread in FUTEX_WAIT checks for a failure although nothing has woken it.
const LOOK_AROUND: Duration = Duration::from_millis(500);

/// Measures the nanoseconds from just before the waking call to the sleeper's first instruction, for each of `samples`
/// wake-ups. The sleeper sleeps on `cpus.1` for `idle` before each; the waker runs on `cpus.0`. On a busy machine,
/// returns only the wake-ups completed within [`GIVE_UP_AFTER`](super::GIVE_UP_AFTER).
///
/// # Errors
/// A CPU cannot be used, a call fails, or not one wake-up was completed.
#[inline(never)]
pub fn wake_times(
    cpus: (u32, u32),
    kind: WakeKind,
    idle: Duration,
    samples: usize,
) -> Result<Vec<f64>, OsError> {
    let event = EventFd::blocking()?;
    let word = AtomicU32::new(0);
    let woken_ns = AtomicU64::new(0);
    let asleep = AtomicU32::new(0);
    let failed = AtomicBool::new(false);
    let idle_ns = idle.as_nanos() as u64;

    let wake = |patience: &Patience| {
        let mut times = Vec::with_capacity(samples);
        for sample in 1..=samples as u32 {
            // The sleeper reports that it is about to sleep; the pause gives it time to do so.
            if !patience.spin_until(|| asleep.load(Ordering::Acquire) == sample) {
                break;
            }
            let due = monotonic_ns() + idle_ns;
            if idle <= SPIN_UP_TO {
                while monotonic_ns() < due {}
            } else {
                sleep_until_ns(due);
            }
            let start = monotonic_ns();
            word.store(sample, Ordering::Release);
            let called = match kind {
                WakeKind::Futex => futex::wake(&word).map(drop),
                WakeKind::EventFd => event.signal(),
            };
            if called.is_err() {
                patience.give_up();
                times.clear();
                break;
            }
            let mut end = 0;
            if !patience.spin_until(|| {
                end = woken_ns.load(Ordering::Acquire);
                end >= start
            }) {
                break;
            }
            times.push((end - start) as f64);
        }
        if times.len() < samples {
            // The sleeper must stop sleeping.
            failed.store(true, Ordering::Release);
            word.store(u32::MAX, Ordering::Release);
            let _ = (futex::wake(&word), event.signal());
        }
        (!times.is_empty()).then_some(times)
    };
    let sleep = |_: &Patience| {
        for sample in 1..=samples as u32 {
            asleep.store(sample, Ordering::Release);
            loop {
                let slept = match kind {
                    WakeKind::Futex => futex::wait(&word, sample - 1, Some(LOOK_AROUND)),
                    WakeKind::EventFd => event.clear().map(drop),
                };
                let now = monotonic_ns();
                if slept.is_err() {
                    return None;
                }
                if failed.load(Ordering::Acquire) {
                    // What the waker completed counts.
                    return Some(());
                }
                if word.load(Ordering::Acquire) == sample {
                    woken_ns.store(now, Ordering::Release);
                    break;
                }
            }
        }
        Some(())
    };
    on_two_cpus(cpus, wake, sleep).map(|(times, ())| times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleepers_wake_once_per_call() {
        let allowed = crate::affinity::allowed().expect("affinity");
        let [a, b, ..] = allowed[..] else {
            eprintln!(
                "SKIP wake-ups: one CPU only; widen the affinity, or use a machine with more CPUs"
            );
            return;
        };
        for kind in [WakeKind::Futex, WakeKind::EventFd] {
            for idle in [Duration::from_micros(20), Duration::from_millis(1)] {
                let times = wake_times((a, b), kind, idle, 20).expect("two CPUs");
                assert_eq!(times.len(), 20);
                assert!(times.iter().all(|t| *t > 0.0));
            }
        }
    }
}
