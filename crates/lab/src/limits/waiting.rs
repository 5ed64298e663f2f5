//! Wake-up latency: from immediately before the waking call to the first instruction of the woken thread, on another
//! core.

use crossway_sys::OsError;
use crossway_sys::yardstick::{self, wake_times};

use super::{IDLE, spread_of};
use crossway_records::limits::{Wake, WakeKind};

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
