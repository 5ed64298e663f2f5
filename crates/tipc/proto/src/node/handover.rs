//! Messages and connection requests by value, for a caller that passes them on to other processes. If the other process
//! does not read a message, the caller can give it back.

use super::Node;
use crate::addr::{Port, ServiceRange, SocketAddr};
use crate::socket::{
    Address, FromMember, GroupSource, SocketError, SocketKind, SocketState, blocks, group_blocks,
};
use crate::time::Nanos;
use crate::wire::{ConnManagerKind, DataKind, DataMessage, ErrorCode, Packet, User};

/// A message taken from a socket's queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taken {
    /// `None` for a membership event.
    message: Option<Packet>,
    service: Option<ServiceRange>,
    member: Option<FromMember>,
}

/// A taken message as seen by its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Incoming<'a> {
    /// The sending socket, or for a returned message the socket that rejected it.
    pub from: SocketAddr,
    /// The service that was addressed or, for a connection, the service through which the connection was made.
    pub service: Option<ServiceRange>,
    /// [`ErrorCode::Ok`] for received data. Any other code says why this message, which we had sent, was returned, or
    /// how the connection ended.
    pub error: ErrorCode,
    /// The payload, possibly cut in a returned message.
    pub payload: &'a [u8],
    /// The sending member if the message was received in a group. A membership event also has a source, but no payload.
    pub group: Option<GroupSource>,
}

impl Taken {
    /// Describes the message as the application sees it: data, a returned message, the end of a connection, or a member
    /// that has joined or left.
    pub fn incoming(&self) -> Incoming<'_> {
        let nothing = Incoming {
            from: self.member.map_or_else(SocketAddr::default, |(from, _)| from),
            service: None,
            error: ErrorCode::Ok,
            payload: &[],
            group: self.member.map(|(_, source)| source),
        };
        let Some(view) = self.message.as_ref().map(Packet::view) else { return nothing };
        // Only messages decoded on arrival are ever queued.
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

    /// The payload of the message.
    pub fn payload(&self) -> &[u8] {
        self.message.as_ref().map_or(&[], |message| message.view().data())
    }

    /// Length of the message in bytes, including its header; 0 for a membership event.
    pub fn size(&self) -> usize {
        self.message.as_ref().map_or(0, Packet::size)
    }

    /// Whether the sender wants the message back and the message was not itself returned. [`Node::give_back`] returns
    /// such a message, unless it is a multicast.
    pub fn is_returnable(&self) -> bool {
        self.message
            .as_ref()
            .map(Packet::view)
            .is_some_and(|view| !view.bit19() && view.error_code() == Some(ErrorCode::Ok))
    }
}

/// A connection request taken from a listening socket's queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionRequest {
    /// The socket that requests the connection.
    pub peer: SocketAddr,
    /// The service through which the listener was found.
    pub service: Option<ServiceRange>,
    message: Packet,
}

impl Node {
    /// Removes and returns a socket's oldest message. The end of a connection is returned like a message, once.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] if there is none, [`SocketError::Invalid`] on a listening socket,
    /// [`SocketError::BadSocket`].
    pub fn take(&mut self, now: Nanos, port: Port) -> Result<Taken, SocketError> {
        let socket = self.socket(port)?;
        if matches!(socket.state, SocketState::Listening) {
            return Err(SocketError::Invalid);
        }
        let (message, member) = socket.pop_member().ok_or(SocketError::WouldBlock)?;
        let service = socket.service.filter(|_| socket.kind.is_connected_kind());
        let taken = Taken { message, service, member };
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

    /// Returns an unread message to its sender if [`Taken::is_returnable`] and the message is not a multicast;
    /// otherwise drops it.
    pub fn give_back(&mut self, now: Nanos, taken: &Taken) {
        if let Some(view) = taken.message.as_ref().map(Packet::view) {
            self.return_message(view.prev_node(), &view, ErrorCode::NoPort);
            self.run_local(now);
        }
    }

    /// Removes and returns the oldest connection request of a listening socket. The caller must accept or refuse it.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] if there is no request, [`SocketError::Invalid`] if the socket does not listen,
    /// [`SocketError::BadSocket`].
    pub fn take_request(&mut self, port: Port) -> Result<ConnectionRequest, SocketError> {
        let socket = self.socket(port)?;
        if !matches!(socket.state, SocketState::Listening) {
            return Err(SocketError::Invalid);
        }
        let message = socket.pop().ok_or(SocketError::WouldBlock)?;
        let described = crate::socket::describe(&message).ok_or(SocketError::WouldBlock)?;
        Ok(ConnectionRequest { peer: described.from, service: described.service, message })
    }

    /// Accepts a connection request with a new socket of this kind, notifies the peer and returns the new socket's port.
    ///
    /// # Errors
    /// [`SocketError::TooMany`]; the request is then refused.
    pub fn accept_request(
        &mut self,
        now: Nanos,
        kind: SocketKind,
        request: ConnectionRequest,
    ) -> Result<Port, SocketError> {
        if let Err(full) = self.check_room() {
            self.refuse_request(now, &request);
            return Err(full);
        }
        let new = self.complete_request(now, kind, request.message)?;
        self.run_local(now);
        Ok(new)
    }

    /// Refuses a connection request.
    pub fn refuse_request(&mut self, now: Nanos, request: &ConnectionRequest) {
        let view = request.message.view();
        self.return_message(view.prev_node(), &view, ErrorCode::NoPort);
        self.run_local(now);
    }

    /// Checks whether a message that this socket sends now would have a receiver, as far as this node knows. A group
    /// member sends within its group; if it gives no destination, it sends to all members.
    ///
    /// # Errors
    /// [`SocketError::Unreachable`] if there is no receiver; [`SocketError::Invalid`] for a range whose bounds are out
    /// of order, or if a socket that is in no group gives no destination; [`SocketError::BadSocket`].
    pub fn check_destination_for(
        &self,
        port: Port,
        dest: Option<Address>,
    ) -> Result<(), SocketError> {
        match (&self.sockets.get(&port).ok_or(SocketError::BadSocket)?.group, dest) {
            (Some(group), dest) if group.reaches(dest) => Ok(()),
            (Some(_), _) => Err(SocketError::Unreachable),
            (None, Some(dest)) => self.check_destination(dest),
            (None, None) => Err(SocketError::Invalid),
        }
    }

    /// Checks whether a message from a socket that is in no group would have a receiver.
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
