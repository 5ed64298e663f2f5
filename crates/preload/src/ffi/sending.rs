//! Calls that send. On a moved descriptor they differ from the kernel's in what TCP does differently: the first bytes after
//! the peer's end are accepted, and an address and control data are ignored, unless they are none.

use std::ffi::{c_int, c_short, c_uint, c_void};

use crossway_sys::Errno;
use crossway_sys::real::{errno, set_errno};
use crossway_sys::socket::twin;
use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::calls::moved;
use super::descriptors::closed_unseen;
use super::{borrow, lent, real};
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
    unsafe { real::poll(&mut wanted, 1, 0) };
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

/// From linux/socket.h, where the libc crate lacks it.
const MSG_FASTOPEN: c_int = 0x2000_0000;

/// Whether TCP refuses a send for its address, control data or flags, with which `ask` sends no byte on a TCP connection.
#[cold]
fn is_refused(fd: c_int, ask: impl FnOnce(c_int) -> ssize_t) -> bool {
    // A socket that is not connected would be connected by MSG_FASTOPEN.
    let Some(aside) = moved(fd).and_then(Entry::aside) else { return false };
    let before = errno();
    if ask(aside) >= 0 {
        return false;
    }
    match errno() {
        // The stream says so, too, with a signal.
        libc::EPIPE => {
            set_errno(before);
            false
        }
        libc::ECONNRESET => {
            table::mark_all(fd, RESET);
            true
        }
        _ => true,
    }
}

/// The flags of a send of `len` bytes: TCP accepts no byte as urgent, a UNIX stream does not.
fn flags_for(len: usize, flags: c_int) -> c_int {
    if len == 0 { flags & !libc::MSG_OOB } else { flags }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn send(
    fd: c_int,
    bytes: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    let Some(entry) = table::moved(fd) else {
        // SAFETY: guaranteed by the caller.
        return unsafe { real::send(fd, bytes, len, flags) };
    };
    if flags & MSG_FASTOPEN != 0 {
        // SAFETY: guaranteed by the caller.
        let ask = |tcp| unsafe { real::send(tcp, bytes, 0, flags | libc::MSG_NOSIGNAL) };
        if is_refused(fd, ask) {
            return -1;
        }
    }
    let flags = flags_for(len, flags);
    // SAFETY: as above.
    let loudly = || unsafe { real::send(fd, bytes, len, flags) };
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
    // SAFETY: guaranteed by the caller.
    let real = |fd, len, flags| unsafe { real::sendto(fd, bytes, len, flags, to, to_len) };
    if table::moved(fd).is_none() {
        return real(fd, len, flags);
    }
    let mut flags = flags;
    if !to.is_null() {
        if is_refused(fd, |tcp| real(tcp, 0, flags | libc::MSG_NOSIGNAL)) {
            return -1;
        }
        // To ask twice would be to connect twice.
        flags &= !MSG_FASTOPEN;
    }
    // SAFETY: as above.
    unsafe { send(fd, bytes, len, flags) }
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

/// Whether the parts of a message can be read, and are not too many; if not, the kernel refuses it.
pub(super) fn has_parts(message: &msghdr) -> bool {
    message.msg_iovlen <= MOST_PARTS && lent::is_readable(message.msg_iov, message.msg_iovlen)
}

/// The number of bytes in a message.
///
/// # Safety
/// The parts of the message are readable, if it has any.
pub(super) unsafe fn len_of(message: &msghdr) -> usize {
    if message.msg_iovlen == 0 {
        return 0;
    }
    // SAFETY: guaranteed by the caller; the program's structures may lie anywhere.
    let parts = (0..message.msg_iovlen).map(|n| unsafe { message.msg_iov.add(n).read_unaligned() });
    parts.fold(0, |sum: usize, part| sum.saturating_add(part.iov_len))
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
pub(super) unsafe extern "C-unwind" fn sendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    let Some(entry) = table::moved(fd).filter(|_| lent::is_readable(message, 1)) else {
        // SAFETY: guaranteed by the caller.
        return unsafe { real::sendmsg(fd, message, flags) };
    };
    // SAFETY: readable; the program's structure may lie anywhere.
    let mut plain = unsafe { message.read_unaligned() };
    let is_odd = !plain.msg_name.is_null() || plain.msg_controllen > 0;
    if is_odd || flags & MSG_FASTOPEN != 0 {
        let empty = msghdr { msg_iovlen: 0, ..plain };
        // SAFETY: as guaranteed by the caller; the copy lives through the call.
        let ask = |tcp| unsafe { real::sendmsg(tcp, &empty, flags | libc::MSG_NOSIGNAL) };
        if is_refused(fd, ask) {
            return -1;
        }
    }
    plain.msg_name = std::ptr::null_mut();
    plain.msg_namelen = 0;
    plain.msg_control = std::ptr::null_mut();
    plain.msg_controllen = 0;
    let is_empty = flags & libc::MSG_OOB != 0
        && has_parts(&plain)
        // SAFETY: readable.
        && unsafe { len_of(&plain) } == 0;
    let flags = flags_for(usize::from(!is_empty), flags);
    // SAFETY: as above; the copy lives through the call.
    let outcome = unsafe { real::sendmsg(fd, &plain, flags | libc::MSG_NOSIGNAL) };
    let len = failed_len(outcome, &plain);
    // SAFETY: as above.
    send_moved(fd, entry, len, || outcome, || unsafe { real::sendmsg(fd, &plain, flags) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if table::moved(fd).is_none() {
        // SAFETY: guaranteed by the caller.
        return unsafe { real::sendmmsg(fd, messages, count, flags) };
    }
    let count = count.min(MOST_PARTS as c_uint) as usize;
    for n in 0..count {
        let message = messages.wrapping_add(n);
        let outcome = if lent::is_writable(message, 1) {
            // SAFETY: readable, and as guaranteed by the caller.
            unsafe { sendmsg(fd, &raw const (*message).msg_hdr, flags) }
        } else {
            set_errno(libc::EFAULT);
            -1
        };
        if outcome < 0 {
            // As the kernel's: an error after the first message is lost.
            return if n == 0 { -1 } else { n as c_int };
        }
        // SAFETY: writable; the kernel has read the parts.
        let len = unsafe {
            (&raw mut (*message).msg_len).write_unaligned(outcome as c_uint);
            len_of(&(&raw const (*message).msg_hdr).read_unaligned())
        };
        if outcome.cast_unsigned() < len {
            return n as c_int + 1;
        }
    }
    count as c_int
}
