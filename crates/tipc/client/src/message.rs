//! Results of receive calls.

use std::fmt;

use crate::address::{ServiceRange, SocketAddress};

/// Why a message was returned, or why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// No socket is bound to the service address.
    NoName,
    /// The socket no longer exists.
    NoPort,
    /// The node is no longer reachable.
    NoNode,
    /// The receiver's buffer is full.
    Overload,
    /// The peer shut the connection down.
    Shutdown,
    /// A code that TIPC does not define.
    Other(u8),
}

impl ErrorCode {
    /// Returns the code with TIPC's number; `None` for 0, which is not an error.
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => return None,
            1 => Self::NoName,
            2 => Self::NoPort,
            3 => Self::NoNode,
            4 => Self::Overload,
            5 => Self::Shutdown,
            other => Self::Other(other),
        })
    }

    /// The code's number in TIPC.
    pub const fn number(self) -> u8 {
        match self {
            Self::NoName => 1,
            Self::NoPort => 2,
            Self::NoNode => 3,
            Self::Overload => 4,
            Self::Shutdown => 5,
            Self::Other(other) => other,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoName => f.write_str("nothing is bound to that name"),
            Self::NoPort => f.write_str("the socket no longer exists"),
            Self::NoNode => f.write_str("the node is no longer reachable"),
            Self::Overload => f.write_str("the receiver's queue is full"),
            Self::Shutdown => f.write_str("the peer shut the connection down"),
            Self::Other(code) => write!(f, "TIPC error {code}"),
        }
    }
}

/// What kind of message or event was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message from another socket, or data of a stream.
    Data,
    /// A message that this socket sent and that was returned; the buffer holds its first bytes.
    Returned(ErrorCode),
    /// The end of the connection.
    End(ErrorCode),
    /// A member joined the group.
    MemberUp,
    /// A member left the group.
    MemberDown,
}

/// Describes what was received; the bytes are in the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Kind of the message.
    pub event: Event,
    /// Number of bytes in the caller's buffer.
    pub len: usize,
    /// Length in bytes of the whole message if it came from a `tipcd`. The kernel does not report it; this is then the
    /// same as `len`.
    pub full_len: usize,
    /// Whether the message was longer than the buffer. The rest is lost, unless the call only peeks.
    pub truncated: bool,
    /// The sending socket, or for a returned message the socket that rejected it.
    pub from: SocketAddress,
    /// The service that the sender addressed; for a connection, the service that the connection request addressed.
    /// `None` if a socket was addressed directly, and for the end of a connection.
    pub service: Option<ServiceRange>,
    /// Instance of the sending member if the message was received in a group.
    pub member: Option<u32>,
}
