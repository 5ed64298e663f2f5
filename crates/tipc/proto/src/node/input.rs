//! Handles incoming frames and timeouts.
//!
//! `receive` checks each frame once. A sequenced packet then passes these stages: its link puts it in order
//! (`handle_sequenced`); it waits if it must not overtake packets on another link to the same peer (`hold_back`); the
//! link's reassembly completes a message (`assemble`); and `handle_message` handles the whole message.

use super::Node;
use super::peer::Contact;
use crate::addr::{BearerId, MediaAddr, NodeAddr};
use crate::drops::DropReason;
use crate::limits::RESEND_TOLERANCES;
use crate::link::{Link, LinkDownReason, Pending};
use crate::reassembly::OutOfStep;
use crate::time::Nanos;
use crate::wire::{
    BcastInit, Discovery, Inbound, LinkProtocol, LinkProtocolKind, Message, Packet, Tunnel, User,
    View,
};
use alloc::vec::Vec;

impl Node {
    /// Handles a frame received on a bearer. `source` is the frame's source address on the medium, if it is known: frames
    /// of a station that is not in the bearer's list, and frames of another station than the one that their sender has
    /// announced in discovery, are dropped. Without a source, the protocol relies on the announced address.
    pub fn handle_frame(
        &mut self,
        now: Nanos,
        bearer: BearerId,
        source: Option<MediaAddr>,
        frame: &[u8],
    ) {
        if let Err(reason) = self.receive(now, bearer, source, frame) {
            self.drop_frame(now, bearer, source, (frame, reason));
        }
        self.run_local(now);
    }

    fn receive(
        &mut self,
        now: Nanos,
        bearer: BearerId,
        source: Option<MediaAddr>,
        frame: &[u8],
    ) -> Result<(), DropReason> {
        let Some(Some(at)) = self.bearers.get(usize::from(bearer.0)) else {
            return Err(DropReason::NoBearer);
        };
        if let Some(source) = source {
            at.check_listed(&source)?;
        }
        let view = View::parse(frame)?;
        match view.user() {
            Some(User::LinkConfig) => {
                let message = Discovery::decode(&view)?;
                if at.removed.contains(&message.media) {
                    return Err(DropReason::RemovedRemote);
                }
                if source.is_some_and(|source| source != message.media) {
                    return Err(DropReason::WrongSource);
                }
                self.handle_discovery(now, bearer, &message)
            }
            Some(User::LinkProtocol) => {
                let message = LinkProtocol::decode(&view)?;
                self.handle_link_protocol(now, bearer, source, &message)
            }
            Some(User::Crypto) if !self.sealed => Err(DropReason::NotSpoken),
            None => Err(DropReason::NotSpoken),
            Some(_) if view.is_non_seq() => self.handle_broadcast(now, bearer, source, &view),
            Some(_) => self.handle_sequenced(now, bearer, source, &view),
        }
    }

    fn handle_link_protocol(
        &mut self,
        now: Nanos,
        bearer: BearerId,
        source: Option<MediaAddr>,
        m: &LinkProtocol<'_>,
    ) -> Result<(), DropReason> {
        let own = self.addr().ok_or(DropReason::NotForUs)?;
        if m.dest != own {
            return Err(DropReason::NotForUs);
        }
        let peer = self.peers.get(&m.sender).ok_or(DropReason::UnknownPeer)?;
        peer.link(bearer).ok_or(DropReason::UnknownPeer)?.check_source(source)?;
        self.check_place(peer)?;
        let Some(peer) = self.peers.get_mut(&m.sender) else {
            return Err(DropReason::UnknownPeer);
        };
        let is_state = matches!(m.kind, LinkProtocolKind::State(_));
        if peer.contact == Contact::Leaving {
            if is_state || m.redundant_link {
                return Err(DropReason::PeerLeaving);
            }
            peer.contact = Contact::Down;
        }
        let Some(over) = peer.link_mut(bearer) else { return Err(DropReason::UnknownPeer) };
        over.heard_at = now;
        peer.has_answered = true;
        let Some(over) = peer.link_mut(bearer) else { return Err(DropReason::UnknownPeer) };
        let handled = match over.link.handle_protocol(now, m) {
            Ok(handled) => handled,
            Err(reason) => {
                self.touch(m.sender);
                return Err(reason);
            }
        };
        self.link_event(now, m.sender, bearer, handled.event);
        let last_sent = self.bcast.last_sent();
        let mut released = false;
        if let Some(peer) = self.peers.get_mut(&m.sender)
            && let LinkProtocolKind::State(state) = &m.kind
            && peer.is_link_up(bearer)
        {
            peer.bcast_rx.note_last_sent(now, m.last_bcast);
            if !m.bcast_ack_invalid && peer.listens() {
                released = peer.listener.handle_ack(m.bcast_ack, last_sent);
                self.bcast.stats.gaps_received += u64::from(state.bcast_gap > 0);
                let runs = &handled.blocks.bcast;
                peer.listener.handle_gaps(now, m.bcast_ack, state.bcast_gap, runs, last_sent);
            }
        }
        if released {
            self.release_broadcasts();
        }
        match handled.domain {
            Some(Ok(record)) => self.handle_domain(now, bearer, m.sender, record),
            Some(Err(reason)) => self.drops.count(reason),
            None => {}
        }
        self.touch(m.sender);
        Ok(())
    }

    fn handle_sequenced(
        &mut self,
        now: Nanos,
        bearer: BearerId,
        source: Option<MediaAddr>,
        view: &View<'_>,
    ) -> Result<(), DropReason> {
        let own = self.addr().ok_or(DropReason::NotForUs)?;
        if view.dest_node().is_some_and(|dest| dest != own) {
            return Err(DropReason::NotForUs);
        }
        let sender = view.prev_node();
        let peer = self.peers.get_mut(&sender).ok_or(DropReason::UnknownPeer)?;
        let leaving = peer.contact == Contact::Leaving;
        let over = peer.link_mut(bearer).ok_or(DropReason::UnknownPeer)?;
        over.check_source(source)?;
        if leaving {
            return Err(DropReason::PeerLeaving);
        }
        over.heard_at = now;
        let mut behind = Vec::new();
        let (event, in_order) = over.link.handle_packet(now, view, &mut behind, &mut self.drops);
        // Report the link as up before delivering what arrives with it.
        self.link_event(now, sender, bearer, event);
        if let Some(peer) = self.peers.get_mut(&sender)
            && peer.is_link_up(bearer)
            && peer.listens()
            && peer.listener.handle_ack(view.bcast_ack(), self.bcast.last_sent())
        {
            self.release_broadcasts();
        }
        self.take_packets(now, sender, bearer, in_order.then_some(*view), behind);
        self.touch(sender);
        Ok(())
    }

    fn handle_broadcast(
        &mut self,
        now: Nanos,
        bearer: BearerId,
        source: Option<MediaAddr>,
        view: &View<'_>,
    ) -> Result<(), DropReason> {
        let own = self.addr().ok_or(DropReason::NotForUs)?;
        if view.word(5) != self.cfg.network.0 {
            return Err(DropReason::WrongNetwork);
        }
        let sender = view.prev_node();
        if sender == own {
            return Err(DropReason::OwnEcho);
        }
        let peer = self.peers.get_mut(&sender).ok_or(DropReason::UnknownPeer)?;
        if peer.contact != Contact::Up {
            return Err(DropReason::BcastClosed);
        }
        // Several bearers may hear one medium, so the broadcast may be heard on another bearer than its sender's link.
        if !peer.links.iter().flatten().any(|over| over.check_source(source).is_ok()) {
            return Err(DropReason::WrongSource);
        }
        let mut messages = Vec::new();
        let (drops, stats) = (&mut self.drops, &mut self.bcast.stats);
        if peer.bcast_rx.handle_packet(now, own, view, &mut messages, drops, stats) {
            stats.acks_sent += 1;
            let bearer = if peer.is_link_up(bearer) { Some(bearer) } else { peer.slots[0] };
            if let Some(over) = bearer.and_then(|b| peer.link_mut(b)) {
                over.link.want_state(false, false);
            }
        }
        for message in messages {
            self.handle_message(now, sender, message);
        }
        self.touch(sender);
        Ok(())
    }

    /// Processes packets of a link in order: the received packet, if it is the next one, and the packets that waited
    /// for it.
    fn take_packets(
        &mut self,
        now: Nanos,
        sender: NodeAddr,
        bearer: BearerId,
        first: Option<View<'_>>,
        behind: Vec<Packet>,
    ) {
        let first = first.map(Inbound::from);
        for packet in first.into_iter().chain(behind.into_iter().map(Inbound::from)) {
            // Each of them may end the contact.
            if !self.peers.get(&sender).is_some_and(|p| p.is_link_up(bearer)) {
                return;
            }
            self.take_packet(now, sender, bearer, packet);
        }
        self.release_if_due(now, sender);
    }

    fn take_packet(&mut self, now: Nanos, sender: NodeAddr, bearer: BearerId, packet: Inbound<'_>) {
        let view = packet.view();
        if view.user() == Some(User::Tunnel) {
            match Tunnel::decode(&view) {
                Ok(tunnel) => self.handle_tunnel(now, sender, bearer, view.seq(), &tunnel),
                Err(error) => self.drops.count(error.into()),
            }
        } else if let Some(packet) = self.hold_back(now, sender, bearer, packet) {
            self.assemble(now, sender, bearer, packet);
        }
    }

    /// Delivers the messages that the next packet of the link on `bearer` completes. That link may have failed; its
    /// packets then arrive through the surviving link.
    pub(super) fn assemble(
        &mut self,
        now: Nanos,
        sender: NodeAddr,
        bearer: BearerId,
        packet: Inbound<'_>,
    ) {
        let Some(peer) = self.peers.get_mut(&sender).filter(|p| p.is_up()) else { return };
        let Some(reassembly) = peer.reassembly_of(bearer) else { return };
        let mut messages = core::mem::take(&mut self.assembled);
        let result = reassembly.accept(packet, &mut messages, &mut self.drops);
        for message in messages.drain(..) {
            self.handle_message(now, sender, message);
        }
        self.assembled = messages;
        if result == Err(OutOfStep) {
            self.lose_peer(now, sender, LinkDownReason::OutOfStep);
        }
    }

    /// Handles a complete message in sequence, from a unicast or broadcast link.
    pub(super) fn handle_message(&mut self, now: Nanos, sender: NodeAddr, packet: Packet) {
        let message = match Message::decode(&packet.view()) {
            Ok(message) => message,
            Err(error) => {
                self.drops.count(error.into());
                return;
            }
        };
        match &message {
            Message::BcastInit(BcastInit { last_bcast, .. }) => {
                if let Some(peer) = self.peers.get_mut(&sender) {
                    peer.bcast_rx.open(*last_bcast);
                }
            }
            Message::Names(names) => self.handle_names(now, sender, names),
            Message::Data(m) => {
                let payload_len = m.payload.len();
                if let Some(port) = self.deliver(now, sender, m, &packet) {
                    self.queue(port, packet, payload_len);
                }
            }
            Message::Conn(m) => self.handle_conn(sender, m, &packet),
            Message::Group(m) => self.handle_group(sender, m),
            Message::Key(m) => self.handle_key(sender, m),
            Message::Tunnel(_) => self.drops.count(DropReason::NotSpoken),
            Message::Bundle(_) | Message::Fragment(_) => self.drops.count(DropReason::Malformed),
        }
    }

    /// Handles all timers that have expired.
    pub fn handle_timeout(&mut self, now: Nanos) {
        self.discover(now);
        if self.bcast.handle_timeout(now) {
            let last = self.bcast.last_sent();
            let behind = |p: &super::Peer| p.listener.acked.is_some_and(|acked| acked.before(last));
            let mut addrs = Vec::new();
            for (addr, peer) in &mut self.peers {
                if behind(peer) {
                    peer.want_state(true, true);
                    addrs.push(*addr);
                }
            }
            for addr in addrs {
                self.touch(addr);
            }
        }
        while let Some(&(at, addr)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            self.peer_timeout(now, addr);
        }
        self.socket_timeouts(now);
        self.topology_timeouts(now);
        self.run_local(now);
    }

    /// If a peer has lacked a broadcast for too long although its links are up, returns the reason to report for the
    /// loss of contact; otherwise `None`.
    fn broadcast_stuck(&self, now: Nanos, peer: &super::Peer) -> Option<LinkDownReason> {
        let links = || peer.links.iter().flatten().map(|over| &over.link);
        let tolerance = links().map(Link::tolerance).max()?;
        if now.since(peer.listener.stuck_since?) <= tolerance * RESEND_TOLERANCES {
            return None;
        }
        let packet = peer.listener.acked.and_then(|acked| self.bcast.get(acked.next()));
        let divided = links().any(|link| link.why_stuck(packet) == LinkDownReason::FragmentsLost);
        Some(if divided { LinkDownReason::FragmentsLost } else { LinkDownReason::ResendFailed })
    }

    fn peer_timeout(&mut self, now: Nanos, addr: NodeAddr) {
        let last_sent = self.bcast.last_sent();
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        peer.timer = None;
        if peer.contact != Contact::Up && peer.forget_at <= now {
            self.forget_peer(addr);
            return;
        }
        if peer.bcast_rx.handle_timeout(now) {
            self.bcast.stats.gaps_sent += 1;
            peer.want_state(false, false);
        }
        let wants_ack = peer.bcast_rx.wants_ack();
        let bcast_behind = peer.listener.acked.is_some_and(|acked| acked.before(last_sent));
        for bearer in peer.bearers() {
            let Some(peer) = self.peers.get_mut(&addr) else { return };
            let Some(over) = peer.link_mut(bearer) else { continue };
            let monitor = self.bearers[usize::from(bearer.0)].as_mut().map(|b| &mut b.monitor);
            let active = monitor.filter(|m| m.is_active() && over.link.is_up());
            let watch = active.map(|m| m.watch(now, addr));
            let pending = Pending { bcast_ack: wants_ack, bcast_behind, watch };
            let event = over.link.handle_timeout(now, pending);
            self.link_event(now, addr, bearer, event);
        }
        if let Some(reason) = self.peers.get(&addr).and_then(|peer| self.broadcast_stuck(now, peer))
        {
            self.lose_peer(now, addr, reason);
        }
        self.touch(addr);
    }
}
