//! Calls that send. On a moved descriptor they differ from the kernel's in what TCP does differently: the first bytes after
//! the peer's end are accepted, an address is ignored, and so is control data.

use std::ffi::{c_int, c_short, c_uint, c_void};

use crossway_sys::Errno;
use crossway_sys::real::{errno, set_errno};
use crossway_sys::socket::twin;
use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::descriptors::closed_unseen;
use super::{borrow, real};
use crate::table::{self, ENDED, Entry, RESET};

/// What a failed send on a moved descriptor becomes.
enum Verdict {
    /// As it is.
    Failed,
    /// As it is, with the signal that the program expects.
    Signalled,
    /// TCP would have accepted all bytes.
    Accepted,
}

/// Judges a send of `len` bytes that has failed.
#[cold]
fn judge(fd: c_int, entry: Entry, len: usize) -> Verdict {
    match errno() {
        libc::EPIPE => {}
        libc::ECONNRESET => {
            // The peer has closed while this end waited for room.
            table::mark_all(fd, RESET);
            return Verdict::Failed;
        }
        _ => return Verdict::Failed,
    }
    let Some(socket) = borrow(fd) else { return Verdict::Failed };
    if entry.has(ENDED) {
        return Verdict::Signalled;
    }
    let aside = entry.aside().and_then(borrow);
    // The peer has closed without reading everything, or asked for a reset: TCP reports it once, without a signal.
    if twin::pending_error(socket) == Some(Errno::CONNRESET) || aside.is_some_and(twin::was_reset) {
        table::mark_all(fd, RESET);
        set_errno(libc::ECONNRESET);
        return Verdict::Failed;
    }
    // Another process, or another program before this one, may have shut down sending.
    if aside.is_some_and(twin::has_ended) {
        table::mark_all(fd, ENDED);
        return Verdict::Signalled;
    }
    let mut wanted = libc::pollfd { fd, events: 0, revents: 0 };
    // SAFETY: one structure, which outlives the call.
    unsafe { libc::poll(&mut wanted, 1, 0) };
    let has_closed = wanted.revents & libc::POLLHUP as c_short != 0;
    if has_closed && entry.has(RESET) {
        set_errno(libc::EPIPE);
        return Verdict::Signalled;
    }
    // A peer that has only shut down receiving is sent to for ever.
    // Without a byte, TCP does not learn that the peer has closed.
    if has_closed && len > 0 {
        table::mark_all(fd, RESET);
    }
    Verdict::Accepted
}

/// Sends on a moved descriptor. `quietly` sends without SIGPIPE; `loudly` is the call as the program makes it, `len` what it
/// sends.
fn send_moved(
    fd: c_int,
    entry: Entry,
    len: usize,
    quietly: impl FnOnce() -> ssize_t,
    loudly: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let before = errno();
    let outcome = quietly();
    if outcome >= 0 {
        return outcome;
    }
    if errno() == libc::ENOTSOCK {
        // Another file has this number, whose close this library has not seen.
        closed_unseen(fd, entry);
        return loudly();
    }
    match judge(fd, entry, len) {
        Verdict::Failed => outcome,
        Verdict::Signalled => loudly(),
        Verdict::Accepted => {
            set_errno(before);
            len.cast_signed()
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn write(fd: c_int, bytes: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: guaranteed by the caller.
    let loudly = || unsafe { real::write(fd, bytes, len) };
    let Some(entry) = table::moved(fd) else { return loudly() };
    // SAFETY: as above.
    let quietly = || unsafe { real::send(fd, bytes, len, libc::MSG_NOSIGNAL) };
    send_moved(fd, entry, len, quietly, loudly)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn send(
    fd: c_int,
    bytes: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: guaranteed by the caller.
    let loudly = || unsafe { real::send(fd, bytes, len, flags) };
    let Some(entry) = table::moved(fd) else { return loudly() };
    // SAFETY: as above.
    let quietly = || unsafe { real::send(fd, bytes, len, flags | libc::MSG_NOSIGNAL) };
    send_moved(fd, entry, len, quietly, loudly)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    bytes: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    if table::moved(fd).is_some() {
        // SAFETY: guaranteed by the caller.
        return unsafe { send(fd, bytes, len, flags) };
    }
    // SAFETY: guaranteed by the caller.
    unsafe { real::sendto(fd, bytes, len, flags, to, to_len) }
}

/// The kernel's maximum number of parts per call (UIO_MAXIOV).
const MOST_PARTS: usize = 1024;

/// The number of bytes in a message that could not be sent because the peer has ended; 0 for any other outcome.
fn failed_len(outcome: ssize_t, message: &msghdr) -> usize {
    let count = message.msg_iovlen;
    if outcome >= 0 || errno() != libc::EPIPE || message.msg_iov.is_null() || count > MOST_PARTS {
        return 0;
    }
    // SAFETY: the kernel has read the parts of the message without EFAULT.
    unsafe { len_of(message) }
}

/// The number of bytes in a message.
///
/// # Safety
/// The parts of the message are readable, if it has any.
pub(super) unsafe fn len_of(message: &msghdr) -> usize {
    if message.msg_iovlen == 0 {
        return 0;
    }
    // SAFETY: guaranteed by the caller.
    let parts = unsafe { std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen) };
    parts.iter().map(|part| part.iov_len).sum()
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: guaranteed by the caller.
    let loudly = || unsafe { real::writev(fd, parts, count) };
    let (Some(entry), Ok(number)) = (table::moved(fd), usize::try_from(count)) else {
        return loudly();
    };
    // SAFETY: msghdr is plain data, for which all zeros is a valid value.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.cast_mut();
    message.msg_iovlen = number as _;
    if number > MOST_PARTS {
        // The error that writev reports for too many parts differs from that of sendmsg.
        return loudly();
    }
    // SAFETY: guaranteed by the caller.
    let outcome = unsafe { real::sendmsg(fd, &message, libc::MSG_NOSIGNAL) };
    send_moved(fd, entry, failed_len(outcome, &message), || outcome, loudly)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    let Some(entry) = table::moved(fd).filter(|_| !message.is_null()) else {
        // SAFETY: guaranteed by the caller.
        return unsafe { real::sendmsg(fd, message, flags) };
    };
    // SAFETY: not NULL, and readable as guaranteed by the caller.
    let mut plain = unsafe { *message };
    plain.msg_name = std::ptr::null_mut();
    plain.msg_namelen = 0;
    plain.msg_control = std::ptr::null_mut();
    plain.msg_controllen = 0;
    // SAFETY: as above; the copy lives through the call.
    let outcome = unsafe { real::sendmsg(fd, &plain, flags | libc::MSG_NOSIGNAL) };
    let len = failed_len(outcome, &plain);
    // SAFETY: as above.
    send_moved(fd, entry, len, || outcome, || unsafe { real::sendmsg(fd, &plain, flags) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if table::moved(fd).is_none() || messages.is_null() {
        // SAFETY: guaranteed by the caller.
        return unsafe { real::sendmmsg(fd, messages, count, flags) };
    }
    let count = count.min(MOST_PARTS as c_uint) as usize;
    for n in 0..count {
        // SAFETY: guaranteed by the caller.
        let message = unsafe { &mut *messages.add(n) };
        // SAFETY: as above.
        let outcome = unsafe { sendmsg(fd, &message.msg_hdr, flags) };
        if outcome < 0 {
            // As the kernel's: an error after the first message is lost.
            return if n == 0 { -1 } else { n as c_int };
        }
        message.msg_len = outcome as c_uint;
        let has_parts = outcome > 0 || !message.msg_hdr.msg_iov.is_null();
        // SAFETY: the kernel has read the parts.
        if has_parts && outcome.cast_unsigned() < unsafe { len_of(&message.msg_hdr) } {
            return n as c_int + 1;
        }
    }
    count as c_int
}
