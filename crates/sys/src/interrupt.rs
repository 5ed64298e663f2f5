//! Ends a blocking system call at a given instant, for calls that take no timeout (`msgsnd`, `msgrcv`).
//!
//! A POSIX timer of the calling thread raises a real-time signal whose handler does nothing; the call returns `EINTR`.
//! A signal that arrives just before the call begins would be lost, so the timer repeats every millisecond until it is
//! disarmed: the call ends at most one millisecond late.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::clock::timespec;
use crate::error::last_errno;

/// The period at which an expired timer repeats.
const REPEAT: Duration = Duration::from_millis(1);

/// Runs `call`, during which this thread is interrupted at `deadline` and every millisecond after it. `call` should
/// make one system call and check the time on `EINTR`.
///
/// The cost is two system calls (arming and disarming); the timer itself is created once per thread. Errors: `ENOENT`
/// when the program uses every real-time signal itself; `EAGAIN` when the user has reached the limit of queued signals
/// (`ulimit -i`).
pub fn interrupted_at<R>(deadline: Instant, call: impl FnOnce() -> R) -> Result<R, Errno> {
    thread_local! {
        static TIMER: RefCell<Option<ThreadTimer>> = const { RefCell::new(None) };
    }
    TIMER.with_borrow_mut(|slot| {
        // A forked child inherits this variable but not the timer in it.
        if slot.as_ref().is_some_and(|timer| timer.process != std::process::id()) {
            std::mem::forget(slot.take());
        }
        let timer = match slot {
            Some(timer) => timer,
            None => slot.insert(ThreadTimer::new()?),
        };
        // Zero would disarm.
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        timer.set(left, REPEAT)?;
        let result = call();
        timer.set(Duration::ZERO, Duration::ZERO)?;
        Ok(result)
    })
}

struct ThreadTimer {
    id: libc::timer_t,
    process: u32,
}

impl ThreadTimer {
    fn new() -> Result<Self, Errno> {
        let signal = signal()?;
        unblock(signal)?;
        // SAFETY: sigevent consists of integers and a pointer-sized union; all zeroes is a value of it.
        let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
        let mut id: libc::timer_t = std::ptr::null_mut();
        // SAFETY: both pointers are to locals that outlive the call.
        let made =
            unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut id) };
        if made < 0 {
            return Err(last_errno());
        }
        Ok(ThreadTimer { id, process: std::process::id() })
    }

    fn set(&mut self, first: Duration, period: Duration) -> Result<(), Errno> {
        let spec = libc::itimerspec { it_interval: timespec(period), it_value: timespec(first) };
        // SAFETY: the timer lives as long as `self`; `spec` outlives the call; the old value is not requested.
        if unsafe { libc::timer_settime(self.id, 0, &raw const spec, std::ptr::null_mut()) } < 0 {
            return Err(last_errno());
        }
        Ok(())
    }
}

impl Drop for ThreadTimer {
    fn drop(&mut self) {
        // SAFETY: the timer was made by `new` and is deleted only here.
        unsafe { libc::timer_delete(self.id) };
    }
}

extern "C" fn do_nothing(_signal: libc::c_int) {}

/// The signal that this process uses, chosen at the first call: the highest real-time signal that has no handler.
fn signal() -> Result<libc::c_int, Errno> {
    static SIGNAL: OnceLock<Option<libc::c_int>> = OnceLock::new();
    SIGNAL.get_or_init(claim_signal).ok_or(Errno::NOENT)
}

fn claim_signal() -> Option<libc::c_int> {
    (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev().find(|&signal| {
        // SAFETY: sigaction consists of integers and pointers that may be null; all zeroes is a value of it.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: only queries the current action; `action` outlives the call.
        let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
        if asked < 0 || action.sa_sigaction != libc::SIG_DFL {
            return false;
        }
        // SAFETY: as above.
        let mut ours: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        // No SA_RESTART: the interrupted call must return.
        ours.sa_sigaction = do_nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SAFETY: the handler does nothing, which is safe at any point of any thread.
        unsafe { libc::sigaction(signal, &raw const ours, std::ptr::null_mut()) == 0 }
    })
}

fn unblock(signal: libc::c_int) -> Result<(), Errno> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set that sigaddset then changes; `signal` is a valid number;
    // pthread_sigmask only reads the set.
    let errno = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut())
    };
    if errno == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(errno)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads from a pipe that nothing writes to.
    fn blocked_read() -> libc::c_int {
        let (end, _writer) = rustix::pipe::pipe().unwrap();
        match rustix::io::read(&end, &mut [0_u8; 1]) {
            Ok(_) => 0,
            Err(e) => e.raw_os_error(),
        }
    }

    #[test]
    fn a_blocking_call_ends_at_the_deadline_in_any_thread() {
        for _ in 0..2 {
            std::thread::spawn(|| {
                for wait_ms in [5, 0] {
                    let deadline = Instant::now() + Duration::from_millis(wait_ms);
                    assert_eq!(interrupted_at(deadline, blocked_read).unwrap(), libc::EINTR);
                    assert!(Instant::now() >= deadline);
                }
            })
            .join()
            .unwrap();
        }
    }

    #[test]
    fn a_call_that_ends_by_itself_is_left_alone() {
        let far = Instant::now() + Duration::from_secs(3600);
        assert_eq!(interrupted_at(far, || 7).unwrap(), 7);
    }
}
