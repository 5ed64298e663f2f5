//! Dials other nodes, pings them, and handles connections that fail.

use std::time::{Duration, Instant};

use super::super::Node;
use super::chance;
use super::line::Line;
use crate::session::Session;
use crate::wire::link::Frame;

/// Pause before a failed connection is tried again.
const REDIAL: Duration = Duration::from_millis(100);

impl Node {
    /// Does what is due: listens again, dials, pings, drops connections that do not answer, and takes down links that
    /// have been without a connection for too long.
    pub(in crate::node) fn supervise(&mut self) {
        if let Err(error) = self.reopen_listeners() {
            tracing::warn!("cannot listen again at a link address: {error}");
        }
        let now = Instant::now();
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let dial: Vec<usize> =
            self.links.peers.iter().filter(|(_, p)| due(p.dial_at)).map(|(i, _)| i).collect();
        for peer in dial {
            self.dial(peer);
        }
        let down: Vec<usize> =
            self.links.peers.iter().filter(|(_, p)| due(p.down_at)).map(|(i, _)| i).collect();
        for peer in down {
            self.take_down(peer, "the connection was not re-established in time");
        }
        if self.links.wires.is_empty() {
            self.links.tick_at = None;
        } else if self.links.tick_at.is_none_or(|at| at <= now) {
            let timeout = self.settings.link_timeout;
            self.links.tick_at = Some(now + timeout / 4);
            let wires: Vec<usize> = self.links.wires.iter().map(|(index, _)| index).collect();
            for index in wires {
                if now.duration_since(self.links.wires[index].heard) > timeout {
                    self.drop_wire(index, "the other node did not answer in time");
                } else if self.links.wires[index].is_greeted {
                    self.acknowledge(index, true);
                    self.links.post(index, &Frame::Ping);
                }
            }
        }
    }

    fn dial(&mut self, index: usize) {
        let peer = &mut self.links.peers[index];
        peer.dial_at = None;
        if peer.wire.is_some() || peer.addresses.is_empty() {
            return;
        }
        let address = peer.addresses[peer.next % peer.addresses.len()];
        peer.next += 1;
        let dialled = Line::dial(address, &self.settings.tipc);
        match dialled.and_then(|line| self.add_wire(line, Some(index))) {
            Ok(wire) => self.links.peers[index].wire = Some(wire),
            Err(error) => self.dial_later(index, &error.to_string()),
        }
    }

    fn dial_later(&mut self, index: usize, why: &str) {
        let peer = &mut self.links.peers[index];
        if peer.told != why {
            tracing::info!("link {}: {why}; retrying", peer.name);
            peer.told = why.to_owned();
        }
        // Another address may work immediately.
        let tried_all = peer.next.is_multiple_of(peer.addresses.len().max(1));
        let pause = if tried_all { REDIAL } else { Duration::ZERO };
        peer.dial_at = Some(Instant::now() + pause);
    }

    /// Removes a connection that is no longer usable.
    pub(super) fn drop_wire(&mut self, index: usize, why: &str) {
        let Some(wire) = self.links.wires.try_remove(index) else { return };
        let Some(at) = wire.peer else { return };
        let Some(peer) = self.links.peers.get_mut(at) else { return };
        match peer.wire {
            Some(current) if current != index => return,
            _ => peer.wire = None,
        }
        if peer.id.is_some() {
            tracing::info!("link {}: lost a connection: {why}", peer.name);
            let patience = self.settings.reconnect_within.unwrap_or(self.settings.link_timeout);
            peer.down_at.get_or_insert(Instant::now() + patience);
        }
        if !peer.addresses.is_empty() {
            self.dial_later(at, why);
        } else if peer.id.is_none() {
            self.links.peers.remove(at);
        }
    }

    /// Takes a link down and discards everything that the two nodes know about each other.
    pub(super) fn take_down(&mut self, index: usize, why: &str) {
        let Some(peer) = self.links.peers.get_mut(index) else { return };
        peer.down_at = None;
        if let Some(id) = peer.id.take() {
            tracing::info!("link {} is down: {why}", peer.name);
            self.relays.link_down(id);
            self.registry.handle_link_down(id);
        }
        let Some(peer) = self.links.peers.get_mut(index) else { return };
        if let Ok(number) = chance() {
            peer.session = Session::new(number);
        }
        if peer.addresses.is_empty() && peer.wire.is_none() {
            self.links.peers.remove(index);
        }
    }
}
