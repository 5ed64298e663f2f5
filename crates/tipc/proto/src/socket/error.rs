//! Why a socket call failed, with the kernel's errno for each.

/// Why a socket call failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum SocketError {
    /// No such socket.
    BadSocket,
    /// Nothing to receive, no room to send, nobody to accept: try again after the next event of this socket.
    WouldBlock,
    /// A send without an address on a socket that has none stored.
    NoDestination,
    /// The message is longer than 66,000 octets.
    MessageTooLong,
    /// No binding of that name, or no contact to that node.
    Unreachable,
    /// The socket is not connected.
    NotConnected,
    /// The socket is connected already.
    IsConnected,
    /// A connection request is under way already.
    Already,
    /// A connection request is under way now.
    InProgress,
    /// The connection is over.
    Pipe,
    /// The peer ended the connection without shutting it down.
    ConnectionReset,
    /// Nobody listens there.
    Refused,
    /// No answer to the connection request.
    TimedOut,
    /// This kind of socket, or one in this state, cannot do that.
    NotSupported,
    /// An argument is not legal.
    Invalid,
    /// This kind of socket does not have this option.
    NoSuchOption,
    /// The name is reserved, or the socket is a member of a group.
    Access,
    /// The node has its full number of sockets or bindings.
    TooMany,
}

impl SocketError {
    /// The number that Linux gives for this error.
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
            Self::WouldBlock => "the call would have to wait",
            Self::NoDestination => {
                "no address given and none stored; connect the socket or name an address"
            }
            Self::MessageTooLong => "a message holds at most 66000 bytes; send it in parts",
            Self::Unreachable => "no binding of that name and no contact to that node",
            Self::NotConnected => "the socket is not connected",
            Self::IsConnected => "the socket is connected already",
            Self::Already => "an earlier connection request is still under way",
            Self::InProgress => "the connection request is under way",
            Self::Pipe => "the connection is over",
            Self::ConnectionReset => {
                "the peer ended the connection without shutting it down, or its node was lost"
            }
            Self::Refused => "nothing listens there",
            Self::TimedOut => "no answer to the connection request",
            Self::NotSupported => "this kind of socket cannot do that now",
            Self::NoSuchOption => "this kind of socket does not have this option",
            Self::Invalid => "an argument is not legal here",
            Self::Access => {
                "service types below 64 belong to the protocol, and a member of a group neither binds nor joins"
            }
            Self::TooMany => "the node has its full number of sockets or bindings",
        })
    }
}

impl core::error::Error for SocketError {}
