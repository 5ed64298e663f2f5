//! What a receive call gives.

use std::fmt;

use crate::address::{ServiceRange, SocketAddress};

/// Why a message came back, or a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// No socket is bound to the name.
    NoName,
    /// The socket is gone.
    NoPort,
    /// The node is gone.
    NoNode,
    /// The receiver's queue is full.
    Overload,
    /// The peer ended the connection in good order.
    Shutdown,
    /// A code that TIPC has not.
    Other(u8),
}

impl ErrorCode {
    /// From TIPC's number; `None` for 0, which is no error.
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

    /// TIPC's number.
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
            Self::NoName => f.write_str("no socket is bound to that name"),
            Self::NoPort => f.write_str("the socket is gone"),
            Self::NoNode => f.write_str("the node is gone"),
            Self::Overload => f.write_str("the receiver's queue is full"),
            Self::Shutdown => f.write_str("the peer shut the connection down"),
            Self::Other(code) => write!(f, "TIPC error {code}"),
        }
    }
}

/// What a receive call found, beside the payload in the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message.
    Data,
    /// A message of ours that came back; the buffer holds its first octets.
    Returned(ErrorCode),
    /// The end of the connection.
    End(ErrorCode),
    /// A member came to the group.
    MemberUp,
    /// A member went from the group.
    MemberDown,
}

/// One received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it is.
    pub event: Event,
    /// Octets in the caller's buffer.
    pub len: usize,
    /// Octets of the whole message, where the back end tells: a `tipcd` always does, the kernel tells no more than `len`.
    pub full_len: usize,
    /// The message was longer than the buffer and the rest is lost.
    pub truncated: bool,
    /// The sending socket; of a returned message, the one that did not take it.
    pub from: SocketAddress,
    /// The service that was addressed, as the sender wrote it; of a connection, the one that it was made through.
    pub service: Option<ServiceRange>,
    /// Of a group's message: the sender's instance.
    pub member: Option<u32>,
}
