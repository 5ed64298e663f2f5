//! AF_TIPC as implemented by the kernel: addresses, options, and a receive call that reports returned messages.
//!
//! The numbers are from linux/tipc.h.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd};
use std::str::FromStr;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::SocketAddrAny;
use rustix::net::addr::SocketAddrArg;

use crate::poll::{Interest, wait_ready};
use crate::tipc_option::SocketOption;
pub use crate::tipc_raw::FAMILY;
use crate::tipc_raw::{ADDRESS_LEN, ERRINFO, Raw, SOL_TIPC};
use crate::{OsError, socket, tipc_raw};

/// Largest message in bytes for every socket type except streams (TIPC_MAX_USER_MSG_SIZE).
pub const MAX_MESSAGE_BYTES: usize = 66_000;

const SERVICE_RANGE: u8 = 1;
const SERVICE_ADDR: u8 = 2;
const SOCKET_ADDR: u8 = 3;
const CLUSTER_SCOPE: u8 = 2;

/// The destination of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TipcAddress {
    /// Any one socket that is bound to this name, anywhere in the cluster.
    Service {
        /// The service type; those below 64 are reserved for the protocol itself.
        kind: u32,
        /// The instance of the service.
        instance: u32,
    },
    /// Every socket that is bound to any of these names: each receives the message.
    Range {
        /// The service type, 64 or above for applications.
        kind: u32,
        /// The lowest instance of the range.
        lower: u32,
        /// The highest instance of the range, included.
        upper: u32,
    },
    /// One socket, by its number instead of a name.
    Socket {
        /// The socket's port number on its node.
        port: u32,
        /// The node address; 0 where the node has none.
        node: u32,
    },
}

impl TipcAddress {
    /// The socket's own address, which it has from its creation.
    pub fn of(fd: impl AsFd) -> Result<Self, OsError> {
        let any = rustix::net::getsockname(fd).map_err(|e| OsError::new("getsockname", "", e))?;
        TipcAddress::from_any(&any).ok_or_else(|| {
            OsError::new("getsockname", "", std::io::Error::other("not an AF_TIPC address"))
        })
    }

    /// Decodes the AF_TIPC address in `any`; `None` for another family or an unknown type of address.
    pub fn from_any(any: &SocketAddrAny) -> Option<Self> {
        let raw = tipc_raw::bytes(any).ok()?;
        let word = |at: usize| u32::from_ne_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        match raw[2] {
            SERVICE_RANGE => {
                Some(TipcAddress::Range { kind: word(4), lower: word(8), upper: word(12) })
            }
            SERVICE_ADDR => Some(TipcAddress::Service { kind: word(4), instance: word(8) }),
            SOCKET_ADDR => Some(TipcAddress::Socket { port: word(4), node: word(8) }),
            _ => None,
        }
    }

    /// Encodes a struct sockaddr_tipc: family, address type, scope, and three 32-bit words.
    fn encode(self) -> [u8; ADDRESS_LEN] {
        let (kind, a, b, c) = match self {
            TipcAddress::Service { kind, instance } => (SERVICE_ADDR, kind, instance, 0),
            TipcAddress::Range { kind, lower, upper } => (SERVICE_RANGE, kind, lower, upper),
            TipcAddress::Socket { port, node } => (SOCKET_ADDR, port, node, 0),
        };
        let mut raw = [0; ADDRESS_LEN];
        raw[..2].copy_from_slice(&FAMILY.to_ne_bytes());
        raw[2] = kind;
        raw[3] = CLUSTER_SCOPE;
        raw[4..8].copy_from_slice(&a.to_ne_bytes());
        raw[8..12].copy_from_slice(&b.to_ne_bytes());
        raw[12..].copy_from_slice(&c.to_ne_bytes());
        raw
    }
}

impl From<TipcAddress> for SocketAddrAny {
    fn from(address: TipcAddress) -> Self {
        Raw(address.encode(), true).as_any()
    }
}

impl fmt::Display for TipcAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TipcAddress::Service { kind, instance } => write!(f, "service:{kind}:{instance}"),
            TipcAddress::Range { kind, lower, upper } => write!(f, "range:{kind}:{lower}:{upper}"),
            TipcAddress::Socket { port, node } => write!(f, "socket:{port}:{node}"),
        }
    }
}

/// The error for a text that is not a TIPC address.
#[derive(Debug, thiserror::Error)]
#[error(
    "not a TIPC address: use service:TYPE:INSTANCE, range:TYPE:LOWER:UPPER or socket:PORT:NODE"
)]
pub struct BadTipcAddress;

impl FromStr for TipcAddress {
    type Err = BadTipcAddress;

    fn from_str(text: &str) -> Result<Self, BadTipcAddress> {
        let parts: Vec<_> = text.split(':').collect();
        let number = |text: &str| text.parse().map_err(|_| BadTipcAddress);
        match parts[..] {
            ["service", a, b] => {
                Ok(TipcAddress::Service { kind: number(a)?, instance: number(b)? })
            }
            ["range", a, b, c] => {
                let (lower, upper) = (number(b)?, number(c)?);
                Ok(TipcAddress::Range { kind: number(a)?, lower, upper })
            }
            ["socket", a, b] => Ok(TipcAddress::Socket { port: number(a)?, node: number(b)? }),
            _ => Err(BadTipcAddress),
        }
    }
}

fn set_option(fd: impl AsFd, option: SocketOption, value: u32) -> Result<(), OsError> {
    tipc_raw::set_option(fd, option.number(), Some(&value.to_ne_bytes()))
        .map_err(|e| OsError::new("setsockopt(SOL_TIPC)", format!("{option:?}"), e))
}

/// Makes undeliverable messages return to this socket instead of being dropped.
pub fn return_undeliverable(fd: impl AsFd) -> Result<(), OsError> {
    set_option(fd, SocketOption::DestinationDroppable, 0)
}

/// Sets how long connect waits for the peer's accept. `limit` is clamped to 1 to 65,535 ms, because the kernel stores
/// milliseconds in 16 bits.
pub fn set_connect_timeout(fd: impl AsFd, limit: std::time::Duration) -> Result<(), OsError> {
    let ms = limit.as_millis().clamp(1, u16::MAX.into()) as u32;
    set_option(fd, SocketOption::ConnectTimeout, ms)
}

/// Waits until this node knows of a socket in the cluster that is bound to a service; returns false if there is none by
/// `until`. Asks the node's topology service, which every TIPC node has (service 1, instance 1).
pub fn await_service(service: TipcAddress, until: Instant) -> Result<bool, OsError> {
    const TOPOLOGY: TipcAddress = TipcAddress::Service { kind: 1, instance: 1 };
    const FOREVER: u32 = u32::MAX;
    const ONCE_PER_SERVICE: u32 = 2;
    const PUBLISHED: u32 = 1;
    let TipcAddress::Service { kind, instance } = service else {
        let why = std::io::Error::other("only services can be waited for");
        return Err(OsError::new("tipc topology", service, why));
    };
    let failed = |call| move |errno: Errno| OsError::new(call, "topology service", errno);
    let fd = socket::of_family(FAMILY, socket::SocketType::Seqpacket, "AF_TIPC")?;
    socket::connect(&fd, &TOPOLOGY.into()).map_err(failed("connect"))?;
    // struct tipc_subscr: the range, a time limit, an event filter, and eight bytes for the subscriber's own use.
    let mut subscription = [0; 28];
    for (at, word) in [kind, instance, instance, FOREVER, ONCE_PER_SERVICE].into_iter().enumerate()
    {
        subscription[at * 4..][..4].copy_from_slice(&word.to_ne_bytes());
    }
    socket::send(&fd, &subscription, false).map_err(failed("send"))?;
    while wait_ready(&fd, Interest::Readable, Some(until)).map_err(failed("poll"))? {
        // struct tipc_event begins with the type of event.
        let mut event = [0; 48];
        match socket::recv(&fd, &mut event, true) {
            Ok(len) if len >= 4 => {
                let what = u32::from_ne_bytes([event[0], event[1], event[2], event[3]]);
                if what == PUBLISHED {
                    return Ok(true);
                }
            }
            Ok(_) => return Err(failed("recv")(Errno::CONNRESET)),
            Err(Errno::AGAIN) => {}
            Err(errno) => return Err(failed("recv")(errno)),
        }
    }
    Ok(false)
}

/// The result of [`recv`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TipcMessage {
    /// A message of this many bytes, including those that did not fit the buffer.
    Data(usize),
    /// A message sent by this socket that could not be delivered, with the protocol's reason.
    Returned(u32),
}

/// The reason of a returned message: the receiver had no room (TIPC_ERR_OVERLOAD).
pub const REASON_OVERLOAD: u32 = 4;

/// Receives one message. The kernel truncates a message larger than `buf` without reporting its length. The rest is
/// therefore received into `overflow`, which makes the length known; a caller whose `buf` is always large enough passes
/// an empty `overflow`. EAGAIN if there is no message.
///
/// If `connection` is set (the socket is connected), no message comes back as undeliverable: ECONNRESET reports the end
/// of the connection.
pub fn recv(
    fd: impl AsFd,
    buf: &mut [u8],
    overflow: &mut [u8],
    connection: bool,
    nonblocking: bool,
) -> Result<TipcMessage, Errno> {
    #[repr(align(8))]
    struct Control([u8; 64]);
    let mut control = Control([0; 64]);
    let mut parts = [
        libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() },
        libc::iovec { iov_base: overflow.as_mut_ptr().cast(), iov_len: overflow.len() },
    ];
    loop {
        // SAFETY: msghdr is plain data, and all zeros is a valid value.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = parts.as_mut_ptr();
        header.msg_iovlen = if overflow.is_empty() { 1 } else { 2 };
        if !connection {
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = control.0.len() as _;
        }
        let flags = if nonblocking { libc::MSG_DONTWAIT } else { 0 };
        // SAFETY: every pointer in the header points to a live buffer of the length next to it.
        let len = unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &mut header, flags) };
        if len < 0 {
            match Errno::from_io_error(&std::io::Error::last_os_error()) {
                Some(Errno::INTR) => continue,
                errno => return Err(errno.unwrap_or(Errno::IO)),
            }
        }
        // SAFETY: the header is as recvmsg left it, and the control buffer it points to is still there.
        let first = unsafe { libc::CMSG_FIRSTHDR(&header).as_ref() };
        return Ok(match first {
            Some(cmsg) if cmsg.cmsg_level == SOL_TIPC && cmsg.cmsg_type == ERRINFO => {
                // SAFETY: ERRINFO carries two integers, of which this is the first, in a buffer that is large enough.
                let reason = unsafe { libc::CMSG_DATA(cmsg).cast::<u32>().read_unaligned() };
                TipcMessage::Returned(reason)
            }
            // Larger than even the overflow buffer: the exact length is unknown.
            _ if header.msg_flags & libc::MSG_TRUNC != 0 => TipcMessage::Data(len as usize + 1),
            _ => TipcMessage::Data(len as usize),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_kernels_layout_and_comes_back_from_it() {
        let service = TipcAddress::Service { kind: 0x0102_0304, instance: 7 };
        let raw = service.encode();
        assert_eq!(raw[..4], [30, 0, 2, 2]);
        assert_eq!(raw[4..8], 0x0102_0304_u32.to_ne_bytes());
        let range = TipcAddress::Range { kind: 1, lower: 2, upper: 3 };
        assert_eq!(range.encode()[2], 1);
        for address in [service, range, TipcAddress::Socket { port: 5, node: 9 }] {
            assert_eq!(TipcAddress::from_any(&address.into()), Some(address));
            assert_eq!(address.to_string().parse::<TipcAddress>().unwrap(), address);
        }
    }

    #[test]
    fn invalid_addresses_are_rejected() {
        for text in ["", "service:1", "service:1:2:3", "range:1:2", "socket:x:1", "name:1:2"] {
            assert!(text.parse::<TipcAddress>().is_err(), "{text}");
        }
    }
}
