//! Own bindings to the other nodes, theirs into the table.

use super::Node;
use crate::addr::{NodeAddr, Port, Scope, ServiceRange, SocketAddr};
use crate::drops::DropReason;
use crate::limits::NAME_UPDATES_WAITING_MAX;
use crate::name_table::{Binding, BindingError};
use crate::seq::Seq;
use crate::time::Nanos;
use crate::wire::{
    BcastInit, LinkFields, Message, NameItem, NameMessage, NameSeries, SHORT_HEADER_LEN,
};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Octets of items in one bulk message: a whole number of them, well inside the largest message.
const BULK_OCTETS: usize = 3_000 * NameItem::LEN;

/// Service types below this are the protocol's own.
const RESERVED_SERVICES: u32 = 64;

/// Why a port cannot be bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BindError {
    /// The table refuses it.
    Table(BindingError),
    /// Service types below 64 belong to the protocol.
    Reserved,
    /// The broadcast link holds as many unsent updates as it may; a peer is slow to acknowledge.
    Congested,
}

/// The order of one peer's name updates.
#[derive(Clone, Debug, Default)]
pub(super) struct NameReceiver {
    /// Number of the next update, known once the last bulk message was seen.
    next: Option<Seq>,
    waiting: VecDeque<(Seq, bool, Vec<NameItem>)>,
}

impl NameReceiver {
    pub(super) fn octets(&self) -> usize {
        self.waiting.iter().map(|(_, _, items)| items.len() * NameItem::LEN).sum()
    }
}

impl Node {
    /// Binds a port of this node to a service range; every node of the scope learns of it. Returns the key to withdraw it by.
    pub(super) fn publish(
        &mut self,
        range: ServiceRange,
        port: Port,
        scope: Scope,
    ) -> Result<u32, BindError> {
        if range.service < RESERVED_SERVICES {
            return Err(BindError::Reserved);
        }
        let socket = SocketAddr { port, node: self.own() };
        let binding = Binding { range, socket, key: self.next_key, scope };
        self.names.insert(binding).map_err(BindError::Table)?;
        if scope == Scope::Cluster && self.distribute(false, &binding).is_err() {
            self.names.remove(range, socket, binding.key);
            return Err(BindError::Congested);
        }
        self.next_key = self.next_key.wrapping_add(1).max(1);
        self.announce(true, binding);
        Ok(binding.key)
    }

    /// Withdraws a binding of this node. When the broadcast link cannot take the update, contact with the peers that hold it up begins
    /// anew: a closing socket cannot wait, and a binding that stays behind would mislead the cluster.
    pub(super) fn withdraw_at_any_cost(
        &mut self,
        now: Nanos,
        range: ServiceRange,
        port: Port,
        scope: Scope,
        key: u32,
    ) {
        let socket = SocketAddr { port, node: self.own() };
        let Some(binding) = self.names.remove(range, socket, key) else { return };
        self.announce(false, binding);
        if scope == Scope::Cluster && self.distribute(true, &binding).is_err() {
            let last = self.bcast.last_sent();
            let behind = self
                .peers
                .iter()
                .filter(|(_, p)| p.listener.acked.is_some_and(|acked| acked.before(last)));
            let addrs: Vec<NodeAddr> = behind.map(|(addr, _)| *addr).collect();
            for addr in addrs {
                self.overrun(now, addr);
            }
            // With the laggards gone there is room, and if not, there is no peer left that holds the binding.
            let _ = self.distribute(true, &binding);
        }
    }

    /// Sends one update to all peers: a numbered broadcast, or copies for a cluster with peers that do not know those.
    fn distribute(
        &mut self,
        withdrawal: bool,
        binding: &Binding,
    ) -> Result<(), crate::backlog::Congested> {
        let Some(own) = self.addr() else { return Ok(()) };
        let mut body = Vec::new();
        NameItem { range: binding.range, port: binding.socket.port, key: binding.key }
            .encode(&mut body);
        let update = NameMessage {
            withdrawal,
            series: NameSeries::Update,
            number: self.update_number,
            owner: own,
            dest: NodeAddr(0),
            bcast_ack_invalid: false,
            body: &body,
        };
        if self.linked > 0 {
            let mut bytes = Vec::new();
            let broadcast = Some(self.cfg.network);
            let link = LinkFields { sender: own, broadcast, ..LinkFields::default() };
            Message::Names(update).encode(&link, &mut bytes);
            self.bcast.send(bytes)?;
        }
        self.update_number = self.update_number.next();
        Ok(())
    }

    /// What a peer hears first: where our broadcasts begin, and all our bindings.
    pub(super) fn greet(&mut self, now: Nanos, peer: NodeAddr) {
        let own = self.own();
        let link = LinkFields { sender: own, ..LinkFields::default() };
        let mut messages = Vec::new();
        let mut encode = |message: Message<'_>| {
            let mut bytes = Vec::new();
            message.encode(&link, &mut bytes);
            messages.push(bytes);
        };
        encode(Message::BcastInit(BcastInit {
            dest: peer,
            last_bcast: self.bcast.last_sent(),
            bcast_ack_invalid: true,
        }));
        let mut items = Vec::new();
        let mut bindings: Vec<_> =
            self.names.of_node(own).filter(|(_, b)| b.scope == Scope::Cluster).collect();
        // In the order in which they were made, as the kernel does.
        bindings.sort_unstable_by_key(|(age, _)| *age);
        for (_, binding) in bindings {
            NameItem { range: binding.range, port: binding.socket.port, key: binding.key }
                .encode(&mut items);
        }
        let parts = items.len().div_ceil(BULK_OCTETS);
        for (n, body) in items.chunks(BULK_OCTETS).enumerate() {
            encode(Message::Names(NameMessage {
                withdrawal: false,
                series: NameSeries::Bulk { last: n + 1 == parts },
                number: self.update_number,
                owner: own,
                dest: peer,
                bcast_ack_invalid: true,
                body,
            }));
        }
        for message in messages {
            debug_assert!(message.len() >= SHORT_HEADER_LEN);
            if self.send_to(peer, message).is_err() {
                self.overrun(now, peer);
                return;
            }
        }
    }

    /// The protocol's own messages no longer fit: without them the peer cannot be kept consistent, so contact begins anew.
    fn overrun(&mut self, now: Nanos, addr: NodeAddr) {
        self.lose_peer(now, addr, crate::link::LinkDownReason::Overrun);
    }

    pub(super) fn handle_names(&mut self, sender: NodeAddr, m: &NameMessage<'_>) {
        // The owner is the sender: names are not passed on.
        if m.owner != sender {
            self.drops.count(DropReason::Malformed);
            return;
        }
        match m.series {
            NameSeries::Bulk { last } => {
                if last && let Some(peer) = self.peers.get_mut(&sender) {
                    peer.names.next = Some(m.number);
                }
                self.apply_names(sender, m.withdrawal, m.items());
            }
            NameSeries::Legacy => self.apply_names(sender, m.withdrawal, m.items()),
            NameSeries::Update => {
                let Some(peer) = self.peers.get_mut(&sender) else { return };
                if peer.names.next.is_some_and(|next| m.number.before(next))
                    || peer.names.waiting.len() >= NAME_UPDATES_WAITING_MAX
                {
                    self.drops.count(DropReason::BadNameUpdate);
                    return;
                }
                peer.names.waiting.push_back((m.number, m.withdrawal, m.items().collect()));
            }
        }
        self.apply_waiting(sender);
    }

    fn apply_waiting(&mut self, sender: NodeAddr) {
        while let Some(peer) = self.peers.get_mut(&sender)
            && let Some(next) = peer.names.next
        {
            // What waited for the bulk and turns out to be part of it already is overtaken.
            peer.names.waiting.retain(|(number, ..)| !number.before(next));
            let Some(index) = peer.names.waiting.iter().position(|(number, ..)| *number == next)
            else {
                return;
            };
            let Some((_, withdrawal, items)) = peer.names.waiting.remove(index) else { return };
            peer.names.next = Some(next.next());
            self.apply_names(sender, withdrawal, items.into_iter());
        }
    }

    fn apply_names(
        &mut self,
        owner: NodeAddr,
        withdrawal: bool,
        items: impl Iterator<Item = NameItem>,
    ) {
        for item in items {
            let socket = SocketAddr { port: item.port, node: owner };
            if withdrawal {
                match self.names.remove(item.range, socket, item.key) {
                    Some(binding) => self.announce(false, binding),
                    None => self.drops.count(DropReason::BadBinding),
                }
                continue;
            }
            let binding =
                Binding { range: item.range, socket, key: item.key, scope: Scope::Cluster };
            match self.names.insert(binding) {
                Ok(()) => self.announce(true, binding),
                Err(_) => self.drops.count(DropReason::BadBinding),
            }
        }
    }
}
