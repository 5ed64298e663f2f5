//! Acts: what a role does while a fault is injected into the role or its peer, and how the act ends.

use serde::{Deserialize, Serialize};

/// What a role does. Except in [`Act::FillThenWait`], calls wait without a deadline, as in a program that relies on its
/// channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// Send messages.
    Send {
        /// Number of messages; null to send until an error occurs.
        messages: Option<u64>,
        /// Microseconds to sleep after each message.
        gap_us: u32,
    },
    /// Receive messages.
    Receive {
        /// Number of messages; null to receive until an error occurs.
        messages: Option<u64>,
        /// Length of the receive buffer in bytes; null for the length of the channel's messages.
        buffer_bytes: Option<u64>,
    },
    /// Send until the channel is full, then wait for room until an error occurs.
    FillUp,
    /// Send until the channel is full, then try once more with a deadline.
    FillThenWait,
    /// Send the rest of a message that the mechanism accepted only in part.
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
    /// Whether the error says that the peer is gone.
    pub peer_closed: bool,
    /// Time at which the call returned, CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
    /// Duration of the call, nanoseconds.
    pub took_ns: u64,
}

/// Result of an act that ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActResult {
    /// The error that ended the act, or the first error if the act continued after errors; null if there was none.
    pub error: Option<ReportedError>,
    /// Whether a send with a deadline failed at most a second after the deadline; null if there was no such send, or if
    /// it succeeded.
    pub deadline_kept: Option<bool>,
}
