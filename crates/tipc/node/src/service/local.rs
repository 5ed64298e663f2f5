//! One socket of a program, as the service sees it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use crossway_tipc_client::address::{self as local, ENCODED_LEN};
use crossway_tipc_client::protocol::control::Kind;
use crossway_tipc_client::protocol::record::HEADER_LEN;
use crossway_tipc_proto::addr::{NodeAddr, Port, Scope, ServiceRange, SocketAddr};
use crossway_tipc_proto::node::{ConnectionRequest, Taken};
use crossway_tipc_proto::socket::{Address, SocketKind};
use crossway_tipc_proto::time::Nanos;

use super::downlane::Down;
use super::held::Held;
use super::lanes::Lanes;
use super::limits::MEAN_AT_FIRST;
use super::token::Place;

/// Where a socket stands, beyond what its node knows.
#[derive(Debug)]
pub(super) enum Phase {
    Open,
    Listening,
    Connecting,
    Connected,
    Disconnected,
    /// A request for a connection is in the program's hands; accepting or refusing it comes back to this listener.
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

/// A message in the hands of the program.
#[derive(Debug)]
pub(super) struct Unread {
    /// Of its payload.
    pub(super) octets: usize,
    /// The message, of one that its sender wants back.
    pub(super) taken: Option<Taken>,
}

/// One socket.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) fd: OwnedFd,
    pub(super) token: u64,
    /// The kernel's number of the program's end.
    pub(super) cookie: u64,
    /// `None` while a request is offered.
    pub(super) port: Option<Port>,
    pub(super) kind: Kind,
    pub(super) client: Place,
    pub(super) slot: u32,
    pub(super) phase: Phase,
    /// The descriptor may hold more to read, and it is in the list of those to be read.
    pub(super) readable: bool,
    pub(super) listed: bool,
    /// The program sends no more; what it sent before may still be in the descriptor.
    pub(super) ended: bool,
    /// This was told by an error, ahead of what it sent.
    pub(super) ended_early: bool,
    /// Octets that the last look at the descriptor found, and those of one message on average.
    pub(super) last_read: usize,
    pub(super) mean: usize,
    /// The descriptor had room when it was last written to.
    pub(super) writable: bool,
    /// What is in the descriptor stays there, so that it polls unwritable.
    pub(super) holds: bool,
    /// Octets of a stream that only filled the descriptor.
    pub(super) pad_owed: usize,
    pub(super) stalled: Held,
    /// Taken out of the node and not yet in the descriptor.
    pub(super) out: VecDeque<Outgoing>,
    /// Octets of the first of these that a stream's descriptor has.
    pub(super) out_sent: usize,
    /// Messages put into the descriptor.
    pub(super) pushed: u64,
    /// Those of them that the program may not have read, oldest first.
    pub(super) unread: VecDeque<Unread>,
    /// How the connection ended, to be told when `out` is empty.
    pub(super) end: Option<u8>,
    /// The program is gone or wants the connection shut down, and what it sent before is still to go. When that is given up unless some
    /// of it goes.
    pub(super) lingers: Option<Nanos>,
    /// The program wants the connection shut down, which is put off until what it sent before has gone. Also when the program closes meanwhile.
    pub(super) shuts: bool,
    /// The program has closed the socket, and all that it sent was read.
    pub(super) gone: bool,
    /// Requests in the program's hands, oldest first.
    pub(super) offers: VecDeque<Place>,
    /// Read from the descriptor and handed to the node, in the units of [`slot::TAKEN`].
    ///
    /// [`slot::TAKEN`]: crossway_tipc_client::protocol::slot::TAKEN
    pub(super) taken: u64,
    /// A process that is not its program's holds it, too, and may not count what it writes.
    pub(super) adopted: bool,
    pub(super) lanes: Option<Box<Lanes>>,
    /// The lane by which the program receives, once it wants that.
    pub(super) down: Option<Box<Down>>,
}

impl Local {
    /// `held_most` bounds the octets of its messages that wait in the service.
    pub(super) fn new(
        fd: OwnedFd,
        (token, cookie): (u64, u64),
        kind: Kind,
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
        }
    }

    /// Forgets the messages that the program has read, by its own count.
    pub(super) fn note_consumed(&mut self, consumed: u64) {
        // More than was pushed is a lie; the program then only harms the senders of what it did not read.
        let unread = self.pushed.saturating_sub(consumed);
        while self.unread.len() as u64 > unread {
            self.unread.pop_front();
        }
    }

    /// Messages that are no longer in the node and that the program has not read, and their octets. Of a stream, only those that its
    /// descriptor has not taken.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let unread = self.unread.iter().chain(self.unread_in_lane());
        let unread: Vec<usize> = unread.map(|message| message.octets).collect();
        let out = self.out.iter().map(|outgoing| outgoing.taken.payload().len());
        (unread.len() + self.out.len(), unread.into_iter().chain(out).sum())
    }

    /// Whether messages of the program are to be read now.
    pub(super) fn may_read(&self) -> bool {
        self.readable && !self.holds && (self.stalled.is_empty() || self.wants_relief())
    }
}

pub(super) const fn proto_kind(kind: Kind) -> SocketKind {
    match kind {
        Kind::Stream => SocketKind::Stream,
        Kind::Dgram => SocketKind::Dgram,
        Kind::Rdm => SocketKind::Rdm,
        Kind::Seqpacket => SocketKind::Seqpacket,
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

/// The node's form of an address; `None` for one that is none.
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
