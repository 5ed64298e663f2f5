//! Distributes the node's own bindings to the other nodes and enters theirs into the table.

use super::Node;
use crate::addr::{NodeAddr, Port, Scope, ServiceRange, SocketAddr};
use crate::backlog::Congested;
use crate::drops::DropReason;
use crate::limits::NAME_UPDATES_WAITING_MAX;
use crate::name_table::{Binding, BindingError};
use crate::seq::Seq;
use crate::time::Nanos;
use crate::wire::{
    BcastInit, Capabilities, LinkFields, Message, NameItem, NameMessage, NameSeries, Packet,
};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Maximum number of bytes of items in a bulk message: a multiple of the item length, well below the size of the
/// largest message.
const BULK_BYTES: usize = 3_000 * NameItem::LEN;

/// Service types below this value are reserved for the protocol.
const RESERVED_SERVICES: u32 = 64;

/// Why a port cannot be bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BindError {
    /// The table rejects the binding.
    Table(BindingError),
    /// The service type is below 64 and reserved for the protocol.
    Reserved,
    /// The queue of unsent updates is full, because a peer is slow to acknowledge.
    Congested,
}

/// Puts one peer's name updates in order.
#[derive(Clone, Debug, Default)]
pub(super) struct NameReceiver {
    /// Number of the next update to apply; `None` until the last bulk message has arrived.
    next: Option<Seq>,
    /// Updates that wait for an earlier one. For each update number: whether the update withdraws bindings, and its
    /// items.
    waiting: BTreeMap<u16, (bool, Vec<NameItem>)>,
}

impl NameReceiver {
    pub(super) fn held_bytes(&self) -> usize {
        self.waiting.values().map(|(_, items)| items.len() * NameItem::LEN).sum()
    }
}

impl Node {
    /// Binds a port of this node to a service range and informs every node in the scope. Returns the key needed to withdraw the
    /// binding.
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

    /// Withdraws a binding of this node. If the update cannot be sent to all peers now, contact with the peers that
    /// block it is re-established from scratch, because a closing socket cannot wait, and a binding that is not
    /// withdrawn would mislead the cluster.
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
            let (last, one_by_one) = (self.bcast.last_sent(), self.names_go_one_by_one());
            let mut behind = Vec::new();
            for (addr, peer) in &mut self.peers {
                let lags = if one_by_one {
                    !peer.has_room_for_names()
                } else {
                    peer.listener.acked.is_some_and(|acked| acked.before(last))
                };
                if lags {
                    behind.push(*addr);
                }
            }
            for addr in behind {
                self.overrun(now, addr);
            }
            // Without the slow peers there is room; otherwise, no peer is left that has the binding.
            let _ = self.distribute(true, &binding);
        }
    }

    /// Whether updates are sent to each peer on its own link instead of by broadcast. A peer that does not support
    /// numbered updates applies each update as soon as it arrives, so that a broadcast update could overtake one on
    /// that peer's link. While there is such a peer, no update is broadcast, and the peer gets each update once and in
    /// order. The other peers order the updates from both links by number.
    const fn names_go_one_by_one(&self) -> bool {
        self.unnumbered > 0 || !self.cfg.announced().has(Capabilities::NAMED_BCAST)
    }

    /// Sends an update to all peers, as one numbered broadcast or as a copy to each. If this fails, no peer gets it.
    fn distribute(&mut self, withdrawal: bool, binding: &Binding) -> Result<(), Congested> {
        let Some(own) = self.addr() else { return Ok(()) };
        let mut body = Vec::new();
        NameItem { range: binding.range, port: binding.socket.port, key: binding.key }
            .encode(&mut body);
        let numbered = self.cfg.announced().has(Capabilities::NAMED_BCAST);
        let update = NameMessage {
            withdrawal,
            series: if numbered { NameSeries::Update } else { NameSeries::Legacy },
            number: self.update_number,
            owner: own,
            dest: NodeAddr(0),
            bcast_ack_invalid: false,
            body: &body,
        };
        if self.linked > 0 && self.names_go_one_by_one() {
            if !self.peers.values_mut().all(|peer| peer.has_room_for_names()) {
                return Err(Congested);
            }
            let link = LinkFields { sender: own, ..LinkFields::default() };
            for dest in self.peers_up() {
                let update = NameMessage { dest, ..update };
                // There is room, and the peer is up.
                let _ = self.send_to(dest, Packet::encoded(|out| update.encode(&link, out)));
            }
        } else if self.linked > 0 {
            let broadcast = Some(self.cfg.network);
            let link = LinkFields { sender: own, broadcast, ..LinkFields::default() };
            self.bcast.send(Packet::encoded(|out| update.encode(&link, out)))?;
        }
        self.update_number = self.update_number.next();
        Ok(())
    }

    /// Sends the first messages to a new peer: the number at which our broadcasts begin, and all our bindings.
    pub(super) fn greet(&mut self, now: Nanos, peer: NodeAddr) {
        let own = self.own();
        if self.peers.get(&peer).is_some_and(|p| !p.hears_numbered_names()) {
            self.redirect_names(now, peer);
        }
        let link = LinkFields { sender: own, ..LinkFields::default() };
        let mut messages = Vec::new();
        let mut encode = |message: Message<'_>| {
            messages.push(Packet::encoded(|out| message.encode(&link, out)));
        };
        encode(Message::BcastInit(BcastInit {
            dest: peer,
            last_bcast: self.bcast.last_sent(),
            bcast_ack_invalid: true,
        }));
        let mut items = Vec::new();
        let mut bindings: Vec<_> =
            self.names.of_node(own).filter(|(_, b)| b.scope == Scope::Cluster).collect();
        // In the order in which they were made, as in the kernel.
        bindings.sort_unstable_by_key(|(serial, _)| *serial);
        for (_, binding) in bindings {
            NameItem { range: binding.range, port: binding.socket.port, key: binding.key }
                .encode(&mut items);
        }
        let parts = items.len().div_ceil(BULK_BYTES);
        for (n, body) in items.chunks(BULK_BYTES).enumerate() {
            encode(Message::Names(NameMessage {
                withdrawal: false,
                series: if self.cfg.announced().has(Capabilities::NAMED_BCAST) {
                    NameSeries::Bulk { last: n + 1 == parts }
                } else {
                    NameSeries::Legacy
                },
                number: self.update_number,
                owner: own,
                dest: peer,
                bcast_ack_invalid: true,
                body,
            }));
        }
        for message in messages {
            if self.send_to(peer, message).is_err() {
                self.overrun(now, peer);
                return;
            }
        }
    }

    /// Handles a new peer that does not support numbered updates. The peer gets all bindings when contact begins,
    /// including those whose updates still wait to be broadcast. It must not get these updates again, perhaps after
    /// later ones, so they are sent to the other peers individually.
    fn redirect_names(&mut self, now: Nanos, newcomer: NodeAddr) {
        let updates = self.bcast.take_names();
        let others: Vec<NodeAddr> =
            self.peers_up().into_iter().filter(|a| *a != newcomer).collect();
        for update in &updates {
            let Ok(update) = NameMessage::decode(&update.view()) else { continue };
            let link = LinkFields { sender: self.own(), ..LinkFields::default() };
            for dest in &others {
                let update = NameMessage { dest: *dest, ..update };
                let message = Packet::encoded(|out| update.encode(&link, out));
                if self.send_to(*dest, message).is_err() {
                    self.overrun(now, *dest);
                }
            }
        }
    }

    fn peers_up(&self) -> Vec<NodeAddr> {
        self.peers.iter().filter(|(_, p)| p.is_up()).map(|(addr, _)| *addr).collect()
    }

    /// Handles a peer that cannot be kept consistent any more, because a queue of protocol messages is full: contact is
    /// re-established from scratch.
    fn overrun(&mut self, now: Nanos, addr: NodeAddr) {
        self.lose_peer(now, addr, crate::link::LinkDownReason::Overrun);
    }

    pub(super) fn handle_names(&mut self, now: Nanos, sender: NodeAddr, m: &NameMessage<'_>) {
        // The owner must be the sender: names are not forwarded. Updates that arrive in the packet that ends the contact are too late.
        if m.owner != sender || !self.peers.get(&sender).is_some_and(|peer| peer.is_up()) {
            self.drops.count(DropReason::Malformed);
            return;
        }
        // A node that does not announce numbered updates does not use the numbers either.
        let numbered = self.cfg.announced().has(Capabilities::NAMED_BCAST);
        match m.series {
            _ if !numbered => self.apply_names(sender, m.withdrawal, m.items()),
            NameSeries::Bulk { last } => {
                if last && let Some(peer) = self.peers.get_mut(&sender) {
                    peer.names.next = Some(m.number);
                    // Drop waiting updates that turn out to be part of the bulk.
                    peer.names.waiting.retain(|number, _| !Seq(*number).before(m.number));
                }
                self.apply_names(sender, m.withdrawal, m.items());
            }
            NameSeries::Legacy => self.apply_names(sender, m.withdrawal, m.items()),
            NameSeries::Update => {
                let Some(peer) = self.peers.get_mut(&sender) else { return };
                if peer.names.next.is_some_and(|next| m.number.before(next)) {
                    self.drops.count(DropReason::BadNameUpdate);
                    return;
                }
                if peer.names.waiting.len() >= NAME_UPDATES_WAITING_MAX {
                    self.drops.count(DropReason::BadNameUpdate);
                    self.overrun(now, sender);
                    return;
                }
                let items = || (m.withdrawal, m.items().collect());
                peer.names.waiting.entry(m.number.0).or_insert_with(items);
            }
        }
        self.apply_waiting(sender);
    }

    fn apply_waiting(&mut self, sender: NodeAddr) {
        while let Some(peer) = self.peers.get_mut(&sender)
            && let Some(next) = peer.names.next
        {
            let Some((withdrawal, items)) = peer.names.waiting.remove(&next.0) else { return };
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
