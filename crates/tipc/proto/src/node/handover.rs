//! Messages and connection requests by value, for a caller that hands them on to other processes and may get them back unread.

use super::Node;
use crate::addr::{Port, ServiceRange, SocketAddr};
use crate::socket::{
    Address, FromMember, GroupSource, SocketError, SocketKind, SocketState, blocks, group_blocks,
};
use crate::time::Nanos;
use crate::wire::{ConnManagerKind, DataKind, DataMessage, ErrorCode, User, View};
use alloc::vec::Vec;

/// A message that was taken out of a socket's queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    bytes: Vec<u8>,
    service: Option<ServiceRange>,
    member: Option<FromMember>,
}

/// What a taken message is for its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incoming<'a> {
    /// The sending socket; of a returned message, the socket that did not take it.
    pub from: SocketAddr,
    /// The service that was addressed; of a connection, the one that it was made through.
    pub service: Option<ServiceRange>,
    /// [`ErrorCode::Ok`]; or why this message of ours came back, or how the connection ended.
    pub error: ErrorCode,
    /// The payload, or what is left of it.
    pub payload: &'a [u8],
    /// The sending member, when this came within a group. News of a member have no payload.
    pub group: Option<GroupSource>,
}

impl Taken {
    /// What it is.
    pub fn incoming(&self) -> Incoming<'_> {
        let nothing = Incoming {
            from: self.member.map_or_else(SocketAddr::default, |(from, _)| from),
            service: None,
            error: ErrorCode::Ok,
            payload: &[],
            group: self.member.map(|(_, source)| source),
        };
        // Only what was decoded on arrival is ever queued.
        let Ok(view) = View::parse(&self.bytes) else { return nothing };
        let Some(User::Data(importance)) = view.user() else { return nothing };
        let Ok(message) = DataMessage::decode(&view, importance) else { return nothing };
        let service = match message.kind {
            DataKind::Named { service, instance, .. } => {
                Some(ServiceRange::single(service, instance))
            }
            DataKind::Mcast { range, .. } => Some(range),
            _ => self.service,
        };
        Incoming {
            from: SocketAddr { port: message.orig_port, node: view.orig_node() },
            service,
            error: message.error,
            payload: message.payload,
            group: self.member.map(|(_, source)| source),
        }
    }

    /// Its payload.
    pub fn payload(&self) -> &[u8] {
        View::parse(&self.bytes).map_or(&[], |view| view.data())
    }

    /// Octets that it holds.
    pub fn octets(&self) -> usize {
        self.bytes.len()
    }

    /// Whether [`Node::give_back`] would return it to its sender, who asked for that.
    pub fn is_returnable(&self) -> bool {
        View::parse(&self.bytes)
            .is_ok_and(|view| !view.bit19() && view.error_code() == Some(ErrorCode::Ok))
    }
}

/// A request for a connection that was taken out of a listening socket's queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionRequest {
    /// Who asks.
    pub peer: SocketAddr,
    /// The service through which the listener was found.
    pub service: Option<ServiceRange>,
    bytes: Vec<u8>,
}

impl Node {
    /// Takes the oldest message of a socket whole; of a connection also its end, once.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] when there is none, [`SocketError::Invalid`] on a listening socket.
    pub fn take(&mut self, now: Nanos, port: Port) -> Result<Taken, SocketError> {
        let socket = self.socket(port)?;
        if matches!(socket.state, SocketState::Listening) {
            return Err(SocketError::Invalid);
        }
        let (bytes, member) = socket.pop_member().ok_or(SocketError::WouldBlock)?;
        let service = socket.service.filter(|_| socket.kind.is_connected_kind());
        let taken = Taken { bytes, service, member };
        if let Some((from, source)) = member {
            if source.event.is_none() {
                self.group_read(port, from, group_blocks(taken.payload().len()));
                self.run_local(now);
            }
            return Ok(taken);
        }
        if let SocketState::Connected(c) = &mut socket.state
            && let Some((blocks, window)) = c.read(blocks(taken.incoming().payload.len()), false)
        {
            let peer = c.peer;
            self.send_conn(port, peer, ConnManagerKind::Ack { blocks, window, nagle: false });
            self.run_local(now);
        }
        Ok(taken)
    }

    /// Returns a message that nobody read to its sender, if that wants it.
    pub fn give_back(&mut self, now: Nanos, taken: &Taken) {
        if let Ok(view) = View::parse(&taken.bytes) {
            self.return_message(view.prev_node(), &view, ErrorCode::NoPort);
            self.run_local(now);
        }
    }

    /// Takes the oldest connection request of a listening socket. It is to be accepted or refused.
    ///
    /// # Errors
    /// As [`Node::accept`].
    pub fn take_request(&mut self, port: Port) -> Result<ConnectionRequest, SocketError> {
        let socket = self.socket(port)?;
        if !matches!(socket.state, SocketState::Listening) {
            return Err(SocketError::Invalid);
        }
        let bytes = socket.pop().ok_or(SocketError::WouldBlock)?;
        let described = crate::socket::describe(&bytes).ok_or(SocketError::WouldBlock)?;
        Ok(ConnectionRequest { peer: described.from, service: described.service, bytes })
    }

    /// Accepts a connection request for a socket of this kind: the new socket's port. The peer learns of it now.
    ///
    /// # Errors
    /// [`SocketError::TooMany`].
    pub fn accept_request(
        &mut self,
        now: Nanos,
        kind: SocketKind,
        request: ConnectionRequest,
    ) -> Result<Port, SocketError> {
        let new = self.complete_request(now, kind, request.bytes)?;
        self.run_local(now);
        Ok(new)
    }

    /// Refuses a connection request.
    pub fn refuse_request(&mut self, now: Nanos, request: &ConnectionRequest) {
        if let Ok(view) = View::parse(&request.bytes) {
            self.return_message(view.prev_node(), &view, ErrorCode::NoPort);
            self.run_local(now);
        }
    }

    /// Whether a message that this socket sent there now would find somebody, as far as this node knows. A member of a group sends within
    /// it, and without a destination to all.
    ///
    /// # Errors
    /// [`SocketError::Unreachable`]; [`SocketError::Invalid`] for a range in the wrong order and no destination outside a group.
    pub fn check_destination_for(
        &self,
        port: Port,
        dest: Option<Address>,
    ) -> Result<(), SocketError> {
        match (&self.sockets.get(&port).ok_or(SocketError::Invalid)?.group, dest) {
            (Some(group), dest) if group.reaches(dest) => Ok(()),
            (Some(_), _) => Err(SocketError::Unreachable),
            (None, Some(dest)) => self.check_destination(dest),
            (None, None) => Err(SocketError::Invalid),
        }
    }

    /// The same for a socket that is in no group.
    fn check_destination(&self, dest: Address) -> Result<(), SocketError> {
        let dest = match dest {
            Address::Service { service, instance, domain } => {
                Address::Service { service, instance, domain: self.lookup_domain(domain) }
            }
            other => other,
        };
        let found = match dest {
            Address::Socket(to) => self.is_reachable(to.node),
            Address::Service { service, instance, domain } if domain == Default::default() => {
                self.names.overlapping(ServiceRange::single(service, instance)).next().is_some()
            }
            Address::Service { service, instance, domain } if domain == self.own() => self
                .names
                .overlapping(ServiceRange::single(service, instance))
                .any(|b| b.socket.node == domain),
            Address::Service { domain, .. } => self.is_reachable(domain),
            Address::Range(range) if !range.is_valid() => return Err(SocketError::Invalid),
            Address::Range(range) => self.names.overlapping(range).next().is_some(),
        };
        if found { Ok(()) } else { Err(SocketError::Unreachable) }
    }
}
