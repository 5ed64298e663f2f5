//! Opening, binding, connecting and closing sockets.

use super::Node;
use super::names::BindError;
use crate::addr::{Port, Scope, ServiceRange, SocketAddr};
use crate::name_table::BindingError;
use crate::socket::{
    Address, Connecting, Connection, Readiness, Received, Socket, SocketError, SocketKind,
    SocketOptions, SocketState,
};
use crate::time::Nanos;
use crate::wire::{ConnManagerKind, ErrorCode, Packet};

impl Node {
    /// Opens a socket with a random port number.
    ///
    /// # Errors
    /// [`SocketError::TooMany`].
    pub fn open(&mut self, kind: SocketKind) -> Result<Port, SocketError> {
        self.check_room()?;
        loop {
            let port = Port(self.rng.next_u32());
            if port != Port(0) && !self.sockets.contains_key(&port) {
                let mut socket = Socket::new(kind);
                socket.options.group_patience = self.cfg.limits.group_patience;
                self.sockets.insert(port, socket);
                return Ok(port);
            }
        }
    }

    /// Checks that the node may have one more socket.
    pub(super) fn check_room(&self) -> Result<(), SocketError> {
        if self.sockets.len() < self.cfg.limits.sockets {
            Ok(())
        } else {
            Err(SocketError::TooMany)
        }
    }

    pub(super) fn socket(&mut self, port: Port) -> Result<&mut Socket, SocketError> {
        self.sockets.get_mut(&port).ok_or(SocketError::BadSocket)
    }

    /// Closes a socket: its bindings are withdrawn, its connection ends, and unread messages are returned.
    ///
    /// # Errors
    /// [`SocketError::BadSocket`].
    pub fn close(&mut self, now: Nanos, port: Port) -> Result<(), SocketError> {
        self.flush_stream(port);
        let _ = self.leave(now, port);
        let mut socket = self.sockets.remove(&port).ok_or(SocketError::BadSocket)?;
        self.clear_socket_timer(port, &socket.state);
        for (range, scope, key) in core::mem::take(&mut socket.bindings) {
            self.withdraw_at_any_cost(now, range, port, scope, key);
        }
        let connected = match socket.state {
            SocketState::Connected(ref c) => Some(c.peer),
            _ => None,
        };
        let mut returned = false;
        // After its end nothing more is sent to the peer, not even that messages were not read.
        let ended = matches!(socket.state, SocketState::Disconnected);
        while let Some((message, _)) = socket.pop_member().filter(|_| !ended) {
            let Some(view) = message.as_ref().map(Packet::view) else { continue };
            // In a connection, only the first unread message is returned.
            if connected.is_none() || !returned {
                returned |= self.return_message(view.prev_node(), &view, ErrorCode::NoPort);
            }
        }
        if let Some(peer) = connected
            && !returned
        {
            self.end_connection(port, peer, ErrorCode::NoPort);
        }
        self.run_local(now);
        Ok(())
    }

    /// Changes a socket's options.
    ///
    /// # Errors
    /// [`SocketError::BadSocket`].
    pub fn set_options(&mut self, port: Port, options: SocketOptions) -> Result<(), SocketError> {
        self.socket(port)?.options = options;
        if options.nodelay {
            // Data for which there is no room now is sent when there is.
            let _ = self.push_stream(port, false);
        }
        Ok(())
    }

    /// Counts a socket for a user. The subscriptions of all sockets of a user are limited
    /// ([`Limits::subscriptions_per_user`](crate::limits::Limits::subscriptions_per_user)); those of sockets without a user
    /// only by what the node has.
    ///
    /// # Errors
    /// [`SocketError::BadSocket`].
    pub fn set_user(&mut self, port: Port, user: Option<u32>) -> Result<(), SocketError> {
        self.socket(port)?.user = user;
        Ok(())
    }

    /// Returns which operations on the socket would not block.
    ///
    /// # Errors
    /// [`SocketError::BadSocket`].
    pub fn readiness(&self, port: Port) -> Result<Readiness, SocketError> {
        self.sockets.get(&port).map(Socket::readiness).ok_or(SocketError::BadSocket)
    }

    /// Binds a socket to a service range and informs every node in the scope. A range may be bound several times, by
    /// one socket or by several.
    ///
    /// # Errors
    /// [`SocketError::Invalid`] for a socket that has requested or made a connection, or a range whose bounds are out
    /// of order; [`SocketError::Access`] for a reserved service or a member of a group; [`SocketError::BadSocket`];
    /// [`SocketError::TooMany`]; or [`SocketError::WouldBlock`] if peers are slow to acknowledge earlier bindings.
    pub fn bind(
        &mut self,
        port: Port,
        range: ServiceRange,
        scope: Scope,
    ) -> Result<(), SocketError> {
        let socket = self.socket(port)?;
        if socket.group.is_some() {
            return Err(SocketError::Access);
        }
        // A kernel also binds a socket whose connection is pending, was refused or has ended.
        if !range.is_valid() || matches!(socket.state, SocketState::Connected { .. }) {
            return Err(SocketError::Invalid);
        }
        let key = self.publish(range, port, scope).map_err(|error| match error {
            BindError::Reserved => SocketError::Access,
            BindError::Congested => SocketError::WouldBlock,
            BindError::Table(BindingError::BadRange) => SocketError::Invalid,
            BindError::Table(BindingError::Exists | BindingError::TooMany) => SocketError::TooMany,
        })?;
        self.socket(port)?.bindings.push((range, scope, key));
        Ok(())
    }

    /// Withdraws one binding with exactly this range and scope, or all bindings of the socket if `which` is `None`.
    ///
    /// # Errors
    /// [`SocketError::Invalid`] if the socket has bindings, but none with that range and scope; [`SocketError::Access`]
    /// if the socket is a member of a group; [`SocketError::BadSocket`].
    pub fn unbind(
        &mut self,
        now: Nanos,
        port: Port,
        which: Option<(ServiceRange, Scope)>,
    ) -> Result<(), SocketError> {
        let socket = self.socket(port)?;
        if socket.group.is_some() {
            return Err(SocketError::Access);
        }
        let gone = match which {
            None => core::mem::take(&mut socket.bindings),
            // The kernel's behaviour for a socket without bindings.
            Some(_) if socket.bindings.is_empty() => return Ok(()),
            Some((range, scope)) => {
                let found = socket.bindings.iter().position(|b| (b.0, b.1) == (range, scope));
                alloc::vec![socket.bindings.remove(found.ok_or(SocketError::Invalid)?)]
            }
        };
        for (range, scope, key) in gone {
            self.withdraw_at_any_cost(now, range, port, scope, key);
        }
        Ok(())
    }

    /// Makes a socket accept connection requests.
    ///
    /// # Errors
    /// [`SocketError::NotSupported`] for connectionless kinds; [`SocketError::Invalid`] if it already listens, or has
    /// requested or made a connection; [`SocketError::BadSocket`].
    pub fn listen(&mut self, port: Port) -> Result<(), SocketError> {
        let socket = self.socket(port)?;
        if !socket.kind.is_connected_kind() {
            return Err(SocketError::NotSupported);
        }
        if !matches!(socket.state, SocketState::Open) {
            return Err(SocketError::Invalid);
        }
        socket.state = SocketState::Listening;
        Ok(())
    }

    /// Accepts the oldest connection request and notifies the peer. Returns the new socket's port and the peer's address.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] if there is no request; [`SocketError::Invalid`] if the socket does not listen;
    /// [`SocketError::NotSupported`] for connectionless kinds; [`SocketError::TooMany`] if the node has the maximum
    /// number of sockets: the request remains in the queue, as with Linux; [`SocketError::BadSocket`].
    pub fn accept(&mut self, now: Nanos, port: Port) -> Result<(Port, SocketAddr), SocketError> {
        let socket = self.socket(port)?;
        let kind = socket.kind;
        if !kind.is_connected_kind() {
            return Err(SocketError::NotSupported);
        }
        if !matches!(socket.state, SocketState::Listening) {
            return Err(SocketError::Invalid);
        }
        if socket.is_empty() {
            return Err(SocketError::WouldBlock);
        }
        self.check_room()?;
        let request = self.socket(port)?.pop().ok_or(SocketError::WouldBlock)?;
        let described = crate::socket::describe(&request).ok_or(SocketError::WouldBlock)?;
        let new = self.complete_request(now, kind, request)?;
        self.run_local(now);
        Ok((new, described.from))
    }

    /// Creates the new socket for an accepted request and answers the peer.
    pub(super) fn complete_request(
        &mut self,
        now: Nanos,
        kind: SocketKind,
        request: Packet,
    ) -> Result<Port, SocketError> {
        let described = crate::socket::describe(&request).ok_or(SocketError::WouldBlock)?;
        let new = self.open(kind)?;
        let peer = described.from;
        let probe_at = now + self.cfg.limits.connection_probe;
        let accepted = self.socket(new)?;
        accepted.service = described.service;
        if let Some(crate::wire::User::Data(importance)) = request.view().user() {
            accepted.options.importance = importance;
        }
        accepted.state = SocketState::Connected(Connection::new(peer, probe_at));
        if !described.payload.is_empty() {
            accepted.push(request);
        }
        self.set_socket_timer(new, probe_at);
        // The answer is an empty message of the connection. It bypasses congestion: there is one per accepted request.
        self.answer_request(new, peer);
        Ok(new)
    }

    /// Requests a connection; `payload`, unless empty, becomes its first message. An event reports the result; until
    /// then, the socket is neither readable nor writable. On a connectionless socket, this call sets the default
    /// destination, or clears it if `dest` is `None`.
    ///
    /// # Errors
    /// [`SocketError`], as returned by the kernel in the same situation; [`SocketError::InProgress`] means that the request was sent.
    pub fn connect(
        &mut self,
        now: Nanos,
        port: Port,
        dest: Option<Address>,
        payload: &[u8],
    ) -> Result<(), SocketError> {
        let socket = self.socket(port)?;
        if socket.group.is_some() {
            return Err(SocketError::Invalid);
        }
        if !socket.kind.is_connected_kind() {
            socket.default_dest = dest;
            return Ok(());
        }
        match socket.state {
            SocketState::Open if socket.bindings.is_empty() => {}
            SocketState::Open => return Err(SocketError::NotSupported),
            SocketState::Listening => return Err(SocketError::Invalid),
            SocketState::Connecting(_) => return Err(SocketError::Already),
            SocketState::Connected(_) | SocketState::Disconnected => {
                return Err(SocketError::IsConnected);
            }
        }
        let dest = match dest {
            Some(Address::Range(_)) | None => return Err(SocketError::Invalid),
            Some(dest) => dest,
        };
        let timeout = socket.options.connect_timeout;
        let (node, request) = self.connection_request(port, dest, payload)?;
        self.route(node, request.clone()).map_err(|_| SocketError::WouldBlock)?;
        let deadline = now + timeout;
        let socket = self.socket(port)?;
        if let Address::Service { service, instance, .. } = dest {
            socket.service = Some(ServiceRange::single(service, instance));
        }
        socket.state = SocketState::Connecting(Connecting { deadline, request, retry_at: None });
        self.set_socket_timer(port, deadline);
        self.run_local(now);
        Err(SocketError::InProgress)
    }

    /// Receives the next message, cut to `max` bytes, or as many bytes of a stream as are available, up to `max`. An
    /// empty payload with [`ErrorCode::ConnShutdown`] is the end of a connection that the peer shut down.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] if nothing is queued, [`SocketError::NotConnected`],
    /// [`SocketError::ConnectionReset`], [`SocketError::BadSocket`], or [`SocketError::Invalid`] for a listening socket
    /// or a limit of 0.
    pub fn recv(&mut self, now: Nanos, port: Port, max: usize) -> Result<Received, SocketError> {
        if max == 0 {
            return Err(SocketError::Invalid);
        }
        let socket = self.socket(port)?;
        let (received, cost) = socket.take(max)?;
        if received.group.is_some_and(|g| g.event.is_none()) {
            self.group_read(port, received.from, cost.into());
            self.run_local(now);
            return Ok(received);
        }
        let socket = self.socket(port)?;
        if let SocketState::Connected(c) = &mut socket.state
            && let Some((blocks, window)) = c.read(cost, false)
        {
            let peer = c.peer;
            self.send_conn(port, peer, ConnManagerKind::Ack { blocks, window, nagle: false });
        }
        self.run_local(now);
        Ok(received)
    }

    pub(super) fn set_socket_timer(&mut self, port: Port, at: Nanos) {
        self.socket_timers.insert((at, port));
    }

    pub(super) fn clear_socket_timer(&mut self, port: Port, state: &SocketState) {
        match state {
            SocketState::Connecting(c) => {
                self.socket_timers.remove(&(c.deadline, port));
                if let Some(at) = c.retry_at {
                    self.socket_timers.remove(&(at, port));
                }
            }
            SocketState::Connected(c) => {
                self.socket_timers.remove(&(c.probe_at, port));
            }
            _ => {}
        }
    }
}
