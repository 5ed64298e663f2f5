//! The broadcast link: one sender per node and one receiver per peer. Acknowledgements and gap reports travel on the unicast
//! links.

use crate::addr::{NetworkId, NodeAddr};
use crate::backlog::{Backlog, Congested, level_of, split};
use crate::drops::{DropCounters, DropReason};
use crate::limits::{ACK_EVERY, BCAST_REPAIR, BCAST_WINDOW};
use crate::link::{BcastReport, LinkStats};
use crate::reassembly::Reassembly;
use crate::receive_queue::ReceiveQueue;
use crate::send_queue::SendQueue;
use crate::seq::Seq;
use crate::time::{Nanos, earliest};
use crate::wire::{Inbound, Packet, View};
use alloc::vec::Vec;

/// The sending side of the broadcast link, shared by all peers.
#[derive(Clone, Debug)]
pub(crate) struct BcastSender {
    own: NodeAddr,
    network: NetworkId,
    tx: SendQueue,
    backlog: Backlog,
    mtu: usize,
    /// When to probe the peers that have not acknowledged all broadcasts; `None` if no probe is due.
    probe_at: Option<Nanos>,
    /// Statistics of the broadcast link, for both directions.
    pub(crate) stats: LinkStats,
}

impl BcastSender {
    pub(crate) fn new(own: NodeAddr, network: NetworkId, mtu: usize) -> Self {
        Self {
            own,
            network,
            tx: SendQueue::new(Seq(1)),
            backlog: Backlog::new(own, NodeAddr(0)),
            mtu,
            probe_at: None,
            stats: LinkStats::default(),
        }
    }

    /// Sets the maximum packet size of broadcasts: the smallest MTU of all bearers.
    pub(crate) const fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
    }

    pub(crate) const fn mtu(&self) -> usize {
        self.mtu
    }

    /// Number of the last broadcast sent.
    pub(crate) fn last_sent(&self) -> Seq {
        self.tx.next().prev()
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.tx.held_bytes() + self.backlog.held_bytes()
    }

    /// Queues a message for all peers.
    pub(crate) fn send(&mut self, message: Packet) -> Result<(), Congested> {
        let level = level_of(&message.view());
        if let Err(congested) = self.backlog.admit(level, self.free()) {
            self.stats.congestions += 1;
            return Err(congested);
        }
        self.stats.count_message(message.size());
        let mut packets = Vec::new();
        split(message, self.mtu, NodeAddr(0), self.own, &mut packets);
        for packet in packets {
            self.backlog.push(level, packet, self.mtu);
        }
        Ok(())
    }

    /// Removes and returns the name updates that have not been sent yet, in order.
    pub(crate) fn take_names(&mut self) -> Vec<Packet> {
        self.backlog.take_names(self.mtu)
    }

    /// Whether a message of this level would be accepted now.
    pub(crate) fn has_room(&self, level: usize) -> bool {
        self.backlog.admit(level, self.free()).is_ok()
    }

    /// Number of packets of this level that may still be queued; 0 while the backlog is more than half full.
    pub(crate) fn room(&self, level: usize) -> usize {
        self.backlog.room(level, self.free())
    }

    /// Free slots in the send window.
    fn free(&self) -> usize {
        usize::from(BCAST_WINDOW).saturating_sub(self.tx.len())
    }

    /// Releases all broadcasts up to `ack`, which all peers have acknowledged. If `ack` is `None`, there are no peers,
    /// and all broadcasts are released.
    pub(crate) fn release(&mut self, ack: Option<Seq>) {
        let ack = ack.unwrap_or_else(|| self.last_sent());
        self.tx.ack(ack);
        if self.tx.len() == 0 {
            self.probe_at = None;
        }
    }

    /// Appends the next unsent broadcast to `out`. Returns whether there was one and the window had room for it.
    pub(crate) fn poll_transmit(&mut self, now: Nanos, out: &mut Vec<u8>) -> bool {
        if self.free() == 0 {
            return false;
        }
        let Some(mut packet) = self.backlog.pop() else { return false };
        packet.set_sequence(self.own, self.tx.next());
        packet.set_broadcast(self.network);
        let packet = &self.tx.push(now, packet).packet;
        out.extend_from_slice(packet.bytes());
        self.stats.count_sent(&packet.view());
        self.stats.bytes_sent += packet.size() as u64;
        self.stats.look_at_queue(self.tx.len());
        self.probe_at = Some(now + BCAST_REPAIR);
        true
    }

    /// Returns a broadcast that is still in the send queue, for retransmission to a peer that missed it.
    pub(crate) fn get(&self, seq: Seq) -> Option<&Packet> {
        self.tx.get(seq)
    }

    pub(crate) const fn poll_timeout(&self) -> Option<Nanos> {
        self.probe_at
    }

    /// Whether the peers that have not acknowledged all broadcasts must be probed now. Returns true once,
    /// [`BCAST_REPAIR`] after the last broadcast sent; further probes are sent by the ticks of the links.
    pub(crate) fn handle_timeout(&mut self, now: Nanos) -> bool {
        let due = self.probe_at.is_some_and(|at| at <= now);
        if due {
            self.probe_at = None;
        }
        due
    }
}

/// The receiving side of the broadcast link; there is one for each peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct BcastReceiver {
    link: Option<Open>,
}

#[derive(Clone, Debug)]
struct Open {
    rx: ReceiveQueue,
    reassembly: Reassembly,
    /// Number of the last broadcast that the peer reported as sent.
    peer_last: Seq,
    repair_at: Option<Nanos>,
    unacked: bool,
}

impl BcastReceiver {
    /// Opens the link: the peer's next broadcast is the one after `last`.
    pub(crate) fn open(&mut self, last: Seq) {
        if self.link.is_none() {
            let rx = ReceiveQueue::new(last.next());
            let reassembly = Reassembly::default();
            self.link =
                Some(Open { rx, reassembly, peer_last: last, repair_at: None, unacked: false });
        }
    }

    pub(crate) fn close(&mut self) {
        self.link = None;
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.link.as_ref().map_or(0, |open| open.rx.early_bytes() + open.reassembly.held_bytes())
    }

    /// Handles a broadcast from the peer. Returns whether an acknowledgement is due, which is the case for every 16th
    /// packet. The node's address determines which ones, so that the nodes do not all acknowledge at the same time.
    pub(crate) fn handle_packet(
        &mut self,
        now: Nanos,
        own: NodeAddr,
        view: &View<'_>,
        messages: &mut Vec<Packet>,
        drops: &mut DropCounters,
        stats: &mut LinkStats,
    ) -> bool {
        let Some(open) = &mut self.link else {
            drops.count(DropReason::BcastClosed);
            return false;
        };
        let (before, mut behind) = (open.rx.next(), Vec::new());
        let in_order = match open.rx.accept(view, &mut behind) {
            Ok(in_order) => in_order,
            Err(reason) => {
                drops.count(reason);
                stats.packets_duplicate += u64::from(reason == DropReason::Duplicate);
                return false;
            }
        };
        stats.count_received(view);
        stats.packets_early += u64::from(!in_order);
        let first = in_order.then_some(Inbound::from(*view));
        for packet in first.into_iter().chain(behind.into_iter().map(Inbound::from)) {
            if open.reassembly.accept(packet, messages, drops).is_err() {
                open.reassembly = Reassembly::default();
            }
        }
        open.unacked = true;
        if open.missing() == 0 {
            open.repair_at = None;
        } else {
            open.repair_at.get_or_insert(now + BCAST_REPAIR);
        }
        let mark = |seq: Seq| seq.0.wrapping_add(own.0 as u16) / ACK_EVERY;
        mark(before.prev()) != mark(open.rx.next().prev())
    }

    /// Records the number of the last broadcast that the peer reports as sent.
    pub(crate) fn note_last_sent(&mut self, now: Nanos, last: Seq) {
        if let Some(open) = &mut self.link {
            if last.after(open.peer_last) {
                open.peer_last = last;
            }
            if open.missing() > 0 {
                open.repair_at.get_or_insert(now + BCAST_REPAIR / 2);
            }
        }
    }

    /// Whether some broadcasts have been received but not acknowledged, or are missing.
    pub(crate) fn wants_ack(&self) -> bool {
        self.link.as_ref().is_some_and(|open| open.unacked || open.missing() > 0)
    }

    /// Records that an acknowledgement is being sent.
    pub(crate) fn acked(&mut self) {
        if let Some(open) = &mut self.link {
            open.unacked = false;
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Nanos> {
        self.link.as_ref().and_then(|open| open.repair_at)
    }

    /// Whether a gap should be reported now.
    pub(crate) fn handle_timeout(&mut self, now: Nanos) -> bool {
        let Some(open) = &mut self.link else { return false };
        if open.repair_at.is_none_or(|at| at > now) {
            return false;
        }
        let missing = open.missing() > 0;
        open.repair_at = missing.then(|| now + BCAST_REPAIR * 2);
        missing
    }

    /// The report to send to the peer about its broadcasts. `last_sent` is the number of this node's own last
    /// broadcast.
    pub(crate) fn report(&self, last_sent: Seq) -> BcastReport {
        match &self.link {
            None => BcastReport { last_sent, ..BcastReport::default() },
            Some(open) => {
                let gap = open.missing();
                let runs = if gap > 0 { open.rx.runs() } else { Default::default() };
                BcastReport {
                    open: true,
                    ack: open.rx.next().prev(),
                    gap,
                    runs,
                    last_sent,
                    contact: true,
                }
            }
        }
    }
}

impl Open {
    fn missing(&self) -> u16 {
        self.rx.gap(self.peer_last.next())
    }
}

/// What one peer has received of this node's broadcasts.
#[derive(Clone, Debug, Default)]
pub(crate) struct BcastListener {
    /// Last broadcast that the peer has acknowledged; `None` until the peer's end of the broadcast link is open.
    pub(crate) acked: Option<Seq>,
    /// Broadcasts to retransmit to this peer.
    resend: Vec<Seq>,
    repaired: Option<Nanos>,
    /// When the oldest broadcast that the peer still lacks was first reported missing; `None` if none is missing.
    pub(crate) stuck_since: Option<Nanos>,
}

impl BcastListener {
    /// Creates the state of a peer that has just come up and receives every broadcast after `last`.
    pub(crate) fn new(last: Seq) -> Self {
        Self { acked: Some(last), ..Self::default() }
    }

    /// Records that the peer has received everything up to `ack`. Returns whether this acknowledges anything new.
    pub(crate) fn handle_ack(&mut self, ack: Seq, last_sent: Seq) -> bool {
        match &mut self.acked {
            Some(acked) if ack.after(*acked) && !ack.after(last_sent) => {
                *acked = ack;
                self.stuck_since = None;
                true
            }
            _ => false,
        }
    }

    /// Schedules the retransmission of the `gap` broadcasts after `ack`, and of those missing after each of the
    /// received `runs`. Ignores a report that is out of date, or that follows the last retransmission too soon.
    pub(crate) fn handle_gaps(
        &mut self,
        now: Nanos,
        ack: Seq,
        gap: u16,
        runs: &[crate::wire::GapAck],
        last_sent: Seq,
    ) {
        let recently = self.repaired.is_some_and(|at| now.since(at) < BCAST_REPAIR);
        // Ignore a report that does not match the latest acknowledgement: it is out of date.
        if gap == 0 || recently || self.acked != Some(ack) {
            return;
        }
        self.resend.clear();
        let mut missing = |from: Seq, count: u16| {
            let all = (0..count.min(BCAST_WINDOW)).map(|n| from.add(n));
            self.resend.extend(all.filter(|seq| !seq.after(last_sent)));
        };
        missing(ack.next(), gap);
        for run in runs {
            missing(run.ack.next(), run.gap);
        }
        self.resend.truncate(usize::from(BCAST_WINDOW));
        self.resend.reverse();
        if !self.resend.is_empty() {
            self.repaired = Some(now);
            self.stuck_since.get_or_insert(now);
        }
    }

    /// Removes and returns the next broadcast to retransmit to this peer.
    pub(crate) fn pop_resend(&mut self) -> Option<Seq> {
        self.resend.pop()
    }

    pub(crate) fn has_resend(&self) -> bool {
        !self.resend.is_empty()
    }
}

/// The earlier of two deadlines: the link's and the broadcast receiver's. Defined here so that the node does not depend
/// on the receiver's timers.
pub(crate) fn deadline(receiver: &BcastReceiver, link: Nanos) -> Nanos {
    earliest(Some(link), receiver.poll_timeout()).unwrap_or(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_acknowledges_only_what_was_sent_and_only_once() {
        let mut listener = BcastListener::new(Seq(65_530));
        assert!(!listener.handle_ack(Seq(3), Seq(2)), "2 was the last broadcast sent");
        assert!(!listener.handle_ack(Seq(65_530), Seq(2)));
        assert_eq!(listener.acked, Some(Seq(65_530)));
        assert!(listener.handle_ack(Seq(2), Seq(2)));
        assert!(!listener.handle_ack(Seq(1), Seq(2)), "this broadcast was already acknowledged");
        assert_eq!(listener.acked, Some(Seq(2)));
    }
}
