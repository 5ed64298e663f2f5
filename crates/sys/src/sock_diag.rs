//! Lists all sockets of a network namespace with their peers (sock_diag(7)), without any privilege.
//!
//! The functions apply to the calling thread's namespace; for another one, call them within
//! [`crate::netns::inside`]. Layouts are those of the kernel's `linux/inet_diag.h`, `unix_diag.h`, `vm_sockets_diag.h`
//! and `netlink_diag.h`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::OsError;
use crate::socket::{recv, send};

/// How many times a listing is repeated if the kernel says that it changed meanwhile. The last one is taken as it is.
const ATTEMPTS: usize = 3;
/// Bytes for one part of the kernel's answer; it fills at most 32 KiB.
const PART: usize = 64 * 1024;

const NETLINK_SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_DUMP_INTR: u16 = 0x10;
const HEADER: usize = 16;

/// A UNIX socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixSocket {
    /// Its inode, as in `socket:[INODE]`.
    pub inode: u64,
    /// `stream`, `datagram` or `seqpacket`.
    pub kind: UnixKind,
    /// Whether it listens for connections.
    pub listens: bool,
    /// Its path, or its abstract name after `@`; sockets that a listener accepted have the listener's.
    pub name: Option<String>,
    /// The inode of the socket at the other end.
    pub peer: Option<u64>,
    /// Bytes received and not read yet; of a listening socket, connections not accepted yet.
    pub queued_bytes: Option<u32>,
}

/// The type of a UNIX socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnixKind {
    /// SOCK_STREAM.
    Stream,
    /// SOCK_DGRAM.
    Datagram,
    /// SOCK_SEQPACKET.
    Seqpacket,
}

/// A transport protocol over IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// A socket over IP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InetSocket {
    /// Its protocol.
    pub transport: Transport,
    /// Its inode; 0 if no process holds it any more, as after a close.
    pub inode: u64,
    /// Its own address; IPv4 addresses are never written as IPv6 ones.
    pub local: SocketAddr,
    /// Its peer's address; port 0: none.
    pub remote: SocketAddr,
    /// Whether it listens for connections.
    pub listens: bool,
    /// Its user.
    pub user: u32,
    /// Bytes received and not read yet; of a listening socket, connections not accepted yet.
    pub receive_queue: u32,
    /// Bytes sent and not acknowledged yet.
    pub send_queue: u32,
    /// TCP: bytes that the peer has acknowledged since the connection began.
    pub acked_bytes: Option<u64>,
    /// TCP: bytes received since the connection began.
    pub received_bytes: Option<u64>,
}

/// A vsock socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VsockSocket {
    /// Its inode.
    pub inode: u64,
    /// Context identifier and port of this end.
    pub local: (u32, u32),
    /// Context identifier and port of the other end.
    pub remote: (u32, u32),
    /// Whether it listens for connections.
    pub listens: bool,
}

/// A netlink socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetlinkSocket {
    /// Its inode.
    pub inode: u64,
    /// Its protocol, e.g. 0 for NETLINK_ROUTE.
    pub protocol: u8,
}

/// Lists the UNIX sockets.
///
/// # Errors
/// The kernel cannot list them (`ENOENT`: no module unix_diag), or the process may not use netlink.
pub fn unix_sockets() -> Result<Vec<UnixSocket>, OsError> {
    // UDIAG_SHOW_NAME | UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN.
    let body = request(libc::AF_UNIX as u8, 0, 24, 4, 0x01 | 0x04 | 0x10, 12);
    dump("UNIX sockets", &body, parse_unix)
}

/// Lists the sockets of a protocol over IPv4 and IPv6.
///
/// # Errors
/// The kernel cannot list them (`ENOENT`: it lacks the protocol or the module for it), or the process may not use
/// netlink.
pub fn inet_sockets(transport: Transport) -> Result<Vec<InetSocket>, OsError> {
    let protocol = match transport {
        Transport::Tcp => libc::IPPROTO_TCP,
        Transport::Udp => libc::IPPROTO_UDP,
        Transport::Sctp => libc::IPPROTO_SCTP,
    } as u8;
    let mut found = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut body = request(family as u8, protocol, 56, 4, 0, 0);
        // Ask for INET_DIAG_INFO.
        body[2] = 1 << (2 - 1);
        found.extend(dump("sockets over IP", &body, |message| parse_inet(transport, message))?);
    }
    Ok(found)
}

/// Lists the vsock sockets.
///
/// # Errors
/// As [`unix_sockets`]; the module is vsock_diag.
pub fn vsock_sockets() -> Result<Vec<VsockSocket>, OsError> {
    dump("vsock sockets", &request(libc::AF_VSOCK as u8, 0, 24, 4, 0, 0), parse_vsock)
}

/// Lists the netlink sockets.
///
/// # Errors
/// As [`unix_sockets`]; the module is netlink_diag.
pub fn netlink_sockets() -> Result<Vec<NetlinkSocket>, OsError> {
    /// NDIAG_PROTO_ALL.
    const ALL: u8 = 255;
    dump("netlink sockets", &request(libc::AF_NETLINK as u8, ALL, 20, 20, 0, 0), parse_netlink)
}

/// A request of `len` bytes: family, protocol, the mask of all states at `states_at` if it is inside, and the mask of
/// what to show at `show_at` if it is not 0.
fn request(
    family: u8,
    protocol: u8,
    len: usize,
    states_at: usize,
    show: u32,
    show_at: usize,
) -> Vec<u8> {
    let mut body = vec![0; len];
    (body[0], body[1]) = (family, protocol);
    if states_at + 4 <= len {
        body[states_at..states_at + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
    }
    if show_at > 0 {
        body[show_at..show_at + 4].copy_from_slice(&show.to_ne_bytes());
    }
    body
}

/// Sends a request and collects what `parse` makes of each message of the answer.
fn dump<T>(
    what: &'static str,
    body: &[u8],
    parse: impl Fn(&[u8]) -> Option<T>,
) -> Result<Vec<T>, OsError> {
    let mut found = Vec::new();
    for _ in 0..ATTEMPTS {
        found.clear();
        if dump_once(what, body, |message| found.extend(parse(message)))? {
            break;
        }
    }
    Ok(found)
}

/// As [`dump`], once; false if the list changed while the kernel wrote it.
fn dump_once(
    what: &'static str,
    body: &[u8],
    mut each: impl FnMut(&[u8]),
) -> Result<bool, OsError> {
    let failed = |e: rustix::io::Errno| OsError::new("NETLINK_SOCK_DIAG", what, e);
    let protocol = rustix::net::Protocol::from_raw(
        NETLINK_SOCK_DIAG.unsigned_abs().try_into().expect("the protocol's number is not 0"),
    );
    let socket: OwnedFd = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(protocol),
    )
    .map_err(failed)?;
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend(((HEADER + body.len()) as u32).to_ne_bytes());
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    message.extend([0; 8]);
    message.extend_from_slice(body);
    send(&socket, &message, false).map_err(failed)?;
    let mut buffer = vec![0; PART];
    let mut steady = true;
    loop {
        let len = recv(&socket, &mut buffer, false).map_err(failed)?;
        let mut rest = &buffer[..len];
        if rest.is_empty() {
            return Err(failed(rustix::io::Errno::IO));
        }
        while rest.len() >= HEADER {
            let whole = u32_at(rest, 0).unwrap_or(0) as usize;
            if whole < HEADER || whole > rest.len() {
                return Err(failed(rustix::io::Errno::PROTO));
            }
            let kind = u16::from_ne_bytes([rest[4], rest[5]]);
            let flags = u16::from_ne_bytes([rest[6], rest[7]]);
            steady &= flags & NLM_F_DUMP_INTR == 0;
            match kind {
                NLMSG_DONE => return Ok(steady),
                NLMSG_ERROR => {
                    let code = u32_at(rest, HEADER).unwrap_or(0) as i32;
                    return Err(failed(rustix::io::Errno::from_raw_os_error(-code)));
                }
                _ => each(&rest[HEADER..whole]),
            }
            // Messages begin at multiples of 4 bytes.
            rest = rest.get(whole.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn port_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// The attributes after a fixed part: their numbers and contents.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?);
        let content = rest.get(4..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, content))
    })
}

fn parse_unix(message: &[u8]) -> Option<UnixSocket> {
    /// TCP_LISTEN, which UNIX sockets use, too.
    const LISTEN: u8 = 10;
    let kind = match *message.get(1)? {
        1 => UnixKind::Stream,
        2 => UnixKind::Datagram,
        5 => UnixKind::Seqpacket,
        _ => return None,
    };
    let mut socket = UnixSocket {
        inode: u32_at(message, 4)?.into(),
        kind,
        listens: *message.get(2)? == LISTEN,
        name: None,
        peer: None,
        queued_bytes: None,
    };
    for (number, content) in attributes(message.get(16..)?) {
        match number {
            // UNIX_DIAG_NAME: a leading 0 marks an abstract name.
            0 => {
                let (mark, name) = match content {
                    [0, name @ ..] => ("@", name),
                    path => ("", path.strip_suffix(&[0]).unwrap_or(path)),
                };
                let name = String::from_utf8_lossy(name).replace('\0', "@");
                socket.name = Some(format!("{mark}{name}"));
            }
            // UNIX_DIAG_PEER.
            2 => socket.peer = u32_at(content, 0).filter(|peer| *peer != 0).map(u64::from),
            // UNIX_DIAG_RQLEN: of the receive queue and of the send queue.
            4 => socket.queued_bytes = u32_at(content, 0),
            _ => {}
        }
    }
    Some(socket)
}

fn parse_inet(transport: Transport, message: &[u8]) -> Option<InetSocket> {
    /// TCP_LISTEN, and SCTP's state of the same number.
    const LISTEN: u8 = 10;
    let family = i32::from(*message.first()?);
    let address = |at: usize| -> Option<IpAddr> {
        if family == libc::AF_INET {
            let bytes: [u8; 4] = message.get(at..at + 4)?.try_into().ok()?;
            return Some(Ipv4Addr::from(bytes).into());
        }
        let bytes: [u8; 16] = message.get(at..at + 16)?.try_into().ok()?;
        Some(IpAddr::from(Ipv6Addr::from(bytes)).to_canonical())
    };
    let mut socket = InetSocket {
        transport,
        local: SocketAddr::new(address(8)?, port_at(message, 4)?),
        remote: SocketAddr::new(address(24)?, port_at(message, 6)?),
        listens: transport != Transport::Udp && *message.get(1)? == LISTEN,
        receive_queue: u32_at(message, 56)?,
        send_queue: u32_at(message, 60)?,
        user: u32_at(message, 64)?,
        inode: u32_at(message, 68)?.into(),
        acked_bytes: None,
        received_bytes: None,
    };
    if transport == Transport::Tcp && !socket.listens {
        for (number, content) in attributes(message.get(72..)?) {
            // INET_DIAG_INFO: a tcp_info, with these two fields since Linux 4.1.
            if number == 2 {
                socket.acked_bytes = u64_at(content, 120);
                socket.received_bytes = u64_at(content, 128);
            }
        }
    }
    Some(socket)
}

fn parse_vsock(message: &[u8]) -> Option<VsockSocket> {
    /// The kernel's VSOCK_SS_LISTEN is TCP_LISTEN.
    const LISTEN: u8 = 10;
    let word = |at| u32_at(message, at);
    Some(VsockSocket {
        listens: *message.get(2)? == LISTEN,
        local: (word(4)?, word(8)?),
        remote: (word(12)?, word(16)?),
        inode: word(20)?.into(),
    })
}

fn parse_netlink(message: &[u8]) -> Option<NetlinkSocket> {
    Some(NetlinkSocket { protocol: *message.get(2)?, inode: u32_at(message, 16)?.into() })
}

#[cfg(test)]
#[path = "sock_diag_tests.rs"]
mod tests;
