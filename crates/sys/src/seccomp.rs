//! Seccomp filters: whether one is active, and one that makes a program believe `ptrace` cannot transfer extended CPU
//! state.

use rustix::io::Errno;

/// `PTRACE_GETREGSET`, from the kernel's `include/uapi/linux/ptrace.h`.
const PTRACE_GETREGSET: u32 = 0x4204;
/// `NT_X86_XSTATE`, from the kernel's `include/uapi/linux/elf.h`.
const NT_X86_XSTATE: u32 = 0x202;

// Offsets into `struct seccomp_data` (seccomp(2)): the call's number, then the low halves of arguments 0 and 2 on a
// little-endian machine.
const NUMBER: u32 = 0;
const ARGUMENT_0: u32 = 16;
const ARGUMENT_2: u32 = 32;

/// Makes `ptrace(PTRACE_GETREGSET, .., NT_X86_XSTATE, ..)` fail with `EIO` in the calling thread and in everything it
/// starts, irrevocably. A program that asks for the extended state (AVX and beyond) then falls back to the legacy
/// state, as on a CPU that has nothing else.
///
/// Only makes system calls and allocates nothing: it may run between fork and exec.
///
/// # Errors
/// The kernel has no seccomp filters (CONFIG_SECCOMP_FILTER).
pub fn hide_extended_state() -> Result<(), Errno> {
    let load = |offset| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    // Each test that does not match jumps to the "allow" at the end.
    let mut filter = [
        load(NUMBER),
        unless_equal(libc::SYS_ptrace as u32, 5),
        load(ARGUMENT_0),
        unless_equal(PTRACE_GETREGSET, 3),
        load(ARGUMENT_2),
        unless_equal(NT_X86_XSTATE, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EIO as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    rustix::thread::set_no_new_privs(true)?;
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: `program` points at `filter`, whose length it states; both outlive the call, and the kernel copies them.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program, 0, 0) != 0
    };
    if failed {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    } else {
        Ok(())
    }
}

/// Whether a filter restricts the system calls of this process, as `/proc/self/status` says.
pub fn is_filtered() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().filter_map(|line| line.strip_prefix("Seccomp:")).any(|mode| mode.trim() == "2")
}

/// A statement of a filter in the classic BPF, for processes or for sockets.
pub(crate) fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Jumps over the next `skip` statements unless the loaded word is `k`.
pub(crate) fn unless_equal(k: u32, skip: u8) -> libc::sock_filter {
    let code = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    libc::sock_filter { code: code as u16, jt: 0, jf: skip, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The errno of a request about a process that is not traced.
    fn errno_of(request: u32, kind: u32) -> i32 {
        let mut empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: this thread does not trace process 1, so the kernel refuses before it touches the vector, which is
        // valid.
        let result = unsafe { libc::ptrace(request, 1, kind as usize, &raw mut empty) };
        assert_eq!(result, -1);
        std::io::Error::last_os_error().raw_os_error().unwrap()
    }

    #[test]
    fn only_the_question_for_extended_state_is_refused() {
        const NT_PRSTATUS: u32 = 1;
        const PTRACE_SETREGSET: u32 = 0x4205;
        std::thread::spawn(|| {
            assert_eq!(errno_of(PTRACE_GETREGSET, NT_X86_XSTATE), libc::ESRCH);
            hide_extended_state().unwrap();
            assert_eq!(errno_of(PTRACE_GETREGSET, NT_X86_XSTATE), libc::EIO);
            assert_eq!(errno_of(PTRACE_GETREGSET, NT_PRSTATUS), libc::ESRCH);
            assert_eq!(errno_of(PTRACE_SETREGSET, NT_X86_XSTATE), libc::ESRCH);
        })
        .join()
        .unwrap();
        assert_eq!(
            errno_of(PTRACE_GETREGSET, NT_X86_XSTATE),
            libc::ESRCH,
            "other threads are not filtered"
        );
    }
}
