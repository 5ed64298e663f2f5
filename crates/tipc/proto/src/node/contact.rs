//! Handles links that come up or go down, and the consequences for contact with the peer.

use super::peer::{Contact, Peer};
use super::tunnel::Opening;
use super::{Address, Destination, Event, Node, Transmit};
use crate::addr::{BearerId, MediaAddr, NodeAddr};
use crate::bcast::BcastListener;
use crate::limits::DISCOVERY_FIRST;
use crate::link::{LinkDownReason, LinkEvent};
use crate::seq::Seq;
use crate::time::Nanos;
use crate::wire::Capabilities;
use alloc::vec::Vec;

impl Node {
    /// Handles an event that a link has reported; does nothing for `None`.
    pub(super) fn link_event(
        &mut self,
        now: Nanos,
        addr: NodeAddr,
        bearer: BearerId,
        event: Option<LinkEvent>,
    ) {
        match event {
            Some(LinkEvent::Up) => self.link_up(now, addr, bearer),
            Some(LinkEvent::Down(reason)) => self.link_down(now, addr, bearer, reason),
            None => {}
        }
    }

    fn link_up(&mut self, now: Nanos, addr: NodeAddr, bearer: BearerId) {
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        let had_contact = peer.is_up();
        peer.share();
        let Some(over) = peer.link(bearer) else { return };
        let peer_bearer = over.link.peer_bearer();
        self.events.push_back(Event::LinkUp { peer: addr, bearer });
        if let Some(bearer) = &mut self.bearers[usize::from(bearer.0)] {
            bearer.monitor.peer_up(addr);
        }
        if had_contact {
            self.synchronize(addr, bearer);
        } else {
            peer.contact = Contact::Up;
            peer.listener = BcastListener::new(self.bcast.last_sent());
            peer.greeting = Some((bearer, Seq(1)));
            self.linked += 1;
            self.unnumbered += usize::from(!peer.hears_numbered_names());
            self.events.push_back(Event::PeerUp { peer: addr });
            self.found_peer(addr);
        }
        let state = self.link_binding(addr, bearer.0, peer_bearer.0);
        if self.names.insert(state).is_ok() {
            self.announce(true, state);
        }
        if !had_contact {
            self.greet(now, addr);
        }
    }

    /// Synchronises a second link that has come up: the traffic that moves to it must not overtake the packets in
    /// flight on the first link.
    fn synchronize(&mut self, addr: NodeAddr, bearer: BearerId) {
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        let Some(behind) = peer.other(bearer) else { return };
        let enhanced = peer.common.has(Capabilities::TUNNEL_ENHANCED);
        let Some(old) = peer.link(behind) else { return };
        let (acked, point) = (old.link.last_acked(), old.link.last_queued());
        let other_peer_bearer = old.link.peer_bearer();
        if let Some(new) = peer.link_mut(bearer) {
            new.link.synchronize((acked, point), other_peer_bearer, enhanced);
            peer.opening = Some(Opening { link: bearer, behind, point });
        }
    }

    fn link_down(&mut self, now: Nanos, addr: NodeAddr, bearer: BearerId, reason: LinkDownReason) {
        self.link_lost(now, addr, bearer, reason);
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        if peer.share() {
            self.fail_over(now, addr, bearer);
        } else {
            self.contact_lost(now, addr, Some(bearer), reason);
        }
    }

    /// Reports to the caller, to subscribers and to the ring monitor that a link went down.
    fn link_lost(&mut self, now: Nanos, addr: NodeAddr, bearer: BearerId, reason: LinkDownReason) {
        let Some(over) = self.peers.get(&addr).and_then(|p| p.link(bearer)) else { return };
        let peer_bearer = over.link.peer_bearer();
        self.events.push_back(Event::LinkDown { peer: addr, bearer, reason });
        if reason == LinkDownReason::FragmentsLost {
            self.bound_broadcasts();
        }
        let state = self.link_binding(addr, bearer.0, peer_bearer.0);
        if let Some(state) = self.names.remove(state.range, state.socket, state.key) {
            self.announce(false, state);
        }
        self.monitor_lost(now, addr, bearer);
    }

    /// Takes all links to a peer down at the same time, because the two ends no longer agree on their traffic, or a
    /// queue has overflowed. Contact is then re-established from scratch.
    pub(super) fn lose_peer(&mut self, now: Nanos, addr: NodeAddr, reason: LinkDownReason) {
        let Some(peer) = self.peers.get_mut(&addr).filter(|p| p.is_up()) else { return };
        for bearer in peer.bearers() {
            let Some(over) = self.peers.get_mut(&addr).and_then(|p| p.link_mut(bearer)) else {
                continue;
            };
            if over.link.fail(now, reason).is_some() {
                self.link_lost(now, addr, bearer, reason);
            }
        }
        if let Some(peer) = self.peers.get_mut(&addr) {
            peer.share();
        }
        self.contact_lost(now, addr, None, reason);
        self.touch(addr);
    }

    /// Ends contact with a peer to which no link is up any more. `last` is the link that went down last, if it has
    /// already been reset.
    fn contact_lost(
        &mut self,
        now: Nanos,
        addr: NodeAddr,
        last: Option<BearerId>,
        reason: LinkDownReason,
    ) {
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        self.unnumbered -= usize::from(!peer.hears_numbered_names());
        let peer_knows = matches!(reason, LinkDownReason::PeerReset | LinkDownReason::PeerStopping);
        peer.contact = if peer_knows { Contact::Down } else { Contact::Leaving };
        for bearer in peer.bearers() {
            if let Some(over) = peer.link_mut(bearer) {
                // Its queues are lost with the contact.
                drop(over.link.take_remains());
                if Some(bearer) != last {
                    over.link.restart(now);
                }
            }
        }
        (peer.held, peer.opening, peer.failover, peer.greeting) = (None, None, None, None);
        peer.bcast_rx.close();
        peer.listener = BcastListener::default();
        peer.names = Default::default();
        peer.adopt_capabilities(self.cfg.announced());
        self.linked -= 1;
        self.events.push_back(Event::PeerDown { peer: addr });
        let waiting: Vec<_> = peer.waiting.iter_mut().flat_map(core::mem::take).collect();
        self.lost_peer(now, addr);
        for (port, _) in waiting {
            self.socket_changed(port);
        }
        self.lose_connections(now, addr);
        while let Some(binding) = self.names.remove_any(addr) {
            self.announce(false, binding);
        }
        self.release_broadcasts();
        if self.linked == 0 {
            self.discover_afresh(now);
        }
    }

    /// Tells the node that a medium is temporarily unavailable. Its links go down immediately instead of after their
    /// tolerance, and their traffic continues over other links. The bearer remains, and its links come up again when
    /// frames arrive.
    pub fn medium_lost(&mut self, now: Nanos, bearer: BearerId) {
        let addrs: Vec<_> =
            self.peers.iter().filter(|(_, p)| p.is_link_up(bearer)).map(|(a, _)| *a).collect();
        for addr in addrs {
            let link = self.peers.get_mut(&addr).and_then(|p| p.link_mut(bearer));
            let event = link.and_then(|over| over.link.fail(now, LinkDownReason::MediumLost));
            self.link_event(now, addr, bearer, event);
            self.touch(addr);
        }
    }

    /// Tells the node that a medium is available again. Discovery starts immediately, and known peers are contacted.
    pub fn medium_back(&mut self, now: Nanos, bearer: BearerId) {
        let Some(Some(back)) = self.bearers.get_mut(usize::from(bearer.0)) else { return };
        (back.discover_at, back.discover_interval) = (now, DISCOVERY_FIRST);
        let addrs: Vec<_> =
            self.peers.iter().filter(|(_, p)| p.link(bearer).is_some()).map(|(a, _)| *a).collect();
        for addr in addrs {
            if let Some(over) = self.peers.get_mut(&addr).and_then(|p| p.link_mut(bearer)) {
                over.link.ask_afresh(now);
            }
            self.touch(addr);
        }
        self.discover(now);
    }

    /// Takes down every link on a bearer, or only those to one station. A peer with another link that is up continues
    /// over it; any other peer is notified. A peer that has no other link is forgotten.
    pub(super) fn stop_links(&mut self, now: Nanos, bearer: BearerId, station: Option<MediaAddr>) {
        let meant = |p: &Peer| p.link(bearer).is_some_and(|l| station.is_none_or(|s| s == l.media));
        let addrs: Vec<_> = self.peers.iter().filter(|(_, p)| meant(p)).map(|(a, _)| *a).collect();
        for addr in addrs {
            let Some(peer) = self.peers.get_mut(&addr) else { continue };
            let goes_on = peer.bearers().any(|b| b != bearer && peer.is_link_up(b));
            let report = peer.bcast_report(self.bcast.last_sent());
            let Some(over) = peer.link_mut(bearer) else { continue };
            let event = over.link.stop(now);
            let dest = Destination::Unicast(over.media);
            let mut last_word = Vec::new();
            if !goes_on && over.link.poll_transmit(now, &report, None, &mut last_word) {
                self.answers.push_back((Transmit { bearer, dest, peer: Some(addr) }, last_word));
            }
            self.link_event(now, addr, bearer, event);
            let Some(peer) = self.peers.get_mut(&addr) else { continue };
            if let Some(over) = peer.links[usize::from(bearer.0)].take() {
                self.roster.leave_station(addr, (bearer, over.media));
            }
            if let Some(bearer) = &mut self.bearers[usize::from(bearer.0)] {
                bearer.monitor.remove(addr);
            }
            if peer.bearers().next().is_none() {
                self.forget_peer(addr);
            } else {
                self.touch(addr);
            }
        }
    }

    /// Ends all contacts in an orderly way, and disables all bearers. Peers are notified if the caller still sends the
    /// frames that [`Node::poll_transmit`] returns, so that they do not have to wait for their tolerance.
    pub fn stop(&mut self, now: Nanos) {
        let addrs: Vec<NodeAddr> = self.peers.keys().copied().collect();
        for addr in addrs {
            // No link must take over the traffic of another.
            self.lose_peer(now, addr, LinkDownReason::BearerDisabled);
        }
        for index in 0..self.bearers.len() {
            // A slot without a bearer has nothing to disable.
            let _ = self.disable_bearer(now, BearerId(index as u8));
        }
        self.address = Address::None;
    }
}
