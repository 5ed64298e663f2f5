//! Errors of socket calls, with the kernel's errno for each.

/// Why a socket call failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum SocketError {
    /// The socket does not exist.
    BadSocket,
    /// There is nothing to receive, no room to send, or no connection to accept. Try again after the socket's next
    /// event.
    WouldBlock,
    /// The call gives no destination, and the socket has no default destination.
    NoDestination,
    /// The message is longer than 66,000 bytes.
    MessageTooLong,
    /// No socket is bound to the name, or there is no contact with the node.
    Unreachable,
    /// The socket is not connected.
    NotConnected,
    /// The socket is connected already.
    IsConnected,
    /// An earlier connection request is still pending.
    Already,
    /// The connection request was sent; its result follows as an event.
    InProgress,
    /// The connection has ended, so nothing can be sent any more.
    Pipe,
    /// The peer ended the connection without shutting it down, or its node was lost.
    ConnectionReset,
    /// Nothing listens at that address.
    Refused,
    /// The connection request was not answered in time.
    TimedOut,
    /// This kind of socket does not support the operation, or not in its current state.
    NotSupported,
    /// An argument is invalid.
    Invalid,
    /// This kind of socket does not have the option.
    NoSuchOption,
    /// The name is reserved, or the socket is a member of a group.
    Access,
    /// The node has reached its maximum number of sockets or bindings.
    TooMany,
}

impl SocketError {
    /// Linux's errno for this error.
    pub const fn errno(self) -> i32 {
        match self {
            Self::BadSocket => 9,
            Self::WouldBlock => 11,
            Self::TooMany => 12,
            Self::Access => 13,
            Self::Invalid => 22,
            Self::Pipe => 32,
            Self::NoDestination => 89,
            Self::MessageTooLong => 90,
            Self::NoSuchOption => 92,
            Self::NotSupported => 95,
            Self::ConnectionReset => 104,
            Self::IsConnected => 106,
            Self::NotConnected => 107,
            Self::TimedOut => 110,
            Self::Refused => 111,
            Self::Unreachable => 113,
            Self::Already => 114,
            Self::InProgress => 115,
        }
    }
}

impl core::fmt::Display for SocketError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::BadSocket => "no such socket",
            Self::WouldBlock => "the operation would block",
            Self::NoDestination => {
                "no destination address; pass one or connect the socket first"
            }
            Self::MessageTooLong => "the message is longer than 66000 bytes; split it",
            Self::Unreachable => "no socket is bound to that service, or its node cannot be reached",
            Self::NotConnected => "the socket is not connected",
            Self::IsConnected => "the socket is already connected",
            Self::Already => "an earlier connection request is still pending",
            Self::InProgress => "the connection request is pending",
            Self::Pipe => "the connection has ended",
            Self::ConnectionReset => {
                "the peer ended the connection without shutting it down, or its node was lost"
            }
            Self::Refused => "nothing is listening at that address",
            Self::TimedOut => "the connection request was not answered in time",
            Self::NotSupported => "this socket does not support the operation in its current state",
            Self::NoSuchOption => "this kind of socket does not have this option",
            Self::Invalid => "invalid argument",
            Self::Access => {
                "permission denied: either the service type is reserved (below 64), or the socket is already in a \
                 group and cannot bind or join another group"
            }
            Self::TooMany => "the node has reached its maximum number of sockets or bindings",
        })
    }
}

impl core::error::Error for SocketError {}
