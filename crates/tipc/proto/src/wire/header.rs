//! The header's words: a checked view for reading, an array of words for writing.

use super::user::{ErrorCode, User};
use crate::addr::{NodeAddr, Port};
use crate::limits::WIRE_MESSAGE_LEN_MAX;
use crate::seq::Seq;
use alloc::vec::Vec;

/// Why octets are not a legal message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum WireError {
    /// Fewer octets than the header or the size field promises.
    Truncated,
    /// The version is not 2. 7 marks an encrypted message.
    Version(u8),
    /// Header length outside 24..=60 or not one that this user has.
    HeaderLen,
    /// Size field below the header length or beyond the largest message.
    Size,
    /// A user that never crosses a wire, or that is not spoken here.
    User(u8),
    /// A type that this user does not have.
    Type(u8),
    /// A field holds what no sender may put there; the name says which.
    Field(&'static str),
}

impl core::fmt::Display for WireError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Truncated => f.write_str("frame is shorter than its size field"),
            Self::Version(v) => write!(f, "version {v}, not 2"),
            Self::HeaderLen => f.write_str("header length not legal for this message"),
            Self::Size => f.write_str("size field not legal"),
            Self::User(u) => write!(f, "user {u} is not spoken"),
            Self::Type(t) => write!(f, "type {t} does not exist for this user"),
            Self::Field(name) => write!(f, "field {name} holds an illegal value"),
        }
    }
}

impl core::error::Error for WireError {}

const VERSION: u32 = 2;

/// Received octets that hold one whole message, cut to its size.
///
/// Words beyond the header read as 0, so every accessor is total; which of them mean something depends on user and type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View<'a> {
    bytes: &'a [u8],
    header_len: usize,
}

impl<'a> View<'a> {
    /// Checks what every message must satisfy. Octets after the message's size (padding of short Ethernet frames) are cut off.
    ///
    /// # Errors
    /// [`WireError`] says which rule is broken.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let first: [u8; 4] =
            bytes.get(..4).and_then(|b| b.try_into().ok()).ok_or(WireError::Truncated)?;
        let w0 = u32::from_be_bytes(first);
        if w0 >> 29 != VERSION {
            return Err(WireError::Version((w0 >> 29) as u8));
        }
        let header_len = (w0 >> 21 & 15) as usize * 4;
        let size = (w0 & 0x1_ffff) as usize;
        if header_len < super::SHORT_HEADER_LEN {
            return Err(WireError::HeaderLen);
        }
        if size < header_len || size > WIRE_MESSAGE_LEN_MAX {
            return Err(WireError::Size);
        }
        let bytes = bytes.get(..size).ok_or(WireError::Truncated)?;
        Ok(Self { bytes, header_len })
    }

    /// The whole message, header included.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Everything after the header.
    pub fn data(&self) -> &'a [u8] {
        &self.bytes[self.header_len..]
    }

    /// Header length in octets: 24 to 60.
    pub const fn header_len(&self) -> usize {
        self.header_len
    }

    /// Size of the whole message in octets.
    pub const fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Header word `n`; 0 when the header has no such word.
    pub fn word(&self, n: usize) -> u32 {
        match self.bytes[..self.header_len].chunks_exact(4).nth(n) {
            Some(c) => u32::from_be_bytes([c[0], c[1], c[2], c[3]]),
            None => 0,
        }
    }

    /// Bits of word `n`, moved down by `shift` and masked.
    pub fn bits(&self, n: usize, shift: u32, mask: u32) -> u32 {
        self.word(n) >> shift & mask
    }

    /// The user, when it is one that may cross a wire.
    pub fn user(&self) -> Option<User> {
        User::from_number(self.bits(0, 25, 15))
    }

    /// The user's number.
    pub fn user_number(&self) -> u8 {
        self.bits(0, 25, 15) as u8
    }

    /// Sent on the broadcast link, or discovery: carries no unicast sequence number.
    pub fn is_non_seq(&self) -> bool {
        self.bits(0, 20, 1) != 0
    }

    /// Bit 19 of word 0: "destination droppable" of data, "keepalive" of STATE.
    pub fn bit19(&self) -> bool {
        self.bits(0, 19, 1) != 0
    }

    /// Bit 18 of word 0: "source droppable", "acknowledgement required", "Nagle acknowledgement" or "replicast".
    pub fn bit18(&self) -> bool {
        self.bits(0, 18, 1) != 0
    }

    /// Bit 17 of word 0: first message of a connection, or of a multicast method.
    pub fn is_syn(&self) -> bool {
        self.bits(0, 17, 1) != 0
    }

    /// Message type, 0 to 7; its meaning depends on the user.
    pub fn msg_type(&self) -> u32 {
        self.bits(1, 29, 7)
    }

    /// Error code of data and connection messages.
    pub fn error_code(&self) -> Option<ErrorCode> {
        ErrorCode::from_number(self.bits(1, 25, 15))
    }

    /// Acknowledges the addressee's broadcasts up to and including this number.
    pub fn bcast_ack(&self) -> Seq {
        Seq(self.bits(1, 0, 0xffff) as u16)
    }

    /// Acknowledges the addressee's unicast packets up to and including this number.
    pub fn ack(&self) -> Seq {
        Seq(self.bits(2, 16, 0xffff) as u16)
    }

    /// The packet's own sequence number.
    pub fn seq(&self) -> Seq {
        Seq(self.bits(2, 0, 0xffff) as u16)
    }

    /// The node that sent this packet.
    pub fn prev_node(&self) -> NodeAddr {
        NodeAddr(self.word(3))
    }

    /// The sending port.
    pub fn orig_port(&self) -> Port {
        Port(self.word(4))
    }

    /// The receiving port (not of broadcasts: there the word holds the network id).
    pub fn dest_port(&self) -> Port {
        Port(self.word(5))
    }

    /// The node where the message began: word 6, or the sender when the header is short.
    pub fn orig_node(&self) -> NodeAddr {
        if self.header_len > super::SHORT_HEADER_LEN {
            NodeAddr(self.word(6))
        } else {
            self.prev_node()
        }
    }

    /// The node the message is for; `None` when the header is short and the link implies it.
    pub fn dest_node(&self) -> Option<NodeAddr> {
        (self.header_len > super::SHORT_HEADER_LEN).then(|| NodeAddr(self.word(7)))
    }
}

/// A header under construction: words that are still 0 and setters that keep every field inside its bits.
#[derive(Clone, Debug)]
pub struct HeaderWords {
    words: [u32; 15],
    count: usize,
}

impl HeaderWords {
    /// A header of `header_len` octets (24 to 60) for this user and type.
    pub fn new(user: User, msg_type: u32, header_len: usize) -> Self {
        let count = (header_len / 4).clamp(6, 15);
        let mut header = Self { words: [0; 15], count };
        header.set(0, 29, 7, VERSION);
        header.set(0, 25, 15, user.number());
        header.set(0, 21, 15, count as u32);
        header.set(1, 29, 7, msg_type);
        header
    }

    /// Replaces the bits `mask << shift` of word `n`.
    pub fn set(&mut self, n: usize, shift: u32, mask: u32, value: u32) -> &mut Self {
        let word = &mut self.words[n];
        *word = *word & !(mask << shift) | (value & mask) << shift;
        self
    }

    /// Replaces a whole word.
    pub fn set_word(&mut self, n: usize, value: u32) -> &mut Self {
        self.words[n] = value;
        self
    }

    /// Writes the header over the beginning of a packet whose body is there already. Shorter input than the header is left alone.
    pub fn write_over(&mut self, packet: &mut [u8]) {
        self.set(0, 0, 0x1_ffff, packet.len() as u32);
        if packet.len() >= self.count * 4 {
            for (octets, word) in packet.chunks_exact_mut(4).zip(&self.words[..self.count]) {
                octets.copy_from_slice(&word.to_be_bytes());
            }
        }
    }

    /// Appends header and body to `out`, with the size field filled in.
    pub fn write(&mut self, body: &[&[u8]], out: &mut Vec<u8>) {
        let size = self.count * 4 + body.iter().map(|b| b.len()).sum::<usize>();
        self.set(0, 0, 0x1_ffff, size as u32);
        out.reserve(size);
        for word in &self.words[..self.count] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        for part in body {
            out.extend_from_slice(part);
        }
    }
}
