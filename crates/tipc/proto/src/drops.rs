//! Why frames and messages are discarded. Every drop has a reason, and every reason a counter.

use crate::wire::WireError;

macro_rules! drop_reasons {
    ($($(#[$doc:meta])+ $name:ident = $text:literal,)+) => {
        /// Why a received frame, or a message out of one, went no further.
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
    /// The frame breaks the format.
    Malformed = "malformed",
    /// The frame is encrypted; no key is known here.
    Encrypted = "encrypted",
    /// It came in on a bearer that does not exist.
    NoBearer = "no-bearer",
    /// Another cluster.
    WrongNetwork = "wrong-network",
    /// Our own frame came back.
    OwnEcho = "own-echo",
    /// Discovery meant for another node, or a trial answer nobody waits for.
    NotForUs = "not-for-us",
    /// Another node claims our address.
    DuplicateAddress = "duplicate-address",
    /// Discovery with a media address that is not one station's.
    BadMediaAddress = "bad-media-address",
    /// One peer more than the table holds.
    TooManyPeers = "too-many-peers",
    /// Discovery of a node that lacks what is needed for contact.
    PeerTooOld = "peer-too-old",
    /// From a node that discovery has not shown, or by a bearer without a link to it.
    UnknownPeer = "unknown-peer",
    /// Contact was lost here and the peer has not noticed yet.
    PeerLeaving = "peer-leaving",
    /// A session that is over, or not begun.
    WrongSession = "wrong-session",
    /// A STATE message overtaken by a later one.
    OldState = "old-state",
    /// A monitor record whose lengths disagree. The STATE message that carried it counts.
    BadMonitorRecord = "bad-monitor-record",
    /// RESET or ACTIVATE announces packets too small to work with.
    MtuTooSmall = "mtu-too-small",
    /// The link is not up.
    LinkDown = "link-down",
    /// The packet was delivered before.
    Duplicate = "duplicate",
    /// The packet's number lies beyond the receive window.
    BeyondWindow = "beyond-window",
    /// A fragment without its predecessors, or too large a whole.
    BadFragment = "bad-fragment",
    /// A message inside a bundle breaks the format.
    BadBundle = "bad-bundle",
    /// The broadcast link of the peer is not open yet.
    BcastClosed = "bcast-closed",
    /// A name update overtaken by a later one, or one too many waiting for its turn.
    BadNameUpdate = "bad-name-update",
    /// A binding that exists already, a withdrawal of none, or one binding too many.
    BadBinding = "bad-binding",
    /// Discovery of a station that an operator removed.
    RemovedRemote = "removed-remote",
    /// A part of the protocol that is not spoken here.
    NotSpoken = "not-spoken",
    /// No such port, and the message may not be returned.
    NoPort = "no-port",
    /// Within a group, from or to a socket that is no member, or at the wrong time.
    NotMember = "not-member",
    /// One member of a group more than is kept.
    TooManyMembers = "too-many-members",
    /// The receiving socket is full, and the message may not be returned.
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

/// One counter per reason.
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

    /// Drops for this reason so far.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// All reasons that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&r| (r, self.get(r))).filter(|&(_, n)| n > 0)
    }
}
