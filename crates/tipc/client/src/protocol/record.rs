//! Messages on a data descriptor that keeps boundaries.
//!
//! Towards `tipcd`: 16 octets of struct sockaddr_tipc, the destination, then the payload. Family 0 means "no destination": a
//! connection's message, or the stored default. A program makes its descriptor unwritable while it asks for a connection by a
//! record of family [`PAD_FAMILY`] that `tipcd` leaves unread until the answer has come; it is ignored.
//!
//! Towards the program: [`Header`], then the payload.

use crate::address::{ServiceRange, SocketAddress};

/// Octets before the payload towards `tipcd`.
pub const SEND_HEADER_LEN: usize = 16;
/// The family of a record that only fills the descriptor.
pub const PAD_FAMILY: u16 = u16::MAX;
/// Octets before the payload towards the program.
pub const HEADER_LEN: usize = 32;

/// What a message towards the program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data.
    Data = 1,
    /// A message of the program's own that could not be delivered; `error` says why.
    Returned = 2,
    /// A request for a connection, on a listening socket. A descriptor comes with it, and [`OFFER_LEN`] octets of payload: the new
    /// socket's token and slot. Taking it is told by one octet on the new descriptor; closing it refuses the request.
    Offer = 3,
    /// A member came to or went from the group.
    Member = 4,
}

/// Octets of an offer: token (8) and slot (4), and 4 of padding.
pub const OFFER_LEN: usize = 16;

/// What stands before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// TIPC error code of a returned message.
    pub error: u8,
    /// The sending socket; of a returned message, the one that did not take it.
    pub from: SocketAddress,
    /// The service that was addressed.
    pub service: Option<ServiceRange>,
    /// Of a group's message: the sender's instance.
    pub member: Option<u32>,
    /// The end of a sequence, with [`Kind::Member`]: the member went.
    pub gone: bool,
}

const HAS_SERVICE: u8 = 1;
const HAS_MEMBER: u8 = 2;
const GONE: u8 = 4;

impl Header {
    /// As octets.
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

    /// From octets; `None` for a kind that this version does not know.
    pub fn decode(raw: &[u8; HEADER_LEN]) -> Option<Self> {
        let kind = match raw[0] {
            1 => Kind::Data,
            2 => Kind::Returned,
            3 => Kind::Offer,
            4 => Kind::Member,
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
    fn a_header_comes_back_from_its_octets() {
        let plain = Header {
            kind: Kind::Data,
            error: 0,
            from: SocketAddress { port: 1, node: 2 },
            service: None,
            member: None,
            gone: false,
        };
        let range = ServiceRange { service: 3, lower: 4, upper: 5 };
        for header in [
            plain,
            Header { kind: Kind::Returned, error: 2, service: Some(range), ..plain },
            Header { kind: Kind::Member, member: Some(7), gone: true, ..plain },
            Header { kind: Kind::Offer, ..plain },
        ] {
            assert_eq!(Header::decode(&header.encode()), Some(header));
        }
        assert_eq!(Header::decode(&[9; HEADER_LEN]), None);
    }
}
