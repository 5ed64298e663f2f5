//! Checks whether a program's pointer is valid, like the kernel does: EFAULT instead of a fault.
//!
//! A check costs one or two system calls. It is therefore made only in calls that involve tipcd anyway, never in
//! sending or receiving.

use std::ffi::c_void;

use crossway_sys::{Errno, cma};
use libc::socklen_t;

/// EFAULT unless `len` bytes are readable.
pub(super) fn readable(pointer: *const c_void, len: usize) -> Result<(), Errno> {
    cma::check_own(pointer as u64, len, false)
}

/// EFAULT unless `len` bytes are writable.
pub(super) fn writable(pointer: *mut c_void, len: usize) -> Result<(), Errno> {
    cma::check_own(pointer as u64, len, true)
}

/// EFAULT unless there is room for a result and its length, as written by `getsockname` and `getsockopt`.
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
