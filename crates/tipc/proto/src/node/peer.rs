//! What is known of another node.

use super::names::NameReceiver;
use crate::addr::{MediaAddr, NodeAddr, NodeId, Port};
use crate::bcast::{BcastListener, BcastReceiver};
use crate::link::Link;
use crate::time::Nanos;
use crate::wire::Capabilities;
use alloc::collections::VecDeque;

/// Contact with a node, as far as both ends must agree on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Contact {
    /// Lost here, or never had; the peer may still believe in an earlier contact, and until it shows that it does not, only its
    /// RESET and ACTIVATE messages without that belief are heard.
    Leaving,
    /// None, and both know.
    Down,
    /// Established.
    Up,
}

/// Another node.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) id: NodeId,
    pub(super) signature: u16,
    pub(super) capabilities: Capabilities,
    pub(super) media: MediaAddr,
    pub(super) contact: Contact,
    pub(super) link: Link,
    pub(super) bcast_rx: BcastReceiver,
    pub(super) listener: BcastListener,
    pub(super) names: NameReceiver,
    /// Sockets that wait for room on the link, and at which level.
    pub(super) waiting: VecDeque<(Port, usize)>,
    /// When it is forgotten, while there is no contact.
    pub(super) forget_at: Nanos,
    /// When something was last heard from it on the link's bearer.
    pub(super) heard_at: Nanos,
    /// Its entry in the node's timers.
    pub(super) timer: Option<Nanos>,
    /// It stands in the queue of those that may have something to send.
    pub(super) queued: bool,
}

impl Peer {
    pub(super) fn octets(&self) -> usize {
        self.link.octets() + self.bcast_rx.octets() + self.names.octets()
    }

    pub(super) fn has_output(&self) -> bool {
        self.link.has_output() || self.listener.has_resend()
    }

    /// A socket wants to be told when the link has room at this level.
    pub(super) fn wait(&mut self, port: Port, level: usize) {
        if !self.waiting.contains(&(port, level)) {
            self.waiting.push_back((port, level));
        }
    }

    /// Whether a link over another bearer may take the place of this one: it is down and nothing came over it for a while.
    pub(super) fn may_move(&self, now: Nanos) -> bool {
        !self.link.is_up() && now.since(self.heard_at) > self.link.tolerance() * 2
    }
}

/// Who may not be a peer's address.
pub(super) fn is_legal_peer(addr: NodeAddr, own: NodeAddr) -> bool {
    addr != NodeAddr(0) && addr != own
}
