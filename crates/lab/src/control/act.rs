//! Acts of a role while a fault is injected into it or its peer, and how they end.

use serde::{Deserialize, Serialize};

/// What to do. Calls wait without a deadline, like a program that trusts its channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// Send a number of messages, or until an error.
    Send {
        /// How many; null: until an error.
        messages: Option<u64>,
        /// Microseconds to sleep after each message.
        gap_us: u32,
    },
    /// Receive a number of messages, or until an error.
    Receive {
        /// How many; null: until an error.
        messages: Option<u64>,
        /// Length of the buffer in bytes, if it differs from that of the channel's messages.
        buffer_bytes: Option<u64>,
    },
    /// Send until there is no room, then wait for room until an error.
    FillUp,
    /// Send until there is no room, then try once more with a deadline.
    FillThenWait,
    /// Send the rest of a message of which the mechanism accepted only a part.
    Flush,
    /// Wait forever while writing a message in place.
    HoldWriting,
    /// Wait forever while reading a message in place.
    HoldReading,
    /// Send one message of this length.
    SendLength {
        /// Length of the message.
        bytes: u64,
    },
}

/// An error that a call returned because of the fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedError {
    /// `send` or `receive`.
    pub call: String,
    /// Text of the error.
    pub error: String,
    /// Whether it is the error that says that the peer is gone.
    pub peer_closed: bool,
    /// Time at which the call returned, CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
    /// Duration of the call, nanoseconds.
    pub took_ns: u64,
}

/// Result of an act that ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActResult {
    /// The error that ended it, or the first error after which it continued.
    pub error: Option<ReportedError>,
    /// Whether a send with a deadline returned within a second of the deadline.
    pub deadline_kept: Option<bool>,
}
