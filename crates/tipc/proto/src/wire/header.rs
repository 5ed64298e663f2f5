//! Header words: a checked view to read them, and an array to write them.

use super::user::{ErrorCode, User};
use crate::addr::{NodeAddr, Port};
use crate::limits::WIRE_MESSAGE_LEN_MAX;
use crate::seq::Seq;
use alloc::vec::Vec;

/// Why the input is not a legal message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum WireError {
    /// The input is shorter than the header, or than the size field says.
    Truncated,
    /// The version is not 2. Version 7 indicates an encrypted message.
    Version(u8),
    /// The header length is outside 24..=60 or not allowed for this user.
    HeaderLen,
    /// The size field is below the header length or above the largest message.
    Size,
    /// A user that is never sent between nodes, or that is not supported.
    User(u8),
    /// A message type that this user does not have.
    Type(u8),
    /// The named field holds an illegal value.
    Field(&'static str),
}

impl core::fmt::Display for WireError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Truncated => f.write_str("frame is shorter than its size field says"),
            Self::Version(v) => write!(f, "protocol version {v} is not supported (expected 2)"),
            Self::HeaderLen => f.write_str("illegal header length for this message"),
            Self::Size => f.write_str("illegal value in the size field"),
            Self::User(u) => write!(f, "message user {u} is not supported"),
            Self::Type(t) => write!(f, "message type {t} does not exist for this message user"),
            Self::Field(name) => write!(f, "field {name} holds an illegal value"),
        }
    }
}

impl core::error::Error for WireError {}

const VERSION: u32 = 2;

/// A received message, checked and cut to its size.
///
/// Words beyond the header read as 0, so no accessor can fail. Which words have a meaning depends on the message's user
/// and type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View<'a> {
    bytes: &'a [u8],
    header_len: usize,
}

impl<'a> View<'a> {
    /// Checks the rules common to all messages. Bytes after the end of the message (padding of short Ethernet frames) are cut
    /// off.
    ///
    /// # Errors
    /// [`WireError`] says which rule the input violates.
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

    /// A view of bytes that [`View::parse`] has accepted, cut to the message's size.
    pub(super) fn of_checked(bytes: &'a [u8]) -> Self {
        let header_len = usize::from(bytes[0] & 1) << 5 | usize::from(bytes[1] >> 5) << 2;
        Self { bytes, header_len }
    }

    /// The whole message, header included.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The message body: everything after the header.
    pub fn data(&self) -> &'a [u8] {
        &self.bytes[self.header_len..]
    }

    /// Header length in bytes: 24 to 60.
    pub const fn header_len(&self) -> usize {
        self.header_len
    }

    /// Checks that the header is as long as that of nearly all messages of the protocol itself.
    ///
    /// # Errors
    /// [`WireError::HeaderLen`] if it has another length than [`NAMED_HEADER_LEN`](super::NAMED_HEADER_LEN).
    pub(super) const fn check_header_len(&self) -> Result<(), WireError> {
        if self.header_len == super::NAMED_HEADER_LEN { Ok(()) } else { Err(WireError::HeaderLen) }
    }

    /// Size of the whole message in bytes.
    pub const fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Header word `n`, or 0 if the header has no such word.
    pub fn word(&self, n: usize) -> u32 {
        match self.bytes[..self.header_len].chunks_exact(4).nth(n) {
            Some(c) => u32::from_be_bytes([c[0], c[1], c[2], c[3]]),
            None => 0,
        }
    }

    /// The field `mask << shift` of word `n`, as a number.
    pub fn bits(&self, n: usize, shift: u32, mask: u32) -> u32 {
        self.word(n) >> shift & mask
    }

    /// The user, or `None` if it is never sent between nodes.
    pub fn user(&self) -> Option<User> {
        User::from_number(self.bits(0, 25, 15))
    }

    /// The user's number on the wire.
    pub fn user_number(&self) -> u8 {
        self.bits(0, 25, 15) as u8
    }

    /// Whether the message is a broadcast or discovery and so has no unicast sequence number.
    pub fn is_non_seq(&self) -> bool {
        self.bits(0, 20, 1) != 0
    }

    /// Bit 19 of word 0: "destination droppable" in data, "keepalive" in STATE.
    pub fn bit19(&self) -> bool {
        self.bits(0, 19, 1) != 0
    }

    /// Bit 18 of word 0: "source droppable", "acknowledgement required", "Nagle acknowledgement" or "replicast".
    pub fn bit18(&self) -> bool {
        self.bits(0, 18, 1) != 0
    }

    /// Bit 17 of word 0: set in the first message of a connection, and in the first one after a change of the multicast
    /// method.
    pub fn is_syn(&self) -> bool {
        self.bits(0, 17, 1) != 0
    }

    /// Message type, 0 to 7; its meaning depends on the user.
    pub fn msg_type(&self) -> u32 {
        self.bits(1, 29, 7)
    }

    /// Error code of data and connection messages; `None` if it is unknown.
    pub fn error_code(&self) -> Option<ErrorCode> {
        ErrorCode::from_number(self.bits(1, 25, 15))
    }

    /// The acknowledgement of the destination's broadcasts: all up to and including this number have been received.
    pub fn bcast_ack(&self) -> Seq {
        Seq(self.bits(1, 0, 0xffff) as u16)
    }

    /// The acknowledgement of the destination's unicast packets: all up to and including this number have been
    /// received.
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

    /// The port that sent the message (word 4).
    pub fn orig_port(&self) -> Port {
        Port(self.word(4))
    }

    /// The receiving port. In a broadcast, this word contains the network ID instead.
    pub fn dest_port(&self) -> Port {
        Port(self.word(5))
    }

    /// The node of origin: word 6 or, if the header is short, the sending node.
    pub fn orig_node(&self) -> NodeAddr {
        if self.header_len > super::SHORT_HEADER_LEN {
            NodeAddr(self.word(6))
        } else {
            self.prev_node()
        }
    }

    /// The destination node. `None` if the header is short: the destination is then the other end of the link.
    pub fn dest_node(&self) -> Option<NodeAddr> {
        (self.header_len > super::SHORT_HEADER_LEN).then(|| NodeAddr(self.word(7)))
    }
}

/// A header under construction. All words start as 0, and the setters keep every field within its bits.
#[derive(Clone, Debug)]
pub struct HeaderWords {
    words: [u32; 15],
    count: usize,
}

impl HeaderWords {
    /// A header of `header_len` bytes (24 to 60) for this user and type.
    pub fn new(user: User, msg_type: u32, header_len: usize) -> Self {
        let count = (header_len / 4).clamp(6, 15);
        let mut header = Self { words: [0; 15], count };
        header.set(0, 29, 7, VERSION);
        header.set(0, 25, 15, user.number());
        header.set(0, 21, 15, count as u32);
        header.set(1, 29, 7, msg_type);
        header
    }

    /// Replaces the field `mask << shift` of word `n`.
    pub fn set(&mut self, n: usize, shift: u32, mask: u32, value: u32) -> &mut Self {
        let word = &mut self.words[n];
        *word = *word & !(mask << shift) | (value & mask) << shift;
        self
    }

    /// Replaces word `n`, counted from 0 and less than 15. Words beyond the header's length are not sent.
    pub fn set_word(&mut self, n: usize, value: u32) -> &mut Self {
        self.words[n] = value;
        self
    }

    /// Writes the header to the start of a packet that already contains the body. Does nothing if the packet is shorter
    /// than the header.
    pub fn write_over(&mut self, packet: &mut [u8]) {
        self.set(0, 0, 0x1_ffff, packet.len() as u32);
        if packet.len() >= self.count * 4 {
            for (bytes, word) in packet.chunks_exact_mut(4).zip(&self.words[..self.count]) {
                bytes.copy_from_slice(&word.to_be_bytes());
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
