//! Application data: between connected sockets, to a port, to a service, to a range, within a group.

use super::frame::LinkFields;
use super::header::{HeaderWords, View, WireError};
use super::user::{ErrorCode, User};
use crate::addr::{Importance, NodeAddr, Port, ServiceRange};
use crate::seq::Seq;
use alloc::vec::Vec;

/// What a data message is addressed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataKind {
    /// The other end of a connection; the link implies the nodes.
    Conn,
    /// A connection's message on its way back: the header grew by the nodes.
    ConnReturned {
        /// The node that returns it.
        orig: NodeAddr,
        /// The node that sent it.
        dest: NodeAddr,
    },
    /// One port.
    Direct {
        /// Node of the sender.
        orig: NodeAddr,
        /// Node of the port.
        dest: NodeAddr,
    },
    /// One instance of a service; the sender already chose the port.
    Named {
        /// Node of the sender.
        orig: NodeAddr,
        /// Node of the chosen port.
        dest: NodeAddr,
        /// Service type.
        service: u32,
        /// Instance.
        instance: u32,
    },
    /// Every binding that overlaps a range.
    Mcast {
        /// Node of the sender.
        orig: NodeAddr,
        /// The node it is for when it is replicast, else 0.
        dest: NodeAddr,
        /// The range as sent.
        range: ServiceRange,
    },
    /// All members of a group, those of one instance, or one of them.
    Group {
        /// Which of the three.
        cast: GroupCast,
        /// Node of the sender.
        orig: NodeAddr,
        /// Node of the member, or 0.
        dest: NodeAddr,
        /// Group type.
        group: u32,
        /// Member instance.
        instance: u32,
        /// The sender's broadcast number (for unicast: of its next broadcast).
        number: Seq,
        /// "Acknowledge this broadcast."
        ack_required: bool,
    },
}

/// Reach of a group message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupCast {
    /// All members.
    Broadcast,
    /// The members of one instance.
    Multicast,
    /// One member.
    Unicast,
}

/// A data message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataMessage<'a> {
    /// Its importance.
    pub importance: Importance,
    /// Never returned to the sender.
    pub dest_droppable: bool,
    /// Bit 18: the sender may drop it (datagrams), wants an acknowledgement at once (connections), or it is replicast (multicast).
    pub flag18: bool,
    /// First message of a connection, or of a multicast method.
    pub syn: bool,
    /// Why it came back.
    pub error: ErrorCode,
    /// How often it was forwarded to another binding.
    pub reroutes: u8,
    /// Lookup scope: 2 cluster, 3 node, 0 where none applies.
    pub lookup_scope: u8,
    /// The sending port.
    pub orig_port: Port,
    /// The receiving port; 0 for multicast.
    pub dest_port: Port,
    /// The rest of the address.
    pub kind: DataKind,
    /// What the application sent.
    pub payload: &'a [u8],
}

impl<'a> DataMessage<'a> {
    /// Reads a data message.
    ///
    /// # Errors
    /// When the header has not the length of its type, the type does not cross wires, or a field is illegal.
    pub fn decode(view: &View<'a>, importance: Importance) -> Result<Self, WireError> {
        let (orig, dest) = (NodeAddr(view.word(6)), NodeAddr(view.word(7)));
        let group = |cast| DataKind::Group {
            cast,
            orig,
            dest,
            group: view.word(8),
            instance: view.word(9),
            number: Seq(view.bits(10, 16, 0xffff) as u16),
            ack_required: view.bits(10, 0, 1) != 0,
        };
        let kind = match (view.msg_type(), view.header_len()) {
            (0, super::SHORT_HEADER_LEN) => DataKind::Conn,
            (0, super::BASIC_HEADER_LEN) => DataKind::ConnReturned { orig, dest },
            (1, super::MCAST_HEADER_LEN) => {
                let range = ServiceRange {
                    service: view.word(8),
                    lower: view.word(9),
                    upper: view.word(10),
                };
                if !range.is_valid() {
                    return Err(WireError::Field("service range"));
                }
                DataKind::Mcast { orig, dest, range }
            }
            (2, super::NAMED_HEADER_LEN) => {
                DataKind::Named { orig, dest, service: view.word(8), instance: view.word(9) }
            }
            (3, super::BASIC_HEADER_LEN) => DataKind::Direct { orig, dest },
            (5, super::MCAST_HEADER_LEN) => group(GroupCast::Broadcast),
            (6, super::MCAST_HEADER_LEN) => group(GroupCast::Multicast),
            (7, super::MCAST_HEADER_LEN) => group(GroupCast::Unicast),
            (4, _) => return Err(WireError::Type(4)),
            _ => return Err(WireError::HeaderLen),
        };
        Ok(Self {
            importance,
            dest_droppable: view.bit19(),
            flag18: view.bit18(),
            syn: view.is_syn(),
            error: view.error_code().ok_or(WireError::Field("error code"))?,
            reroutes: view.bits(1, 21, 15) as u8,
            lookup_scope: view.bits(1, 19, 3) as u8,
            orig_port: view.orig_port(),
            dest_port: if view.is_non_seq() { Port(0) } else { view.dest_port() },
            kind,
            payload: view.data(),
        })
    }

    /// Appends the message to `out`.
    pub fn encode(&self, link: &LinkFields, out: &mut Vec<u8>) {
        let (msg_type, header_len) = match self.kind {
            DataKind::Conn => (0, super::SHORT_HEADER_LEN),
            DataKind::ConnReturned { .. } => (0, super::BASIC_HEADER_LEN),
            DataKind::Mcast { .. } => (1, super::MCAST_HEADER_LEN),
            DataKind::Named { .. } => (2, super::NAMED_HEADER_LEN),
            DataKind::Direct { .. } => (3, super::BASIC_HEADER_LEN),
            DataKind::Group { cast: GroupCast::Broadcast, .. } => (5, super::MCAST_HEADER_LEN),
            DataKind::Group { cast: GroupCast::Multicast, .. } => (6, super::MCAST_HEADER_LEN),
            DataKind::Group { cast: GroupCast::Unicast, .. } => (7, super::MCAST_HEADER_LEN),
        };
        let mut h = HeaderWords::new(User::Data(self.importance), msg_type, header_len);
        h.set(0, 19, 1, self.dest_droppable.into()).set(0, 18, 1, self.flag18.into()).set(
            0,
            17,
            1,
            self.syn.into(),
        );
        h.set(1, 25, 15, self.error.number()).set(1, 21, 15, self.reroutes.into());
        h.set(1, 19, 3, self.lookup_scope.into());
        h.set_word(4, self.orig_port.0).set_word(5, self.dest_port.0);
        match self.kind {
            DataKind::Conn => {}
            DataKind::ConnReturned { orig, dest } | DataKind::Direct { orig, dest } => {
                h.set_word(6, orig.0).set_word(7, dest.0);
            }
            DataKind::Named { orig, dest, service, instance } => {
                h.set_word(6, orig.0)
                    .set_word(7, dest.0)
                    .set_word(8, service)
                    .set_word(9, instance);
            }
            DataKind::Mcast { orig, dest, range } => {
                h.set_word(6, orig.0).set_word(7, dest.0);
                h.set_word(8, range.service).set_word(9, range.lower).set_word(10, range.upper);
            }
            DataKind::Group { orig, dest, group, instance, number, ack_required, .. } => {
                h.set_word(6, orig.0).set_word(7, dest.0).set_word(8, group).set_word(9, instance);
                h.set(10, 16, 0xffff, number.0.into()).set(10, 0, 1, ack_required.into());
            }
        }
        link.write(&mut h);
        h.write(&[self.payload], out);
    }
}
