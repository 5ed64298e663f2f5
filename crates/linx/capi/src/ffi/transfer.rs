//! Sends and receives signals.

use std::ffi::c_int;
use std::ptr;
use std::time::{Duration, Instant};

use crossway_linx::signal::NEW_LINK;
use crossway_linx::{Endpoint, Error, Signal, Spid};

use super::ownership::{take, to_c};
use super::{EINVAL, Linx, Sig, done, endpoint, fail, failed};
use crate::buffer::filter;

/// Takes ownership of a signal and calls a function that sends it to the endpoint with a given number.
///
/// # Safety
/// The handle and the signal meet the requirements of `linx.h`.
unsafe fn sending(
    linx: *mut Linx,
    sig: *mut Sig,
    to: u32,
    act: impl FnOnce(&mut Endpoint, Signal, Spid) -> Result<(), Error>,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let Some(linx) = endpoint(linx) else { return fail(EINVAL) };
        match (take(linx, sig), Spid::new(to)) {
            (Ok(Some(signal)), Some(to)) => {
                let outcome = act(&mut linx.endpoint, signal, to);
                linx.recent = outcome.is_ok().then_some(to);
                done(outcome)
            }
            (Err(error), _) => failed(&error),
            _ => fail(EINVAL),
        }
    }
}

/// Sends a signal to an endpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_send(linx: *mut Linx, sig: *mut Sig, to: u32) -> c_int {
    // SAFETY: as the header says.
    unsafe { sending(linx, sig, to, |endpoint, signal, to| endpoint.send(signal, to)) }
}

/// Sends a signal that appears to come from another endpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_send_w_s(
    linx: *mut Linx,
    sig: *mut Sig,
    from: u32,
    to: u32,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        sending(linx, sig, to, |endpoint, signal, to| {
            let from = Spid::new(from).ok_or(Error::Unknown { number: from })?;
            endpoint.send_as(signal, from, to)
        })
    }
}

/// Sends a signal with options, such as out of band.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_send_w_opt(
    linx: *mut Linx,
    sig: *mut Sig,
    from: u32,
    to: u32,
    taglist: *mut i32,
) -> c_int {
    let (mut out_of_band, mut at) = (false, 0);
    // SAFETY: pairs up to an end, as the header says.
    unsafe {
        while !taglist.is_null() && *taglist.add(at) != 0 {
            if *taglist.add(at) != 1 {
                return fail(EINVAL);
            }
            out_of_band = *taglist.add(at + 1) != 0;
            at += 2;
        }
    }
    // SAFETY: as the header says.
    unsafe {
        sending(linx, sig, to, |endpoint, signal, to| match Spid::new(from) {
            Some(from) if from != endpoint.spid() && !out_of_band => {
                endpoint.send_as(signal, from, to)
            }
            Some(from) if from != endpoint.spid() => Err(Error::NotPermitted(
                "an out-of-band signal can only be sent in the endpoint's own name".to_owned(),
            )),
            _ if out_of_band => endpoint.send_out_of_band(signal, to),
            _ => endpoint.send(signal, to),
        })
    }
}

/// Receives a signal.
///
/// # Safety
/// The handle, the signal's pointer and the filter meet the requirements of `linx.h`.
unsafe fn receiving(
    linx: *mut Linx,
    sig: *mut Sig,
    tmo: Option<u32>,
    sig_sel: *const u32,
    from: Option<Spid>,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (Some(linx), Some(place)) = (endpoint(linx), sig.as_mut()) else { return fail(EINVAL) };
        *place = ptr::null_mut();
        // Without a filter, any signal is received.
        let (count, numbers) = match sig_sel.as_ref() {
            None => (0, &[][..]),
            Some(count) => {
                let count = *count as i32;
                let len = count.unsigned_abs() as usize;
                (count, std::slice::from_raw_parts(sig_sel.add(1), len))
            }
        };
        let until = tmo.map(|ms| Instant::now() + Duration::from_millis(ms.into()));
        match linx.endpoint.receive(&filter(count, numbers, from), until) {
            Ok(Some(signal)) => {
                let signal = shorten_token(signal);
                let size = signal.size() as c_int;
                linx.recent = signal.sender();
                *place = to_c(linx, signal);
                size
            }
            Ok(None) => 0,
            Err(error) => failed(&error),
        }
    }
}

/// Shortens the token in the signal for a new link, because link tokens have 32 bits in C.
fn shorten_token(signal: Signal) -> Signal {
    match signal.payload().split_first_chunk::<8>() {
        Some((token, name)) if signal.number() == NEW_LINK => {
            let mut payload = (u64::from_ne_bytes(*token) as u32).to_ne_bytes().to_vec();
            payload.extend_from_slice(name);
            Signal::with_payload(NEW_LINK, &payload).unwrap_or(signal)
        }
        _ => signal,
    }
}

/// Receives a signal, waiting as long as necessary.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_receive(
    linx: *mut Linx,
    sig: *mut Sig,
    sig_sel: *const u32,
) -> c_int {
    // SAFETY: as the header says.
    unsafe { receiving(linx, sig, None, sig_sel, None) }
}

/// Receives a signal, waiting for at most `tmo` milliseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_receive_w_tmo(
    linx: *mut Linx,
    sig: *mut Sig,
    tmo: u32,
    sig_sel: *const u32,
) -> c_int {
    // SAFETY: as the header says.
    unsafe { receiving(linx, sig, Some(tmo), sig_sel, None) }
}

/// Receives a signal from one sender, waiting for at most `tmo` milliseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_receive_from(
    linx: *mut Linx,
    sig: *mut Sig,
    tmo: u32,
    sig_sel: *const u32,
    from: u32,
) -> c_int {
    // SAFETY: as the header says.
    unsafe { receiving(linx, sig, Some(tmo), sig_sel, Spid::new(from)) }
}
