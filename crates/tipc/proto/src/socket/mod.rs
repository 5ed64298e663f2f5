//! Sockets: what applications hold. The node routes; a socket queues, counts and keeps the state of its connection.

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
use crate::wire::{DataKind, DataMessage, ErrorCode, User, View};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// What kind of service a socket gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum SocketKind {
    /// Messages, reliable until a receiver's buffer is full; without connection.
    Rdm,
    /// As RDM, but the sender may drop messages instead of waiting.
    Dgram,
    /// A connection that keeps message boundaries.
    Seqpacket,
    /// A connection of octets.
    Stream,
}

impl SocketKind {
    /// Whether sockets of this kind are connected before they exchange data.
    pub const fn is_connected_kind(self) -> bool {
        matches!(self, Self::Seqpacket | Self::Stream)
    }
}

/// Where a message or a connection request is to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Address {
    /// One socket.
    Socket(SocketAddr),
    /// Any one binding of an instance; each in turn.
    Service {
        /// Service type.
        service: u32,
        /// Instance.
        instance: u32,
        /// The node that looks the instance up; 0 for this one, in the whole cluster.
        domain: NodeAddr,
    },
    /// Every socket bound to a range that shares an instance with this one.
    Range(ServiceRange),
}

/// One received message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// The sending socket; of a returned message, the socket that did not take it.
    pub from: SocketAddr,
    /// The service that was addressed, as the sender wrote it; `None` for messages to a port.
    pub service: Option<ServiceRange>,
    /// [`ErrorCode::Ok`], or why this message of ours came back.
    pub error: ErrorCode,
    /// What the sender sent, or what is left of it in a returned message. Empty, with [`ErrorCode::ConnShutdown`], at the end of a
    /// connection that the peer shut down.
    pub payload: Vec<u8>,
    /// The sending member, when this came within a group.
    pub group: Option<GroupSource>,
    /// The message was longer than the caller's limit and the rest is lost.
    pub truncated: bool,
}

/// What a socket can do without waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Readiness {
    /// A message, an end of connection or a connection request waits.
    pub readable: bool,
    /// A send would be taken, as far as the socket's own state goes.
    pub writable: bool,
    /// The connection is over.
    pub hangup: bool,
}

/// Where a socket stands.
#[derive(Clone, Debug)]
pub(crate) enum SocketState {
    /// Fresh, or without connections by kind.
    Open,
    /// Waits for connection requests.
    Listening,
    /// Has asked for a connection.
    Connecting(Connecting),
    /// Has one.
    Connected(Connection),
    /// Had one.
    Disconnected,
}

/// Who sent a message within a group, and what is known of it.
pub(crate) type FromMember = (SocketAddr, GroupSource);

/// What waits in a socket.
#[derive(Clone, Debug)]
struct Queued {
    message: Vec<u8>,
    /// The sending member, of what came within a group.
    member: Option<FromMember>,
}

/// One socket.
#[derive(Clone, Debug)]
pub(crate) struct Socket {
    pub(crate) kind: SocketKind,
    pub(crate) options: SocketOptions,
    pub(crate) state: SocketState,
    pub(crate) bindings: Vec<(ServiceRange, Scope, u32)>,
    /// Where to send when a send names no address.
    pub(crate) default_dest: Option<Address>,
    /// The service that the connection was made through.
    pub(crate) service: Option<ServiceRange>,
    /// The way the last multicast to other nodes went (true: by replicast), and when.
    pub(crate) last_cast: Option<(bool, Nanos)>,
    /// Multicasts that arrived while their sender changes the way.
    pub(crate) mcast_order: McastOrder,
    /// The group that it is a member of.
    pub(crate) group: Option<Group>,
    /// Number of its next broadcast, in the next group that it joins.
    pub(crate) group_next: Seq,
    /// What was sent and what came, returned messages included.
    pub(crate) sent: Traffic,
    pub(crate) received: Traffic,
    queue: VecDeque<Queued>,
    queue_octets: usize,
    /// Octets of the first message that a stream reader took already.
    taken: usize,
}

impl Socket {
    pub(crate) const fn new(kind: SocketKind) -> Self {
        Self {
            kind,
            options: SocketOptions::new(kind),
            state: SocketState::Open,
            bindings: Vec::new(),
            default_dest: None,
            service: None,
            last_cast: None,
            mcast_order: McastOrder::new(),
            group: None,
            group_next: Seq(0),
            sent: Traffic { messages: 0, octets: 0 },
            received: Traffic { messages: 0, octets: 0 },
            queue: VecDeque::new(),
            queue_octets: 0,
            taken: 0,
        }
    }

    /// Whether a message of this importance still fits.
    pub(crate) fn has_room(&self, importance: Importance) -> bool {
        match &self.group {
            Some(group) => self.queue_octets < group.receive_octets(),
            None => self.queue_octets < self.options.receive_octets << importance as u32,
        }
    }

    pub(crate) fn push(&mut self, message: Vec<u8>) {
        self.enqueue(Queued { message, member: None });
    }

    /// Queues a message of a group, or the news of a member.
    pub(crate) fn push_group(&mut self, item: GroupItem) {
        self.enqueue(Queued { message: item.bytes, member: Some((item.from, item.source)) });
    }

    fn enqueue(&mut self, queued: Queued) {
        self.queue_octets += queued.message.len() + MESSAGE_OVERHEAD;
        self.queue.push_back(queued);
    }

    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        self.pop_member().map(|(message, _)| message)
    }

    /// The next message and, when it came within a group, its sender. News have no octets.
    pub(crate) fn pop_member(&mut self) -> Option<(Vec<u8>, Option<FromMember>)> {
        let Queued { message, member } = self.queue.pop_front()?;
        self.queue_octets -= message.len() + MESSAGE_OVERHEAD;
        self.taken = 0;
        Some((message, member))
    }

    pub(crate) fn front(&self) -> Option<&[u8]> {
        self.queue.front().map(|q| &q.message[..])
    }

    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn octets(&self) -> usize {
        let group = self.group.as_ref().map_or(0, Group::octets);
        self.queue_octets + self.mcast_order.octets() + group
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

    /// Takes the next message, or of a stream up to `max` octets. The second value is the number of blocks read, for flow control.
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
                let mut received = describe(&front.message).ok_or(SocketError::WouldBlock)?;
                if let Some((from, source)) = member {
                    (received.from, received.group) = (from, Some(source));
                }
                received
            }
        };
        if self.kind.is_connected_kind() {
            if received.error != ErrorCode::Ok {
                if received.error != ErrorCode::ConnShutdown {
                    // Stays in the queue: whoever asks again hears the same.
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
            && let Some(view) = self.queue.front().and_then(|q| View::parse(&q.message).ok())
        {
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

/// A member has come or gone.
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

/// What a queued data message is for its receiver.
pub(crate) fn describe(bytes: &[u8]) -> Option<Received> {
    let view = View::parse(bytes).ok()?;
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
