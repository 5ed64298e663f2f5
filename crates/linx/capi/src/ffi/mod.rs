//! The functions of the C interface; `linx.h` documents them.
#![allow(unsafe_code)]
#![allow(clippy::missing_safety_doc)]

mod ownership;
pub mod requests;
pub mod signals;
pub mod transfer;

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr;

use crossway_linx::{Endpoint, Error, Signal, Spid, default_dir};

use crate::buffer::Head;
use ownership::release;

const EINVAL: c_int = libc::EINVAL;

/// An endpoint with the signals that belong to it.
pub struct Linx {
    endpoint: Endpoint,
    signals: HashSet<usize>,
    /// The signals in memory shared with another endpoint, by address. Their headers are kept here, where the other
    /// program cannot write to them.
    shared: HashMap<usize, (Head, Signal)>,
    /// The endpoint to which the last signal was sent, or from which the last signal was received, whichever was later.
    /// `None` if there is none, or if sending the last signal failed.
    recent: Option<Spid>,
}

/// A signal in C: a pointer to its bytes.
type Sig = *mut u8;

fn fail(errno: c_int) -> c_int {
    // SAFETY: the C library's pointer to this thread's errno.
    unsafe { *libc::__errno_location() = errno };
    -1
}

fn failed(error: &Error) -> c_int {
    fail(error.errno())
}

fn done(outcome: Result<(), Error>) -> c_int {
    outcome.map_or_else(|error| failed(&error), |()| 0)
}

/// Returns the endpoint of a handle; `None` for NULL.
///
/// # Safety
/// `linx` is NULL, or a result of `linx_open` that was not passed to `linx_close`.
unsafe fn endpoint<'a>(linx: *mut Linx) -> Option<&'a mut Linx> {
    // SAFETY: guaranteed by the caller.
    unsafe { linx.as_mut() }
}

/// Converts a string from C; `None` for NULL and for invalid UTF-8.
///
/// # Safety
/// `string` is NULL or points to a NUL-terminated string.
unsafe fn text<'a>(string: *const c_char) -> Option<&'a str> {
    // SAFETY: guaranteed by the caller.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_str().ok()).flatten()
}

/// Opens an endpoint with a name; returns NULL and sets errno on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_open(
    name: *const c_char,
    _options: u32,
    _arg: *mut c_void,
) -> *mut Linx {
    // SAFETY: a string, as the header says.
    let Some(name) = (unsafe { text(name) }) else {
        fail(EINVAL);
        return ptr::null_mut();
    };
    match Endpoint::open(&default_dir(), name) {
        Ok(endpoint) => Box::into_raw(Box::new(Linx {
            endpoint,
            signals: HashSet::new(),
            shared: HashMap::new(),
            recent: None,
        })),
        Err(error) => {
            failed(&error);
            ptr::null_mut()
        }
    }
}

/// Closes an endpoint and frees the signals that belong to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_close(linx: *mut Linx) -> c_int {
    if linx.is_null() {
        return fail(EINVAL);
    }
    // SAFETY: made by Box::into_raw, and closed once, as the header says.
    let mut linx = unsafe { Box::from_raw(linx) };
    let shared = linx.shared.keys().copied();
    for sig in linx.signals.iter().copied().chain(shared).collect::<Vec<usize>>() {
        // SAFETY: a living signal.
        unsafe { release(&mut linx, sig as Sig) };
    }
    0
}

/// Returns a descriptor that becomes readable when a signal can be received.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_get_descriptor(linx: *mut Linx) -> c_int {
    // SAFETY: a handle, as the header says.
    let Some(linx) = (unsafe { endpoint(linx) }) else { return fail(EINVAL) };
    linx.endpoint.descriptor().map_or_else(|error| failed(&error), |fd| fd.as_raw_fd())
}
