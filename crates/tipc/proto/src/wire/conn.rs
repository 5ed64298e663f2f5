//! `CONN_MANAGER`: flow control and supervision of connections.

use super::frame::LinkFields;
use super::header::{HeaderWords, View, WireError};
use super::user::{ErrorCode, User};
use crate::addr::SocketAddr;
use crate::addr::{NodeAddr, Port};
use alloc::vec::Vec;

/// Kind of a connection management message, with its fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ConnManagerKind {
    /// Queries whether the other end still exists.
    #[default]
    Probe,
    /// Answer to a probe.
    ProbeReply,
    /// Acknowledges blocks that have been read.
    Ack {
        /// Number of 1 KiB blocks read since the last acknowledgement.
        blocks: u16,
        /// New size of the window, in blocks.
        window: u16,
        /// Whether this answers a message that requested an immediate acknowledgement.
        nagle: bool,
    },
}

/// A connection management message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnManager {
    /// Kind of the message.
    pub kind: ConnManagerKind,
    /// Why the message was returned: the connection no longer exists. [`ErrorCode::Ok`] if it was not returned.
    pub error: ErrorCode,
    /// Socket at the sending end.
    pub orig: SocketAddr,
    /// Socket at the receiving end.
    pub dest: SocketAddr,
}

impl ConnManager {
    /// Decodes the message.
    ///
    /// # Errors
    /// If the header is not 40 bytes long, or the type or error code does not exist.
    pub fn decode(view: &View<'_>) -> Result<Self, WireError> {
        view.check_header_len()?;
        let kind = match view.msg_type() {
            0 => ConnManagerKind::Probe,
            1 => ConnManagerKind::ProbeReply,
            2 => ConnManagerKind::Ack {
                blocks: view.bits(9, 16, 0xffff) as u16,
                window: view.bits(9, 0, 0xffff) as u16,
                nagle: view.bit18(),
            },
            t => return Err(WireError::Type(t as u8)),
        };
        Ok(Self {
            kind,
            error: view.error_code().ok_or(WireError::Field("error code"))?,
            orig: SocketAddr { port: view.orig_port(), node: NodeAddr(view.word(6)) },
            dest: SocketAddr { port: Port(view.word(5)), node: NodeAddr(view.word(7)) },
        })
    }

    /// Appends the encoded message to `out`.
    pub fn encode(&self, link: &LinkFields, out: &mut Vec<u8>) {
        let msg_type = match self.kind {
            ConnManagerKind::Probe => 0,
            ConnManagerKind::ProbeReply => 1,
            ConnManagerKind::Ack { .. } => 2,
        };
        let mut h = HeaderWords::new(User::ConnManager, msg_type, super::NAMED_HEADER_LEN);
        h.set(1, 25, 15, self.error.number());
        h.set_word(4, self.orig.port.0).set_word(5, self.dest.port.0);
        h.set_word(6, self.orig.node.0).set_word(7, self.dest.node.0);
        if let ConnManagerKind::Ack { blocks, window, nagle } = self.kind {
            h.set(0, 18, 1, nagle.into()).set(9, 16, 0xffff, blocks.into()).set(
                9,
                0,
                0xffff,
                window.into(),
            );
        }
        link.write(&mut h);
        h.write(&[], out);
    }
}
