//! Checks whether a program's pointer is valid, so that a call fails with EFAULT, as in the kernel, instead of
//! crashing.
//!
//! A check costs one or two system calls. It is therefore made only in calls that set up or query sockets, and never
//! when messages are sent or received.

use std::ffi::c_void;

use crossway_sys::{Errno, cma};
use libc::socklen_t;

/// Fails with EFAULT unless `len` bytes are readable.
pub(super) fn readable(pointer: *const c_void, len: usize) -> Result<(), Errno> {
    cma::check_own(pointer as u64, len, false)
}

/// Fails with EFAULT unless `len` bytes are writable.
pub(super) fn writable(pointer: *mut c_void, len: usize) -> Result<(), Errno> {
    cma::check_own(pointer as u64, len, true)
}

/// Fails with EFAULT unless `len` is writable and `pointer` is writable for `bytes` bytes or, if `*len` is smaller, for
/// that many. Calls such as `getsockname` write a result and its length there.
pub(super) fn answerable(
    pointer: *mut c_void,
    len: *mut socklen_t,
    bytes: usize,
) -> Result<(), Errno> {
    writable(len.cast(), size_of::<socklen_t>())?;
    // SAFETY: readable, as just checked.
    let room = unsafe { len.read_unaligned() } as usize;
    writable(pointer, room.min(bytes))
}
