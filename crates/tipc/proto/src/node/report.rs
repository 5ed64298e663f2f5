//! What an operator may ask.

use super::peer::{Peer, PeerLink};
use super::{Node, Traffic};
use crate::addr::{BearerId, MediaAddr, NodeAddr, NodeId, Port, SocketAddr};
use crate::limits::BCAST_WINDOW;
use crate::link::{LinkState, LinkStats};
use crate::socket::{GroupRequest, SocketError, SocketKind, SocketOptions, SocketState};
use crate::wire::{Capabilities, InterfaceName};
use alloc::vec::Vec;
use core::time::Duration;

/// What is known of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketReport {
    /// Its kind.
    pub kind: SocketKind,
    /// Its own address.
    pub local: SocketAddr,
    /// The other end of its connection.
    pub peer: Option<SocketAddr>,
    /// Its options.
    pub options: SocketOptions,
    /// Messages that wait to be received.
    pub queued_messages: usize,
    /// Octets that these count.
    pub queued_octets: usize,
    /// The group that it is a member of.
    pub group: Option<GroupRequest>,
    /// What was sent.
    pub sent: Traffic,
    /// What came, returned messages included.
    pub received: Traffic,
}

/// Another node, as this one sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerReport {
    /// Its address.
    pub addr: NodeAddr,
    /// Its identity.
    pub id: NodeId,
    /// What it announced.
    pub capabilities: Capabilities,
    /// There is contact with it.
    pub up: bool,
    /// The links to it.
    pub links: Vec<LinkReport>,
}

/// One link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkReport {
    /// Our end's bearer.
    pub bearer: BearerId,
    /// The peer's address on the medium.
    pub media: MediaAddr,
    /// The peer's number of its bearer.
    pub peer_bearer: BearerId,
    /// The peer's name of its interface.
    pub peer_interface: InterfaceName,
    /// State.
    pub state: LinkState,
    /// It carries traffic; a link that is up and does not stands by for another.
    pub active: bool,
    /// Largest packet, in octets.
    pub mtu: usize,
    /// Priority.
    pub priority: u8,
    /// Network plane; 0 is "A".
    pub plane: u8,
    /// Silence after which it fails.
    pub tolerance: Duration,
    /// Send window, in packets.
    pub window: u16,
    /// Largest it may become.
    pub window_max: u16,
    /// Smoothed round trip, once measured.
    pub round_trip: Option<Duration>,
    /// Counters.
    pub stats: LinkStats,
}

/// The broadcast link: one for the whole node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BroadcastReport {
    /// Peers that get this node's broadcasts.
    pub listeners: usize,
    /// Send window, in packets.
    pub window: u16,
    /// Largest packet, in octets.
    pub mtu: usize,
    /// Counters of both sides.
    pub stats: LinkStats,
}

impl Node {
    /// The addresses and the state of a socket, for getsockname, getpeername and reports.
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
            options: socket.options,
            queued_messages: socket.queued(),
            queued_octets: socket.octets(),
            group: socket.group.as_ref().map(|g| g.request),
            sent: socket.sent,
            received: socket.received,
        })
    }

    /// The ports of all sockets but the node's own.
    pub fn ports(&self) -> impl Iterator<Item = Port> + '_ {
        self.sockets.keys().copied().filter(|port| !self.topology.owns(*port))
    }

    /// The broadcast link.
    pub fn broadcast_link(&self) -> BroadcastReport {
        BroadcastReport {
            listeners: self.peers.values().filter(|p| p.listener.acked.is_some()).count(),
            window: BCAST_WINDOW,
            mtu: self.bcast.mtu(),
            stats: self.bcast.stats,
        }
    }

    /// All peers by address.
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
