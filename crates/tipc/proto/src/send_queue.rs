//! Packets in flight: stored until they are acknowledged, and retransmitted when they are reported missing.
//!
//! A packet gets its sequence number only when it is passed to the medium, because further messages can be added to it
//! until then.

use crate::limits::RESEND_PER_REPORT_MAX;
use crate::seq::Seq;
use crate::time::Nanos;
use crate::wire::Packet;
use alloc::collections::VecDeque;
use core::time::Duration;

/// A packet with a sequence number.
#[derive(Clone, Debug)]
pub(crate) struct SentPacket {
    pub(crate) packet: Packet,
    last_sent: Nanos,
    /// When the packet was first queued for retransmission; `None` if it never was.
    first_resent: Option<Nanos>,
    resend_queued: bool,
    /// Whether a gap-ack block has reported that the packet arrived. If so, it is never retransmitted.
    arrived: bool,
}

/// The sending side of a packet sequence.
#[derive(Clone, Debug)]
pub(crate) struct SendQueue {
    /// Sequence number of the packet at the front.
    base: Seq,
    packets: VecDeque<SentPacket>,
    resend: VecDeque<Seq>,
}

/// The effect of an acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Acked {
    /// Number of packets released.
    pub(crate) count: usize,
}

impl SendQueue {
    pub(crate) const fn new(first: Seq) -> Self {
        Self { base: first, packets: VecDeque::new(), resend: VecDeque::new() }
    }

    /// Sequence number of the next packet to be sent.
    pub(crate) fn next(&self) -> Seq {
        self.base.add(self.packets.len() as u16)
    }

    /// Sequence number of the oldest unacknowledged packet.
    pub(crate) const fn base(&self) -> Seq {
        self.base
    }

    /// Number of packets sent and not acknowledged.
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether packets are queued for retransmission.
    pub(crate) fn has_resend(&self) -> bool {
        !self.resend.is_empty()
    }

    /// All packets, oldest first, including those whose arrival a gap-ack block has reported.
    pub(crate) fn into_packets(self) -> impl Iterator<Item = Packet> {
        self.packets.into_iter().map(|p| p.packet)
    }

    /// Adds a packet that carries the next sequence number and is being sent now.
    pub(crate) fn push(&mut self, now: Nanos, packet: Packet) -> &SentPacket {
        self.packets.push_back(SentPacket {
            packet,
            last_sent: now,
            first_resent: None,
            resend_queued: false,
            arrived: false,
        });
        &self.packets[self.packets.len() - 1]
    }

    /// Releases all packets up to and including `ack`. A number that was never sent is ignored.
    pub(crate) fn ack(&mut self, ack: Seq) -> Acked {
        let count = usize::from(ack.next().distance_from(self.base));
        if count > self.packets.len() {
            return Acked::default();
        }
        self.packets.drain(..count);
        self.base = ack.next();
        Acked { count }
    }

    /// Records that the packets from `from` up to and including `to` have arrived although an earlier one is missing.
    pub(crate) fn mark_arrived(&mut self, from: Seq, to: Seq) {
        let start = usize::from(from.distance_from(self.base));
        let end = usize::from(to.next().distance_from(self.base));
        if start < end && end <= self.packets.len() {
            for packet in self.packets.range_mut(start..end) {
                packet.arrived = true;
            }
        }
    }

    /// Queues `count` packets, beginning with `from`, for retransmission. Packets that have arrived or are queued
    /// already are skipped, and so are packets retransmitted less than `holdoff` ago: the peer could not have known of
    /// that retransmission when it sent its report. Returns the number of packets queued.
    pub(crate) fn resend(&mut self, now: Nanos, from: Seq, count: u16, holdoff: Duration) -> usize {
        // A report that crossed an acknowledgement begins before the oldest packet kept.
        let (from, count) = if from.before(self.base) {
            (self.base, count.saturating_sub(self.base.distance_from(from)))
        } else {
            (from, count)
        };
        let start = usize::from(from.distance_from(self.base));
        let end = (start + usize::from(count)).min(self.packets.len());
        let mut queued = 0;
        for index in start..end {
            let packet = &mut self.packets[index];
            let again = packet.first_resent.is_some() && now.since(packet.last_sent) < holdoff;
            if packet.arrived || packet.resend_queued || again || queued == RESEND_PER_REPORT_MAX {
                continue;
            }
            packet.resend_queued = true;
            packet.first_resent.get_or_insert(now);
            self.resend.push_back(self.base.add(index as u16));
            queued += 1;
        }
        queued
    }

    /// Removes and returns the next packet to retransmit; `None` if there is none.
    pub(crate) fn pop_resend(&mut self, now: Nanos) -> Option<&mut SentPacket> {
        while let Some(seq) = self.resend.pop_front() {
            let index = usize::from(seq.distance_from(self.base));
            // Skip packets acknowledged in the meantime: for a number already passed, the distance is huge.
            if index < self.packets.len() && !self.packets[index].arrived {
                let packet = &mut self.packets[index];
                packet.resend_queued = false;
                packet.last_sent = now;
                return Some(packet);
            }
        }
        None
    }

    /// Returns the packet in flight with this number, if there is one.
    pub(crate) fn get(&self, seq: Seq) -> Option<&Packet> {
        let index = usize::from(seq.distance_from(self.base));
        (index < self.packets.len()).then(|| &self.packets[index].packet)
    }

    /// When the oldest packet was first queued for retransmission; `None` if it never was, or there is no packet.
    pub(crate) fn stuck_since(&self) -> Option<Nanos> {
        self.packets.front()?.first_resent
    }

    /// Number of bytes of the packets in flight.
    pub(crate) fn held_bytes(&self) -> usize {
        self.packets.iter().map(|p| p.packet.size()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::NodeAddr;
    use crate::wire::{ConnManager, LinkFields};
    use alloc::vec::Vec;

    const HOLDOFF: Duration = Duration::from_millis(1);

    fn queue(first: u16, sent: u16) -> SendQueue {
        let mut q = SendQueue::new(Seq(first));
        for n in 0..sent {
            let mut packet =
                Packet::encoded(|out| ConnManager::default().encode(&LinkFields::default(), out));
            packet.set_sequence(NodeAddr(1), Seq(n));
            q.push(Nanos(1), packet);
        }
        q
    }

    #[test]
    fn acknowledging_what_was_never_sent_releases_nothing() {
        let mut q = queue(65535, 3);
        assert_eq!(q.ack(Seq(2)).count, 0, "only 65535, 0 and 1 were sent");
        assert_eq!(q.ack(Seq(65534)).count, 0);
        assert_eq!(q.ack(Seq(0)).count, 2);
        assert_eq!(q.ack(Seq(0)).count, 0);
        assert_eq!((q.base(), q.next(), q.len()), (Seq(1), Seq(2), 1));
    }

    #[test]
    fn a_reported_gap_is_sent_again_once_per_holdoff_and_not_what_arrived() {
        let mut q = queue(1, 5);
        q.mark_arrived(Seq(3), Seq(3));
        assert_eq!(q.resend(Nanos(2), Seq(1), 4, HOLDOFF), 3);
        assert_eq!(q.resend(Nanos(2), Seq(1), 4, HOLDOFF), 0, "queued already");
        let mut again = Vec::new();
        while let Some(sent) = q.pop_resend(Nanos(3)) {
            again.push(sent.packet.view().seq().0);
        }
        assert_eq!(again, [0, 1, 3]);
        assert_eq!(
            q.resend(Nanos(4), Seq(1), 4, HOLDOFF),
            0,
            "packets retransmitted a moment ago are skipped"
        );
        assert_eq!(q.resend(Nanos(3) + HOLDOFF, Seq(1), 1, HOLDOFF), 1);
        assert_eq!(q.stuck_since(), Some(Nanos(2)));
        assert_eq!(q.ack(Seq(1)).count, 1);
        assert!(q.pop_resend(Nanos(9)).is_none(), "acknowledged packets are not retransmitted");
    }
}
