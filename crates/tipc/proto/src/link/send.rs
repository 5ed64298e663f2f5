//! Packets to the peer: admitted, cut, merged, numbered, kept until acknowledged.

use super::{BcastReport, Link};
use crate::backlog::{Backlog, Congested, SYSTEM, level_of, split};
use crate::limits::{PROBE_FIRST, PROBE_MARGIN, RESEND_HOLDOFF};
use crate::seq::Seq;
use crate::time::Nanos;
use crate::wire::{
    Capabilities, GapAck, NAMED_HEADER_LEN, View, refresh_link_fields, set_sequence,
};
use alloc::vec::Vec;

impl Link {
    /// Takes a whole message for the peer. The link must be up.
    ///
    /// # Errors
    /// [`Congested`] when the backlog of its importance is full; the message is handed back.
    pub(crate) fn send(&mut self, message: Vec<u8>) -> Result<(), (Congested, Vec<u8>)> {
        let level = View::parse(&message).map_or(SYSTEM, |view| level_of(&view));
        if let Err(congested) = self.backlog.admit(level) {
            return Err((congested, message));
        }
        self.queue(level, message);
        Ok(())
    }

    /// Takes a message beyond all limits: the end of a stream that is being closed, of which there is at most a packet.
    pub(crate) fn send_unasked(&mut self, message: Vec<u8>) {
        let level = View::parse(&message).map_or(SYSTEM, |view| level_of(&view));
        self.queue(level, message);
    }

    fn queue(&mut self, level: usize, message: Vec<u8>) {
        let mut packets = Vec::new();
        split(message, self.packet_max(), self.cfg.peer, self.cfg.own, &mut packets);
        for packet in packets {
            self.enqueue(level, packet);
        }
    }

    /// Puts a packet behind all others.
    pub(super) fn enqueue(&mut self, level: usize, packet: Vec<u8>) {
        if self.backlog.is_empty() && self.tx.len() < usize::from(self.window.size()) {
            self.number(packet);
        } else {
            let packet_max = self.packet_max();
            self.backlog.push(level, packet, packet_max);
        }
    }

    /// The largest packet that is sent. A peer that cannot put cut packets together again must be able to get each whole through
    /// another link, inside a packet of that.
    pub(crate) fn packet_max(&self) -> usize {
        if self.cfg.common.has(Capabilities::TUNNEL_ENHANCED) {
            self.mtu
        } else {
            self.mtu - NAMED_HEADER_LEN
        }
    }

    fn number(&mut self, mut packet: Vec<u8>) {
        set_sequence(&mut packet, self.cfg.own, self.tx.next());
        self.tx.push(packet);
    }

    /// Packets of this level that the backlog still takes, once it has drained to half: a sender woken for each packet that leaves
    /// would find the backlog full again.
    pub(crate) fn room(&self, level: usize) -> usize {
        let room = self.backlog.room(level);
        if room * 2 >= Backlog::limit(level) { room } else { 0 }
    }

    /// Whether a message of this level would be taken now.
    pub(crate) fn has_room(&self, level: usize) -> bool {
        self.backlog.admit(level).is_ok()
    }

    /// The peer has everything up to `ack`.
    pub(super) fn handle_ack(&mut self, now: Nanos, ack: Seq) {
        let full = self.tx.len() >= usize::from(self.window.size());
        let released = self.tx.ack(ack).count;
        if released == 0 {
            return;
        }
        self.window.on_ack(released, self.tx.base(), full);
        while self.tx.len() < usize::from(self.window.size()) {
            let Some(packet) = self.backlog.pop() else { break };
            self.number(packet);
        }
        self.probe_wait = self.tail_wait();
        self.probe_at = (self.tx.in_flight() > 0).then(|| now + self.probe_wait);
    }

    /// The peer misses `gap` packets after `ack`, and what the runs leave out.
    pub(super) fn handle_gaps(&mut self, now: Nanos, ack: Seq, gap: u16, runs: &[GapAck]) {
        if gap == 0 {
            return;
        }
        self.stats.gaps_received += 1;
        // A quarter more than the round trip: a report that left just before the repetition arrived must not bring another.
        let holdoff = (self.round_trip.unwrap_or_default() * 5 / 4).max(RESEND_HOLDOFF);
        let mut resent = self.tx.resend(now, ack.next(), gap, holdoff);
        let mut run_start = ack.add(gap).next();
        for run in runs {
            self.tx.mark_arrived(run_start, run.ack);
            resent += self.tx.resend(now, run.ack.next(), run.gap, holdoff);
            run_start = run.ack.add(run.gap).next();
        }
        if resent > 0 {
            self.window.on_loss(self.tx.base(), self.tx.next_unsent());
        }
    }

    /// The next frame for the peer, appended to `out`: what controls the link first, then repairs, then new packets.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Nanos,
        bcast: &BcastReport,
        out: &mut Vec<u8>,
    ) -> bool {
        let start = out.len();
        if !self.encode_due(now, bcast, out) {
            let ack = self.acked();
            let bcast_ack = if bcast.open { bcast.ack } else { Seq(0) };
            let Some((packet, again)) = self.tx.pop_output(now) else { return false };
            refresh_link_fields(&mut packet.bytes, ack, bcast_ack);
            out.extend_from_slice(&packet.bytes);
            self.unacked = 0;
            if again {
                self.stats.packets_resent += 1;
            } else {
                self.stats.packets_sent += 1;
            }
            if self.tx.in_flight() == 1 {
                self.probe_wait = self.tail_wait();
            }
            self.probe_at = Some(now + self.probe_wait);
        }
        self.stats.octets_sent += (out.len() - start) as u64;
        true
    }

    /// Whether [`Link::poll_transmit`] has something.
    pub(crate) fn has_output(&self) -> bool {
        self.due.is_some() || self.tx.has_output()
    }

    fn tail_wait(&self) -> core::time::Duration {
        self.round_trip.map_or(PROBE_FIRST, |rtt| rtt + PROBE_MARGIN)
    }

    /// Packets are under way and nothing was heard of them: ask, less and less often.
    pub(super) fn probe_tail(&mut self, now: Nanos) {
        if self.tx.in_flight() == 0 {
            self.probe_at = None;
            return;
        }
        self.want_state(true, true);
        self.probe_wait = (self.probe_wait * 2).min(self.tick_interval());
        self.probe_at = Some(now + self.probe_wait);
    }

    /// The answer to a probe measures the round trip.
    pub(super) fn probe_answered(&mut self, now: Nanos) {
        if let Some(sent) = self.probe_sent.take() {
            let sample = now.since(sent);
            self.round_trip = Some(self.round_trip.map_or(sample, |rtt| (rtt * 7 + sample) / 8));
        }
    }
}
