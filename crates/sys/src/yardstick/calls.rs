//! The cost, on one CPU, of a system call, of reading a clock, and of copying.

use std::hint::black_box;
use std::time::Duration;

use crate::clock::{Ticker, monotonic_ns};

/// The call to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// getppid: a system call that does almost nothing.
    SystemCall,
    /// CLOCK_MONOTONIC, through the vDSO where the clock source allows.
    ClockRead,
    /// The time stamp counter; the same as [`CallKind::ClockRead`] on machines without a steady counter.
    CounterRead,
}

/// Measures nanoseconds per call for each of `batches` batches of `rounds` calls, on the CPU the caller runs on.
#[inline(never)]
pub fn call_times(kind: CallKind, batches: usize, rounds: usize) -> Vec<f64> {
    let ticker = Ticker::calibrate(Duration::from_millis(5));
    let batch = |call: &mut dyn FnMut()| {
        let start = monotonic_ns();
        call();
        (monotonic_ns() - start) as f64 / rounds as f64
    };
    (0..batches)
        .map(|_| match kind {
            CallKind::SystemCall => batch(&mut || {
                for _ in 0..rounds {
                    black_box(rustix::process::getppid());
                }
            }),
            CallKind::ClockRead => batch(&mut || {
                for _ in 0..rounds {
                    black_box(monotonic_ns());
                }
            }),
            CallKind::CounterRead => batch(&mut || {
                for _ in 0..rounds {
                    black_box(ticker.now());
                }
            }),
        })
        .collect()
}

/// Measures nanoseconds per copy of `bytes` bytes for each of `batches` batches of `rounds` copies. Source and target
/// stay the same, so that data that fits a cache stays in it.
#[inline(never)]
pub fn memcpy_times(bytes: usize, batches: usize, rounds: usize) -> Vec<f64> {
    let from = vec![1u8; bytes];
    let mut to = vec![0u8; bytes];
    (0..batches)
        .map(|_| {
            let start = monotonic_ns();
            for _ in 0..rounds {
                black_box(&mut to[..]).copy_from_slice(black_box(&from[..]));
                black_box(&to[..]);
            }
            (monotonic_ns() - start) as f64 / rounds as f64
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_gives_one_time_per_batch() {
        for kind in [CallKind::SystemCall, CallKind::ClockRead, CallKind::CounterRead] {
            let times = call_times(kind, 3, 100);
            assert_eq!(times.len(), 3);
            assert!(times.iter().all(|t| *t > 0.0), "{kind:?} {times:?}");
        }
        assert_eq!(memcpy_times(4096, 4, 10).len(), 4);
    }
}
