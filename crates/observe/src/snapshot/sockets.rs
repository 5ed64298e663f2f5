//! The sockets of one or several network namespaces, and which one is the peer of which.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use crossway_sys::netns;
use crossway_sys::sock_diag::{
    self, InetSocket, NetlinkSocket, Transport, UnixSocket, VsockSocket,
};
use crossway_sys::{Errno, OsError};

use super::Gap;

/// A socket, with what the kernel's list says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Socket {
    /// A UNIX socket.
    Unix(UnixSocket),
    /// A socket over IP.
    Inet(InetSocket),
    /// A vsock socket.
    Vsock(VsockSocket),
    /// A netlink socket.
    Netlink(NetlinkSocket),
    /// A socket that is in no list; the kernel's name for its protocol.
    Other(String),
}

/// An address with the namespace in which it is valid.
type Place = (u64, Transport, SocketAddr);

/// The sockets by their inodes, and the index that finds peers.
#[derive(Clone, Debug, Default)]
pub struct SocketTable {
    by_inode: HashMap<u64, Socket>,
    namespaces: HashMap<u64, u64>,
    /// Connected sockets by their own and their peer's address.
    connected: HashMap<(Place, SocketAddr), u64>,
    /// Connected sockets by both addresses, in any namespace.
    anywhere: HashMap<(Transport, SocketAddr, SocketAddr), u64>,
    /// Sockets that listen, or that receive from anyone.
    open: HashMap<Place, u64>,
}

/// What a namespace's lists are, or why one of them could not be made.
struct Lists {
    sockets: Vec<Socket>,
    failures: Vec<(&'static str, OsError)>,
}

fn list() -> Lists {
    let mut lists = Lists { sockets: Vec::new(), failures: Vec::new() };
    fn take<T>(
        lists: &mut Lists,
        what: &'static str,
        found: Result<Vec<T>, OsError>,
        wrap: impl Fn(T) -> Socket,
    ) {
        match found {
            Ok(found) => lists.sockets.extend(found.into_iter().map(wrap)),
            Err(error) => lists.failures.push((what, error)),
        }
    }
    take(&mut lists, "UNIX", sock_diag::unix_sockets(), Socket::Unix);
    for (what, transport) in
        [("TCP", Transport::Tcp), ("UDP", Transport::Udp), ("SCTP", Transport::Sctp)]
    {
        take(&mut lists, what, sock_diag::inet_sockets(transport), Socket::Inet);
    }
    take(&mut lists, "vsock", sock_diag::vsock_sockets(), Socket::Vsock);
    take(&mut lists, "netlink", sock_diag::netlink_sockets(), Socket::Netlink);
    lists
}

impl SocketTable {
    /// The socket with this inode.
    pub fn get(&self, inode: u64) -> Option<&Socket> {
        self.by_inode.get(&inode)
    }

    /// Adds a socket that is in no list.
    pub fn add(&mut self, inode: u64, socket: Socket) {
        self.by_inode.insert(inode, socket);
    }

    /// Lists the caller's own namespace.
    pub(super) fn list_own(&mut self, namespace: Option<u64>, gaps: &mut Vec<Gap>) {
        let lists = list();
        for (what, error) in &lists.failures {
            // Without the protocol's module there are no such sockets. UNIX, TCP and UDP always exist; their lists may
            // be modules of their own.
            if ["UNIX", "TCP", "UDP"].contains(what) {
                let module = if *what == "UNIX" { "unix_diag" } else { "tcp_diag and udp_diag" };
                gaps.push(Gap {
                    what: format!("the peers of {what} sockets ({error})"),
                    remedy: format!("modprobe {module}, or allow NETLINK_SOCK_DIAG"),
                });
            }
        }
        self.take_in(namespace.unwrap_or(0), lists);
    }

    /// Lists the namespace of process `pid` by entering it with a thread of its own.
    pub(super) fn list_of(&mut self, namespace: u64, pid: u32, name: &str, gaps: &mut Vec<Gap>) {
        match netns::inside(&PathBuf::from(format!("/proc/{pid}/ns/net")), list) {
            Ok(lists) => self.take_in(namespace, lists),
            // It has ended.
            Err(error) if error.errno() == Errno::NOENT.raw_os_error() => {}
            Err(error) => gaps.push(Gap {
                what: format!(
                    "the sockets in the network namespace of {name} (process {pid}): {error}"
                ),
                remedy: "run as root".to_owned(),
            }),
        }
    }

    fn take_in(&mut self, namespace: u64, lists: Lists) {
        for socket in lists.sockets {
            let inode = match &socket {
                Socket::Unix(s) => s.inode,
                Socket::Inet(s) => s.inode,
                Socket::Vsock(s) => s.inode,
                Socket::Netlink(s) => s.inode,
                Socket::Other(_) => 0,
            };
            // Without an inode, no process holds it any more.
            if inode == 0 {
                continue;
            }
            if let Socket::Inet(inet) = &socket {
                let place = (namespace, inet.transport, inet.local);
                if inet.remote.port() == 0 {
                    self.open.insert(place, inode);
                } else {
                    self.connected.insert((place, inet.remote), inode);
                    self.anywhere.insert((inet.transport, inet.local, inet.remote), inode);
                }
            }
            self.namespaces.insert(inode, namespace);
            self.by_inode.insert(inode, socket);
        }
    }

    /// The socket at the other end of a connected socket, if it is on this host.
    pub fn peer_of(&self, inode: u64) -> Option<u64> {
        match self.by_inode.get(&inode)? {
            Socket::Unix(unix) => unix.peer,
            Socket::Inet(inet) => {
                if inet.remote.port() == 0 {
                    return None;
                }
                let namespace = *self.namespaces.get(&inode)?;
                let place = (namespace, inet.transport, inet.remote);
                if let Some(peer) = self.connected.get(&(place, inet.local)) {
                    return Some(*peer);
                }
                if inet.transport == Transport::Udp
                    && let Some(peer) = self.receiver_at(namespace, inet.remote)
                {
                    return Some(peer);
                }
                // Loopback addresses mean a different host in each namespace.
                if inet.remote.ip().is_loopback() {
                    return None;
                }
                self.anywhere.get(&(inet.transport, inet.remote, inet.local)).copied()
            }
            Socket::Vsock(vsock) => self.by_inode.iter().find_map(|(peer, other)| match other {
                Socket::Vsock(other)
                    if other.local == vsock.remote && other.remote == vsock.local =>
                {
                    Some(*peer)
                }
                _ => None,
            }),
            Socket::Netlink(_) | Socket::Other(_) => None,
        }
    }

    /// The UDP socket that receives what is sent to an address from anyone.
    fn receiver_at(&self, namespace: u64, address: SocketAddr) -> Option<u64> {
        let any4 = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), address.port());
        let any6 = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), address.port());
        let candidates = [address, any4, any6];
        // Only loopback addresses are known to be this host's.
        let mine = |at: &&SocketAddr| **at == address || address.ip().is_loopback();
        candidates
            .iter()
            .filter(mine)
            .find_map(|at| self.open.get(&(namespace, Transport::Udp, *at)).copied())
    }

    /// Whether a socket listens, in the namespace of `inode`, on the local port of that socket; of two ends of a
    /// connection, this one is the server.
    pub fn is_server(&self, inode: u64) -> bool {
        match self.by_inode.get(&inode) {
            Some(Socket::Unix(unix)) => unix.name.is_some(),
            Some(Socket::Inet(inet)) => {
                let namespace = self.namespaces.get(&inode).copied().unwrap_or(0);
                let any = [
                    inet.local,
                    SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), inet.local.port()),
                    SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), inet.local.port()),
                ];
                any.iter().any(|at| self.open.contains_key(&(namespace, inet.transport, *at)))
            }
            _ => false,
        }
    }
}
