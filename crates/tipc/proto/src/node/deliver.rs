//! Delivers messages that arrive at sockets, answers them, or returns them to their senders.

use super::reject::RETURNED_BYTES;
use super::send::plain;
use super::{Event, Node};
use crate::addr::{Importance, NodeAddr, Port, Scope, SocketAddr};
use crate::drops::DropReason;
use crate::limits::CONNECT_RETRY;
use crate::socket::{Arrival, Connection, SocketState};
use crate::time::Nanos;
use crate::wire::{
    ConnManager, ConnManagerKind, DataKind, DataMessage, ErrorCode, LinkFields, Packet,
};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

/// Builds the message that ends a connection at `port`, as if sent by `peer`. `unread` is the payload of a message that
/// `peer` did not read; the end of the connection returns it.
pub(super) fn connection_end(
    port: Port,
    peer: SocketAddr,
    error: ErrorCode,
    unread: &[u8],
) -> Packet {
    let unread = &unread[..unread.len().min(RETURNED_BYTES)];
    let message =
        DataMessage { importance: Importance::Critical, error, ..plain(peer.port, port, unread) };
    let link = LinkFields { sender: peer.node, ..LinkFields::default() };
    Packet::encoded(|out| message.encode(&link, out))
}

/// What a socket does with a message.
enum Verdict {
    Queue,
    Refuse(ErrorCode),
    Done,
}

impl Node {
    /// Delivers a data message to the sockets of this node. If a single socket must queue the message unchanged,
    /// returns its port, and the caller queues the message.
    pub(super) fn deliver(
        &mut self,
        now: Nanos,
        sender: NodeAddr,
        m: &DataMessage<'_>,
        packet: &Packet,
    ) -> Option<Port> {
        match m.kind {
            DataKind::Mcast { range, .. } => {
                let own = self.own();
                let visible =
                    |b: &crate::name_table::Binding| sender == own || b.scope == Scope::Cluster;
                let bindings = self.names.overlapping_of(own, range);
                let ports: BTreeSet<Port> =
                    bindings.filter(visible).map(|b| b.socket.port).collect();
                for port in ports {
                    self.deliver_multicast(now, sender, port, m, packet);
                }
            }
            DataKind::Group { .. } => self.deliver_group(sender, m, packet),
            DataKind::Named { service, instance, .. }
                if m.error == ErrorCode::Ok && !self.sockets.contains_key(&m.dest_port) =>
            {
                self.look_up_again(now, sender, m, service, instance, packet);
            }
            _ => {
                let port = m.dest_port;
                return self.admits(now, sender, port, m, packet).then_some(port);
            }
        }
        None
    }

    /// Delivers a multicast to one of its sockets. While the sender is switching between broadcast and replicast, the
    /// multicast may be held back to keep the order.
    fn deliver_multicast(
        &mut self,
        now: Nanos,
        sender: NodeAddr,
        port: Port,
        m: &DataMessage<'_>,
        packet: &Packet,
    ) {
        let own = self.own();
        let Some(socket) = self.sockets.get_mut(&port) else { return };
        let mut arrival = Arrival::Deliver;
        if sender != own && !socket.kind.is_connected_kind() {
            let from = SocketAddr { port: m.orig_port, node: sender };
            arrival =
                socket.mcast_order.accept(now, from, &packet.view(), socket.options.receive_bytes);
        }
        match arrival {
            // A twin has served its purpose once it has arrived.
            Arrival::Deliver if m.error == ErrorCode::Ok => {
                self.deliver_to(now, sender, port, m, packet);
            }
            Arrival::Deliver | Arrival::Held(None) => {}
            Arrival::Held(Some(at)) => self.set_socket_timer(port, at),
            Arrival::NoRoom => self.drops.count(DropReason::Overload),
            Arrival::Release(messages) => self.deliver_held(now, port, messages),
        }
    }

    /// Delivers multicasts that were held back.
    fn deliver_held(&mut self, now: Nanos, port: Port, messages: Vec<Packet>) {
        for packet in messages {
            let view = packet.view();
            let Some(crate::wire::User::Data(importance)) = view.user() else { continue };
            if let Ok(m) = DataMessage::decode(&view, importance) {
                self.deliver_to(now, view.prev_node(), port, &m, &packet);
            }
        }
    }

    /// Releases the multicasts from a lost node that were held back until earlier ones from that node arrive, which is
    /// no longer possible.
    pub(super) fn release_held(&mut self, now: Nanos, node: NodeAddr) {
        let held: Vec<(Port, Vec<Packet>)> = self
            .sockets
            .iter_mut()
            .filter(|(_, s)| s.mcast_order.held_bytes() > 0)
            .map(|(port, s)| (*port, s.mcast_order.lose(node)))
            .collect();
        for (port, messages) in held {
            self.deliver_held(now, port, messages);
        }
    }

    /// Looks the name of a message up again and forwards the message: either the port that the sender chose no longer
    /// exists, or the sender left the choice to this node.
    fn look_up_again(
        &mut self,
        now: Nanos,
        sender: NodeAddr,
        m: &DataMessage<'_>,
        service: u32,
        instance: u32,
        packet: &Packet,
    ) {
        let own = self.own();
        let local = (m.lookup_scope == 3).then_some(own);
        let found =
            (m.reroutes == 0).then(|| self.names.lookup(service, instance, local)).flatten();
        let Some(to) = found else {
            let error = if m.reroutes == 0 { ErrorCode::NoName } else { ErrorCode::NoPort };
            self.refuse(sender, packet, error);
            return;
        };
        let DataKind::Named { orig, .. } = m.kind else { return };
        let kind = DataKind::Named { orig, dest: to.node, service, instance };
        let again = self.encode(&DataMessage { reroutes: 1, dest_port: to.port, kind, ..*m });
        if to.node == own {
            if let Ok(m) = DataMessage::decode(&again.view(), m.importance)
                && self.admits(now, sender, to.port, &m, &again)
            {
                let payload_len = m.payload.len();
                self.queue(to.port, again, payload_len);
            }
        } else if self.route(to.node, again).is_err() {
            self.refuse(sender, packet, ErrorCode::NoName);
        }
    }

    /// Delivers a copy of a message to a socket, if the socket admits it.
    fn deliver_to(
        &mut self,
        now: Nanos,
        sender: NodeAddr,
        port: Port,
        m: &DataMessage<'_>,
        packet: &Packet,
    ) {
        if self.admits(now, sender, port, m, packet) {
            self.queue(port, packet.clone(), m.payload.len());
        }
    }

    /// Whether the caller must queue a message for the socket's reader. If not, it has already been handled: consumed,
    /// refused or dropped.
    fn admits(
        &mut self,
        now: Nanos,
        sender: NodeAddr,
        port: Port,
        m: &DataMessage<'_>,
        packet: &Packet,
    ) -> bool {
        match self.judge(now, sender, port, m) {
            Verdict::Done => false,
            Verdict::Refuse(error) => {
                self.refuse(sender, packet, error);
                false
            }
            Verdict::Queue => {
                let fits = self.sockets.get(&port).is_some_and(|s| s.has_room(m.importance));
                if !fits {
                    self.refuse(sender, packet, ErrorCode::Overload);
                }
                fits
            }
        }
    }

    /// Appends an admitted message to the receive queue.
    pub(super) fn queue(&mut self, port: Port, message: Packet, payload_len: usize) {
        let Some(socket) = self.sockets.get_mut(&port) else { return };
        let was_empty = socket.is_empty();
        socket.push(message);
        socket.received.count(payload_len);
        if was_empty {
            self.socket_changed(port);
        }
    }

    fn judge(&mut self, now: Nanos, sender: NodeAddr, port: Port, m: &DataMessage<'_>) -> Verdict {
        let from = SocketAddr { port: m.orig_port, node: sender };
        let is_conn = matches!(m.kind, DataKind::Conn | DataKind::ConnReturned { .. });
        let Some(socket) = self.sockets.get_mut(&port) else {
            return Verdict::Refuse(ErrorCode::NoPort);
        };
        if !socket.kind.is_connected_kind() {
            // Empty messages are not delivered unless they report an error.
            return match (is_conn, m.error, m.payload.is_empty()) {
                (true, ..) => Verdict::Refuse(ErrorCode::NoPort),
                (_, ErrorCode::Ok, true) => Verdict::Done,
                _ => Verdict::Queue,
            };
        }
        // Without this option, nothing that is empty is delivered, as with a kernel.
        let is_end = socket.options.half_close && m.payload.is_empty() && !m.flag18;
        match &mut socket.state {
            SocketState::Listening if m.syn && !is_conn && m.error == ErrorCode::Ok => {
                Verdict::Queue
            }
            SocketState::Connecting(_) if m.error != ErrorCode::Ok => {
                self.request_failed(now, port, m.error);
                Verdict::Done
            }
            SocketState::Connecting(_) if is_conn => {
                let connection = Connection::new(from, now + self.cfg.limits.connection_probe);
                let state =
                    core::mem::replace(&mut socket.state, SocketState::Connected(connection));
                self.clear_socket_timer(port, &state);
                self.set_socket_timer(port, now + self.cfg.limits.connection_probe);
                // By the time the application looks, the connection may have ended and be indistinguishable from one never
                // made.
                self.events.push_back(Event::Connected { port, peer: from });
                self.socket_changed(port);
                if m.payload.is_empty() { Verdict::Done } else { Verdict::Queue }
            }
            SocketState::Connected(c) if is_conn && c.peer == from => {
                if m.error != ErrorCode::Ok {
                    // The reader learns from the queue that the connection ended, and how.
                    let end = connection_end(port, from, m.error, m.payload);
                    self.disconnect(port, end);
                    return Verdict::Done;
                }
                if m.flag18
                    && let Some((blocks, window)) = c.read(0, true)
                {
                    self.send_conn(
                        port,
                        from,
                        ConnManagerKind::Ack { blocks, window, nagle: true },
                    );
                }
                if m.payload.is_empty() {
                    return if is_end { Verdict::Queue } else { Verdict::Done };
                }
                if let Some(SocketState::Connected(c)) =
                    self.sockets.get_mut(&port).map(|s| &mut s.state)
                {
                    c.merge.heard();
                    let _ = self.push_stream(port, false);
                }
                Verdict::Queue
            }
            _ => Verdict::Refuse(ErrorCode::NoPort),
        }
    }

    /// Handles a connection request of this socket that was returned with this error: repeats it later if the listener
    /// was full, otherwise reports that it was refused.
    fn request_failed(&mut self, now: Nanos, port: Port, error: ErrorCode) {
        let random = self.rng.next_u32();
        let Some(socket) = self.sockets.get_mut(&port) else { return };
        let timeout = socket.options.connect_timeout;
        let SocketState::Connecting(connecting) = &mut socket.state else { return };
        if error == ErrorCode::Overload {
            // The listener is full for the moment: retry after a random time, so that not all requests are repeated
            // together.
            let spread = (timeout / 4).as_millis().max(1) as u32;
            let at = now + CONNECT_RETRY + Duration::from_millis(u64::from(random % spread));
            if let Some(old) = connecting.retry_at.replace(at) {
                self.socket_timers.remove(&(old, port));
            }
            self.set_socket_timer(port, at);
            return;
        }
        let state = core::mem::replace(&mut socket.state, SocketState::Disconnected);
        self.clear_socket_timer(port, &state);
        self.events
            .push_back(Event::ConnectFailed { port, error: crate::socket::SocketError::Refused });
        self.socket_changed(port);
    }

    /// Handles a connection management message.
    pub(super) fn handle_conn(&mut self, sender: NodeAddr, m: &ConnManager, packet: &Packet) {
        let from = SocketAddr { port: m.orig.port, node: sender };
        let connection = match self.sockets.get_mut(&m.dest.port).map(|s| &mut s.state) {
            Some(SocketState::Connected(c)) if c.peer == from => c,
            _ => {
                self.refuse(sender, packet, ErrorCode::NoPort);
                return;
            }
        };
        connection.probing = false;
        if m.error != ErrorCode::Ok {
            let end = connection_end(m.dest.port, from, m.error, &[]);
            self.disconnect(m.dest.port, end);
            return;
        }
        match m.kind {
            ConnManagerKind::Probe => {
                self.send_conn(m.dest.port, from, ConnManagerKind::ProbeReply)
            }
            ConnManagerKind::ProbeReply => {}
            ConnManagerKind::Ack { blocks, window, nagle } => {
                let opened = connection.acknowledged(blocks, window);
                if nagle {
                    self.merge_acknowledged(m.dest.port);
                } else {
                    let _ = self.push_stream(m.dest.port, false);
                }
                if opened {
                    self.socket_changed(m.dest.port);
                }
            }
        }
    }

    fn refuse(&mut self, sender: NodeAddr, packet: &Packet, error: ErrorCode) {
        self.return_message(sender, &packet.view(), error);
    }

    /// Handles the socket timers that have expired.
    pub(super) fn socket_timeouts(&mut self, now: Nanos) {
        while let Some(&(at, port)) = self.socket_timers.first()
            && at <= now
        {
            self.socket_timers.pop_first();
            let Some(socket) = self.sockets.get_mut(&port) else { continue };
            let (held, again) = socket.mcast_order.expire(now);
            if !held.is_empty() {
                self.deliver_held(now, port, held);
            }
            if let Some(at) = again {
                self.set_socket_timer(port, at);
            }
            self.group_timeout(now, port);
            let Some(socket) = self.sockets.get_mut(&port) else { continue };
            match &mut socket.state {
                SocketState::Connecting(c) if c.deadline <= now => {
                    let state = core::mem::replace(&mut socket.state, SocketState::Open);
                    self.clear_socket_timer(port, &state);
                    let error = crate::socket::SocketError::TimedOut;
                    self.events.push_back(Event::ConnectFailed { port, error });
                }
                SocketState::Connecting(c) => {
                    c.retry_at = None;
                    let request = c.request.clone();
                    let node = request.view().dest_node().unwrap_or_default();
                    // If it cannot be sent now, the deadline ends the attempt.
                    let _ = self.route(node, request);
                }
                SocketState::Connected(c) if c.probing => {
                    let peer = c.peer;
                    let end = connection_end(port, peer, ErrorCode::NoPort, &[]);
                    self.disconnect(port, end);
                }
                SocketState::Connected(c) => {
                    (c.probing, c.probe_at) = (true, now + self.cfg.limits.connection_probe);
                    let peer = c.peer;
                    self.set_socket_timer(port, now + self.cfg.limits.connection_probe);
                    self.send_conn(port, peer, ConnManagerKind::Probe);
                }
                _ => {}
            }
        }
    }
}
