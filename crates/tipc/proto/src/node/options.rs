//! Socket options with the numbers and rules of Linux's level `SOL_TIPC`.

use super::Node;
use crate::addr::{Importance, Port};
use crate::socket::{MulticastMethod, SocketError, SocketKind};
use core::time::Duration;

/// Option numbers at level `SOL_TIPC`.
pub mod option {
    /// Importance of messages sent, 0 to 3.
    pub const IMPORTANCE: u32 = 127;
    /// Whether the socket's messages may be dropped when a link is congested.
    pub const SRC_DROPPABLE: u32 = 128;
    /// Whether messages that cannot be delivered are dropped instead of returned.
    pub const DEST_DROPPABLE: u32 = 129;
    /// Timeout of a connection request, in milliseconds; only the lowest 16 bits count, as in Linux.
    pub const CONN_TIMEOUT: u32 = 130;
    /// Always 0. Linux still has this option for old programs.
    pub const NODE_RECVQ_DEPTH: u32 = 131;
    /// Number of messages in the receive queue.
    pub const SOCK_RECVQ_DEPTH: u32 = 132;
    /// Makes the socket send multicasts over the broadcast link. Takes no value.
    pub const MCAST_BROADCAST: u32 = 133;
    /// Makes the socket send multicasts as one copy to each node. Takes no value.
    pub const MCAST_REPLICAST: u32 = 134;
    /// The group that the socket is in, 0 if it is in none; read only. [`Node::join`](crate::node::Node::join) joins a
    /// group.
    pub const GROUP_JOIN: u32 = 135;
    /// Leaves the group. Takes no value.
    pub const GROUP_LEAVE: u32 = 136;
    /// Number of bytes that received messages occupy, including overhead and messages held back to restore their order.
    pub const SOCK_RECVQ_USED: u32 = 137;
    /// Whether small writes to a stream are sent immediately instead of merged; write only.
    pub const NODELAY: u32 = 138;
}

impl Node {
    /// Sets an option by its number, like `setsockopt` at level `SOL_TIPC`; `None` means that the value is missing. Two
    /// options cannot be set here, because they need more than a number: use [`Node::join`] for [`option::GROUP_JOIN`],
    /// and [`Node::leave`] for [`option::GROUP_LEAVE`].
    ///
    /// # Errors
    /// [`SocketError::Invalid`] for an unknown option, an invalid or missing value, or a value where none is expected;
    /// [`SocketError::NoSuchOption`] if this kind of socket does not have the option; [`SocketError::BadSocket`].
    pub fn set_option(
        &mut self,
        port: Port,
        number: u32,
        value: Option<u32>,
    ) -> Result<(), SocketError> {
        let socket = self.socket(port)?;
        let (kind, mut options) = (socket.kind, socket.options);
        match number {
            option::MCAST_BROADCAST | option::MCAST_REPLICAST if value.is_none() => {
                options.multicast = if number == option::MCAST_BROADCAST {
                    MulticastMethod::Broadcast
                } else {
                    MulticastMethod::Replicast
                };
                return self.set_options(port, options);
            }
            option::MCAST_BROADCAST | option::MCAST_REPLICAST => return Err(SocketError::Invalid),
            _ => {}
        }
        let value = value.ok_or(SocketError::Invalid)?;
        match number {
            option::IMPORTANCE => {
                options.importance = Importance::from_number(value).ok_or(SocketError::Invalid)?;
            }
            option::SRC_DROPPABLE if kind == SocketKind::Stream => {
                return Err(SocketError::NoSuchOption);
            }
            option::SRC_DROPPABLE => options.src_droppable = value != 0,
            option::DEST_DROPPABLE => options.dest_droppable = value != 0,
            // Linux keeps 16 bits of it.
            option::CONN_TIMEOUT => {
                options.connect_timeout = Duration::from_millis((value & 0xffff).into());
            }
            option::NODELAY => options.nodelay = value != 0,
            _ => return Err(SocketError::Invalid),
        }
        self.set_options(port, options)
    }

    /// Reads an option by its number, like `getsockopt` at level `SOL_TIPC`.
    ///
    /// # Errors
    /// [`SocketError::Invalid`] if the option cannot be read, [`SocketError::BadSocket`].
    pub fn get_option(&mut self, port: Port, number: u32) -> Result<u32, SocketError> {
        let socket = self.socket(port)?;
        let (options, group) = (socket.options, socket.group.as_ref());
        Ok(match number {
            option::IMPORTANCE => options.importance as u32,
            option::SRC_DROPPABLE => options.src_droppable.into(),
            option::DEST_DROPPABLE => options.dest_droppable.into(),
            option::CONN_TIMEOUT => options.connect_timeout.as_millis() as u32,
            option::NODE_RECVQ_DEPTH => 0,
            option::SOCK_RECVQ_DEPTH => socket.queued() as u32,
            option::SOCK_RECVQ_USED => socket.held_bytes() as u32,
            option::GROUP_JOIN => group.map_or(0, |group| group.request.group),
            _ => return Err(SocketError::Invalid),
        })
    }
}
