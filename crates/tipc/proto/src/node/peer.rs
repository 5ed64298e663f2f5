//! The state of another node, as far as this node knows it.

use super::names::NameReceiver;
use super::tunnel::{Failover, Held, Opening};
use crate::addr::{BearerId, MediaAddr, NodeAddr, NodeId, Port};
use crate::backlog::SYSTEM;
use crate::bcast::{BcastListener, BcastReceiver, deadline};
use crate::drops::DropReason;
use crate::limits::{BEARERS_MAX, LINKS_PER_PEER_MAX};
use crate::link::{BcastReport, Link};
use crate::seq::Seq;
use crate::time::Nanos;
use crate::wire::{Capabilities, User, View};
use alloc::collections::VecDeque;

/// State of the contact with a node, on which both ends must agree. The corresponding states in the kernel are given in
/// parentheses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Contact {
    /// No contact at this end, but the peer may not have noticed yet that an earlier contact was lost. Until it has,
    /// only RESET and ACTIVATE messages that show the loss of that contact are accepted (SELF_DOWN_PEER_LEAVING).
    Leaving,
    /// No contact, and both ends know this (SELF_DOWN_PEER_DOWN).
    Down,
    /// Contact exists (SELF_UP_PEER_COMING, SELF_UP_PEER_UP). The kernel's state is NODE_SYNCHING while [`Peer::held`]
    /// is set, and NODE_FAILINGOVER while [`Peer::failover`] is set.
    Up,
}

/// A link to a peer.
#[derive(Clone, Debug)]
pub(super) struct PeerLink {
    /// The peer's address on the link's medium.
    pub(super) media: MediaAddr,
    /// When a frame was last received over the link.
    pub(super) heard_at: Nanos,
    pub(super) link: Link,
}

impl PeerLink {
    /// Fails if a frame comes from another station than the link's peer. A source that is not known is accepted.
    pub(super) fn check_source(&self, source: Option<MediaAddr>) -> Result<(), DropReason> {
        if source.is_none_or(|source| source == self.media) {
            Ok(())
        } else {
            Err(DropReason::WrongSource)
        }
    }
}

/// State of another node.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) id: NodeId,
    pub(super) signature: u16,
    pub(super) capabilities: Capabilities,
    /// Capabilities that the peer announced when it last started. They take effect once contact with its previous
    /// incarnation has ended.
    pub(super) announced: Capabilities,
    /// Capabilities that both ends have announced.
    pub(super) common: Capabilities,
    pub(super) contact: Contact,
    /// The links, by the number of the bearer at our end.
    pub(super) links: [Option<PeerLink>; BEARERS_MAX],
    /// The bearers that carry the traffic of even and of odd ports, in this order. Both are set while there is contact.
    pub(super) slots: [Option<BearerId>; 2],
    /// Packets held back on one link because they must not overtake those on the other.
    pub(super) held: Option<Held>,
    /// A link that must not send yet, because its packets would overtake those in flight on another link.
    pub(super) opening: Option<Opening>,
    /// A failed link whose remaining traffic arrives through the other link.
    pub(super) failover: Option<Failover>,
    pub(super) bcast_rx: BcastReceiver,
    pub(super) listener: BcastListener,
    /// The message that opens the peer's broadcast receive link: the bearer and the sequence number with which it was
    /// sent. `None` when the peer has acknowledged it; before that, the peer's broadcast acknowledgements are
    /// meaningless.
    pub(super) greeting: Option<(BearerId, Seq)>,
    pub(super) names: NameReceiver,
    /// For each half of the ports, the sockets that wait for room on the link that carries it, each with the level it
    /// needs.
    pub(super) waiting: [VecDeque<(Port, usize)>; 2],
    /// The peer's place among those that have never been in contact; `None` if it has been.
    pub(super) stranger: Option<usize>,
    /// Whether the peer has ever sent a link protocol message.
    pub(super) has_answered: bool,
    /// When to forget the peer if there is no contact.
    pub(super) forget_at: Nanos,
    /// Time of the peer's entry in the node's timers; `None` if there is no entry.
    pub(super) timer: Option<Nanos>,
    /// Whether the peer is in the node's queue of peers that may have something to send.
    pub(super) queued: bool,
}

/// The half of the traffic that a port belongs to: 0 for even ports, 1 for odd ones.
pub(super) const fn half_of(port: Port) -> usize {
    (port.0 & 1) as usize
}

/// The half of the traffic that a message belongs to, which its source port determines. All of the protocol's own
/// messages belong to half 0, so that they stay in order.
pub(super) fn half_of_message(view: &View<'_>) -> usize {
    match view.user() {
        Some(User::Data(_) | User::ConnManager | User::GroupProtocol) => half_of(view.orig_port()),
        _ => 0,
    }
}

impl Peer {
    /// Whether there is contact with the peer.
    pub(super) fn is_up(&self) -> bool {
        self.contact == Contact::Up
    }

    /// Adopts the capabilities that the peer announced last; `own` are those of this node. Must not be called during
    /// contact.
    pub(super) fn adopt_capabilities(&mut self, own: Capabilities) {
        self.capabilities = self.announced;
        self.common = own.common(self.announced);
        for over in self.links.iter_mut().flatten() {
            over.link.set_common(self.common);
        }
    }

    /// Whether the peer applies name updates in the order of their numbers, on whichever link they arrive.
    pub(super) fn hears_numbered_names(&self) -> bool {
        self.capabilities.has(Capabilities::NAMED_BCAST)
    }

    pub(super) fn link(&self, bearer: BearerId) -> Option<&PeerLink> {
        self.links.get(usize::from(bearer.0))?.as_ref()
    }

    pub(super) fn link_mut(&mut self, bearer: BearerId) -> Option<&mut PeerLink> {
        self.links.get_mut(usize::from(bearer.0))?.as_mut()
    }

    /// The link that carries a half of the traffic; `None` without contact.
    pub(super) fn carrier(&mut self, half: usize) -> Option<&mut Link> {
        let bearer = self.slots[half & 1]?;
        self.link_mut(bearer).map(|l| &mut l.link)
    }

    /// The bearer of the peer's other link, if there is one.
    pub(super) fn other(&self, bearer: BearerId) -> Option<BearerId> {
        self.bearers().find(|b| *b != bearer)
    }

    /// The bearers that have a link.
    pub(super) fn bearers(&self) -> impl Iterator<Item = BearerId> + use<> {
        let present: [bool; BEARERS_MAX] = core::array::from_fn(|n| self.links[n].is_some());
        (0..BEARERS_MAX).filter(move |n| present[*n]).map(|n| BearerId(n as u8))
    }

    /// Whether the link on this bearer is up.
    pub(super) fn is_link_up(&self, bearer: BearerId) -> bool {
        self.link(bearer).is_some_and(|l| l.link.is_up())
    }

    /// Distributes the traffic over the links that have the highest priority among those that are up: one half to each
    /// of two links, or both halves to a single link. A half stays on its link if possible. Returns whether any link is
    /// up.
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

    /// The report on broadcasts that is sent to the peer in STATE messages and, in part, in other packets.
    pub(super) fn bcast_report(&self, last_sent: Seq) -> BcastReport {
        BcastReport { contact: self.is_up(), ..self.bcast_rx.report(last_sent) }
    }

    /// Whether the peer's end of our broadcast link is open, so that the peer's acknowledgements count.
    pub(super) fn listens(&mut self) -> bool {
        if let Some((bearer, seq)) = self.greeting
            && self.link(bearer).is_some_and(|l| l.link.is_acked(seq))
        {
            self.greeting = None;
        }
        self.is_up() && self.greeting.is_none()
    }

    /// Requests a STATE to be sent over the link that carries half 0.
    pub(super) fn want_state(&mut self, probe: bool, keepalive: bool) {
        if let Some(link) = self.carrier(0) {
            link.want_state(probe, keepalive);
        }
    }

    pub(super) fn held_bytes(&self) -> usize {
        let links = self.links.iter().flatten().map(|l| l.link.held_bytes()).sum::<usize>();
        let held = self.held.as_ref().map_or(0, Held::held_bytes);
        let failover = self.failover.as_ref().map_or(0, Failover::held_bytes);
        links + held + failover + self.bcast_rx.held_bytes() + self.names.held_bytes()
    }

    pub(super) fn has_output(&self) -> bool {
        self.links.iter().flatten().any(|l| l.link.has_output()) || self.listener.has_resend()
    }

    /// When one of the peer's links or its broadcast receiver needs attention, or the peer is to be forgotten.
    pub(super) fn poll_timeout(&self) -> Option<Nanos> {
        let links = self.links.iter().flatten().map(|l| l.link.poll_timeout()).min();
        Some(links.map_or(self.forget_at, |at| deadline(&self.bcast_rx, at)))
    }

    /// Whether the link that carries the traffic of this port would accept a message of this level now; always true
    /// without contact.
    pub(super) fn has_room(&mut self, port: Port, level: usize) -> bool {
        self.carrier(half_of(port)).is_none_or(|link| link.has_room(level))
    }

    /// Whether the link that carries name updates would accept one now; always true without contact.
    pub(super) fn has_room_for_names(&mut self) -> bool {
        self.has_room(Port(0), SYSTEM)
    }

    /// Registers a socket to be woken when the link that carries its traffic has room at this level.
    pub(super) fn wait(&mut self, port: Port, level: usize) {
        let waiting = &mut self.waiting[half_of(port)];
        if !waiting.contains(&(port, level)) {
            waiting.push_back((port, level));
        }
    }

    /// The bearer of a link that is down and has been silent for more than twice its tolerance; `None` if there is
    /// none. If the peer has the maximum number of links, a link over another bearer may replace this one.
    pub(super) fn idle_link(&self, now: Nanos) -> Option<BearerId> {
        self.bearers().find(|b| {
            self.link(*b)
                .is_some_and(|l| !l.link.is_up() && now.since(l.heard_at) > l.link.tolerance() * 2)
        })
    }

    /// Whether the peer has the maximum number of links.
    pub(super) fn is_full(&self) -> bool {
        self.links.iter().flatten().count() >= LINKS_PER_PEER_MAX
    }
}

/// Whether an address is legal for a peer: neither 0 nor this node's own.
pub(super) fn is_legal_peer(addr: NodeAddr, own: NodeAddr) -> bool {
    addr != NodeAddr(0) && addr != own
}
