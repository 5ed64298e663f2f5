//! Futexes on shared memory.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Timespec, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::ClockId;

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

/// Sleeps while each word holds the value beside it, as [`wait`] does with one word.
///
/// # Errors
/// ENOSYS before Linux 5.16; others are bugs.
pub fn wait_any<const N: usize>(
    words: [(&AtomicU32, u32); N],
    timeout: Option<Duration>,
) -> Result<(), OsError> {
    let waiters = words.map(|(word, expected)| {
        let mut waiter = futex::Wait::new();
        waiter.uaddr = WaitPtr::new(word.as_ptr().cast());
        waiter.val = expected.into();
        // Not private: the words are shared between processes.
        waiter.flags = WaitFlags::SIZE_U32;
        waiter
    });
    // Unlike the timeout of FUTEX_WAIT, this one is a time of the clock.
    let until = timeout.and_then(|timeout| {
        let now = Duration::try_from(rustix::time::clock_gettime(ClockId::Monotonic)).ok()?;
        Timespec::try_from(now.checked_add(timeout)?).ok()
    });
    match futex::waitv(&waiters, WaitvFlags::empty(), until.as_ref(), ClockId::Monotonic) {
        Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Ok(()),
        Err(e) => Err(OsError::new("futex_waitv", "", e)),
    }
}

/// Wakes one sleeper on `word`; returns whether there was one.
pub fn wake(word: &AtomicU32) -> Result<bool, OsError> {
    rustix::thread::futex::wake(word, Flags::empty(), 1)
        .map(|woken| woken > 0)
        .map_err(|e| OsError::new("futex(FUTEX_WAKE)", "", e))
}

/// Wakes all sleepers on `word`.
pub fn wake_all(word: &AtomicU32) -> Result<(), OsError> {
    rustix::thread::futex::wake(word, Flags::empty(), i32::MAX.unsigned_abs())
        .map(drop)
        .map_err(|e| OsError::new("futex(FUTEX_WAKE)", "", e))
}

/// A lock in a word, which is 0 while it is free; released when dropped.
#[derive(Debug)]
pub struct Locked<'a>(&'a AtomicU32);

/// Acquires the lock in `word`, and sleeps until it is free. Signals must be blocked; otherwise, a signal handler could wait
/// for the thread that it interrupted.
pub fn lock(word: &AtomicU32) -> Locked<'_> {
    // 0: free, 1: locked, 2: locked with waiters.
    if word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        while word.swap(2, Ordering::Acquire) != 0 {
            let _ = wait(word, 2, None);
        }
    }
    Locked(word)
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if self.0.swap(0, Ordering::Release) == 2 {
            let _ = wake(self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_returns_at_once_when_the_word_differs() {
        wait(&AtomicU32::new(1), 0, None).unwrap();
    }

    #[test]
    fn a_lock_lets_one_thread_in_at_a_time() {
        static WORD: AtomicU32 = AtomicU32::new(0);
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = || {
            for _ in 0..10_000 {
                let _locked = lock(&WORD);
                // Not one step, so that another thread in between would make a count get lost.
                COUNT.store(COUNT.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
        };
        std::thread::scope(|threads| (0..3).for_each(|_| drop(threads.spawn(count))));
        assert_eq!(COUNT.load(Ordering::Relaxed), 30_000);
        assert_eq!(WORD.load(Ordering::Relaxed), 0);
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

    #[test]
    fn any_of_several_words_ends_the_wait() {
        static WORDS: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];
        let all = || WORDS.each_ref().map(|word| (word, 0));
        if let Err(error) = wait_any(all(), Some(Duration::from_millis(1))) {
            assert_eq!(error.errno(), libc::ENOSYS, "{error}");
            return eprintln!("SKIP futex_waitv: {error}; remedy: Linux 5.16 or later");
        }
        for word in &WORDS {
            let sleeper = std::thread::spawn(move || {
                while word.load(Ordering::Acquire) == 0 {
                    wait_any(all(), None).unwrap();
                }
            });
            while !wake(word).unwrap() {
                std::thread::yield_now();
            }
            word.store(1, Ordering::Release);
            wake_all(word).unwrap();
            sleeper.join().unwrap();
            wait_any(all(), None).unwrap();
            word.store(0, Ordering::Release);
        }
    }
}
