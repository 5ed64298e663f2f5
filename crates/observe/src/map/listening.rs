//! Where processes wait for connections, or for datagrams from anyone.

use std::collections::BTreeMap;

use crossway_sys::sock_diag::{Transport, UnixKind};
use serde::Serialize;

use crate::snapshot::{Object, Snapshot, Socket};

/// An address at which processes wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listener {
    /// `TCP`, `UNIX stream` and so on.
    pub carrier: &'static str,
    /// The address or path.
    pub address: String,
    /// The processes that hold the socket.
    pub pids: Vec<u32>,
}

/// The listeners of the chosen processes, by address.
pub(super) fn listeners(snapshot: &Snapshot, chosen: impl Fn(u32) -> bool) -> Vec<Listener> {
    let mut found: BTreeMap<(&'static str, String), Vec<u32>> = BTreeMap::new();
    for holding in snapshot.holdings.iter().filter(|h| chosen(h.pid)) {
        let Object::Socket(inode) = holding.object else { continue };
        let Some(at) = snapshot.sockets.get(inode).and_then(address) else { continue };
        let pids = found.entry(at).or_default();
        if !pids.contains(&holding.pid) {
            pids.push(holding.pid);
        }
    }
    found
        .into_iter()
        .map(|((carrier, address), pids)| Listener { carrier, address, pids })
        .collect()
}

fn address(socket: &Socket) -> Option<(&'static str, String)> {
    match socket {
        Socket::Inet(inet) => {
            let name = match inet.transport {
                Transport::Tcp => "TCP",
                Transport::Udp => "UDP",
                Transport::Sctp => "SCTP",
            };
            let waits = inet.listens
                || (inet.transport == Transport::Udp
                    && inet.remote.port() == 0
                    && inet.local.port() != 0);
            waits.then(|| (name, inet.local.to_string()))
        }
        Socket::Unix(unix) => {
            let name = match unix.kind {
                UnixKind::Stream => "UNIX stream",
                UnixKind::Datagram => "UNIX datagram",
                UnixKind::Seqpacket => "UNIX seqpacket",
            };
            let waits = unix.listens || (unix.kind == UnixKind::Datagram && unix.peer.is_none());
            Some((name, unix.name.clone()?)).filter(|_| waits)
        }
        Socket::Vsock(vsock) if vsock.listens => {
            let (context, port) = vsock.local;
            Some(("vsock", format!("context {context}, port {port}")))
        }
        _ => None,
    }
}
