//! `MSG_BUNDLER`: several small messages in one packet, each aligned to 4 bytes.

use super::frame::LinkFields;
use super::header::{HeaderWords, View, WireError};
use super::packet::Packet;
use super::user::User;
use crate::addr::NodeAddr;
use alloc::vec::Vec;

/// A packet with several messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bundle<'a> {
    /// The node to which all messages of the bundle are sent.
    pub dest: NodeAddr,
    /// The importance of all messages in the bundle. Kernels also send 4 ("system") here.
    pub importance: u8,
    /// Number of messages in the bundle.
    pub count: u16,
    /// The messages, with padding between them.
    pub body: &'a [u8],
}

impl<'a> Bundle<'a> {
    /// Decodes the bundle's own header; the messages are checked by [`Bundle::items`].
    ///
    /// # Errors
    /// If the header is not 40 bytes long or the type is not 0.
    pub fn decode(view: &View<'a>) -> Result<Self, WireError> {
        view.check_header_len()?;
        if view.msg_type() != 0 {
            return Err(WireError::Type(view.msg_type() as u8));
        }
        Ok(Self {
            dest: NodeAddr(view.word(7)),
            importance: view.bits(9, 0, 7) as u8,
            count: view.bits(9, 16, 0xffff) as u16,
            body: view.data(),
        })
    }

    /// Appends the encoded bundle to `out`.
    pub fn encode(&self, link: &LinkFields, out: &mut Vec<u8>) {
        self.header(link).write(&[self.body], out);
    }

    fn header(&self, link: &LinkFields) -> HeaderWords {
        let mut h = HeaderWords::new(User::Bundler, 0, super::NAMED_HEADER_LEN);
        h.set_word(6, link.sender.0).set_word(7, self.dest.0);
        h.set(9, 16, 0xffff, self.count.into()).set(9, 0, 7, self.importance.into());
        link.write(&mut h);
        h
    }

    /// Iterates over the messages in order. Ends after `count` messages. If a message is malformed or must not be in a
    /// bundle, yields an error and ends there.
    pub fn items(&self) -> BundleItems<'a> {
        BundleItems { rest: self.body, left: self.count }
    }
}

/// Iterator over the messages of a bundle.
#[derive(Clone, Debug)]
pub struct BundleItems<'a> {
    rest: &'a [u8],
    left: u16,
}

impl<'a> Iterator for BundleItems<'a> {
    type Item = Result<View<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let item = View::parse(self.rest).and_then(|view| match view.user() {
            // Bundles are never nested and contain no fragments; refusing them here also bounds the recursion.
            Some(User::Bundler | User::Fragmenter | User::Tunnel | User::BcastProtocol) | None => {
                Err(WireError::User(view.user_number()))
            }
            Some(_) => Ok(view),
        });
        match &item {
            Ok(view) => self.rest = self.rest.get(view.size().next_multiple_of(4)..).unwrap_or(&[]),
            Err(_) => self.left = 0,
        }
        Some(item)
    }
}

/// Initial capacity of a bundle, in bytes: an Ethernet-sized packet.
const CAPACITY_FIRST: usize = 1_500;

/// Collects messages into a bundle, directly in the buffer that becomes the packet.
#[derive(Clone, Debug, Default)]
pub struct BundleBuilder {
    /// Empty, or space for the header, followed by the messages.
    packet: Vec<u8>,
    count: u16,
}

impl BundleBuilder {
    /// Adds a message if header, padding and message stay within `packet_max` bytes; otherwise returns `false` and leaves
    /// the bundle unchanged.
    pub fn try_push(&mut self, message: &[u8], packet_max: usize) -> bool {
        let start = self.packet.len().next_multiple_of(4).max(super::NAMED_HEADER_LEN);
        if start + message.len() > packet_max || self.count == u16::MAX {
            return false;
        }
        if self.packet.is_empty() {
            self.packet.reserve(packet_max.min(CAPACITY_FIRST));
        }
        self.packet.resize(start, 0);
        self.packet.extend_from_slice(message);
        self.count += 1;
        true
    }

    /// Current length of the bundle in bytes, header and padding included.
    pub const fn byte_len(&self) -> usize {
        self.packet.len()
    }

    /// The messages collected so far as a bundle, addressed to `dest`.
    pub fn bundle(&self, dest: NodeAddr, importance: u8) -> Bundle<'_> {
        let body = self.packet.get(super::NAMED_HEADER_LEN..).unwrap_or(&[]);
        Bundle { dest, importance, count: self.count, body }
    }

    /// Converts the bundle into a packet for `dest`.
    pub(crate) fn into_packet(
        mut self,
        link: &LinkFields,
        dest: NodeAddr,
        importance: u8,
    ) -> Packet {
        let mut header = self.bundle(dest, importance).header(link);
        let len = self.packet.len().max(super::NAMED_HEADER_LEN);
        self.packet.resize(len, 0);
        header.write_over(&mut self.packet);
        Packet::built(self.packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ConnManager, ConnManagerKind};

    #[test]
    fn messages_come_out_as_they_went_in_and_the_packet_limit_holds() {
        let mut message = Vec::new();
        ConnManager { kind: ConnManagerKind::Probe, ..ConnManager::default() }
            .encode(&LinkFields::default(), &mut message);
        let mut builder = BundleBuilder::default();
        assert!(builder.try_push(&message, 120));
        assert!(builder.try_push(&message, 120));
        assert!(
            !builder.try_push(&message, 120),
            "the header of 40 bytes and two messages of 40 bytes fill the packet"
        );
        let bundle = builder.bundle(NodeAddr(1), 0);
        let items: Vec<_> = bundle.items().map(|v| v.unwrap().bytes().to_vec()).collect();
        assert_eq!(items, [message.clone(), message]);
        let (mut encoded, link) = (Vec::new(), LinkFields::default());
        bundle.encode(&link, &mut encoded);
        assert_eq!(builder.clone().into_packet(&link, NodeAddr(1), 0).bytes(), encoded);
    }

    #[test]
    fn a_bundle_inside_a_bundle_is_refused_and_ends_the_iteration() {
        let mut inner = Vec::new();
        BundleBuilder::default().bundle(NodeAddr(1), 0).encode(&LinkFields::default(), &mut inner);
        let bundle = Bundle { dest: NodeAddr(1), importance: 0, count: 9, body: &inner };
        assert_eq!(bundle.items().collect::<Vec<_>>(), [Err(WireError::User(6))]);
    }
}
