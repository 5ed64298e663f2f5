//! Packets and messages that own their bytes and have been checked.

use super::frame::{refresh_link_fields, set_sequence};
use super::header::{View, WireError};
use crate::addr::{NetworkId, NodeAddr};
use crate::seq::Seq;
use alloc::vec::Vec;

/// A packet or message in a buffer of its own, checked like a [`View`] and cut to its size.
///
/// Queues store messages as packets, so that they need not be checked again when they are read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The bytes of the packet: as many as its size field says, and at least a header.
    bytes: Vec<u8>,
}

impl Packet {
    /// Checks the rules common to all messages, and cuts off any bytes after the end of the message.
    ///
    /// # Errors
    /// [`WireError`] says which rule the input violates.
    pub fn parse(mut bytes: Vec<u8>) -> Result<Self, WireError> {
        let size = View::parse(&bytes)?.size();
        bytes.truncate(size);
        Ok(Self { bytes })
    }

    /// A copy of a received message.
    pub fn copy_of(view: &View<'_>) -> Self {
        Self { bytes: view.bytes().to_vec() }
    }

    /// Returns the packet that `encode`, an encoder of [`wire`](super), appends to an empty buffer.
    pub(crate) fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        Self::built(bytes)
    }

    /// A packet with a header written by this node.
    pub(crate) fn built(bytes: Vec<u8>) -> Self {
        debug_assert!(
            View::parse(&bytes).is_ok_and(|view| view.size() == bytes.len()),
            "this node encodes only legal messages"
        );
        Self { bytes }
    }

    /// Returns a view of the packet, whose methods read its fields.
    pub fn view(&self) -> View<'_> {
        View::of_checked(&self.bytes)
    }

    /// The whole packet, header included.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Size in bytes, header included.
    pub const fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Sets the sequence number and the sender when a link sends the packet for the first time.
    pub(crate) fn set_sequence(&mut self, sender: NodeAddr, seq: Seq) {
        set_sequence(&mut self.bytes, sender, seq);
    }

    /// Updates the acknowledgements before the packet is sent or retransmitted.
    pub(crate) fn refresh_link_fields(&mut self, ack: Seq, bcast_ack: Seq) {
        refresh_link_fields(&mut self.bytes, ack, bcast_ack);
    }

    /// Sets the non-sequenced bit, and replaces the destination port with the network ID.
    pub(crate) fn set_broadcast(&mut self, network: NetworkId) {
        self.bytes[1] |= 0x10;
        self.bytes[20..24].copy_from_slice(&network.0.to_be_bytes());
    }

    /// Replaces the sending node.
    pub(crate) fn set_sender(&mut self, sender: NodeAddr) {
        self.bytes[12..16].copy_from_slice(&sender.0.to_be_bytes());
    }
}

/// A received packet that is next in order. It is still in the caller's buffer, or owns its bytes because it had to
/// wait.
#[derive(Debug)]
pub(crate) enum Inbound<'a> {
    Fresh(View<'a>),
    Waited(Packet),
}

impl Inbound<'_> {
    pub(crate) fn view(&self) -> View<'_> {
        match self {
            Self::Fresh(view) => *view,
            Self::Waited(packet) => packet.view(),
        }
    }

    /// Converts the packet into one that owns its bytes. Copies them if they are still in the caller's buffer.
    pub(crate) fn into_packet(self) -> Packet {
        match self {
            Self::Fresh(view) => Packet::copy_of(&view),
            Self::Waited(packet) => packet,
        }
    }
}

impl<'a> From<View<'a>> for Inbound<'a> {
    fn from(view: View<'a>) -> Self {
        Self::Fresh(view)
    }
}

impl From<Packet> for Inbound<'_> {
    fn from(packet: Packet) -> Self {
        Self::Waited(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ConnManager, ConnManagerKind, LinkFields};

    fn probe() -> Packet {
        let probe = ConnManager { kind: ConnManagerKind::Probe, ..ConnManager::default() };
        Packet::encoded(|out| probe.encode(&LinkFields::default(), out))
    }

    #[test]
    fn padding_is_cut_off_and_fragments_of_a_message_are_refused() {
        let packet = probe();
        let mut padded = packet.bytes().to_vec();
        padded.resize(60, 0xff);
        assert_eq!(Packet::parse(padded), Ok(packet.clone()));
        let short = packet.bytes()[..packet.size() - 1].to_vec();
        assert_eq!(Packet::parse(short), Err(WireError::Truncated));
        assert_eq!(Packet::parse(Vec::new()), Err(WireError::Truncated));
    }

    #[test]
    fn a_view_of_a_packet_is_what_parsing_its_bytes_gives() {
        let mut packet = probe();
        packet.set_sequence(NodeAddr(7), Seq(0xfffe));
        packet.refresh_link_fields(Seq(3), Seq(4));
        packet.set_sender(NodeAddr(8));
        let view = packet.view();
        assert_eq!(View::parse(packet.bytes()), Ok(view));
        assert_eq!((view.prev_node(), view.seq(), view.ack()), (NodeAddr(8), Seq(0xfffe), Seq(3)));
        assert_eq!(view.bcast_ack(), Seq(4));
        packet.set_broadcast(NetworkId(4711));
        assert!(packet.view().is_non_seq());
        assert_eq!((packet.view().word(5), packet.size()), (4711, probe().size()));
    }
}
