//! Keeps multicasts in order when their sender switches between broadcast and replicast.
//!
//! The two methods use independent links, so the first message sent by the new method could overtake the last one sent
//! by the old method. The sender therefore flags that first message, and sends an empty marker message, its twin, by
//! the old method. The receiver holds back the messages that arrive by the new method until the twin shows that nothing
//! older is in flight by the old one.

use crate::addr::{NodeAddr, SocketAddr};
use crate::limits::{MCAST_SWITCH_WAIT, MESSAGE_OVERHEAD};
use crate::time::Nanos;
use crate::wire::{ErrorCode, Packet, View};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// How to handle a multicast that has just arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// Deliver the multicast unchanged.
    Deliver,
    /// The multicast is held back. The value is the latest time at which it must be released, or `None` if others were
    /// already held back.
    Held(Option<Nanos>),
    /// Deliver these messages, in this order.
    Release(Vec<Packet>),
    /// Drop the multicast, because there is no room to hold it back.
    NoRoom,
}

#[derive(Clone, Debug)]
struct Held {
    from: SocketAddr,
    replicast: bool,
    syn: bool,
    until: Nanos,
    packet: Packet,
}

impl Held {
    /// Whether the message is a twin, which has no payload for the application.
    fn is_twin(&self) -> bool {
        let view = self.packet.view();
        view.data().is_empty() || view.error_code() != Some(ErrorCode::Ok)
    }
}

/// The multicasts held back in one socket.
#[derive(Clone, Debug)]
pub(crate) struct McastOrder {
    held: VecDeque<Held>,
    held_bytes: usize,
}

impl McastOrder {
    pub(crate) const fn new() -> Self {
        Self { held: VecDeque::new(), held_bytes: 0 }
    }

    pub(crate) const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Handles a multicast from another node. At most `bytes_max` bytes are held back.
    pub(crate) fn accept(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        view: &View<'_>,
        bytes_max: usize,
    ) -> Arrival {
        let (syn, replicast) = (view.is_syn(), view.bit18());
        if !syn && self.held.is_empty() {
            return Arrival::Deliver;
        }
        let first = self.held.iter().position(|h| h.from == from);
        let other_way = first.filter(|&n| self.held[n].replicast != replicast);
        let Some(first) = other_way else {
            if first.is_none() && !syn {
                return Arrival::Deliver;
            }
            return self.hold(now, from, view, bytes_max);
        };
        if !syn {
            // Sent before the switch, by the other method.
            return Arrival::Deliver;
        }
        let own = Held { from, replicast, syn, until: now, packet: Packet::copy_of(view) };
        let pair = [self.take(first), Some(own)].into_iter().flatten();
        let mut released: Vec<Packet> = pair.filter(|h| !h.is_twin()).map(|h| h.packet).collect();
        while let Some(n) = self.held.iter().position(|h| h.from == from)
            && !self.held[n].syn
        {
            released.extend(self.take(n).map(|h| h.packet));
        }
        Arrival::Release(released)
    }

    fn hold(&mut self, now: Nanos, from: SocketAddr, view: &View<'_>, max: usize) -> Arrival {
        let cost = view.size() + MESSAGE_OVERHEAD;
        if self.held_bytes + cost > max {
            return Arrival::NoRoom;
        }
        let until = now + MCAST_SWITCH_WAIT;
        let alarm = self.held.is_empty().then_some(until);
        self.held_bytes += cost;
        let (syn, replicast) = (view.is_syn(), view.bit18());
        self.held.push_back(Held { from, replicast, syn, until, packet: Packet::copy_of(view) });
        Arrival::Held(alarm)
    }

    fn take(&mut self, n: usize) -> Option<Held> {
        let held = self.held.remove(n)?;
        self.held_bytes -= held.packet.size() + MESSAGE_OVERHEAD;
        Some(held)
    }

    fn release(&mut self, which: impl Fn(&Held) -> bool) -> Vec<Packet> {
        let mut released = Vec::new();
        while let Some(n) = self.held.iter().position(&which) {
            released.extend(self.take(n).filter(|h| !h.is_twin()).map(|h| h.packet));
        }
        released
    }

    /// Removes and returns the messages of a lost node: they wait for twins that will not arrive.
    pub(crate) fn lose(&mut self, node: NodeAddr) -> Vec<Packet> {
        self.release(|h| h.from.node == node)
    }

    /// Removes and returns the messages that were held back for too long: their twin was not sent to this node, because
    /// the node's binding was too new. Also returns the time of the next check.
    pub(crate) fn expire(&mut self, now: Nanos) -> (Vec<Packet>, Option<Nanos>) {
        let mut released = Vec::new();
        while let Some(first) = self.held.front().filter(|h| h.until <= now) {
            // Release all messages of one source together to keep their order.
            let from = first.from;
            released.append(&mut self.release(|h| h.from == from));
        }
        (released, self.held.front().map(|h| h.until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{Importance, Port, ServiceRange};
    use crate::wire::{DataKind, DataMessage, LinkFields};

    const FROM: SocketAddr = SocketAddr { port: Port(7), node: NodeAddr(9) };
    /// The two methods: broadcast and replicast.
    const B: bool = false;
    const R: bool = true;

    fn message(replicast: bool, syn: bool, text: &[u8]) -> Packet {
        let message = DataMessage {
            importance: Importance::Low,
            dest_droppable: true,
            flag18: replicast,
            syn,
            error: if text.is_empty() { ErrorCode::NoPort } else { ErrorCode::Ok },
            reroutes: 0,
            lookup_scope: 2,
            orig_port: FROM.port,
            dest_port: Port(0),
            kind: DataKind::Mcast {
                orig: FROM.node,
                dest: NodeAddr(0),
                range: ServiceRange::single(100, 1),
            },
            payload: text,
        };
        Packet::encoded(|out| message.encode(&LinkFields::default(), out))
    }

    /// Passes the messages to `order` one after the other, and returns the payloads that were delivered.
    fn run(order: &mut McastOrder, messages: &[(bool, bool, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (way, syn, text) in messages {
            let packet = message(*way, *syn, text);
            let view = packet.view();
            match order.accept(Nanos(0), FROM, &view, 1 << 20) {
                Arrival::Deliver => out.extend_from_slice(view.data()),
                Arrival::Release(all) => {
                    all.iter().for_each(|m| out.extend_from_slice(m.view().data()));
                }
                Arrival::Held(_) => {}
                Arrival::NoRoom => panic!("there is room"),
            }
        }
        out
    }

    #[test]
    fn multicasts_arrive_in_order_whichever_method_is_faster() {
        // Sent: 0 and 1 by broadcast, 2 and 3 by replicast, 4 and 5 by broadcast again.
        let broadcast: [(bool, bool, &[u8]); 5] =
            [(B, false, b"0"), (B, false, b"1"), (B, true, b""), (B, true, b"4"), (B, false, b"5")];
        let replicast: [(bool, bool, &[u8]); 3] =
            [(R, true, b"2"), (R, false, b"3"), (R, true, b"")];
        // Every interleaving of the two methods: the mask gives the positions of the replicasts among all eight messages.
        for mask in 0u32..256 {
            if mask.count_ones() != 3 {
                continue;
            }
            let (mut b, mut r) = (broadcast.iter(), replicast.iter());
            let mixed: Vec<_> = (0..8)
                .map(|n| if mask >> n & 1 == 1 { r.next() } else { b.next() }.copied().unwrap())
                .collect();
            let mut order = McastOrder::new();
            assert_eq!(run(&mut order, &mixed), b"012345", "{mixed:?}");
            assert_eq!((order.held_bytes(), order.held.len()), (0, 0));
        }
    }

    #[test]
    fn a_twin_that_never_comes_delays_but_does_not_lose() {
        let mut order = McastOrder::new();
        let sent: [(bool, bool, &[u8]); 3] = [(R, true, b"a"), (R, false, b"b"), (B, false, b"x")];
        assert_eq!(run(&mut order, &sent), b"x");
        assert_eq!(order.expire(Nanos(1)), (Vec::new(), Some(Nanos(0) + MCAST_SWITCH_WAIT)));
        let (late, next) = order.expire(Nanos(0) + MCAST_SWITCH_WAIT);
        assert_eq!((late.len(), next, order.held_bytes()), (2, None, 0));
        run(&mut order, &[(R, true, b"c")]);
        assert_eq!(order.lose(FROM.node).len(), 1);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut order = McastOrder::new();
        let packet = message(R, true, &[1; 1000]);
        let view = packet.view();
        let accept = |order: &mut McastOrder| order.accept(Nanos(0), FROM, &view, 4_000);
        assert!(matches!(accept(&mut order), Arrival::Held(Some(_))));
        assert_eq!(accept(&mut order), Arrival::Held(None));
        assert_eq!(accept(&mut order), Arrival::NoRoom);
    }
}
