//! Makes system calls on a socket's descriptor. They go through the C library, so that threads can be cancelled and
//! signals can interrupt them as in the program's own calls.

use std::ffi::{c_int, c_short, c_uint, c_void};

use crossway_sys::Errno;
use libc::{iovec, msghdr, ssize_t};

use super::outcome::errno;
use super::parts::{Parts, piece};
use super::real;

/// Maximum number of parts, with header and tail, for which a small array on the stack is used.
const FEW: usize = 16;
/// Maximum number of parts per call (UIO_MAXIOV).
const MANY: usize = 1024;

fn checked(outcome: ssize_t) -> Result<usize, Errno> {
    usize::try_from(outcome).map_err(|_| Errno::from_raw_os_error(errno()))
}

/// Duplicates a descriptor. The copy has a high number and is closed on exec.
pub(crate) fn copy_high(fd: c_int) -> Option<c_int> {
    /// Above the numbers that programs normally use, and below those that make a process's descriptor table large.
    const HIGH: c_int = 1_000;
    // SAFETY: sysconf only reads.
    let limit = c_int::try_from(unsafe { libc::sysconf(libc::_SC_OPEN_MAX) }).unwrap_or(HIGH);
    let from = HIGH.min(limit.saturating_sub(24)).max(3);
    // SAFETY: F_DUPFD_CLOEXEC takes an integer.
    let new = unsafe { real::fcntl(fd, libc::F_DUPFD_CLOEXEC, from.into()) };
    (new >= 0).then_some(new)
}

/// Whether calls on the descriptor are non-blocking.
pub(crate) fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: F_GETFL ignores its argument.
    let flags = unsafe { real::fcntl(fd, libc::F_GETFL, 0) };
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}

/// Waits until a descriptor is ready or `limit_ms` is over. Returns whether it is ready; fails with EINTR if a signal
/// arrives.
pub(crate) fn wait(fd: c_int, events: c_short, limit_ms: c_int) -> Result<bool, Errno> {
    let mut wanted = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one structure, which outlives the call.
    let ready = unsafe { real::poll(&mut wanted, 1, limit_ms) };
    checked(ready as ssize_t).map(|ready| ready > 0)
}

fn message(parts: &mut [iovec]) -> msghdr {
    // SAFETY: msghdr is plain data, for which all zeros is a valid value.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len() as _;
    message
}

const NOTHING: iovec = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// Collects `before`, the program's parts and `behind` in `room`, without empty parts. Fails with EMSGSIZE if `room` is
/// too small.
fn assemble<'a>(
    before: iovec,
    parts: &Parts<'_>,
    behind: iovec,
    room: &'a mut [iovec],
) -> Result<&'a mut [iovec], Errno> {
    let all = [before].into_iter().chain(parts.raw().iter().copied()).chain([behind]);
    let mut count = 0;
    for piece in all.filter(|piece| piece.iov_len > 0) {
        *room.get_mut(count).ok_or(Errno::MSGSIZE)? = piece;
        count += 1;
    }
    Ok(&mut room[..count])
}

/// Sends a header followed by the program's data. Returns the length sent, including the header.
#[inline]
pub(crate) fn send(
    fd: c_int,
    header: &[u8],
    parts: &Parts<'_>,
    flags: c_int,
) -> Result<usize, Errno> {
    let header = piece(header.as_ptr().cast(), header.len());
    if parts.raw().len() < FEW {
        send_from(fd, header, parts, flags, &mut [NOTHING; FEW])
    } else {
        send_many(fd, header, parts, flags)
    }
}

#[cold]
fn send_many(fd: c_int, header: iovec, parts: &Parts<'_>, flags: c_int) -> Result<usize, Errno> {
    send_from(fd, header, parts, flags, &mut [NOTHING; MANY])
}

fn send_from(
    fd: c_int,
    header: iovec,
    parts: &Parts<'_>,
    flags: c_int,
    room: &mut [iovec],
) -> Result<usize, Errno> {
    let message = message(assemble(header, parts, NOTHING, room)?);
    // SAFETY: the header is borrowed by the caller; the other parts are readable, as their creator guaranteed.
    checked(unsafe { real::sendmsg(fd, &message, flags) })
}

/// Sends one record of `len` bytes, which consists of `head` and enough bytes of `filling`, without waiting. Returns
/// the number of bytes sent.
pub(crate) fn send_filling(
    fd: c_int,
    head: &[u8],
    filling: &'static [u8],
    len: usize,
) -> Result<usize, Errno> {
    let mut room = [NOTHING; FEW];
    room[0] = piece(head.as_ptr().cast(), head.len());
    let (mut left, mut count) = (len.saturating_sub(head.len()), 1);
    while left > 0 {
        let part = left.min(filling.len());
        *room.get_mut(count).ok_or(Errno::MSGSIZE)? = piece(filling.as_ptr().cast(), part);
        (left, count) = (left - part, count + 1);
    }
    let message = message(&mut room[..count]);
    // SAFETY: all parts are borrowed.
    checked(unsafe { real::sendmsg(fd, &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) })
}

/// Receives into a header, then the program's parts, then a tail. Returns the length received, including header and
/// tail, and the message flags.
#[inline]
pub(crate) fn receive(
    fd: c_int,
    header: &mut [u8],
    parts: &Parts<'_>,
    tail: &mut [u8],
    flags: c_int,
) -> Result<(usize, c_int), Errno> {
    let header = piece(header.as_mut_ptr().cast(), header.len());
    let tail = piece(tail.as_mut_ptr().cast(), tail.len());
    if parts.raw().len() + 1 < FEW {
        receive_into(fd, header, parts, tail, flags, &mut [NOTHING; FEW])
    } else {
        receive_many(fd, header, parts, tail, flags)
    }
}

#[cold]
fn receive_many(
    fd: c_int,
    header: iovec,
    parts: &Parts<'_>,
    tail: iovec,
    flags: c_int,
) -> Result<(usize, c_int), Errno> {
    receive_into(fd, header, parts, tail, flags, &mut [NOTHING; MANY])
}

fn receive_into(
    fd: c_int,
    header: iovec,
    parts: &Parts<'_>,
    tail: iovec,
    flags: c_int,
    room: &mut [iovec],
) -> Result<(usize, c_int), Errno> {
    let mut message = message(assemble(header, parts, tail, room)?);
    // SAFETY: header and tail are borrowed by the caller; the other parts are writable, as their creator guaranteed.
    let len = checked(unsafe { real::recvmsg(fd, &mut message, flags) })?;
    Ok((len, message.msg_flags))
}

/// Receives data, and the descriptor passed with it, if there is one. The descriptor is closed on exec. `waits` says whether
/// the call may wait as long as the descriptor's settings allow.
pub(crate) fn receive_descriptor(
    fd: c_int,
    bytes: &mut [u8],
    waits: bool,
) -> Result<(usize, Option<c_int>), Errno> {
    /// Room for one descriptor, aligned as required for control data.
    #[repr(C, align(8))]
    struct Room([u8; 24]);
    let mut room = Room([0; 24]);
    let mut parts = [piece(bytes.as_mut_ptr().cast(), bytes.len())];
    let mut message = message(&mut parts);
    message.msg_control = (&raw mut room).cast::<c_void>();
    message.msg_controllen = room.0.len() as _;
    let flags = libc::MSG_CMSG_CLOEXEC | if waits { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: data and control buffer are writable, as long as stated, and outlive the call.
    let len = checked(unsafe { real::recvmsg(fd, &mut message, flags) })?;
    // SAFETY: filled in by the kernel; the control buffer is aligned, and the macros stay within its length.
    let found = unsafe {
        libc::CMSG_FIRSTHDR(&message).as_ref().and_then(|header| {
            let rights =
                header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS;
            let whole = header.cmsg_len as c_uint >= libc::CMSG_LEN(4);
            (rights && whole).then(|| libc::CMSG_DATA(header).cast::<c_int>().read_unaligned())
        })
    };
    Ok((len, found))
}
