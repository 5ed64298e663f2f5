//! Calls that create, name, connect and end sockets.

use std::ffi::c_int;

use crossway_sys::Errno;
use crossway_sys::socket::set_waiting;
use crossway_tipc_client::address::{Address, ENCODED_LEN, SocketAddress};
use crossway_tipc_client::{SocketKind, protocol};
use libc::{sockaddr, socklen_t};

use super::outcome::{done, number};
use super::{borrow, close_really, lent, real, without_signals};
use crate::request;
use crate::socket::Handle;
use crate::table::{self, find};

/// The struct sockaddr_tipc behind a pointer; `None` if the pointer is NULL or `len` is too small.
///
/// # Safety
/// `pointer` is NULL, or points to `len` bytes that are valid for the duration of the call.
pub(super) unsafe fn address<'a>(
    pointer: *const sockaddr,
    len: socklen_t,
) -> Option<&'a [u8; ENCODED_LEN]> {
    if pointer.is_null() || (len as usize) < ENCODED_LEN {
        return None;
    }
    // SAFETY: at least as many bytes, as guaranteed by the caller.
    Some(unsafe { &*pointer.cast() })
}

/// Writes as much of an address as fits to the program's buffer, and the full length of the address to `len`. Fails
/// with EFAULT if a pointer is NULL, with EINVAL if `len` is negative as a C int.
///
/// # Safety
/// Both pointers are NULL or writable; the buffer is as long as `len` says.
pub(super) unsafe fn give_address(
    pointer: *mut sockaddr,
    len: *mut socklen_t,
    bytes: &[u8],
) -> Result<(), Errno> {
    if pointer.is_null() || len.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        let room = c_int::try_from(*len).map_err(|_| Errno::INVAL)?.unsigned_abs() as usize;
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer.cast(), room.min(bytes.len()));
        *len = bytes.len() as socklen_t;
    }
    Ok(())
}

fn encoded(socket: SocketAddress) -> [u8; ENCODED_LEN] {
    Address::Socket(socket).encode()
}

/// Registers a new socket and sets the requested flags (SOCK_NONBLOCK, SOCK_CLOEXEC) of its descriptor. Returns the
/// descriptor; if it cannot be registered, closes it and fails with EMFILE.
fn noted(socket: Handle, flags: c_int) -> Result<c_int, Errno> {
    let fd = borrow(socket.fd).ok_or(Errno::BADF)?;
    if flags & libc::SOCK_NONBLOCK != 0 {
        let _ = set_waiting(fd, false);
    }
    if flags & libc::SOCK_CLOEXEC == 0 {
        // SAFETY: F_SETFD takes an integer.
        unsafe { real::fcntl(socket.fd, libc::F_SETFD, 0) };
    }
    if without_signals(|| table::put(&socket)) {
        Ok(socket.fd)
    } else {
        close_really(socket.fd);
        Err(Errno::MFILE)
    }
}

const FLAGS: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
/// The kernel's SOCK_TYPE_MASK. `TYPE_END` is the largest socket type plus 1.
const TYPE_MASK: c_int = 0xf;
const TYPE_END: c_int = 11;

/// Decodes the arguments of socket(2): returns the kind of socket and the flags.
fn wanted(kind: c_int, protocol: c_int) -> Result<(SocketKind, c_int), Errno> {
    let (number, flags) = (kind & TYPE_MASK, kind & !TYPE_MASK);
    if flags & !FLAGS != 0 || number >= TYPE_END {
        return Err(Errno::INVAL);
    }
    if protocol != 0 {
        return Err(Errno::PROTONOSUPPORT);
    }
    let kind = SocketKind::from_number(number.unsigned_abs()).ok_or(Errno::PROTOTYPE)?;
    Ok((kind, flags))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn socket(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
) -> c_int {
    if domain != libc::AF_TIPC {
        // SAFETY: three integers.
        return unsafe { real::socket(domain, kind, protocol) };
    }
    number(|| {
        let (kind, flags) = wanted(kind, protocol)?;
        noted(request::open(kind)?, flags)
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn socketpair(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    pair: *mut c_int,
) -> c_int {
    if domain != libc::AF_TIPC {
        // SAFETY: guaranteed by the caller.
        return unsafe { real::socketpair(domain, kind, protocol, pair) };
    }
    done(|| {
        let (kind, flags) = wanted(kind, protocol)?;
        lent::writable(pair.cast(), 2 * size_of::<c_int>())?;
        let (one, other) = connected_pair(kind)?;
        let (one, other) = (noted(one, flags)?, noted(other, flags)?);
        // SAFETY: two integers, checked to be writable at the beginning.
        unsafe {
            pair.write(one);
            pair.add(1).write(other);
        }
        Ok(())
    })
}

/// Returns the result, and closes the sockets if it is an error.
fn keep_or_close<T>(outcome: Result<T, Errno>, sockets: &[&Handle]) -> Result<T, Errno> {
    if outcome.is_err() {
        sockets.iter().for_each(|socket| close_really(socket.fd));
    }
    outcome
}

fn connected_pair(kind: SocketKind) -> Result<(Handle, Handle), Errno> {
    let one = request::open(kind)?;
    if !kind.is_connected_kind() {
        let other = keep_or_close(request::open(kind), &[&one])?;
        let destined = |socket: &Handle, peer: &Handle| {
            socket.pair_with(peer.report()?.local);
            Ok(())
        };
        let outcome = destined(&one, &other).and_then(|()| destined(&other, &one));
        keep_or_close(outcome, &[&one, &other])?;
        return Ok((one, other));
    }
    let listener = keep_or_close(request::open(kind), &[&one])?;
    let accepted = || {
        listener.listen()?;
        let to = encoded(listener.report()?.local);
        one.request_connection(&to, &super::Parts::default())?;
        let (other, _) = listener.accept()?;
        keep_or_close(one.await_connection(), &[&other])?;
        Ok(other)
    };
    let outcome = keep_or_close(accepted(), &[&one]);
    close_really(listener.fd);
    Ok((one, outcome?))
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn bind(
    fd: c_int,
    to: *const sockaddr,
    len: socklen_t,
) -> c_int {
    let Some(socket) = find(fd) else {
        // SAFETY: guaranteed by the caller.
        return unsafe { real::bind(fd, to, len) };
    };
    done(|| {
        if len == 0 {
            return socket.unbind_all();
        }
        lent::readable(to.cast(), ENCODED_LEN.min(len as usize))?;
        // SAFETY: guaranteed by the caller.
        socket.bind(*unsafe { address(to, len) }.ok_or(Errno::INVAL)?)
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn connect(
    fd: c_int,
    to: *const sockaddr,
    len: socklen_t,
) -> c_int {
    let Some(socket) = find(fd) else {
        // SAFETY: guaranteed by the caller.
        return unsafe { real::connect(fd, to, len) };
    };
    done(|| {
        if len as usize != ENCODED_LEN {
            return Err(Errno::INVAL);
        }
        lent::readable(to.cast(), ENCODED_LEN)?;
        // SAFETY: guaranteed by the caller.
        socket.connect(unsafe { address(to, len) }.ok_or(Errno::FAULT)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { connect(fd, to, len) }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn listen(fd: c_int, backlog: c_int) -> c_int {
    match find(fd) {
        Some(socket) => done(|| socket.listen()),
        // SAFETY: two integers.
        None => unsafe { real::listen(fd, backlog) },
    }
}

/// Accepts a connection and writes the peer's address to `from`, unless that is NULL.
///
/// # Safety
/// `from` and `len` are NULL or writable; the buffer is as long as `len` says.
unsafe fn accept_from(
    socket: &Handle,
    from: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    number(|| {
        if flags & !FLAGS != 0 {
            return Err(Errno::INVAL);
        }
        let (new, peer) = socket.accept()?;
        if !from.is_null() {
            // SAFETY: guaranteed by the caller.
            let given = lent::answerable(from.cast(), len, ENCODED_LEN)
                .and_then(|()| unsafe { give_address(from, len, &encoded(peer)) });
            keep_or_close(given, &[&new])?;
        }
        noted(new, flags)
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn accept(
    fd: c_int,
    from: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    match find(fd) {
        // SAFETY: guaranteed by the caller.
        Some(socket) => unsafe { accept_from(&socket, from, len, 0) },
        // SAFETY: guaranteed by the caller.
        None => unsafe { real::accept(fd, from, len) },
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    from: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    match find(fd) {
        // SAFETY: guaranteed by the caller.
        Some(socket) => unsafe { accept_from(&socket, from, len, flags) },
        // SAFETY: guaranteed by the caller.
        None => unsafe { real::accept4(fd, from, len, flags) },
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn getsockname(
    fd: c_int,
    out: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let Some(socket) = find(fd) else {
        // SAFETY: guaranteed by the caller.
        return unsafe { real::getsockname(fd, out, len) };
    };
    done(|| {
        lent::answerable(out.cast(), len, ENCODED_LEN)?;
        // SAFETY: guaranteed by the caller.
        unsafe { give_address(out, len, &encoded(socket.report()?.local)) }
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn getpeername(
    fd: c_int,
    out: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let Some(socket) = find(fd) else {
        // SAFETY: guaranteed by the caller.
        return unsafe { real::getpeername(fd, out, len) };
    };
    done(|| {
        let peer = encoded(socket.peer_name()?);
        lent::answerable(out.cast(), len, ENCODED_LEN)?;
        // SAFETY: guaranteed by the caller.
        unsafe { give_address(out, len, &peer) }
    })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    match find(fd) {
        Some(_) if how != libc::SHUT_RDWR => done(|| Err(Errno::INVAL)),
        Some(socket) => done(|| socket.shutdown()),
        // SAFETY: two integers.
        None => unsafe { real::shutdown(fd, how) },
    }
}

const _: () = assert!(protocol::record::SEND_HEADER_LEN == ENCODED_LEN);
