//! Handles what the node reports about sockets: changes, connections, and destinations that may have become
//! unreachable.

use std::sync::atomic::Ordering;

use crossway_sys::socket;
use crossway_tipc_client::protocol::epoch;
use crossway_tipc_client::protocol::refusal::Refusal;
use crossway_tipc_client::protocol::slot::{self, Phase as SharedPhase, State};
use crossway_tipc_proto::addr::SocketAddr;
use crossway_tipc_proto::node::{Event, Node};
use crossway_tipc_proto::socket::SocketError;

use super::Service;
use super::context::Context;
use super::local::{Local, Phase};
use super::token::Place;

impl Service {
    /// Handles the node's events. Events that concern more than the program of a single socket are kept for the caller.
    pub(crate) fn handle_events(&mut self, cx: &mut Context<'_>) {
        while let Some(event) = cx.node.poll_event() {
            self.handle_event(cx, &event);
            let of_a_socket = match event {
                Event::SocketReady(_)
                | Event::Connected { .. }
                | Event::ConnectFailed { .. }
                | Event::GroupShrank { .. } => true,
                Event::SubscriberRefused { subscriber } => self.owns(cx.node, subscriber),
                _ => false,
            };
            if !of_a_socket {
                self.unreported.push_back(event);
            }
        }
    }

    /// Whether a socket is one of this node's programs.
    fn owns(&self, node: &Node, socket: SocketAddr) -> bool {
        node.addr().is_none_or(|own| own == socket.node) && self.by_port.contains_key(&socket.port)
    }

    fn handle_event(&mut self, cx: &mut Context<'_>, event: &Event) {
        match event {
            Event::SocketReady(port) => {
                if let Some(place) = self.by_port.get(port).copied() {
                    self.socket_changed(cx, place);
                }
            }
            Event::Connected { port, peer } => {
                if let Some(place) = self.by_port.get(port).copied() {
                    self.connected(cx, place, *peer);
                }
            }
            Event::ConnectFailed { port, error } => {
                if let Some(place) = self.by_port.get(port).copied() {
                    self.connect_failed(cx, place, *error);
                }
            }
            Event::SubscriberRefused { subscriber } if self.owns(cx.node, *subscriber) => {
                let local = self.by_port.get(&subscriber.port).and_then(|at| self.sockets.get(*at));
                let program = local.and_then(|local| self.program(local.client));
                self.turned_away.note(program, Refusal::SubscriptionsOfUser);
            }
            Event::Withdrawn(binding) => self.age(epoch::of_service(binding.range.service)),
            Event::GroupShrank { group } => self.age(epoch::of_service(*group)),
            Event::PeerDown { peer } => self.age(epoch::of_node(peer.0)),
            _ => {}
        }
    }

    /// Increments an epoch because a destination that it covers may have become unreachable: programs then check their
    /// destinations again.
    fn age(&self, epoch: usize) {
        self.epochs.word(epoch).fetch_add(1, Ordering::Release);
    }

    pub(super) fn set_state(&self, local: &Local, phase: SharedPhase, end: u8) {
        if let Some(client) = self.clients.get(local.client) {
            client.set_state(local.slot, State { phase, end });
        }
    }

    /// Handles a change of a socket reported by the node.
    fn socket_changed(&mut self, cx: &mut Context<'_>, place: Place) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        let Some(port) = local.port else { return };
        if matches!(local.phase, Phase::Connected)
            && cx.node.readiness(port).is_ok_and(|r| r.hangup)
        {
            local.phase = Phase::Disconnected;
            local.shuts = false;
            local.stalled.clear();
            // A program that sends now gets EPIPE because of the state, and one that waits for room is woken: its data is discarded. A
            // program that reads still gets everything before the end.
            local.readable = true;
            self.stop_linger(place);
            self.list(place);
            self.warm(place);
            if let Some(local) = self.sockets.get(place) {
                self.set_state(local, SharedPhase::Disconnected, 0);
            }
        }
        self.retry(cx, place);
        self.deliver(cx, place);
    }

    /// Handles the acceptance of a connection request. The connection may already have ended; that is reported next.
    fn connected(&mut self, cx: &mut Context<'_>, place: Place, peer: SocketAddr) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        local.phase = Phase::Connected;
        (local.holds, local.readable) = (false, true);
        let word = u64::from(peer.port.0) << 32 | u64::from(peer.node.0);
        if let Some(client) = self.clients.get(local.client) {
            client.store(local.slot, slot::PEER, word);
            client.set_state(local.slot, State { phase: SharedPhase::Connected, end: 0 });
        }
        self.note_local(cx.node, place);
        // The padding is removed, so that the descriptor polls writable.
        self.read(cx, place);
        self.list(place);
    }

    fn connect_failed(&mut self, cx: &mut Context<'_>, place: Place, error: SocketError) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        let Some(client) = self.clients.get(local.client) else { return };
        client.store(local.slot, slot::ERROR, u64::from(error.errno().unsigned_abs()));
        if error == SocketError::TimedOut {
            // The request may be repeated, and until then the descriptor stays unwritable.
            local.phase = Phase::Open;
            client.set_state(local.slot, State { phase: SharedPhase::Open, end: 0 });
        } else {
            local.phase = Phase::Disconnected;
            client.set_state(local.slot, State { phase: SharedPhase::Disconnected, end: 0 });
            socket::shutdown_send(&local.fd);
            // The padding is removed: the descriptor polls writable, as after any failed connect.
            (local.holds, local.readable) = (false, true);
            self.read(cx, place);
            self.list(place);
        }
    }
}
