//! A timer that polls readable when it has expired.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::OsError;

/// A timer on the monotonic clock; its calls do not block.
#[derive(Debug)]
pub struct TimerFd(OwnedFd);

impl TimerFd {
    /// Creates a timer that is not armed.
    ///
    /// # Errors
    /// [`OsError`] of timerfd_create.
    pub fn new() -> Result<TimerFd, OsError> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        timerfd_create(TimerfdClockId::Monotonic, flags)
            .map(TimerFd)
            .map_err(|e| OsError::new("timerfd_create", "", e))
    }

    /// Arms the timer to expire after `left`, or disarms it if `None`. Once expired, it polls readable until it is set
    /// again.
    ///
    /// # Errors
    /// [`OsError`] of timerfd_settime.
    pub fn set(&self, left: Option<Duration>) -> Result<(), OsError> {
        // Zero would disarm it.
        let left = left.map_or(Duration::ZERO, |left| left.max(Duration::from_nanos(1)));
        let spec = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            },
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &spec)
            .map(drop)
            .map_err(|e: Errno| OsError::new("timerfd_settime", "", e))
    }
}

impl AsFd for TimerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::{Interest, wait_ready};

    #[test]
    fn it_polls_readable_when_it_is_over_until_it_is_set_again() {
        let timer = TimerFd::new().unwrap();
        let now = || Some(std::time::Instant::now());
        timer.set(Some(Duration::ZERO)).unwrap();
        assert!(wait_ready(&timer, Interest::Readable, None).unwrap());
        assert!(wait_ready(&timer, Interest::Readable, now()).unwrap());
        timer.set(Some(Duration::from_secs(1000))).unwrap();
        assert!(!wait_ready(&timer, Interest::Readable, now()).unwrap());
        timer.set(None).unwrap();
        assert!(!wait_ready(&timer, Interest::Readable, now()).unwrap());
    }
}
