//! The functions; `linx.h` says what each does.
#![allow(unsafe_code)]
#![allow(clippy::missing_safety_doc)]

pub mod requests;

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::collections::HashSet;
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
}

/// A signal as C has it: its bytes.
type Sig = *mut u8;

fn fail(errno: c_int) -> c_int {
    // SAFETY: the C library's own word for this thread's errno.
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

/// The head of a signal that belongs to an endpoint; anything else ends the program.
///
/// # Safety
/// `sig` is a signal of this library that was not freed, or this is noticed.
unsafe fn head<'a>(linx: &Linx, sig: Sig) -> &'a mut Head {
    if !linx.signals.contains(&(sig as usize)) {
        abort_because(
            "a signal was used that does not belong to the endpoint, or was sent or freed before",
        );
    }
    // SAFETY: the set holds only what `to_c` has made and nothing has freed since.
    let head = unsafe { &mut *sig.sub(size_of::<Head>()).cast::<Head>() };
    // SAFETY: the buffer has a byte behind its room.
    let mark = unsafe { *sig.add(head.size as usize) };
    if head.live != LIVE || head.owner != ptr::from_ref(linx) as usize || mark != END_MARK {
        abort_because("more was written to a signal than it has, or something over it");
    }
    head
}

/// Makes a signal one of C's.
fn to_c(linx: &mut Linx, signal: Signal) -> Sig {
    let head = Head::new(&signal, ptr::from_ref(linx) as usize);
    let layout = layout(head.room);
    // SAFETY: the layout is not empty; what is written lies within it.
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

/// Shows a signal's bytes.
///
/// # Safety
/// As [`head`]; the bytes are C's to change afterwards.
unsafe fn bytes<'a>(linx: &Linx, sig: Sig) -> &'a [u8] {
    // SAFETY: as the caller promises; the head says how many bytes there are.
    unsafe { std::slice::from_raw_parts(sig, head(linx, sig).size as usize) }
}

/// Frees one of C's signals.
///
/// # Safety
/// As [`head`].
unsafe fn release(linx: &mut Linx, sig: Sig) {
    // SAFETY: as the caller promises; made by `to_c` with this layout.
    unsafe {
        let head = head(linx, sig);
        head.live = 0;
        let layout = layout(head.room);
        linx.signals.remove(&(sig as usize));
        dealloc(sig.sub(size_of::<Head>()), layout);
    }
}

/// Takes the signal behind a pointer over, if there is one, and sets the pointer to NULL.
///
/// # Safety
/// `sig` is NULL or can be read and written; `*sig` is NULL or as [`head`] wants.
unsafe fn take(linx: &mut Linx, sig: *mut Sig) -> Result<Option<Signal>, Error> {
    // SAFETY: as the caller promises.
    unsafe {
        let Some(place) = sig.as_mut().filter(|sig| !sig.is_null()) else { return Ok(None) };
        let signal = Signal::from_bytes(bytes(linx, *place).to_vec());
        release(linx, *place);
        *place = ptr::null_mut();
        signal.map(Some)
    }
}

/// The endpoint behind a handle.
///
/// # Safety
/// NULL, or what `linx_open` gave and `linx_close` has not had.
unsafe fn endpoint<'a>(linx: *mut Linx) -> Option<&'a mut Linx> {
    // SAFETY: as the caller promises.
    unsafe { linx.as_mut() }
}

/// A string of C.
///
/// # Safety
/// NULL, or a string that ends with 0.
unsafe fn text<'a>(string: *const c_char) -> Option<&'a str> {
    // SAFETY: as the caller promises.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_str().ok()).flatten()
}

/// Opens an endpoint.
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
        Ok(endpoint) => Box::into_raw(Box::new(Linx { endpoint, signals: HashSet::new() })),
        Err(error) => {
            failed(&error);
            ptr::null_mut()
        }
    }
}

/// Closes an endpoint and frees its signals.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_close(linx: *mut Linx) -> c_int {
    if linx.is_null() {
        return fail(EINVAL);
    }
    // SAFETY: made by Box::into_raw, and closed once, as the header says.
    let mut linx = unsafe { Box::from_raw(linx) };
    for sig in linx.signals.clone() {
        // SAFETY: in the set of living signals.
        unsafe { release(&mut linx, sig as Sig) };
    }
    0
}

/// The descriptor to poll.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_get_descriptor(linx: *mut Linx) -> c_int {
    // SAFETY: a handle, as the header says.
    let Some(linx) = (unsafe { endpoint(linx) }) else { return fail(EINVAL) };
    linx.endpoint.descriptor().map_or_else(|error| failed(&error), |fd| fd.as_raw_fd())
}

/// Makes a signal.
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

/// Makes a signal in the shared pool, which there is not.
#[unsafe(no_mangle)]
pub extern "C" fn linx_s_alloc(_linx: *mut Linx, _size: u32, _sig_no: u32, _flags: u32) -> Sig {
    fail(libc::EOPNOTSUPP);
    ptr::null_mut()
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

/// Does something with a signal's head.
///
/// # Safety
/// As the header says of the handle and the signal.
unsafe fn with_head<R>(
    linx: *mut Linx,
    sig: *mut Sig,
    act: impl FnOnce(&mut Head, Sig) -> R,
) -> Option<R> {
    // SAFETY: as the caller promises.
    unsafe {
        let linx = endpoint(linx)?;
        let sig = *sig.as_ref()?;
        (!sig.is_null()).then(|| act(head(linx, sig), sig))
    }
}

/// Whose a signal is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_sender(linx: *mut Linx, sig: *mut Sig) -> u32 {
    // SAFETY: as the header says.
    unsafe { with_head(linx, sig, |head, _| head.sender) }.unwrap_or_else(|| {
        fail(EINVAL);
        0
    })
}

/// A signal's size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_sigsize(linx: *mut Linx, sig: *mut Sig) -> u32 {
    // SAFETY: as the header says.
    unsafe { with_head(linx, sig, |head, _| head.size) }.unwrap_or_else(|| fail(EINVAL) as u32)
}

/// Makes a signal smaller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_set_sigsize(linx: *mut Linx, sig: *mut Sig, sigsize: u32) -> c_int {
    // SAFETY: as the header says.
    let changed = unsafe {
        with_head(linx, sig, |head, sig| {
            if !(4..=head.room).contains(&sigsize) {
                return fail(libc::EMSGSIZE);
            }
            head.size = sigsize;
            // SAFETY: within the room, or the byte behind it.
            sig.add(sigsize as usize).write(END_MARK);
            0
        })
    };
    changed.unwrap_or_else(|| fail(EINVAL))
}

/// An attribute of a signal: 1, whether it came out of band.
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

/// Takes a signal and an endpoint's number, and acts.
///
/// # Safety
/// As the header says of the handle and the signal.
unsafe fn sending(
    linx: *mut Linx,
    sig: *mut Sig,
    to: u32,
    act: impl FnOnce(&mut Endpoint, Signal, Spid) -> Result<(), Error>,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        let Some(linx) = endpoint(linx) else { return fail(EINVAL) };
        match (take(linx, sig), Spid::new(to)) {
            (Ok(Some(signal)), Some(to)) => done(act(&mut linx.endpoint, signal, to)),
            (Err(error), _) => failed(&error),
            _ => fail(EINVAL),
        }
    }
}

/// Sends a signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_send(linx: *mut Linx, sig: *mut Sig, to: u32) -> c_int {
    // SAFETY: as the header says.
    unsafe { sending(linx, sig, to, |endpoint, signal, to| endpoint.send(signal, to)) }
}

/// Sends a signal with another sender.
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

/// Sends a signal with options.
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
                "out of band, a signal is sent in the endpoint's own name".to_owned(),
            )),
            _ if out_of_band => endpoint.send_out_of_band(signal, to),
            _ => endpoint.send(signal, to),
        })
    }
}

/// Receives.
///
/// # Safety
/// As the header says of the handle, the signal's place and the filter.
unsafe fn receiving(
    linx: *mut Linx,
    sig: *mut Sig,
    tmo: Option<u32>,
    sig_sel: *const u32,
    from: Option<Spid>,
) -> c_int {
    // SAFETY: as the caller promises.
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
                *place = to_c(linx, signal);
                size
            }
            Ok(None) => 0,
            Err(error) => failed(&error),
        }
    }
}

/// C's tokens of links have 32 bits: the notice of a link as C has it.
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

/// Receives a signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linx_receive(
    linx: *mut Linx,
    sig: *mut Sig,
    sig_sel: *const u32,
) -> c_int {
    // SAFETY: as the header says.
    unsafe { receiving(linx, sig, None, sig_sel, None) }
}

/// Receives a signal within a time.
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

/// Receives a signal of one sender within a time.
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
