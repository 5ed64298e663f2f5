//! How long an end waits, and why sending or receiving failed.

use std::time::Instant;

use serde::{Deserialize, Serialize};

/// The instant at which a blocking call gives up; `None` waits for ever, with the plain system call.
pub type Deadline = Option<Instant>;

/// How an end waits when it cannot make progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Sleep in the kernel until there is something to do.
    Block,
    /// Never sleep: try again immediately. Occupies a core.
    Spin,
    /// Spin for some microseconds, then sleep.
    Hybrid {
        /// How long to spin, in microseconds.
        spin_us: u32,
    },
}

/// Why a message was not sent. None of it was sent, unless stated otherwise.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// There is no room now (`try_send` only).
    #[error("there is no room for the message now")]
    Full,
    /// No room became free by the deadline; none of the message was sent.
    #[error("no room became free before the deadline")]
    TimedOut,
    /// The message is larger than the channel supports.
    #[error("message of {len} bytes is larger than the limit of {max} bytes")]
    TooLarge {
        /// The message's length in bytes.
        len: usize,
        /// The maximum length in bytes.
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
    /// There is no message now (`try_recv` only).
    #[error("there is no message to receive now")]
    Empty,
    /// No message arrived by the deadline.
    #[error("no message arrived before the deadline")]
    TimedOut,
    /// The message is larger than the buffer. Where the kernel truncates messages, the rest of it is
    /// lost.
    #[error("message of {need} bytes does not fit the buffer of {have} bytes")]
    TooSmall {
        /// The message's length in bytes.
        need: usize,
        /// The buffer's length in bytes.
        have: usize,
    },
    /// The peer closed its end or died, and everything it had sent has been received.
    #[error("the peer closed its end or died")]
    PeerClosed,
    /// The shared state is corrupted: the peer wrote something that no correct peer writes.
    #[error("the channel is damaged: {0}")]
    Damaged(String),
    /// A system call failed.
    #[error("{0}")]
    Os(#[from] crossway_sys::OsError),
}
