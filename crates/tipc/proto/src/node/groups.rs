//! Communication groups: connects a socket's membership with the name table, the links and the application.

use super::names::BindError;
use super::send::plain;
use super::{Event, Node};
use crate::addr::{NodeAddr, Port, Scope, ServiceRange, SocketAddr};
use crate::drops::DropReason;
use crate::limits::MESSAGE_LEN_MAX;
use crate::name_table::Binding;
use crate::socket::{Address, Group, GroupData, GroupRequest, Outcome, Refusal, SocketError};
use crate::time::Nanos;
use crate::wire::{DataKind, DataMessage, ErrorCode, GroupCast, GroupProtocol, LinkFields, Packet};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

impl From<Refusal> for SocketError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Nobody => Self::Unreachable,
            Refusal::Congested => Self::WouldBlock,
        }
    }
}

impl Node {
    /// Makes a socket a member of a group. The other members learn of the new member from its binding and answer with
    /// JOIN.
    ///
    /// # Errors
    /// [`SocketError::Access`] for a reserved type or if the socket is already a member; [`SocketError::BadSocket`],
    /// [`SocketError::TooMany`] and [`SocketError::WouldBlock`] as for [`Node::bind`].
    pub fn join(
        &mut self,
        now: Nanos,
        port: Port,
        request: GroupRequest,
    ) -> Result<(), SocketError> {
        let socket = self.socket(port)?;
        if socket.group.is_some() {
            return Err(SocketError::Access);
        }
        let group = Group::new(request, socket.group_next);
        let binding = group.binding();
        socket.group = Some(group);
        let all = ServiceRange { service: request.group, lower: 0, upper: u32::MAX };
        let present: Vec<Binding> = self.names.overlapping(all).collect();
        self.groups.entry(request.group).or_default().insert(port);
        match self.publish(binding, port, request.scope) {
            Ok(key) => {
                if let Some(group) = &mut self.socket(port)?.group {
                    group.key = key;
                }
            }
            Err(error) => {
                self.forget_group(port);
                return Err(match error {
                    BindError::Reserved => SocketError::Access,
                    BindError::Congested => SocketError::WouldBlock,
                    BindError::Table(_) => SocketError::TooMany,
                });
            }
        }
        for binding in present {
            self.group_binding(port, true, &binding);
        }
        self.run_local(now);
        Ok(())
    }

    /// Ends a socket's membership. The other members still receive the messages sent before; then they are notified
    /// that the socket has left.
    ///
    /// # Errors
    /// [`SocketError::Invalid`] if it is not a member; [`SocketError::BadSocket`].
    pub fn leave(&mut self, now: Nanos, port: Port) -> Result<(), SocketError> {
        let group = self.socket(port)?.group.as_ref().ok_or(SocketError::Invalid)?;
        let (request, key) = (group.request, group.key);
        let (binding, send) = (group.binding(), group.farewells());
        self.apply(port, Outcome { send, ..Outcome::default() });
        self.forget_group(port);
        self.withdraw_at_any_cost(now, binding, port, request.scope, key);
        self.run_local(now);
        Ok(())
    }

    fn forget_group(&mut self, port: Port) {
        let Some(socket) = self.sockets.get_mut(&port) else { return };
        let Some(group) = socket.group.take() else { return };
        socket.group_next = group.next();
        let service = group.request.group;
        if let Some(ports) = self.groups.get_mut(&service) {
            ports.remove(&port);
            if ports.is_empty() {
                self.groups.remove(&service);
            }
        }
    }

    /// Handles the publication or withdrawal of a binding. It concerns the groups of that service type in which sockets
    /// of this node are members.
    pub(super) fn group_news(&mut self, published: bool, binding: &Binding) {
        let Some(ports) = self.groups.get(&binding.range.service) else { return };
        for port in ports.clone() {
            self.group_binding(port, published, binding);
        }
    }

    fn group_binding(&mut self, port: Port, published: bool, binding: &Binding) {
        let own = SocketAddr { port, node: self.own() };
        let contact = binding.socket.node == own.node
            || self.peers.get(&binding.socket.node).is_some_and(|peer| peer.is_up());
        let Some(group) = self.sockets.get_mut(&port).and_then(|s| s.group.as_mut()) else {
            return;
        };
        let self_unwanted = binding.socket == own && !group.request.loopback;
        if self_unwanted || binding.scope != group.request.scope {
            return;
        }
        let mut out = Outcome::default();
        if published {
            group.published(binding.socket, binding.range.lower, binding.key, &mut out);
        } else {
            group.withdrawn(binding.socket, binding.key, contact, &mut out);
        }
        self.apply(port, out);
    }

    /// Removes the members on a node that was lost.
    pub(super) fn lose_members(&mut self, node: NodeAddr) {
        let ports: Vec<Port> = self.groups.values().flatten().copied().collect();
        for port in ports {
            let mut out = Outcome::default();
            if let Some(group) = self.sockets.get_mut(&port).and_then(|s| s.group.as_mut()) {
                group.lose_node(node, &mut out);
            }
            self.apply(port, out);
        }
    }

    /// Handles a group protocol message.
    pub(super) fn handle_group(&mut self, sender: NodeAddr, m: &GroupProtocol) {
        let own = SocketAddr { port: m.dest.port, node: self.own() };
        let from = SocketAddr { port: m.orig.port, node: sender };
        let Some(group) = self.sockets.get_mut(&own.port).and_then(|s| s.group.as_mut()) else {
            self.drops.count(DropReason::NotMember);
            return;
        };
        let mut out = Outcome::default();
        group.handle_protocol(own, from, m.kind, &mut out);
        self.apply(own.port, out);
    }

    /// Delivers a data message of a group.
    pub(super) fn deliver_group(
        &mut self,
        sender: NodeAddr,
        m: &DataMessage<'_>,
        message: &Packet,
    ) {
        let DataKind::Group { cast, group: service, instance, number, ack_required, .. } = m.kind
        else {
            return;
        };
        let from = SocketAddr { port: m.orig_port, node: sender };
        let data = GroupData { cast, instance, number, wants_ack: ack_required, message };
        let own = self.own();
        let ports: Vec<Port> = match cast {
            GroupCast::Unicast => alloc::vec![m.dest_port],
            _ => self.groups.get(&service).into_iter().flatten().copied().collect(),
        };
        for port in ports {
            let group = self.sockets.get_mut(&port).and_then(|s| s.group.as_mut());
            let Some(group) = group.filter(|g| g.request.group == service) else {
                self.drops.count(DropReason::NotMember);
                continue;
            };
            // A socket receives its own messages only if it asked for loopback, but always those of other sockets on
            // its node.
            let itself = port == from.port && sender == own;
            if m.error != ErrorCode::Ok || itself && !group.request.loopback {
                continue;
            }
            let mut out = Outcome::default();
            group.accept(from, &data, &mut out);
            self.apply(port, out);
        }
    }

    /// Makes the member at this port send LEAVE to those members that have blocked its broadcasts for longer than the
    /// socket's `group_patience`.
    pub(super) fn group_timeout(&mut self, now: Nanos, port: Port) {
        let Some(socket) = self.sockets.get_mut(&port) else { return };
        let (Some(group), Some(patience)) = (&mut socket.group, socket.options.group_patience)
        else {
            return;
        };
        let mut out = Outcome::default();
        let again = group.lose_patience(now, patience, &mut out);
        self.apply(port, out);
        if let Some(at) = again {
            self.set_socket_timer(port, at);
        }
    }

    /// Records that the application has read a group message.
    pub(super) fn group_read(&mut self, port: Port, from: SocketAddr, blocks: u32) {
        let mut out = Outcome::default();
        if let Some(group) = self.sockets.get_mut(&port).and_then(|s| s.group.as_mut()) {
            group.read(from, blocks, &mut out);
        }
        self.apply(port, out);
    }

    /// Carries out the actions that a group has decided for this port.
    fn apply(&mut self, port: Port, out: Outcome) {
        let orig = SocketAddr { port, node: self.own() };
        for (dest, kind) in out.send {
            let link = LinkFields { sender: orig.node, ..LinkFields::default() };
            let message = GroupProtocol { kind, orig, dest };
            let message = Packet::encoded(|out| message.encode(&link, out));
            // A member whose node is lost is about to be forgotten.
            let _ = self.route(dest.node, message);
        }
        out.dropped.into_iter().for_each(|reason| self.drops.count(reason));
        let Some(socket) = self.sockets.get_mut(&port) else { return };
        // Set before the event that reports the member's end, after which a sender must not consider it reachable.
        if let Some(group) = &mut socket.group
            && group.take_shrank()
        {
            self.events.push_back(Event::GroupShrank { group: group.request.group });
        }
        let mut changed = out.wake;
        let events = socket.group.as_ref().is_some_and(|g| g.request.events);
        for item in out.queue {
            if socket.kind.is_connected_kind() || item.source.event.is_some() && !events {
                continue;
            }
            if item.source.event.is_none() && !socket.has_room(crate::addr::Importance::Low) {
                self.drops.count(DropReason::Overload);
                continue;
            }
            changed |= socket.is_empty();
            socket.push_group(item);
        }
        if changed {
            self.socket_changed(port);
        }
    }

    /// Sends a member's message to all members, to all members with an instance, to one member with an instance (in
    /// round-robin order), or to one socket.
    pub(super) fn send_group(
        &mut self,
        now: Nanos,
        port: Port,
        dest: Option<Address>,
        payload: &[u8],
    ) -> Result<usize, SocketError> {
        if payload.len() > MESSAGE_LEN_MAX {
            return Err(SocketError::MessageTooLong);
        }
        // Empty messages are not delivered; a kernel would not even return the window that they use.
        if payload.is_empty() {
            return Ok(0);
        }
        let mut out = Outcome::default();
        let group = self.socket(port)?.group.as_mut().ok_or(SocketError::Invalid)?;
        let one = match dest {
            None => Ok(None),
            Some(Address::Socket(to)) => {
                group.unicast(to, payload.len(), &mut out).map(|()| Some(to))
            }
            Some(Address::Service { instance, .. }) => {
                group.anycast(instance, payload.len(), &mut out).map(Some)
            }
            Some(Address::Range(range)) => match group.of_instance(range.lower)[..] {
                [] => Err(Refusal::Nobody),
                [to] => group.unicast(to, payload.len(), &mut out).map(|()| Some(to)),
                [..] => Ok(None),
            },
        };
        self.apply(port, out);
        let result = match one? {
            Some(to) => self.group_unicast(port, to, payload),
            None => {
                let instance = match dest {
                    Some(Address::Range(range)) => Some(range.lower),
                    _ => None,
                };
                self.group_broadcast(now, port, instance, payload)
            }
        };
        self.run_local(now);
        result.map(|()| payload.len())
    }

    fn group_unicast(
        &mut self,
        port: Port,
        to: SocketAddr,
        payload: &[u8],
    ) -> Result<(), SocketError> {
        let message = self.group_message(port, GroupCast::Unicast, to, 0, payload)?;
        let message = self.encode(&message);
        self.route_or_wait(port, to.node, message)?;
        if let Some(group) = &mut self.socket(port)?.group {
            group.sent_unicast(to, payload.len());
        }
        Ok(())
    }

    fn group_broadcast(
        &mut self,
        now: Nanos,
        port: Port,
        instance: Option<u32>,
        payload: &[u8],
    ) -> Result<(), SocketError> {
        let own = self.own();
        let mut out = Outcome::default();
        let socket = self.socket(port)?;
        let (wanted, last) = (socket.options.multicast, socket.last_cast);
        let patience = socket.options.group_patience;
        let group = socket.group.as_mut().ok_or(SocketError::Invalid)?;
        let prepared = group.broadcast(payload.len(), &mut out);
        let again = patience
            .filter(|_| prepared == Err(Refusal::Congested))
            .and_then(|patience| group.broadcast_held_up(now, payload.len(), patience));
        let nodes: BTreeSet<NodeAddr> = group.nodes();
        self.apply(port, out);
        if let Some(at) = again {
            self.set_socket_timer(port, at);
        }
        let follows = prepared?;
        let remote = nodes.len() - usize::from(nodes.contains(&own));
        let replicast = follows || self.replicast_now(now, wanted, last, remote);
        self.await_room(port, &nodes, replicast)?;
        let cast = if instance.is_some() { GroupCast::Multicast } else { GroupCast::Broadcast };
        let nobody = SocketAddr::default();
        let mut message =
            self.group_message(port, cast, nobody, instance.unwrap_or_default(), payload)?;
        message.flag18 = replicast;
        if let DataKind::Group { ack_required, .. } = &mut message.kind {
            *ack_required = follows;
        }
        self.cast(&nodes, replicast, &message);
        let socket = self.socket(port)?;
        socket.last_cast = Some((replicast, now));
        if let Some(group) = &mut socket.group {
            group.sent_broadcast(payload.len(), follows);
        }
        Ok(())
    }

    fn group_message<'a>(
        &mut self,
        port: Port,
        cast: GroupCast,
        to: SocketAddr,
        instance: u32,
        payload: &'a [u8],
    ) -> Result<DataMessage<'a>, SocketError> {
        let orig = self.own();
        let socket = self.socket(port)?;
        let group = socket.group.as_ref().ok_or(SocketError::Invalid)?;
        let (request, number) = (group.request, group.next());
        Ok(DataMessage {
            importance: socket.options.importance,
            dest_droppable: true,
            lookup_scope: if request.scope == Scope::Node { 3 } else { 2 },
            kind: DataKind::Group {
                cast,
                orig,
                dest: to.node,
                group: request.group,
                instance,
                number,
                ack_required: false,
            },
            ..plain(port, to.port, payload)
        })
    }
}
