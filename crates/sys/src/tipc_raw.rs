//! AF_TIPC with addresses as bytes (struct sockaddr_tipc) and everything that a receive call can report.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::{Shutdown, SocketAddrAny, SocketFlags};

use crate::OsError;
use crate::error::last_errno;
use crate::socket::{self, SocketType};

/// The address family AF_TIPC.
pub const FAMILY: u16 = 30;

/// Length in bytes of struct sockaddr_tipc.
pub const ADDRESS_LEN: usize = 16;

pub(crate) const SOL_TIPC: i32 = 271;
pub(crate) const ERRINFO: i32 = 1;
const RETDATA: i32 = 2;
const DESTNAME: i32 = 3;

/// The bytes of a struct sockaddr_tipc, and whether they are an address. If they are not, the kernel gets a length of
/// 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw(pub(crate) [u8; ADDRESS_LEN], pub(crate) bool);

// SAFETY: the closure gets 16 initialised bytes that live until it returns, or a length of 0.
unsafe impl SocketAddrArg for Raw {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        f(self.0.as_ptr().cast(), if self.1 { ADDRESS_LEN as SocketAddrLen } else { 0 })
    }
}

pub(crate) fn bytes(any: &SocketAddrAny) -> Result<[u8; ADDRESS_LEN], Errno> {
    if any.address_family().as_raw() != FAMILY || (any.addr_len() as usize) < ADDRESS_LEN {
        return Err(Errno::AFNOSUPPORT);
    }
    // SAFETY: the storage holds at least 16 initialised bytes, as its length says.
    Ok(unsafe { any.as_ptr().cast::<[u8; ADDRESS_LEN]>().read() })
}

/// Creates an AF_TIPC socket.
///
/// # Errors
/// EAFNOSUPPORT where the kernel does not support TIPC.
pub fn open(kind: SocketType) -> Result<OwnedFd, OsError> {
    socket::of_family(FAMILY, kind, "AF_TIPC")
}

/// Calls bind; `None` removes all bindings.
///
/// # Errors
/// The errno of the call.
pub fn bind(fd: impl AsFd, address: Option<&[u8; ADDRESS_LEN]>) -> Result<(), Errno> {
    let raw = Raw(address.copied().unwrap_or_default(), address.is_some());
    rustix::net::bind(fd, &raw)
}

/// Calls connect; `None` clears the default destination of a connectionless socket (AF_UNSPEC).
///
/// # Errors
/// The errno of the call; EINPROGRESS on a non-blocking descriptor.
pub fn connect(fd: impl AsFd, address: Option<&[u8; ADDRESS_LEN]>) -> Result<(), Errno> {
    rustix::net::connect(fd, &Raw(address.copied().unwrap_or_default(), true))
}

/// Accepts the next connection and returns its socket and the peer's address.
///
/// # Errors
/// The errno of the call; EAGAIN when a non-blocking descriptor has no connection waiting.
pub fn accept(fd: impl AsFd) -> Result<(OwnedFd, [u8; ADDRESS_LEN]), Errno> {
    let (new, from) = rustix::net::acceptfrom_with(fd, SocketFlags::CLOEXEC)?;
    let from = from.as_ref().map_or(Err(Errno::AFNOSUPPORT), bytes)?;
    Ok((new, from))
}

/// Shuts the connection down.
///
/// # Errors
/// ENOTCONN: the socket is not connected.
pub fn shutdown(fd: impl AsFd) -> Result<(), Errno> {
    rustix::net::shutdown(fd, Shutdown::Both)
}

/// The socket's own address.
///
/// # Errors
/// The errno of the call.
pub fn local_address(fd: impl AsFd) -> Result<[u8; ADDRESS_LEN], Errno> {
    bytes(&rustix::net::getsockname(fd)?)
}

/// The address of the connection's other end.
///
/// # Errors
/// ENOTCONN: the socket is not connected.
pub fn peer_address(fd: impl AsFd) -> Result<[u8; ADDRESS_LEN], Errno> {
    rustix::net::getpeername(fd)?.as_ref().map_or(Err(Errno::NOTCONN), bytes)
}

/// Calls sendto, or send if there is no address.
///
/// # Errors
/// The errno of the call.
#[inline]
pub fn send(
    fd: impl AsFd,
    bytes: &[u8],
    to: Option<&[u8; ADDRESS_LEN]>,
    nonblocking: bool,
) -> Result<usize, Errno> {
    let Some(to) = to else { return socket::send(fd, bytes, nonblocking) };
    let (to, flags) = (Raw(*to, true), socket::send_flags(nonblocking));
    retry_on_intr(|| rustix::net::sendto(&fd, bytes, flags, &to))
}

/// The result of a receive call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Number of bytes in the buffer; for a returned message, the part of it that fitted.
    pub len: usize,
    /// The buffer was too small (MSG_TRUNC).
    pub truncated: bool,
    /// A member joined the group, or left if `last` is set (MSG_OOB).
    pub member_event: bool,
    /// The end of a record (MSG_EOR).
    pub last: bool,
    /// The sender's socket address; `None` if the kernel reported none.
    pub from: Option<[u8; ADDRESS_LEN]>,
    /// The sender's service address in the group; `None` if the kernel reported none.
    pub member: Option<[u8; ADDRESS_LEN]>,
    /// TIPC's error code of a returned message or an ended connection; `None` for any other message.
    pub error: Option<u32>,
    /// The service to which the message was sent: type, lower, upper; `None` if the kernel reported none.
    pub destination: Option<[u32; 3]>,
}

/// Calls recvmsg with space for all of TIPC's control data. `peek` leaves the message in the queue.
///
/// # Errors
/// The errno of the call.
pub fn recv_message(
    fd: impl AsFd,
    buf: &mut [u8],
    nonblocking: bool,
    peek: bool,
) -> Result<Arrival, Errno> {
    #[repr(align(8))]
    struct Control([u8; 1_280]);
    let mut control = Control([0; 1_280]);
    let mut names = [0_u8; 2 * ADDRESS_LEN];
    let mut part = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    // SAFETY: msghdr is plain data, and all zeros is a valid value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    let mut flags = if nonblocking { libc::MSG_DONTWAIT } else { 0 };
    if peek {
        flags |= libc::MSG_PEEK;
    }
    let len = loop {
        header.msg_name = names.as_mut_ptr().cast();
        header.msg_namelen = names.len() as libc::socklen_t;
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = control.0.len() as _;
        // SAFETY: every pointer in the header points to a live buffer of the length next to it.
        let len = unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &mut header, flags) };
        match usize::try_from(len) {
            Ok(len) => break len,
            Err(_) if last_errno() == Errno::INTR => {}
            Err(_) => return Err(last_errno()),
        }
    };
    let name = |n: usize| -> Option<[u8; ADDRESS_LEN]> {
        let end = (n + 1) * ADDRESS_LEN;
        (header.msg_namelen as usize >= end)
            .then(|| names[end - ADDRESS_LEN..end].try_into().ok())
            .flatten()
    };
    let mut arrival = Arrival {
        len,
        truncated: header.msg_flags & libc::MSG_TRUNC != 0,
        member_event: header.msg_flags & libc::MSG_OOB != 0,
        last: header.msg_flags & libc::MSG_EOR != 0,
        from: name(0),
        member: name(1),
        ..Arrival::default()
    };
    // SAFETY: the header is as recvmsg left it, and the control buffer it points to is still there.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(&header).as_ref() };
    while let Some(cmsg) = next {
        // SAFETY: the data begins behind the header, inside the control buffer.
        let data = unsafe { libc::CMSG_DATA(cmsg) };
        let begin = data.addr() - control.0.as_ptr().addr();
        let end = (begin + cmsg.cmsg_len.saturating_sub(16)).min(control.0.len());
        let data = &control.0[begin.min(end)..end];
        let word = |n: usize| -> Option<u32> {
            data.get(4 * n..4 * n + 4).and_then(|w| w.try_into().ok()).map(u32::from_ne_bytes)
        };
        match (cmsg.cmsg_level, cmsg.cmsg_type) {
            (SOL_TIPC, ERRINFO) => arrival.error = word(0),
            (SOL_TIPC, RETDATA) => {
                arrival.len = data.len().min(buf.len());
                buf[..arrival.len].copy_from_slice(&data[..arrival.len]);
            }
            (SOL_TIPC, DESTNAME) => {
                if let (Some(a), Some(b), Some(c)) = (word(0), word(1), word(2)) {
                    arrival.destination = Some([a, b, c]);
                }
            }
            _ => {}
        }
        // SAFETY: as for the first.
        next = unsafe { libc::CMSG_NXTHDR(&header, cmsg).as_ref() };
    }
    Ok(arrival)
}

/// Sets an option of level SOL_TIPC; `None` for options without a value.
///
/// # Errors
/// The errno of the call.
pub fn set_option(fd: impl AsFd, name: u32, value: Option<&[u8]>) -> Result<(), Errno> {
    socket::set_raw(fd, SOL_TIPC, name.cast_signed(), value)
}

/// Reads an option of level SOL_TIPC.
///
/// # Errors
/// The errno of the call.
pub fn option(fd: impl AsFd, name: u32) -> Result<u32, Errno> {
    socket::get_int(fd, SOL_TIPC, name.cast_signed())
}
