//! Calls that receive.

use std::ffi::{c_int, c_uint, c_void};
use std::time::{Duration, Instant};

use crossway_sys::Errno;
use crossway_tipc_client::address::{Address, ENCODED_LEN};
use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};

use super::calls::give_address;
use super::outcome::{count, errno, number, set_errno};
use super::parts::{Parts, piece};
use super::sending::{PARTS_MAX, one_by_one, vector};
use super::{control_data, real};
use crate::receive::{Arrival, RETURNED_LEN, Wanted};
use crate::socket::Handle;
use crate::table::find;

/// Encodes the sender's address, followed by the group member's address if there is one. Returns a buffer, and how many
/// of its bytes are used.
fn sender(arrival: &Arrival) -> ([u8; 2 * ENCODED_LEN], usize) {
    let mut raw = [0; 2 * ENCODED_LEN];
    let Some(from) = arrival.from else { return (raw, 0) };
    let (first, second) = raw.split_at_mut(ENCODED_LEN);
    first.copy_from_slice(&Address::Socket(from).encode());
    let Some((group, instance)) = arrival.member else { return (raw, ENCODED_LEN) };
    second.copy_from_slice(&Address::service(group, instance).encode());
    // The scope, which is meaningless in a sender's address.
    second[3] = 0;
    (raw, 2 * ENCODED_LEN)
}

/// Receives into a single part.
///
/// # Safety
/// `bytes` is NULL or has room for `len` bytes; `from` is NULL or has as much room as `from_len` says.
unsafe fn receive_piece(
    socket: &Handle,
    bytes: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    let pieces = [piece(bytes, len)];
    // SAFETY: guaranteed by the caller.
    let parts = unsafe { Parts::new(&pieces) };
    count(|| {
        let arrival =
            socket.receive(&parts, &mut Wanted { flags, cause: false, returned: None })?;
        if !from.is_null() {
            let (bytes, len) = sender(&arrival);
            // SAFETY: guaranteed by the caller.
            unsafe { give_address(from, from_len, &bytes[..len]) }?;
        }
        Ok(arrival.len)
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    match find(fd) {
        // SAFETY: guaranteed by the caller.
        Some(socket) => unsafe { receive_piece(&socket, bytes, len, flags, from, from_len) },
        // SAFETY: guaranteed by the caller.
        None => unsafe { real::recvfrom(fd, bytes, len, flags, from, from_len) },
    }
}

/// Receives into a single part, as recv does.
///
/// # Safety
/// As [`receive_piece`].
unsafe fn receive_bytes(socket: &Handle, bytes: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    let nobody = std::ptr::null_mut();
    // SAFETY: guaranteed by the caller.
    unsafe { receive_piece(socket, bytes, len, flags, nobody, std::ptr::null_mut()) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recv(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    match find(fd) {
        // SAFETY: guaranteed by the caller.
        Some(socket) => unsafe { receive_bytes(&socket, bytes, len, flags) },
        // SAFETY: guaranteed by the caller.
        None => unsafe { real::recv(fd, bytes, len, flags) },
    }
}

/// Receives into a single part, as read does.
///
/// # Safety
/// As [`receive_piece`].
unsafe fn read_bytes(socket: &Handle, bytes: *mut c_void, len: size_t) -> ssize_t {
    // The kernel does not pass an empty read to a socket.
    if len == 0 {
        return 0;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { receive_bytes(socket, bytes, len, 0) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn read(fd: c_int, bytes: *mut c_void, len: size_t) -> ssize_t {
    match find(fd) {
        // SAFETY: guaranteed by the caller.
        Some(socket) => unsafe { read_bytes(&socket, bytes, len) },
        // SAFETY: guaranteed by the caller.
        None => unsafe { real::read(fd, bytes, len) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __read(fd: c_int, bytes: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: guaranteed by the caller.
    unsafe { read(fd, bytes, len) }
}

// Variants that gcc calls with -D_FORTIFY_SOURCE. A buffer that is too small is left to the C library, which
// aborts.

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    room: size_t,
) -> ssize_t {
    match find(fd) {
        // SAFETY: guaranteed by the caller.
        Some(socket) if len <= room => unsafe { read_bytes(&socket, bytes, len) },
        // SAFETY: guaranteed by the caller.
        _ => unsafe { real::__read_chk(fd, bytes, len, room) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    bytes: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    match find(fd) {
        // SAFETY: guaranteed by the caller.
        Some(socket) if len <= room => unsafe { receive_bytes(&socket, bytes, len, flags) },
        // SAFETY: guaranteed by the caller.
        _ => unsafe { real::__recv_chk(fd, bytes, len, room, flags) },
    }
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
    match find(fd) {
        // SAFETY: guaranteed by the caller.
        Some(socket) if len <= room => unsafe {
            receive_piece(&socket, bytes, len, flags, from, from_len)
        },
        // SAFETY: guaranteed by the caller.
        _ => unsafe { real::__recvfrom_chk(fd, bytes, len, room, flags, from, from_len) },
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn readv(
    fd: c_int,
    parts: *const iovec,
    length: c_int,
) -> ssize_t {
    let Some(socket) = find(fd) else {
        // SAFETY: guaranteed by the caller.
        return unsafe { real::readv(fd, parts, length) };
    };
    count(|| {
        // SAFETY: guaranteed by the caller.
        let parts = unsafe { vector(parts, length) }?;
        if parts.len() == 0 {
            return Ok(0);
        }
        let mut wanted = Wanted { flags: 0, cause: false, returned: None };
        Ok(socket.receive(&parts, &mut wanted)?.len)
    })
}

/// Receives as recvmsg does.
///
/// # Safety
/// `message` is NULL, or its pointers are valid for the lengths that it contains.
unsafe fn receive_message(
    socket: &Handle,
    message: *mut msghdr,
    flags: c_int,
) -> Result<usize, Errno> {
    // SAFETY: guaranteed by the caller.
    let message = unsafe { message.as_mut() }.ok_or(Errno::FAULT)?;
    if message.msg_iovlen > PARTS_MAX {
        return Err(Errno::MSGSIZE);
    }
    // SAFETY: guaranteed by the caller.
    let parts = unsafe { Parts::from_c(message.msg_iov, message.msg_iovlen) };
    let mut returned = [0; RETURNED_LEN];
    let cause = !message.msg_control.is_null();
    let mut wanted = Wanted { flags, cause, returned: cause.then_some(&mut returned) };
    let arrival = socket.receive(&parts, &mut wanted)?;
    message.msg_flags = arrival.flags;
    if !message.msg_name.is_null() {
        let (bytes, len) = sender(&arrival);
        // SAFETY: guaranteed by the caller.
        unsafe { give_address(message.msg_name.cast(), &mut message.msg_namelen, &bytes[..len]) }?;
    }
    // SAFETY: guaranteed by the caller.
    if !unsafe { control_data::give(message, &arrival, &returned) } {
        message.msg_flags |= libc::MSG_CTRUNC;
    }
    Ok(arrival.len)
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn recvmsg(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    let Some(socket) = find(fd) else {
        // SAFETY: guaranteed by the caller, and the message is as the kernel left it.
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
    // SAFETY: guaranteed by the caller.
    count(|| unsafe { receive_message(&socket, message, flags) })
}

/// Flag of recvmmsg(2): wait for the first message, but not for the others (sys/socket.h).
const MSG_WAITFORONE: c_int = 0x1_0000;

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    length: c_uint,
    flags: c_int,
    limit: *mut timespec,
) -> c_int {
    let Some(socket) = find(fd) else {
        // SAFETY: guaranteed by the caller.
        return unsafe { real::recvmmsg(fd, messages, length, flags, limit) };
    };
    // SAFETY: NULL or a time, as guaranteed by the caller.
    let limit = unsafe { limit.as_ref() }.map(|limit| {
        let nanos = u32::try_from(limit.tv_nsec).unwrap_or(0);
        Duration::new(u64::try_from(limit.tv_sec).unwrap_or(0), nanos)
    });
    let begin = Instant::now();
    // SAFETY: guaranteed by the caller.
    number(|| unsafe {
        one_by_one(messages, length, |n, message| {
            let waits_for_one = n > 0 && flags & MSG_WAITFORONE != 0;
            let flags =
                flags & !MSG_WAITFORONE | if waits_for_one { libc::MSG_DONTWAIT } else { 0 };
            message.msg_len = receive_message(&socket, &mut message.msg_hdr, flags)? as c_uint;
            // Like the kernel, check the timeout only after a message.
            Ok(limit.is_none_or(|limit| begin.elapsed() < limit))
        })
    })
}
