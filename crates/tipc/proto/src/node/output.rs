//! Frames and deadlines going out.

use super::{Destination, Node, Transmit};
use crate::addr::{BearerId, NodeAddr};
use crate::bcast::deadline;
use crate::time::{Nanos, earliest};
use crate::wire::{View, refresh_link_fields};
use alloc::vec::Vec;

impl Node {
    /// The next frame to send. Its octets replace what `frame` held. `None` when there is nothing more for now.
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
            return Some(Transmit { bearer, dest: Destination::Broadcast });
        }
        while self.bcast.poll_transmit(now, frame) {
            // A bearer without a peer needs no copy.
            let ids = (0..self.bearers.len() as u8).map(BearerId);
            let bearers: Vec<BearerId> = ids.filter(|id| self.has_peer_on(*id)).collect();
            if let Some((first, others)) = bearers.split_first() {
                self.bcast_copies.extend(others.iter().map(|id| (*id, frame.clone())));
                return Some(Transmit { bearer: *first, dest: Destination::Broadcast });
            }
            frame.clear();
        }
        None
    }

    fn has_peer_on(&self, bearer: BearerId) -> bool {
        self.peers.values().any(|p| p.link.is_up() && p.link.bearer() == bearer)
    }

    fn transmit_of(&mut self, now: Nanos, addr: NodeAddr, frame: &mut Vec<u8>) -> Option<Transmit> {
        let peer = self.peers.get_mut(&addr)?;
        peer.queued = false;
        let report = peer.bcast_rx.report(self.bcast.last_sent());
        let mut sent = peer.link.poll_transmit(now, &report, frame);
        if sent {
            peer.bcast_rx.acked();
        }
        while !sent && let Some(seq) = peer.listener.pop_resend() {
            if let Some(bytes) = self.bcast.get(seq) {
                frame.extend_from_slice(bytes);
                refresh_link_fields(frame, peer.link.acked(), report.ack);
                sent = true;
            }
        }
        let transmit =
            Transmit { bearer: peer.link.bearer(), dest: Destination::Unicast(peer.media) };
        self.touch(addr);
        sent.then_some(transmit)
    }

    /// Brings a peer's place in the queue of senders and in the timers up to date. To be called after anything was done to it.
    pub(super) fn touch(&mut self, addr: NodeAddr) {
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        if !peer.queued && peer.has_output() {
            peer.queued = true;
            self.ready.push_back(addr);
        }
        let at = deadline(&peer.bcast_rx, peer.link.poll_timeout());
        if peer.timer != Some(at) {
            if let Some(old) = peer.timer.replace(at) {
                self.timers.remove(&(old, addr));
            }
            self.timers.insert((at, addr));
        }
        // Wake as many waiting senders as there is room for, in the order in which they came.
        let mut woken = 0;
        while let Some(peer) = self.peers.get_mut(&addr)
            && let Some(&(port, level)) = peer.waiting.front()
            && peer.link.room(level) > woken
        {
            peer.waiting.pop_front();
            self.socket_changed(port);
            woken += 1;
        }
    }

    /// Releases the broadcasts that every listening peer has.
    pub(super) fn release_broadcasts(&mut self) {
        let last = self.bcast.last_sent();
        // The oldest: the one furthest behind the last broadcast.
        let acked = self.peers.values().filter_map(|p| p.listener.acked);
        let slowest = acked.max_by_key(|acked| last.distance_from(*acked));
        self.bcast.release(slowest);
        self.wake_broadcasters();
    }

    /// Sends a whole message to a peer whose link is up.
    pub(super) fn send_to(&mut self, addr: NodeAddr, message: Vec<u8>) -> Result<(), Vec<u8>> {
        let Some(peer) = self.peers.get_mut(&addr).filter(|p| p.link.is_up()) else {
            return Err(message);
        };
        debug_assert!(View::parse(&message).is_ok());
        let result = peer.link.send(message).map_err(|(_, message)| message);
        self.touch(addr);
        result
    }

    /// When [`Node::handle_timeout`] wants to run next; `None` when only a frame or a command can change anything.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        if !self.topology.is_idle() || !self.local.is_empty() {
            // A command left work behind: at once.
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
