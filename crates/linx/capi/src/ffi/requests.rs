//! Requests of an endpoint: hunts, attaches, time-outs, links, and information about endpoints.

use std::ffi::{CString, c_char, c_int};
use std::ptr;
use std::time::Duration;

use crossway_linx::{Condition, Endpoint, Error, Reference, Spid};

use super::ownership::take;
use super::{EINVAL, Linx, Sig, done, endpoint, fail, failed, text};

/// Number of bytes that programs reserve for the version, as the documentation of LINX specifies.
const VERSION_ROOM: usize = 14;

/// Hunts for an endpoint by name or path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_hunt(
    linx: *mut Linx,
    hunt_path: *const c_char,
    hunt_sig: *mut Sig,
) -> c_int {
    // SAFETY: as the header says.
    unsafe { linx_hunt_from(linx, hunt_path, hunt_sig, 0) }
}

/// Hunts for an endpoint; the hunt ends without an answer when the endpoint `from` closes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_hunt_from(
    linx: *mut Linx,
    hunt_path: *const c_char,
    hunt_sig: *mut Sig,
    from: u32,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        let (Some(linx), Some(path)) = (endpoint(linx), text(hunt_path)) else {
            return fail(EINVAL);
        };
        match take(linx, hunt_sig) {
            Ok(signal) => done(linx.endpoint.hunt_for(path, signal, Spid::new(from)).map(drop)),
            Err(error) => failed(&error),
        }
    }
}

/// Returns the reference of a request as a number for C; on failure, sets errno and returns 0.
fn reference(made: Result<Reference, Error>) -> u32 {
    made.map_or_else(
        |error| {
            failed(&error);
            0
        },
        Reference::get,
    )
}

/// Attaches to an endpoint, so that a signal reports its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_attach(linx: *mut Linx, sig: *mut Sig, spid: u32) -> u32 {
    // SAFETY: as the header says.
    unsafe {
        let (Some(linx), Some(spid)) = (endpoint(linx), Spid::new(spid)) else {
            fail(EINVAL);
            return 0;
        };
        let signal = take(linx, sig);
        reference(signal.and_then(|signal| linx.endpoint.attach(spid, signal)))
    }
}

/// Cancels a pending request and sets its reference to 0.
///
/// # Safety
/// The handle and the reference meet the requirements of `linx.h`.
unsafe fn give_up(
    linx: *mut Linx,
    place: *mut u32,
    act: impl FnOnce(&mut Endpoint, Reference) -> Result<(), Error>,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (Some(linx), Some(place)) = (endpoint(linx), place.as_mut()) else {
            return fail(EINVAL);
        };
        let reference = Reference::new(std::mem::take(place));
        done(act(&mut linx.endpoint, reference))
    }
}

/// Cancels an attach and sets `*attref` to 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_detach(linx: *mut Linx, attref: *mut u32) -> c_int {
    // SAFETY: as the header says.
    unsafe { give_up(linx, attref, Endpoint::detach) }
}

/// Requests a signal after a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_request_tmo(linx: *mut Linx, tmo: u32, sig: *mut Sig) -> u32 {
    // SAFETY: as the header says.
    unsafe {
        let Some(linx) = endpoint(linx) else {
            fail(EINVAL);
            return 0;
        };
        let signal = take(linx, sig);
        let after = Duration::from_millis(tmo.into());
        reference(signal.and_then(|signal| linx.endpoint.request_timeout(after, signal)))
    }
}

/// Changes the duration of a pending time-out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_modify_tmo(linx: *mut Linx, tmoref: *mut u32, tmo: u32) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        let (Some(linx), Some(timeout)) = (endpoint(linx), tmoref.as_ref()) else {
            return fail(EINVAL);
        };
        let after = Duration::from_millis(tmo.into());
        done(linx.endpoint.change_timeout(Reference::new(*timeout), after))
    }
}

/// Cancels a time-out and sets `*tmoref` to 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_cancel_tmo(linx: *mut Linx, tmoref: *mut u32) -> c_int {
    // SAFETY: as the header says.
    unsafe { give_up(linx, tmoref, Endpoint::cancel_timeout) }
}

/// Requests a signal for the next new link.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_request_new_link(linx: *mut Linx, token: u32) -> u32 {
    // SAFETY: as the header says.
    let Some(linx) = (unsafe { endpoint(linx) }) else {
        fail(EINVAL);
        return 0;
    };
    reference(linx.endpoint.request_new_link(token.into()))
}

/// Cancels a request for the next new link and sets `*nlref` to 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_cancel_new_link(linx: *mut Linx, nlref: *mut u32) -> c_int {
    // SAFETY: as the header says.
    unsafe { give_up(linx, nlref, Endpoint::cancel_new_link) }
}

/// Returns the number of the endpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_get_spid(linx: *mut Linx) -> u32 {
    // SAFETY: as the header says.
    unsafe { endpoint(linx) }.map_or(0, |linx| linx.endpoint.spid().get())
}

/// Stores the name of an endpoint, with the path of links to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_get_name(
    linx: *mut Linx,
    spid: u32,
    name: *mut *mut c_char,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        let (Some(linx), Some(place), Some(spid)) =
            (endpoint(linx), name.as_mut(), Spid::new(spid))
        else {
            return fail(EINVAL);
        };
        *place = ptr::null_mut();
        match linx.endpoint.info(spid).map(|info| CString::new(info.name)) {
            Ok(Ok(name)) => {
                *place = name.into_raw();
                0
            }
            Ok(Err(_)) => fail(EINVAL),
            Err(error) => failed(&error),
        }
    }
}

/// Frees a name returned by `linx_get_name`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_free_name(_linx: *mut Linx, name: *mut *mut c_char) -> c_int {
    // SAFETY: as the header says: what linx_get_name gave.
    unsafe {
        match name.as_mut().filter(|name| !name.is_null()) {
            Some(place) => {
                drop(CString::from_raw(*place));
                *place = ptr::null_mut();
                0
            }
            None => fail(EINVAL),
        }
    }
}

/// Returns the process id of an endpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_get_owner(linx: *mut Linx, spid: u32) -> libc::pid_t {
    // SAFETY: as the header says.
    let (Some(linx), Some(spid)) = (unsafe { endpoint(linx) }, Spid::new(spid)) else {
        return fail(EINVAL);
    };
    match linx.endpoint.info(spid) {
        Ok(info) => info.pid as libc::pid_t,
        Err(error) => failed(&error),
    }
}

/// The statistics of an endpoint, as `linx.h` declares them.
#[repr(C)]
#[derive(Debug)]
pub struct InfoStat {
    spid: u32,
    no_sent_local_signals: u64,
    no_recv_local_signals: u64,
    no_sent_local_bytes: u64,
    no_recv_local_bytes: u64,
    no_sent_remote_signals: u64,
    no_recv_remote_signals: u64,
    no_sent_remote_bytes: u64,
    no_recv_remote_bytes: u64,
    no_sent_signals: u64,
    no_recv_signals: u64,
    no_sent_bytes: u64,
    no_recv_bytes: u64,
    no_queued_bytes: u64,
    no_queued_signals: u64,
}

impl InfoStat {
    fn of(spid: Spid, condition: &Condition) -> InfoStat {
        let traffic = &condition.traffic;
        let (sent, received) = (traffic.sent(), traffic.received());
        InfoStat {
            spid: spid.get(),
            no_sent_local_signals: traffic.sent_local.signals,
            no_recv_local_signals: traffic.received_local.signals,
            no_sent_local_bytes: traffic.sent_local.bytes,
            no_recv_local_bytes: traffic.received_local.bytes,
            no_sent_remote_signals: traffic.sent_remote.signals,
            no_recv_remote_signals: traffic.received_remote.signals,
            no_sent_remote_bytes: traffic.sent_remote.bytes,
            no_recv_remote_bytes: traffic.received_remote.bytes,
            no_sent_signals: sent.signals,
            no_recv_signals: received.signals,
            no_sent_bytes: sent.bytes,
            no_recv_bytes: received.bytes,
            no_queued_bytes: condition.queued_bytes,
            no_queued_signals: condition.queued,
        }
    }
}

/// Stores the statistics of an endpoint of this node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_get_stat(
    linx: *mut Linx,
    spid: u32,
    stat: *mut *mut InfoStat,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        let (Some(linx), Some(place), Some(spid)) =
            (endpoint(linx), stat.as_mut(), Spid::new(spid))
        else {
            return fail(EINVAL);
        };
        *place = ptr::null_mut();
        match linx.endpoint.condition(spid) {
            Ok(condition) => {
                *place = Box::into_raw(Box::new(InfoStat::of(spid, &condition)));
                0
            }
            Err(error) => failed(&error),
        }
    }
}

/// Frees statistics returned by `linx_get_stat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_free_stat(_linx: *mut Linx, stat: *mut *mut InfoStat) -> c_int {
    // SAFETY: as the header says: what linx_get_stat gave.
    unsafe {
        match stat.as_mut().filter(|stat| !stat.is_null()) {
            Some(place) => {
                drop(Box::from_raw(*place));
                *place = ptr::null_mut();
                0
            }
            None => fail(EINVAL),
        }
    }
}

/// Stores the version of the library; returns its length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_get_version(buf: *mut c_char) -> c_int {
    let version = concat!(env!("CARGO_PKG_VERSION"), "\0");
    const { assert!(env!("CARGO_PKG_VERSION").len() < VERSION_ROOM) };
    if !buf.is_null() {
        // SAFETY: room for the version, as the header says.
        unsafe { ptr::copy_nonoverlapping(version.as_ptr().cast(), buf, version.len()) };
    }
    version.len() as c_int - 1
}
