//! How long an end waits, and why a message did not pass.

use std::time::Instant;

use serde::{Deserialize, Serialize};

/// The instant at which a blocking call gives up; `None` waits for ever, with the plain system call.
pub type Deadline = Option<Instant>;

/// How an end waits when it cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Sleep in the kernel until there is something to do.
    Block,
    /// Never sleep: try again at once. Owns a core.
    Spin,
    /// Try for so many microseconds, then sleep.
    Hybrid {
        /// The spin budget.
        spin_us: u32,
    },
}

/// Why a message was not sent. Nothing of it was sent, unless stated.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// No room now (`try_send` only).
    #[error("no room")]
    Full,
    /// No room until the deadline; nothing of the message was taken.
    #[error("no room until the deadline")]
    TimedOut,
    /// Larger than the channel carries.
    #[error("message of {len} bytes is larger than the limit of {max} bytes")]
    TooLarge {
        /// The message's length.
        len: usize,
        /// What the channel carries.
        max: usize,
    },
    /// The peer closed its end or died.
    #[error("the peer closed its end or died")]
    PeerClosed,
    /// A system call failed.
    #[error("{0}")]
    Os(#[from] crossway_sys::OsError),
}

/// Why no message was received.
#[derive(Debug, thiserror::Error)]
pub enum RecvError {
    /// Nothing there now (`try_recv` only).
    #[error("nothing to receive")]
    Empty,
    /// Nothing until the deadline.
    #[error("nothing to receive until the deadline")]
    TimedOut,
    /// The message is larger than the buffer. Where the kernel cuts messages, the rest of it is lost.
    #[error("message of {need} bytes does not fit the buffer of {have} bytes")]
    TooSmall {
        /// Its length.
        need: usize,
        /// The buffer's.
        have: usize,
    },
    /// The peer closed its end or died, and everything it had sent has been received.
    #[error("the peer closed its end or died")]
    PeerClosed,
    /// The shared state is damaged: the peer wrote what no correct peer writes.
    #[error("damaged channel: {0}")]
    Damaged(String),
    /// A system call failed.
    #[error("{0}")]
    Os(#[from] crossway_sys::OsError),
}
