//! Message format on a data descriptor that preserves message boundaries.
//!
//! To `tipcd`: the destination as a struct sockaddr_tipc (16 bytes), then the payload. An address family of 0 means "no
//! destination": a message on a connection, or to the whole group. While a connection request is pending, the program
//! makes its descriptor unwritable with a record of family [`PAD_FAMILY`]. `tipcd` leaves this record unread until the
//! answer has arrived, and then ignores it.
//!
//! To the program: [`Header`], then the payload.

use crate::address::{ServiceRange, SocketAddress};

/// Length of the header of messages to `tipcd`, in bytes.
pub const SEND_HEADER_LEN: usize = 16;
/// Address family of a record that is only padding.
pub const PAD_FAMILY: u16 = u16::MAX;
/// Length of the header of messages to the program, in bytes.
pub const HEADER_LEN: usize = 32;

/// The kind of a message to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A message from another socket.
    Data = 1,
    /// A message sent by the program that could not be delivered; `error` gives the reason.
    Returned = 2,
    /// A connection request on a listening socket. It comes with a descriptor, and its payload of [`OFFER_LEN`] bytes
    /// holds the new socket's token and slot. The program accepts the request by writing one byte to the new descriptor
    /// and refuses it by closing the descriptor.
    Offer = 3,
    /// A member joined or left the group.
    Member = 4,
}

/// Length of an offer's payload in bytes: token (8), slot (4) and padding (4).
pub const OFFER_LEN: usize = 16;

/// The header that precedes a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the message.
    pub kind: RecordKind,
    /// TIPC error code of a returned message.
    pub error: u8,
    /// The sending socket, or for a returned message the socket that rejected it.
    pub from: SocketAddress,
    /// The service that the sender addressed, if any.
    pub service: Option<ServiceRange>,
    /// Instance of the sending member, if the message was received in a group.
    pub member: Option<u32>,
    /// For [`RecordKind::Member`], whether the member left.
    pub gone: bool,
}

const HAS_SERVICE: u8 = 1;
const HAS_MEMBER: u8 = 2;
const GONE: u8 = 4;

impl Header {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut raw = [0; HEADER_LEN];
        raw[0] = self.kind as u8;
        raw[1] = self.error;
        raw[2] = u8::from(self.service.is_some()) * HAS_SERVICE
            + u8::from(self.member.is_some()) * HAS_MEMBER
            + u8::from(self.gone) * GONE;
        let service = self.service.unwrap_or_default();
        let words = [
            self.from.port,
            self.from.node,
            service.service,
            service.lower,
            service.upper,
            self.member.unwrap_or_default(),
        ];
        for (place, word) in raw[4..28].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        raw
    }

    /// Decodes a header. Returns `None` for a kind that this version does not know.
    pub fn decode(raw: &[u8; HEADER_LEN]) -> Option<Self> {
        let kind = match raw[0] {
            1 => RecordKind::Data,
            2 => RecordKind::Returned,
            3 => RecordKind::Offer,
            4 => RecordKind::Member,
            _ => return None,
        };
        let word = |n: usize| {
            let at = 4 + 4 * n;
            u32::from_ne_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]])
        };
        let range = ServiceRange { service: word(2), lower: word(3), upper: word(4) };
        Some(Self {
            kind,
            error: raw[1],
            from: SocketAddress { port: word(0), node: word(1) },
            service: (raw[2] & HAS_SERVICE != 0).then_some(range),
            member: (raw[2] & HAS_MEMBER != 0).then(|| word(5)),
            gone: raw[2] & GONE != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_from_its_bytes() {
        let plain = Header {
            kind: RecordKind::Data,
            error: 0,
            from: SocketAddress { port: 1, node: 2 },
            service: None,
            member: None,
            gone: false,
        };
        let range = ServiceRange { service: 3, lower: 4, upper: 5 };
        for header in [
            plain,
            Header { kind: RecordKind::Returned, error: 2, service: Some(range), ..plain },
            Header { kind: RecordKind::Member, member: Some(7), gone: true, ..plain },
            Header { kind: RecordKind::Offer, ..plain },
        ] {
            assert_eq!(Header::decode(&header.encode()), Some(header));
        }
        assert_eq!(Header::decode(&[9; HEADER_LEN]), None);
    }
}
