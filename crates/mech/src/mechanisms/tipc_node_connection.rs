//! TIPC's STREAM and SEQPACKET through a node in user space.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossway_sys::Errno;
use crossway_tipc_client::{Address, Event, NodeSocket, Patience, SocketKind, SocketOption};

use super::tipc_node::{MAX_MESSAGE_BYTES, REMEDY, call, node_socket, offered, publish, version};
use super::tipc_node_message::NodeTipc;
use crate::building_blocks::arrival;
use crate::building_blocks::byte_stream::{ByteSink, ByteSource, StreamRx, StreamTx};
use crate::building_blocks::connection::{ConnectionFamily, Dialling, Endpoint, buffer_facts};
use crate::building_blocks::message_socket::{
    MessageRx, MessageSink, MessageSource, MessageTx, Received, check_limit,
};
use crate::building_blocks::stream_socket::stream_caps;
use crate::building_blocks::tipc_port::Tipc;
use crate::{
    Boundaries, Caps, Carrier, Deadline, Facts, Family, NodeKind, Offer, OpenError, Privilege,
    Spec, Transport, Wait,
};

/// A connected socket that is used for both directions. Dropping the last half closes it, because TIPC has no
/// half-closed connections.
#[derive(Debug)]
pub struct NodeHalf(Arc<NodeSocket>);

fn patience(nonblocking: bool) -> Patience {
    if nonblocking { Patience::Now } else { Patience::Forever }
}

impl ByteSink for NodeHalf {
    #[inline]
    fn write(&mut self, bytes: &[u8], nonblocking: bool) -> Result<usize, Errno> {
        self.0.send(bytes, None, patience(nonblocking))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn facts(&self) -> Facts {
        buffer_facts(self.0.as_fd())
    }
}

impl ByteSource for NodeHalf {
    #[inline]
    fn read(&mut self, buf: &mut [u8], nonblocking: bool) -> Result<usize, Errno> {
        self.0.recv(buf, patience(nonblocking))
    }

    #[inline]
    fn spins_itself(&self) -> bool {
        self.0.is_spin_set()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn facts(&self) -> Facts {
        buffer_facts(self.0.as_fd())
    }
}

impl MessageSink for NodeHalf {
    #[inline]
    fn send(&mut self, msg: &[u8], nonblocking: bool) -> Result<(), Errno> {
        self.0.send(msg, None, patience(nonblocking)).map(drop)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn facts(&self) -> Facts {
        buffer_facts(self.0.as_fd())
    }
}

/// The receiving side of a connection.
#[derive(Debug)]
pub struct NodeSource {
    socket: Arc<NodeSocket>,
}

impl MessageSource for NodeSource {
    #[inline]
    fn recv(&mut self, buf: &mut [u8], nonblocking: bool) -> Result<Received, Errno> {
        let message = self.socket.recv_message(buf, patience(nonblocking))?;
        Ok(match message.event {
            Event::Data => Received::Message(message.full_len),
            _ => Received::End,
        })
    }

    #[inline]
    fn spins_itself(&self) -> bool {
        self.socket.is_spin_set()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn facts(&self) -> Facts {
        buffer_facts(self.socket.as_fd())
    }
}

impl Endpoint for NodeSocket {
    type Address = Address;

    fn accept_until(&self, mechanism: &'static str, until: Deadline) -> Result<Self, OpenError> {
        let start = Instant::now();
        match self.accept(Patience::from_deadline(until)) {
            Ok((socket, _)) => Ok(socket),
            Err(Errno::AGAIN) => Err(OpenError::TimedOut { mechanism, waited: start.elapsed() }),
            Err(errno) => Err(call("accept", errno)),
        }
    }

    fn connect_within(
        &self,
        address: &Address,
        limit: Duration,
    ) -> Result<Result<(), Errno>, OpenError> {
        let ms = limit.as_millis().clamp(1, u16::MAX.into()) as u32;
        self.set_option(SocketOption::ConnectTimeout, ms)
            .map_err(|e| call("setsockopt(SOL_TIPC)", e))?;
        Ok(self.connect(Some(*address), Patience::Forever))
    }
}

fn listening(kind: SocketKind, spec: &Spec) -> Result<(NodeSocket, Offer), OpenError> {
    let socket = node_socket(kind, spec)?;
    // Listen before bind: binding publishes the name immediately, and peers that connect before listen would be
    // refused.
    socket.listen().map_err(|e| call("listen", e))?;
    let service = publish(&socket)?;
    Ok((socket, Offer::new().with_word("service", service)))
}

fn dialling(
    mechanism: &'static str,
    kind: SocketKind,
    spec: &Spec,
    offer: &Offer,
) -> Result<Dialling<NodeSocket>, OpenError> {
    Ok((node_socket(kind, spec)?, offered(mechanism, offer, "service")?))
}

/// Returns the connected socket for both directions. A receiver that waits in the hybrid way lets the client library
/// spin: a message that arrives meanwhile costs neither end a system call. Spinning with calls that do not block cannot
/// save these calls.
fn shared(socket: NodeSocket, spec: &Spec) -> Arc<NodeSocket> {
    if let Wait::Hybrid { spin_us } = spec.wait {
        socket.set_spin(Duration::from_micros(spin_us.into()));
    }
    Arc::new(socket)
}

/// The mechanism `tipc-node-stream`: STREAM sockets of a `tipcd`, a connection that carries bytes.
#[derive(Debug)]
pub struct TipcNodeStream;

impl ConnectionFamily for TipcNodeStream {
    const NAME: &'static str = "tipc-node-stream";
    const SUMMARY: &'static str =
        "TIPC through a node in user space (tipcd), connected byte stream";
    const CARRIER: Carrier = Carrier::new(Family::Tipc, Transport::Tipc).through(NodeKind::Tipcd);
    const NOT_YET: &'static [Errno] = arrival::CONNECTION;
    type Socket = NodeSocket;
    type Sender = StreamTx<NodeHalf>;
    type Receiver = StreamRx<NodeHalf>;

    fn capabilities() -> Caps {
        stream_caps(true, Privilege::None)
    }

    fn listening(spec: &Spec) -> Result<(NodeSocket, Offer), OpenError> {
        listening(SocketKind::Stream, spec)
    }

    fn dialling(spec: &Spec, offer: &Offer) -> Result<Dialling<NodeSocket>, OpenError> {
        dialling(Self::NAME, SocketKind::Stream, spec, offer)
    }

    fn channel(
        spec: &Spec,
        socket: NodeSocket,
    ) -> Result<(Self::Sender, Self::Receiver), OpenError> {
        let socket = shared(socket, spec);
        let tx = StreamTx::new(NodeHalf(socket.clone()), spec.wait);
        Ok((tx, StreamRx::new(NodeHalf(socket), spec.wait)))
    }

    fn remedy() -> &'static str {
        REMEDY
    }

    fn version() -> String {
        version()
    }
}

/// The mechanism `tipc-node-seqpacket`: SEQPACKET sockets of a `tipcd`, a connection that preserves message boundaries.
#[derive(Debug)]
pub struct TipcNodeSeqpacket;

impl ConnectionFamily for TipcNodeSeqpacket {
    const NAME: &'static str = "tipc-node-seqpacket";
    const SUMMARY: &'static str = "TIPC through a node in user space (tipcd), connected messages";
    const CARRIER: Carrier = Carrier::new(Family::Tipc, Transport::Tipc).through(NodeKind::Tipcd);
    const NOT_YET: &'static [Errno] = arrival::CONNECTION;
    type Socket = NodeSocket;
    type Sender = MessageTx<NodeHalf>;
    type Receiver = MessageRx<NodeSource>;

    fn capabilities() -> Caps {
        Caps {
            boundaries: Boundaries::Message,
            max_message: Some(MAX_MESSAGE_BYTES),
            ..stream_caps(true, Privilege::None)
        }
    }

    fn listening(spec: &Spec) -> Result<(NodeSocket, Offer), OpenError> {
        check(spec)?;
        listening(SocketKind::Seqpacket, spec)
    }

    fn dialling(spec: &Spec, offer: &Offer) -> Result<Dialling<NodeSocket>, OpenError> {
        check(spec)?;
        dialling(Self::NAME, SocketKind::Seqpacket, spec, offer)
    }

    fn channel(
        spec: &Spec,
        socket: NodeSocket,
    ) -> Result<(Self::Sender, Self::Receiver), OpenError> {
        let socket = shared(socket, spec);
        let tx = MessageTx::new(NodeHalf(socket.clone()), spec.wait, MAX_MESSAGE_BYTES);
        Ok((tx, MessageRx::new(NodeSource { socket }, spec.wait)))
    }

    fn remedy() -> &'static str {
        REMEDY
    }

    fn version() -> String {
        version()
    }
}

fn check(spec: &Spec) -> Result<(), OpenError> {
    check_limit(TipcNodeSeqpacket::NAME, spec, MAX_MESSAGE_BYTES, NodeTipc::ADVICE)
}
