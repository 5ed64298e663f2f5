//! System calls of other processes that the kernel passes on to this one (seccomp user notification): a filter stops a call,
//! and this process answers it, or lets it go on.
//!
//! The filter never decides what a program may do. It stops a few calls by their numbers, and a call that the supervisor does
//! not understand goes on as if there were no filter.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::cma;
use crate::error::last_errno;

/// The numbers of calls.
pub use libc::{
    SYS_accept, SYS_accept4, SYS_connect, SYS_getpeername, SYS_getsockname, SYS_getsockopt,
    SYS_listen, SYS_setsockopt,
};

// Offsets into `struct seccomp_data` (seccomp(2)): the call's number, the architecture, and the low half of the first argument
// on a little-endian machine.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// This machine's AUDIT_ARCH (linux/audit.h). Calls for other architectures have other numbers.
const OWN_ARCHITECTURE: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xc000_003e)
} else if cfg!(target_arch = "aarch64") {
    Some(0xc000_00b7)
} else if cfg!(target_arch = "riscv64") {
    Some(0xc000_00f3)
} else if cfg!(target_arch = "arm") {
    Some(0x4000_0028)
} else {
    None
};

/// The value that an argument, counted from 0, must have.
pub type Condition = (u32, u32);

/// A call to be stopped: each one with this number for which all conditions of one of `any` are met.
#[derive(Clone, Copy, Debug)]
pub struct Trap {
    /// Number of the system call.
    pub call: libc::c_long,
    /// Alternatives; an empty one is always met.
    pub any: &'static [&'static [Condition]],
}

/// Receives the calls that the filter of the program stops.
#[derive(Debug)]
pub struct Supervisor(OwnedFd);

/// A call that has been stopped. Its thread sleeps until it is answered, and only a deadly signal wakes it before.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    id: u64,
    /// The thread that makes it.
    pub thread: u32,
    /// Number of the system call.
    pub number: libc::c_long,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// Makes a filter apply to the calling thread and everything that it starts, irrevocably, and returns the supervisor of these
/// calls. Programs that gain privileges when they are started gain none then, unless this thread may make filters without
/// that (CAP_SYS_ADMIN).
///
/// # Errors
/// ENOSYS: not possible on this processor. EINVAL: the kernel is older than 5.19. EBUSY: another supervisor exists.
pub fn supervise(traps: &[Trap]) -> Result<Supervisor, Errno> {
    let mut filter = filter(traps, OWN_ARCHITECTURE.ok_or(Errno::NOSYS)?);
    let len = u16::try_from(filter.len()).map_err(|_| Errno::INVAL)?;
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    let flags =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let install = || {
        // SAFETY: `program` points at `filter`, whose length it states; both outlive the call, and the kernel copies them.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const program,
            )
        };
        if fd < 0 { Err(last_errno()) } else { Ok(fd as RawFd) }
    };
    let fd = match install() {
        Err(Errno::ACCESS) => {
            rustix::thread::set_no_new_privs(true)?;
            install()?
        }
        outcome => outcome?,
    };
    // SAFETY: the call has made this descriptor, and nothing else owns it.
    Ok(Supervisor(unsafe { OwnedFd::from_raw_fd(fd) }))
}

fn filter(traps: &[Trap], architecture: u32) -> Vec<libc::sock_filter> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let load = |offset| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    let unless_equal = |k: u32, skip: usize| {
        let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        libc::sock_filter { code, jt: 0, jf: u8::try_from(skip).expect("few conditions"), k }
    };
    let returns = |what| statement(libc::BPF_RET | libc::BPF_K, what);
    let mut filter =
        vec![load(ARCHITECTURE), unless_equal(architecture, 0), returns(libc::SECCOMP_RET_ALLOW)];
    // An equal architecture skips the statement that returns.
    (filter[1].jt, filter[1].jf) = (1, 0);
    for trap in traps {
        let mut block = Vec::new();
        for conditions in trap.any {
            let len = conditions.len() * 2 + 1;
            for (n, (argument, value)) in conditions.iter().enumerate() {
                block.push(load(ARGUMENTS + 8 * argument));
                block.push(unless_equal(*value, len - 2 * (n + 1)));
            }
            block.push(returns(libc::SECCOMP_RET_USER_NOTIF));
        }
        block.push(returns(libc::SECCOMP_RET_ALLOW));
        filter.push(load(NUMBER));
        filter.push(unless_equal(trap.call as u32, block.len()));
        filter.extend(block);
    }
    filter.push(returns(libc::SECCOMP_RET_ALLOW));
    filter
}

impl AsFd for Supervisor {
    /// Readable when a call has been stopped; hung up when no process has the filter any more.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Supervisor {
    /// A supervisor that another process has made.
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl Supervisor {
    /// The descriptor, for another process that goes on.
    pub fn into_descriptor(self) -> OwnedFd {
        self.0
    }

    /// Returns the next call that has been stopped, waiting for it; `None` if its thread was killed meanwhile.
    ///
    /// # Errors
    /// [`Errno`] of ioctl.
    pub fn receive(&self) -> Result<Option<Call>, Errno> {
        // SAFETY: plain data, for which all zeros is a valid value, and which the kernel demands.
        let mut raw: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        match self.control(libc::SECCOMP_IOCTL_NOTIF_RECV, &mut raw) {
            Ok(_) => Ok(Some(Call {
                id: raw.id,
                thread: raw.pid,
                number: raw.data.nr.into(),
                arguments: raw.data.args,
            })),
            Err(Errno::NOENT | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn control<T>(&self, request: libc::Ioctl, argument: &mut T) -> Result<libc::c_int, Errno> {
        // SAFETY: every request is passed the structure that it expects, which outlives the call.
        let outcome = unsafe { libc::ioctl(self.0.as_raw_fd(), request, argument) };
        if outcome < 0 { Err(last_errno()) } else { Ok(outcome) }
    }

    /// Lets the call go on as if there were no filter.
    pub fn proceed(&self, call: &Call) {
        self.respond(call, 0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32);
    }

    /// Ends the call with this result.
    pub fn answer(&self, call: &Call, result: Result<i64, Errno>) {
        match result {
            Ok(value) => self.respond(call, value, 0, 0),
            Err(errno) => self.respond(call, 0, -errno.raw_os_error(), 0),
        }
    }

    fn respond(&self, call: &Call, val: i64, error: i32, flags: u32) {
        let mut raw = libc::seccomp_notif_resp { id: call.id, val, error, flags };
        // An error means that the thread was killed.
        let _ = self.control(libc::SECCOMP_IOCTL_NOTIF_SEND, &mut raw);
    }

    /// Gives the calling process a copy of a descriptor: as number `at`, in the place of what is there, or as the lowest free
    /// number. Returns the number.
    ///
    /// # Errors
    /// [`Errno`] of ioctl: EMFILE if the process has no free number, ENOENT if it was killed.
    pub fn give(
        &self,
        call: &Call,
        fd: impl AsFd,
        at: Option<RawFd>,
        closes_on_exec: bool,
    ) -> Result<RawFd, Errno> {
        let mut raw = libc::seccomp_notif_addfd {
            id: call.id,
            flags: if at.is_some() { libc::SECCOMP_ADDFD_FLAG_SETFD as u32 } else { 0 },
            srcfd: fd.as_fd().as_raw_fd().unsigned_abs(),
            newfd: at.unwrap_or(0).unsigned_abs(),
            newfd_flags: if closes_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
        };
        self.control(libc::SECCOMP_IOCTL_NOTIF_ADDFD, &mut raw)
    }

    fn is_stopped(&self, call: &Call) -> bool {
        self.control(libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &mut { call.id }).is_ok()
    }

    /// Reads memory of the calling process.
    ///
    /// # Errors
    /// EFAULT if not all of it is readable.
    pub fn read(&self, call: &Call, address: u64, to: &mut [u8]) -> Result<(), Errno> {
        let wanted = to.len();
        if wanted == 0 || cma::read(call.thread, [(address, to)])? == wanted {
            // What was read belongs to the caller if it still sleeps.
            return if self.is_stopped(call) { Ok(()) } else { Err(Errno::SRCH) };
        }
        Err(Errno::FAULT)
    }

    /// Writes to memory of the calling process.
    ///
    /// # Errors
    /// EFAULT if not all of it is writable.
    pub fn write(&self, call: &Call, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        if !self.is_stopped(call) {
            return Err(Errno::SRCH);
        }
        if bytes.is_empty() || cma::write(call.thread, address, bytes)? == bytes.len() {
            return Ok(());
        }
        Err(Errno::FAULT)
    }

    /// A copy of a descriptor of the calling process.
    ///
    /// # Errors
    /// EBADF if it is none; EPERM if this process may not trace the other one.
    pub fn descriptor(&self, call: &Call, fd: RawFd) -> Result<OwnedFd, Errno> {
        /// PIDFD_THREAD, since Linux 6.9.
        const OF_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);
        let id = |pid: u32| i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH);
        let process = match pidfd_open(id(call.thread)?, OF_THREAD) {
            Err(Errno::INVAL) => pidfd_open(id(process_of(call.thread)?)?, PidfdFlags::empty())?,
            outcome => outcome?,
        };
        let copy = pidfd_getfd(process, fd, PidfdGetfdFlags::empty())?;
        if self.is_stopped(call) { Ok(copy) } else { Err(Errno::SRCH) }
    }
}

/// The process to which a thread belongs.
///
/// # Errors
/// ESRCH if there is no such thread.
pub fn process_of(thread: u32) -> Result<u32, Errno> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status"));
    let status = status.map_err(|_| Errno::SRCH)?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    line.and_then(|pid| pid.trim().parse().ok()).ok_or(Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVEL: u32 = 6;

    /// Runs a filter as the kernel does.
    fn outcome(
        filter: &[libc::sock_filter],
        number: u32,
        architecture: u32,
        args: [u32; 6],
    ) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let now = filter[at];
            at += 1;
            match u32::from(now.code) {
                code if code == libc::BPF_RET | libc::BPF_K => return now.k,
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    loaded = match now.k {
                        NUMBER => number,
                        ARCHITECTURE => architecture,
                        offset => args[((offset - ARGUMENTS) / 8) as usize],
                    };
                }
                _ => at += usize::from(if loaded == now.k { now.jt } else { now.jf }),
            }
        }
    }

    #[test]
    fn a_filter_stops_only_what_it_is_told() {
        let traps = [
            Trap { call: SYS_connect, any: &[&[]] },
            Trap { call: SYS_getsockopt, any: &[&[(1, LEVEL)], &[(1, 1), (2, 38)]] },
        ];
        let filter = filter(&traps, 7);
        let stops = |number: libc::c_long, architecture, args| {
            outcome(&filter, number as u32, architecture, args) == libc::SECCOMP_RET_USER_NOTIF
        };
        assert!(stops(SYS_connect, 7, [9; 6]) && !stops(SYS_connect, 8, [9; 6]));
        assert!(!stops(SYS_listen, 7, [0; 6]));
        assert!(stops(SYS_getsockopt, 7, [0, LEVEL, 5, 0, 0, 0]));
        assert!(stops(SYS_getsockopt, 7, [0, 1, 38, 0, 0, 0]));
        assert!(!stops(SYS_getsockopt, 7, [0, 1, 39, 0, 0, 0]));
        assert!(!stops(SYS_getsockopt, 7, [0, 2, 38, 0, 0, 0]));
    }
}
