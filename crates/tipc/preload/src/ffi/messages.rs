//! Sending and receiving.

use std::ffi::{c_int, c_uint, c_void};
use std::time::{Duration, Instant};

use crossway_sys::Errno;
use crossway_tipc_client::address::{Address, ENCODED_LEN};
use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};

use super::calls::{address, give_address};
use super::outcome::{count, errno, number, set_errno};
use super::parts::{Parts, piece};
use super::{control_data, real};
use crate::receive::{Arrival, RETURNED_LEN, Wanted};
use crate::socket::Handle;
use crate::table::find;

/// The most parts of one call (UIO_MAXIOV).
const PARTS_MAX: usize = 1024;

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
unsafe fn vector<'a>(parts: *const iovec, length: c_int) -> Result<Parts<'a>, Errno> {
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
unsafe fn one_by_one(
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

/// Who sent what came: a socket, and behind it a group's member.
fn sender(arrival: &Arrival) -> ([u8; 2 * ENCODED_LEN], usize) {
    let mut raw = [0; 2 * ENCODED_LEN];
    let Some(from) = arrival.from else { return (raw, 0) };
    let (first, second) = raw.split_at_mut(ENCODED_LEN);
    first.copy_from_slice(&Address::Socket(from).encode());
    let Some((group, instance)) = arrival.member else { return (raw, ENCODED_LEN) };
    second.copy_from_slice(&Address::service(group, instance).encode());
    // The scope, which tells nothing of where somebody is.
    second[3] = 0;
    (raw, 2 * ENCODED_LEN)
}

/// Receives into one piece.
///
/// # Safety
/// `octets` has room for so many, and `from` for so many as `from_len` says, unless they are NULL.
unsafe fn receive_piece(
    socket: &Handle,
    octets: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    let pieces = [piece(octets, len)];
    // SAFETY: as the caller promises.
    let parts = unsafe { Parts::new(&pieces) };
    count(|| {
        let arrival =
            socket.receive(&parts, &mut Wanted { flags, cause: false, returned: None })?;
        if !from.is_null() {
            let (octets, len) = sender(&arrival);
            // SAFETY: as the caller promises.
            unsafe { give_address(from, from_len, &octets[..len]) }?;
        }
        Ok(arrival.len)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    octets: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    match find(fd) {
        // SAFETY: as the caller promises.
        Some(socket) => unsafe { receive_piece(&socket, octets, len, flags, from, from_len) },
        // SAFETY: as the caller promises.
        None => unsafe { real::recvfrom(fd, octets, len, flags, from, from_len) },
    }
}

/// # Safety
/// As [`receive_piece`].
unsafe fn receive_octets(
    socket: &Handle,
    octets: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    let nobody = std::ptr::null_mut();
    // SAFETY: as the caller promises.
    unsafe { receive_piece(socket, octets, len, flags, nobody, std::ptr::null_mut()) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recv(
    fd: c_int,
    octets: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    match find(fd) {
        // SAFETY: as the caller promises.
        Some(socket) => unsafe { receive_octets(&socket, octets, len, flags) },
        // SAFETY: as the caller promises.
        None => unsafe { real::recv(fd, octets, len, flags) },
    }
}

/// # Safety
/// As [`receive_piece`].
unsafe fn read_octets(socket: &Handle, octets: *mut c_void, len: size_t) -> ssize_t {
    // The kernel does not ask a socket for nothing.
    if len == 0 {
        return 0;
    }
    // SAFETY: as the caller promises.
    unsafe { receive_octets(socket, octets, len, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn read(fd: c_int, octets: *mut c_void, len: size_t) -> ssize_t {
    match find(fd) {
        // SAFETY: as the caller promises.
        Some(socket) => unsafe { read_octets(&socket, octets, len) },
        // SAFETY: as the caller promises.
        None => unsafe { real::read(fd, octets, len) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __read(fd: c_int, octets: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: as the caller promises.
    unsafe { read(fd, octets, len) }
}

// What gcc makes of these calls with -D_FORTIFY_SOURCE. A buffer that is too small is for the C library to punish.

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    octets: *mut c_void,
    len: size_t,
    room: size_t,
) -> ssize_t {
    match find(fd) {
        // SAFETY: as the caller promises.
        Some(socket) if len <= room => unsafe { read_octets(&socket, octets, len) },
        // SAFETY: as the caller promises.
        _ => unsafe { real::__read_chk(fd, octets, len, room) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    octets: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    match find(fd) {
        // SAFETY: as the caller promises.
        Some(socket) if len <= room => unsafe { receive_octets(&socket, octets, len, flags) },
        // SAFETY: as the caller promises.
        _ => unsafe { real::__recv_chk(fd, octets, len, room, flags) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    octets: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    match find(fd) {
        // SAFETY: as the caller promises.
        Some(socket) if len <= room => unsafe {
            receive_piece(&socket, octets, len, flags, from, from_len)
        },
        // SAFETY: as the caller promises.
        _ => unsafe { real::__recvfrom_chk(fd, octets, len, room, flags, from, from_len) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn readv(fd: c_int, parts: *const iovec, length: c_int) -> ssize_t {
    let Some(socket) = find(fd) else {
        // SAFETY: as the caller promises.
        return unsafe { real::readv(fd, parts, length) };
    };
    count(|| {
        // SAFETY: as the caller promises.
        let parts = unsafe { vector(parts, length) }?;
        if parts.len() == 0 {
            return Ok(0);
        }
        let mut wanted = Wanted { flags: 0, cause: false, returned: None };
        Ok(socket.receive(&parts, &mut wanted)?.len)
    })
}

/// # Safety
/// NULL, or a message whose pointers lead to what it says.
unsafe fn receive_message(
    socket: &Handle,
    message: *mut msghdr,
    flags: c_int,
) -> Result<usize, Errno> {
    // SAFETY: as the caller promises.
    let message = unsafe { message.as_mut() }.ok_or(Errno::FAULT)?;
    if message.msg_iovlen > PARTS_MAX {
        return Err(Errno::MSGSIZE);
    }
    // SAFETY: as the caller promises.
    let parts = unsafe { Parts::from_c(message.msg_iov, message.msg_iovlen) };
    let mut returned = [0; RETURNED_LEN];
    let cause = !message.msg_control.is_null();
    let mut wanted = Wanted { flags, cause, returned: cause.then_some(&mut returned) };
    let arrival = socket.receive(&parts, &mut wanted)?;
    message.msg_flags = arrival.flags;
    if !message.msg_name.is_null() {
        let (octets, len) = sender(&arrival);
        // SAFETY: as the caller promises.
        unsafe { give_address(message.msg_name.cast(), &mut message.msg_namelen, &octets[..len]) }?;
    }
    // SAFETY: as the caller promises.
    if !unsafe { control_data::give(message, &arrival, &returned) } {
        message.msg_flags |= libc::MSG_CTRUNC;
    }
    Ok(arrival.len)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    let Some(socket) = find(fd) else {
        // SAFETY: as the caller promises; and what the kernel has left in it.
        unsafe {
            let outcome = real::recvmsg(fd, message, flags);
            if outcome >= 0 && (*message).msg_controllen > 0 {
                let before = errno();
                control_data::look(&*message);
                set_errno(before);
            }
            return outcome;
        }
    };
    // SAFETY: as the caller promises.
    count(|| unsafe { receive_message(&socket, message, flags) })
}

/// The first message is waited for, the others are not (sys/socket.h).
const MSG_WAITFORONE: c_int = 0x1_0000;

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    length: c_uint,
    flags: c_int,
    limit: *mut timespec,
) -> c_int {
    let Some(socket) = find(fd) else {
        // SAFETY: as the caller promises.
        return unsafe { real::recvmmsg(fd, messages, length, flags, limit) };
    };
    // SAFETY: NULL or a time, as the caller promises.
    let limit = unsafe { limit.as_ref() }.map(|limit| {
        let nanos = u32::try_from(limit.tv_nsec).unwrap_or(0);
        Duration::new(u64::try_from(limit.tv_sec).unwrap_or(0), nanos)
    });
    let begin = Instant::now();
    // SAFETY: as the caller promises.
    number(|| unsafe {
        one_by_one(messages, length, |n, message| {
            let waits_for_one = n > 0 && flags & MSG_WAITFORONE != 0;
            let flags =
                flags & !MSG_WAITFORONE | if waits_for_one { libc::MSG_DONTWAIT } else { 0 };
            message.msg_len = receive_message(&socket, &mut message.msg_hdr, flags)? as c_uint;
            // As in the kernel, it is looked at only after a message.
            Ok(limit.is_none_or(|limit| begin.elapsed() < limit))
        })
    })
}
