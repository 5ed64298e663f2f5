//! The functions of the C interface; `linx.h` documents them.
#![allow(unsafe_code)]
#![allow(clippy::missing_safety_doc)]

pub mod requests;

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use crossway_linx::signal::NEW_LINK;
use crossway_linx::{Endpoint, Error, Signal, Spid, default_dir};

use crate::buffer::{END_MARK, Head, LIVE, filter};

const EINVAL: c_int = libc::EINVAL;

/// An endpoint with the signals that belong to it.
pub struct Linx {
    endpoint: Endpoint,
    signals: HashSet<usize>,
    /// The signals that are in memory shared with another endpoint, by address. Their heads are here, where nobody else can
    /// write to them.
    shared: HashMap<usize, (Head, Signal)>,
    /// The endpoint to which something was sent, or from which something was received, last.
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

fn layout(room: u32) -> Layout {
    let len = size_of::<Head>() + room as usize + 1;
    Layout::from_size_align(len, align_of::<Head>()).expect("a signal's length is bounded")
}

fn abort_because(why: &str) -> ! {
    eprintln!("linx: {why}");
    std::process::abort()
}

/// Returns the header of a signal that belongs to an endpoint; for any other pointer it ends the
/// program.
///
/// # Safety
/// `sig` may be any pointer: one that is not a live signal of this library is detected.
unsafe fn head(linx: &mut Linx, sig: Sig) -> &mut Head {
    let owner = ptr::from_ref(linx) as usize;
    let head = if linx.signals.contains(&(sig as usize)) {
        // SAFETY: the set only contains pointers that `to_c` has made and that were not freed since.
        unsafe { &mut *sig.sub(size_of::<Head>()).cast::<Head>() }
    } else if let Some((head, _)) = linx.shared.get_mut(&(sig as usize)) {
        head
    } else {
        abort_because(
            "a signal was used that does not belong to the endpoint, or that was already sent or freed",
        );
    };
    // SAFETY: the buffer has one byte after its capacity.
    let mark = unsafe { *sig.add(head.size as usize) };
    if head.live != LIVE || head.owner != owner || mark != END_MARK {
        abort_because("more was written to a signal than its size, or its end was overwritten");
    }
    head
}

/// Converts a signal to one that C owns.
fn to_c(linx: &mut Linx, mut signal: Signal) -> Sig {
    let head = Head::new(&signal, ptr::from_ref(linx) as usize);
    let size = signal.size();
    if let Some(room) = signal.shared_room() {
        room[size] = END_MARK;
        let sig = room.as_mut_ptr();
        linx.shared.insert(sig as usize, (head, signal));
        return sig;
    }
    let layout = layout(head.room);
    // SAFETY: the layout is not empty; all writes are within it.
    let sig = unsafe {
        let start = alloc(layout);
        if start.is_null() {
            handle_alloc_error(layout);
        }
        let sig = start.add(size_of::<Head>());
        start.cast::<Head>().write(head);
        ptr::copy_nonoverlapping(signal.as_bytes().as_ptr(), sig, signal.size());
        sig.add(signal.size()).write(END_MARK);
        sig
    };
    linx.endpoint.free(signal);
    linx.signals.insert(sig as usize);
    sig
}

/// Borrows a signal's bytes.
///
/// # Safety
/// As for [`head`]; C may change the bytes afterwards.
unsafe fn bytes<'a>(linx: &mut Linx, sig: Sig) -> &'a [u8] {
    // SAFETY: guaranteed by the caller; the header contains the number of bytes.
    unsafe { std::slice::from_raw_parts(sig, head(linx, sig).size as usize) }
}

/// Frees a signal owned by C.
///
/// # Safety
/// As for [`head`].
unsafe fn release(linx: &mut Linx, sig: Sig) {
    // SAFETY: guaranteed by the caller; allocated by `to_c` with this layout.
    unsafe {
        let head = head(linx, sig);
        head.live = 0;
        let layout = layout(head.room);
        if linx.shared.remove(&(sig as usize)).is_some() {
            return;
        }
        linx.signals.remove(&(sig as usize));
        dealloc(sig.sub(size_of::<Head>()), layout);
    }
}

/// Takes ownership of the signal that a pointer refers to, if there is one, and sets the pointer to
/// NULL.
///
/// # Safety
/// `sig` is NULL or can be read and written; `*sig` is NULL or as required by [`head`].
unsafe fn take(linx: &mut Linx, sig: *mut Sig) -> Result<Option<Signal>, Error> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let Some(place) = sig.as_mut().filter(|sig| !sig.is_null()) else { return Ok(None) };
        let size = head(linx, *place).size as usize;
        if let Some((_, mut signal)) = linx.shared.remove(&(*place as usize)) {
            *place = ptr::null_mut();
            // The program may have written any number.
            signal.set_number(signal.number())?;
            signal.set_size(size)?;
            return Ok(Some(signal));
        }
        let signal = Signal::from_bytes(bytes(linx, *place).to_vec());
        release(linx, *place);
        *place = ptr::null_mut();
        signal.map(Some)
    }
}

/// Returns the endpoint of a handle.
///
/// # Safety
/// NULL, or a result of `linx_open` that was not passed to `linx_close`.
unsafe fn endpoint<'a>(linx: *mut Linx) -> Option<&'a mut Linx> {
    // SAFETY: guaranteed by the caller.
    unsafe { linx.as_mut() }
}

/// Converts a string from C; `None` for NULL and for invalid UTF-8.
///
/// # Safety
/// NULL, or a string that ends with a NUL byte.
unsafe fn text<'a>(string: *const c_char) -> Option<&'a str> {
    // SAFETY: guaranteed by the caller.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_str().ok()).flatten()
}

/// Opens an endpoint with a name; NULL with errno on failure.
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

/// The descriptor that becomes readable when a signal can be received.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_get_descriptor(linx: *mut Linx) -> c_int {
    // SAFETY: a handle, as the header says.
    let Some(linx) = (unsafe { endpoint(linx) }) else { return fail(EINVAL) };
    linx.endpoint.descriptor().map_or_else(|error| failed(&error), |fd| fd.as_raw_fd())
}

/// Allocates a signal of a size in bytes with a number.
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
    match linx.endpoint.alloc(sig_no, payload) {
        Ok(signal) => to_c(linx, signal),
        Err(error) => {
            failed(&error);
            ptr::null_mut()
        }
    }
}

/// Allocates a signal in memory that is shared with the endpoint which this one communicated with last; an ordinary one if
/// there is no such memory. C programs do not say for whom they allocate a signal.
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

/// Frees a signal.
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

/// Applies a function to a signal's header.
///
/// # Safety
/// As `linx.h` requires of the handle and the signal.
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

/// The sender of a received signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_sender(linx: *mut Linx, sig: *mut Sig) -> u32 {
    // SAFETY: as the header says.
    unsafe { with_head(linx, sig, |head, _| head.sender) }.unwrap_or_else(|| {
        fail(EINVAL);
        0
    })
}

/// The size of a signal in bytes, including its number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_sigsize(linx: *mut Linx, sig: *mut Sig) -> u32 {
    // SAFETY: as the header says.
    unsafe { with_head(linx, sig, |head, _| head.size) }.unwrap_or_else(|| fail(EINVAL) as u32)
}

/// Reduces the size of a signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_set_sigsize(linx: *mut Linx, sig: *mut Sig, sigsize: u32) -> c_int {
    // SAFETY: as the header says.
    let changed = unsafe {
        with_head(linx, sig, |head, sig| {
            if !(4..=head.room).contains(&sigsize) {
                return fail(libc::EMSGSIZE);
            }
            head.size = sigsize;
            // SAFETY: within the room, or the byte after it.
            sig.add(sigsize as usize).write(END_MARK);
            0
        })
    };
    changed.unwrap_or_else(|| fail(EINVAL))
}

/// Reads an attribute of a signal; attribute 1 is whether it was sent out of band.
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
            // SAFETY: can be written to, as the header says.
            unsafe { value.write(ptr::without_provenance_mut(oob as usize)) };
            0
        }
        _ => fail(EINVAL),
    }
}

/// Takes ownership of a signal and passes it with an endpoint's number to a function.
///
/// # Safety
/// As `linx.h` requires of the handle and the signal.
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
                "a signal out of band can only be sent in the endpoint's own name".to_owned(),
            )),
            _ if out_of_band => endpoint.send_out_of_band(signal, to),
            _ => endpoint.send(signal, to),
        })
    }
}

/// Receives a signal.
///
/// # Safety
/// As `linx.h` requires of the handle, the signal's pointer and the filter.
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
        if sig_sel.is_null() {
            return fail(EINVAL);
        }
        let count = *sig_sel as i32;
        let numbers = std::slice::from_raw_parts(sig_sel.add(1), count.unsigned_abs() as usize);
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

/// Converts the notice of a link for C, where link tokens have 32 bits.
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

/// Receives a signal, waiting for ever.
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
