//! Calls that send.

use std::ffi::{c_int, c_uint, c_void};

use crossway_sys::Errno;
use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::calls::address;
use super::outcome::{count, number};
use super::parts::{Parts, piece};
use super::real;
use crate::socket::Handle;
use crate::table::find;

/// Maximum number of parts per call (UIO_MAXIOV).
pub(super) const PARTS_MAX: usize = 1024;

/// Sends data in a single part.
///
/// # Safety
/// `bytes` points to `len` bytes; `to` is NULL or points to `to_len` bytes.
unsafe fn send_piece(
    socket: &Handle,
    bytes: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    let pieces = [piece(bytes, len)];
    // SAFETY: guaranteed by the caller.
    let (parts, to) =
        unsafe { (Parts::new(&pieces), (!to.is_null()).then(|| address(to, to_len))) };
    count(|| socket.send(&parts, to, flags))
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn send(
    fd: c_int,
    bytes: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    match find(fd) {
        // SAFETY: guaranteed by the caller.
        Some(socket) => unsafe { send_piece(&socket, bytes, len, flags, std::ptr::null(), 0) },
        // SAFETY: guaranteed by the caller.
        None => unsafe { real::send(fd, bytes, len, flags) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __send(
    fd: c_int,
    bytes: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: guaranteed by the caller.
    unsafe { send(fd, bytes, len, flags) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    bytes: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    match find(fd) {
        // SAFETY: guaranteed by the caller.
        Some(socket) => unsafe { send_piece(&socket, bytes, len, flags, to, to_len) },
        // SAFETY: guaranteed by the caller.
        None => unsafe { real::sendto(fd, bytes, len, flags, to, to_len) },
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn write(
    fd: c_int,
    bytes: *const c_void,
    len: size_t,
) -> ssize_t {
    match find(fd) {
        // SAFETY: guaranteed by the caller.
        Some(socket) => unsafe { send_piece(&socket, bytes, len, 0, std::ptr::null(), 0) },
        // SAFETY: guaranteed by the caller.
        None => unsafe { real::write(fd, bytes, len) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __write(fd: c_int, bytes: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: guaranteed by the caller.
    unsafe { write(fd, bytes, len) }
}

/// Converts the array of parts that a program passes to readv or writev. Fails with EINVAL if `length` is negative or
/// exceeds `PARTS_MAX`.
///
/// # Safety
/// `parts` points to `length` parts, each with memory of its length.
pub(super) unsafe fn vector<'a>(parts: *const iovec, length: c_int) -> Result<Parts<'a>, Errno> {
    let length = usize::try_from(length).ok().filter(|n| *n <= PARTS_MAX).ok_or(Errno::INVAL)?;
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { Parts::from_c(parts, length) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn writev(
    fd: c_int,
    parts: *const iovec,
    length: c_int,
) -> ssize_t {
    match find(fd) {
        // SAFETY: guaranteed by the caller.
        Some(socket) => count(|| socket.send(&unsafe { vector(parts, length) }?, None, 0)),
        // SAFETY: guaranteed by the caller.
        None => unsafe { real::writev(fd, parts, length) },
    }
}

/// Sends as sendmsg does.
///
/// # Safety
/// `message` is NULL, or its pointers are valid for the lengths that it contains.
unsafe fn send_message(
    socket: &Handle,
    message: *const msghdr,
    flags: c_int,
) -> Result<usize, Errno> {
    // SAFETY: guaranteed by the caller.
    let message = unsafe { message.as_ref() }.ok_or(Errno::FAULT)?;
    if message.msg_iovlen > PARTS_MAX {
        return Err(Errno::MSGSIZE);
    }
    // SAFETY: guaranteed by the caller.
    let (parts, to) = unsafe {
        let parts = Parts::from_c(message.msg_iov, message.msg_iovlen);
        let named = !message.msg_name.is_null() && message.msg_namelen > 0;
        (parts, named.then(|| address(message.msg_name.cast(), message.msg_namelen)))
    };
    socket.send(&parts, to, flags)
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn sendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    match find(fd) {
        // SAFETY: guaranteed by the caller.
        Some(socket) => count(|| unsafe { send_message(&socket, message, flags) }),
        // SAFETY: guaranteed by the caller.
        None => unsafe { real::sendmsg(fd, message, flags) },
    }
}

/// Calls `what` for one message after the other, at most `PARTS_MAX`, until it returns false or an error. Returns the
/// number of calls that succeeded; fails only if the first one failed, or with EFAULT if `messages` is NULL.
///
/// # Safety
/// `messages` is NULL, or points to `length` messages.
pub(super) unsafe fn one_by_one(
    messages: *mut mmsghdr,
    length: c_uint,
    mut what: impl FnMut(usize, &mut mmsghdr) -> Result<bool, Errno>,
) -> Result<c_int, Errno> {
    if messages.is_null() {
        return if length == 0 { Ok(0) } else { Err(Errno::FAULT) };
    }
    let mut sent = 0;
    for n in 0..(length as usize).min(PARTS_MAX) {
        // SAFETY: this many, as guaranteed by the caller.
        match what(n, unsafe { &mut *messages.add(n) }) {
            Ok(goes_on) => {
                sent += 1;
                if !goes_on {
                    break;
                }
            }
            Err(errno) if n == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(sent)
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    length: c_uint,
    flags: c_int,
) -> c_int {
    let Some(socket) = find(fd) else {
        // SAFETY: guaranteed by the caller.
        return unsafe { real::sendmmsg(fd, messages, length, flags) };
    };
    // SAFETY: guaranteed by the caller.
    number(|| unsafe {
        one_by_one(messages, length, |_, message| {
            message.msg_len = send_message(&socket, &message.msg_hdr, flags)? as c_uint;
            Ok(true)
        })
    })
}
