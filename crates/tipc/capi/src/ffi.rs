//! The functions that the library exports.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;

use crossway_tipc_client::address::{Address, SocketAddress};
use crossway_tipc_client::{Backend, Errno, Message, Socket, SocketKind};

use crate::layout::{CtipcAddress, CtipcMessage, CtipcSocket, count, done, negative, patience};

thread_local! {
    static WHY: RefCell<CString> = RefCell::default();
}

/// AF_UNSPEC: no address.
const UNSPECIFIED: u16 = 0;

/// The address behind a pointer; `None` for NULL or an address of the family AF_UNSPEC.
///
/// # Safety
/// `pointer` is NULL or points to an address.
unsafe fn address(pointer: *const CtipcAddress) -> Result<Option<Address>, Errno> {
    // SAFETY: guaranteed by the caller.
    match unsafe { pointer.as_ref() } {
        None => Ok(None),
        Some(address) if address.family == UNSPECIFIED => Ok(None),
        Some(address) => Address::decode(&address.bytes()).map(Some).map_err(|_| Errno::INVAL),
    }
}

/// The socket behind a pointer.
///
/// # Safety
/// `pointer` is NULL, or comes from `ctipc_open` or `ctipc_accept` and has not been passed to `ctipc_close` yet.
unsafe fn socket<'a>(pointer: *const CtipcSocket) -> Result<&'a Socket, Errno> {
    // SAFETY: guaranteed by the caller.
    unsafe { pointer.as_ref() }.map(|s| &s.0).ok_or(Errno::BADF)
}

/// Opens a socket of kind `kind` and stores it in `*out`.
///
/// # Safety
/// `path` is NULL or a NUL-terminated string; `out` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ctipc_open(
    kind: c_int,
    path: *const c_char,
    out: *mut *mut CtipcSocket,
) -> c_int {
    let Some(kind) = u32::try_from(kind).ok().and_then(SocketKind::from_number) else {
        WHY.set(
            c"invalid kind of socket: use CTIPC_STREAM, CTIPC_DGRAM, CTIPC_RDM or CTIPC_SEQPACKET"
                .into(),
        );
        return negative(Errno::PROTOTYPE);
    };
    if out.is_null() {
        WHY.set(c"no pointer for the new socket: `out` is NULL".into());
        return negative(Errno::FAULT);
    }
    let backend = if path.is_null() {
        Backend::Automatic
    } else {
        // SAFETY: a NUL-terminated string, as guaranteed by the caller.
        match unsafe { CStr::from_ptr(path) }.to_bytes() {
            b"kernel" => Backend::Kernel,
            path => Backend::Node(OsStr::from_bytes(path).into()),
        }
    };
    match Socket::open_on(&backend, kind) {
        Ok(socket) => {
            // SAFETY: writable, as guaranteed by the caller.
            unsafe { out.write(Box::into_raw(Box::new(CtipcSocket(socket)))) };
            0
        }
        Err(error) => {
            let why = CString::new(error.to_string().replace('\0', " ")).unwrap_or_default();
            WHY.set(why);
            negative(error.errno())
        }
    }
}

/// Returns the reason why the last `ctipc_open` of this thread failed; valid until this thread's next `ctipc_open`.
#[unsafe(no_mangle)]
pub extern "C" fn ctipc_error() -> *const c_char {
    WHY.with_borrow(|why| why.as_ptr())
}

/// Closes a socket.
///
/// # Safety
/// `s` is NULL, or a socket that is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ctipc_close(s: *mut CtipcSocket) {
    if !s.is_null() {
        // SAFETY: created by Box::into_raw and closed only once, as guaranteed by the caller.
        drop(unsafe { Box::from_raw(s) });
    }
}

/// Returns the socket's file descriptor; use it for polling only.
///
/// # Safety
/// `s` is NULL or a socket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ctipc_fd(s: *const CtipcSocket) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { socket(s) }.map_or_else(negative, |s| s.as_fd().as_raw_fd())
}

/// Binds the socket; a negative scope withdraws the binding, NULL withdraws all bindings.
///
/// # Safety
/// `s` is NULL or a socket, `address` NULL or an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ctipc_bind(s: *const CtipcSocket, address: *const CtipcAddress) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (s, address) = unsafe { (socket(s), address.as_ref()) };
    done(s.and_then(|s| match address {
        None => s.unbind_all(),
        Some(address) => s.bind_raw(&address.bytes()),
    }))
}

/// Makes the socket accept connections.
///
/// # Safety
/// `s` is NULL or a socket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ctipc_listen(s: *const CtipcSocket) -> c_int {
    // SAFETY: guaranteed by the caller.
    done(unsafe { socket(s) }.and_then(Socket::listen))
}

/// Connects the socket; on a connectionless socket, sets the default destination (NULL clears it).
///
/// # Safety
/// `s` is NULL or a socket, `to` NULL or an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ctipc_connect(
    s: *const CtipcSocket,
    to: *const CtipcAddress,
    timeout_ms: i64,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (s, to) = unsafe { (socket(s), address(to)) };
    done(s.and_then(|s| s.connect(to?, patience(timeout_ms))))
}

/// Accepts a connection; stores its socket in `*out` and, unless `from` is NULL, the peer's address in `*from`.
///
/// # Safety
/// `s` is NULL or a socket; `out` is writable; `from` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ctipc_accept(
    s: *const CtipcSocket,
    out: *mut *mut CtipcSocket,
    from: *mut CtipcAddress,
    timeout_ms: i64,
) -> c_int {
    if out.is_null() {
        return negative(Errno::FAULT);
    }
    // SAFETY: guaranteed by the caller.
    match unsafe { socket(s) }.and_then(|s| s.accept(patience(timeout_ms))) {
        Ok((new, peer)) => {
            // SAFETY: both are writable, as guaranteed by the caller.
            unsafe {
                out.write(Box::into_raw(Box::new(CtipcSocket(new))));
                if !from.is_null() {
                    from.write(CtipcAddress::of(peer));
                }
            }
            0
        }
        Err(errno) => negative(errno),
    }
}

/// Sends a message, or part of a stream; returns the number of bytes accepted.
///
/// # Safety
/// `s` is NULL or a socket, `data` has `len` bytes, `to` is NULL or an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ctipc_send(
    s: *const CtipcSocket,
    data: *const c_void,
    len: usize,
    to: *const CtipcAddress,
    timeout_ms: i64,
) -> i64 {
    let data = if len == 0 {
        &[]
    } else if data.is_null() {
        return negative(Errno::FAULT).into();
    } else {
        // SAFETY: this many bytes, as guaranteed by the caller.
        unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) }
    };
    // SAFETY: guaranteed by the caller.
    let (s, to) = unsafe { (socket(s), address(to)) };
    count(s.and_then(|s| s.send(data, to?, patience(timeout_ms))))
}

/// Receives a message or stream data. If `message` is NULL, the end of a connection is reported as by recv(2).
///
/// # Safety
/// `s` is NULL or a socket, `data` has room for `len` bytes, `message` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ctipc_recv(
    s: *const CtipcSocket,
    data: *mut c_void,
    len: usize,
    message: *mut CtipcMessage,
    timeout_ms: i64,
) -> i64 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        receive(s, data, len, message, |s, buf| match message.is_null() {
            true => s.recv(buf, patience(timeout_ms)).map(Got::Bytes),
            false => s.recv_message(buf, patience(timeout_ms)).map(Got::Message),
        })
    }
}

/// Like ctipc_recv with a `message`, but leaves the data in the queue, and `message` may be NULL.
///
/// # Safety
/// The same as for [`ctipc_recv`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ctipc_peek(
    s: *const CtipcSocket,
    data: *mut c_void,
    len: usize,
    message: *mut CtipcMessage,
    timeout_ms: i64,
) -> i64 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        receive(s, data, len, message, |s, buf| s.peek(buf, patience(timeout_ms)).map(Got::Message))
    }
}

/// The result of one of the Rust library's receive calls: a number of bytes, or a message.
enum Got {
    Bytes(usize),
    Message(Message),
}

/// Makes a receive call and writes the details to `message`. Returns the number of bytes or a negative errno.
///
/// # Safety
/// The same as for [`ctipc_recv`].
unsafe fn receive(
    s: *const CtipcSocket,
    data: *mut c_void,
    len: usize,
    message: *mut CtipcMessage,
    call: impl FnOnce(&Socket, &mut [u8]) -> Result<Got, Errno>,
) -> i64 {
    if data.is_null() || len == 0 {
        return negative(Errno::INVAL).into();
    }
    // SAFETY: there is room for this many bytes, as guaranteed by the caller; they are initialised so that a reference to
    // them may exist.
    let buf = unsafe {
        data.cast::<u8>().write_bytes(0, len);
        std::slice::from_raw_parts_mut(data.cast::<u8>(), len)
    };
    // SAFETY: guaranteed by the caller.
    count(unsafe { socket(s) }.and_then(|s| call(s, buf)).map(|got| match got {
        Got::Bytes(len) => len,
        Got::Message(got) => {
            if !message.is_null() {
                // SAFETY: writable, as guaranteed by the caller.
                unsafe { message.write(CtipcMessage::of(&got)) };
            }
            got.len
        }
    }))
}

/// Shuts the connection down: the peer still reads the data in flight, then the end of the connection.
///
/// # Safety
/// `s` is NULL or a socket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ctipc_shutdown(s: *const CtipcSocket) -> c_int {
    // SAFETY: guaranteed by the caller.
    done(unsafe { socket(s) }.and_then(Socket::shutdown))
}

/// Returns the socket's own address.
///
/// # Safety
/// `s` is NULL or a socket; `out` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ctipc_getsockname(s: *const CtipcSocket, out: *mut CtipcAddress) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { name(s, out, Socket::local_address) }
}

/// Returns the address of the connection's other end.
///
/// # Safety
/// `s` is NULL or a socket; `out` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ctipc_getpeername(s: *const CtipcSocket, out: *mut CtipcAddress) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { name(s, out, Socket::peer_address) }
}

/// Writes the socket address that `ask` returns to `*out`.
///
/// # Safety
/// `s` is NULL or a socket; `out` is NULL or writable.
unsafe fn name(
    s: *const CtipcSocket,
    out: *mut CtipcAddress,
    ask: fn(&Socket) -> Result<SocketAddress, Errno>,
) -> c_int {
    if out.is_null() {
        return negative(Errno::FAULT);
    }
    // SAFETY: guaranteed by the caller.
    done(unsafe { socket(s) }.and_then(ask).map(|address| unsafe {
        out.write(CtipcAddress::of(address));
    }))
}

/// Sets an option of level SOL_TIPC.
///
/// # Safety
/// `s` is NULL or a socket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ctipc_setsockopt(s: *const CtipcSocket, name: u32, value: u32) -> c_int {
    // SAFETY: guaranteed by the caller.
    done(unsafe { socket(s) }.and_then(|s| s.set_option_by_number(name, value)))
}

/// Reads an option of level SOL_TIPC.
///
/// # Safety
/// `s` is NULL or a socket; `value` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ctipc_getsockopt(
    s: *const CtipcSocket,
    name: u32,
    value: *mut u32,
) -> c_int {
    if value.is_null() {
        return negative(Errno::FAULT);
    }
    // SAFETY: guaranteed by the caller.
    done(
        unsafe { socket(s) }
            .and_then(|s| s.option_by_number(name))
            .map(|got| unsafe { value.write(got) }),
    )
}

/// Joins a group; `flags` combines CTIPC_LOOPBACK and CTIPC_MEMBER_EVENTS, or is 0.
///
/// # Safety
/// `s` is NULL or a socket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ctipc_join(
    s: *const CtipcSocket,
    group: u32,
    instance: u32,
    scope: u32,
    flags: u32,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    done(unsafe { socket(s) }.and_then(|s| s.join_by_request([group, instance, scope, flags])))
}

/// Leaves the group.
///
/// # Safety
/// `s` is NULL or a socket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ctipc_leave(s: *const CtipcSocket) -> c_int {
    // SAFETY: guaranteed by the caller.
    done(unsafe { socket(s) }.and_then(Socket::leave))
}

/// Returns the error of a failed non-blocking connect and clears it (SO_ERROR); 0 if there is none.
///
/// # Safety
/// `s` is NULL or a socket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ctipc_take_error(s: *const CtipcSocket) -> c_int {
    // SAFETY: guaranteed by the caller.
    done(unsafe { socket(s) }.and_then(|s| s.take_error().map_or(Ok(()), Err)))
}
