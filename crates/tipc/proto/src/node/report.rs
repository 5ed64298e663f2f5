//! What an operator may ask.

use super::Node;
use crate::addr::{BearerId, MediaAddr, NodeAddr, NodeId};
use crate::link::{LinkState, LinkStats};
use crate::wire::{Capabilities, InterfaceName};
use core::time::Duration;

/// Another node, as this one sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerReport {
    /// Its address.
    pub addr: NodeAddr,
    /// Its identity.
    pub id: NodeId,
    /// What it announced.
    pub capabilities: Capabilities,
    /// The link to it.
    pub link: LinkReport,
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
    /// Smoothed round trip, once measured.
    pub round_trip: Option<Duration>,
    /// Counters.
    pub stats: LinkStats,
}

impl Node {
    /// All peers by address.
    pub fn peers(&self) -> impl Iterator<Item = PeerReport> + '_ {
        self.peers.iter().map(|(addr, peer)| PeerReport {
            addr: *addr,
            id: peer.id,
            capabilities: peer.capabilities,
            link: LinkReport {
                bearer: peer.link.bearer(),
                media: peer.media,
                peer_bearer: peer.link.peer_bearer(),
                peer_interface: peer.link.peer_interface().clone(),
                state: peer.link.state(),
                mtu: peer.link.mtu(),
                priority: peer.link.priority(),
                plane: peer.link.plane(),
                tolerance: peer.link.tolerance(),
                window: peer.link.window_size(),
                round_trip: peer.link.round_trip(),
                stats: *peer.link.stats(),
            },
        })
    }
}
