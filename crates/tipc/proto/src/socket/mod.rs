//! Sockets as applications use them. The node routes messages; a socket queues them, and stores the state of its
//! connection.

mod connection;
mod error;
mod group;
mod mcast_order;
mod merge;
mod options;

pub(crate) use connection::{Connecting, Connection, blocks};
pub use error::SocketError;
pub(crate) use group::{Group, GroupData, GroupItem, Outcome, Refusal, group_blocks};
pub use group::{GroupRequest, GroupSource, MembershipEvent};
pub(crate) use mcast_order::{Arrival, McastOrder};
pub(crate) use merge::Merge;
pub use options::{MulticastMethod, SocketOptions};

use crate::addr::{Importance, NodeAddr, Port, Scope, ServiceRange, SocketAddr};
use crate::limits::MESSAGE_OVERHEAD;
use crate::node::Traffic;
use crate::seq::Seq;
use crate::time::Nanos;
use crate::wire::{DataKind, DataMessage, ErrorCode, Packet, User};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Kind of a socket, which determines the service that it provides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum SocketKind {
    /// Connectionless messages, reliable unless the receiver's buffer is full.
    Rdm,
    /// Like RDM, but messages may be dropped when a link is congested, so that the sender does not wait.
    Dgram,
    /// A connection that preserves message boundaries.
    Seqpacket,
    /// A connection that transfers a byte stream.
    Stream,
}

impl SocketKind {
    /// Whether sockets of this kind must be connected to exchange data.
    pub const fn is_connected_kind(self) -> bool {
        matches!(self, Self::Seqpacket | Self::Stream)
    }
}

/// Destination of a message or a connection request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Address {
    /// One socket, by its port and node.
    Socket(SocketAddr),
    /// A service instance: one of its bindings, in round-robin order.
    Service {
        /// Type of the service.
        service: u32,
        /// Instance of the service.
        instance: u32,
        /// The node that looks the instance up; 0 for a lookup by this node in the whole cluster.
        domain: NodeAddr,
    },
    /// Every socket bound to a range that shares an instance with this one.
    Range(ServiceRange),
}

/// What a socket received: a message, a returned message, or an event of its connection or group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// The sending socket, or for a returned message the socket that rejected it.
    pub from: SocketAddr,
    /// The service that the sender addressed; `None` for messages to a port.
    pub service: Option<ServiceRange>,
    /// [`ErrorCode::Ok`] for received data; otherwise, why this message, which we had sent, was returned, or how the
    /// connection ended.
    pub error: ErrorCode,
    /// The payload, possibly cut in a returned message. Empty, with [`ErrorCode::ConnShutdown`], at the end of a connection that
    /// the peer shut down.
    pub payload: Vec<u8>,
    /// The sending member if the message was received in a group; `None` otherwise.
    pub group: Option<GroupSource>,
    /// Whether the message was longer than the caller's limit, so that the rest was discarded.
    pub truncated: bool,
}

/// Which operations on a socket would not block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Readiness {
    /// Whether a message, the end of a connection or a connection request is waiting.
    pub readable: bool,
    /// Whether a send would be accepted, as far as the socket's own state is concerned. A congested link may still
    /// refuse it.
    pub writable: bool,
    /// Whether the connection has ended.
    pub hangup: bool,
}

/// State of a socket.
#[derive(Clone, Debug)]
pub(crate) enum SocketState {
    /// Newly opened, or of a connectionless kind.
    Open,
    /// Listening: connection requests wait in the socket's queue to be accepted.
    Listening,
    /// The socket has requested a connection and waits for the answer.
    Connecting(Connecting),
    /// The socket's connection is established.
    Connected(Connection),
    /// The socket's connection has ended.
    Disconnected,
}

/// The sender of a group message, with its group information.
pub(crate) type FromMember = (SocketAddr, GroupSource);

/// An item in a socket's receive queue.
#[derive(Clone, Debug)]
struct Queued {
    /// `None` for a membership event.
    message: Option<Packet>,
    /// The sending member of a group message.
    member: Option<FromMember>,
}

impl Queued {
    /// The part of the receive buffer that the item occupies, in bytes.
    fn cost(&self) -> usize {
        self.message.as_ref().map_or(0, Packet::size) + MESSAGE_OVERHEAD
    }
}

/// State of a socket and its queue.
#[derive(Clone, Debug)]
pub(crate) struct Socket {
    pub(crate) kind: SocketKind,
    pub(crate) options: SocketOptions,
    pub(crate) state: SocketState,
    pub(crate) bindings: Vec<(ServiceRange, Scope, u32)>,
    /// The user whose share of the node's common resources the socket uses; `None` if it is not limited.
    pub(crate) user: Option<u32>,
    /// Destination of sends without an address.
    pub(crate) default_dest: Option<Address>,
    /// The service through which the connection was made.
    pub(crate) service: Option<ServiceRange>,
    /// Method of the last multicast to other nodes (true: replicast), and when it was sent.
    pub(crate) last_cast: Option<(bool, Nanos)>,
    /// Multicasts held back while their sender switches methods.
    pub(crate) mcast_order: McastOrder,
    /// The socket's group membership.
    pub(crate) group: Option<Group>,
    /// Number of the first broadcast in the next group that the socket joins.
    pub(crate) group_next: Seq,
    /// Traffic sent through the socket. `received` is the traffic that it has received, including returned messages.
    pub(crate) sent: Traffic,
    pub(crate) received: Traffic,
    queue: VecDeque<Queued>,
    queue_bytes: usize,
    /// Number of bytes of the first message that the reader of a stream has already consumed.
    taken: usize,
}

impl Socket {
    pub(crate) const fn new(kind: SocketKind) -> Self {
        Self {
            kind,
            options: SocketOptions::new(kind),
            state: SocketState::Open,
            bindings: Vec::new(),
            user: None,
            default_dest: None,
            service: None,
            last_cast: None,
            mcast_order: McastOrder::new(),
            group: None,
            group_next: Seq(0),
            sent: Traffic { messages: 0, bytes: 0 },
            received: Traffic { messages: 0, bytes: 0 },
            queue: VecDeque::new(),
            queue_bytes: 0,
            taken: 0,
        }
    }

    /// Whether the receive queue has room for a message of this importance.
    pub(crate) fn has_room(&self, importance: Importance) -> bool {
        match &self.group {
            Some(group) => self.queue_bytes < group.receive_bytes(),
            None => self.queue_bytes < self.options.receive_bytes << importance as u32,
        }
    }

    pub(crate) fn push(&mut self, message: Packet) {
        self.enqueue(Queued { message: Some(message), member: None });
    }

    /// Queues a group message or a membership event.
    pub(crate) fn push_group(&mut self, item: GroupItem) {
        self.enqueue(Queued { message: item.message, member: Some((item.from, item.source)) });
    }

    fn enqueue(&mut self, queued: Queued) {
        self.queue_bytes += queued.cost();
        self.queue.push_back(queued);
    }

    /// Removes and returns the next message of a socket that is in no group.
    pub(crate) fn pop(&mut self) -> Option<Packet> {
        self.pop_member().and_then(|(message, _)| message)
    }

    /// Removes and returns the next item: a message and, for a group message, its sender; or a membership event, which
    /// has no message.
    pub(crate) fn pop_member(&mut self) -> Option<(Option<Packet>, Option<FromMember>)> {
        let queued = self.queue.pop_front()?;
        self.queue_bytes -= queued.cost();
        self.taken = 0;
        Some((queued.message, queued.member))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn held_bytes(&self) -> usize {
        let group = self.group.as_ref().map_or(0, Group::held_bytes);
        self.queue_bytes + self.mcast_order.held_bytes() + group
    }

    pub(crate) fn readiness(&self) -> Readiness {
        let readable = !self.queue.is_empty();
        match &self.state {
            SocketState::Open => {
                let writable = self.group.as_ref().is_none_or(Group::is_open);
                Readiness { readable, writable, hangup: false }
            }
            SocketState::Listening | SocketState::Connecting(_) => {
                Readiness { readable, ..Readiness::default() }
            }
            SocketState::Connected(c) => {
                Readiness { readable, writable: !c.is_congested(), hangup: false }
            }
            SocketState::Disconnected => {
                Readiness { readable: true, writable: false, hangup: true }
            }
        }
    }

    /// Removes and returns the next message, or up to `max` bytes of a stream. The second value is the number of blocks
    /// read, for flow control.
    pub(crate) fn take(&mut self, max: usize) -> Result<(Received, u16), SocketError> {
        if matches!(self.state, SocketState::Listening) {
            return Err(SocketError::Invalid);
        }
        let Some(front) = self.queue.front() else {
            return Err(match self.state {
                SocketState::Open if self.kind.is_connected_kind() => SocketError::NotConnected,
                _ => SocketError::WouldBlock,
            });
        };
        let mut received = match front.member {
            Some((from, source)) if source.event.is_some() => news(from, source),
            member => {
                let message = front.message.as_ref().ok_or(SocketError::WouldBlock)?;
                let mut received = describe(message).ok_or(SocketError::WouldBlock)?;
                if let Some((from, source)) = member {
                    (received.from, received.group) = (from, Some(source));
                }
                received
            }
        };
        if self.kind.is_connected_kind() {
            if received.error != ErrorCode::Ok {
                if received.error != ErrorCode::ConnShutdown {
                    // Leave it in the queue, so that every further call gets the same error.
                    return Err(SocketError::ConnectionReset);
                }
                self.pop();
                received.payload.clear();
                return Ok((received, 0));
            }
            received.service = self.service;
        }
        if self.kind == SocketKind::Stream {
            return Ok(self.take_stream(received, max));
        }
        self.pop();
        let cost = match received.group {
            Some(_) => group_blocks(received.payload.len()) as u16,
            None => blocks(received.payload.len()),
        };
        received.truncated = received.payload.len() > max;
        received.payload.truncate(max);
        Ok((received, cost))
    }

    fn take_stream(&mut self, mut first: Received, max: usize) -> (Received, u16) {
        first.payload.clear();
        let mut cost = 0;
        while first.payload.len() < max
            && let Some(message) = self.queue.front().and_then(|q| q.message.as_ref())
        {
            let view = message.view();
            if view.error_code() != Some(ErrorCode::Ok) {
                break;
            }
            let rest = &view.data()[self.taken..];
            let part = rest.len().min(max - first.payload.len());
            first.payload.extend_from_slice(&rest[..part]);
            if part < rest.len() {
                self.taken += part;
            } else {
                cost += blocks(view.data().len());
                self.pop();
            }
        }
        (first, cost)
    }
}

/// Converts a membership event into a received message.
fn news(from: SocketAddr, source: GroupSource) -> Received {
    Received {
        from,
        service: None,
        error: ErrorCode::Ok,
        payload: Vec::new(),
        group: Some(source),
        truncated: false,
    }
}

/// Decodes a queued data message for its receiver.
pub(crate) fn describe(message: &Packet) -> Option<Received> {
    let view = message.view();
    let Some(User::Data(importance)) = view.user() else { return None };
    let message = DataMessage::decode(&view, importance).ok()?;
    let service = match message.kind {
        DataKind::Named { service, instance, .. } => Some(ServiceRange::single(service, instance)),
        DataKind::Mcast { range, .. } => Some(range),
        _ => None,
    };
    Some(Received {
        from: SocketAddr { port: Port(message.orig_port.0), node: view.orig_node() },
        service,
        error: message.error,
        payload: message.payload.to_vec(),
        group: None,
        truncated: false,
    })
}
