//! Outgoing frames and deadlines.

use super::peer::half_of_message;
use super::{Destination, Node, Transmit};
use crate::addr::{BearerId, NodeAddr};
use crate::limits::BEARERS_MAX;
use crate::time::{Nanos, earliest};
use crate::wire::{Packet, refresh_link_fields};
use alloc::vec;
use alloc::vec::Vec;

impl Node {
    /// Returns where to send the next frame, which it writes to `frame` in place of the previous contents; `None` if
    /// there is nothing to send now.
    pub fn poll_transmit(&mut self, now: Nanos, frame: &mut Vec<u8>) -> Option<Transmit> {
        frame.clear();
        if let Some((transmit, bytes)) = self.answers.pop_front() {
            frame.extend_from_slice(&bytes);
            return Some(transmit);
        }
        while let Some(addr) = self.ready.pop_front() {
            if let Some(transmit) = self.transmit_of(now, addr, frame) {
                return Some(transmit);
            }
        }
        if let Some((bearer, bytes)) = self.bcast_copies.pop_front() {
            frame.extend_from_slice(&bytes);
            return Some(Transmit { bearer, dest: Destination::Broadcast, peer: None });
        }
        while self.bcast.poll_transmit(now, frame) {
            self.wake_broadcasters();
            let bearers = self.broadcast_bearers();
            if let Some((first, others)) = bearers.split_first() {
                self.bcast_copies.extend(others.iter().map(|id| (*id, frame.clone())));
                return Some(Transmit { bearer: *first, dest: Destination::Broadcast, peer: None });
            }
            frame.clear();
        }
        None
    }

    /// The bearers on which a broadcast is sent: a single bearer that reaches all peers, if there is one, otherwise
    /// every bearer that reaches a peer.
    fn broadcast_bearers(&self) -> Vec<BearerId> {
        let mut reached = [0; BEARERS_MAX];
        for peer in self.peers.values() {
            for bearer in peer.bearers().filter(|b| peer.is_link_up(*b)) {
                reached[usize::from(bearer.0)] += 1;
            }
        }
        let bearers = |from: usize| move |n: &usize| reached[*n] >= from;
        let all = (0..BEARERS_MAX).find(bearers(self.linked.max(1)));
        let ids = all.map_or_else(|| (0..BEARERS_MAX).filter(bearers(1)).collect(), |n| vec![n]);
        ids.into_iter().map(|n| BearerId(n as u8)).collect()
    }

    fn transmit_of(&mut self, now: Nanos, addr: NodeAddr, frame: &mut Vec<u8>) -> Option<Transmit> {
        self.peers.get_mut(&addr)?.queued = false;
        if !self.may_greet(now, addr) {
            // Its next timer tries again.
            return None;
        }
        let peer = self.peers.get_mut(&addr)?;
        let report = peer.bcast_report(self.bcast.last_sent());
        let mut transmit = None;
        for over in peer.links.iter_mut().flatten() {
            let bearer = self.bearers[usize::from(over.link.bearer().0)].as_ref();
            let monitor = bearer.map(|b| &b.monitor);
            if over.link.poll_transmit(now, &report, monitor, frame) {
                let dest = Destination::Unicast(over.media);
                transmit = Some(Transmit { bearer: over.link.bearer(), dest, peer: Some(addr) });
                break;
            }
        }
        if transmit.is_some() {
            peer.bcast_rx.acked();
        }
        while transmit.is_none()
            && let Some(seq) = peer.listener.pop_resend()
        {
            if let Some(packet) = self.bcast.get(seq)
                && let Some(over) = peer.slots[0].and_then(|b| peer.link(b))
            {
                frame.extend_from_slice(packet.bytes());
                self.bcast.stats.packets_resent += 1;
                refresh_link_fields(frame, over.link.acked(), report.ack);
                let dest = Destination::Unicast(over.media);
                transmit = Some(Transmit { bearer: over.link.bearer(), dest, peer: Some(addr) });
            }
        }
        self.touch(addr);
        transmit
    }

    /// Updates the peer's entries in the node's send queue and timers, and wakes senders for which there is room again.
    /// Must be called after any change to the peer.
    pub(super) fn touch(&mut self, addr: NodeAddr) {
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        peer.open_if_due();
        if !peer.queued && peer.has_output() {
            peer.queued = true;
            self.ready.push_back(addr);
        }
        if let Some(at) = peer.poll_timeout()
            && peer.timer != Some(at)
        {
            if let Some(old) = peer.timer.replace(at) {
                self.timers.remove(&(old, addr));
            }
            self.timers.insert((at, addr));
        }
        // Wake waiting senders, in order of arrival, while there is room.
        for half in 0..2 {
            let mut woken = 0;
            while let Some(peer) = self.peers.get_mut(&addr)
                && let Some(&(port, level)) = peer.waiting[half].front()
                && peer.carrier(half).is_some_and(|link| link.room(level) > woken)
            {
                peer.waiting[half].pop_front();
                self.woken.push_back(port);
                self.socket_changed(port);
                woken += 1;
            }
        }
    }

    /// Releases the broadcasts that all peers with an open broadcast link have acknowledged, and wakes waiting senders.
    pub(super) fn release_broadcasts(&mut self) {
        let last = self.bcast.last_sent();
        // The acknowledgement furthest behind the last broadcast.
        let acked = self.peers.values().filter_map(|p| p.listener.acked);
        let slowest = acked.max_by_key(|acked| last.distance_from(*acked));
        self.bcast.release(slowest);
        self.wake_broadcasters();
    }

    /// Sends a whole message to a peer. Returns the message if there is no contact with the peer or the link is
    /// congested.
    pub(super) fn send_to(&mut self, addr: NodeAddr, message: Packet) -> Result<(), Packet> {
        let half = half_of_message(&message.view());
        let Some(link) = self.peers.get_mut(&addr).and_then(|p| p.carrier(half)) else {
            return Err(message);
        };
        let result = link.send(message).map_err(|(_, message)| message);
        self.touch(addr);
        result
    }

    /// When [`Node::handle_timeout`] must be called next; `None` if only a frame or a command can change anything.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        if !self.topology.is_idle() || !self.local.is_empty() || !self.woken.is_empty() {
            // A command left work to do: call it immediately.
            return Some(Nanos::default());
        }
        let peers = self.timers.first().map(|(at, _)| *at);
        let sockets = self.socket_timers.first().map(|(at, _)| *at);
        let topology = self.topology.poll_timeout();
        let node =
            earliest(earliest(self.bcast.poll_timeout(), topology), self.discovery_timeout());
        earliest(earliest(peers, sockets), node)
    }
}
