//! Calls that receive. On a moved descriptor they differ from the kernel's in what TCP does differently: a reset that the
//! peer asked for is reported, there is no sender's address, and MSG_TRUNC discards.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use crossway_sys::real::{errno, set_errno};
use crossway_sys::socket::twin;
use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::sending::len_of;
use super::waiting::awaiting_bytes;
use super::{borrow, lent, real};
use crate::table::{self, CARRIED, Entry, RESET};
use crate::via;

/// The result of a receive on a moved descriptor: where a stream ends, TCP may have a reset (SO_LINGER).
#[cold]
pub(super) fn at_end(fd: c_int, entry: Entry) -> ssize_t {
    let aside = entry.aside().and_then(borrow);
    if aside
        .is_some_and(|aside| twin::was_reset(aside) || entry.has(CARRIED) && via::is_broken(aside))
    {
        table::mark_all(fd, RESET);
        set_errno(libc::ECONNRESET);
        return -1;
    }
    0
}

#[inline]
pub(super) fn received(fd: c_int, wanted: size_t, outcome: ssize_t) -> ssize_t {
    match table::moved(fd) {
        Some(entry) if outcome == 0 && wanted > 0 => at_end(fd, entry),
        Some(_) if outcome < 0 && errno() == libc::ECONNRESET => {
            table::mark_all(fd, RESET);
            outcome
        }
        _ => outcome,
    }
}

macro_rules! receives {
    ($($name:ident($($arg:ident: $kind:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name(
                fd: c_int,
                bytes: *mut c_void,
                len: size_t,
                $($arg: $kind),*
            ) -> ssize_t {
                // SAFETY: guaranteed by the caller.
                let sleep = || unsafe { real::$name(fd, bytes, len, $($arg),*) };
                $(
                    // The original ends the program if there is not enough room.
                    if len > $arg {
                        return sleep();
                    }
                )*
                // SAFETY: as above.
                let look = || unsafe { real::recv(fd, bytes, len, libc::MSG_DONTWAIT) };
                let outcome = awaiting_bytes(fd, if len == 0 { libc::MSG_DONTWAIT } else { 0 }, look, sleep);
                if outcome <= 0 { received(fd, len, outcome) } else { outcome }
            }
        )*
    };
}

receives! {
    read();
    __read_chk(room: size_t);
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: guaranteed by the caller.
    let sleep = || unsafe { real::readv(fd, parts, count) };
    // SAFETY: as above.
    let look = || unsafe { real::recvmsg(fd, &mut message_of(parts, count), libc::MSG_DONTWAIT) };
    // The kernel refuses other counts, with another error than for a message.
    let is_valid = (1..=libc::UIO_MAXIOV).contains(&count);
    let outcome = awaiting_bytes(fd, if is_valid { 0 } else { libc::MSG_DONTWAIT }, look, sleep);
    if outcome > 0 || table::moved(fd).is_none() {
        return outcome;
    }
    let has_parts = outcome == 0 && is_valid;
    // SAFETY: the kernel has read the parts.
    received(fd, if has_parts { unsafe { len_of(&message_of(parts, count)) } } else { 0 }, outcome)
}

/// A message without a name and control data that consists of these parts.
fn message_of(parts: *const iovec, count: c_int) -> msghdr {
    // SAFETY: a structure of zeros is a message without parts.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.cast_mut();
    message.msg_iovlen = count as _;
    message
}

/// Flags of which UNIX streams make something else than TCP does.
pub(super) const DIFFERENT: c_int = libc::MSG_TRUNC | libc::MSG_ERRQUEUE;

/// Receives with one of these flags.
///
/// # Safety
/// As for recv.
#[cold]
pub(super) unsafe fn receive_different(
    fd: c_int,
    entry: Entry,
    bytes: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    if flags & libc::MSG_ERRQUEUE != 0 {
        // The TCP connection has no errors: nothing was sent on it.
        let aside = entry.aside().unwrap_or(fd);
        // SAFETY: guaranteed by the caller.
        return unsafe { real::recv(aside, bytes, len, flags | libc::MSG_DONTWAIT) };
    }
    let mut discarded = [0_u8; 16_384];
    let mut flags = flags & !libc::MSG_TRUNC;
    let mut done = 0;
    loop {
        let room = (len - done).min(discarded.len());
        // SAFETY: the buffer has that room.
        let outcome = unsafe { real::recv(fd, discarded.as_mut_ptr().cast(), room, flags) };
        if outcome <= 0 && done == 0 {
            return if outcome == 0 && len > 0 { at_end(fd, entry) } else { outcome };
        }
        done += outcome.max(0).unsigned_abs();
        // What is peeked at stays.
        if outcome <= 0 || done == len || flags & libc::MSG_PEEK != 0 {
            return done.cast_signed();
        }
        if flags & libc::MSG_WAITALL == 0 {
            flags |= libc::MSG_DONTWAIT;
        }
    }
}

/// How long a receive may wait at most (SO_RCVTIMEO), if the program has set that.
pub(super) fn limit_of(fd: c_int) -> Option<Duration> {
    let mut limit = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut room = size_of::<libc::timeval>() as socklen_t;
    let to = (&raw mut limit).cast();
    // SAFETY: the structure and its length.
    let outcome =
        unsafe { real::getsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, to, &mut room) };
    let limit = Duration::from_secs(limit.tv_sec.try_into().unwrap_or(0))
        + Duration::from_micros(limit.tv_usec.try_into().unwrap_or(0));
    (outcome == 0 && !limit.is_zero()).then_some(limit)
}

/// With both flags, TCP waits until as many bytes are there; a UNIX stream returns those that are.
const PEEK_ALL: c_int = libc::MSG_PEEK | libc::MSG_WAITALL;

/// Peeks as TCP does with [`PEEK_ALL`]. Nothing tells when a stream holds more bytes than before, so they are looked at every
/// millisecond.
///
/// # Safety
/// As for recv.
#[cold]
unsafe fn peek_all(fd: c_int, bytes: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    let begin = Instant::now();
    let limit = limit_of(fd);
    let waits =
        flags & libc::MSG_DONTWAIT == 0 && borrow(fd).and_then(twin::waits_plainly) == Some(false);
    loop {
        let mut ended = libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
        // Before the bytes are looked at: what came before the end is there then.
        // SAFETY: one structure.
        let seen = unsafe { real::poll(&mut ended, 1, 0) };
        // SAFETY: guaranteed by the caller.
        let outcome = unsafe { real::recv(fd, bytes, len, flags & !libc::MSG_WAITALL) };
        let is_late = limit.is_some_and(|limit| begin.elapsed() >= limit);
        if outcome <= 0 || outcome.unsigned_abs() >= len || seen != 0 || is_late || !waits {
            return if outcome <= 0 { received(fd, len, outcome) } else { outcome };
        }
        // SAFETY: as above. A signal interrupts it, as it interrupts TCP.
        if unsafe { real::poll(&mut ended, 1, 1) } < 0 {
            return outcome;
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recv(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    if flags & PEEK_ALL == PEEK_ALL && table::moved(fd).is_some() {
        // SAFETY: guaranteed by the caller.
        return unsafe { peek_all(fd, bytes, len, flags) };
    }
    if flags & DIFFERENT != 0
        && let Some(entry) = table::moved(fd)
    {
        // SAFETY: guaranteed by the caller.
        return unsafe { receive_different(fd, entry, bytes, len, flags) };
    }
    // SAFETY: guaranteed by the caller.
    let receive = |more| unsafe { real::recv(fd, bytes, len, flags | more) };
    let outcome = awaiting_bytes(fd, flags, || receive(libc::MSG_DONTWAIT), || receive(0));
    if outcome <= 0 { received(fd, len, outcome) } else { outcome }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    // The original ends the program if there is not enough room.
    // SAFETY: guaranteed by the caller.
    unsafe {
        if len > room || table::moved(fd).is_none() {
            real::__recv_chk(fd, bytes, len, room, flags)
        } else {
            recv(fd, bytes, len, flags)
        }
    }
}

/// Whether a receive with these flags does not only call the kernel's.
fn is_different(flags: c_int) -> bool {
    flags & DIFFERENT != 0 || flags & PEEK_ALL == PEEK_ALL
}

/// Says that a receive with this `outcome` has no sender's address; `len` is writable.
fn without_name(len: *mut socklen_t, outcome: ssize_t) -> ssize_t {
    // SAFETY: writable.
    if unsafe { len.read_unaligned() }.cast_signed() < 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: as above.
    unsafe { len.write_unaligned(0) };
    outcome
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    if table::moved(fd).is_none() {
        // SAFETY: guaranteed by the caller.
        let receive =
            |more| unsafe { real::recvfrom(fd, bytes, len, flags | more, from, from_len) };
        return awaiting_bytes(fd, flags, || receive(libc::MSG_DONTWAIT), || receive(0));
    }
    // SAFETY: guaranteed by the caller.
    if from.is_null() {
        // SAFETY: guaranteed by the caller.
        return unsafe { recv(fd, bytes, len, flags) };
    }
    if is_different(flags) {
        // SAFETY: as above.
        let outcome = unsafe { recv(fd, bytes, len, flags) };
        if outcome < 0 || lent::is_writable(from_len, 1) {
            return if outcome < 0 { outcome } else { without_name(from_len, outcome) };
        }
        set_errno(libc::EFAULT);
        return -1;
    }
    // The kernel refuses a bad length; it must not write the name of the stream to the program.
    let mut name = MaybeUninit::<libc::sockaddr_storage>::uninit();
    let name = name.as_mut_ptr().cast();
    // SAFETY: as above; no address is longer than the structure.
    let receive = |more| unsafe { real::recvfrom(fd, bytes, len, flags | more, name, from_len) };
    let outcome = awaiting_bytes(fd, flags, || receive(libc::MSG_DONTWAIT), || receive(0));
    let outcome = if outcome <= 0 { received(fd, len, outcome) } else { outcome };
    if outcome < 0 { outcome } else { without_name(from_len, outcome) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if len > room || table::moved(fd).is_none() {
            real::__recvfrom_chk(fd, bytes, len, room, flags, from, from_len)
        } else {
            recvfrom(fd, bytes, len, flags, from, from_len)
        }
    }
}
