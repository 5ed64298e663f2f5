//! Options that an application can set on a socket.

use super::SocketKind;
use crate::addr::Importance;
use crate::limits::{CONNECT_TIMEOUT, SOCKET_RECEIVE_BYTES};
use core::time::Duration;

/// How multicasts are sent to other nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum MulticastMethod {
    /// The method is chosen for each message by the number of destination nodes.
    #[default]
    Automatic,
    /// Each multicast is sent once over the broadcast link, if the media support broadcasts.
    Broadcast,
    /// Each multicast is sent as one copy to each node.
    Replicast,
}

/// Options of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketOptions {
    /// Importance of messages sent.
    pub importance: Importance,
    /// Whether the socket's messages may be dropped when the link is congested.
    pub src_droppable: bool,
    /// Whether messages that cannot be delivered are dropped instead of returned.
    pub dest_droppable: bool,
    /// How long to wait for the answer to a connection request.
    pub connect_timeout: Duration,
    /// Receive queue limit for low-importance messages, in bytes.
    pub receive_bytes: usize,
    /// How the socket's multicasts are sent.
    pub multicast: MulticastMethod,
    /// Whether small writes to a stream are sent immediately instead of merged.
    pub nodelay: bool,
    /// Whether each direction of a stream ends by itself ([`Node::end_sending`](crate::node::Node::end_sending)). TIPC has no
    /// such ends: both nodes must be Crossway's, and both sockets have this option.
    pub half_close: bool,
    /// How long a broadcast to a group waits for a slow member before the socket sends LEAVE to that member and
    /// continues with the others. `None` waits for ever, as Linux does.
    pub group_patience: Option<Duration>,
}

impl SocketOptions {
    /// The default options for this kind of socket.
    pub const fn new(kind: SocketKind) -> Self {
        Self {
            importance: Importance::Low,
            src_droppable: matches!(kind, SocketKind::Dgram),
            dest_droppable: !kind.is_connected_kind(),
            connect_timeout: CONNECT_TIMEOUT,
            receive_bytes: SOCKET_RECEIVE_BYTES,
            multicast: MulticastMethod::Automatic,
            nodelay: false,
            half_close: false,
            group_patience: None,
        }
    }
}
