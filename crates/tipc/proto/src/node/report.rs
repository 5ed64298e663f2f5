//! Reports on sockets, peers and links for an operator.

use super::peer::{Peer, PeerLink};
use super::{Node, Traffic};
use crate::addr::{BearerId, MediaAddr, NodeAddr, NodeId, Port, ServiceRange, SocketAddr};
use crate::limits::BCAST_WINDOW;
use crate::link::{LinkState, LinkStats};
use crate::socket::{GroupRequest, SocketError, SocketKind, SocketOptions, SocketState};
use crate::wire::{Capabilities, InterfaceName};
use alloc::vec::Vec;
use core::time::Duration;

/// State of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketReport {
    /// Kind of the socket.
    pub kind: SocketKind,
    /// The socket's own address.
    pub local: SocketAddr,
    /// Address of the other end of the socket's connection, if it has one.
    pub peer: Option<SocketAddr>,
    /// The service through which the socket's connection was made, if any.
    pub service: Option<ServiceRange>,
    /// Options of the socket.
    pub options: SocketOptions,
    /// Number of messages waiting to be received.
    pub queued_messages: usize,
    /// Number of bytes that received messages occupy, including overhead and messages held back to restore their order.
    pub queued_bytes: usize,
    /// The group that the socket is a member of, if any.
    pub group: Option<GroupRequest>,
    /// Messages that the application has sent through the socket.
    pub sent: Traffic,
    /// Messages received, including returned ones.
    pub received: Traffic,
}

/// Another node, as seen by this one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerReport {
    /// Address of the node.
    pub addr: NodeAddr,
    /// Identity of the node.
    pub id: NodeId,
    /// Capabilities that the node announced.
    pub capabilities: Capabilities,
    /// Whether this node has contact with that node.
    pub up: bool,
    /// The links to the node, each over a bearer through which it was discovered; at most
    /// [`LINKS_PER_PEER_MAX`](crate::limits::LINKS_PER_PEER_MAX).
    pub links: Vec<LinkReport>,
}

/// State of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkReport {
    /// Bearer at our end.
    pub bearer: BearerId,
    /// The peer's address on the medium.
    pub media: MediaAddr,
    /// Number of the bearer at the peer's end.
    pub peer_bearer: BearerId,
    /// Name of the bearer's interface at the peer's end.
    pub peer_interface: InterfaceName,
    /// The link's state at this end.
    pub state: LinkState,
    /// Whether the link carries traffic; a link that is up but not active is a standby.
    pub active: bool,
    /// Largest packet, in bytes.
    pub mtu: usize,
    /// Priority in use, 0 to [`PRIORITY_MAX`](crate::limits::PRIORITY_MAX).
    pub priority: u8,
    /// Network plane; 0 is "A".
    pub plane: u8,
    /// Silence after which the link fails.
    pub tolerance: Duration,
    /// Send window, in packets.
    pub window: u16,
    /// Upper bound of the send window, in packets.
    pub window_max: u16,
    /// Smoothed round trip; `None` until it has been measured.
    pub round_trip: Option<Duration>,
    /// Statistics since the link was created.
    pub stats: LinkStats,
}

/// State of the broadcast link, which exists once per node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BroadcastReport {
    /// Number of peers that receive this node's broadcasts.
    pub listeners: usize,
    /// Send window, in packets.
    pub window: u16,
    /// Largest packet, in bytes.
    pub mtu: usize,
    /// Statistics of the broadcasts sent and received.
    pub stats: LinkStats,
}

impl Node {
    /// Reports the addresses and the state of a socket, for getsockname, getpeername and operators.
    ///
    /// # Errors
    /// [`SocketError::BadSocket`].
    pub fn socket_report(&self, port: Port) -> Result<SocketReport, SocketError> {
        let socket = self.sockets.get(&port).ok_or(SocketError::BadSocket)?;
        let peer = match &socket.state {
            SocketState::Connected(c) => Some(c.peer),
            _ => None,
        };
        Ok(SocketReport {
            kind: socket.kind,
            local: SocketAddr { port, node: self.own() },
            peer,
            service: socket.service.filter(|_| socket.kind.is_connected_kind()),
            options: socket.options,
            queued_messages: socket.queued(),
            queued_bytes: socket.held_bytes(),
            group: socket.group.as_ref().map(|g| g.request),
            sent: socket.sent,
            received: socket.received,
        })
    }

    /// Number of a socket's bindings, including that of its group membership; 0 if there is no such socket.
    pub fn bindings_of(&self, port: Port) -> usize {
        let socket = self.sockets.get(&port);
        socket.map_or(0, |socket| socket.bindings.len() + usize::from(socket.group.is_some()))
    }

    /// The ports of all sockets of programs, without the node's own sockets.
    pub fn ports(&self) -> impl Iterator<Item = Port> + '_ {
        self.sockets.keys().copied().filter(|port| !self.topology.owns(*port))
    }

    /// State of the broadcast link.
    pub fn broadcast_link(&self) -> BroadcastReport {
        BroadcastReport {
            listeners: self.peers.values().filter(|p| p.listener.acked.is_some()).count(),
            window: BCAST_WINDOW,
            mtu: self.bcast.mtu(),
            stats: self.bcast.stats,
        }
    }

    /// All peers, by address.
    pub fn peers(&self) -> impl Iterator<Item = PeerReport> + '_ {
        self.peers.iter().map(|(addr, peer)| PeerReport {
            addr: *addr,
            id: peer.id,
            capabilities: peer.capabilities,
            up: peer.is_up(),
            links: peer.links.iter().flatten().map(|over| peer.report(over)).collect(),
        })
    }
}

impl Peer {
    fn report(&self, over: &PeerLink) -> LinkReport {
        let link = &over.link;
        LinkReport {
            bearer: link.bearer(),
            media: over.media,
            peer_bearer: link.peer_bearer(),
            peer_interface: link.peer_interface().clone(),
            state: link.state(),
            active: self.slots.contains(&Some(link.bearer())),
            mtu: link.mtu(),
            priority: link.priority(),
            plane: link.plane(),
            tolerance: link.tolerance(),
            window: link.window_size(),
            window_max: link.window_max(),
            round_trip: link.round_trip(),
            stats: *link.stats(),
        }
    }
}
