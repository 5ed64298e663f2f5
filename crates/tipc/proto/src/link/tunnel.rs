//! Support for a second link to the same peer: synchronisation when one comes up, failover when one fails.

use super::{Link, LinkState};
use crate::addr::{BearerId, Importance, NodeAddr};
use crate::backlog::{Backlog, SYSTEM};
use crate::reassembly::Reassembly;
use crate::receive_queue::ReceiveQueue;
use crate::send_queue::SendQueue;
use crate::seq::Seq;
use crate::time::Nanos;
use crate::wire::{
    BASIC_HEADER_LEN, ErrorCode, HeaderWords, LinkFields, NAMED_HEADER_LEN, Packet, Tunnel,
    TunnelKind, User,
};
use alloc::vec::Vec;

/// The queues of a link at the time it went down.
#[derive(Clone, Debug)]
pub(crate) struct Remains {
    pub(super) tx: SendQueue,
    pub(super) backlog: Backlog,
    pub(super) rx: ReceiveQueue,
    pub(super) reassembly: Reassembly,
}

/// Error: a packet does not fit into the tunnel, and the peer cannot reassemble fragments in tunnels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooNarrow;

/// A dummy message that is sent through a tunnel after all others. It lets the peer detect the end of the transfer even
/// if there are no other messages.
fn filler(own: NodeAddr, peer: NodeAddr, seq: Seq) -> Packet {
    let mut h = HeaderWords::new(User::Data(Importance::Low), 3, BASIC_HEADER_LEN);
    h.set(1, 25, 15, ErrorCode::NoPort.number());
    h.set_word(6, own.0).set_word(7, peer.0);
    let mut packet = Packet::encoded(|out| h.write(&[], out));
    packet.set_sequence(own, seq);
    packet
}

impl Remains {
    /// Empty queues, for a link that was never up at this end.
    pub(crate) fn none() -> Self {
        Self {
            tx: SendQueue::new(Seq(1)),
            backlog: Backlog::new(NodeAddr(0), NodeAddr(0)),
            rx: ReceiveQueue::new(Seq(1)),
            reassembly: Reassembly::default(),
        }
    }

    /// Removes and returns the receiving side, so that it can continue with packets from another link.
    pub(crate) fn take_receiver(&mut self) -> (ReceiveQueue, Reassembly) {
        let rx = core::mem::replace(&mut self.rx, ReceiveQueue::new(Seq(1)));
        (rx, core::mem::take(&mut self.reassembly))
    }
}

impl Link {
    /// The queues of the link as they were when the link last went down; `None` if they have already been taken.
    pub(crate) fn take_remains(&mut self) -> Option<Remains> {
        self.remains.take().map(|remains| *remains)
    }

    /// Makes the link silent until its traffic has been transferred over another link.
    pub(crate) fn begin_failover(&mut self, now: Nanos) {
        self.reset(now);
        (self.state, self.due, self.remains) = (LinkState::FailingOver, None, None);
    }

    /// Allows the link to come up again.
    pub(crate) fn end_failover(&mut self, now: Nanos) {
        if self.state == LinkState::FailingOver {
            self.reset(now);
        }
    }

    /// Starts over with a new session and empty queues, whatever the state.
    pub(crate) fn restart(&mut self, now: Nanos) {
        self.reset(now);
        self.remains = None;
    }

    /// The reassembly of fragments that arrive in order.
    pub(crate) const fn reassembly(&mut self) -> &mut Reassembly {
        &mut self.reassembly
    }

    /// Number of the last packet accepted for sending, whether it has been sent or not. This number is already fixed:
    /// queued packets are numbered in order of arrival, and none is inserted between them. Further messages may still
    /// be bundled into the last packet.
    pub(crate) fn last_queued(&self) -> Seq {
        self.tx.next().add(self.backlog.len() as u16).prev()
    }

    /// Number of the last packet acknowledged by the peer.
    pub(crate) fn last_acked(&self) -> Seq {
        self.tx.base().prev()
    }

    /// Queues the first message of this link, which tells the peer how far the other link has progressed: `acked` is
    /// the last packet that the peer has acknowledged there, and `point` the last one accepted for sending. If the two
    /// differ, this link sends nothing more until [`Link::open`] is called, so that its packets cannot overtake those
    /// in flight on the other link.
    pub(crate) fn synchronize(
        &mut self,
        (acked, point): (Seq, Seq),
        other_peer_bearer: BearerId,
        enhanced: bool,
    ) {
        let mut tunnel = Tunnel {
            kind: TunnelKind::Synch,
            dest: self.cfg.peer,
            bearer: other_peer_bearer,
            count: point.0,
            fragment: 0,
            fragments: 0,
            body: &[],
        };
        // An older peer takes the synchronisation point from the first of the packets repeated here, and from their count.
        let first = filler(self.cfg.own, self.cfg.peer, acked.next());
        let latest = filler(self.cfg.own, self.cfg.peer, point);
        if !enhanced {
            let count = point.distance_from(acked);
            (tunnel.count, tunnel.body) =
                if count > 0 { (count, first.bytes()) } else { (1, latest.bytes()) };
        }
        let link = LinkFields { sender: self.cfg.own, ..LinkFields::default() };
        self.enqueue(SYSTEM, Packet::encoded(|out| tunnel.encode(&link, out)));
        self.limit = point.after(acked).then(|| self.last_queued().next());
    }

    /// Allows this link to send the packets held back since [`Link::synchronize`].
    pub(crate) const fn open(&mut self) {
        self.limit = None;
    }

    /// Sends the queued packets of another link through this one, each with its original number. If `ahead` is set,
    /// they are sent before the packets held back since [`Link::synchronize`], because they are older; otherwise after
    /// all queued packets, because they may be newer. Like [`Link::open`], this allows the packets held back to be
    /// sent. Returns the sequence number of the last tunnelled packet on this link.
    pub(crate) fn carry(
        &mut self,
        remains: Remains,
        peer_bearer: BearerId,
        enhanced: bool,
        ahead: bool,
    ) -> Result<Seq, TooNarrow> {
        let Remains { tx, mut backlog, .. } = remains;
        let mut next = tx.next();
        let mut packets: Vec<Packet> = tx.into_packets().collect();
        while let Some(mut packet) = backlog.pop() {
            packet.set_sequence(self.cfg.own, next);
            next = next.next();
            packets.push(packet);
        }
        packets.push(filler(self.cfg.own, self.cfg.peer, next));
        let room = self.mtu - NAMED_HEADER_LEN;
        let pieces = |packet: &Packet| packet.size().div_ceil(room);
        if !enhanced && packets.iter().any(|p| pieces(p) > 1) {
            return Err(TooNarrow);
        }
        let count = packets.iter().map(pieces).sum::<usize>() as u16;
        let mut later: Vec<(usize, Packet)> = Vec::new();
        if ahead {
            while let Some(waiting) = self.backlog.pop_with_level() {
                later.push(waiting);
            }
        }
        self.open();
        for packet in &packets {
            let cut = pieces(packet);
            for (n, body) in packet.bytes().chunks(room).enumerate() {
                let (fragment, fragments) =
                    if cut > 1 { (n as u16 + 1, cut as u16) } else { (0, 0) };
                let mut out = Vec::with_capacity(NAMED_HEADER_LEN + body.len());
                let (kind, dest) = (TunnelKind::Failover, self.cfg.peer);
                Tunnel { kind, dest, bearer: peer_bearer, count, fragment, fragments, body }
                    .encode(
                        &LinkFields { sender: self.cfg.own, ..LinkFields::default() },
                        &mut out,
                    );
                self.enqueue(SYSTEM, Packet::built(out));
            }
        }
        let last = self.last_queued();
        for (level, packet) in later {
            self.enqueue(level, packet);
        }
        Ok(last)
    }
}
