//! What a process inherits from the one that started it, and what could make it misbehave: ignored signals, the mask of
//! blocked signals, the umask, the timer slack, the stack. Set once, at the start of the program, whatever it is asked to do.
//! (The standard library has opened the descriptors 0 to 2 on `/dev/null` by then, where they were closed.)

use std::num::NonZeroU64;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::clock;
use crate::error::OsError;

/// The kernel's default of the timer slack, nanoseconds.
const SLACK_NS: NonZeroU64 = NonZeroU64::new(50_000).unwrap();

/// What this process has inherited that a program would notice.
#[derive(Clone, Copy)]
struct Inherited {
    /// Whether each signal from 1 on was ignored.
    ignored: [bool; SIGNALS],
    blocked: libc::sigset_t,
    umask: libc::mode_t,
    stack: libc::rlimit,
}

/// Less stack than this is enlarged to the usual 8 MiB, bytes. The first thread may use a raised limit at once.
const STACK: libc::rlim_t = 1 << 20;
/// With less than this, the program would end by a signal while it reads its arguments, bytes.
const STACK_AT_LEAST: libc::rlim_t = 256 << 10;

/// Signals up to SIGSYS, whose numbers are the same everywhere; the C library keeps some of those above for itself.
const SIGNALS: usize = 31;
static INHERITED: OnceLock<Inherited> = OnceLock::new();

/// Whether SIGPIPE was ignored before the standard library ignored it.
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: only reads the disposition of a signal.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Runs before `main`, and before the standard library changes SIGPIPE.
extern "C" fn note_pipe() {
    PIPE_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
}

// SAFETY: the loader calls each function in this section once, with arguments that a function without parameters ignores.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_PIPE: extern "C" fn() = note_pipe;

/// Makes a command inherit what this process has inherited, instead of what [`settle`] and the standard library have made of
/// it: the ignored and the blocked signals and the umask. For programs that users start through this one.
pub fn pass_on(command: &mut Command) {
    let Some(inherited) = INHERITED.get().copied() else { return };
    let restore = move || {
        // SAFETY: functions that may be called between fork and exec, with initialised arguments.
        unsafe {
            for (at, was_ignored) in inherited.ignored.iter().enumerate() {
                if *was_ignored {
                    libc::signal(at as libc::c_int + 1, libc::SIG_IGN);
                }
            }
            libc::sigprocmask(libc::SIG_SETMASK, &inherited.blocked, std::ptr::null_mut());
            libc::umask(inherited.umask);
            // Changed only if it was small.
            if inherited.stack.rlim_cur < STACK {
                libc::setrlimit(libc::RLIMIT_STACK, &inherited.stack);
            }
        }
        Ok(())
    };
    // SAFETY: as above; the closure allocates nothing.
    unsafe { command.pre_exec(restore) };
}

/// Sets what this process has inherited to what the program needs:
/// - SIGCHLD has its default effect. If a parent ignores it, the kernel discards the exit status of children.
/// - SIGXFSZ, sent when a file exceeds the limit of its size, does not end the process, so that the failed
///   call is reported. Programs that it starts are not affected.
/// - No signal is blocked, so that SIGINT and SIGTERM end the program.
/// - Files are created so that their owner may read and write them, and that not everybody may write them.
/// - The timer slack is the default; a larger one makes every sleep in a measurement longer.
/// - Pipes and terminals that are its standard streams block: output that their reader has not
///   taken yet is no error.
/// - A small stack is enlarged as far as that is allowed.
///
/// To be called before the process starts threads.
///
/// # Errors
/// The stack is too small and may not be enlarged (RLIMIT_STACK).
pub fn settle() -> Result<(), OsError> {
    extern "C" fn nothing(_: libc::c_int) {}
    let ignored = std::array::from_fn(|at| match at as libc::c_int + 1 {
        libc::SIGPIPE => PIPE_IGNORED.load(Ordering::Relaxed),
        signal => is_ignored(signal),
    });
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
        let mut blocked = none;
        libc::sigprocmask(libc::SIG_SETMASK, &none, &mut blocked);
        let umask = libc::umask(0o022);
        libc::umask(umask & 0o077 | 0o002);
        let stack = enlarge_stack();
        let _ = INHERITED.set(Inherited { ignored, blocked, umask, stack });
    }
    // Refused by some sandboxes; then the slack is as inherited.
    let _ = clock::set_timer_slack_ns(SLACK_NS);
    (0..=2).for_each(block_in);
    let stack = stack_limit();
    if stack.rlim_cur < STACK_AT_LEAST {
        let object = format!(
            "RLIMIT_STACK, the limit of the stack, {} KiB; raise it: ulimit -s 8192",
            stack.rlim_max >> 10
        );
        return Err(OsError::new(
            "setrlimit",
            object,
            std::io::Error::from_raw_os_error(libc::EPERM),
        ));
    }
    Ok(())
}

fn stack_limit() -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: writes the limit only; if it fails, none is known.
    unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) };
    limit
}

/// Raises a small limit of the stack, the hard one, too, if that is allowed; returns the limit as it was.
fn enlarge_stack() -> libc::rlimit {
    let was = stack_limit();
    if was.rlim_cur < STACK {
        let usual = STACK << 3;
        let hard = libc::rlimit { rlim_cur: usual, rlim_max: was.rlim_max.max(usual) };
        let soft = libc::rlimit { rlim_cur: usual.min(was.rlim_max), rlim_max: was.rlim_max };
        // SAFETY: both only read the limit.
        let _ = unsafe {
            libc::setrlimit(libc::RLIMIT_STACK, &hard) == 0
                || libc::setrlimit(libc::RLIMIT_STACK, &soft) == 0
        };
    }
    was
}

/// Opens a standard stream again if another program has made it non-blocking. The flag itself is
/// left alone, because it belongs to all processes that have the stream open.
fn block_in(stream: libc::c_int) {
    // SAFETY: calls with the number of a descriptor, whatever it is, and initialised arguments.
    unsafe {
        let flags = libc::fcntl(stream, libc::F_GETFL);
        let mut about: libc::stat = std::mem::zeroed();
        let is_waited_for = libc::fstat(stream, &mut about) == 0
            && matches!(about.st_mode & libc::S_IFMT, libc::S_IFIFO | libc::S_IFCHR);
        if flags < 0 || flags & libc::O_NONBLOCK == 0 || !is_waited_for {
            return;
        }
        let path = format!("/proc/self/fd/{stream}\0");
        // Opened without waiting: a pipe whose other end is closed would make this wait for one.
        let how = flags & libc::O_ACCMODE;
        let again = libc::open(path.as_ptr().cast(), how | libc::O_NOCTTY | libc::O_NONBLOCK);
        if again >= 0 {
            libc::fcntl(again, libc::F_SETFL, flags & !libc::O_NONBLOCK);
            libc::dup2(again, stream);
            libc::close(again);
        }
    }
}
