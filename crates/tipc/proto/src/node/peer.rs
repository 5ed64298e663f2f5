//! What is known of another node.

use super::names::NameReceiver;
use super::tunnel::{Failover, Held, Opening};
use crate::addr::{BearerId, MediaAddr, NodeAddr, NodeId, Port};
use crate::backlog::SYSTEM;
use crate::bcast::{BcastListener, BcastReceiver, deadline};
use crate::limits::{BEARERS_MAX, LINKS_PER_PEER_MAX};
use crate::link::{BcastReport, Link};
use crate::seq::Seq;
use crate::time::Nanos;
use crate::wire::{Capabilities, User, View};
use alloc::collections::VecDeque;

/// Contact with a node, as far as both ends must agree on it. The kernel's states of a node at the same place are named in brackets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Contact {
    /// Lost here, or never had; the peer may still believe in an earlier contact, and until it shows that it does not, only its
    /// RESET and ACTIVATE messages without that belief are heard (SELF_DOWN_PEER_LEAVING).
    Leaving,
    /// None, and both know (SELF_DOWN_PEER_DOWN).
    Down,
    /// Established (SELF_UP_PEER_COMING, SELF_UP_PEER_UP). While [`Peer::held`] is set, it is NODE_SYNCHING, while
    /// [`Peer::failover`] is, NODE_FAILINGOVER.
    Up,
}

/// One of the links to a peer.
#[derive(Clone, Debug)]
pub(super) struct PeerLink {
    /// The peer's address on the link's medium.
    pub(super) media: MediaAddr,
    /// When something was last heard over it.
    pub(super) heard_at: Nanos,
    pub(super) link: Link,
}

/// Another node.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) id: NodeId,
    pub(super) signature: u16,
    pub(super) capabilities: Capabilities,
    /// What its latest life announced. It counts when contact with the life before is over.
    pub(super) announced: Capabilities,
    /// What both ends have announced.
    pub(super) common: Capabilities,
    pub(super) contact: Contact,
    /// By our bearer.
    pub(super) links: [Option<PeerLink>; BEARERS_MAX],
    /// The bearers that carry the traffic of even and of odd ports. Both are set while contact holds.
    pub(super) slots: [Option<BearerId>; 2],
    /// What arrived on a link that must not overtake another.
    pub(super) held: Option<Held>,
    /// What is sent on a link must not overtake another.
    pub(super) opening: Option<Opening>,
    /// A link died and its traffic comes through another.
    pub(super) failover: Option<Failover>,
    pub(super) bcast_rx: BcastReceiver,
    pub(super) listener: BcastListener,
    /// The link and the number on it of the message that opens the peer's broadcast receive link, until the peer has it. Before
    /// that its acknowledgements of broadcasts mean nothing.
    pub(super) greeting: Option<(BearerId, Seq)>,
    pub(super) names: NameReceiver,
    /// Sockets that wait for room on the link of their half of the ports, and at which level.
    pub(super) waiting: [VecDeque<(Port, usize)>; 2],
    /// When it is forgotten, while there is no contact.
    pub(super) forget_at: Nanos,
    /// Its entry in the node's timers.
    pub(super) timer: Option<Nanos>,
    /// It stands in the queue of those that may have something to send.
    pub(super) queued: bool,
}

/// Which half of the traffic a port belongs to.
pub(super) const fn half_of(port: Port) -> usize {
    (port.0 & 1) as usize
}

/// Which half a message belongs to: that of the port it comes from. The protocol's own messages go with the even ports, so that they
/// keep their order among each other.
pub(super) fn half_of_message(view: &View<'_>) -> usize {
    match view.user() {
        Some(User::Data(_) | User::ConnManager | User::GroupProtocol) => half_of(view.orig_port()),
        _ => 0,
    }
}

impl Peer {
    /// Contact holds.
    pub(super) fn is_up(&self) -> bool {
        self.contact == Contact::Up
    }

    /// Takes what its latest life announced as what it understands; `own` is what this node announces. Not while contact holds.
    pub(super) fn adopt_capabilities(&mut self, own: Capabilities) {
        self.capabilities = self.announced;
        self.common = own.common(self.announced);
        for over in self.links.iter_mut().flatten() {
            over.link.set_common(self.common);
        }
    }

    /// It applies name updates by their number, however they come.
    pub(super) fn hears_numbered_names(&self) -> bool {
        self.capabilities.has(Capabilities::NAMED_BCAST)
    }

    pub(super) fn link(&self, bearer: BearerId) -> Option<&PeerLink> {
        self.links.get(usize::from(bearer.0))?.as_ref()
    }

    pub(super) fn link_mut(&mut self, bearer: BearerId) -> Option<&mut PeerLink> {
        self.links.get_mut(usize::from(bearer.0))?.as_mut()
    }

    /// The link that carries a half of the traffic, while contact holds.
    pub(super) fn carrier(&mut self, half: usize) -> Option<&mut Link> {
        let bearer = self.slots[half & 1]?;
        self.link_mut(bearer).map(|l| &mut l.link)
    }

    /// The bearer of the link beside the one on this bearer.
    pub(super) fn other(&self, bearer: BearerId) -> Option<BearerId> {
        self.bearers().find(|b| *b != bearer)
    }

    /// The bearers on which there is a link.
    pub(super) fn bearers(&self) -> impl Iterator<Item = BearerId> + use<> {
        let present: [bool; BEARERS_MAX] = core::array::from_fn(|n| self.links[n].is_some());
        (0..BEARERS_MAX).filter(move |n| present[*n]).map(|n| BearerId(n as u8))
    }

    /// Whether the link on this bearer is up.
    pub(super) fn is_link_up(&self, bearer: BearerId) -> bool {
        self.link(bearer).is_some_and(|l| l.link.is_up())
    }

    /// Gives the traffic to the links that are up and have the highest priority: a half each, or both halves to the only one. A half
    /// stays where it is if it can. Returns whether any link is up.
    pub(super) fn share(&mut self) -> bool {
        let up = || self.links.iter().flatten().filter(|l| l.link.is_up());
        let best = up().map(|l| l.link.priority()).max();
        let is_best = |b: &BearerId| {
            self.link(*b).is_some_and(|l| l.link.is_up() && Some(l.link.priority()) == best)
        };
        let first = self.slots[0].filter(is_best).or_else(|| self.bearers().find(is_best));
        let second = self.bearers().find(|b| is_best(b) && Some(*b) != first).or(first);
        self.slots = [first, second];
        first.is_some()
    }

    /// What a STATE, or a packet, tells the peer about broadcasts.
    pub(super) fn bcast_report(&self, last_sent: Seq) -> BcastReport {
        BcastReport { contact: self.is_up(), ..self.bcast_rx.report(last_sent) }
    }

    /// The peer's end of our broadcast link is open: its acknowledgements count.
    pub(super) fn listens(&mut self) -> bool {
        if let Some((bearer, seq)) = self.greeting
            && self.link(bearer).is_some_and(|l| l.link.is_acked(seq))
        {
            self.greeting = None;
        }
        self.is_up() && self.greeting.is_none()
    }

    /// Sends a STATE over the first of the links that carry traffic.
    pub(super) fn want_state(&mut self, probe: bool, keepalive: bool) {
        if let Some(link) = self.carrier(0) {
            link.want_state(probe, keepalive);
        }
    }

    pub(super) fn octets(&self) -> usize {
        let links = self.links.iter().flatten().map(|l| l.link.octets()).sum::<usize>();
        let held = self.held.as_ref().map_or(0, Held::octets);
        let failover = self.failover.as_ref().map_or(0, Failover::octets);
        links + held + failover + self.bcast_rx.octets() + self.names.octets()
    }

    pub(super) fn has_output(&self) -> bool {
        self.links.iter().flatten().any(|l| l.link.has_output()) || self.listener.has_resend()
    }

    /// When one of its links or its broadcasts want to be looked at.
    pub(super) fn poll_timeout(&self) -> Option<Nanos> {
        let links = self.links.iter().flatten().map(|l| l.link.poll_timeout()).min();
        Some(links.map_or(self.forget_at, |at| deadline(&self.bcast_rx, at)))
    }

    /// Whether the link takes a message of this level from this port now.
    pub(super) fn has_room(&mut self, port: Port, level: usize) -> bool {
        self.carrier(half_of(port)).is_none_or(|link| link.has_room(level))
    }

    /// Whether the link takes a name update now; one without contact needs none.
    pub(super) fn has_room_for_names(&mut self) -> bool {
        self.has_room(Port(0), SYSTEM)
    }

    /// A socket wants to be told when the link has room at this level.
    pub(super) fn wait(&mut self, port: Port, level: usize) {
        let waiting = &mut self.waiting[half_of(port)];
        if !waiting.contains(&(port, level)) {
            waiting.push_back((port, level));
        }
    }

    /// A bearer whose link may give way to one over another bearer, when there are as many as a peer may have: the link is down and
    /// nothing came over it for a while.
    pub(super) fn idle_link(&self, now: Nanos) -> Option<BearerId> {
        self.bearers().find(|b| {
            self.link(*b)
                .is_some_and(|l| !l.link.is_up() && now.since(l.heard_at) > l.link.tolerance() * 2)
        })
    }

    /// Whether one more link fits.
    pub(super) fn is_full(&self) -> bool {
        self.links.iter().flatten().count() >= LINKS_PER_PEER_MAX
    }
}

/// Who may not be a peer's address.
pub(super) fn is_legal_peer(addr: NodeAddr, own: NodeAddr) -> bool {
    addr != NodeAddr(0) && addr != own
}
