//! A connection between hosts as a stream of bytes, over TCP or TIPC. Only connecting waits; the other calls do not.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crossway_mech::Deadline;
use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::socket::{self, Inet};
use crossway_sys::{Errno, OsError};
use crossway_tipc_client::{
    Address, Backend, Patience, ServiceRange, Socket, SocketAddress, SocketKind,
};

use super::network::Network;
use crate::transport::Transport;

/// A connection attempt fails after this time.
const DIAL: Duration = Duration::from_secs(2);
/// A TCP peer that is silent for this long is probed.
const IDLE: Duration = Duration::from_secs(2);
/// A TCP connection is abandoned if the peer acknowledges nothing for this long.
const SILENCE: Duration = Duration::from_secs(5);
/// How long to wait for the topology service to list the listeners of a name, in milliseconds. It lists all of them
/// immediately.
const TOPOLOGY_MS: u32 = 20;

/// A connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(OwnedFd),
    Tipc(Socket),
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(fd) => fd.as_fd(),
            Stream::Tipc(socket) => socket.as_fd(),
        }
    }
}

impl Stream {
    /// Prepares a TCP socket, which may be connected or not.
    pub(crate) fn tcp(fd: OwnedFd) -> Result<Stream, OsError> {
        socket::set_nonblocking(&fd)?;
        socket::set_tcp_nodelay(&fd, true)?;
        socket::set_tcp_liveness(&fd, IDLE, SILENCE)?;
        Ok(Stream::Tcp(fd))
    }

    /// Returns the peer's address as text; `?` if it is unknown.
    pub(crate) fn peer(&self) -> String {
        match self {
            Stream::Tcp(fd) => socket::peer_address(fd)
                .ok()
                .and_then(|address| socket::as_inet(&address))
                .map_or_else(|| "?".to_owned(), |address| address.to_string()),
            Stream::Tipc(socket) => socket.peer_address().map_or_else(
                |_| "?".to_owned(),
                |SocketAddress { port, node }| format!("{port}@{node:x}"),
            ),
        }
    }

    /// Returns this end's address and the peer's; `None` unless the connection is TCP.
    pub(crate) fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        let Stream::Tcp(fd) = self else { return None };
        let (local, peer) = (socket::local_address(fd).ok()?, socket::peer_address(fd).ok()?);
        Some((socket::as_inet(&local)?, socket::as_inet(&peer)?))
    }

    /// Returns the transport of channels that use this connection.
    pub(crate) const fn transport(&self) -> Transport {
        match self {
            Stream::Tcp(_) => Transport::Tcp,
            Stream::Tipc(_) => Transport::Tipc,
        }
    }

    /// Sends as many of the bytes as there is room for and returns their number; EAGAIN if there is no room.
    pub(crate) fn try_send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match self {
            Stream::Tcp(fd) => socket::send(fd, bytes, true),
            Stream::Tipc(socket) => socket.send(bytes, None, Patience::Now),
        }
    }

    /// Appends up to `most` bytes that have arrived and returns their number; 0 at the end of the connection, EAGAIN if
    /// nothing has arrived.
    pub(crate) fn try_recv(&self, into: &mut Vec<u8>, most: usize) -> Result<usize, Errno> {
        match self {
            Stream::Tcp(fd) => {
                into.reserve(most);
                socket::recv_behind(fd, into, most, true)
            }
            Stream::Tipc(socket) => {
                let before = into.len();
                into.resize(before + most, 0);
                let got = socket.recv(&mut into[before..], Patience::Now);
                into.truncate(before + got.unwrap_or(0));
                got
            }
        }
    }

    /// Shuts both directions down, which wakes threads that wait for the descriptor.
    pub(crate) fn shutdown(&self) {
        match self {
            Stream::Tcp(fd) => {
                socket::shutdown_send(fd);
                socket::shutdown_recv(fd);
            }
            Stream::Tipc(socket) => drop(socket.shutdown()),
        }
    }

    /// Stops receiving, because a peer that is dead sends nothing more. Bytes that have arrived can still be received;
    /// threads that wait for the descriptor wake.
    pub(crate) fn expect_no_more(&self) {
        // TIPC itself ends the connections of a peer that is gone.
        if let Stream::Tcp(fd) = self {
            socket::shutdown_recv(fd);
        }
    }
}

/// A place where a listener of a name may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// An address from the list of hosts.
    Tcp(SocketAddr),
    /// A socket from TIPC's name table.
    Tipc(Backend, SocketAddress),
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Route::Tcp(address) => write!(f, "tcp {address}"),
            Route::Tipc(_, SocketAddress { port, node }) => write!(f, "tipc {port}@{node:x}"),
        }
    }
}

/// The reason why a connection attempt failed.
#[derive(Debug)]
pub(crate) enum NoConnection {
    /// The host answered that nobody listens there.
    Refused,
    /// The host does not answer, or there is no route to it; the text describes which.
    Unreachable(String),
}

impl Route {
    /// Returns the transport of channels that use this route.
    pub(crate) const fn transport(&self) -> Transport {
        match self {
            Route::Tcp(_) => Transport::Tcp,
            Route::Tipc(..) => Transport::Tipc,
        }
    }

    /// Connects, waiting until the deadline, but never longer than [`DIAL`].
    pub(crate) fn dial(&self, until: Deadline) -> Result<Stream, NoConnection> {
        let latest = Instant::now() + DIAL;
        let until = until.map_or(latest, |until| until.min(latest));
        let unreachable = |error: &dyn fmt::Display| NoConnection::Unreachable(error.to_string());
        let by_errno = |errno| match errno {
            Errno::CONNREFUSED => NoConnection::Refused,
            errno => NoConnection::Unreachable(errno.to_string()),
        };
        match self {
            Route::Tcp(address) => {
                let fd = socket::inet(Inet::Tcp, *address).map_err(|e| unreachable(&e))?;
                let stream = Stream::tcp(fd).map_err(|e| unreachable(&e))?;
                match socket::connect(&stream, &socket::inet_address(*address)) {
                    Ok(()) => return Ok(stream),
                    Err(Errno::INPROGRESS) => {}
                    Err(errno) => return Err(by_errno(errno)),
                }
                if !wait_ready(&stream, Interest::Writable, Some(until)).map_err(by_errno)? {
                    return Err(by_errno(Errno::TIMEDOUT));
                }
                match socket::take_error(&stream).map_err(by_errno)? {
                    None => Ok(stream),
                    Some(errno) => Err(by_errno(errno)),
                }
            }
            Route::Tipc(backend, address) => {
                let socket =
                    Socket::open_on(backend, SocketKind::Stream).map_err(|e| unreachable(&e))?;
                let to = Address::Socket(*address);
                socket.connect(Some(to), Patience::Until(until)).map_err(by_errno)?;
                Ok(Stream::Tipc(socket))
            }
        }
    }
}

/// Returns the service that represents a name in TIPC's name table: 48 bits of a hash, in a reserved range of types.
/// The greeting distinguishes names with the same hash.
pub(crate) fn tipc_service(name: &str) -> ServiceRange {
    // FNV-1a.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    ServiceRange::single(0x4357_0000 | (hash >> 48) as u32, hash as u32)
}

/// Asks TIPC's topology service which sockets are bound to a name's service.
fn tipc_routes(name: &str, backend: &Backend) -> Result<Vec<Route>, String> {
    const TOPOLOGY: Address = Address::service(1, 1);
    const EACH_SOCKET: u32 = 1;
    const PUBLISHED: u32 = 1;
    const EVENT_LEN: usize = 48;
    let range = tipc_service(name);
    let socket = Socket::open_on(backend, SocketKind::Seqpacket).map_err(|e| e.to_string())?;
    let patience = Patience::Until(Instant::now() + DIAL);
    let failed = |errno: Errno| format!("topology service: {errno}");
    socket.connect(Some(TOPOLOGY), patience).map_err(failed)?;
    let request = [range.service, range.lower, range.upper, TOPOLOGY_MS, EACH_SOCKET, 0, 0];
    let request: Vec<u8> = request.iter().flat_map(|word| word.to_ne_bytes()).collect();
    socket.send(&request, None, patience).map_err(failed)?;
    let mut routes = Vec::new();
    let mut event = [0; EVENT_LEN];
    loop {
        let len = socket.recv(&mut event, patience).map_err(failed)?;
        let word = |n: usize| {
            event[4 * n..4 * n + 4].try_into().map(u32::from_ne_bytes).unwrap_or_default()
        };
        // The first event of another kind reports that the time is up.
        if len != EVENT_LEN || word(0) != PUBLISHED {
            return Ok(routes);
        }
        let address = SocketAddress { port: word(3), node: word(4) };
        routes.push(Route::Tipc(backend.clone(), address));
    }
}

/// Returns the places where listeners of a name may be, and the error if TIPC's topology service could not be asked.
pub(crate) fn routes(name: &str, network: &Network) -> (Vec<Route>, Option<String>) {
    let mut routes: Vec<Route> = network.hosts.of(name).iter().copied().map(Route::Tcp).collect();
    let mut trouble = None;
    if let Some(backend) = &network.tipc {
        match tipc_routes(name, backend) {
            Ok(found) => routes.extend(found),
            Err(why) => trouble = Some(why),
        }
    }
    (routes, trouble)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_services_of_their_own_above_the_reserved_ones() {
        let (left, right) = (tipc_service("camera/left"), tipc_service("camera/right"));
        assert_ne!(left, right);
        assert_eq!(left, tipc_service("camera/left"), "the same on every host");
        assert_eq!(left.service >> 16, 0x4357);
    }

    #[test]
    fn where_nobody_listens_the_answer_is_a_refusal() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(matches!(Route::Tcp(address).dial(None), Ok(Stream::Tcp(_))));
        drop(listener);
        assert!(matches!(Route::Tcp(address).dial(None), Err(NoConnection::Refused)));
    }
}
