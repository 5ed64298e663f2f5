//! `MSG_FRAGMENTER`: a part of a message that is too large for one packet.

use super::frame::LinkFields;
use super::header::{HeaderWords, View, WireError};
use super::user::User;
use crate::addr::NodeAddr;
use alloc::vec::Vec;

/// Position of a fragment within its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FragmentKind {
    /// First fragment; begins with the message's own header.
    First,
    /// Neither the first nor the last fragment.
    Middle,
    /// Last fragment, which completes the message.
    Last,
}

/// A fragment of a message. All fragments of a message follow each other on the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment<'a> {
    /// Position within the message.
    pub kind: FragmentKind,
    /// Destination node; 0 on the broadcast link.
    pub dest: NodeAddr,
    /// Number of the fragment within the message, starting at 1.
    pub number: u16,
    /// Importance of the whole message.
    pub importance: u8,
    /// This fragment's part of the message.
    pub body: &'a [u8],
}

impl<'a> Fragment<'a> {
    /// Decodes a fragment.
    ///
    /// # Errors
    /// If the header is not 40 bytes long, the type does not exist, or there is no body.
    pub fn decode(view: &View<'a>) -> Result<Self, WireError> {
        view.check_header_len()?;
        let kind = match view.msg_type() {
            0 => FragmentKind::First,
            1 => FragmentKind::Middle,
            2 => FragmentKind::Last,
            t => return Err(WireError::Type(t as u8)),
        };
        if view.data().is_empty() {
            return Err(WireError::Size);
        }
        Ok(Self {
            kind,
            dest: NodeAddr(view.word(7)),
            number: view.bits(4, 16, 0xffff) as u16,
            importance: view.bits(9, 0, 7) as u8,
            body: view.data(),
        })
    }

    /// Appends the encoded fragment to `out`.
    pub fn encode(&self, link: &LinkFields, out: &mut Vec<u8>) {
        let msg_type = match self.kind {
            FragmentKind::First => 0,
            FragmentKind::Middle => 1,
            FragmentKind::Last => 2,
        };
        let mut h = HeaderWords::new(User::Fragmenter, msg_type, super::NAMED_HEADER_LEN);
        h.set(4, 16, 0xffff, self.number.into()).set(9, 0, 7, self.importance.into());
        h.set_word(6, link.sender.0).set_word(7, self.dest.0);
        link.write(&mut h);
        h.write(&[self.body], out);
    }
}
