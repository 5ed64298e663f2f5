//! Converts results to C's form: -1 with errno set, or a value with errno unchanged.

use std::ffi::c_int;

use crossway_sys::Errno;
pub(super) use crossway_sys::real::{errno, set_errno};
use libc::ssize_t;

/// Runs `what` and converts its result to C's form.
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

/// Like [`number`], for calls that only report success.
pub(super) fn done(what: impl FnOnce() -> Result<(), Errno>) -> c_int {
    number(|| what().map(|()| 0))
}

/// Like [`number`], for calls that return a count.
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
