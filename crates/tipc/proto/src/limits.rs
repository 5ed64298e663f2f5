//! Every bound of the protocol and of this implementation, and what happens when it is reached.

/// Largest payload of one message, in octets (the kernel's `TIPC_MAX_USER_MSG_SIZE`). Longer sends are refused.
pub const MESSAGE_LEN_MAX: usize = 66_000;

/// Largest whole message: payload and the largest header. A longer size field is a malformed frame.
pub const WIRE_MESSAGE_LEN_MAX: usize = MESSAGE_LEN_MAX + 60;

/// Bearers of one node. One more is refused.
pub const BEARERS_MAX: usize = 3;

/// Gap-ack blocks of one kind in one STATE message. Further holes are reported by a later STATE.
pub const GAP_ACK_BLOCKS_MAX: usize = 64;

/// Smallest maximum packet a link may announce, in octets. A peer that announces less is not linked to.
pub const LINK_MTU_MIN: usize = 100;
