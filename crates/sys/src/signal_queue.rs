//! Real-time signals that carry a value, queued to a process through its pidfd.
//!
//! Signals of one number are queued in order, and none is lost; each carries the value of `sigqueue(3)`. If any thread
//! of the receiving process neither blocks nor handles such a signal, the signal kills the process. [`Inbox::claim`]
//! therefore refuses to work in a process with such a thread. The receiver is identified by a pidfd and not by its pid,
//! because a signal to a pid that has been reused would kill an unrelated process.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{PidfdFlags, Resource, getpid, getrlimit, pidfd_open};

use crate::OsError;
use crate::clock::timespec;
use crate::error::last_errno;
use crate::patience::Patience;

/// Number of bytes that a signal carries: the value of `sigqueue(3)`, as large as a pointer.
pub const VALUE_BYTES: usize = size_of::<libc::sigval>();

/// The data of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// The field `si_errno`, which the kernel passes on and `sigqueue(3)` leaves 0.
    pub note: i32,
    /// The value; only its low [`VALUE_BYTES`] bytes are delivered.
    pub word: u64,
}

/// The first fields of the kernel's `siginfo_t` of a queued signal.
#[repr(C)]
#[derive(Clone, Copy)]
struct Info {
    signal: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    queued: Queued,
}

/// A part of the union in `siginfo_t`, with the alignment of that union.
#[repr(C)]
#[derive(Clone, Copy)]
struct Queued {
    pid: libc::pid_t,
    uid: libc::uid_t,
    value: libc::sigval,
}

/// A whole `siginfo_t`.
#[repr(C)]
union Signal {
    info: Info,
    whole: libc::siginfo_t,
}

const _: () = assert!(size_of::<Signal>() == size_of::<libc::siginfo_t>());
const _: () = assert!(align_of::<Info>() == align_of::<libc::siginfo_t>());

impl Signal {
    fn zeroed() -> Signal {
        // SAFETY: a siginfo_t consists of integers and pointers that may be null.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }

    fn info(&self) -> Info {
        // SAFETY: all bytes are initialised, and every field is valid for any bytes.
        unsafe { self.info }
    }
}

impl Info {
    /// The value, as an integer.
    fn word(&self) -> u64 {
        self.queued.value.sival_ptr as usize as u64
    }
}

/// A descriptor of this process, for [`queue`].
pub fn this_process() -> Result<OwnedFd, OsError> {
    pidfd_open(getpid(), PidfdFlags::empty()).map_err(|e| OsError::new("pidfd_open", "itself", e))
}

/// Queues a signal to the process of a pidfd.
///
/// Errors: `EAGAIN` the receiver's user has reached the limit of queued signals (`ulimit -i`); `ESRCH` the process has
/// ended; `EPERM` it belongs to another user; `EINVAL` it is in a PID namespace that is not below the caller's.
#[inline]
pub fn queue(process: impl AsFd, signal: i32, value: Value) -> Result<(), Errno> {
    let mut sent = Signal::zeroed();
    sent.info = Info {
        signal,
        errno: value.note,
        code: libc::SI_QUEUE,
        queued: Queued {
            // Nobody reads them, and asking for them would cost two system calls per signal.
            pid: 0,
            uid: 0,
            value: libc::sigval { sival_ptr: value.word as usize as *mut libc::c_void },
        },
    };
    let process = process.as_fd().as_raw_fd();
    // SAFETY: the kernel only reads the siginfo_t, which outlives the call.
    let done = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, process, signal, &raw const sent, 0_u32)
    };
    if done < 0 { Err(last_errno()) } else { Ok(()) }
}

/// Tests whether [`queue`] may send to the process; sends nothing.
pub fn may_reach(process: impl AsFd) -> Result<(), Errno> {
    let process = process.as_fd().as_raw_fd();
    // SAFETY: signal 0 only checks; no information is passed.
    let asked = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process,
            0,
            std::ptr::null::<libc::siginfo_t>(),
            0_u32,
        )
    };
    if asked < 0 { Err(last_errno()) } else { Ok(()) }
}

/// The number of signals that may be queued to this user's processes together (`RLIMIT_SIGPENDING`); `None`: unlimited.
pub fn most_queued() -> Option<u64> {
    getrlimit(Resource::Sigpending).current
}

/// The real-time signals that inboxes of this process use, one bit each.
static CLAIMED: AtomicU64 = AtomicU64::new(0);

/// A real-time signal that this process keeps blocked and receives only by calling [`Inbox::take`]. When this value is
/// dropped, the signal's number is free again; it remains blocked, because a late signal would end the process.
#[derive(Debug)]
pub struct Inbox {
    signal: i32,
    pollable: OwnedFd,
}

impl Inbox {
    /// Claims a real-time signal that has no handler, blocks it in the calling thread, and tests that all other threads
    /// of the process block it, too.
    ///
    /// Errors: `EBUSY` when another thread does not block it (the error names the thread); `EAGAIN` when all real-time
    /// signals are in use.
    pub fn claim() -> Result<Inbox, OsError> {
        let signal = claim_number().ok_or_else(|| {
            OsError::new("sigaction", "(every real-time signal is in use)", Errno::AGAIN)
        })?;
        let release = Release(signal);
        block(signal)?;
        if let Some(thread) = thread_without(signal) {
            return Err(OsError::new(
                "sigwaitinfo",
                format!(
                    "signal {signal}: thread '{thread}' of this process does not block it, so the signal would \
                     kill the process; block the real-time signals before the first thread is started"
                ),
                Errno::BUSY,
            ));
        }
        let set = set_of(signal);
        // SAFETY: the set is initialised and outlives the call; the flags are valid.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC) };
        if fd < 0 {
            return Err(OsError::new("signalfd", signal, last_errno()));
        }
        // SAFETY: the kernel has just made this descriptor; nothing else owns it.
        let pollable = unsafe { OwnedFd::from_raw_fd(fd) };
        std::mem::forget(release);
        let inbox = Inbox { signal, pollable };
        inbox.empty();
        Ok(inbox)
    }

    /// The number of the signal.
    pub fn signal(&self) -> i32 {
        self.signal
    }

    /// Takes the first queued signal; `None` if there is none in time.
    #[inline]
    pub fn take(&self, patience: Patience) -> Result<Option<Value>, Errno> {
        let set = set_of(self.signal);
        loop {
            let mut got = Signal::zeroed();
            let left = patience.left().map(timespec);
            let left = left.as_ref().map_or(std::ptr::null(), |left| &raw const *left);
            // SAFETY: all pointers are to locals that outlive the call, or null, which waits for ever.
            let taken = unsafe { libc::sigtimedwait(&raw const set, (&raw mut got).cast(), left) };
            if taken < 0 {
                match last_errno() {
                    Errno::INTR => continue,
                    Errno::AGAIN if patience.is_over() => return Ok(None),
                    Errno::AGAIN => continue,
                    errno => return Err(errno),
                }
            }
            let info = got.info();
            // A signal by kill(2) has no value.
            if info.code == libc::SI_QUEUE {
                return Ok(Some(Value { note: info.errno, word: info.word() }));
            }
        }
    }

    fn empty(&self) {
        while matches!(self.take(Patience::Now), Ok(Some(_))) {}
    }
}

impl AsFd for Inbox {
    /// A descriptor that polls readable while a signal is queued (`signalfd(2)`).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pollable.as_fd()
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.empty();
        drop(Release(self.signal));
    }
}

/// Makes a signal number free again when dropped.
struct Release(i32);

impl Drop for Release {
    fn drop(&mut self) {
        CLAIMED.fetch_and(!bit(self.0), Ordering::AcqRel);
    }
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// The lowest real-time signal that is free. The highest one is used by [`crate::interrupt`].
fn claim_number() -> Option<i32> {
    (libc::SIGRTMIN()..libc::SIGRTMAX()).find(|&signal| {
        let bit = bit(signal);
        if CLAIMED.fetch_or(bit, Ordering::AcqRel) & bit != 0 {
            return false;
        }
        let unused = has_no_handler(signal);
        if !unused {
            drop(Release(signal));
        }
        unused
    })
}

fn has_no_handler(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only queries the current action; sigaction consists of integers and pointers that may be null.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_DFL
    }
}

fn set_of(signal: i32) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set, to which a valid signal is added.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        set.assume_init()
    }
}

fn block(signal: i32) -> Result<(), OsError> {
    let set = set_of(signal);
    // SAFETY: the set outlives the call; the old mask is not requested.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) } {
        0 => Ok(()),
        errno => Err(OsError::new("pthread_sigmask", signal, Errno::from_raw_os_error(errno))),
    }
}

/// Blocks every real-time signal but the highest, which [`crate::interrupt`] uses, in the calling thread, and so in
/// every thread and process that it starts from now on.
pub fn block_all() -> Result<(), OsError> {
    (libc::SIGRTMIN()..libc::SIGRTMAX()).try_for_each(block)
}

/// Whether every thread of this process blocks the lowest real-time signal.
pub fn all_threads_block() -> bool {
    thread_without(libc::SIGRTMIN()).is_none()
}

/// The C library's own signal, which only the C library can block. It blocks this signal, together with all others, for
/// a moment in a thread that starts a thread or a process, and in the new thread until that thread gets its own mask. A
/// thread that blocks this signal therefore does not have its final mask yet.
const INTERNAL: i32 = 32;

/// How long to wait for threads whose signal masks are not final yet.
const SETTLING: Duration = Duration::from_secs(1);

/// The name of a thread of this process that does not block the signal, or whose mask is still not final after
/// [`SETTLING`].
fn thread_without(signal: i32) -> Option<String> {
    let begin = Instant::now();
    loop {
        let mut unsettled = None;
        for thread in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
            // A thread may have ended meanwhile.
            let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            let field = |name: &str| {
                status.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
            };
            let mask = field("SigBlk:").and_then(|mask| u64::from_str_radix(&mask, 16).ok());
            let Some(blocked) = mask else { continue };
            if blocked & bit(signal) == 0 {
                return field("Name:");
            }
            if blocked & bit(INTERNAL) != 0 {
                unsettled = field("Name:");
            }
        }
        if unsettled.is_none() || begin.elapsed() > SETTLING {
            return unsettled;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Tests whether signals can be queued on this machine: a child queues one to itself and takes it. `ENOSYS`: Linux
/// before 5.3.
pub fn try_here() -> Result<(), Errno> {
    const WORD: u64 = 0x6372_6f73;
    let signal = libc::SIGRTMIN();
    let set = set_of(signal);
    // SAFETY: the child, which has one thread only, makes system calls that are safe after a fork of a process with
    // threads (the signal mask, pidfd_open, pidfd_send_signal, sigtimedwait), allocates nothing and ends by _exit.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(last_errno());
    }
    if child == 0 {
        let tried = || -> Result<(), Errno> {
            // SAFETY: as above; the set outlives the call.
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
            let process = pidfd_open(getpid(), PidfdFlags::empty())?;
            queue(&process, signal, Value { note: 0, word: WORD })?;
            let mut got = Signal::zeroed();
            // SAFETY: both pointers are to locals that outlive the call; the signal is queued, so that it does not
            // wait.
            let taken = unsafe { libc::sigwaitinfo(&raw const set, (&raw mut got).cast()) };
            let arrived = taken == signal && got.info().word() == WORD;
            if arrived { Ok(()) } else { Err(Errno::BADMSG) }
        };
        let code = tried().map_or_else(Errno::raw_os_error, |()| 0);
        // SAFETY: ends the child immediately without running any of the parent's code.
        unsafe { libc::_exit(code) };
    }
    crate::proc::outcome_of(child)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_comes_back_with_its_value_in_a_process_of_its_own() {
        assert_eq!(try_here(), Ok(()));
    }

    /// The threads of a test process do not block real-time signals, so that such a signal would kill the process.
    #[test]
    fn a_process_with_a_thread_that_would_be_killed_is_refused() {
        let (told, end) = std::sync::mpsc::channel::<()>();
        let other = std::thread::Builder::new()
            .name("unblocked".to_owned())
            .spawn(move || end.recv().unwrap_err())
            .unwrap();
        let error = Inbox::claim().unwrap_err();
        assert_eq!(error.errno(), libc::EBUSY);
        assert!(error.to_string().contains("does not block it"), "{error}");
        drop(told);
        other.join().unwrap();
        assert_eq!(CLAIMED.load(Ordering::Acquire), 0, "the number was not given back");
    }

    #[test]
    fn a_process_that_has_ended_cannot_be_reached() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = crate::proc::watch_end(child.id()).unwrap();
        child.wait().unwrap();
        assert_eq!(may_reach(&process), Err(Errno::SRCH));
        assert_eq!(queue(&process, 34, Value { note: 0, word: 0 }), Err(Errno::SRCH));
    }
}
