//! The header of an encrypted frame.
//!
//! Word 0: version 7 (3 bits), user (4), destined (1), number of the key (2), number of the receiver's active key (2),
//! keepalive (1), master key (1), no key (1), reserved (17). Words 1 and 2: number of the frame. Then the sender's
//! address or, in discovery messages, its identity.

use crate::addr::{NodeAddr, NodeId};
use crate::wire::{User, View};
use arrayvec::ArrayVec;

/// Length of the header in bytes.
pub(super) const HEADER_LEN: usize = 16;
/// Length in bytes of the header of a discovery message.
const DISCOVERY_HEADER_LEN: usize = 28;

/// The version of encrypted frames.
const VERSION: u8 = 7;
/// User of discovery messages.
const DISCOVERY: u8 = 13;
/// User of link state messages.
const LINK_STATE: u8 = 7;

/// Who sent a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    /// A node in contact.
    Addr(NodeAddr),
    /// A node that announces itself.
    Id(NodeId),
}

/// The header of an encrypted frame, which is authenticated but not encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Whether the sender knew which node the frame is for.
    pub destined: bool,
    /// Number of the key, among the sender's: 0 is the master key.
    pub key: u8,
    /// Number of the receiver's key that the sender uses to decrypt, 0 for none; only if destined.
    pub active: u8,
    /// Whether this is a link state message, and whether it keeps the link alive.
    pub state: Option<bool>,
    /// Whether the sender has a master key.
    pub has_master: bool,
    /// Whether the sender lacks the receiver's key; only if destined.
    pub no_key: bool,
    /// Number of the frame, never used twice with the same key.
    pub number: u64,
    /// The node that sent the frame.
    pub sender: Sender,
}

impl Header {
    /// Whether a frame is encrypted, or at least says so.
    pub(super) fn is_of(frame: &[u8]) -> bool {
        frame.first().is_some_and(|first| first >> 5 == VERSION)
    }

    /// Reads a header. Returns it with its length, or `None` if the frame is too short or of another version.
    pub fn decode(frame: &[u8]) -> Option<(Self, usize)> {
        if !Self::is_of(frame) {
            return None;
        }
        let start: &[u8; HEADER_LEN] = frame.first_chunk()?;
        let user = start[0] >> 1 & 15;
        let (sender, len) = if user == DISCOVERY {
            let whole: &[u8; DISCOVERY_HEADER_LEN] = frame.first_chunk()?;
            let mut id = [0; 16];
            id.copy_from_slice(&whole[12..]);
            (Sender::Id(NodeId(id)), DISCOVERY_HEADER_LEN)
        } else {
            let addr = u32::from_be_bytes([start[12], start[13], start[14], start[15]]);
            (Sender::Addr(NodeAddr(addr)), HEADER_LEN)
        };
        let mut number = [0; 8];
        number.copy_from_slice(&start[4..12]);
        let bit = |n: u8| start[1] >> n & 1 != 0;
        let header = Self {
            destined: start[0] & 1 != 0,
            key: start[1] >> 6,
            active: start[1] >> 4 & 3,
            state: (user == LINK_STATE).then_some(bit(3)),
            has_master: bit(2),
            no_key: bit(1),
            number: u64::from_be_bytes(number),
            sender,
        };
        Some((header, len))
    }

    /// The header's bytes. Reserved bits are 0.
    pub fn encode(&self) -> ArrayVec<u8, DISCOVERY_HEADER_LEN> {
        let user = match (self.sender, self.state) {
            (Sender::Id(_), _) => DISCOVERY,
            (Sender::Addr(_), Some(_)) => LINK_STATE,
            (Sender::Addr(_), None) => 0,
        };
        let flag = |set: bool, n: u8| u8::from(set) << n;
        let keepalive = flag(self.state == Some(true), 3);
        let flags = keepalive | flag(self.has_master, 2) | flag(self.no_key, 1);
        let mut out = ArrayVec::new();
        out.push(VERSION << 5 | user << 1 | u8::from(self.destined));
        out.push((self.key & 3) << 6 | (self.active & 3) << 4 | flags);
        out.extend([0, 0]);
        out.extend(self.number.to_be_bytes());
        match self.sender {
            Sender::Addr(addr) => out.extend(addr.0.to_be_bytes()),
            Sender::Id(id) => out.extend(id.0),
        }
        out
    }

    /// The sender's address, or the first word of its identity.
    pub(super) const fn sender_word(&self) -> u32 {
        match self.sender {
            Sender::Addr(addr) => addr.0,
            Sender::Id(NodeId([a, b, c, d, ..])) => u32::from_be_bytes([a, b, c, d]),
        }
    }

    /// Whether the sender that the header names is the one that the decrypted message names.
    pub(super) fn matches(&self, message: &View<'_>) -> bool {
        match self.sender {
            Sender::Addr(addr) => {
                message.user() != Some(User::LinkConfig) && message.prev_node() == addr
            }
            Sender::Id(id) => {
                message.user() == Some(User::LinkConfig)
                    && message.data().get(..16) == Some(&id.0[..])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn headers_come_back_from_their_bytes_whatever_they_say() {
        for n in 0..1024_u32 {
            let (flag, two) = (|bit: u32| n >> bit & 1 != 0, |bit: u32| (n >> bit & 3) as u8);
            let id = flag(0);
            let sender = if id {
                Sender::Id(NodeId::from_text("node").unwrap())
            } else {
                Sender::Addr(NodeAddr(0x0a09_0001))
            };
            let header = Header {
                destined: flag(1),
                key: two(2),
                active: two(4),
                state: (!id && flag(6)).then_some(flag(7)),
                has_master: flag(8),
                no_key: flag(9),
                number: 1 << 63 | u64::from(n),
                sender,
            };
            let bytes = header.encode();
            assert_eq!(Header::decode(&bytes), Some((header, bytes.len())), "{n}");
            for short in 0..bytes.len() {
                assert_eq!(Header::decode(&bytes[..short]), None);
            }
        }
    }

    #[test]
    fn other_versions_are_not_encrypted() {
        for first in 0..=255_u8 {
            let frame: Vec<u8> = core::iter::repeat_n(first, 40).collect();
            assert_eq!(Header::decode(&frame).is_some(), first >> 5 == 7);
        }
    }
}
