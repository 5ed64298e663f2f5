//! Signals that C programs own: access to their headers, and checks that a pointer refers to such a signal.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr;

use crossway_linx::{Error, Signal};

use super::{Linx, Sig};
use crate::buffer::{END_MARK, Head, LIVE};

fn layout(room: u32) -> Layout {
    let len = size_of::<Head>() + room as usize + 1;
    Layout::from_size_align(len, align_of::<Head>()).expect("a signal's length is bounded")
}

fn abort_because(why: &str) -> ! {
    eprintln!("linx: {why}");
    std::process::abort()
}

/// Returns the header of a signal that belongs to an endpoint; aborts the program if the pointer is anything else.
///
/// # Safety
/// `sig` may be any pointer: one that is not a live signal of this library is detected.
pub(super) unsafe fn head(linx: &mut Linx, sig: Sig) -> &mut Head {
    let owner = ptr::from_ref(linx) as usize;
    let head = if linx.signals.contains(&(sig as usize)) {
        // SAFETY: the set only contains pointers that `to_c` has made and that were not freed since.
        unsafe { &mut *sig.sub(size_of::<Head>()).cast::<Head>() }
    } else if let Some((head, _)) = linx.shared.get_mut(&(sig as usize)) {
        head
    } else {
        abort_because(
            "the program used a signal that does not belong to this endpoint, or that it had already sent or freed",
        );
    };
    // SAFETY: the buffer has one byte after its capacity.
    let mark = unsafe { *sig.add(head.size as usize) };
    if head.live != LIVE || head.owner != owner || mark != END_MARK {
        abort_because("the program wrote beyond the start or the end of a signal");
    }
    head
}

/// Passes ownership of a signal to the C program; returns the pointer to the signal's bytes.
pub(super) fn to_c(linx: &mut Linx, mut signal: Signal) -> Sig {
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
/// The same as for [`head`]. The C program may change the bytes after the call.
unsafe fn bytes<'a>(linx: &mut Linx, sig: Sig) -> &'a [u8] {
    // SAFETY: guaranteed by the caller; the header contains the number of bytes.
    unsafe { std::slice::from_raw_parts(sig, head(linx, sig).size as usize) }
}

/// Frees a signal that the C program owns.
///
/// # Safety
/// The same as for [`head`].
pub(super) unsafe fn release(linx: &mut Linx, sig: Sig) {
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

/// Replaces a signal by a larger one with the same content, sender and attributes, followed by zeros. The signal is
/// unchanged if this fails.
///
/// # Safety
/// The same as for [`head`]; `*place` can be written.
pub(super) unsafe fn grow(linx: &mut Linx, place: &mut Sig, size: u32) -> Result<(), Error> {
    // SAFETY: guaranteed by the caller; `to_c` returns room for as many bytes as the new signal has.
    unsafe {
        let old = head(linx, *place);
        let (sender, out_of_band, len) = (old.sender, old.out_of_band, old.size as usize);
        // The number is copied with the content, and may be one that a program must not send.
        let larger = to_c(linx, Signal::new(u32::MAX, size as usize - 4)?);
        ptr::copy_nonoverlapping(*place, larger, len);
        let new = head(linx, larger);
        (new.sender, new.out_of_band) = (sender, out_of_band);
        release(linx, *place);
        *place = larger;
    }
    Ok(())
}

/// Takes ownership of the signal that a pointer refers to, if there is one, and sets the pointer to
/// NULL.
///
/// # Safety
/// `sig` is NULL or can be read and written; `*sig` is NULL or as required by [`head`].
pub(super) unsafe fn take(linx: &mut Linx, sig: *mut Sig) -> Result<Option<Signal>, Error> {
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
        let bytes = bytes(linx, *place);
        let signal = linx.endpoint.alloc_copy(bytes);
        release(linx, *place);
        *place = ptr::null_mut();
        signal.map(Some)
    }
}
