//! Small fields in the header of a message: its user and its error code.

use crate::addr::Importance;

/// The user of a message, which says what handles it: an application (with an importance) or a part of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum User {
    /// Application data. On the wire the user field *is* the importance.
    Data(Importance),
    /// `BCAST_PROTOCOL`: opens the peer's broadcast receive link.
    BcastProtocol,
    /// `MSG_BUNDLER`: several messages in one packet.
    Bundler,
    /// `LINK_PROTOCOL`: setup and supervision of a link.
    LinkProtocol,
    /// `CONN_MANAGER`: acknowledgement and probing of connections.
    ConnManager,
    /// `GROUP_PROTOCOL`: membership and flow control of communication groups.
    GroupProtocol,
    /// `TUNNEL_PROTOCOL`: synchronisation and failover between two links to one peer.
    Tunnel,
    /// `NAME_DISTRIBUTOR`: bindings and withdrawals.
    NameDistributor,
    /// `MSG_FRAGMENTER`: part of a message that is larger than a packet.
    Fragmenter,
    /// `LINK_CONFIG`: neighbour discovery.
    LinkConfig,
    /// `MSG_CRYPTO`: a node sends a key to another node.
    Crypto,
}

impl User {
    /// The user with this 4-bit number; `None` for numbers that are never sent between nodes.
    pub const fn from_number(n: u32) -> Option<Self> {
        Some(match n {
            0..=3 => match Importance::from_number(n) {
                Some(importance) => Self::Data(importance),
                None => return None,
            },
            5 => Self::BcastProtocol,
            6 => Self::Bundler,
            7 => Self::LinkProtocol,
            8 => Self::ConnManager,
            9 => Self::GroupProtocol,
            10 => Self::Tunnel,
            11 => Self::NameDistributor,
            12 => Self::Fragmenter,
            13 => Self::LinkConfig,
            14 => Self::Crypto,
            _ => return None,
        })
    }

    /// The user's 4-bit number.
    pub const fn number(self) -> u32 {
        match self {
            Self::Data(importance) => importance as u32,
            Self::BcastProtocol => 5,
            Self::Bundler => 6,
            Self::LinkProtocol => 7,
            Self::ConnManager => 8,
            Self::GroupProtocol => 9,
            Self::Tunnel => 10,
            Self::NameDistributor => 11,
            Self::Fragmenter => 12,
            Self::LinkConfig => 13,
            Self::Crypto => 14,
        }
    }
}

/// Why a message was returned, or why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum ErrorCode {
    /// The message was not returned.
    #[default]
    Ok,
    /// The name has no binding (`TIPC_ERR_NO_NAME`).
    NoName,
    /// The port does not exist or is in the wrong state (`TIPC_ERR_NO_PORT`).
    NoPort,
    /// The node is unreachable (`TIPC_ERR_NO_NODE`).
    NoNode,
    /// The receiver's buffer is full (`TIPC_ERR_OVERLOAD`).
    Overload,
    /// The peer shut the connection down (`TIPC_CONN_SHUTDOWN`).
    ConnShutdown,
}

impl ErrorCode {
    /// The error code with this number (0 to 5), or `None`.
    pub const fn from_number(n: u32) -> Option<Self> {
        Some(match n {
            0 => Self::Ok,
            1 => Self::NoName,
            2 => Self::NoPort,
            3 => Self::NoNode,
            4 => Self::Overload,
            5 => Self::ConnShutdown,
            _ => return None,
        })
    }

    /// The error code's number on the wire.
    pub const fn number(self) -> u32 {
        self as u32
    }
}
