//! The small fields that say what a message is.

use crate::addr::Importance;

/// Who handles a message: an application (with an importance) or a part of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum User {
    /// Application data. On the wire the user field *is* the importance.
    Data(Importance),
    /// `BCAST_PROTOCOL`: opens the peer's broadcast receive link.
    BcastProtocol,
    /// `MSG_BUNDLER`: several messages in one packet.
    Bundler,
    /// `LINK_PROTOCOL`: set-up and supervision of a link.
    LinkProtocol,
    /// `CONN_MANAGER`: acknowledgement and probing of connections.
    ConnManager,
    /// `GROUP_PROTOCOL`: membership and flow control of communication groups.
    GroupProtocol,
    /// `TUNNEL_PROTOCOL`: synchronisation and fail-over between two links to one peer.
    Tunnel,
    /// `NAME_DISTRIBUTOR`: bindings and withdrawals.
    NameDistributor,
    /// `MSG_FRAGMENTER`: part of a message that is larger than a packet.
    Fragmenter,
    /// `LINK_CONFIG`: neighbour discovery.
    LinkConfig,
    /// `MSG_CRYPTO`: key distribution; not spoken here.
    Crypto,
}

impl User {
    /// The user of a 4-bit number; `None` for numbers that never cross a wire.
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

    /// The 4-bit number.
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

/// Why a message came back, or why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum ErrorCode {
    /// Not returned.
    #[default]
    Ok,
    /// No binding of that name (`TIPC_ERR_NO_NAME`).
    NoName,
    /// No such port, or one in the wrong state (`TIPC_ERR_NO_PORT`).
    NoPort,
    /// The node is gone (`TIPC_ERR_NO_NODE`).
    NoNode,
    /// The receiver's buffer is full (`TIPC_ERR_OVERLOAD`).
    Overload,
    /// The peer shut the connection down (`TIPC_CONN_SHUTDOWN`).
    ConnShutdown,
}

impl ErrorCode {
    /// The code of a number 0 to 5.
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

    /// The number on the wire.
    pub const fn number(self) -> u32 {
        self as u32
    }
}
