//! Wake-up latency: from immediately before the waking call to the first instruction of the woken thread, on another
//! core.

use crossway_sys::OsError;
use crossway_sys::yardstick::{self, wake_times};
use serde::{Deserialize, Serialize};

use super::{IDLE, Spread, spread_of};

/// How the sleeping thread is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WakeKind {
    /// FUTEX_WAKE.
    Futex,
    /// A write to an eventfd that the sleeping thread is reading.
    Eventfd,
}

/// The latency of one kind of wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wake {
    /// How the sleeping thread is woken.
    pub kind: WakeKind,
    /// The waking thread's CPU.
    pub a: u32,
    /// The sleeping thread's CPU.
    pub b: u32,
    /// How long the thread had slept, microseconds. During a sleep of up to 200 us, the waking thread spins; during a
    /// longer one, it sleeps too.
    pub idle_us: u64,
    /// Latency, nanoseconds.
    pub wake_to_run_ns: Spread,
}

/// Measures both kinds of wake-up, each after a short and after a long idle time.
pub(super) fn measure((a, b): (u32, u32), long_wakes: usize) -> Result<Vec<Wake>, OsError> {
    let mut wakes = Vec::new();
    for (kind, call) in [
        (WakeKind::Futex, yardstick::WakeKind::Futex),
        (WakeKind::Eventfd, yardstick::WakeKind::EventFd),
    ] {
        for (idle, samples) in [(IDLE[0], long_wakes * 20), (IDLE[1], long_wakes)] {
            let times = wake_times((a, b), call, idle, samples.max(1))?;
            let idle_us = idle.as_micros() as u64;
            wakes.push(Wake { kind, a, b, idle_us, wake_to_run_ns: spread_of(&times) });
        }
    }
    Ok(wakes)
}
