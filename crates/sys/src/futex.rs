//! Futexes on shared memory.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{Flags, Timespec};

use crate::OsError;

/// Sleeps while `word` holds `expected`, until woken, interrupted by a signal, or `timeout` has passed. Does not return
/// which of these happened: the caller must check its condition again in any case.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Result<(), OsError> {
    let timeout = timeout.map(|t| Timespec {
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    // No FUTEX_PRIVATE: the word is shared between processes.
    match rustix::thread::futex::wait(word, Flags::empty(), expected, timeout.as_ref()) {
        Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Ok(()),
        Err(e) => Err(OsError::new("futex(FUTEX_WAIT)", "", e)),
    }
}

/// Wakes one sleeper on `word`; returns whether there was one.
pub fn wake(word: &AtomicU32) -> Result<bool, OsError> {
    rustix::thread::futex::wake(word, Flags::empty(), 1)
        .map(|woken| woken > 0)
        .map_err(|e| OsError::new("futex(FUTEX_WAKE)", "", e))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn wait_returns_at_once_when_the_word_differs() {
        wait(&AtomicU32::new(1), 0, None).unwrap();
    }

    #[test]
    fn wake_says_whether_somebody_slept() {
        static WORD: AtomicU32 = AtomicU32::new(0);
        assert!(!wake(&WORD).unwrap());
        let sleeper = std::thread::spawn(|| {
            while WORD.load(Ordering::Acquire) == 0 {
                wait(&WORD, 0, None).unwrap();
            }
        });
        while !wake(&WORD).unwrap() {
            std::thread::yield_now();
        }
        WORD.store(1, Ordering::Release);
        while !sleeper.is_finished() {
            wake(&WORD).unwrap();
        }
        sleeper.join().unwrap();
    }

    #[test]
    fn a_timeout_ends_the_wait() {
        wait(&AtomicU32::new(0), 0, Some(Duration::from_millis(1))).unwrap();
    }
}
