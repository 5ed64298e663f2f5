//! `NAME_DISTRIBUTOR`: distribution of bindings to the other nodes.

use super::frame::LinkFields;
use super::header::{HeaderWords, View, WireError};
use super::user::User;
use crate::addr::{NodeAddr, Port, ServiceRange};
use crate::seq::Seq;
use alloc::vec::Vec;

/// A binding as a name message contains it: a range, the bound port, and a key that distinguishes two bindings of that
/// port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct NameItem {
    /// Range of the binding.
    pub range: ServiceRange,
    /// The bound port, on the node that distributes the binding; 0 if the binding represents the state of a node.
    pub port: Port,
    /// Number that is unique among the node's bindings.
    pub key: u32,
}

impl NameItem {
    /// Length of an item, in bytes.
    pub const LEN: usize = 20;

    /// Appends the encoded item to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let words = [self.range.service, self.range.lower, self.range.upper, self.port.0, self.key];
        for word in words {
            out.extend_from_slice(&word.to_be_bytes());
        }
    }
}

/// How a name message fits into the sequence of its node's updates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameSeries {
    /// Part of the bulk: the bindings that a node sends to a new neighbour. Applied immediately.
    Bulk {
        /// Whether this is the last part of the bulk. If so, the message's number is the number of the first update
        /// that follows the bulk.
        last: bool,
    },
    /// A numbered update, applied in order.
    Update,
    /// An update from a node without [`NAMED_BCAST`](super::Capabilities::NAMED_BCAST); applied immediately.
    Legacy,
}

/// A message that publishes or withdraws bindings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameMessage<'a> {
    /// Whether the bindings are withdrawn (`true`) or published.
    pub withdrawal: bool,
    /// Where the message belongs in the sequence of its node's updates.
    pub series: NameSeries,
    /// Number of the update; [`NameSeries`] says when it is used.
    pub number: Seq,
    /// The node that owns the bindings.
    pub owner: NodeAddr,
    /// Destination node; 0 on the broadcast link.
    pub dest: NodeAddr,
    /// Whether the broadcast acknowledgement in this packet is not valid yet.
    pub bcast_ack_invalid: bool,
    /// The encoded items. The length is a multiple of [`NameItem::LEN`].
    pub body: &'a [u8],
}

impl<'a> NameMessage<'a> {
    /// Decodes a name message. Trailing bytes that do not form a whole item are cut off, as in the
    /// kernel.
    ///
    /// # Errors
    /// If the header is not 40 bytes long or the type does not exist.
    pub fn decode(view: &View<'a>) -> Result<Self, WireError> {
        view.check_header_len()?;
        let withdrawal = match view.msg_type() {
            0 => false,
            1 => true,
            t => return Err(WireError::Type(t as u8)),
        };
        let (bulk, last, modern) = (view.bits(1, 28, 1), view.bits(1, 27, 1), view.bits(1, 26, 1));
        let series = match (bulk, modern) {
            (1, _) => NameSeries::Bulk { last: last == 1 },
            (_, 1) => NameSeries::Update,
            _ => NameSeries::Legacy,
        };
        let whole = view.data().len() / NameItem::LEN * NameItem::LEN;
        Ok(Self {
            withdrawal,
            series,
            number: Seq(view.bits(4, 0, 0xffff) as u16),
            owner: NodeAddr(view.word(6)),
            dest: NodeAddr(view.word(7)),
            bcast_ack_invalid: !view.is_non_seq() && view.bits(5, 14, 1) != 0,
            body: &view.data()[..whole],
        })
    }

    /// Appends the encoded message to `out`.
    pub fn encode(&self, link: &LinkFields, out: &mut Vec<u8>) {
        let (bulk, last, modern) = match self.series {
            NameSeries::Bulk { last } => (1, u32::from(last), 1),
            NameSeries::Update => (0, 0, 1),
            NameSeries::Legacy => (0, 0, 0),
        };
        let mut h = HeaderWords::new(
            User::NameDistributor,
            self.withdrawal.into(),
            super::NAMED_HEADER_LEN,
        );
        h.set(1, 28, 1, bulk).set(1, 27, 1, last).set(1, 26, 1, modern);
        h.set(4, 0, 0xffff, self.number.0.into()).set(5, 14, 1, self.bcast_ack_invalid.into());
        h.set_word(6, self.owner.0).set_word(7, self.dest.0);
        link.write(&mut h);
        h.write(&[self.body], out);
    }

    /// Iterates over the bindings.
    pub fn items(&self) -> NameItems<'a> {
        NameItems { rest: self.body }
    }
}

/// Iterator over the items of a name message.
#[derive(Clone, Debug)]
pub struct NameItems<'a> {
    rest: &'a [u8],
}

impl Iterator for NameItems<'_> {
    type Item = NameItem;

    fn next(&mut self) -> Option<NameItem> {
        let (item, rest) = self.rest.split_at_checked(NameItem::LEN)?;
        self.rest = rest;
        let word = |n: usize| {
            u32::from_be_bytes([item[4 * n], item[4 * n + 1], item[4 * n + 2], item[4 * n + 3]])
        };
        let range = ServiceRange { service: word(0), lower: word(1), upper: word(2) };
        Some(NameItem { range, port: Port(word(3)), key: word(4) })
    }
}
