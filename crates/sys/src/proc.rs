//! Processes: ending together with the parent, identifying processes unambiguously, and killing them.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, Signal, WaitOptions, getrlimit,
    pidfd_getfd, pidfd_open, pidfd_send_signal, prlimit, set_parent_process_death_signal,
    setrlimit, waitpid,
};

use crate::{Errno, OsError};

/// Ends this process as `kill -9` does: nothing is flushed, dropped or unwound.
pub fn kill_self() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    // The signal is delivered before the call returns.
    std::process::abort()
}

/// Waits for a forked child whose exit status is an errno, or 0 for success. Returns `EPERM` if a signal ended the
/// child, for example that of a seccomp filter.
pub(crate) fn outcome_of(child: libc::pid_t) -> Result<(), Errno> {
    let child = Pid::from_raw(child).ok_or(Errno::CHILD)?;
    loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Err(Errno::INTR) | Ok(None) => {}
            Err(errno) => return Err(errno),
            Ok(Some((_, status))) => {
                return match status.exit_status() {
                    Some(0) => Ok(()),
                    Some(errno) => Err(Errno::from_raw_os_error(errno)),
                    None => Err(Errno::PERM),
                };
            }
        }
    }
}

/// Whether a descriptor is a UNIX socket, which can carry descriptors.
pub fn is_unix_socket(fd: impl AsFd) -> bool {
    rustix::net::sockopt::socket_domain(fd) == Ok(rustix::net::AddressFamily::UNIX)
}

/// How long a killed process may take to end.
const DEATH_LIMIT: Duration = Duration::from_secs(5);

/// Makes the child die by `SIGKILL` when the thread that starts it ends (PR_SET_PDEATHSIG): start it from a thread that
/// lives as long as the child should.
pub fn die_with_parent(command: &mut Command) {
    signal_with_parent(command, Signal::KILL);
}

/// As [`die_with_parent`], but with `SIGTERM`, for programs that must clean up.
pub fn terminate_with_parent(command: &mut Command) {
    signal_with_parent(command, Signal::TERM);
}

fn signal_with_parent(command: &mut Command, signal: Signal) {
    let parent = rustix::process::getpid();
    // SAFETY: between fork and exec only two system calls are made; nothing is allocated, no lock is taken.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(signal))?;
            // The parent may have died before the call above.
            if rustix::process::getppid() != Some(parent) {
                return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        });
    }
}

/// Gives the child its own session (setsid): it has no terminal, so Ctrl-C does not reach it, and it fails instead of
/// prompting for a password.
pub fn own_session(command: &mut Command) {
    // SAFETY: between fork and exec only one system call is made; nothing is allocated, no lock is taken.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        });
    }
}

/// When a process started, in clock ticks after boot; `None` if there is no such process, or only its zombie. Together
/// with the pid this identifies a process uniquely.
pub fn started_ticks(pid: u32) -> Option<u64> {
    let found = crate::processes::ProcessFiles::new().identity(pid).ok()?;
    (!found.is_zombie()).then_some(found.started_ticks)
}

/// Whether there is a process with this id, a zombie included. Another process may have got the id meanwhile.
pub fn exists(pid: u32) -> bool {
    let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    // A process that this one may not signal exists, too.
    rustix::process::test_kill_process(id) != Err(Errno::SRCH)
}

/// Kills the process that has this pid and this start time, if it still runs, and waits until it is dead, at most for 5
/// seconds. It never kills another process: the descriptor pins the process while its start time is compared.
pub fn kill_exactly(pid: u32, started: u64) {
    let Some(process) = open_exactly(pid, started) else { return };
    if pidfd_send_signal(&process, Signal::KILL).is_err() {
        return;
    }
    wait_for_end(&process, Some(DEATH_LIMIT));
}

/// Sends SIGTERM to the process that has this pid and this start time, if it still runs.
pub fn terminate_exactly(pid: u32, started: u64) {
    if let Some(process) = open_exactly(pid, started) {
        let _ = pidfd_send_signal(&process, Signal::TERM);
    }
}

/// Waits until the process that has this pid and this start time has ended, at most for `limit` if there is one.
/// Returns immediately if there is no such process.
pub fn await_end(pid: u32, started: u64, limit: Option<Duration>) {
    if let Some(process) = open_exactly(pid, started) {
        wait_for_end(&process, limit);
    }
}

fn wait_for_end(process: &OwnedFd, limit: Option<Duration>) {
    let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
    loop {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(process, PollFlags::IN)], left.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}

/// A descriptor of the running process that has this pid and this start time; `None` if there is no such process.
fn open_exactly(pid: u32, started: u64) -> Option<OwnedFd> {
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    let process = pidfd_open(id, PidfdFlags::empty()).ok()?;
    (started_ticks(pid) == Some(started)).then_some(process)
}

/// Lets a child inherit `fd` under the same number. The caller keeps it open until the child is started.
pub fn inherit(command: &mut Command, fd: impl AsFd) {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: between fork and exec only one system call is made, on the child's own copy of the descriptor table,
    // which holds the descriptor because the caller keeps it open; nothing is allocated, no lock is taken.
    unsafe {
        command.pre_exec(move || {
            let fd = std::os::fd::BorrowedFd::borrow_raw(fd);
            rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
            Ok(())
        });
    }
}

/// A descriptor that polls readable once the process has ended. The process must be a child that has not been waited
/// for yet, so that its pid cannot have been reused.
///
/// # Errors
/// There is no such process, or no descriptor is free.
pub fn watch_end(pid: u32) -> Result<OwnedFd, OsError> {
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let none = || std::io::Error::from_raw_os_error(libc::ESRCH);
    let id = id.ok_or_else(|| OsError::new("pidfd_open", pid, none()))?;
    pidfd_open(id, PidfdFlags::empty()).map_err(|e| OsError::new("pidfd_open", pid, e))
}

/// Asks a child to end (`SIGTERM`). It must not have been waited for yet, so that its pid cannot have been reused.
pub fn terminate(child: u32) {
    if let Some(child) = i32::try_from(child).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(child, Signal::TERM);
    }
}

/// Sends a signal to a child, with the same precondition as [`terminate`].
pub fn signal(child: u32, number: i32) {
    if let (Some(child), Some(signal)) =
        (i32::try_from(child).ok().and_then(Pid::from_raw), Signal::from_named_raw(number))
    {
        let _ = rustix::process::kill_process(child, signal);
    }
}

/// Stops a child (`SIGSTOP`), with the same precondition as [`terminate`].
pub fn stop(child: u32) {
    if let Some(child) = i32::try_from(child).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(child, Signal::STOP);
    }
}

/// Continues a stopped child (`SIGCONT`), with the same precondition as [`terminate`].
pub fn resume(child: u32) {
    if let Some(child) = i32::try_from(child).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(child, Signal::CONT);
    }
}

/// A resource whose limit can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// The highest number of a descriptor, plus one (RLIMIT_NOFILE).
    Descriptors,
    /// Bytes of locked memory (RLIMIT_MEMLOCK); a process with CAP_IPC_LOCK has no limit.
    LockedMemory,
}

/// Sets the soft limit of process `pid` to `to` (prlimit), and its hard limit to that of this process, or to `to` if
/// that is higher. Raising a hard limit needs privilege.
pub fn set_limit(pid: u32, what: Limited, to: u64) -> Result<(), OsError> {
    let resource = match what {
        Limited::Descriptors => Resource::Nofile,
        Limited::LockedMemory => Resource::Memlock,
    };
    let failed = |e: std::io::Error| OsError::new("prlimit", format!("process {pid}"), e);
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // Without a process, prlimit would set the limit of this one.
    let id = id.ok_or_else(|| failed(std::io::Error::from_raw_os_error(libc::ESRCH)))?;
    let now = getrlimit(resource);
    let limit = Rlimit { current: Some(to), maximum: now.maximum.map(|most| most.max(to)) };
    prlimit(Some(id), resource, limit).map(drop).map_err(|e| failed(e.into()))
}

/// Duplicates a descriptor of another process (pidfd_getfd, Linux 5.6). The caller needs permission to trace that
/// process.
pub fn descriptor_of(pid: u32, fd: RawFd) -> Result<OwnedFd, OsError> {
    let failed = |e| OsError::new("pidfd_getfd", format!("descriptor {fd} of process {pid}"), e);
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| {
        OsError::new("pidfd_open", pid, std::io::Error::from_raw_os_error(libc::ESRCH))
    })?;
    let process = pidfd_open(id, PidfdFlags::empty()).map_err(failed)?;
    pidfd_getfd(process, fd, PidfdGetfdFlags::empty()).map_err(failed)
}

/// Makes the kernel end this process rather than others of its cgroup, or of the system, if memory is short. A file
/// system that refuses it changes nothing.
pub fn end_first_without_memory() {
    const FILE: &str = "/proc/self/oom_score_adj";
    let inherited = std::fs::read_to_string(FILE).ok().and_then(|text| text.trim().parse().ok());
    let adjusted = inherited.unwrap_or(0_i32).saturating_add(500).min(1000);
    let _ = std::fs::write(FILE, adjusted.to_string());
}

/// Kills every process of the group that `leader` leads. The leader must be a child that has not been waited for yet,
/// so that its pid cannot have been reused.
pub fn kill_group(leader: u32) {
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
}

/// Locks all present memory, and all future memory as soon as it is touched. Prefaulted pages then stay resident and no
/// page fault occurs in a measured loop.
///
/// # Errors
/// The limit of locked memory (RLIMIT_MEMLOCK) is too low for current or future memory. Nothing is locked then, because
/// otherwise every allocation beyond the limit would fail.
pub fn lock_memory() -> Result<(), OsError> {
    use rustix::mm::{MlockAllFlags, mlockall, munlockall};
    let failed = |e| OsError::new("mlockall", "", e);
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
        .map_err(failed)?;
    let Some(limit) = getrlimit(Resource::Memlock).current else { return Ok(()) };
    if can_be_mapped(usize::try_from(limit).unwrap_or(usize::MAX)) {
        return Ok(());
    }
    munlockall().map_err(failed)?;
    Err(failed(rustix::io::Errno::AGAIN))
}

/// Whether this many bytes of memory can be mapped.
fn can_be_mapped(bytes: usize) -> bool {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    let (bytes, flags) = (bytes.max(1), MapFlags::PRIVATE | MapFlags::NORESERVE);
    let readable = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new private mapping, at an address that the kernel chooses, touches nothing that is there.
    match unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, readable, flags) } {
        // SAFETY: it is the mapping made above, to which nothing else refers.
        Ok(start) => unsafe { munmap(start, bytes) }.is_ok(),
        Err(_) => false,
    }
}

/// Raises the limit on open descriptors (RLIMIT_NOFILE) as far as is possible without privilege; returns the new limit.
pub fn raise_descriptor_limit() -> u64 {
    raise_limit(Resource::Nofile)
}

/// Raises the limit on file sizes in bytes (RLIMIT_FSIZE), which also applies to anonymous shared memory, as far as is
/// possible without privilege; returns the new limit. A call that would make a file larger than this raises SIGXFSZ,
/// and fails with EFBIG if the process handles or ignores that signal.
pub fn raise_file_size_limit() -> u64 {
    raise_limit(Resource::Fsize)
}

fn raise_limit(resource: Resource) -> u64 {
    let limit = getrlimit(resource);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // If the limit cannot be raised, it stays as it is.
    let _ = setrlimit(resource, raised);
    getrlimit(resource).current.unwrap_or(u64::MAX)
}

/// The CPU time after which the system ends each process that inherits this process's limits (RLIMIT_CPU); `None`:
/// unlimited.
pub fn cpu_time_limit() -> Option<std::time::Duration> {
    getrlimit(Resource::Cpu).current.map(std::time::Duration::from_secs)
}

/// The limit of the bytes in POSIX message queues of this user (RLIMIT_MSGQUEUE), and the maximum to which it can be
/// raised without privilege; `u64::MAX` means unlimited.
pub fn message_queue_limits() -> (u64, u64) {
    let limit = getrlimit(Resource::Msgqueue);
    (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX))
}

/// The maximum number of descriptors this process may have (RLIMIT_NOFILE). The same number limits how many descriptors
/// a user may have in flight over sockets, except for privileged users (unix(7), ETOOMANYREFS).
pub fn descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// Whether the effective user of this process is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The effective user id of this process.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}
