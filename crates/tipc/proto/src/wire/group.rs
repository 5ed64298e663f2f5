//! `GROUP_PROTOCOL`: membership and flow control of communication groups.

use super::frame::LinkFields;
use super::header::{HeaderWords, View, WireError};
use super::user::User;
use crate::addr::{NodeAddr, Port, SocketAddr};
use crate::seq::Seq;
use alloc::vec::Vec;

/// Kind of a group protocol message, with its fields. Windows are counted in blocks of 1 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupProtocolKind {
    /// Announces the sender as a member.
    Join {
        /// Number of the sender's next broadcast.
        sync: Seq,
        /// Window granted, in blocks.
        window: u16,
    },
    /// Announces that the sender leaves the group.
    Leave {
        /// The number after that of the sender's last broadcast in this group.
        sync: Seq,
    },
    /// Grants the receiver of this message more blocks to send to the member that sent it.
    Advertise {
        /// Number of additional blocks granted.
        window: u16,
    },
    /// Acknowledges broadcasts that the receiver of this message sent to the group.
    Ack {
        /// Number of the next expected broadcast.
        next: Seq,
    },
    /// Requests a member to return its unused window.
    Reclaim,
    /// Returns the unused part of a window, as [`Self::Reclaim`] requested.
    Remit {
        /// Number of blocks returned.
        window: u16,
    },
}

/// A message between two members of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupProtocol {
    /// Kind of the message.
    pub kind: GroupProtocolKind,
    /// Socket of the sending member.
    pub orig: SocketAddr,
    /// Socket of the receiving member.
    pub dest: SocketAddr,
}

impl GroupProtocol {
    /// Decodes the message.
    ///
    /// # Errors
    /// If the header is not 40 bytes long or the type does not exist.
    pub fn decode(view: &View<'_>) -> Result<Self, WireError> {
        view.check_header_len()?;
        let (high, low) = (view.bits(9, 16, 0xffff) as u16, view.bits(9, 0, 0xffff) as u16);
        let kind = match view.msg_type() {
            0 => GroupProtocolKind::Join { sync: Seq(high), window: low },
            1 => GroupProtocolKind::Leave { sync: Seq(high) },
            2 => GroupProtocolKind::Advertise { window: low },
            3 => GroupProtocolKind::Ack { next: Seq(high) },
            4 => GroupProtocolKind::Reclaim,
            5 => GroupProtocolKind::Remit { window: high },
            t => return Err(WireError::Type(t as u8)),
        };
        Ok(Self {
            kind,
            orig: SocketAddr { port: view.orig_port(), node: NodeAddr(view.word(6)) },
            dest: SocketAddr { port: Port(view.word(5)), node: NodeAddr(view.word(7)) },
        })
    }

    /// Appends the encoded message to `out`.
    pub fn encode(&self, link: &LinkFields, out: &mut Vec<u8>) {
        let (msg_type, high, low) = match self.kind {
            GroupProtocolKind::Join { sync, window } => (0, sync.0, window),
            GroupProtocolKind::Leave { sync } => (1, sync.0, 0),
            GroupProtocolKind::Advertise { window } => (2, 0, window),
            GroupProtocolKind::Ack { next } => (3, next.0, 0),
            GroupProtocolKind::Reclaim => (4, 0, 0),
            GroupProtocolKind::Remit { window } => (5, window, 0),
        };
        let mut h = HeaderWords::new(User::GroupProtocol, msg_type, super::NAMED_HEADER_LEN);
        // Never returned to the sender: it learns of a member's end from the withdrawn binding.
        h.set(0, 19, 1, 1);
        h.set_word(4, self.orig.port.0).set_word(5, self.dest.port.0);
        h.set_word(6, self.orig.node.0).set_word(7, self.dest.node.0);
        h.set(9, 16, 0xffff, high.into()).set(9, 0, 0xffff, low.into());
        link.write(&mut h);
        h.write(&[], out);
    }
}
