//! Two links to one peer: nothing is lost, duplicated or reordered when the second link comes up (SYNCH) or one of them
//! fails (FAILOVER).
//!
//! A socket's messages stay on the link that carries its half of the ports. When a half moves to a link that has come
//! up, two mechanisms keep the order. The sender sends nothing on the new link until the peer has acknowledged
//! everything sent earlier on the old link ([`Opening`]). The receiver delivers nothing from the new link until the old
//! link has delivered everything sent earlier ([`Held`]), because the sender may be another implementation, which need
//! not wait. When a link fails, each end sends its unacknowledged packets through the surviving link, each with its
//! original number, and the receiver continues the failed link's sequence where it stopped ([`Failover`]).

use super::Node;
use crate::addr::{BearerId, NodeAddr};
use crate::drops::DropReason;
use crate::limits::{BEARERS_MAX, HELD_BYTES_MAX, WIRE_MESSAGE_LEN_MAX};
use crate::link::{LinkDownReason, Remains};
use crate::reassembly::{OutOfStep, Reassembly};
use crate::receive_queue::ReceiveQueue;
use crate::seq::Seq;
use crate::time::Nanos;
use crate::wire::{Capabilities, ErrorCode, Inbound, Packet, Tunnel, TunnelKind, User, View};
use alloc::vec::Vec;

/// A link that sends nothing until the peer has acknowledged all packets up to a point on another link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub(super) link: BearerId,
    pub(super) behind: BearerId,
    pub(super) point: Seq,
}

/// Packets that were received on one link and wait until another link has delivered everything up to a point.
#[derive(Clone, Debug)]
pub(super) struct Held {
    link: BearerId,
    behind: BearerId,
    point: Seq,
    packets: Vec<Packet>,
    bytes: usize,
}

/// The receiving side of a failed link, which continues with packets that arrive through the surviving link.
#[derive(Clone, Debug)]
pub(super) struct Failover {
    /// The failed link's bearer. If the link does not exist at this end, a number that no bearer has.
    dead: BearerId,
    tunnel: BearerId,
    rx: ReceiveQueue,
    reassembly: Reassembly,
    /// For a tunnelled packet that arrives in fragments: the number of the next expected fragment, and the data
    /// received so far.
    pieces: (u16, Vec<u8>),
    /// Sequence number, on the surviving link, of the last tunnelled packet; `None` until the first one has arrived.
    end: Option<Seq>,
}

impl Held {
    pub(super) const fn held_bytes(&self) -> usize {
        self.bytes
    }
}

impl Failover {
    pub(super) fn held_bytes(&self) -> usize {
        self.rx.early_bytes() + self.reassembly.held_bytes() + self.pieces.1.len()
    }

    /// Unwraps a tunnel message. Returns the inner packet if this message completes it, otherwise `None`. Fails if a
    /// fragment is not the expected one, or makes the packet too large.
    fn unwrap(&mut self, tunnel: &Tunnel<'_>) -> Result<Option<Vec<u8>>, OutOfStep> {
        if tunnel.fragments == 0 {
            return Ok(Some(tunnel.body.to_vec()));
        }
        let (next, pieces) = &mut self.pieces;
        if tunnel.fragment == 1 {
            (*next, *pieces) = (1, Vec::new());
        }
        if tunnel.fragment != *next || pieces.len() + tunnel.body.len() > WIRE_MESSAGE_LEN_MAX {
            return Err(OutOfStep);
        }
        pieces.extend_from_slice(tunnel.body);
        *next += 1;
        if tunnel.fragment < tunnel.fragments {
            return Ok(None);
        }
        *next = 0;
        Ok(Some(core::mem::take(pieces)))
    }
}

/// Whether a tunnelled packet carries nothing to deliver: it is a dummy (a returned message without a destination
/// port), or a tunnel message that the failed link was carrying for a failover that has already ended.
fn is_filler(view: &View<'_>) -> bool {
    match view.user() {
        Some(User::Tunnel) => true,
        Some(User::Data(_)) => {
            view.error_code() == Some(ErrorCode::NoPort)
                && view.dest_port().0 == 0
                && view.data().is_empty()
        }
        _ => false,
    }
}

impl Node {
    /// Stores a packet that must wait for another link and returns `None`; returns any other packet.
    pub(super) fn hold_back<'a>(
        &mut self,
        now: Nanos,
        sender: NodeAddr,
        bearer: BearerId,
        packet: Inbound<'a>,
    ) -> Option<Inbound<'a>> {
        let held = match &mut self.peers.get_mut(&sender)?.held {
            Some(held) => held,
            None => return Some(packet),
        };
        if held.link == bearer {
            held.bytes += packet.view().size();
            held.packets.push(packet.into_packet());
            if held.bytes > HELD_BYTES_MAX {
                self.lose_peer(now, sender, LinkDownReason::Overrun);
            }
            return None;
        }
        if held.behind == bearer && packet.view().seq().after(held.point) {
            self.release(now, sender);
        }
        Some(packet)
    }

    pub(super) fn handle_tunnel(
        &mut self,
        now: Nanos,
        sender: NodeAddr,
        bearer: BearerId,
        seq: Seq,
        tunnel: &Tunnel<'_>,
    ) {
        match tunnel.kind {
            // An older peer repeats packets here; only the first of them carries information.
            TunnelKind::Synch if seq != Seq(1) => {}
            TunnelKind::Synch => {
                let point = match View::parse(tunnel.body) {
                    Ok(inner) => inner.seq().add(tunnel.count).prev(),
                    Err(_) => Seq(tunnel.count),
                };
                self.release(now, sender);
                let Some(peer) = self.peers.get_mut(&sender) else { return };
                if let Some(behind) = peer.other(bearer) {
                    let (packets, bytes) = (Vec::new(), 0);
                    peer.held = Some(Held { link: bearer, behind, point, packets, bytes });
                    self.release_if_due(now, sender);
                }
            }
            TunnelKind::Failover => self.handle_failover(now, sender, bearer, seq, tunnel),
        }
    }

    fn handle_failover(
        &mut self,
        now: Nanos,
        sender: NodeAddr,
        bearer: BearerId,
        seq: Seq,
        tunnel: &Tunnel<'_>,
    ) {
        self.follow_failover(now, sender, bearer);
        let Some(peer) = self.peers.get_mut(&sender) else { return };
        let Some(failover) = peer.failover.as_mut().filter(|f| f.tunnel == bearer) else {
            self.drops.count(DropReason::NotSpoken);
            return;
        };
        let end = seq.add(tunnel.count.max(1)).prev();
        let end = *failover.end.get_or_insert(end);
        let dead = failover.dead;
        let (mut first, mut behind) = (None, Vec::new());
        match failover.unwrap(tunnel) {
            Ok(None) => {}
            Ok(Some(inner)) => {
                let accepted = Packet::parse(inner).map_err(DropReason::from).and_then(|inner| {
                    let in_order = failover.rx.accept(&inner.view(), &mut behind)?;
                    Ok(in_order.then_some(inner))
                });
                match accepted {
                    Ok(inner) => first = inner,
                    Err(reason) => self.drops.count(reason),
                }
            }
            Err(OutOfStep) => {
                self.drops.count(DropReason::BadFragment);
                self.lose_peer(now, sender, LinkDownReason::OutOfStep);
                return;
            }
        }
        for packet in first.into_iter().chain(behind) {
            let view = packet.view();
            // Packets held back from the failed link are older than the following ones; packets held back behind it may now be due.
            let held = self.peers.get(&sender).and_then(|p| p.held.as_ref());
            if held
                .is_some_and(|h| h.link == dead || (h.behind == dead && view.seq().after(h.point)))
            {
                self.release(now, sender);
            }
            if !is_filler(&view) {
                self.assemble(now, sender, dead, packet.into());
            }
        }
        self.release_if_due(now, sender);
        if !seq.before(end) {
            self.end_failover(now, sender);
        }
    }

    /// Handles a peer that sends packets of its other link through a tunnel: its end of that link has failed, so this
    /// end must fail, too.
    fn follow_failover(&mut self, now: Nanos, sender: NodeAddr, tunnel: BearerId) {
        let Some(peer) = self.peers.get_mut(&sender) else { return };
        if peer.failover.is_some() {
            return;
        }
        let other = peer.other(tunnel);
        if let Some(over) = other.and_then(|b| peer.link_mut(b))
            && let Some(event) = over.link.fail(now, LinkDownReason::PeerFailedOver)
        {
            self.link_event(now, sender, other.unwrap_or(tunnel), Some(event));
            return;
        }
        // Our end was never up, or no longer exists: the peer's packets begin with the first, and it waits for a packet through the tunnel.
        self.fail_over(now, sender, other.unwrap_or(BearerId(BEARERS_MAX as u8)));
    }

    /// Sends the failed link's packets through the surviving link, and prepares to receive the peer's packets through
    /// it.
    pub(super) fn fail_over(&mut self, now: Nanos, addr: NodeAddr, dead: BearerId) {
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        let Some(tunnel) = peer.slots[0] else { return };
        let enhanced = peer.common.has(Capabilities::TUNNEL_ENHANCED);
        let opening = peer.opening.take();
        let (mut remains, mut peer_bearer) = (Remains::none(), BearerId(0));
        if let Some(over) = peer.link_mut(dead) {
            remains = over.link.take_remains().unwrap_or(remains);
            peer_bearer = over.link.peer_bearer();
            over.link.begin_failover(now);
        }
        let (rx, reassembly) = remains.take_receiver();
        let (pieces, end) = ((0, Vec::new()), None);
        peer.failover = Some(Failover { dead, tunnel, rx, reassembly, pieces, end });
        let ahead = opening.is_some_and(|o| o.link == tunnel);
        let Some(over) = peer.link_mut(tunnel) else { return };
        match over.link.carry(remains, peer_bearer, enhanced, ahead) {
            Ok(last) => {
                if peer.greeting.is_some_and(|(bearer, _)| bearer == dead) {
                    peer.greeting = Some((tunnel, last));
                }
                self.release_if_due(now, addr);
            }
            Err(_) => self.lose_peer(now, addr, LinkDownReason::TunnelTooNarrow),
        }
    }

    /// Ends a failover once everything has arrived.
    fn end_failover(&mut self, now: Nanos, addr: NodeAddr) {
        // Packets that waited for the failed link can be released.
        if let Some(failover) = self.peers.get(&addr).and_then(|p| p.failover.as_ref()) {
            let dead = failover.dead;
            let held = self.peers.get(&addr).and_then(|p| p.held.as_ref());
            if held.is_some_and(|h| h.link == dead || h.behind == dead) {
                self.release(now, addr);
            }
        }
        let Some(peer) = self.peers.get_mut(&addr) else { return };
        peer.failover = None;
        for over in peer.links.iter_mut().flatten() {
            over.link.end_failover(now);
        }
    }

    /// Delivers the packets that are held back if the other link has delivered everything before them, or will deliver
    /// nothing more.
    pub(super) fn release_if_due(&mut self, now: Nanos, addr: NodeAddr) {
        let Some(peer) = self.peers.get(&addr) else { return };
        let Some(held) = &peer.held else { return };
        let next = match &peer.failover {
            Some(failover) if failover.dead == held.behind => Some(failover.rx.next()),
            _ => peer.link(held.behind).filter(|l| l.link.is_up()).map(|l| l.link.acked().next()),
        };
        // A link that is not up will deliver nothing more to wait for.
        if next.is_none_or(|next| next.after(held.point)) {
            self.release(now, addr);
        }
    }

    fn release(&mut self, now: Nanos, addr: NodeAddr) {
        let Some(held) = self.peers.get_mut(&addr).and_then(|p| p.held.take()) else { return };
        for packet in held.packets {
            self.assemble(now, addr, held.link, packet.into());
        }
    }
}

impl super::Peer {
    /// The reassembly of the link on this bearer. That link may have failed; its packets then arrive through the
    /// surviving link.
    pub(super) fn reassembly_of(&mut self, bearer: BearerId) -> Option<&mut Reassembly> {
        if self.failover.as_ref().is_some_and(|failover| failover.dead == bearer) {
            return self.failover.as_mut().map(|failover| &mut failover.reassembly);
        }
        self.link_mut(bearer).map(|over| over.link.reassembly())
    }

    /// Allows a waiting link to send if the packets that it waits for have been acknowledged, or never will be.
    pub(super) fn open_if_due(&mut self) {
        let Some(Opening { link, behind, point }) = self.opening else { return };
        if self.link(behind).is_some_and(|l| l.link.is_up() && point.after(l.link.last_acked())) {
            return;
        }
        self.opening = None;
        if let Some(over) = self.link_mut(link) {
            over.link.open();
        }
    }
}
