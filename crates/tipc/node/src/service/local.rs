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
use super::halves::Halves;
use super::held::Held;
use super::lanes::Lanes;
use super::limits::MEAN_AT_FIRST;
use super::token::Place;

/// The state of a socket's connection.
#[derive(Debug)]
pub(super) enum Phase {
    Open,
    Listening,
    Connecting,
    Connected,
    Disconnected,
    /// A connection request for which this socket was created has been passed to the program. The program accepts or
    /// refuses it, and `listener` is notified.
    Offered {
        request: ConnectionRequest,
        listener: Place,
    },
}

/// A message on its way to the program.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) header: [u8; HEADER_LEN],
    pub(super) taken: Taken,
}

/// A message in the program's descriptor or lane that the program may not have read yet.
#[derive(Debug)]
pub(super) struct Unread {
    /// Length of its payload in bytes.
    pub(super) bytes: usize,
    /// The message itself, if its sender wants it returned in case it is not read.
    pub(super) taken: Option<Taken>,
}

/// State of a socket.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) fd: OwnedFd,
    pub(super) token: u64,
    /// The kernel's cookie (SO_COOKIE) of the program's end.
    pub(super) cookie: u64,
    /// `None` while the program has not answered the connection request for which the socket was created.
    pub(super) port: Option<Port>,
    pub(super) kind: SocketKind,
    pub(super) client: Place,
    pub(super) slot: u32,
    /// Number of the socket's bindings that are counted in its user's share.
    pub(super) bindings: usize,
    pub(super) phase: Phase,
    /// Whether the descriptor may hold more data.
    pub(super) readable: bool,
    /// Whether the socket is in the list of those to be read.
    pub(super) listed: bool,
    /// Whether the program will send nothing more; data that it sent before may still be in the descriptor.
    pub(super) ended: bool,
    /// Whether the end was reported as an error, before the data that the program had sent.
    pub(super) ended_early: bool,
    /// Number of bytes found by the last read of the descriptor.
    pub(super) last_read: usize,
    /// Length of the program's writes in bytes, judged by the reads of its descriptor; the largest so far, 0 before the
    /// first. For messages, it is the mean of a batch; for a stream, short writes that were read together count as one.
    pub(super) write_len: usize,
    /// Average length of the messages that the last read found, in bytes.
    pub(super) mean: usize,
    /// Whether the descriptor had room when it was last written to.
    pub(super) writable: bool,
    /// Whether epoll reports room in the descriptor. It does so only while the socket waits for room; otherwise it
    /// would wake the service for each message that the program receives.
    pub(super) watches_room: bool,
    /// Whether the contents of the descriptor must not be read, so that it polls unwritable for the program.
    pub(super) holds: bool,
    /// Number of bytes of padding still to be read from a stream's descriptor.
    pub(super) pad_owed: usize,
    pub(super) stalled: Held,
    /// Messages taken from the node and not yet written to the descriptor.
    pub(super) out: VecDeque<Outgoing>,
    /// Number of bytes of the first message in `out` that have already been written to a stream's descriptor.
    pub(super) out_sent: usize,
    /// Number of messages written to the descriptor.
    pub(super) pushed: u64,
    /// Messages that were written to the descriptor and that the program may not have read, oldest first.
    pub(super) unread: VecDeque<Unread>,
    /// How the connection ended, a TIPC error code; `None` while it has not ended. The end is reported when `out` is
    /// empty.
    pub(super) end: Option<u8>,
    /// Which directions of a stream have ended, if they end one by one.
    pub(super) halves: Halves,
    /// The time at which to stop sending data that precedes the end. It is postponed whenever some of that data is
    /// sent. Set if the program has closed the socket, or wants to shut the connection down, before all its data was
    /// sent; otherwise `None`.
    pub(super) lingers: Option<Nanos>,
    /// Whether the program wants to shut the connection down, which is postponed until the data sent before has been
    /// sent on. The value stays true if the program closes the socket in the meantime.
    pub(super) shuts: bool,
    /// Whether the program has closed the socket, and all its data has been read.
    pub(super) gone: bool,
    /// Sockets created for connection requests that the program has not answered yet, oldest request first.
    pub(super) offers: VecDeque<Place>,
    /// How much has been read from the descriptor and passed to the node, in the units of [`slot::TAKEN`].
    ///
    /// [`slot::TAKEN`]: crossway_tipc_client::protocol::slot::TAKEN
    pub(super) taken: u64,
    /// Whether another program has adopted the socket by its descriptor. That program may not count what it writes.
    pub(super) adopted: bool,
    pub(super) lanes: Option<Box<Lanes>>,
    /// The lane through which the program receives; `None` before it requests one.
    pub(super) down: Option<Box<Down>>,
    /// The other end of the connection if it is a socket of this service and direct lanes are enabled.
    pub(super) peer: Option<Place>,
}

impl Local {
    /// Creates the state of a new socket. `held_most` is the limit in bytes of the memory for its messages that wait in
    /// the service.
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
            bindings: 0,
            phase,
            readable: false,
            listed: false,
            ended: false,
            ended_early: false,
            last_read: 0,
            write_len: 0,
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
            halves: Halves::default(),
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

    /// Forgets the messages that the program has read. `consumed` is the program's own count of these.
    pub(super) fn note_consumed(&mut self, consumed: u64) {
        // A count above the number written is false; it only harms the senders of messages that the program did not read.
        let unread = self.pushed.saturating_sub(consumed);
        while self.unread.len() as u64 > unread {
            self.unread.pop_front();
        }
    }

    /// Returns the number of messages that have left the node and that the program has not read, and their length in
    /// bytes. For a stream, counts only what has not been written to its descriptor or lane.
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

    /// Whether data that the program has sent should be read now.
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
