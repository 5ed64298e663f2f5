//! Cross-memory attach (`process_vm_readv(2)`): reading another process's memory in one copy.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use crate::error::last_errno;

/// Reads each of `pieces`, given as an address in process `pid` and the buffer to fill, and returns the total number of
/// bytes read. The total is less than requested if the process has nothing mapped at the remaining addresses.
///
/// Errors: `ESRCH` no such process; `EPERM` no permission to trace it (see [`let_others_read`]); `EFAULT` nothing is
/// mapped at the first address.
#[inline]
pub fn read<const N: usize>(pid: u32, pieces: [(u64, &mut [u8]); N]) -> Result<usize, Errno> {
    let remote: [libc::iovec; N] = std::array::from_fn(|i| libc::iovec {
        iov_base: pieces[i].0 as *mut libc::c_void,
        iov_len: pieces[i].1.len(),
    });
    let local = pieces
        .map(|(_, buf)| libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() });
    let pid = libc::pid_t::try_from(pid).map_err(|_| Errno::SRCH)?;
    // SAFETY: the local vectors describe buffers that are borrowed exclusively until we return; the remote ones
    // are addresses in another process, which the kernel checks; both arrays outlive the call.
    let read = unsafe {
        libc::process_vm_readv(
            pid,
            local.as_ptr(),
            N as libc::c_ulong,
            remote.as_ptr(),
            N as libc::c_ulong,
            0,
        )
    };
    usize::try_from(read).map_err(|_| last_errno())
}

/// The largest range, in bytes, that [`check_own`] can check in one call.
pub const MAX_CHECKED_BYTES: usize = 256;

/// Checks that `len` bytes of this process's own memory, at most [`MAX_CHECKED_BYTES`], are readable. If `written` is
/// set, also checks that they are writable, by writing their current content back. Succeeds without a check where the
/// system forbids process_vm_readv or process_vm_writev.
///
/// Errors: `EFAULT` if the memory does not pass the check.
pub fn check_own(address: u64, len: usize, written: bool) -> Result<(), Errno> {
    let mut bytes = [0; MAX_CHECKED_BYTES];
    let bytes = &mut bytes[..len.min(MAX_CHECKED_BYTES)];
    if bytes.is_empty() {
        return Ok(());
    }
    let whole = bytes.len();
    let outcome = match read(std::process::id(), [(address, bytes)]) {
        Ok(_) if written => write_to(std::process::id(), address, bytes),
        outcome => outcome,
    };
    match outcome {
        Ok(count) if count == whole => Ok(()),
        Ok(_) | Err(Errno::FAULT) => Err(Errno::FAULT),
        Err(_) => Ok(()),
    }
}

/// Writes to the memory of another process than this one; `thread` is one of its threads. Returns the number of bytes written.
///
/// Errors: as for [`read`]; `EINVAL` if it is this process.
pub fn write(thread: u32, address: u64, bytes: &[u8]) -> Result<usize, Errno> {
    let is_own = std::path::Path::new(&format!("/proc/self/task/{thread}")).exists();
    if is_own { Err(Errno::INVAL) } else { write_to(thread, address, bytes) }
}

fn write_to(pid: u32, address: u64, bytes: &[u8]) -> Result<usize, Errno> {
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
    let pid = libc::pid_t::try_from(pid).map_err(|_| Errno::SRCH)?;
    // SAFETY: the local vector describes bytes that are borrowed until we return and are only read; the remote one is
    // an address in another process, or one in this process where the kernel writes the bytes that it already holds
    // (`check_own`).
    let written =
        unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(written).map_err(|_| last_errno())
}

/// The Yama module's policy (`kernel.yama.ptrace_scope`); `None` when the kernel has no Yama.
pub fn yama_scope() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?.trim().parse().ok()
}

/// Lets processes of the same user read this process's memory where Yama would allow that only to its ancestors
/// (`ptrace_scope` 1). Does nothing where no permission is needed.
///
/// Permits any process, because PR_SET_PTRACER can permit only one or all, and there may be several peers. The kernel
/// still checks user and dumpability.
pub fn let_others_read() {
    if yama_scope() == Some(1) {
        // A refusal becomes visible when the peer reads.
        let _ = rustix::process::set_ptracer(rustix::process::PTracer::Any);
    }
}

/// Tests whether cross-memory attach works on this machine: a child reads this process's memory, as an unrelated
/// process would. `EPERM`: not permitted; `ENOSYS`: the kernel does not support it.
pub fn try_here() -> Result<(), Errno> {
    static TRIED: AtomicU64 = AtomicU64::new(0);
    const WORD: u64 = 0x6372_6f73_7377_6179;
    TRIED.store(WORD, Ordering::SeqCst);
    let_others_read();
    let parent = std::process::id();
    let address = (&raw const TRIED) as u64;
    // SAFETY: the child calls process_vm_readv and _exit only, which are safe after a fork of a process with threads.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(last_errno());
    }
    if child == 0 {
        let mut word = [0_u8; 8];
        let code = match read(parent, [(address, &mut word)]) {
            Ok(8) if u64::from_ne_bytes(word) == WORD => 0,
            Ok(_) => Errno::FAULT.raw_os_error(),
            Err(errno) => errno.raw_os_error(),
        };
        // SAFETY: ends the child immediately without running any of the parent's code.
        unsafe { libc::_exit(code) };
    }
    crate::proc::outcome_of(child)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_from_their_addresses() {
        let (a, b) = ([1_u8; 4], [2_u8; 8]);
        let (mut x, mut y) = ([0; 4], [0; 8]);
        let pieces = [(a.as_ptr() as u64, &mut x[..]), (b.as_ptr() as u64, &mut y[..])];
        match read(std::process::id(), pieces) {
            Ok(n) => assert_eq!(n, 12),
            Err(errno) => {
                eprintln!("SKIP process_vm_readv: {errno}; allow it (CAP_SYS_PTRACE)");
                return;
            }
        }
        assert_eq!((x, y), (a, b));
    }

    #[test]
    fn a_process_that_is_not_there_and_an_address_that_is_not_are_told_apart() {
        if let Err(errno) = try_here() {
            eprintln!("SKIP process_vm_readv: {errno}; allow it (CAP_SYS_PTRACE)");
            return;
        }
        let mut buf = [0; 8];
        assert_eq!(read(std::process::id(), [(8, &mut buf)]), Err(Errno::FAULT));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(read(child.id(), [(8, &mut buf)]), Err(Errno::SRCH));
        assert_eq!(read(u32::MAX, [(8, &mut buf)]), Err(Errno::SRCH));
    }

    #[test]
    fn own_memory_is_distinguished_from_what_is_not_there() {
        let mut word = 7_u64;
        let address = (&raw mut word) as u64;
        assert_eq!(check_own(address, 8, false), Ok(()));
        assert_eq!(check_own(address, 8, true), Ok(()));
        assert_eq!(word, 7);
        for written in [false, true] {
            assert_eq!(check_own(8, 8, written), Err(Errno::FAULT));
            assert_eq!(check_own(8, 0, written), Ok(()));
        }
        // Constants are readable but not writable.
        let constant = b"constant".as_ptr() as u64;
        assert_eq!(check_own(constant, 8, false), Ok(()));
        assert_eq!(check_own(constant, 8, true), Err(Errno::FAULT));
    }
}
