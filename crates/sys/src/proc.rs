//! Processes: death together with the parent, ids that cannot be mistaken, killing.

use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal, setrlimit,
};

use crate::OsError;

/// Whether a descriptor is a UNIX socket, which can carry descriptors.
pub fn is_unix_socket(fd: impl AsFd) -> bool {
    rustix::net::sockopt::socket_domain(fd) == Ok(rustix::net::AddressFamily::UNIX)
}

/// How long a killed process may take to go.
const DEATH_LIMIT_S: i64 = 5;

/// Makes the child die by `SIGKILL` when the thread that starts it ends (PR_SET_PDEATHSIG): start it from a thread that
/// lives as long as the child should.
pub fn die_with_parent(command: &mut Command) {
    signal_with_parent(command, Signal::KILL);
}

/// As [`die_with_parent`], by `SIGTERM`: for programs that have something to clean up.
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

/// Gives the child a session of its own (setsid): it has no terminal, so Ctrl-C there does not reach it, and it cannot ask
/// for a password instead of failing.
pub fn own_session(command: &mut Command) {
    // SAFETY: between fork and exec only one system call is made; nothing is allocated, no lock is taken.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        });
    }
}

/// When a process started, in clock ticks after boot; `None` if there is no such process. With the pid it names a process
/// for good.
pub fn started_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the command in parentheses and may hold anything; fields are counted after its last ')'.
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Kills the process that has this pid and this start, if it still runs, and waits until it is dead. Never another one:
/// the descriptor holds the process while its start is compared.
pub fn kill_exactly(pid: u32, started: u64) {
    let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    let Ok(process) = pidfd_open(id, PidfdFlags::empty()) else { return };
    if started_ticks(pid) != Some(started) || pidfd_send_signal(&process, Signal::KILL).is_err() {
        return;
    }
    let limit = Timespec { tv_sec: DEATH_LIMIT_S, tv_nsec: 0 };
    let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit));
}

/// Asks a child to end (`SIGTERM`). It must not have been waited for yet, so that its number cannot have become somebody
/// else's.
pub fn terminate(child: u32) {
    if let Some(child) = i32::try_from(child).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(child, Signal::TERM);
    }
}

/// Kills every process of the group that `leader` leads. The leader must be a child that was not waited for yet, so that
/// its number cannot have become somebody else's.
pub fn kill_group(leader: u32) {
    if let Some(group) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
}

/// Locks all memory, present and future, as it is touched: what was prefaulted stays, so that no page fault stands in a
/// measured loop.
pub fn lock_memory() -> Result<(), OsError> {
    use rustix::mm::{MlockAllFlags, mlockall};
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
        .map_err(|e| OsError::new("mlockall", "", e))
}

/// Raises the limit of open descriptors (RLIMIT_NOFILE) as far as it goes without privilege; returns it.
pub fn raise_descriptor_limit() -> u64 {
    raise_limit(Resource::Nofile)
}

/// Raises the limit of a file's octets (RLIMIT_FSIZE), anonymous shared memory included, as far as it goes without privilege; returns it. Beyond it
/// SIGXFSZ comes, or EFBIG to who has a handler for that.
pub fn raise_file_size_limit() -> u64 {
    raise_limit(Resource::Fsize)
}

fn raise_limit(resource: Resource) -> u64 {
    let limit = getrlimit(resource);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // What cannot be raised stays as it is.
    let _ = setrlimit(resource, raised);
    getrlimit(resource).current.unwrap_or(u64::MAX)
}

/// How many descriptors this process may have (RLIMIT_NOFILE). As many of a user's may be on their way between sockets, unless he is privileged
/// (unix(7), ETOOMANYREFS).
pub fn descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// Whether this process acts as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The user in whose name this process acts.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}
