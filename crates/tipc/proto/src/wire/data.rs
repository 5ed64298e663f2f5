//! Messages of applications: between connected sockets, to a port, to a service, to a range, or within a group.

use super::frame::LinkFields;
use super::header::{HeaderWords, View, WireError};
use super::user::{ErrorCode, User};
use crate::addr::{Importance, NodeAddr, Port, ServiceRange};
use crate::seq::Seq;
use alloc::vec::Vec;

/// Destination of a data message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataKind {
    /// The other end of a connection. Its node and the sender's are those of the link.
    Conn,
    /// A returned message of a connection. The node addresses were added to its header.
    ConnReturned {
        /// The node that returns the message.
        orig: NodeAddr,
        /// The node that sent the message originally.
        dest: NodeAddr,
    },
    /// One port, by its number.
    Direct {
        /// Node of the sending port.
        orig: NodeAddr,
        /// Node of the destination port.
        dest: NodeAddr,
    },
    /// One instance of a service, for which the sender has already chosen the port.
    Named {
        /// Node of the sending port.
        orig: NodeAddr,
        /// Node of the chosen port.
        dest: NodeAddr,
        /// Type of the service.
        service: u32,
        /// Instance of the service.
        instance: u32,
    },
    /// All bindings that overlap a range.
    Mcast {
        /// Node of the sending port.
        orig: NodeAddr,
        /// Destination node of a replicast copy, otherwise 0.
        dest: NodeAddr,
        /// The service range addressed by the sender.
        range: ServiceRange,
    },
    /// All members of a group, the members with one instance, or a single member.
    Group {
        /// Which members of the group the message is for.
        cast: GroupCast,
        /// Node of the sending member.
        orig: NodeAddr,
        /// Node of the destination member, or 0.
        dest: NodeAddr,
        /// Service type that identifies the group.
        group: u32,
        /// Instance of the addressed members, for a multicast.
        instance: u32,
        /// The number of this broadcast or multicast; in a unicast, the number of the sender's next broadcast.
        number: Seq,
        /// Whether this broadcast requests an acknowledgement.
        ack_required: bool,
    },
}

/// Which members a group message addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupCast {
    /// Every member of the group.
    Broadcast,
    /// The members with a given instance.
    Multicast,
    /// A single member, by its port.
    Unicast,
}

/// A message of an application, of any kind of socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataMessage<'a> {
    /// Importance set by the sender.
    pub importance: Importance,
    /// Whether the message is dropped instead of returned to the sender if it cannot be delivered.
    pub dest_droppable: bool,
    /// Bit 18 of the first word. Its meaning depends on the kind: a datagram may be dropped when a link is congested; a
    /// message on a connection requests an immediate acknowledgement; a multicast is a replicast copy.
    pub flag18: bool,
    /// Whether this is the first message of a connection, or the first one after a change of the multicast method.
    pub syn: bool,
    /// Why the message was returned; [`ErrorCode::Ok`] if it was not.
    pub error: ErrorCode,
    /// How many times the message has been forwarded to another binding.
    pub reroutes: u8,
    /// Scope of the lookup: 2 for the cluster, 3 for the node, 0 if the message has no lookup.
    pub lookup_scope: u8,
    /// Port of the sender.
    pub orig_port: Port,
    /// Port of the receiver; 0 for multicast.
    pub dest_port: Port,
    /// Kind of destination, with the rest of the address.
    pub kind: DataKind,
    /// The application's bytes. A returned message may contain only the first ones.
    pub payload: &'a [u8],
}

impl<'a> DataMessage<'a> {
    /// Decodes a data message.
    ///
    /// # Errors
    /// If the header length does not match the type, the type is never sent between nodes, or a field is illegal.
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

    /// Appends the encoded message to `out`.
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
