//! The queue of messages that wait for space in the send window, already split and bundled into packets. Its length is
//! limited.

use crate::addr::NodeAddr;
use crate::limits::{BACKLOG_LOW, BACKLOG_SYSTEM};
use crate::wire::{
    BundleBuilder, ErrorCode, Fragment, FragmentKind, LinkFields, NAMED_HEADER_LEN, Packet, User,
    View,
};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Queue level of the protocol's own messages, above those of the four importances.
pub(crate) const SYSTEM: usize = 4;

#[derive(Clone, Debug)]
enum Content {
    Packet(Packet),
    Bundle(BundleBuilder),
}

#[derive(Clone, Debug)]
struct Waiting {
    level: usize,
    content: Content,
}

/// FIFO queue in front of the send window. For each importance, it holds a limited number of packets in addition to
/// those that fit into the window.
#[derive(Clone, Debug)]
pub(crate) struct Backlog {
    own: NodeAddr,
    dest: NodeAddr,
    queue: VecDeque<Waiting>,
    counts: [usize; 5],
}

/// The backlog for this importance is full; the sender must wait until it drains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Congested;

/// The level of a message: its importance or, if congestion must not delay the message, `SYSTEM`. That is the level of
/// internal messages, connection ends, rejected messages and empty messages: the state of an endpoint depends on them.
pub(crate) fn level_of(view: &View<'_>) -> usize {
    match view.user() {
        Some(User::Data(importance))
            if view.error_code() == Some(ErrorCode::Ok) && !view.data().is_empty() =>
        {
            importance as usize
        }
        _ => SYSTEM,
    }
}

impl Backlog {
    /// Creates an empty backlog of packets from `own` to `dest`. For the broadcast link, `dest` is 0.
    pub(crate) const fn new(own: NodeAddr, dest: NodeAddr) -> Self {
        Self { own, dest, queue: VecDeque::new(), counts: [0; 5] }
    }

    pub(crate) const fn limit(level: usize) -> usize {
        match level {
            0..4 => BACKLOG_LOW * (level + 1),
            _ => BACKLOG_SYSTEM,
        }
    }

    /// Checks whether a packet of this level may be queued while the window has `free` free slots.
    pub(crate) fn admit(&self, level: usize, free: usize) -> Result<(), Congested> {
        if self.counts[level] < Self::limit(level) + free { Ok(()) } else { Err(Congested) }
    }

    /// Number of packets of this level that may still be queued while the window has `free` free slots. Returns 0
    /// instead of a number below half of the limit: otherwise, each departing packet would wake a sender, which would
    /// find the backlog full again after one message.
    pub(crate) fn room(&self, level: usize, free: usize) -> usize {
        let limit = Self::limit(level);
        let room = (limit + free).saturating_sub(self.counts[level]);
        if room * 2 >= limit { room } else { 0 }
    }

    /// Number of queued packets.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn held_bytes(&self) -> usize {
        let len = |w: &Waiting| match &w.content {
            Content::Packet(packet) => packet.size(),
            Content::Bundle(bundle) => bundle.byte_len(),
        };
        self.queue.iter().map(len).sum()
    }

    /// Appends a packet. If the packet may be bundled and the last queued packet has the same level and enough room,
    /// both become one bundle.
    pub(crate) fn push(&mut self, level: usize, packet: Packet, packet_max: usize) {
        if let Some(last) = self.queue.back_mut().filter(|last| last.level == level)
            && may_bundle(&packet.view())
        {
            match &mut last.content {
                Content::Bundle(bundle) => {
                    if bundle.try_push(packet.bytes(), packet_max) {
                        return;
                    }
                }
                Content::Packet(first) if may_bundle(&first.view()) => {
                    let mut bundle = BundleBuilder::default();
                    if bundle.try_push(first.bytes(), packet_max)
                        && bundle.try_push(packet.bytes(), packet_max)
                    {
                        last.content = Content::Bundle(bundle);
                        return;
                    }
                }
                Content::Packet(_) => {}
            }
        }
        self.counts[level] += 1;
        self.queue.push_back(Waiting { level, content: Content::Packet(packet) });
    }

    /// Removes and returns the queued name updates, in order. The order of the remaining packets does not change.
    pub(crate) fn take_names(&mut self, packet_max: usize) -> Vec<Packet> {
        let mut names = Vec::new();
        let queue = core::mem::take(&mut self.queue);
        self.counts = [0; 5];
        let dest = self.dest;
        for waiting in queue {
            let mut sort = |message: Packet| {
                if message.view().user() == Some(User::NameDistributor) {
                    names.push(message);
                } else {
                    self.push(waiting.level, message, packet_max);
                }
            };
            match waiting.content {
                Content::Packet(packet) => sort(packet),
                Content::Bundle(bundle) => {
                    let bundle = bundle.bundle(dest, waiting.level as u8);
                    bundle.items().flatten().for_each(|view| sort(Packet::copy_of(&view)));
                }
            }
        }
        names
    }

    /// Removes and returns the next packet.
    pub(crate) fn pop(&mut self) -> Option<Packet> {
        self.pop_with_level().map(|(_, packet)| packet)
    }

    /// Removes and returns the next packet together with its level.
    pub(crate) fn pop_with_level(&mut self) -> Option<(usize, Packet)> {
        let waiting = self.queue.pop_front()?;
        self.counts[waiting.level] -= 1;
        let packet = match waiting.content {
            Content::Packet(packet) => packet,
            Content::Bundle(bundle) => {
                let link = LinkFields { sender: self.own, ..LinkFields::default() };
                bundle.into_packet(&link, self.dest, waiting.level as u8)
            }
        };
        Some((waiting.level, packet))
    }
}

fn may_bundle(view: &View<'_>) -> bool {
    !matches!(
        view.user(),
        // Keys travel alone, so that it can be seen that they must be encrypted.
        Some(User::Bundler | User::Fragmenter | User::Tunnel | User::BcastProtocol | User::Crypto)
            | None
    )
}

/// Splits a message into packets of at most `packet_max` bytes. A message that fits is left as it is.
pub(crate) fn split(
    message: Packet,
    packet_max: usize,
    dest: NodeAddr,
    own: NodeAddr,
    packets: &mut Vec<Packet>,
) {
    if message.size() <= packet_max {
        packets.push(message);
        return;
    }
    let level = level_of(&message.view()) as u8;
    let link = LinkFields { sender: own, ..LinkFields::default() };
    let mut pieces = message.bytes().chunks(packet_max - NAMED_HEADER_LEN).peekable();
    let (mut number, mut kind) = (1, FragmentKind::First);
    while let Some(body) = pieces.next() {
        if pieces.peek().is_none() {
            kind = FragmentKind::Last;
        }
        let mut packet = Vec::with_capacity(NAMED_HEADER_LEN + body.len());
        Fragment { kind, dest, number, importance: level, body }.encode(&link, &mut packet);
        packets.push(Packet::built(packet));
        (number, kind) = (number + 1, FragmentKind::Middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{Importance, Port};
    use crate::drops::DropCounters;
    use crate::reassembly::Reassembly;
    use crate::seq::Seq;
    use crate::wire::{
        ConnManager, ConnManagerKind, DataKind, DataMessage, NameItem, NameMessage, NameSeries,
    };

    fn small() -> Packet {
        let probe = ConnManager { kind: ConnManagerKind::Probe, ..ConnManager::default() };
        Packet::encoded(|out| probe.encode(&LinkFields::default(), out))
    }

    #[test]
    fn name_updates_are_taken_out_of_packets_and_bundles_and_the_rest_keeps_its_order() {
        let name = |number| {
            let update = NameMessage {
                withdrawal: false,
                series: NameSeries::Update,
                number: Seq(number),
                owner: NodeAddr(2),
                dest: NodeAddr(0),
                bcast_ack_invalid: false,
                body: &[7; NameItem::LEN],
            };
            Packet::encoded(|out| update.encode(&LinkFields::default(), out))
        };
        let large = |fill| {
            let mut out = small().bytes().to_vec();
            out.resize(190, fill);
            let word = u32::from_be_bytes([out[0], out[1], out[2], out[3]]) + 150;
            out[0..4].copy_from_slice(&word.to_be_bytes());
            Packet::parse(out).unwrap()
        };
        let mut backlog = Backlog::new(NodeAddr(2), NodeAddr(0));
        for message in [small(), name(1), large(1), name(2), large(2), name(3), small()] {
            backlog.push(SYSTEM, message, 200);
        }
        assert_eq!(backlog.take_names(200), [name(1), name(2), name(3)]);
        let left: Vec<_> = core::iter::from_fn(|| backlog.pop()).collect();
        assert_eq!(left, [small(), large(1), large(2), small()]);
        assert_eq!(backlog.counts, [0; 5], "an empty backlog must count no packets");
    }

    #[test]
    fn small_messages_share_packets_and_come_apart_again() {
        let mut backlog = Backlog::new(NodeAddr(2), NodeAddr(1));
        for _ in 0..7 {
            backlog.push(SYSTEM, small(), 200);
        }
        let (mut got, mut packets, mut drops) = (Vec::new(), 0, DropCounters::default());
        while let Some(packet) = backlog.pop() {
            assert!(packet.size() <= 200);
            packets += 1;
            Reassembly::default().accept(packet.into(), &mut got, &mut drops).unwrap();
        }
        assert_eq!((packets, got.len()), (2, 7), "four messages of 40 bytes in 40 + 160");
        assert!(backlog.is_empty() && backlog.counts == [0; 5]);
    }

    #[test]
    fn ends_of_connections_and_what_comes_back_wait_behind_no_congestion() {
        let data = |error, payload: &[u8]| {
            let message = DataMessage {
                importance: Importance::High,
                dest_droppable: false,
                flag18: false,
                syn: false,
                error,
                reroutes: 0,
                lookup_scope: 0,
                orig_port: Port(1),
                dest_port: Port(2),
                kind: DataKind::Conn,
                payload,
            };
            level_of(&Packet::encoded(|out| message.encode(&LinkFields::default(), out)).view())
        };
        assert_eq!(data(ErrorCode::Ok, b"x"), Importance::High as usize);
        assert_eq!(data(ErrorCode::Ok, b""), SYSTEM);
        assert_eq!(data(ErrorCode::NoPort, b"x"), SYSTEM);
    }

    #[test]
    fn each_importance_has_its_own_bound() {
        let mut backlog = Backlog::new(NodeAddr(2), NodeAddr(1));
        for _ in 0..Backlog::limit(0) {
            backlog.admit(0, 0).unwrap();
            backlog.push(0, small(), 0);
        }
        assert_eq!(backlog.admit(0, 0), Err(Congested));
        assert_eq!(backlog.admit(1, 0), Ok(()));
        assert_eq!(
            backlog.admit(0, 1),
            Ok(()),
            "one packet may be sent, so there is room for another"
        );
        assert_eq!(
            backlog.room(0, Backlog::limit(0) / 2 - 1),
            0,
            "the backlog has not drained to half yet"
        );
        assert_eq!(backlog.room(0, Backlog::limit(0) / 2), Backlog::limit(0) / 2);
    }

    #[test]
    fn a_large_message_is_cut_and_joined() {
        let mut message = small().bytes().to_vec();
        message.resize(5000, 9);
        let size = 0x5140_0000u32 | 5000;
        message[..4].copy_from_slice(&size.to_be_bytes());
        let message = Packet::parse(message).unwrap();
        let mut packets = Vec::new();
        split(message.clone(), 1500, NodeAddr(1), NodeAddr(0), &mut packets);
        assert_eq!(packets.iter().map(Packet::size).collect::<Vec<_>>(), [1500, 1500, 1500, 660]);
        let (mut r, mut got, mut drops) =
            (Reassembly::default(), Vec::new(), DropCounters::default());
        for packet in packets {
            r.accept(packet.into(), &mut got, &mut drops).unwrap();
        }
        assert_eq!(got, [message]);
    }
}
