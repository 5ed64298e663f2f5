//! `BCAST_PROTOCOL`: the first sequenced packet after a link has come up. It informs the peer which broadcast to expect
//! next.

use super::frame::LinkFields;
use super::header::{HeaderWords, View, WireError};
use super::user::User;
use crate::addr::NodeAddr;
use crate::seq::Seq;
use alloc::vec::Vec;

/// Opens the broadcast receive link at the destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BcastInit {
    /// The node to which the message is sent.
    pub dest: NodeAddr,
    /// Last broadcast sent so far. The destination expects the next one.
    pub last_bcast: Seq,
    /// Whether the broadcast acknowledgement in this packet is not valid yet.
    pub bcast_ack_invalid: bool,
}

impl BcastInit {
    /// Decodes the message. The older negative acknowledgement, which has the same user, is refused: peers that report
    /// gaps in STATE messages never send it.
    ///
    /// # Errors
    /// If the header is not 40 bytes long or the type is not STATE.
    pub fn decode(view: &View<'_>) -> Result<Self, WireError> {
        view.check_header_len()?;
        if view.msg_type() != 0 {
            return Err(WireError::Type(view.msg_type() as u8));
        }
        Ok(Self {
            dest: NodeAddr(view.word(7)),
            last_bcast: Seq(view.bits(4, 16, 0xffff) as u16),
            bcast_ack_invalid: view.bits(5, 14, 1) != 0,
        })
    }

    /// Appends the encoded message to `out`.
    pub fn encode(&self, link: &LinkFields, out: &mut Vec<u8>) {
        let mut h = HeaderWords::new(User::BcastProtocol, 0, super::NAMED_HEADER_LEN);
        h.set(4, 16, 0xffff, self.last_bcast.0.into()).set(5, 14, 1, self.bcast_ack_invalid.into());
        h.set_word(6, link.sender.0).set_word(7, self.dest.0);
        link.write(&mut h);
        h.write(&[], out);
    }
}
