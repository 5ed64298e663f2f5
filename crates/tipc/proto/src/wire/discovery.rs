//! `LINK_CONFIG`: how nodes find each other and settle their addresses. 60 octets of header and the 128-bit identity.

use super::header::{HeaderWords, View, WireError};
use super::user::User;
use crate::addr::{MediaAddr, NetworkId, NodeAddr, NodeId};
use alloc::vec::Vec;

/// What a node says it understands. A missing bit makes the peer use the older way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct Capabilities(u16);

impl Capabilities {
    /// The SYN bit on the first message of a connection.
    pub const SYN: Self = Self(0x001);
    /// The explicit message that opens a broadcast receive link.
    pub const BCAST_SYNCH: Self = Self(0x002);
    /// Gaps of the broadcast link reported in STATE messages.
    pub const BCAST_STATE_NACK: Self = Self(0x004);
    /// Connection flow control in blocks of 1 KiB.
    pub const BLOCK_FLOWCTL: Self = Self(0x008);
    /// Multicast as a series of unicasts.
    pub const BCAST_RCAST: Self = Self(0x010);
    /// The 128-bit identity in discovery messages.
    pub const NODE_ID128: Self = Self(0x020);
    /// Numbered STATE messages.
    pub const LINK_PROTO_SEQNO: Self = Self(0x040);
    /// Ordered switch between broadcast and replicast.
    pub const MCAST_RBCTL: Self = Self(0x080);
    /// Selective acknowledgement in STATE messages.
    pub const GAP_ACK_BLOCK: Self = Self(0x100);
    /// SYNCH as one message, and fragments inside tunnels.
    pub const TUNNEL_ENHANCED: Self = Self(0x200);
    /// The obligation to acknowledge at once when asked.
    pub const NAGLE: Self = Self(0x400);
    /// Name updates over the broadcast link.
    pub const NAMED_BCAST: Self = Self(0x800);
    /// Everything that Linux 6.1 announces.
    pub const LINUX_6_1: Self = Self(0xfff);

    /// From the 13 bits on the wire; unknown bits are kept.
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & 0x1fff)
    }

    /// The 13 bits.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether all of `other` is present.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These but for those.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Both together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What both understand.
    #[must_use]
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// The four kinds of discovery message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiscoveryKind {
    /// "I am here; who else?"
    Request,
    /// Answer to a request.
    Response,
    /// "I would like to use this address."
    Trial,
    /// "That address is taken; use this one."
    TrialFail {
        /// A free address, as the refusing node sees it.
        suggested: NodeAddr,
    },
}

/// One discovery message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Discovery {
    /// What it says.
    pub kind: DiscoveryKind,
    /// What the sender understands.
    pub capabilities: Capabilities,
    /// Random number of the sender's present life. Bit 15 always equals [`Capabilities::SYN`], because the two fields overlap.
    pub signature: u16,
    /// Whom it is for: 0 for anybody, else one node's address.
    pub domain: NodeAddr,
    /// The sender's address; its trial address during the trial.
    pub sender: NodeAddr,
    /// The cluster.
    pub network: NetworkId,
    /// Where to send unicast frames to.
    pub media: MediaAddr,
    /// The kernel's mark of a network namespace. It matters only to kernels, among themselves.
    pub net_hash: u32,
    /// The sender's identity.
    pub id: NodeId,
}

impl Discovery {
    /// The signature as it must be so that the overlapping capability bit stays right.
    pub const fn legal_signature(random: u16, capabilities: Capabilities) -> u16 {
        random & 0x7fff | (capabilities.0 & 1) << 15
    }

    /// Reads a discovery message.
    ///
    /// # Errors
    /// When the header is not 60 octets, the identity is missing, the type does not exist or the medium is not spoken.
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

    /// Appends the message to `out`.
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
