//! Outgoing multicasts: sends them over the broadcast link or as one copy to each node, and keeps them in order when
//! the method changes.

use super::Node;
use super::send::{LOOKUP_CLUSTER, plain};
use crate::addr::{NodeAddr, Port, ServiceRange};
use crate::limits::MCAST_METHOD_KEPT;
use crate::socket::{MulticastMethod, SocketError};
use crate::time::Nanos;
use crate::wire::{Capabilities, DataKind, DataMessage, ErrorCode};
use alloc::collections::BTreeSet;

impl Node {
    /// Sends a message to every node that has a matching binding.
    pub(super) fn send_multicast(
        &mut self,
        now: Nanos,
        port: Port,
        range: ServiceRange,
        payload: &[u8],
    ) -> Result<(), SocketError> {
        if !range.is_valid() {
            return Err(SocketError::Invalid);
        }
        let own = self.own();
        let socket = self.socket(port)?;
        let (options, last) = (socket.options, socket.last_cast);
        let nodes = self.names.nodes_of(range);
        if nodes.is_empty() {
            return Err(SocketError::Unreachable);
        }
        let remote = nodes.len() - usize::from(nodes.contains(&own));
        let replicast = self.replicast_now(now, options.multicast, last, remote);
        let changed = remote > 0 && last.is_some_and(|(before, _)| before != replicast);
        let message = DataMessage {
            importance: options.importance,
            dest_droppable: true,
            flag18: replicast,
            syn: changed && self.cluster_has(Capabilities::MCAST_RBCTL),
            lookup_scope: LOOKUP_CLUSTER,
            kind: DataKind::Mcast { orig: own, dest: NodeAddr(0), range },
            ..plain(port, Port(0), payload)
        };
        self.await_room(port, &nodes, replicast)?;
        if message.syn {
            // Sent by the old method, it tells the receivers that nothing sent before is still in flight there.
            let twin = DataMessage {
                flag18: !replicast,
                error: ErrorCode::NoPort,
                payload: &[],
                ..message
            };
            let elsewhere = nodes.iter().copied().filter(|node| *node != own).collect();
            self.cast(&elsewhere, !replicast, &twin);
        }
        self.cast(&nodes, replicast, &message);
        if remote > 0 {
            self.socket(port)?.last_cast = Some((replicast, now));
        }
        Ok(())
    }

    /// Whether a multicast to `remote` other nodes is sent as one copy to each, as far as media and peers leave a
    /// choice. `wanted` is the method that the socket has chosen. `last` describes the socket's last multicast: whether
    /// it was sent in copies, and when.
    pub(super) fn replicast_now(
        &self,
        now: Nanos,
        wanted: MulticastMethod,
        last: Option<(bool, Nanos)>,
        remote: usize,
    ) -> bool {
        if !self.broadcasts_carried() {
            return true;
        }
        if !self.cluster_has(Capabilities::BCAST_RCAST) {
            return false;
        }
        let policy = self.cfg.multicasts;
        let method = if wanted == MulticastMethod::Automatic { policy.method } else { wanted };
        match (method, last) {
            (MulticastMethod::Broadcast, _) => false,
            (MulticastMethod::Replicast, _) => true,
            (MulticastMethod::Automatic, Some((last, at)))
                if !self.cluster_has(Capabilities::MCAST_RBCTL)
                    && now.since(at) < MCAST_METHOD_KEPT =>
            {
                last
            }
            (MulticastMethod::Automatic, _) => {
                remote <= 1 + self.linked * policy.replicast_percent / 100
            }
        }
    }

    /// Whether every medium in use supports broadcasts.
    fn broadcasts_carried(&self) -> bool {
        self.bearers.iter().flatten().all(|b| b.cfg.broadcasts)
    }

    /// Whether all peers with which there is contact have a capability.
    fn cluster_has(&self, capability: Capabilities) -> bool {
        self.peers.values().filter(|p| p.is_up()).all(|p| p.capabilities.has(capability))
    }

    /// Checks whether a message to all these nodes would be accepted now. If not, registers the socket to be woken. The
    /// message must be sent to all nodes or to none: if only some accepted it, the sender would try again and send it
    /// to those nodes twice.
    pub(super) fn await_room(
        &mut self,
        port: Port,
        nodes: &BTreeSet<NodeAddr>,
        replicast: bool,
    ) -> Result<(), SocketError> {
        let level = self.socket(port)?.options.importance as usize;
        if !replicast {
            if self.bcast.has_room(level) {
                return Ok(());
            }
            self.bcast.stats.congestions += 1;
            if !self.bcast_waiting.contains(&(port, level)) {
                self.bcast_waiting.push_back((port, level));
            }
            return Err(SocketError::WouldBlock);
        }
        for node in nodes {
            if let Some(peer) = self.peers.get_mut(node)
                && peer.is_up()
                && !peer.has_room(port, level)
            {
                peer.wait(port, level);
                return Err(SocketError::WouldBlock);
            }
        }
        Ok(())
    }

    /// Sends a message to these nodes, which may include this one. `await_room` must have found room for the message.
    /// Only the loss of a node can then prevent its delivery, and in that case the node's bindings are lost, too.
    pub(super) fn cast(
        &mut self,
        nodes: &BTreeSet<NodeAddr>,
        replicast: bool,
        message: &DataMessage<'_>,
    ) {
        let own = self.own();
        if !replicast {
            if self.linked > 0 && nodes.iter().any(|node| *node != own) {
                let _ = self.bcast.send(self.encode(message));
            }
            if nodes.contains(&own) {
                let message = self.encode(message);
                let _ = self.route(own, message);
            }
            return;
        }
        for node in nodes {
            let mut kind = message.kind;
            if let DataKind::Mcast { dest, .. } | DataKind::Group { dest, .. } = &mut kind {
                *dest = *node;
            }
            let message = self.encode(&DataMessage { kind, ..*message });
            let _ = self.route(*node, message);
        }
    }

    /// Wakes waiting senders, in order of arrival, while the broadcast link has room.
    pub(super) fn wake_broadcasters(&mut self) {
        let mut woken = 0;
        while let Some(&(port, level)) = self.bcast_waiting.front()
            && self.bcast.room(level) > woken
        {
            self.bcast_waiting.pop_front();
            self.socket_changed(port);
            woken += 1;
        }
    }
}
