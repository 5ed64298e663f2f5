//! What a process inherits from the one that started it, and what could make it misbehave: ignored signals, the mask of
//! blocked signals, the umask, the timer slack. Set once, at the start of the program, whatever it is asked to do.
//! (The standard library has opened the descriptors 0 to 2 on `/dev/null` by then, where they were closed.)

use std::num::NonZeroU64;

use crate::clock;

/// The kernel's default of the timer slack, nanoseconds.
const SLACK_NS: NonZeroU64 = NonZeroU64::new(50_000).unwrap();

/// Sets what this process has inherited to what the program needs:
/// - SIGCHLD has its default effect. If a parent ignores it, the kernel discards the exit status of children.
/// - SIGXFSZ, sent when a file exceeds the limit of its size, does not end the process, so that the failed
///   call is reported. Programs that it starts are not affected.
/// - No signal is blocked, so that SIGINT and SIGTERM end the program.
/// - Files are created so that their owner may read and write them, and that not everybody may write them.
/// - The timer slack is the default; a larger one makes every sleep in a measurement longer.
///
/// To be called before the process starts threads.
pub fn settle() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handlers do nothing, the sets are initialised by sigemptyset, and no other thread exists.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigemptyset(&mut action.sa_mask);
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(libc::SIGCHLD, &action, std::ptr::null_mut());
        // Not SIG_IGN, which would be inherited.
        action.sa_sigaction = nothing as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGXFSZ, &action, std::ptr::null_mut());
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        let mask = libc::umask(0o022);
        libc::umask(mask & 0o077 | 0o002);
    }
    // Refused by some sandboxes; then the slack is as inherited.
    let _ = clock::set_timer_slack_ns(SLACK_NS);
}
