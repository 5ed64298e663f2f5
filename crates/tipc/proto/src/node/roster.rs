//! Decides which nodes have a place in the peer table.
//!
//! Anyone who can send a discovery message can invent nodes. Nodes that have never been in contact therefore share a
//! limited number of places, where a new one replaces another, and a station on a medium has only one of these places.
//! No frame causes a search over all peers.

use super::peer::{Contact, Peer};
use super::{Event, Node};
use crate::addr::{BearerId, MediaAddr, NodeAddr, NodeId};
use crate::bcast::{BcastListener, BcastReceiver};
use crate::drops::DropReason;
use crate::limits::{
    GREETINGS_AT_ONCE, GREETINGS_PER_SECOND, REFUSAL_REPORT, STRANGER_FORGET, STRANGERS_MAX,
};
use crate::rng::Rng;
use crate::time::Nanos;
use crate::wire::Discovery;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// How many frames may be sent to nodes that have never been in contact, as a token bucket.
#[derive(Clone, Debug)]
struct Greetings {
    left: u32,
    at: Nanos,
}

impl Default for Greetings {
    fn default() -> Self {
        Self { left: GREETINGS_AT_ONCE, at: Nanos(0) }
    }
}

impl Greetings {
    fn take(&mut self, now: Nanos) -> bool {
        let accrued = now.since(self.at).as_millis() * u128::from(GREETINGS_PER_SECOND) / 1_000;
        if accrued > 0 {
            let accrued = u32::try_from(accrued).unwrap_or(GREETINGS_AT_ONCE);
            (self.left, self.at) = (self.left.saturating_add(accrued).min(GREETINGS_AT_ONCE), now);
        }
        let may = self.left > 0;
        self.left -= u32::from(may);
        may
    }
}

/// The indices of the peer table.
#[derive(Clone, Debug, Default)]
pub(super) struct Roster {
    /// The addresses of all peers by identity. No two peers have the same identity.
    identities: BTreeMap<NodeId, NodeAddr>,
    /// The peers that have never been in contact, in no particular order.
    strangers: Vec<NodeAddr>,
    /// The same peers by the stations on which they were discovered.
    stations: BTreeMap<(BearerId, MediaAddr), NodeAddr>,
    /// The peers that have been in contact and are not any more, by the time at which they will be forgotten.
    lost: BTreeSet<(Nanos, NodeAddr)>,
    /// Frames to strangers that have not answered, and to those that have.
    greetings: [Greetings; 2],
}

impl Roster {
    /// The address of the peer with this identity.
    pub(super) fn address_of(&self, id: &NodeId) -> Option<NodeAddr> {
        self.identities.get(id).copied()
    }

    /// Records that a peer has another identity than before.
    pub(super) fn identify(&mut self, addr: NodeAddr, former: &NodeId, id: NodeId) {
        self.identities.remove(former);
        self.identities.insert(id, addr);
    }

    /// Records a new peer, and returns its place among those that have never been in contact.
    fn enter(&mut self, addr: NodeAddr, id: NodeId) -> usize {
        self.identities.insert(id, addr);
        self.strangers.push(addr);
        self.strangers.len() - 1
    }

    /// A peer chosen at random among those that have never been in contact, of which there must be one.
    fn any_stranger(&self, rng: &mut Rng) -> NodeAddr {
        self.strangers[rng.next_u32() as usize % self.strangers.len()]
    }

    /// Records the station of a peer that has never been in contact; `former` is its address before.
    pub(super) fn move_station(
        &mut self,
        addr: NodeAddr,
        (bearer, media): (BearerId, MediaAddr),
        former: Option<MediaAddr>,
    ) {
        if let Some(former) = former {
            self.leave_station(addr, (bearer, former));
        }
        self.stations.insert((bearer, media), addr);
    }

    /// Removes a station if it belongs to this peer.
    pub(super) fn leave_station(&mut self, addr: NodeAddr, station: (BearerId, MediaAddr)) {
        if self.stations.get(&station) == Some(&addr) {
            self.stations.remove(&station);
        }
    }
}

impl Node {
    /// Handles a node that was known under another address before: forgets the peer with that address. Fails if there
    /// is still contact with that peer.
    pub(super) fn drop_former_address(&mut self, m: &Discovery) -> Result<(), DropReason> {
        let former = self.roster.address_of(&m.id).filter(|addr| *addr != m.sender);
        let Some(addr) = former else { return Ok(()) };
        if self.peers.get(&addr).is_some_and(|peer| peer.is_up()) {
            return Err(DropReason::DuplicateAddress);
        }
        self.forget_peer(addr);
        Ok(())
    }

    /// Gives a place to a node that was discovered on a bearer.
    pub(super) fn add_peer(&mut self, now: Nanos, bearer: BearerId, m: &Discovery) {
        // A station is one node: what it claimed to be before has not answered.
        let predecessor = self.roster.stations.get(&(bearer, m.media)).copied();
        let full = self.roster.strangers.len() >= STRANGERS_MAX;
        let replaced =
            predecessor.or_else(|| full.then(|| self.roster.any_stranger(&mut self.rng)));
        if let Some(replaced) = replaced {
            self.drops.count(DropReason::NeverAnswered);
            if predecessor.is_none() {
                self.report_refusal(now, bearer, Some(m.media), DropReason::NeverAnswered);
            }
            self.forget_peer(replaced);
        }
        let peer = Peer {
            id: m.id,
            signature: m.signature,
            capabilities: m.capabilities,
            announced: m.capabilities,
            common: self.cfg.announced().common(m.capabilities),
            contact: Contact::Leaving,
            links: Default::default(),
            slots: [None; 2],
            held: None,
            opening: None,
            failover: None,
            bcast_rx: BcastReceiver::default(),
            listener: BcastListener::default(),
            greeting: None,
            names: Default::default(),
            waiting: Default::default(),
            stranger: Some(self.roster.enter(m.sender, m.id)),
            has_answered: false,
            forget_at: now + self.cfg.limits.peer_forget.min(STRANGER_FORGET),
            timer: None,
            queued: false,
        };
        self.peers.insert(m.sender, Box::new(peer));
    }

    /// Records the first contact with a peer, or the return of contact. If there are too many peers now, forgets the one
    /// that has been without contact for the longest time.
    pub(super) fn found_peer(&mut self, addr: NodeAddr) {
        self.leave_strangers(addr);
        if let Some(peer) = self.peers.get(&addr) {
            self.roster.lost.remove(&(peer.forget_at, addr));
        }
        if self.linked + self.roster.lost.len() > self.cfg.limits.peers
            && let Some((_, longest)) = self.roster.lost.first().copied()
        {
            self.forget_peer(longest);
        }
    }

    /// Records that contact with a peer was lost, and when to forget it.
    pub(super) fn lost_peer(&mut self, now: Nanos, addr: NodeAddr) {
        if let Some(peer) = self.peers.get_mut(&addr) {
            peer.forget_at = now + self.cfg.limits.peer_forget;
            self.roster.lost.insert((peer.forget_at, addr));
        }
    }

    /// Whether contact with another peer would exceed the limit.
    pub(super) fn check_place(&self, peer: &Peer) -> Result<(), DropReason> {
        if peer.is_up() || self.linked < self.cfg.limits.peers {
            Ok(())
        } else {
            Err(DropReason::TooManyPeers)
        }
    }

    /// Whether a frame may be sent to a peer now. Those to peers that have never been in contact are limited.
    pub(super) fn may_greet(&mut self, now: Nanos, addr: NodeAddr) -> bool {
        let Some(peer) = self.peers.get(&addr) else { return true };
        peer.stranger.is_none() || self.roster.greetings[usize::from(peer.has_answered)].take(now)
    }

    /// Removes a peer from those that have never been in contact.
    fn leave_strangers(&mut self, addr: NodeAddr) {
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        let Some(place) = peer.stranger.take() else { return };
        for over in peer.links.iter().flatten() {
            self.roster.leave_station(addr, (over.link.bearer(), over.media));
        }
        self.roster.strangers.swap_remove(place);
        if let Some(moved) = self.roster.strangers.get(place)
            && let Some(peer) = self.peers.get_mut(moved)
        {
            peer.stranger = Some(place);
        }
    }

    /// Removes a peer whose links are down.
    pub(super) fn forget_peer(&mut self, addr: NodeAddr) {
        self.leave_strangers(addr);
        if let Some(peer) = self.peers.remove(&addr) {
            self.roster.lost.remove(&(peer.forget_at, addr));
            self.roster.identities.remove(&peer.id);
            if let Some(at) = peer.timer {
                self.timers.remove(&(at, addr));
            }
        }
        for bearer in self.bearers.iter_mut().flatten() {
            bearer.monitor.remove(addr);
        }
    }

    /// Counts a dropped frame and, for some reasons, tells the caller.
    pub(super) fn drop_frame(
        &mut self,
        now: Nanos,
        bearer: BearerId,
        source: Option<MediaAddr>,
        (frame, reason): (&[u8], DropReason),
    ) {
        self.drops.count(reason);
        if matches!(
            reason,
            DropReason::UnlistedSource
                | DropReason::WrongSource
                | DropReason::TooManyPeers
                | DropReason::Encrypted
                | DropReason::Plain
                | DropReason::NoKey
                | DropReason::NotGenuine
        ) {
            let from = source.or_else(|| self.station_of(bearer, frame));
            self.report_refusal(now, bearer, from, reason);
        }
    }

    /// Tells the caller that frames are dropped for a reason, unless it was told a short time ago.
    fn report_refusal(
        &mut self,
        now: Nanos,
        bearer: BearerId,
        from: Option<MediaAddr>,
        reason: DropReason,
    ) {
        let reported = &mut self.refusals_reported[reason as usize];
        if reported.is_none_or(|at| now.since(at) >= REFUSAL_REPORT) {
            *reported = Some(now);
            self.events.push_back(Event::FramesRefused { bearer, from, reason });
        }
    }
}
