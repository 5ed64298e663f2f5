//! `LINK_CONFIG`: neighbour discovery and address negotiation. A message consists of a header of 60 bytes and the
//! 128-bit identity of its sender.

use super::header::{HeaderWords, View, WireError};
use super::user::User;
use crate::addr::{MediaAddr, NetworkId, NodeAddr, NodeId};
use alloc::vec::Vec;

/// A set of optional protocol features that a node supports. If a peer lacks a feature that is not
/// [required](crate::node::REQUIRED), an older alternative to that feature is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct Capabilities(u16);

impl Capabilities {
    /// The first message of a connection has the SYN bit.
    pub const SYN: Self = Self(0x001);
    /// An explicit message opens the broadcast receive link.
    pub const BCAST_SYNCH: Self = Self(0x002);
    /// Gaps in the broadcast link are reported in STATE messages.
    pub const BCAST_STATE_NACK: Self = Self(0x004);
    /// Connection flow control uses blocks of 1 KiB.
    pub const BLOCK_FLOWCTL: Self = Self(0x008);
    /// Multicast can be sent as a series of unicasts.
    pub const BCAST_RCAST: Self = Self(0x010);
    /// Discovery messages carry the 128-bit identity.
    pub const NODE_ID128: Self = Self(0x020);
    /// STATE messages are numbered.
    pub const LINK_PROTO_SEQNO: Self = Self(0x040);
    /// Messages stay in order when multicast switches between broadcast and replicast.
    pub const MCAST_RBCTL: Self = Self(0x080);
    /// STATE messages carry selective acknowledgements.
    pub const GAP_ACK_BLOCK: Self = Self(0x100);
    /// SYNCH is a single message, and tunnelled packets can be fragmented.
    pub const TUNNEL_ENHANCED: Self = Self(0x200);
    /// A message can request an immediate acknowledgement.
    pub const NAGLE: Self = Self(0x400);
    /// Name updates are sent over the broadcast link.
    pub const NAMED_BCAST: Self = Self(0x800);

    /// Creates a set from the 13 bits on the wire. Unknown bits are preserved.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & 0x1fff)
    }

    /// The 13 bits on the wire.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether all capabilities in `other` are present.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These capabilities except those in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The union of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The intersection of both sets.
    #[must_use]
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// The kinds of discovery message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiscoveryKind {
    /// Announces the sender, and requests a response from other nodes.
    Request,
    /// Answers a request. Sent only to the node that made it.
    Response,
    /// Queries whether an address is free.
    Trial,
    /// Refuses an address that is already in use and suggests another one.
    TrialFail {
        /// An address that is free, as far as the refusing node knows.
        suggested: NodeAddr,
    },
}

/// A neighbour discovery message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Discovery {
    /// Kind of the message.
    pub kind: DiscoveryKind,
    /// Capabilities of the sender.
    pub capabilities: Capabilities,
    /// Random number chosen when the sender started. Bit 15 always equals [`Capabilities::SYN`], because the two fields
    /// share this bit.
    pub signature: u16,
    /// The destination node's address; 0 for any node.
    pub domain: NodeAddr,
    /// The sender's address; during its address trial, the address that it tries.
    pub sender: NodeAddr,
    /// Network ID of the cluster.
    pub network: NetworkId,
    /// Address for unicast frames to the sender.
    pub media: MediaAddr,
    /// The kernel's hash of its network namespace; used only between kernels.
    pub net_hash: u32,
    /// Identity of the sender.
    pub id: NodeId,
}

impl Discovery {
    /// Derives a signature from a random number: sets bit 15 to the capability bit that overlaps it.
    pub const fn legal_signature(random: u16, capabilities: Capabilities) -> u16 {
        random & 0x7fff | (capabilities.0 & 1) << 15
    }

    /// Decodes a discovery message.
    ///
    /// # Errors
    /// If the header is not 60 bytes long, the identity is missing, the type does not exist or the medium is not supported.
    pub fn decode(view: &View<'_>) -> Result<Self, WireError> {
        if view.header_len() != super::DISCOVERY_HEADER_LEN {
            return Err(WireError::HeaderLen);
        }
        let id: [u8; 16] =
            view.data().get(..16).and_then(|b| b.try_into().ok()).ok_or(WireError::Truncated)?;
        let kind = match view.msg_type() {
            0 => DiscoveryKind::Request,
            1 => DiscoveryKind::Response,
            2 => DiscoveryKind::Trial,
            3 => DiscoveryKind::TrialFail { suggested: NodeAddr(view.word(14)) },
            t => return Err(WireError::Type(t as u8)),
        };
        let mut block = [0; MediaAddr::BLOCK_LEN];
        block.copy_from_slice(&view.bytes()[20..52]);
        Ok(Self {
            kind,
            capabilities: Capabilities::from_bits(view.bits(1, 15, 0x1fff) as u16),
            signature: view.bits(1, 0, 0xffff) as u16,
            domain: NodeAddr(view.word(2)),
            sender: NodeAddr(view.word(3)),
            network: NetworkId(view.word(4)),
            media: MediaAddr::from_block(&block).ok_or(WireError::Field("media address"))?,
            net_hash: view.word(13),
            id: NodeId(id),
        })
    }

    /// Appends the encoded message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (msg_type, suggested) = match self.kind {
            DiscoveryKind::Request => (0, 0),
            DiscoveryKind::Response => (1, 0),
            DiscoveryKind::Trial => (2, 0),
            DiscoveryKind::TrialFail { suggested } => (3, suggested.0),
        };
        let mut h = HeaderWords::new(User::LinkConfig, msg_type, super::DISCOVERY_HEADER_LEN);
        h.set(0, 20, 1, 1).set(1, 0, 0xffff, self.signature.into());
        h.set(1, 15, 0x1fff, self.capabilities.bits().into());
        h.set_word(2, self.domain.0).set_word(3, self.sender.0).set_word(4, self.network.0);
        for (n, word) in self.media.to_block().chunks_exact(4).enumerate() {
            h.set_word(5 + n, u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
        }
        h.set_word(13, self.net_hash).set_word(14, suggested);
        h.write(&[&self.id.0], out);
    }
}
