//! Whether a pointer of the program's leads anywhere, as the kernel would find out: EFAULT instead of a fault.
//!
//! One or two system calls a look: for calls that ask tipcd anyway, never for those that send or receive.

use std::ffi::c_void;

use crossway_sys::{Errno, cma};
use libc::socklen_t;

/// EFAULT unless so many octets can be read.
pub(super) fn readable(pointer: *const c_void, len: usize) -> Result<(), Errno> {
    cma::check_own(pointer as u64, len, false)
}

/// EFAULT unless so many octets can be written.
pub(super) fn writable(pointer: *mut c_void, len: usize) -> Result<(), Errno> {
    cma::check_own(pointer as u64, len, true)
}

/// EFAULT unless there is room for octets and their number, as `getsockname` and `getsockopt` fill them in.
pub(super) fn answerable(
    pointer: *mut c_void,
    len: *mut socklen_t,
    octets: usize,
) -> Result<(), Errno> {
    writable(len.cast(), size_of::<socklen_t>())?;
    // SAFETY: it can be read, as was just seen.
    let room = unsafe { len.read_unaligned() } as usize;
    writable(pointer, room.min(octets))
}
