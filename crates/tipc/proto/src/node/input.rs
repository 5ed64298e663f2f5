//! Frames and time coming in.

use super::peer::Contact;
use super::{Event, Node};
use crate::addr::{BearerId, MediaAddr, NodeAddr};
use crate::bcast::BcastListener;
use crate::drops::DropReason;
use crate::limits::PEER_FORGET;
use crate::link::{LinkDownReason, LinkEvent};
use crate::time::Nanos;
use crate::wire::{BcastInit, Discovery, LinkProtocol, LinkProtocolKind, Message, User, View};
use alloc::vec::Vec;

impl Node {
    /// Takes one frame that came in on a bearer. `_src` is where the medium says it came from; the protocol trusts the address
    /// that discovery announced instead.
    pub fn handle_frame(&mut self, now: Nanos, bearer: BearerId, _src: &MediaAddr, frame: &[u8]) {
        if let Err(reason) = self.receive(now, bearer, frame) {
            self.drops.count(reason);
        }
        self.run_local(now);
    }

    fn receive(&mut self, now: Nanos, bearer: BearerId, frame: &[u8]) -> Result<(), DropReason> {
        if !self.bearers.get(usize::from(bearer.0)).is_some_and(Option::is_some) {
            return Err(DropReason::NoBearer);
        }
        let view = View::parse(frame)?;
        match view.user() {
            Some(User::LinkConfig) => {
                let message = Discovery::decode(&view)?;
                self.handle_discovery(now, bearer, &message)
            }
            Some(User::LinkProtocol) => {
                let message = LinkProtocol::decode(&view)?;
                self.handle_link_protocol(now, bearer, &message)
            }
            Some(User::Crypto) | None => Err(DropReason::NotSpoken),
            Some(_) if view.is_non_seq() => self.handle_broadcast(now, &view),
            Some(_) => self.handle_sequenced(now, bearer, &view),
        }
    }

    fn handle_link_protocol(
        &mut self,
        now: Nanos,
        bearer: BearerId,
        m: &LinkProtocol<'_>,
    ) -> Result<(), DropReason> {
        let own = self.addr().ok_or(DropReason::NotForUs)?;
        if m.dest != own {
            return Err(DropReason::NotForUs);
        }
        let peer = self
            .peers
            .get_mut(&m.sender)
            .filter(|p| p.link.bearer() == bearer)
            .ok_or(DropReason::UnknownPeer)?;
        let is_state = matches!(m.kind, LinkProtocolKind::State(_));
        if peer.contact == Contact::Leaving {
            if is_state || m.redundant_link {
                return Err(DropReason::PeerLeaving);
            }
            peer.contact = Contact::Down;
        }
        peer.heard_at = now;
        let result = peer.link.handle_protocol(now, m);
        let handled = match result {
            Ok(handled) => handled,
            Err(reason) => {
                self.touch(m.sender);
                return Err(reason);
            }
        };
        self.link_event(now, m.sender, handled.event);
        let last_sent = self.bcast.last_sent();
        let mut released = false;
        if let Some(peer) = self.peers.get_mut(&m.sender)
            && let LinkProtocolKind::State(state) = &m.kind
            && peer.link.is_up()
        {
            peer.bcast_rx.note_last_sent(now, m.last_bcast);
            if !m.bcast_ack_invalid && peer.link.first_packet_acked() {
                released = peer.listener.handle_ack(m.bcast_ack, last_sent);
                let runs = &handled.blocks.bcast;
                peer.listener.handle_gaps(now, m.bcast_ack, state.bcast_gap, runs, last_sent);
            }
        }
        if released {
            self.release_broadcasts();
        }
        self.touch(m.sender);
        Ok(())
    }

    fn handle_sequenced(
        &mut self,
        now: Nanos,
        bearer: BearerId,
        view: &View<'_>,
    ) -> Result<(), DropReason> {
        let own = self.addr().ok_or(DropReason::NotForUs)?;
        if view.dest_node().is_some_and(|dest| dest != own) {
            return Err(DropReason::NotForUs);
        }
        let sender = view.prev_node();
        let peer = self
            .peers
            .get_mut(&sender)
            .filter(|p| p.link.bearer() == bearer)
            .ok_or(DropReason::UnknownPeer)?;
        if peer.contact == Contact::Leaving {
            return Err(DropReason::PeerLeaving);
        }
        peer.heard_at = now;
        let mut messages = Vec::new();
        let event = peer.link.handle_packet(now, view, &mut messages, &mut self.drops);
        let mut released = false;
        if peer.link.first_packet_acked() {
            released = peer.listener.handle_ack(view.bcast_ack(), self.bcast.last_sent());
        }
        // Up is told before the messages, down after them.
        let down = matches!(event, Some(LinkEvent::Down(_)));
        if !down {
            self.link_event(now, sender, event);
        }
        if released {
            self.release_broadcasts();
        }
        for message in messages {
            self.handle_message(now, sender, message);
        }
        if down {
            self.link_event(now, sender, event);
        }
        self.touch(sender);
        Ok(())
    }

    fn handle_broadcast(&mut self, now: Nanos, view: &View<'_>) -> Result<(), DropReason> {
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
        let mut messages = Vec::new();
        if peer.bcast_rx.handle_packet(now, own, view, &mut messages, &mut self.drops) {
            peer.link.want_state(false, false);
        }
        for message in messages {
            self.handle_message(now, sender, message);
        }
        self.touch(sender);
        Ok(())
    }

    /// A whole message in order, from a unicast or broadcast link.
    pub(super) fn handle_message(&mut self, now: Nanos, sender: NodeAddr, bytes: Vec<u8>) {
        let Ok(view) = View::parse(&bytes) else {
            self.drops.count(DropReason::Malformed);
            return;
        };
        let message = match Message::decode(&view) {
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
            Message::Names(names) => self.handle_names(sender, names),
            Message::Data(m) => self.deliver(now, sender, m, &bytes),
            Message::Conn(m) => self.handle_conn(sender, m, &bytes),
            Message::Group(_) | Message::Tunnel(_) => self.drops.count(DropReason::NotSpoken),
            Message::Bundle(_) | Message::Fragment(_) => self.drops.count(DropReason::Malformed),
        }
    }

    /// Runs everything that is due.
    pub fn handle_timeout(&mut self, now: Nanos) {
        self.discover(now);
        if self.bcast.handle_timeout(now) {
            let last = self.bcast.last_sent();
            let behind =
                |p: &&mut super::Peer| p.listener.acked.is_some_and(|acked| acked.before(last));
            let mut addrs = Vec::new();
            for (addr, peer) in &mut self.peers {
                if behind(&peer) {
                    peer.link.want_state(true, true);
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

    fn peer_timeout(&mut self, now: Nanos, addr: NodeAddr) {
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        peer.timer = None;
        if peer.contact != Contact::Up && peer.forget_at <= now {
            self.forget_peer(addr);
            return;
        }
        if peer.bcast_rx.handle_timeout(now) {
            peer.link.want_state(false, false);
        }
        let mut event = peer.link.handle_timeout(now, peer.bcast_rx.wants_ack());
        if peer
            .listener
            .stuck_since
            .is_some_and(|since| now.since(since) > peer.link.tolerance() * 10)
        {
            event = peer.link.fail(now, LinkDownReason::ResendFailed).or(event);
        }
        self.link_event(now, addr, event);
        self.touch(addr);
    }

    /// Draws the consequences of a link that came up or went down.
    pub(super) fn link_event(&mut self, now: Nanos, addr: NodeAddr, event: Option<LinkEvent>) {
        let (Some(event), Some(peer)) = (event, self.peers.get_mut(&addr)) else { return };
        let bearer = peer.link.bearer();
        match event {
            LinkEvent::Up => {
                peer.contact = Contact::Up;
                peer.listener = BcastListener::new(self.bcast.last_sent());
                self.linked += 1;
                let peer_bearer = peer.link.peer_bearer();
                self.events.push_back(Event::LinkUp { peer: addr, bearer });
                let state = self.link_binding(addr, bearer.0, peer_bearer.0);
                if self.names.insert(state).is_ok() {
                    self.announce(true, state);
                }
                self.greet(now, addr);
            }
            LinkEvent::Down(reason) => {
                let peer_knows =
                    matches!(reason, LinkDownReason::PeerReset | LinkDownReason::PeerStopping);
                peer.contact = if peer_knows { Contact::Down } else { Contact::Leaving };
                peer.bcast_rx.close();
                peer.listener = BcastListener::default();
                peer.names = Default::default();
                peer.forget_at = now + PEER_FORGET;
                self.linked -= 1;
                let peer_bearer = peer.link.peer_bearer();
                self.events.push_back(Event::LinkDown { peer: addr, bearer, reason });
                let waiting = core::mem::take(&mut peer.waiting);
                for (port, _) in waiting {
                    self.socket_changed(port);
                }
                self.lose_connections(now, addr);
                let state = self.link_binding(addr, bearer.0, peer_bearer.0);
                if let Some(state) = self.names.remove(state.range, state.socket, state.key) {
                    self.announce(false, state);
                }
                while let Some(binding) = self.names.remove_any(addr) {
                    self.announce(false, binding);
                }
                self.release_broadcasts();
                if self.linked == 0 {
                    self.discover_afresh(now);
                }
            }
        }
    }
}
