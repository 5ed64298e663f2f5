//! A program's socket, as seen by the service.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use crossway_tipc_client::address::{self as local, ENCODED_LEN};
use crossway_tipc_client::protocol::control::SocketKind;
use crossway_tipc_client::protocol::record::HEADER_LEN;
use crossway_tipc_proto::addr::{NodeAddr, Port, Scope, ServiceRange, SocketAddr};
use crossway_tipc_proto::node::{ConnectionRequest, Taken};
use crossway_tipc_proto::socket as proto;
use crossway_tipc_proto::socket::Address;
use crossway_tipc_proto::time::Nanos;

use super::direct::Direct;
use super::downlane::Down;
use super::held::Held;
use super::lanes::Lanes;
use super::limits::MEAN_AT_FIRST;
use super::token::Place;

/// State of a socket beyond what its node knows.
#[derive(Debug)]
pub(super) enum Phase {
    Open,
    Listening,
    Connecting,
    Connected,
    Disconnected,
    /// A connection request has been passed to the program; acceptance or refusal is reported to this listener.
    Offered {
        request: ConnectionRequest,
        listener: Place,
    },
}

/// A message in transfer to the program.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) header: [u8; HEADER_LEN],
    pub(super) taken: Taken,
}

/// A message in the program's descriptor or lane that may be unread.
#[derive(Debug)]
pub(super) struct Unread {
    /// Length of its payload.
    pub(super) bytes: usize,
    /// The message itself, if its sender wants it returned when it is not read.
    pub(super) taken: Option<Taken>,
}

/// State of a socket.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) fd: OwnedFd,
    pub(super) token: u64,
    /// The kernel's cookie of the program's end.
    pub(super) cookie: u64,
    /// `None` while a connection request is offered.
    pub(super) port: Option<Port>,
    pub(super) kind: SocketKind,
    pub(super) client: Place,
    pub(super) slot: u32,
    pub(super) phase: Phase,
    /// The descriptor may hold more data, and the socket is in the list of those to be read.
    pub(super) readable: bool,
    pub(super) listed: bool,
    /// The program sends no more; data sent before may still be in the descriptor.
    pub(super) ended: bool,
    /// The end was reported as an error, ahead of data sent before.
    pub(super) ended_early: bool,
    /// Number of bytes found by the last read of the descriptor, and the average length of a message.
    pub(super) last_read: usize,
    pub(super) mean: usize,
    /// The descriptor had room when it was last written to.
    pub(super) writable: bool,
    /// Epoll reports room in the descriptor. Otherwise it would wake the service for each message that the program receives.
    pub(super) watches_room: bool,
    /// The contents of the descriptor are left there so that it polls unwritable.
    pub(super) holds: bool,
    /// Number of stream bytes that are only padding.
    pub(super) pad_owed: usize,
    pub(super) stalled: Held,
    /// Messages taken from the node and not yet written to the descriptor.
    pub(super) out: VecDeque<Outgoing>,
    /// Number of bytes of the first of these already written to a stream's descriptor.
    pub(super) out_sent: usize,
    /// Number of messages written to the descriptor.
    pub(super) pushed: u64,
    /// Those of them that the program may not have read, oldest first.
    pub(super) unread: VecDeque<Unread>,
    /// How the connection ended, to be reported when `out` is empty.
    pub(super) end: Option<u8>,
    /// Set if the program has closed the socket or wants to shut the connection down, and data sent before still has to be sent: the time at
    /// which to give up unless some of it is sent.
    pub(super) lingers: Option<Nanos>,
    /// The program wants to shut the connection down, which is postponed until data sent before has been sent. Also set if the program closes
    /// the socket in the meantime.
    pub(super) shuts: bool,
    /// The program has closed the socket, and all its data has been read.
    pub(super) gone: bool,
    /// Connection requests passed to the program, oldest first.
    pub(super) offers: VecDeque<Place>,
    /// Amount read from the descriptor and passed to the node, in the units of [`slot::TAKEN`].
    ///
    /// [`slot::TAKEN`]: crossway_tipc_client::protocol::slot::TAKEN
    pub(super) taken: u64,
    /// A process other than its own program's holds it too, and may not count what it writes.
    pub(super) adopted: bool,
    pub(super) lanes: Option<Box<Lanes>>,
    /// The lane through which the program receives, once requested.
    pub(super) down: Option<Box<Down>>,
    /// The connection's other end if it is a socket of this service too, and direct lanes are used.
    pub(super) peer: Option<Place>,
}

impl Local {
    /// `held_most` limits the bytes of its messages that wait in the service.
    pub(super) fn new(
        fd: OwnedFd,
        (token, cookie): (u64, u64),
        kind: SocketKind,
        (client, slot): (Place, u32),
        phase: Phase,
        held_most: usize,
    ) -> Self {
        Self {
            fd,
            token,
            cookie,
            port: None,
            kind,
            client,
            slot,
            phase,
            readable: false,
            listed: false,
            ended: false,
            ended_early: false,
            last_read: 0,
            mean: MEAN_AT_FIRST,
            writable: true,
            watches_room: false,
            holds: false,
            pad_owed: 0,
            stalled: Held::new(held_most),
            out: VecDeque::new(),
            out_sent: 0,
            pushed: 0,
            unread: VecDeque::new(),
            end: None,
            lingers: None,
            shuts: false,
            gone: false,
            offers: VecDeque::new(),
            taken: 0,
            adopted: false,
            lanes: None,
            down: None,
            peer: None,
        }
    }

    /// Forgets the messages that the program has read, according to its own count.
    pub(super) fn note_consumed(&mut self, consumed: u64) {
        // A count above the number written is false; it only harms the senders of messages that the program did not read.
        let unread = self.pushed.saturating_sub(consumed);
        while self.unread.len() as u64 > unread {
            self.unread.pop_front();
        }
    }

    /// Number of messages that are no longer in the node and that the program has not read, and their length in bytes. For a stream, only those
    /// not written to its descriptor.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let unread = self.unread.iter().chain(self.unread_in_lane());
        let unread: Vec<usize> = unread.map(|message| message.bytes).collect();
        let out = self.out.iter().map(|outgoing| outgoing.taken.payload().len());
        // What a stream's program has not read is not counted, as with its descriptor.
        let direct = self.direct().filter(|_| self.kind != SocketKind::Stream);
        let (count, bytes) = direct.map_or((0, 0), Direct::waiting);
        let bytes: usize = unread.iter().copied().chain(out).sum::<usize>() + bytes;
        (unread.len() + self.out.len() + count, bytes)
    }

    /// Whether the program's messages should be read now.
    pub(super) fn may_read(&self) -> bool {
        self.readable && !self.holds && (self.stalled.is_empty() || self.wants_relief())
    }
}

pub(super) const fn proto_kind(kind: SocketKind) -> proto::SocketKind {
    match kind {
        SocketKind::Stream => proto::SocketKind::Stream,
        SocketKind::Dgram => proto::SocketKind::Dgram,
        SocketKind::Rdm => proto::SocketKind::Rdm,
        SocketKind::Seqpacket => proto::SocketKind::Seqpacket,
    }
}

pub(super) const fn proto_range(range: local::ServiceRange) -> ServiceRange {
    ServiceRange { service: range.service, lower: range.lower, upper: range.upper }
}

pub(super) const fn proto_scope(scope: local::Scope) -> Scope {
    match scope {
        local::Scope::Cluster => Scope::Cluster,
        local::Scope::Node => Scope::Node,
    }
}

/// Converts an address to the node's form; `None` if it is invalid.
pub(super) fn proto_address(raw: &[u8; ENCODED_LEN]) -> Option<Address> {
    Some(match local::Address::decode(raw).ok()? {
        local::Address::Range(range) => Address::Range(proto_range(range)),
        local::Address::Service { service, instance, domain } => {
            Address::Service { service, instance, domain: NodeAddr(domain) }
        }
        local::Address::Socket(s) => {
            Address::Socket(SocketAddr { port: Port(s.port), node: NodeAddr(s.node) })
        }
    })
}

pub(super) const fn local_socket(addr: SocketAddr) -> local::SocketAddress {
    local::SocketAddress { port: addr.port.0, node: addr.node.0 }
}

pub(super) const fn local_range(range: ServiceRange) -> local::ServiceRange {
    local::ServiceRange { service: range.service, lower: range.lower, upper: range.upper }
}
