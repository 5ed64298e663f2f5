//! Reasons why frames and messages are dropped. Every drop has a reason, and every reason has a
//! counter.

use crate::wire::WireError;

macro_rules! drop_reasons {
    ($($(#[$doc:meta])+ $name:ident = $text:literal,)+) => {
        /// Why a received frame, or a message in it, was dropped.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum DropReason {
            $($(#[$doc])+ $name,)+
        }

        impl DropReason {
            /// All reasons, in the order of the counters.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// A short name for reports, in kebab case.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

drop_reasons! {
    /// The frame violates the format.
    Malformed = "malformed",
    /// The frame is encrypted, but this node has no keys.
    Encrypted = "encrypted",
    /// The frame is not encrypted, but this node has keys.
    Plain = "plain",
    /// The frame is encrypted with a key that this node does not have.
    NoKey = "no-key",
    /// No key fits the encrypted frame: it was encrypted with another key, or altered or cut on the way.
    NotGenuine = "not-genuine",
    /// The encrypted frame was received before, or is so old that it cannot be told from one.
    Replayed = "replayed",
    /// The message with a key was not encrypted, is not for this node, or repeats a key.
    BadKeyMessage = "bad-key-message",
    /// The frame arrived on a bearer that does not exist.
    NoBearer = "no-bearer",
    /// The frame belongs to a network with another ID.
    WrongNetwork = "wrong-network",
    /// The frame carries this node's own address or identity, like one of its own frames that came back.
    OwnEcho = "own-echo",
    /// The frame is for another node, arrived while this node had no address, or answers an address trial that has
    /// ended.
    NotForUs = "not-for-us",
    /// Discovery message from a node that claims the address of this node or of a peer, or a second address while its
    /// first is in use.
    DuplicateAddress = "duplicate-address",
    /// Discovery message whose media address is not unicast, or belongs to another kind of medium than the bearer.
    BadMediaAddress = "bad-media-address",
    /// Frame from a station that is not in the list of the bearer's stations.
    UnlistedSource = "unlisted-source",
    /// The frame's source on the medium is not the address that its sender announced in discovery. The frame is forged,
    /// or something on the path translates addresses.
    WrongSource = "wrong-source",
    /// The peer table is full of nodes in contact.
    TooManyPeers = "too-many-peers",
    /// A node that was discovered and has never been in contact lost its place in the peer table to another such node.
    NeverAnswered = "never-answered",
    /// Discovery message from a node that lacks a required capability.
    PeerTooOld = "peer-too-old",
    /// The frame came from a node not known from discovery, or over a bearer without a link to it.
    UnknownPeer = "unknown-peer",
    /// This node has lost contact with the peer, but the peer still assumes contact.
    PeerLeaving = "peer-leaving",
    /// The frame carries the session number of an earlier or a later session.
    WrongSession = "wrong-session",
    /// STATE message older than one already received.
    OldState = "old-state",
    /// Monitor record with inconsistent lengths or too many members. The STATE message that carried it is still
    /// processed.
    BadMonitorRecord = "bad-monitor-record",
    /// RESET or ACTIVATE announces a maximum packet size that is too small.
    MtuTooSmall = "mtu-too-small",
    /// The link is not up.
    LinkDown = "link-down",
    /// The packet or group message has already been received, or is the plain copy of an encrypted frame.
    Duplicate = "duplicate",
    /// The packet's number lies beyond the receive window.
    BeyondWindow = "beyond-window",
    /// Fragment whose predecessors are missing, or that would make its message too large.
    BadFragment = "bad-fragment",
    /// A message in a bundle violates the format.
    BadBundle = "bad-bundle",
    /// The peer's broadcast link is not open: contact is missing or has just begun.
    BcastClosed = "bcast-closed",
    /// Name update that is older than one already applied, or that would exceed the limit of waiting updates.
    BadNameUpdate = "bad-name-update",
    /// Duplicate binding, withdrawal of an unknown binding, or a binding beyond the limit.
    BadBinding = "bad-binding",
    /// Discovery message from an address that an operator has removed from the bearer.
    RemovedRemote = "removed-remote",
    /// The message uses an unsupported part of the protocol.
    NotSpoken = "not-spoken",
    /// The message has no receiver (for example, the destination port does not exist), and may not or cannot be
    /// returned.
    NoPort = "no-port",
    /// Group message from or to a socket that is not a member, or of a kind that the member's state does not allow.
    NotMember = "not-member",
    /// The member table of the group is full.
    TooManyMembers = "too-many-members",
    /// The receiving socket's buffer is full, and the message may not or cannot be returned.
    Overload = "overload",
}

impl From<WireError> for DropReason {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Version(7) => Self::Encrypted,
            _ => Self::Malformed,
        }
    }
}

/// A counter for each reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropCounters([u64; DropReason::ALL.len()]);

impl Default for DropCounters {
    fn default() -> Self {
        Self([0; DropReason::ALL.len()])
    }
}

impl DropCounters {
    /// Counts one drop.
    pub(crate) fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    /// Number of drops for this reason.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// The reasons with a non-zero count, each with its count.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&r| (r, self.get(r))).filter(|&(_, n)| n > 0)
    }
}
