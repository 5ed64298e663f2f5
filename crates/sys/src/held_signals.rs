//! Signals that wait while a preloaded library does what no signal handler may interrupt, or looks before it sleeps: they
//! interrupt its call as they would interrupt one that sleeps.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use libc::sigset_t;

/// The highest signal that the kernel has (_NSIG).
const HIGHEST: c_int = 64;

/// Holds back the thread's signals until it is dropped, even if the thread is cancelled.
#[derive(Debug)]
pub struct HeldSignals {
    before: sigset_t,
}

impl HeldSignals {
    /// Holds back all signals from now on.
    pub fn hold() -> Self {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets outlive the calls, and are filled before they are used.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            Self { before: before.assume_init() }
        }
    }

    /// The signals that the program itself holds back.
    pub fn before(&self) -> &sigset_t {
        &self.before
    }

    /// Whether a signal has come that interrupts a system call: the program handles it, and does not want calls to be
    /// restarted, or the call never is (`is_limited`).
    pub fn interrupts(&self, is_limited: impl Fn() -> bool) -> bool {
        let mut pending = MaybeUninit::uninit();
        // SAFETY: the call fills the set.
        let pending: sigset_t = unsafe {
            libc::sigpending(pending.as_mut_ptr());
            pending.assume_init()
        };
        // SAFETY: initialised sets and valid numbers.
        (1..=HIGHEST).any(|signal| unsafe {
            libc::sigismember(&pending, signal) == 1
                && libc::sigismember(&self.before, signal) != 1
                && is_handled(signal).is_some_and(|restarts| !restarts || is_limited())
        })
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        // SAFETY: the set was filled in the beginning.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// Runs a function with all signals blocked, so that no signal handler interrupts the function.
pub fn without_signals<T>(what: impl FnOnce() -> T) -> T {
    let _held = HeldSignals::hold();
    what()
}

/// Whether the program wants calls to be restarted after a signal that it handles; `None` if it does not handle it.
fn is_handled(signal: c_int) -> Option<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the call only fills the structure, of which zeros are a valid value.
    let action = unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    let is_handled = !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
    is_handled.then_some(action.sa_flags & libc::SA_RESTART != 0)
}
