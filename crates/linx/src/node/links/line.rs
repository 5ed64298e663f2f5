//! The connection that carries a link, over TCP or TIPC.

use std::fmt;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::str::FromStr;

use crossway_sys::socket::{self, Inet};
use crossway_sys::{Errno, OsError, records};
use crossway_tipc_client as tipc;
use crossway_tipc_client::{Patience, Scope, ServiceRange};

use crate::wire::body::Space;

/// Maximum number of bytes that one call sends on a TIPC stream.
const TIPC_PIECE: usize = 66_000;

/// An address at which a node listens for other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkAddress {
    /// A TCP address and port.
    Tcp(SocketAddr),
    /// A TIPC service: of the kernel's TIPC if there is one, otherwise of a `tipcd`. TIPC finds the node wherever it is
    /// in the cluster.
    Tipc {
        /// The service type, 64 or above.
        service: u32,
        /// The instance that the listening node is bound to.
        instance: u32,
    },
}

impl From<SocketAddr> for LinkAddress {
    fn from(address: SocketAddr) -> Self {
        LinkAddress::Tcp(address)
    }
}

impl fmt::Display for LinkAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkAddress::Tcp(address) => address.fmt(f),
            LinkAddress::Tipc { service, instance } => write!(f, "tipc:{service}:{instance}"),
        }
    }
}

impl FromStr for LinkAddress {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let bad = || format!("'{word}' is not an address: use IP:PORT or tipc:TYPE:INSTANCE");
        let Some(rest) = word.strip_prefix("tipc:") else {
            return word.parse().map(LinkAddress::Tcp).map_err(|_| bad());
        };
        let (service, instance) = rest.split_once(':').ok_or_else(bad)?;
        let (Ok(service), Ok(instance)) = (service.parse(), instance.parse()) else {
            return Err(bad());
        };
        if service < 64 {
            return Err(format!(
                "'{word}': the service types below 64 are reserved for TIPC; use 64 or above"
            ));
        }
        Ok(LinkAddress::Tipc { service, instance })
    }
}

fn tipc_socket(backend: &tipc::Backend) -> Result<tipc::Socket, OsError> {
    tipc::Socket::open_on(backend, tipc::SocketKind::Stream)
        .map_err(|error| OsError::new("socket", "TIPC", std::io::Error::other(error)))
}

/// A listening socket for links.
pub(super) enum LinkListener {
    Tcp(OwnedFd),
    Tipc(tipc::Socket, LinkAddress),
}

impl LinkListener {
    pub(super) fn open(
        address: LinkAddress,
        backend: &tipc::Backend,
    ) -> Result<LinkListener, OsError> {
        match address {
            LinkAddress::Tcp(address) => {
                let fd = socket::inet(Inet::Tcp, address)?;
                socket::set_reuse_address(&fd)?;
                socket::bind(&fd, &socket::inet_address(address), &address.to_string())?;
                socket::listen(&fd, 64)?;
                socket::set_nonblocking(&fd)?;
                Ok(LinkListener::Tcp(fd))
            }
            LinkAddress::Tipc { service, instance } => {
                let socket = tipc_socket(backend)?;
                let failed = |call| move |errno| OsError::new(call, address, errno);
                // Binding publishes the name immediately: connections before listen would be refused.
                socket.listen().map_err(failed("listen"))?;
                let range = ServiceRange::single(service, instance);
                socket.bind(range, Scope::Cluster).map_err(failed("bind"))?;
                Ok(LinkListener::Tipc(socket, address))
            }
        }
    }

    /// Returns the address, with the port that the system chose; `None` if that cannot be found out.
    pub(super) fn address(&self) -> Option<LinkAddress> {
        match self {
            LinkListener::Tcp(fd) => {
                socket::as_inet(&socket::local_address(fd).ok()?).map(LinkAddress::Tcp)
            }
            LinkListener::Tipc(_, address) => Some(*address),
        }
    }

    /// Whether an error of [`LinkListener::accept`] means that no more connections will come, because the `tipcd` has
    /// ended.
    pub(super) fn has_ended(&self, errno: Errno) -> bool {
        let of_one =
            matches!(errno, Errno::CONNABORTED | Errno::INTR | Errno::NOBUFS | Errno::NOMEM);
        matches!(self, LinkListener::Tipc(..)) && !of_one
    }

    /// Accepts the next connection; EAGAIN if there is none.
    pub(super) fn accept(&self) -> Result<Line, Errno> {
        match self {
            LinkListener::Tcp(fd) => socket::try_accept(fd).map(Line::Tcp),
            LinkListener::Tipc(socket, _) => {
                socket.accept(Patience::Now).map(|(socket, _)| Line::Tipc(socket))
            }
        }
    }
}

impl AsFd for LinkListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            LinkListener::Tcp(fd) => fd.as_fd(),
            LinkListener::Tipc(socket, _) => socket.as_fd(),
        }
    }
}

/// A connection that is established or being established.
pub(super) enum Line {
    Tcp(OwnedFd),
    Tipc(tipc::Socket),
}

impl Line {
    /// Starts to connect. When the descriptor is writable, [`Line::take_error`] returns the result.
    pub(super) fn dial(address: LinkAddress, backend: &tipc::Backend) -> Result<Line, OsError> {
        let (line, outcome) = match address {
            LinkAddress::Tcp(address) => {
                let fd = socket::inet(Inet::Tcp, address)?;
                socket::set_nonblocking(&fd)?;
                let outcome = socket::connect(&fd, &socket::inet_address(address));
                (Line::Tcp(fd), outcome)
            }
            LinkAddress::Tipc { service, instance } => {
                let socket = tipc_socket(backend)?;
                let to = tipc::Address::service(service, instance);
                let outcome = socket.connect(Some(to), Patience::Now);
                (Line::Tipc(socket), outcome)
            }
        };
        match outcome {
            Ok(()) | Err(Errno::INPROGRESS | Errno::AGAIN) => Ok(line),
            Err(errno) => Err(OsError::new("connect", address, errno)),
        }
    }

    /// Disables Nagle's algorithm and makes all calls on a TCP socket non-blocking; a TIPC socket needs neither.
    pub(super) fn prepare(&self) -> Result<(), OsError> {
        match self {
            Line::Tcp(fd) => {
                socket::set_nonblocking(fd)?;
                socket::set_tcp_nodelay(fd, true)
            }
            Line::Tipc(_) => Ok(()),
        }
    }

    pub(super) fn take_error(&self) -> Result<Option<Errno>, Errno> {
        match self {
            Line::Tcp(fd) => socket::take_error(fd),
            Line::Tipc(socket) => Ok(socket.take_error()),
        }
    }

    /// Sends as many bytes as there is room for; returns their number.
    pub(super) fn send(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        match self {
            Line::Tcp(fd) => records::send_parts(fd, parts, true),
            Line::Tipc(socket) => match parts {
                [first, rest @ ..]
                    if first.len() < TIPC_PIECE / 2 && rest.iter().any(|p| !p.is_empty()) =>
                {
                    let mut together = Vec::with_capacity(TIPC_PIECE);
                    for part in parts {
                        let room = TIPC_PIECE - together.len();
                        together.extend_from_slice(&part[..part.len().min(room)]);
                    }
                    socket.send(&together, None, Patience::Now)
                }
                [first, ..] => {
                    socket.send(&first[..first.len().min(TIPC_PIECE)], None, Patience::Now)
                }
                [] => Ok(0),
            },
        }
    }

    /// Receives as many bytes as the space allows; returns their number, 0 at the end of the connection.
    pub(super) fn receive(&self, space: Space<'_>) -> Result<usize, Errno> {
        match (self, space) {
            (Line::Tcp(fd), Space::Behind(inbox, most)) => {
                socket::recv_behind(fd, inbox, most, true)
            }
            (Line::Tcp(fd), Space::In(place)) => socket::recv(fd, place, true),
            (Line::Tipc(socket), Space::In(place)) => socket.recv(place, Patience::Now),
            (Line::Tipc(socket), Space::Behind(inbox, most)) => {
                let had = inbox.len();
                inbox.resize(had + most, 0);
                let got = socket.recv(&mut inbox[had..], Patience::Now);
                inbox.truncate(had + *got.as_ref().unwrap_or(&0));
                got
            }
        }
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Line::Tcp(fd) => fd.as_fd(),
            Line::Tipc(socket) => socket.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_as_they_are_written() {
        for word in ["127.0.0.1:19790", "[::1]:1", "tipc:4357:7"] {
            assert_eq!(word.parse::<LinkAddress>().unwrap().to_string(), word);
        }
        for word in ["", "127.0.0.1", "tipc:", "tipc:1", "tipc:100:x", "tipc:63:1"] {
            let why = word.parse::<LinkAddress>().unwrap_err();
            assert!(why.contains("tipc:") || why.contains("TIPC"), "{why}");
        }
    }
}
