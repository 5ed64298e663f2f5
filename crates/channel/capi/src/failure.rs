//! How a call fails: it returns a negative errno and leaves the reason as text for `cchannel_error`.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};

use crossway_channel::Error;
use crossway_sys::Errno;

thread_local! {
    static WHY: RefCell<Cow<'static, CStr>> = const { RefCell::new(Cow::Borrowed(c"")) };
}

pub(crate) fn negative(errno: Errno) -> c_int {
    -errno.raw_os_error()
}

pub(crate) fn failed(errno: Errno, why: impl std::fmt::Display) -> c_int {
    let text = CString::new(why.to_string().replace('\0', " ")).unwrap_or_default();
    WHY.set(Cow::Owned(text));
    negative(errno)
}

/// Does the same as [`failed`], but for a constant reason and without allocating memory: a program that polls may make
/// many calls that fail.
pub(crate) fn failed_as_usual(errno: Errno, why: &'static CStr) -> c_int {
    WHY.set(Cow::Borrowed(why));
    negative(errno)
}

pub(crate) fn no_channel() -> c_int {
    failed_as_usual(Errno::BADF, c"the channel is NULL")
}

pub(crate) fn open_failed(error: &Error) -> c_int {
    let errno = match error {
        Error::Name { .. } | Error::Policy(_) | Error::Network(_) => Errno::INVAL,
        Error::NotHere { .. } => Errno::ADDRNOTAVAIL,
        Error::Unprotected { .. } | Error::Disagreed { .. } => Errno::ACCESS,
        Error::NobodyListens { .. } => Errno::CONNREFUSED,
        Error::NobodyConnected { .. }
        | Error::NobodyTookOver { .. }
        | Error::NoAnswer { .. }
        | Error::HandOver(_) => Errno::TIMEDOUT,
        Error::Refused { .. } => Errno::ACCESS,
        Error::NotLocal { .. } | Error::CannotFollow { .. } => Errno::XDEV,
        Error::Open(_) | Error::Os(_) => Errno::IO,
    };
    failed(errno, error)
}

/// Returns the reason for the calling thread's last failure. The text is valid until the thread's next failure.
pub(crate) fn reason() -> *const c_char {
    WHY.with_borrow(|why| why.as_ptr())
}
