//! Whole frames: a message of any kind, together with the link's own fields.

use super::{
    BcastInit, Bundle, ConnManager, DataMessage, Discovery, Fragment, GroupProtocol, HeaderWords,
    KeyMessage, LinkProtocol, NameMessage, Tunnel, User, View, WireError,
};
use crate::addr::{NetworkId, NodeAddr};
use crate::seq::Seq;
use alloc::vec::Vec;

/// The fields that a link adds to a message: sender, sequence number and acknowledgements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkFields {
    /// The node that sent the frame. For a broadcast, this is also the node of origin.
    pub sender: NodeAddr,
    /// Sequence number on the unicast link, or on the broadcast link if `broadcast` is set.
    pub seq: Seq,
    /// Last unicast packet received in sequence from the destination.
    pub ack: Seq,
    /// Last broadcast received in sequence from the destination.
    pub bcast_ack: Seq,
    /// Network ID in a packet of the broadcast link; `None` in any other packet.
    pub broadcast: Option<NetworkId>,
}

impl LinkFields {
    /// Reads the fields from a sequenced packet.
    pub fn of(view: &View<'_>) -> Self {
        Self {
            sender: view.prev_node(),
            seq: view.seq(),
            ack: view.ack(),
            bcast_ack: view.bcast_ack(),
            broadcast: view.is_non_seq().then(|| NetworkId(view.word(5))),
        }
    }

    pub(super) fn write(&self, h: &mut HeaderWords) {
        h.set(1, 0, 0xffff, self.bcast_ack.0.into());
        h.set(2, 16, 0xffff, self.ack.0.into()).set(2, 0, 0xffff, self.seq.0.into());
        h.set_word(3, self.sender.0);
        if let Some(network) = self.broadcast {
            h.set(0, 20, 1, 1).set_word(5, network.0);
        }
    }
}

/// Sets the sequence number and the sender when a link sends a finished packet for the first time. Does nothing if the input
/// is shorter than a header.
pub(super) fn set_sequence(packet: &mut [u8], sender: NodeAddr, seq: Seq) {
    if packet.len() >= super::SHORT_HEADER_LEN {
        packet[10..12].copy_from_slice(&seq.0.to_be_bytes());
        packet[12..16].copy_from_slice(&sender.0.to_be_bytes());
    }
}

/// Updates the acknowledgements in a packet that is about to be sent or retransmitted. Does nothing if the input is shorter
/// than a header.
pub(crate) fn refresh_link_fields(packet: &mut [u8], ack: Seq, bcast_ack: Seq) {
    if packet.len() >= super::SHORT_HEADER_LEN {
        packet[6..8].copy_from_slice(&bcast_ack.0.to_be_bytes());
        packet[8..10].copy_from_slice(&ack.0.to_be_bytes());
    }
}

/// Any message with a sequence number, on a unicast link or on the broadcast link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// A message of an application.
    Data(DataMessage<'a>),
    /// Opens the broadcast receive link.
    BcastInit(BcastInit),
    /// Several messages in one packet.
    Bundle(Bundle<'a>),
    /// Acknowledges data of a connection or probes it.
    Conn(ConnManager),
    /// Group membership and flow control.
    Group(GroupProtocol),
    /// Synchronises this link with another link to the same peer, or carries packets of that link.
    Tunnel(Tunnel<'a>),
    /// Bindings of the sending node that are new or have been withdrawn.
    Names(NameMessage<'a>),
    /// Part of a large message.
    Fragment(Fragment<'a>),
    /// A key of the sending node.
    Key(KeyMessage),
}

impl<'a> Message<'a> {
    /// Decodes a message that is neither discovery nor link protocol.
    ///
    /// # Errors
    /// [`WireError`] says which rule the input violates.
    pub fn decode(view: &View<'a>) -> Result<Self, WireError> {
        Ok(match view.user() {
            Some(User::Data(importance)) => Self::Data(DataMessage::decode(view, importance)?),
            Some(User::BcastProtocol) => Self::BcastInit(BcastInit::decode(view)?),
            Some(User::Bundler) => Self::Bundle(Bundle::decode(view)?),
            Some(User::ConnManager) => Self::Conn(ConnManager::decode(view)?),
            Some(User::GroupProtocol) => Self::Group(GroupProtocol::decode(view)?),
            Some(User::Tunnel) => Self::Tunnel(Tunnel::decode(view)?),
            Some(User::NameDistributor) => Self::Names(NameMessage::decode(view)?),
            Some(User::Fragmenter) => Self::Fragment(Fragment::decode(view)?),
            Some(User::Crypto) => Self::Key(KeyMessage::decode(view)?),
            Some(User::LinkProtocol | User::LinkConfig) | None => {
                return Err(WireError::User(view.user_number()));
            }
        })
    }

    /// Appends the message, with the given link fields, to `out`.
    pub fn encode(&self, link: &LinkFields, out: &mut Vec<u8>) {
        match self {
            Self::Data(m) => m.encode(link, out),
            Self::BcastInit(m) => m.encode(link, out),
            Self::Bundle(m) => m.encode(link, out),
            Self::Conn(m) => m.encode(link, out),
            Self::Group(m) => m.encode(link, out),
            Self::Tunnel(m) => m.encode(link, out),
            Self::Names(m) => m.encode(link, out),
            Self::Fragment(m) => m.encode(link, out),
            Self::Key(m) => m.encode(link, out),
        }
    }
}

/// A complete frame as carried by a bearer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// A message of neighbour discovery, outside of any link.
    Discovery(Discovery),
    /// Link setup and supervision.
    Link(LinkProtocol<'a>),
    /// Any message with a sequence number.
    Sequenced(LinkFields, Message<'a>),
}

impl<'a> Frame<'a> {
    /// Decodes a frame.
    ///
    /// # Errors
    /// [`WireError`] says which rule the input violates.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let view = View::parse(bytes)?;
        Ok(match view.user() {
            Some(User::LinkConfig) => Self::Discovery(Discovery::decode(&view)?),
            Some(User::LinkProtocol) => Self::Link(LinkProtocol::decode(&view)?),
            _ => Self::Sequenced(LinkFields::of(&view), Message::decode(&view)?),
        })
    }

    /// Appends the encoded frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Discovery(m) => m.encode(out),
            Self::Link(m) => m.encode(out),
            Self::Sequenced(link, m) => m.encode(link, out),
        }
    }
}
