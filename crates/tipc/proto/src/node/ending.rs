//! Ends of connections: by their programs, by their peers, or because a node was lost.

use super::Node;
use super::deliver::connection_end;
use crate::addr::{NodeAddr, Port};
use crate::socket::{Socket, SocketError, SocketState};
use crate::time::Nanos;
use crate::wire::{ErrorCode, Packet};
use alloc::vec::Vec;

impl Node {
    /// Shuts a connection down: the peer still reads the data in flight and then the end of the connection. Does
    /// nothing if the connection has already ended.
    ///
    /// # Errors
    /// [`SocketError::NotConnected`], [`SocketError::BadSocket`].
    pub fn shutdown(&mut self, now: Nanos, port: Port) -> Result<(), SocketError> {
        self.end(now, port, ErrorCode::ConnShutdown)
    }

    /// Aborts a connection: the peer still reads the data in flight and then gets a reset. For a caller that has
    /// accepted more data from its program than it was able to send.
    ///
    /// # Errors
    /// [`SocketError::NotConnected`], [`SocketError::BadSocket`].
    pub fn abort(&mut self, now: Nanos, port: Port) -> Result<(), SocketError> {
        self.end(now, port, ErrorCode::NoPort)
    }

    /// Ends this end's direction of a stream whose sockets both have [`half_close`](crate::socket::SocketOptions::half_close): the peer takes an empty
    /// message after everything that was sent before, and can go on sending.
    ///
    /// # Errors
    /// [`SocketError::NotSupported`] without that option, [`SocketError::NotConnected`], [`SocketError::BadSocket`].
    pub fn end_sending(&mut self, now: Nanos, port: Port) -> Result<(), SocketError> {
        self.flush_stream(port);
        let socket = self.socket(port)?;
        if !socket.options.half_close {
            return Err(SocketError::NotSupported);
        }
        let SocketState::Connected(c) = &mut socket.state else {
            return Err(SocketError::NotConnected);
        };
        c.sent(0);
        let peer = c.peer;
        self.end_connection(port, peer, ErrorCode::Ok);
        self.run_local(now);
        Ok(())
    }

    fn end(&mut self, now: Nanos, port: Port, error: ErrorCode) -> Result<(), SocketError> {
        self.flush_stream(port);
        let socket = self.socket(port)?;
        match socket.state {
            SocketState::Disconnected => return Ok(()),
            SocketState::Connected(ref c) => {
                let peer = c.peer;
                let state = core::mem::replace(&mut socket.state, SocketState::Disconnected);
                self.clear_socket_timer(port, &state);
                self.end_connection(port, peer, error);
            }
            _ => return Err(SocketError::NotConnected),
        }
        self.socket_changed(port);
        self.run_local(now);
        Ok(())
    }

    /// Ends a socket's connection. `end` becomes the last item in the socket's receive queue.
    pub(super) fn disconnect(&mut self, port: Port, end: Packet) {
        let Some(socket) = self.sockets.get_mut(&port) else { return };
        let state = core::mem::replace(&mut socket.state, SocketState::Disconnected);
        socket.push(end);
        self.clear_socket_timer(port, &state);
        self.socket_changed(port);
    }

    /// Ends the connections with a node that was lost.
    pub(super) fn lose_connections(&mut self, now: Nanos, node: NodeAddr) {
        self.release_held(now, node);
        self.lose_members(node);
        let lost =
            |s: &&mut Socket| matches!(&s.state, SocketState::Connected(c) if c.peer.node == node);
        let mut ends = Vec::new();
        for (port, socket) in &mut self.sockets {
            if lost(&socket)
                && let SocketState::Connected(c) = &socket.state
            {
                ends.push((*port, c.peer));
            }
        }
        for (port, peer) in ends {
            let message = connection_end(port, peer, ErrorCode::NoNode, &[]);
            self.disconnect(port, message);
        }
    }
}
