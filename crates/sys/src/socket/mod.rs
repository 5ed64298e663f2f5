//! Sockets of every kind used here: creating, naming, sending, receiving, options.
//!
//! Calls on the measured path return the bare [`Errno`]: EAGAIN is common there and must be cheap.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::sockopt::{self};
use rustix::net::{
    AddressFamily, Protocol, Shutdown, SocketAddrAny, SocketAddrUnix, SocketFlags, ipproto,
};

use crate::OsError;

pub mod internet;
mod option;
mod transfer;
pub mod twin;

pub use option::*;
pub use transfer::*;

/// A socket address of any family.
pub type Address = SocketAddrAny;

/// The type of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketType {
    /// SOCK_STREAM: a connection that carries bytes in order, without message boundaries.
    Stream,
    /// SOCK_DGRAM: single messages, without a connection.
    Dgram,
    /// SOCK_SEQPACKET: a connection that carries messages in order.
    Seqpacket,
    /// SOCK_RDM: single messages that the network does not lose; of the families used here, only AF_TIPC supports it.
    Rdm,
}

impl SocketType {
    fn raw(self) -> rustix::net::SocketType {
        match self {
            SocketType::Stream => rustix::net::SocketType::STREAM,
            SocketType::Dgram => rustix::net::SocketType::DGRAM,
            SocketType::Seqpacket => rustix::net::SocketType::SEQPACKET,
            SocketType::Rdm => rustix::net::SocketType::RDM,
        }
    }
}

/// The protocol of an Internet socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inet {
    /// IPPROTO_TCP, SOCK_STREAM.
    Tcp,
    /// IPPROTO_MPTCP, SOCK_STREAM.
    Mptcp,
    /// IPPROTO_UDP, SOCK_DGRAM.
    Udp,
    /// IPPROTO_UDPLITE, SOCK_DGRAM: UDP with a checksum over a part of each message (RFC 3828).
    UdpLite,
    /// IPPROTO_SCTP, SOCK_STREAM: the one-to-one style of RFC 6458.
    Sctp,
    /// AF_SMC, with Internet addresses.
    Smc,
}

/// AF_SMC (`linux/socket.h`), which is missing in the headers of some C libraries.
const AF_SMC: u16 = 43;
/// AF_SMC's protocol number over IPv6; over IPv4 it is 0.
const SMCPROTO_SMC6: u32 = 1;

fn make(
    family: AddressFamily,
    kind: SocketType,
    protocol: Option<Protocol>,
    object: &str,
) -> Result<OwnedFd, OsError> {
    rustix::net::socket_with(family, kind.raw(), SocketFlags::CLOEXEC, protocol)
        .map_err(|e| OsError::new("socket", object, e))
}

/// Creates an AF_UNIX socket.
pub fn unix(kind: SocketType) -> Result<OwnedFd, OsError> {
    make(AddressFamily::UNIX, kind, None, "AF_UNIX")
}

/// Creates two AF_UNIX sockets that are connected to each other.
pub fn unix_pair(kind: SocketType) -> Result<(OwnedFd, OwnedFd), OsError> {
    rustix::net::socketpair(AddressFamily::UNIX, kind.raw(), SocketFlags::CLOEXEC, None)
        .map_err(|e| OsError::new("socketpair", "AF_UNIX", e))
}

/// Creates an AF_INET or AF_INET6 socket, according to the family of `address`.
pub fn inet(protocol: Inet, address: SocketAddr) -> Result<OwnedFd, OsError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let (kind, number, name) = match protocol {
        Inet::Tcp => (SocketType::Stream, ipproto::TCP, "TCP"),
        Inet::Mptcp => (SocketType::Stream, ipproto::MPTCP, "MPTCP"),
        Inet::Udp => (SocketType::Dgram, ipproto::UDP, "UDP"),
        Inet::UdpLite => (SocketType::Dgram, ipproto::UDPLITE, "UDP-Lite"),
        Inet::Sctp => (SocketType::Stream, ipproto::SCTP, "SCTP"),
        Inet::Smc => {
            let six = NonZeroU32::new(SMCPROTO_SMC6).map(Protocol::from_raw);
            let protocol = if address.is_ipv4() { None } else { six };
            return make(AddressFamily::from_raw(AF_SMC), SocketType::Stream, protocol, "AF_SMC");
        }
    };
    make(family, kind, Some(number), name)
}

/// Creates a socket of a family given by its number; the protocol is 0. `object` describes the socket in errors.
pub fn of_family(family: u16, kind: SocketType, object: &str) -> Result<OwnedFd, OsError> {
    make(AddressFamily::from_raw(family), kind, None, object)
}

/// Creates an AF_NETLINK socket for messages between programs (NETLINK_USERSOCK).
pub fn netlink() -> Result<OwnedFd, OsError> {
    let protocol = Some(rustix::net::netlink::USERSOCK);
    make(AddressFamily::NETLINK, SocketType::Dgram, protocol, "AF_NETLINK")
}

/// The AF_NETLINK address with this number; to bind to 0 lets the kernel choose a free one.
pub fn netlink_address(port: u32) -> Address {
    rustix::net::netlink::SocketAddrNetlink::new(port, 0).into()
}

/// The number in an AF_NETLINK address, if it is one.
pub fn netlink_port(address: &Address) -> Option<u32> {
    let address = rustix::net::netlink::SocketAddrNetlink::try_from(address.clone()).ok()?;
    Some(address.pid())
}

/// An abstract AF_UNIX address; the name disappears with the last socket that is bound to it.
pub fn abstract_address(name: &[u8]) -> Result<Address, OsError> {
    SocketAddrUnix::new_abstract_name(name)
        .map(Into::into)
        .map_err(|e| OsError::new("sockaddr_un", String::from_utf8_lossy(name), e))
}

/// The address without a name: binding to it lets the kernel choose a free abstract one (autobind, unix(7)).
pub fn unnamed_address() -> Address {
    SocketAddrUnix::new_unnamed().into()
}

/// The abstract name in `address`, if it has one.
pub fn abstract_name(address: &Address) -> Option<Vec<u8>> {
    let unix = SocketAddrUnix::try_from(address.clone()).ok()?;
    unix.abstract_name().map(<[u8]>::to_vec)
}

/// An AF_UNIX address in the file system; the path has at most 107 bytes.
pub fn path_address(path: &std::path::Path) -> Result<Address, OsError> {
    SocketAddrUnix::new(path)
        .map(Into::into)
        .map_err(|e| OsError::new("sockaddr_un", path.display(), e))
}

/// Converts an Internet address to the type used here.
pub fn inet_address(address: SocketAddr) -> Address {
    address.into()
}

/// The Internet address in `address`, if it is one.
pub fn as_inet(address: &Address) -> Option<SocketAddr> {
    SocketAddr::try_from(address.clone()).ok()
}

/// Binds the socket to an address; `object` describes the address in errors.
pub fn bind(fd: impl AsFd, address: &Address, object: &str) -> Result<(), OsError> {
    rustix::net::bind(fd, address).map_err(|e| OsError::new("bind", object, e))
}

/// The socket's own address.
pub fn local_address(fd: impl AsFd) -> Result<Address, OsError> {
    rustix::net::getsockname(fd).map_err(|e| OsError::new("getsockname", "", e))
}

/// The address of the socket's peer.
pub fn peer_address(fd: impl AsFd) -> Result<Address, OsError> {
    rustix::net::getpeername(fd)
        .map_err(|e| OsError::new("getpeername", "", e))?
        .ok_or_else(|| OsError::new("getpeername", "", Errno::NOTCONN))
}

/// Connects. A timeout set with [`set_send_timeout`] limits the time; the error is then EINPROGRESS or EAGAIN.
pub fn connect(fd: impl AsFd, address: &Address) -> Result<(), Errno> {
    match rustix::net::connect(&fd, address) {
        // The handshake continues after a signal. Calling connect again would return EALREADY, so wait for its
        // end.
        Err(Errno::INTR) => {
            let limit = sockopt::socket_timeout(&fd, sockopt::Timeout::Send)?;
            let until = limit.map(|limit| Instant::now() + limit);
            if !crate::poll::wait_ready(&fd, crate::poll::Interest::Writable, until)? {
                return Err(Errno::INPROGRESS);
            }
            sockopt::socket_error(&fd)?
        }
        outcome => outcome,
    }
}

/// Starts to listen for connections, with a queue of at most `backlog` connections.
pub fn listen(fd: impl AsFd, backlog: i32) -> Result<(), OsError> {
    rustix::net::listen(fd, backlog).map_err(|e| OsError::new("listen", "", e))
}

/// Accepts the next connection, waiting for it.
pub fn accept(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    loop {
        match rustix::net::accept_with(&fd, SocketFlags::CLOEXEC) {
            // ECONNABORTED: that client gave up before it was accepted; wait for the next one.
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            done => return done,
        }
    }
}

/// Accepts the next connection of a non-blocking socket ([`set_nonblocking`]); EAGAIN if there is none. The accepted
/// socket is non-blocking, too.
pub fn try_accept(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    loop {
        match rustix::net::accept_with(&fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            done => return done,
        }
    }
}

/// Shuts down sending. Errors are ignored: the peer may already have closed.
pub fn shutdown_send(fd: impl AsFd) {
    let _ = rustix::net::shutdown(fd, Shutdown::Write);
}

/// Shuts down receiving. With AF_UNIX the peer notices, with TCP it does not.
pub fn shutdown_recv(fd: impl AsFd) {
    let _ = rustix::net::shutdown(fd, Shutdown::Read);
}
