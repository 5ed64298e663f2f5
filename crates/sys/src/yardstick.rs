//! The bare loops behind `crossway limits`: the best this machine can do with no other overhead.
//!
//! They are in this crate because they need shared memory without locks, and because this crate is optimised in every
//! build. Each measures one thing between threads pinned to two CPUs, with the layout that suits the hardware best, and
//! returns raw times; statistics are computed elsewhere. No loop can hang: each gives up after [`GIVE_UP_AFTER`]. None is
//! inlined into its caller, which is optimised for size.

mod cache_line;
mod calls;
mod copies;
mod exchange;
mod wake;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub use cache_line::{Lines, cache_line_round_trips};
pub use calls::{CallKind, call_times, memcpy_times};
pub use copies::{Copies, CopyPlan, copy_run};
pub use exchange::{ExchangeKind, Exchanges, blocking_exchanges};
pub use wake::{WakeKind, wake_times};

use crate::{OsError, affinity};

/// How long after its start a pair of loops stops waiting for each other and gives up: something else occupies one of
/// the CPUs then.
pub const GIVE_UP_AFTER: Duration = Duration::from_secs(20);

/// Keeps data written by different threads on distant cache lines: prefetchers fetch lines in pairs, some in fours.
#[repr(align(256))]
#[derive(Debug, Default)]
struct Apart<T>(T);

/// Detects that two loops should stop waiting for each other.
struct Patience {
    given_up: AtomicBool,
    deadline: Instant,
}

impl Patience {
    fn new() -> Patience {
        Patience { given_up: AtomicBool::new(false), deadline: Instant::now() + GIVE_UP_AFTER }
    }

    /// Spins, without a pause instruction of its own, until `done`; false when either side has given up.
    #[inline(always)]
    fn spin_until(&self, mut done: impl FnMut() -> bool) -> bool {
        loop {
            // The clock is read so rarely that it does not affect the measurement.
            for _ in 0..1 << 14 {
                if done() {
                    return true;
                }
            }
            if self.given_up.load(Ordering::Relaxed) {
                return false;
            }
            if Instant::now() > self.deadline {
                self.give_up();
                return false;
            }
            // The other side has not answered for so long that it must have lost its CPU: yield ours, too.
            std::thread::yield_now();
        }
    }

    fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }
}

/// Runs `a` and `b` on two CPUs at the same time and returns both results; `None` from either means that it gave up.
fn on_two_cpus<A: Send, B: Send>(
    (cpu_a, cpu_b): (u32, u32),
    a: impl FnOnce(&Patience) -> Option<A> + Send,
    b: impl FnOnce(&Patience) -> Option<B> + Send,
) -> Result<(A, B), OsError> {
    let patience = Patience::new();
    let ready = AtomicU32::new(0);
    let start = |cpu| {
        let pinned = affinity::pin(cpu);
        if pinned.is_err() {
            patience.give_up();
        }
        ready.fetch_add(1, Ordering::AcqRel);
        // Both must start together, otherwise the first one's waiting would be measured.
        let met = patience.spin_until(|| {
            if ready.load(Ordering::Acquire) < 2 {
                std::thread::yield_now();
                return false;
            }
            true
        });
        pinned.map(|()| met)
    };
    std::thread::scope(|scope| {
        let second = scope.spawn(|| match start(cpu_b) {
            Ok(true) => Ok(b(&patience)),
            Ok(false) => Ok(None),
            Err(e) => Err(e),
        });
        // The first one also gets its own thread, so that the caller's affinity does not change.
        let first = scope.spawn(|| match start(cpu_a) {
            Ok(true) => Ok(a(&patience)),
            Ok(false) => Ok(None),
            Err(e) => Err(e),
        });
        let join = "a loop does not panic";
        let (first, second) = (first.join().expect(join)?, second.join().expect(join)?);
        first.zip(second).ok_or_else(|| {
            let why = std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                format!(
                    "not finished within {} s; is another process using one of the CPUs?",
                    GIVE_UP_AFTER.as_secs()
                ),
            );
            OsError::new("measure between", format!("cpu {cpu_a} and cpu {cpu_b}"), why)
        })
    })
}
