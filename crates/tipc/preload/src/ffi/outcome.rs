//! Outcomes as C has them: -1 and errno, or a value and errno as it was.

use std::ffi::c_int;

use crossway_sys::Errno;
use libc::ssize_t;

pub(super) fn errno() -> c_int {
    // SAFETY: points to the thread's errno as long as the thread lives.
    unsafe { *libc::__errno_location() }
}

pub(super) fn set_errno(errno: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno }
}

/// Runs `what` and gives its outcome to C.
pub(super) fn number(what: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    let before = errno();
    match what() {
        Ok(value) => {
            set_errno(before);
            value
        }
        Err(errno) => {
            set_errno(errno.raw_os_error());
            -1
        }
    }
}

/// As [`number`], for calls that return no more than that they worked.
pub(super) fn done(what: impl FnOnce() -> Result<(), Errno>) -> c_int {
    number(|| what().map(|()| 0))
}

/// As [`number`], for calls that return a count.
pub(super) fn count(what: impl FnOnce() -> Result<usize, Errno>) -> ssize_t {
    let before = errno();
    match what() {
        Ok(value) => {
            set_errno(before);
            ssize_t::try_from(value).unwrap_or(ssize_t::MAX)
        }
        Err(errno) => {
            set_errno(errno.raw_os_error());
            -1
        }
    }
}
