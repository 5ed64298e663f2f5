//! Sends streams: large writes are split into full packets, small writes merged.

use super::Node;
use super::peer::half_of;
use super::send::plain;
use crate::addr::{NodeAddr, Port};
use crate::limits::MESSAGE_LEN_MAX;
use crate::socket::{SocketError, SocketState};
use crate::time::Nanos;
use crate::wire::{Capabilities, DataMessage, Packet, SHORT_HEADER_LEN};

impl Node {
    /// Accepts as much of a write to a connected stream as possible. A large write is split into pieces that fill a
    /// packet each; in contrast to the fragments of a message, these need no additional header. A small write may wait
    /// for more data, as [`Merge`](crate::socket::Merge) decides.
    pub(super) fn send_stream(
        &mut self,
        now: Nanos,
        port: Port,
        payload: &[u8],
    ) -> Result<usize, SocketError> {
        let socket = self.socket(port)?;
        let nodelay = socket.options.nodelay;
        let SocketState::Connected(c) = &socket.state else {
            return Err(SocketError::NotConnected);
        };
        let node = c.peer.node;
        let full = self.stream_piece(port, node);
        let may_merge = !nodelay && self.answers_at_once(node);
        let Some(c) = self.connection(port) else { return Err(SocketError::NotConnected) };
        let merging = may_merge && c.merge.begin_write(payload.len() <= full);
        let mut taken = 0;
        while taken < payload.len() {
            let Some(c) = self.connection(port) else { break };
            let waiting = c.merge.pending.len();
            let result = if c.is_congested() {
                Err(SocketError::WouldBlock)
            } else if waiting >= full {
                self.push_stream(port, false)
            } else {
                let part = &payload[taken..payload.len().min(taken + full - waiting)];
                let last = merging && taken + part.len() == payload.len();
                let holds = merging && c.merge.holds();
                if waiting == 0 && (part.len() == full || !holds) {
                    self.send_piece(port, part, last).map(|()| taken += part.len())
                } else {
                    c.merge.pending.extend_from_slice(part);
                    taken += part.len();
                    // If there is no room for a packet that is now full, it is sent later.
                    if waiting + part.len() == full || !holds {
                        let _ = self.push_stream(port, last);
                    }
                    Ok(())
                }
            };
            match result {
                Ok(()) => {}
                Err(_) if taken > 0 => break,
                Err(error) => return Err(error),
            }
        }
        self.run_local(now);
        Ok(taken)
    }

    /// Sends the collected data of a stream if the connection's window and the link allow it. Otherwise the data is
    /// sent after the next acknowledgement, or when the link has room. `last` means that nothing else is left to send.
    pub(super) fn push_stream(&mut self, port: Port, last: bool) -> Result<(), SocketError> {
        let Some(c) = self.connection(port) else { return Ok(()) };
        if c.merge.pending.is_empty() {
            return Ok(());
        }
        if c.is_congested() {
            return Err(SocketError::WouldBlock);
        }
        let pending = core::mem::take(&mut c.merge.pending);
        let result = self.send_piece(port, &pending, last);
        if result.is_err()
            && let Some(c) = self.connection(port)
        {
            c.merge.pending = pending;
        }
        result
    }

    /// Handles the acknowledgement that a merging stream requested.
    pub(super) fn merge_acknowledged(&mut self, port: Port) {
        let Some(c) = self.connection(port) else { return };
        let goes_on = c.merge.acknowledged();
        let _ = self.push_stream(port, goes_on);
    }

    /// Sends the collected data of a stream, which is at most one packet, before its connection ends. Congestion does
    /// not delay it.
    pub(super) fn flush_stream(&mut self, port: Port) {
        let Some(c) = self.connection(port) else { return };
        let (peer, pending) = (c.peer, core::mem::take(&mut c.merge.pending));
        if pending.is_empty() {
            return;
        }
        let Some(message) = self.stream_message(port, &pending, false) else { return };
        if peer.node == self.own() || peer.node == NodeAddr(0) {
            self.local.push_back(message);
        } else if let Some(to) = self.peers.get_mut(&peer.node)
            && let Some(link) = to.carrier(half_of(port))
        {
            link.send_unasked(message);
            self.touch(peer.node);
        }
    }

    fn send_piece(&mut self, port: Port, piece: &[u8], last: bool) -> Result<(), SocketError> {
        let Some(c) = self.connection(port) else { return Err(SocketError::NotConnected) };
        let (node, asks) = (c.peer.node, last && !c.merge.holds());
        let message = self.stream_message(port, piece, asks).ok_or(SocketError::NotConnected)?;
        self.route_or_wait(port, node, message)?;
        if let Some(c) = self.connection(port) {
            c.sent(piece.len());
            c.merge.packet_sent(last);
        }
        Ok(())
    }

    /// Builds a message that contains part of a stream; `asks` requests an immediate acknowledgement. `None` if the
    /// socket is not connected.
    fn stream_message(&self, port: Port, piece: &[u8], asks: bool) -> Option<Packet> {
        let socket = self.sockets.get(&port)?;
        let SocketState::Connected(c) = &socket.state else { return None };
        let (importance, to) = (socket.options.importance, c.peer.port);
        Some(self.encode(&DataMessage { importance, flag18: asks, ..plain(port, to, piece) }))
    }

    fn connection(&mut self, port: Port) -> Option<&mut crate::socket::Connection> {
        match &mut self.sockets.get_mut(&port)?.state {
            SocketState::Connected(c) => Some(c),
            _ => None,
        }
    }

    /// Number of payload bytes of a stream that fill one packet to this node.
    fn stream_piece(&mut self, port: Port, node: NodeAddr) -> usize {
        let link = self.peers.get_mut(&node).and_then(|peer| peer.carrier(half_of(port)));
        link.map_or(MESSAGE_LEN_MAX, |link| {
            (link.packet_max() - SHORT_HEADER_LEN).min(MESSAGE_LEN_MAX)
        })
    }

    /// Whether a peer acknowledges immediately on request. False for connections within the node: their messages travel
    /// in no packets, so that merging would save none.
    fn answers_at_once(&self, node: NodeAddr) -> bool {
        self.peers.get(&node).is_some_and(|peer| peer.capabilities.has(Capabilities::NAGLE))
    }
}
