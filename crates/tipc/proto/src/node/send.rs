//! Outgoing messages of sockets: looks up their destinations, encodes and routes them.

use super::Node;
use crate::addr::Importance;
use crate::addr::{NodeAddr, Port, SocketAddr};
use crate::limits::MESSAGE_LEN_MAX;
use crate::socket::{Address, SocketError, SocketKind, SocketState};
use crate::time::Nanos;
use crate::wire::{
    ConnManager, ConnManagerKind, DataKind, DataMessage, ErrorCode, LinkFields, Packet,
};

/// Lookup scope "cluster" in message headers.
pub(super) const LOOKUP_CLUSTER: u8 = 2;
/// Lookup scope "node" in message headers: the destination node looks the name up.
const LOOKUP_NODE: u8 = 3;

impl Node {
    /// Sends a message, or as much of a stream as is accepted. Returns the number of bytes accepted. A connected socket
    /// ignores `dest`. A new socket of a connected kind requests a connection to `dest`, with the payload as the first
    /// message.
    ///
    /// # Errors
    /// [`SocketError`], as returned by the kernel in the same situation. After [`SocketError::WouldBlock`], the
    /// socket's next [`Event::SocketReady`](super::Event::SocketReady) indicates when to try again.
    pub fn send(
        &mut self,
        now: Nanos,
        port: Port,
        dest: Option<Address>,
        payload: &[u8],
    ) -> Result<usize, SocketError> {
        let taken = self.send_by_kind(now, port, dest, payload)?;
        if let Some(socket) = self.sockets.get_mut(&port) {
            socket.sent.count(taken);
        }
        Ok(taken)
    }

    fn send_by_kind(
        &mut self,
        now: Nanos,
        port: Port,
        dest: Option<Address>,
        payload: &[u8],
    ) -> Result<usize, SocketError> {
        let socket = self.socket(port)?;
        if socket.kind.is_connected_kind() {
            return self.send_connected(now, port, dest, payload);
        }
        if socket.group.is_some() {
            return self.send_group(now, port, dest, payload);
        }
        if payload.len() > MESSAGE_LEN_MAX {
            return Err(SocketError::MessageTooLong);
        }
        let dest = dest.or(socket.default_dest).ok_or(SocketError::NoDestination)?;
        let droppable = socket.kind == SocketKind::Dgram && socket.options.src_droppable;
        let result = match dest {
            Address::Range(range) => self.send_multicast(now, port, range, payload),
            dest => {
                let (node, message) = self.addressed(port, dest, payload, false)?;
                self.route_or_wait(port, node, message)
            }
        };
        self.run_local(now);
        match result {
            // The sender of a droppable message does not wait.
            Err(SocketError::WouldBlock) if droppable => Ok(payload.len()),
            result => result.map(|()| payload.len()),
        }
    }

    fn send_connected(
        &mut self,
        now: Nanos,
        port: Port,
        dest: Option<Address>,
        payload: &[u8],
    ) -> Result<usize, SocketError> {
        let socket = self.socket(port)?;
        let stream = socket.kind == SocketKind::Stream;
        let first = &payload[..payload.len().min(MESSAGE_LEN_MAX)];
        if !stream && payload.len() > MESSAGE_LEN_MAX {
            return Err(SocketError::MessageTooLong);
        }
        match &socket.state {
            SocketState::Connected(_) => {}
            SocketState::Disconnected => return Err(SocketError::Pipe),
            SocketState::Open if dest.is_some() => {
                return match self.connect(now, port, dest, first) {
                    Err(SocketError::InProgress) => Ok(first.len()),
                    other => other.map(|()| first.len()),
                };
            }
            _ => return Err(SocketError::NotConnected),
        }
        if stream {
            return self.send_stream(now, port, payload);
        }
        let importance = socket.options.importance;
        let SocketState::Connected(c) = &socket.state else { return Err(SocketError::Pipe) };
        let peer = c.peer;
        // Empty messages are not delivered, so they need not be sent.
        if !payload.is_empty() {
            if c.is_congested() {
                return Err(SocketError::WouldBlock);
            }
            let message =
                self.encode(&DataMessage { importance, ..plain(port, peer.port, payload) });
            self.route_or_wait(port, peer.node, message)?;
            if let SocketState::Connected(c) = &mut self.socket(port)?.state {
                c.sent(payload.len());
            }
        }
        self.run_local(now);
        Ok(payload.len())
    }

    /// Builds a connection request. Returns the destination node and the request.
    pub(super) fn connection_request(
        &mut self,
        port: Port,
        dest: Address,
        payload: &[u8],
    ) -> Result<(NodeAddr, Packet), SocketError> {
        self.addressed(port, dest, payload, true)
    }

    /// Builds a message to a socket or service. Returns the destination node and the message.
    fn addressed(
        &mut self,
        port: Port,
        dest: Address,
        payload: &[u8],
        syn: bool,
    ) -> Result<(NodeAddr, Packet), SocketError> {
        let own = self.own();
        let options = self.socket(port)?.options;
        let (to, kind, lookup_scope) = match dest {
            Address::Socket(to) => (to, DataKind::Direct { orig: own, dest: to.node }, 0),
            Address::Service { service, instance, domain } => {
                let (to, scope) =
                    self.resolve(service, instance, domain).ok_or(SocketError::Unreachable)?;
                (to, DataKind::Named { orig: own, dest: to.node, service, instance }, scope)
            }
            Address::Range(_) => return Err(SocketError::Invalid),
        };
        if !self.is_reachable(to.node) {
            return Err(SocketError::Unreachable);
        }
        let message = DataMessage {
            importance: options.importance,
            dest_droppable: options.dest_droppable,
            flag18: options.src_droppable && !syn,
            syn,
            lookup_scope,
            kind,
            ..plain(port, to.port, payload)
        };
        Ok((to.node, self.encode(&message)))
    }

    /// The node that must look a name up; 0 means that this node looks it up in the whole cluster. If this node has a
    /// configured address <Z.C.N>, <Z.C.0> and <Z.0.0> also mean 0, as on a kernel after `tipc node set address`,
    /// because programs written before Linux 4.17 use them (libzmq is one of them).
    pub(super) fn lookup_domain(&self, domain: NodeAddr) -> NodeAddr {
        const CLUSTER: u32 = 0xffff_f000;
        const ZONE: u32 = 0xff00_0000;
        let around = |own: NodeAddr| [own.0 & CLUSTER, own.0 & ZONE].contains(&domain.0);
        match self.cfg.addr {
            Some(own) if domain != own && around(own) => NodeAddr(0),
            _ => domain,
        }
    }

    /// Looks a name up: returns the next socket in round-robin order, or port 0 on the node that must look the name up;
    /// and the lookup scope for the message header. `None` if the name has no binding.
    fn resolve(
        &mut self,
        service: u32,
        instance: u32,
        domain: NodeAddr,
    ) -> Option<(SocketAddr, u8)> {
        let own = self.own();
        let domain = self.lookup_domain(domain);
        if domain == NodeAddr(0) {
            return self.names.lookup(service, instance, None).map(|to| (to, LOOKUP_CLUSTER));
        }
        if domain == own {
            return self.names.lookup(service, instance, Some(own)).map(|to| (to, LOOKUP_NODE));
        }
        Some((SocketAddr { port: Port(0), node: domain }, LOOKUP_NODE))
    }

    pub(super) fn is_reachable(&self, node: NodeAddr) -> bool {
        node == self.own()
            || node == NodeAddr(0)
            || self.peers.get(&node).is_some_and(|p| p.is_up())
    }

    pub(super) fn encode(&self, message: &DataMessage<'_>) -> Packet {
        let link = LinkFields { sender: self.own(), ..LinkFields::default() };
        Packet::encoded(|out| message.encode(&link, out))
    }

    pub(super) fn route_or_wait(
        &mut self,
        port: Port,
        node: NodeAddr,
        message: Packet,
    ) -> Result<(), SocketError> {
        let level = self.socket(port)?.options.importance as usize;
        match self.route(node, message) {
            Ok(()) => Ok(()),
            Err(_) => match self.peers.get_mut(&node).filter(|p| p.is_up()) {
                Some(peer) => {
                    peer.wait(port, level);
                    Err(SocketError::WouldBlock)
                }
                None => Err(SocketError::Unreachable),
            },
        }
    }

    /// Passes a whole message to the link to a node, or queues it for this node's own sockets. Returns the message if
    /// the link does not accept it.
    pub(super) fn route(&mut self, node: NodeAddr, message: Packet) -> Result<(), Packet> {
        if node == self.own() || node == NodeAddr(0) {
            self.local.push_back(message);
            return Ok(());
        }
        self.send_to(node, message)
    }

    /// Delivers the messages that this node's sockets have sent to each other, and lets the topology service do its
    /// work.
    pub(super) fn run_local(&mut self, now: Nanos) {
        // The service uses the same public calls, which end here: only the outermost one does the work.
        if core::mem::replace(&mut self.serving, true) {
            return;
        }
        let own = self.own();
        loop {
            if let Some(message) = self.local.pop_front() {
                self.count_local(&message.view());
                self.handle_message(now, own, message);
            } else if let Some(port) = self.woken.pop_front() {
                let _ = self.push_stream(port, false);
            } else if self.topology.is_idle() {
                break;
            } else {
                self.serve_topology(now);
            }
        }
        self.serving = false;
    }

    /// Sends an acknowledgement or a probe for a connection. Congestion does not delay these messages, because a
    /// connection has only a few of them in flight.
    pub(super) fn send_conn(&mut self, port: Port, peer: SocketAddr, kind: ConnManagerKind) {
        let orig = SocketAddr { port, node: self.own() };
        let link = LinkFields { sender: orig.node, ..LinkFields::default() };
        let message = ConnManager { kind, error: ErrorCode::Ok, orig, dest: peer };
        let message = Packet::encoded(|out| message.encode(&link, out));
        // A peer without a link is about to be reported lost.
        let _ = self.route(peer.node, message);
    }

    /// Answers a connection request: sends an empty message from the new socket `port` to the peer.
    pub(super) fn answer_request(&mut self, port: Port, peer: SocketAddr) {
        let message = self.encode(&DataMessage {
            importance: Importance::Critical,
            ..plain(port, peer.port, &[])
        });
        let _ = self.route(peer.node, message);
    }

    /// Notifies the other end that the connection has ended.
    pub(super) fn end_connection(&mut self, port: Port, peer: SocketAddr, error: ErrorCode) {
        let message =
            DataMessage { importance: Importance::Critical, error, ..plain(port, peer.port, &[]) };
        let message = self.encode(&message);
        let _ = self.route(peer.node, message);
    }
}

/// A low-importance message of a connection. Other kinds of message are made from it by changing a few fields.
pub(super) const fn plain(orig_port: Port, dest_port: Port, payload: &[u8]) -> DataMessage<'_> {
    DataMessage {
        importance: Importance::Low,
        dest_droppable: false,
        flag18: false,
        syn: false,
        error: ErrorCode::Ok,
        reroutes: 0,
        lookup_scope: 0,
        orig_port,
        dest_port,
        kind: DataKind::Conn,
        payload,
    }
}
