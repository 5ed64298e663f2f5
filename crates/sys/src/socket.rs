//! Sockets of every kind used here: making, naming, sending, receiving, options.
//!
//! Calls on the measured path return the bare [`Errno`]: EAGAIN is an everyday answer there and must cost nothing.

use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendFlags, Shutdown,
    SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, ipproto,
};

use crate::OsError;

/// A socket address of any family.
pub type Address = SocketAddrAny;

/// What one socket type promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SOCK_STREAM.
    Stream,
    /// SOCK_DGRAM.
    Dgram,
    /// SOCK_SEQPACKET.
    Seqpacket,
    /// SOCK_RDM.
    Rdm,
}

impl Kind {
    fn raw(self) -> SocketType {
        match self {
            Kind::Stream => SocketType::STREAM,
            Kind::Dgram => SocketType::DGRAM,
            Kind::Seqpacket => SocketType::SEQPACKET,
            Kind::Rdm => SocketType::RDM,
        }
    }
}

/// Which protocol of the Internet family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inet {
    /// IPPROTO_TCP.
    Tcp,
    /// IPPROTO_MPTCP.
    Mptcp,
    /// IPPROTO_UDP.
    Udp,
    /// IPPROTO_SCTP, one-to-one style.
    Sctp,
}

fn make(
    family: AddressFamily,
    kind: Kind,
    protocol: Option<Protocol>,
    object: &str,
) -> Result<OwnedFd, OsError> {
    rustix::net::socket_with(family, kind.raw(), SocketFlags::CLOEXEC, protocol)
        .map_err(|e| OsError::new("socket", object, e))
}

/// An AF_UNIX socket.
pub fn unix(kind: Kind) -> Result<OwnedFd, OsError> {
    make(AddressFamily::UNIX, kind, None, "AF_UNIX")
}

/// Two AF_UNIX sockets that are connected to each other.
pub fn unix_pair(kind: Kind) -> Result<(OwnedFd, OwnedFd), OsError> {
    rustix::net::socketpair(AddressFamily::UNIX, kind.raw(), SocketFlags::CLOEXEC, None)
        .map_err(|e| OsError::new("socketpair", "AF_UNIX", e))
}

/// An AF_INET or AF_INET6 socket, after the family of `address`.
pub fn inet(protocol: Inet, address: SocketAddr) -> Result<OwnedFd, OsError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let (kind, number, name) = match protocol {
        Inet::Tcp => (Kind::Stream, ipproto::TCP, "TCP"),
        Inet::Mptcp => (Kind::Stream, ipproto::MPTCP, "MPTCP"),
        Inet::Udp => (Kind::Dgram, ipproto::UDP, "UDP"),
        Inet::Sctp => (Kind::Stream, ipproto::SCTP, "SCTP"),
    };
    make(family, kind, Some(number), name)
}

/// A socket of a family that is known by its number only; the protocol is 0.
pub fn of_family(family: u16, kind: Kind, object: &str) -> Result<OwnedFd, OsError> {
    make(AddressFamily::from_raw(family), kind, None, object)
}

/// An abstract AF_UNIX address; its name vanishes with the last socket that is bound to it.
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

/// An Internet address as the calls here take it.
pub fn inet_address(address: SocketAddr) -> Address {
    address.into()
}

/// The Internet address in `address`, if it is one.
pub fn as_inet(address: &Address) -> Option<SocketAddr> {
    SocketAddr::try_from(address.clone()).ok()
}

/// Gives the socket its own address.
pub fn bind(fd: impl AsFd, address: &Address, object: &str) -> Result<(), OsError> {
    rustix::net::bind(fd, address).map_err(|e| OsError::new("bind", object, e))
}

/// The socket's own address.
pub fn local_address(fd: impl AsFd) -> Result<Address, OsError> {
    rustix::net::getsockname(fd).map_err(|e| OsError::new("getsockname", "", e))
}

/// Connects. A timeout set with [`set_send_timeout`] bounds it: EINPROGRESS or EAGAIN then.
pub fn connect(fd: impl AsFd, address: &Address) -> Result<(), Errno> {
    match rustix::net::connect(&fd, address) {
        // The handshake goes on after a signal; calling connect again would answer EALREADY, so wait for its end.
        Err(Errno::INTR) => {
            crate::poll::wait_ready(&fd, crate::poll::Interest::Writable, None)?;
            sockopt::socket_error(&fd)?
        }
        outcome => outcome,
    }
}

/// Waits for connections, so many of them at once.
pub fn listen(fd: impl AsFd, backlog: i32) -> Result<(), OsError> {
    rustix::net::listen(fd, backlog).map_err(|e| OsError::new("listen", "", e))
}

/// Takes the next connection, waiting for it.
pub fn accept(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    loop {
        match rustix::net::accept_with(&fd, SocketFlags::CLOEXEC) {
            // ECONNABORTED: that one gave up before it was taken; the next may come.
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            done => return done,
        }
    }
}

#[inline]
fn send_flags(nonblocking: bool) -> SendFlags {
    if nonblocking { SendFlags::NOSIGNAL | SendFlags::DONTWAIT } else { SendFlags::NOSIGNAL }
}

/// Sends to the connected peer; never raises SIGPIPE.
#[inline]
pub fn send(fd: impl AsFd, bytes: &[u8], nonblocking: bool) -> Result<usize, Errno> {
    loop {
        match rustix::net::send(&fd, bytes, send_flags(nonblocking)) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// Sends a message to `to`.
#[inline]
pub fn send_to(
    fd: impl AsFd,
    bytes: &[u8],
    to: &Address,
    nonblocking: bool,
) -> Result<usize, Errno> {
    loop {
        match rustix::net::sendto(&fd, bytes, send_flags(nonblocking), to) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// Receives what is there of a stream, at most `buf`; 0 at its end.
#[inline]
pub fn recv(fd: impl AsFd, buf: &mut [u8], nonblocking: bool) -> Result<usize, Errno> {
    let flags = if nonblocking { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
    loop {
        match rustix::net::recv(&fd, &mut *buf, flags) {
            Err(Errno::INTR) => {}
            done => return done.map(|(_, len)| len),
        }
    }
}

/// Receives a piece of a message, at most `buf`, and whether it is the last one (MSG_EOR); a length of 0 is the end of the
/// connection. For protocols that keep messages apart and hand large ones over in pieces.
#[inline]
pub fn recv_piece(
    fd: impl AsFd,
    buf: &mut [u8],
    nonblocking: bool,
) -> Result<(usize, bool), Errno> {
    let flags = if nonblocking { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
    let mut control = RecvAncillaryBuffer::default();
    loop {
        let mut parts = [IoSliceMut::new(buf)];
        match rustix::net::recvmsg(&fd, &mut parts, &mut control, flags) {
            Err(Errno::INTR) => {}
            done => return done.map(|got| (got.bytes, got.flags.contains(ReturnFlags::EOR))),
        }
    }
}

/// Receives one message and tells its full length, which is larger than `buf` if it was cut (MSG_TRUNC).
#[inline]
pub fn recv_message(fd: impl AsFd, buf: &mut [u8], nonblocking: bool) -> Result<usize, Errno> {
    let wait = if nonblocking { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
    loop {
        match rustix::net::recv(&fd, &mut *buf, wait | RecvFlags::TRUNC) {
            Err(Errno::INTR) => {}
            done => return done.map(|(_, len)| len),
        }
    }
}

/// As [`recv_message`], and tells who sent it; `None` where the sender has no address or there was no message.
#[inline]
pub fn recv_message_from(
    fd: impl AsFd,
    buf: &mut [u8],
    nonblocking: bool,
) -> Result<(usize, Option<Address>), Errno> {
    let wait = if nonblocking { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
    loop {
        match rustix::net::recvfrom(&fd, &mut *buf, wait | RecvFlags::TRUNC) {
            Err(Errno::INTR) => {}
            done => return done.map(|(_, len, from)| (len, from)),
        }
    }
}

/// Whether there is a message to receive, be it empty; told by its sender's address, which the end of the data has not.
pub fn has_message(fd: impl AsFd) -> Result<bool, Errno> {
    match rustix::net::recvfrom(&fd, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, len, from)) => Ok(len > 0 || from.is_some()),
        Err(Errno::AGAIN) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Says that nothing more will be sent. Errors are of no interest: the peer may be gone.
pub fn shutdown_send(fd: impl AsFd) {
    let _ = rustix::net::shutdown(fd, Shutdown::Write);
}

/// Says that nothing more will be received. AF_UNIX tells the peer, TCP does not.
pub fn shutdown_recv(fd: impl AsFd) {
    let _ = rustix::net::shutdown(fd, Shutdown::Read);
}

/// An AF_UNIX address in the file system; at most 107 octets.
pub fn path_address(path: &std::path::Path) -> Result<Address, OsError> {
    SocketAddrUnix::new(path)
        .map(Into::into)
        .map_err(|e| OsError::new("sockaddr_un", path.display(), e))
}

/// Who is at the other end of an AF_UNIX connection, as it was when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Process.
    pub pid: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Reads SO_PEERCRED.
pub fn peer_credentials(fd: impl AsFd) -> Result<Credentials, OsError> {
    let cred =
        sockopt::socket_peercred(fd).map_err(|e| OsError::new("getsockopt(SO_PEERCRED)", "", e))?;
    Ok(Credentials {
        pid: cred.pid.as_raw_nonzero().get().unsigned_abs(),
        uid: cred.uid.as_raw(),
        gid: cred.gid.as_raw(),
    })
}

/// The number that the kernel gives to a socket for its life (SO_COOKIE); the same through every copy of the descriptor.
pub fn cookie(fd: impl AsFd) -> Result<u64, OsError> {
    sockopt::socket_cookie(fd).map_err(|e| OsError::new("getsockopt(SO_COOKIE)", "", e))
}

/// Has every call on the descriptor answer EAGAIN instead of waiting.
pub fn set_nonblocking(fd: impl AsFd) -> Result<(), OsError> {
    rustix::io::ioctl_fionbio(fd, true).map_err(|e| OsError::new("ioctl(FIONBIO)", "", e))
}

/// Takes the next connection of a socket that does not wait ([`set_nonblocking`]).
pub fn try_accept(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    loop {
        match rustix::net::accept_with(&fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            done => return done,
        }
    }
}

/// Bounds how long a blocking send or connect may sleep; `None`: for ever. The kernel counts in its own ticks.
pub fn set_send_timeout(fd: impl AsFd, limit: Option<Duration>) -> Result<(), Errno> {
    sockopt::set_socket_timeout(fd, Timeout::Send, limit)
}

/// Asks for SO_SNDBUF and SO_RCVBUF; the kernel doubles and clamps (socket(7)).
pub fn set_buffers(fd: impl AsFd, bytes: usize) -> Result<(), OsError> {
    sockopt::set_socket_send_buffer_size(&fd, bytes)
        .map_err(|e| OsError::new("setsockopt(SO_SNDBUF)", bytes, e))?;
    sockopt::set_socket_recv_buffer_size(&fd, bytes)
        .map_err(|e| OsError::new("setsockopt(SO_RCVBUF)", bytes, e))
}

/// Asks for SO_RCVBUF beyond what the system allows its users (net.core.rmem_max).
///
/// Errors: `EPERM` without CAP_NET_ADMIN in the initial user namespace.
pub fn force_recv_buffer(fd: impl AsFd, bytes: usize) -> Result<(), OsError> {
    sockopt::set_socket_recv_buffer_size_force(&fd, bytes)
        .map_err(|e| OsError::new("setsockopt(SO_RCVBUFFORCE)", bytes, e))
}

/// SO_SNDBUF in bytes as the kernel reports it, doubled.
pub fn send_buffer_bytes(fd: impl AsFd) -> Result<usize, OsError> {
    sockopt::socket_send_buffer_size(fd).map_err(|e| OsError::new("getsockopt(SO_SNDBUF)", "", e))
}

/// SO_RCVBUF in bytes as the kernel reports it, doubled.
pub fn recv_buffer_bytes(fd: impl AsFd) -> Result<usize, OsError> {
    sockopt::socket_recv_buffer_size(fd).map_err(|e| OsError::new("getsockopt(SO_RCVBUF)", "", e))
}

/// Switches Nagle's algorithm off (true) or on.
pub fn set_tcp_nodelay(fd: impl AsFd, on: bool) -> Result<(), OsError> {
    sockopt::set_tcp_nodelay(fd, on).map_err(|e| OsError::new("setsockopt(TCP_NODELAY)", "", e))
}

/// Whether Nagle's algorithm is off.
pub fn tcp_nodelay(fd: impl AsFd) -> Result<bool, OsError> {
    sockopt::tcp_nodelay(fd).map_err(|e| OsError::new("getsockopt(TCP_NODELAY)", "", e))
}

/// RFC 6458 section 8.1.5, linux/sctp.h.
const SCTP_NODELAY: i32 = 3;

/// Switches SCTP's like of Nagle's algorithm off (true) or on.
pub fn set_sctp_nodelay(fd: impl AsFd, on: bool) -> Result<(), OsError> {
    let value = i32::from(on);
    // SAFETY: the pointer and the length describe a live integer, which the kernel copies.
    let outcome = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::IPPROTO_SCTP,
            SCTP_NODELAY,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(OsError::last("setsockopt(SCTP_NODELAY)", on)) }
}

/// Whether it is off.
pub fn sctp_nodelay(fd: impl AsFd) -> Result<bool, OsError> {
    get_int(fd, libc::IPPROTO_SCTP, SCTP_NODELAY)
        .map(|on| on != 0)
        .map_err(|e| OsError::new("getsockopt(SCTP_NODELAY)", "", e))
}

/// Lets a server take its port again while old connections linger in TIME_WAIT.
pub fn set_reuse_address(fd: impl AsFd) -> Result<(), OsError> {
    sockopt::set_socket_reuseaddr(fd, true)
        .map_err(|e| OsError::new("setsockopt(SO_REUSEADDR)", "", e))
}

/// The size of the segments that TCP cuts the stream into (TCP_MAXSEG).
pub fn tcp_max_segment_bytes(fd: impl AsFd) -> Result<u32, OsError> {
    get_int(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG)
        .map_err(|e| OsError::new("getsockopt(TCP_MAXSEG)", "", e))
}

/// Reads an integer option that rustix does not know.
fn get_int(fd: impl AsFd, level: i32, name: i32) -> Result<u32, std::io::Error> {
    let mut value = 0_u32;
    let mut len = size_of::<u32>() as libc::socklen_t;
    // SAFETY: value and len outlive the call, and len says how many bytes value has.
    let outcome = unsafe {
        libc::getsockopt(fd.as_fd().as_raw_fd(), level, name, (&raw mut value).cast(), &mut len)
    };
    if outcome == 0 { Ok(value) } else { Err(std::io::Error::last_os_error()) }
}

/// The largest packet that the path of a connected socket takes whole (IP_MTU, IPV6_MTU).
pub fn ip_mtu_bytes(fd: impl AsFd) -> Result<u32, OsError> {
    let outcome = match sockopt::socket_domain(&fd) {
        Ok(AddressFamily::INET6) => get_int(&fd, libc::IPPROTO_IPV6, libc::IPV6_MTU),
        _ => get_int(&fd, libc::IPPROTO_IP, libc::IP_MTU),
    };
    outcome.map_err(|e| OsError::new("getsockopt(IP_MTU)", "", e))
}

/// Whether a connection made as MPTCP is one, and did not fall back to TCP: MPTCP_INFO answers of the former only.
pub fn mptcp_in_use(fd: impl AsFd) -> Result<bool, OsError> {
    const SOL_MPTCP: i32 = 284;
    const MPTCP_INFO: i32 = 1;
    match get_int(fd, SOL_MPTCP, MPTCP_INFO) {
        Ok(_) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(false),
        Err(e) => Err(OsError::new("getsockopt(MPTCP_INFO)", "", e)),
    }
}
