//! The contents of a tipcd's answers to requests, without the errno with which each answer begins.

use super::control::SocketKind;
use super::fields::{Reader, Writer};
use crate::address::SocketAddress;

/// The answer to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Protocol version in use.
    pub version: u16,
    /// Number of slots in the connection's shared memory, which is the maximum number of the program's sockets.
    pub slots: u32,
    /// The node's address, or 0 if it has none yet.
    pub node: u32,
    /// Number of messages after which a socket should request lanes; 0 for never.
    pub lane_after: u32,
}

/// The answer to an open request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Number that identifies the socket in requests.
    pub token: u64,
    /// Index of the socket's slot in the connection's shared memory.
    pub slot: u32,
}

/// The answer to an adopt request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// Token and slot of the socket.
    pub opened: Opened,
    /// Kind of the socket.
    pub kind: SocketKind,
    /// Number of slots in the shared memory that contains the socket's slot.
    pub slots: u32,
}

/// The answer to a request for lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Size of each of the two rings in bytes.
    pub ring_bytes: u32,
    /// Whether the requesting process sends through the lane; if not, another process does.
    pub sends: bool,
}

/// The answer to a report request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketReport {
    /// Address of the socket.
    pub local: SocketAddress,
    /// Address of the connection's other end; `None` if the socket is not connected.
    pub peer: Option<SocketAddress>,
    /// Number of messages waiting in the node.
    pub queued_messages: u32,
    /// Length of these messages in bytes.
    pub queued_bytes: u32,
}

impl Welcome {
    /// Encodes the answer, with errno 0.
    pub fn encode(self) -> Vec<u8> {
        let answer = Writer::answer(0).u32(self.version.into());
        answer.u32(self.slots).u32(self.node).u32(self.lane_after).finish()
    }

    /// Decodes the answer from what follows the errno; `None` if that is invalid.
    pub fn decode(r: &mut Reader<'_>) -> Option<Self> {
        let version = u16::try_from(r.u32()?).ok()?;
        Some(Self { version, slots: r.u32()?, node: r.u32()?, lane_after: r.u32()? })
    }
}

impl Opened {
    /// Encodes the answer, with errno 0.
    pub fn encode(self) -> Vec<u8> {
        Writer::answer(0).u64(self.token).u32(self.slot).finish()
    }

    /// Decodes the answer from what follows the errno, or from an offer's payload; `None` if that is invalid.
    pub fn decode(r: &mut Reader<'_>) -> Option<Self> {
        Some(Self { token: r.u64()?, slot: r.u32()? })
    }

    /// Encodes the token and slot as an offer's payload.
    pub fn offer(self) -> [u8; super::record::OFFER_LEN] {
        let mut raw = [0; super::record::OFFER_LEN];
        raw[..8].copy_from_slice(&self.token.to_ne_bytes());
        raw[8..12].copy_from_slice(&self.slot.to_ne_bytes());
        raw
    }
}

impl Adopted {
    /// Encodes the answer, with errno 0.
    pub fn encode(self) -> Vec<u8> {
        let answer = Writer::answer(0).u64(self.opened.token).u32(self.opened.slot);
        answer.u32(self.kind as u32).u32(self.slots).finish()
    }

    /// Decodes the answer from what follows the errno; `None` if that is invalid.
    pub fn decode(r: &mut Reader<'_>) -> Option<Self> {
        let opened = Opened::decode(r)?;
        Some(Self { opened, kind: SocketKind::from_number(r.u32()?)?, slots: r.u32()? })
    }
}

impl Granted {
    /// Encodes the answer, with errno 0.
    pub fn encode(self) -> Vec<u8> {
        Writer::answer(0).u32(self.ring_bytes).u32(self.sends.into()).finish()
    }

    /// Decodes the answer from what follows the errno; `None` if that is invalid.
    pub fn decode(r: &mut Reader<'_>) -> Option<Self> {
        Some(Self { ring_bytes: r.u32()?, sends: r.u32()? != 0 })
    }
}

impl SocketReport {
    /// Encodes the answer, with errno 0.
    pub fn encode(self) -> Vec<u8> {
        let peer = self.peer.unwrap_or_default();
        Writer::answer(0)
            .u32(self.local.port)
            .u32(self.local.node)
            .u32(self.peer.is_some().into())
            .u32(peer.port)
            .u32(peer.node)
            .u32(self.queued_messages)
            .u32(self.queued_bytes)
            .finish()
    }

    /// Decodes the answer from what follows the errno; `None` if that is invalid.
    pub fn decode(r: &mut Reader<'_>) -> Option<Self> {
        let local = SocketAddress { port: r.u32()?, node: r.u32()? };
        let has_peer = r.u32()? != 0;
        let peer = SocketAddress { port: r.u32()?, node: r.u32()? };
        Some(Self {
            local,
            peer: has_peer.then_some(peer),
            queued_messages: r.u32()?,
            queued_bytes: r.u32()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back_from_their_bytes() {
        let skip_errno = |bytes: Vec<u8>| bytes[4..].to_vec();
        let welcome = Welcome { version: 1, slots: 2, node: 3, lane_after: 4 };
        let raw = skip_errno(welcome.encode());
        assert_eq!(Welcome::decode(&mut Reader::new(&raw)), Some(welcome));
        let opened = Opened { token: 5, slot: 6 };
        assert_eq!(Opened::decode(&mut Reader::new(&opened.offer())), Some(opened));
        let raw = skip_errno(opened.encode());
        assert_eq!(Opened::decode(&mut Reader::new(&raw)), Some(opened));
        let local = SocketAddress { port: 1, node: 2 };
        let adopted = Adopted { opened, kind: SocketKind::Dgram, slots: 9 };
        let raw = skip_errno(adopted.encode());
        assert_eq!(Adopted::decode(&mut Reader::new(&raw)), Some(adopted));
        let granted = Granted { ring_bytes: 1, sends: true };
        let raw = skip_errno(granted.encode());
        assert_eq!(Granted::decode(&mut Reader::new(&raw)), Some(granted));
        for peer in [None, Some(SocketAddress { port: 3, node: 4 })] {
            let report = SocketReport { local, peer, queued_messages: 5, queued_bytes: 6 };
            let raw = skip_errno(report.encode());
            assert_eq!(SocketReport::decode(&mut Reader::new(&raw)), Some(report));
        }
    }
}
