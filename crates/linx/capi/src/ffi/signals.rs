//! Allocates and frees signals, and reads and changes their headers.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use crossway_linx::Signal;

use super::ownership::{grow, head, release, to_c};
use super::{EINVAL, Linx, Sig, done, endpoint, fail, failed};
use crate::buffer::{END_MARK, Head};

/// Allocates a signal with a number; `size` is in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_alloc(linx: *mut Linx, size: u32, sig_no: u32) -> Sig {
    // SAFETY: a handle, as the header says.
    let Some(linx) = (unsafe { endpoint(linx) }) else {
        fail(EINVAL);
        return ptr::null_mut();
    };
    let Some(payload) = (size as usize).checked_sub(4) else {
        fail(libc::EMSGSIZE);
        return ptr::null_mut();
    };
    match Signal::new(sig_no, payload) {
        Ok(signal) => to_c(linx, signal),
        Err(error) => {
            failed(&error);
            ptr::null_mut()
        }
    }
}

/// Allocates a signal in memory shared with the endpoint to which `linx` last sent a signal, or from which it last
/// received one, because C programs do not specify the receiver when they allocate a signal. Without such memory,
/// allocates an ordinary signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_s_alloc(linx: *mut Linx, size: u32, sig_no: u32, _flags: u32) -> Sig {
    // SAFETY: a handle, as the header says.
    let shared = unsafe { endpoint(linx) }.and_then(|linx| {
        let payload = (size as usize).checked_sub(4)?;
        let signal = linx.endpoint.alloc_for(sig_no, payload, linx.recent?).ok()?;
        Some(to_c(linx, signal))
    });
    // SAFETY: as above.
    shared.unwrap_or_else(|| unsafe { linx_alloc(linx, size, sig_no) })
}

/// Frees a signal and sets `*sig` to NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_free_buf(linx: *mut Linx, sig: *mut Sig) -> c_int {
    // SAFETY: a handle and the address of a signal's pointer, as the header says.
    unsafe {
        match (endpoint(linx), sig.as_mut()) {
            (Some(linx), Some(place)) if !place.is_null() => {
                release(linx, *place);
                *place = ptr::null_mut();
                0
            }
            _ => fail(EINVAL),
        }
    }
}

/// Applies a function to a signal's header; returns `None` if the handle or the signal is NULL.
///
/// # Safety
/// The handle and the signal meet the requirements of `linx.h`.
unsafe fn with_head<R>(
    linx: *mut Linx,
    sig: *mut Sig,
    act: impl FnOnce(&mut Head, Sig) -> R,
) -> Option<R> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let linx = endpoint(linx)?;
        let sig = *sig.as_ref()?;
        (!sig.is_null()).then(|| act(head(linx, sig), sig))
    }
}

/// Returns the sender of a received signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_sender(linx: *mut Linx, sig: *mut Sig) -> u32 {
    // SAFETY: as the header says.
    unsafe { with_head(linx, sig, |head, _| head.sender) }.unwrap_or_else(|| {
        fail(EINVAL);
        0
    })
}

/// Returns the size of a signal in bytes, including its number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_sigsize(linx: *mut Linx, sig: *mut Sig) -> u32 {
    // SAFETY: as the header says.
    unsafe { with_head(linx, sig, |head, _| head.size) }.unwrap_or_else(|| fail(EINVAL) as u32)
}

/// Changes the size of a signal. One that outgrows the size with which it was allocated moves, and `*sig` with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_set_sigsize(linx: *mut Linx, sig: *mut Sig, sigsize: u32) -> c_int {
    // SAFETY: a handle and the address of a signal's pointer, as the header says.
    unsafe {
        let (Some(linx), Some(place)) = (endpoint(linx), sig.as_mut()) else { return fail(EINVAL) };
        if place.is_null() {
            return fail(EINVAL);
        }
        let about = head(linx, *place);
        if sigsize < 4 {
            return fail(libc::EMSGSIZE);
        }
        if sigsize <= about.room {
            about.size = sigsize;
            // Within the room, or the byte after it.
            place.add(sigsize as usize).write(END_MARK);
            return 0;
        }
        done(grow(linx, place, sigsize))
    }
}

/// Reads an attribute of a signal; attribute 1 tells whether the signal was sent out of band.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_sigattr(
    linx: *const Linx,
    sig: *const Sig,
    attr: u32,
    value: *mut *mut c_void,
) -> c_int {
    // SAFETY: as the header says; nothing is changed through these pointers.
    let oob = unsafe { with_head(linx.cast_mut(), sig.cast_mut(), |head, _| head.out_of_band) };
    match (oob, NonNull::new(value)) {
        (Some(oob), Some(value)) if attr == 1 => {
            // One byte, as in liblinx: programs pass the address of a variable of any type. All its bits are set for a
            // signal that was not sent out of band.
            let attribute = if oob == 0 { u8::MAX } else { oob as u8 };
            // SAFETY: can be written to, as the header says.
            unsafe { value.cast::<u8>().write(attribute) };
            0
        }
        _ => fail(EINVAL),
    }
}
