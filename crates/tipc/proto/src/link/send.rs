//! Packets to the peer: admitted, cut, merged, numbered when they are sent, kept until acknowledged.

use super::{BcastReport, Link};
use crate::backlog::{Congested, SYSTEM, level_of, split};
use crate::limits::{PROBE_FIRST, PROBE_MARGIN, RESEND_HOLDOFF};
use crate::monitor::Monitor;
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
        if let Err(congested) = self.backlog.admit(level, self.free()) {
            self.stats.congestions += 1;
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
        self.stats.count_message(message.len());
        if message.len() <= self.packet_max() {
            return self.enqueue(level, message);
        }
        let mut packets = Vec::new();
        split(message, self.packet_max(), self.cfg.peer, self.cfg.own, &mut packets);
        for packet in packets {
            self.enqueue(level, packet);
        }
    }

    /// Puts a packet behind all others. It leaves with the next [`Link::poll_transmit`], if the window allows; until then small
    /// messages share it.
    pub(super) fn enqueue(&mut self, level: usize, packet: Vec<u8>) {
        let packet_max = self.packet_max();
        self.backlog.push(level, packet, packet_max);
    }

    /// Packets that the window has room for.
    fn free(&self) -> usize {
        usize::from(self.window.size()).saturating_sub(self.tx.len())
    }

    /// Whether a new packet may be sent and there is one.
    fn may_send_new(&self) -> bool {
        !self.backlog.is_empty()
            && self.free() > 0
            && self.limit.is_none_or(|limit| self.tx.next().before(limit))
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

    /// Packets of this level that may still enter; none before the backlog has drained to half.
    pub(crate) fn room(&self, level: usize) -> usize {
        self.backlog.room(level, self.free())
    }

    /// Whether a message of this level would be taken now.
    pub(crate) fn has_room(&self, level: usize) -> bool {
        self.backlog.admit(level, self.free()).is_ok()
    }

    /// The peer has everything up to `ack`.
    pub(super) fn handle_ack(&mut self, now: Nanos, ack: Seq) {
        // The window was in use, if only by what is about to be sent.
        let full = self.free() <= self.backlog.len();
        let released = self.tx.ack(ack).count;
        if released == 0 {
            return;
        }
        self.window.on_ack(released, self.tx.base(), full);
        self.probe_wait = self.tail_wait();
        // Not later than for the last packet, had nothing been heard: it may be the one that is lost.
        let by_now = now + self.probe_wait;
        let by_then = self.probe_at.unwrap_or(by_now);
        self.probe_at = (self.tx.len() > 0).then(|| by_then.min(by_now));
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
            self.window.on_loss(self.tx.base(), self.tx.next());
        }
    }

    /// The next frame for the peer, appended to `out`: what controls the link first, then repairs, then new packets, which acknowledge
    /// what came, and only without any an acknowledgement by itself.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Nanos,
        bcast: &BcastReport,
        monitor: Option<&Monitor>,
        out: &mut Vec<u8>,
    ) -> bool {
        let start = out.len();
        if !self.encode_due(now, bcast, monitor, out) {
            let ack = self.acked();
            let bcast_ack = if bcast.open { bcast.ack } else { Seq(0) };
            if let Some(packet) = self.tx.pop_resend(now) {
                refresh_link_fields(&mut packet.bytes, ack, bcast_ack);
                out.extend_from_slice(&packet.bytes);
                self.stats.packets_resent += 1;
            } else {
                let next = if self.may_send_new() { self.backlog.pop() } else { None };
                let Some(mut packet) = next else {
                    return self.poll_ack(now, bcast, monitor, out);
                };
                set_sequence(&mut packet, self.cfg.own, self.tx.next());
                refresh_link_fields(&mut packet, ack, bcast_ack);
                out.extend_from_slice(&self.tx.push(now, packet).bytes);
                self.stats.count_sent(&out[start..]);
                self.stats.note_queue(self.tx.len());
            }
            self.unacked = 0;
            if self.tx.len() == 1 {
                self.probe_wait = self.tail_wait();
            }
            self.probe_at = Some(now + self.probe_wait);
        }
        self.stats.octets_sent += (out.len() - start) as u64;
        true
    }

    /// The acknowledgement that is due, for want of a packet that carries it.
    fn poll_ack(
        &mut self,
        now: Nanos,
        bcast: &BcastReport,
        monitor: Option<&Monitor>,
        out: &mut Vec<u8>,
    ) -> bool {
        if !self.is_ack_due() {
            return false;
        }
        let start = out.len();
        self.want_state(false, false);
        let made = self.encode_due(now, bcast, monitor, out);
        self.stats.octets_sent += (out.len() - start) as u64;
        made
    }

    /// Whether [`Link::poll_transmit`] has something.
    pub(crate) fn has_output(&self) -> bool {
        self.due.is_some() || self.tx.has_resend() || self.may_send_new() || self.is_ack_due()
    }

    fn tail_wait(&self) -> core::time::Duration {
        self.round_trip.map_or(PROBE_FIRST, |rtt| rtt + PROBE_MARGIN)
    }

    /// Packets are under way and nothing was heard of them: ask, less and less often.
    pub(super) fn probe_tail(&mut self, now: Nanos) {
        if self.tx.len() == 0 {
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
