//! What an application may set on a socket.

use super::SocketKind;
use crate::addr::Importance;
use crate::limits::{CONNECT_TIMEOUT, SOCKET_RECEIVE_OCTETS};
use core::time::Duration;

/// How multicasts travel to other nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum MulticastMethod {
    /// As the number of nodes suggests, message by message.
    #[default]
    Automatic,
    /// Once, by the broadcast link, wherever the media carry broadcasts.
    Broadcast,
    /// One copy to each node.
    Replicast,
}

/// What an application may set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketOptions {
    /// Importance of what is sent.
    pub importance: Importance,
    /// Messages may be dropped when the way out is congested.
    pub src_droppable: bool,
    /// Messages that cannot be delivered are not returned.
    pub dest_droppable: bool,
    /// How long a connection request waits.
    pub connect_timeout: Duration,
    /// Octets that low-importance messages may fill of the receive queue.
    pub receive_octets: usize,
    /// How multicasts travel.
    pub multicast: MulticastMethod,
    /// Small writes to a stream are not merged.
    pub nodelay: bool,
    /// How long a broadcast to a group waits for a member before this member takes leave of it and goes on with the others. `None`, as in
    /// Linux, waits for ever.
    pub group_patience: Option<Duration>,
}

impl SocketOptions {
    /// The defaults of a kind.
    pub const fn new(kind: SocketKind) -> Self {
        Self {
            importance: Importance::Low,
            src_droppable: matches!(kind, SocketKind::Dgram),
            dest_droppable: !kind.is_connected_kind(),
            connect_timeout: CONNECT_TIMEOUT,
            receive_octets: SOCKET_RECEIVE_OCTETS,
            multicast: MulticastMethod::Automatic,
            nodelay: false,
            group_patience: None,
        }
    }
}
