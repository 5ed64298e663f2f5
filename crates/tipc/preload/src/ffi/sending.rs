//! The calls that send.

use std::ffi::{c_int, c_uint, c_void};

use crossway_sys::Errno;
use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::calls::address;
use super::outcome::{count, number};
use super::parts::{Parts, piece};
use super::real;
use crate::socket::Handle;
use crate::table::find;

/// The most parts of one call (UIO_MAXIOV).
pub(super) const PARTS_MAX: usize = 1024;

/// Sends what lies in one piece.
///
/// # Safety
/// `octets` has so many octets, and `to` so many as `to_len` says, unless it is NULL.
unsafe fn send_piece(
    socket: &Handle,
    octets: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    let pieces = [piece(octets, len)];
    // SAFETY: as the caller promises.
    let (parts, to) =
        unsafe { (Parts::new(&pieces), (!to.is_null()).then(|| address(to, to_len))) };
    count(|| socket.send(&parts, to, flags))
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn send(
    fd: c_int,
    octets: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    match find(fd) {
        // SAFETY: as the caller promises.
        Some(socket) => unsafe { send_piece(&socket, octets, len, flags, std::ptr::null(), 0) },
        // SAFETY: as the caller promises.
        None => unsafe { real::send(fd, octets, len, flags) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __send(
    fd: c_int,
    octets: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: as the caller promises.
    unsafe { send(fd, octets, len, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    octets: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    match find(fd) {
        // SAFETY: as the caller promises.
        Some(socket) => unsafe { send_piece(&socket, octets, len, flags, to, to_len) },
        // SAFETY: as the caller promises.
        None => unsafe { real::sendto(fd, octets, len, flags, to, to_len) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn write(fd: c_int, octets: *const c_void, len: size_t) -> ssize_t {
    match find(fd) {
        // SAFETY: as the caller promises.
        Some(socket) => unsafe { send_piece(&socket, octets, len, 0, std::ptr::null(), 0) },
        // SAFETY: as the caller promises.
        None => unsafe { real::write(fd, octets, len) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __write(fd: c_int, octets: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: as the caller promises.
    unsafe { write(fd, octets, len) }
}

/// The parts of readv and writev.
///
/// # Safety
/// So many parts, each with memory of its length.
pub(super) unsafe fn vector<'a>(parts: *const iovec, length: c_int) -> Result<Parts<'a>, Errno> {
    let length = usize::try_from(length).ok().filter(|n| *n <= PARTS_MAX).ok_or(Errno::INVAL)?;
    // SAFETY: as the caller promises.
    Ok(unsafe { Parts::from_c(parts, length) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn writev(fd: c_int, parts: *const iovec, length: c_int) -> ssize_t {
    match find(fd) {
        // SAFETY: as the caller promises.
        Some(socket) => count(|| socket.send(&unsafe { vector(parts, length) }?, None, 0)),
        // SAFETY: as the caller promises.
        None => unsafe { real::writev(fd, parts, length) },
    }
}

/// # Safety
/// NULL, or a message whose pointers lead to what it says.
unsafe fn send_message(
    socket: &Handle,
    message: *const msghdr,
    flags: c_int,
) -> Result<usize, Errno> {
    // SAFETY: as the caller promises.
    let message = unsafe { message.as_ref() }.ok_or(Errno::FAULT)?;
    if message.msg_iovlen > PARTS_MAX {
        return Err(Errno::MSGSIZE);
    }
    // SAFETY: as the caller promises.
    let (parts, to) = unsafe {
        let parts = Parts::from_c(message.msg_iov, message.msg_iovlen);
        let named = !message.msg_name.is_null() && message.msg_namelen > 0;
        (parts, named.then(|| address(message.msg_name.cast(), message.msg_namelen)))
    };
    socket.send(&parts, to, flags)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    match find(fd) {
        // SAFETY: as the caller promises.
        Some(socket) => count(|| unsafe { send_message(&socket, message, flags) }),
        // SAFETY: as the caller promises.
        None => unsafe { real::sendmsg(fd, message, flags) },
    }
}

/// Does something with one message after the other: how many it worked for; an error only if it worked for none.
///
/// # Safety
/// NULL, or so many messages.
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
        // SAFETY: so many, as the caller promises.
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
unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    length: c_uint,
    flags: c_int,
) -> c_int {
    let Some(socket) = find(fd) else {
        // SAFETY: as the caller promises.
        return unsafe { real::sendmmsg(fd, messages, length, flags) };
    };
    // SAFETY: as the caller promises.
    number(|| unsafe {
        one_by_one(messages, length, |_, message| {
            message.msg_len = send_message(&socket, &message.msg_hdr, flags)? as c_uint;
            Ok(true)
        })
    })
}
