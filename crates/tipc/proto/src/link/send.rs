//! Sends packets to the peer: admits, splits, bundles and numbers them, and stores them until they are acknowledged.

use super::{BcastReport, Link};
use crate::backlog::{Congested, level_of, split};
use crate::limits::{PROBE_FIRST, PROBE_MARGIN, RESEND_HOLDOFF};
use crate::monitor::Monitor;
use crate::seq::Seq;
use crate::time::Nanos;
use crate::wire::{Capabilities, GapAck, NAMED_HEADER_LEN, Packet};
use alloc::vec::Vec;

impl Link {
    /// Queues a whole message for the peer. The link must be up.
    ///
    /// # Errors
    /// [`Congested`] if the backlog of the message's importance is full; the message is returned.
    pub(crate) fn send(&mut self, message: Packet) -> Result<(), (Congested, Packet)> {
        let level = level_of(&message.view());
        if let Err(congested) = self.backlog.admit(level, self.free()) {
            self.stats.congestions += 1;
            return Err((congested, message));
        }
        self.queue(level, message);
        Ok(())
    }

    /// Queues a message regardless of the limits. Used for the last data of a stream that is being closed, which is at
    /// most one packet.
    pub(crate) fn send_unasked(&mut self, message: Packet) {
        let level = level_of(&message.view());
        self.queue(level, message);
    }

    fn queue(&mut self, level: usize, message: Packet) {
        self.stats.count_message(message.size());
        if message.size() <= self.packet_max() {
            return self.enqueue(level, message);
        }
        let mut packets = Vec::new();
        split(message, self.packet_max(), self.cfg.peer, self.cfg.own, &mut packets);
        for packet in packets {
            self.enqueue(level, packet);
        }
    }

    /// Appends a packet to the backlog. The next [`Link::poll_transmit`] sends it if the window allows; until it is
    /// sent, it may be bundled with other small messages.
    pub(super) fn enqueue(&mut self, level: usize, packet: Packet) {
        let packet_max = self.packet_max();
        self.backlog.push(level, packet, packet_max);
    }

    /// Free slots in the send window.
    fn free(&self) -> usize {
        usize::from(self.window.size()).saturating_sub(self.tx.len())
    }

    /// Whether there is a new packet and it may be sent.
    fn may_send_new(&self) -> bool {
        !self.backlog.is_empty()
            && self.free() > 0
            && self.limit.is_none_or(|limit| self.tx.next().before(limit))
    }

    /// The maximum size of new packets, in bytes. If the peer cannot reassemble fragmented tunnel packets, each packet
    /// must also fit whole into a tunnel packet on another link.
    pub(crate) fn packet_max(&self) -> usize {
        self.divided.limit(if self.cfg.common.has(Capabilities::TUNNEL_ENHANCED) {
            self.mtu
        } else {
            self.mtu - NAMED_HEADER_LEN
        })
    }

    /// Number of packets of this level that may still be queued; 0 while the backlog is more than half full.
    pub(crate) fn room(&self, level: usize) -> usize {
        self.backlog.room(level, self.free())
    }

    /// Whether a message of this level would be accepted now.
    pub(crate) fn has_room(&self, level: usize) -> bool {
        self.backlog.admit(level, self.free()).is_ok()
    }

    /// Handles an acknowledgement of everything up to `ack`.
    pub(super) fn handle_ack(&mut self, now: Nanos, ack: Seq) {
        // The window counts as used even if only by packets about to be sent.
        let full = self.free() <= self.backlog.len();
        let released = self.tx.ack(ack).count;
        if released == 0 {
            return;
        }
        self.window.on_ack(released, self.tx.base(), full);
        self.probe_wait = self.tail_wait();
        // No later than the timer of the last packet would have fired: that packet may be the lost one.
        let by_now = now + self.probe_wait;
        let by_then = self.probe_at.unwrap_or(by_now);
        self.probe_at = (self.tx.len() > 0).then(|| by_then.min(by_now));
    }

    /// Queues the `gap` packets after `ack`, and those missing after each of the received `runs`, for retransmission.
    /// Does nothing if `gap` is 0.
    pub(super) fn handle_gaps(&mut self, now: Nanos, ack: Seq, gap: u16, runs: &[GapAck]) {
        if gap == 0 {
            return;
        }
        self.stats.gaps_received += 1;
        // A quarter more than the round trip: a report sent just before a retransmission arrived must not trigger another.
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

    /// Appends the next frame for the peer to `out`: control messages first, then retransmissions, then new packets.
    /// Retransmitted and new packets carry acknowledgements; if there is no packet to send, a pending acknowledgement
    /// is sent on its own. Returns false if there is nothing to send now.
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
            if let Some(sent) = self.tx.pop_resend(now) {
                sent.packet.refresh_link_fields(ack, bcast_ack);
                out.extend_from_slice(sent.packet.bytes());
                self.stats.packets_resent += 1;
                self.divided.on_resend(now, sent.packet.size());
            } else {
                let next = if self.may_send_new() { self.backlog.pop() } else { None };
                let Some(mut packet) = next else {
                    return self.poll_ack(now, bcast, monitor, out);
                };
                packet.set_sequence(self.cfg.own, self.tx.next());
                packet.refresh_link_fields(ack, bcast_ack);
                let sent = self.tx.push(now, packet);
                out.extend_from_slice(sent.packet.bytes());
                self.stats.count_sent(&sent.packet.view());
                self.stats.note_queue(self.tx.len());
            }
            self.unacked = 0;
            self.ack_at = None;
            if self.tx.len() == 1 {
                self.probe_wait = self.tail_wait();
            }
            self.probe_at = Some(now + self.probe_wait);
        }
        self.stats.bytes_sent += (out.len() - start) as u64;
        true
    }

    /// Sends a pending acknowledgement if there is no packet to carry it. Returns whether there was one.
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
        self.stats.bytes_sent += (out.len() - start) as u64;
        made
    }

    /// Whether [`Link::poll_transmit`] has anything to send.
    pub(crate) fn has_output(&self) -> bool {
        self.due.is_some() || self.tx.has_resend() || self.may_send_new() || self.is_ack_due()
    }

    fn tail_wait(&self) -> core::time::Duration {
        self.round_trip.map_or(PROBE_FIRST, |rtt| rtt + PROBE_MARGIN)
    }

    /// Probes the peer, at increasing intervals, if packets in flight have not been acknowledged.
    pub(super) fn probe_tail(&mut self, now: Nanos) {
        if self.tx.len() == 0 {
            self.probe_at = None;
            return;
        }
        self.want_state(true, true);
        self.probe_wait = (self.probe_wait * 2).min(self.tick_interval());
        self.probe_at = Some(now + self.probe_wait);
    }

    /// Updates the measured round trip when the peer answers a probe.
    pub(super) fn probe_answered(&mut self, now: Nanos) {
        if let Some(sent) = self.probe_sent.take() {
            let sample = now.since(sent);
            self.round_trip = Some(self.round_trip.map_or(sample, |rtt| (rtt * 7 + sample) / 8));
        }
    }
}
