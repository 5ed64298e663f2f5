//! TIPC's STREAM and SEQPACKET through a node in user space.

use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use crossway_sys::Errno;
use crossway_tipc_client::{Event, Kind, NodeSocket, Patience};

use super::byte_stream::{ByteSink, ByteSource, StreamRx, StreamTx};
use super::connection::{buffer_facts, exchange_a_byte};
use super::message_socket::{
    MessageRx, MessageSink, MessageSource, MessageTx, Received, check_limit,
};
use super::stream_socket::stream_caps;
use super::tipc_node::{
    CONN_TIMEOUT, MAX_MESSAGE_BYTES, call, node_socket, offered, probed, publish,
};
use crate::{
    Boundaries, Caps, Deadline, Facts, Listener, Mechanism, Offer, OpenError, Privilege, Probe, Rx,
    Spec, Tx,
};

/// A connected socket, as either direction uses it. The last half to go closes it: TIPC has no half-closed connection.
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

/// Where the messages of a connection come out.
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

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn facts(&self) -> Facts {
        buffer_facts(self.socket.as_fd())
    }
}

/// What tells the two kinds of connection apart.
pub trait ConnectionKind: Send + Sized + 'static {
    /// The mechanism's id.
    const NAME: &'static str;
    /// One line for people.
    const SUMMARY: &'static str;
    /// The socket's type.
    const KIND: Kind;
    /// The sending half.
    type Sender: Tx;
    /// The receiving half.
    type Receiver: Rx;

    /// What it can do.
    fn capabilities() -> Caps;

    /// Whether it can do what the spec asks.
    fn check(_spec: &Spec) -> Result<(), OpenError> {
        Ok(())
    }

    /// The halves of a channel over a connected socket.
    fn halves(spec: &Spec, socket: NodeSocket) -> (Self::Sender, Self::Receiver);
}

/// A byte stream between services.
#[derive(Debug)]
pub struct Stream;

impl ConnectionKind for Stream {
    const NAME: &'static str = "tipc-node-stream";
    const SUMMARY: &'static str =
        "TIPC through a node in user space (tipcd), connected byte stream";
    const KIND: Kind = Kind::Stream;
    type Sender = StreamTx<NodeHalf>;
    type Receiver = StreamRx<NodeHalf>;

    fn capabilities() -> Caps {
        stream_caps(true, Privilege::None)
    }

    fn halves(spec: &Spec, socket: NodeSocket) -> (Self::Sender, Self::Receiver) {
        let socket = Arc::new(socket);
        let tx = StreamTx::new(NodeHalf(socket.clone()), spec.wait);
        (tx, StreamRx::new(NodeHalf(socket), spec.wait))
    }
}

/// A connection that keeps message boundaries.
#[derive(Debug)]
pub struct Seqpacket;

impl ConnectionKind for Seqpacket {
    const NAME: &'static str = "tipc-node-seqpacket";
    const SUMMARY: &'static str = "TIPC through a node in user space (tipcd), connected messages";
    const KIND: Kind = Kind::Seqpacket;
    type Sender = MessageTx<NodeHalf>;
    type Receiver = MessageRx<NodeSource>;

    fn capabilities() -> Caps {
        Caps {
            boundaries: Boundaries::Message,
            max_message: Some(MAX_MESSAGE_BYTES),
            ..stream_caps(true, Privilege::None)
        }
    }

    fn check(spec: &Spec) -> Result<(), OpenError> {
        let advice = "this is TIPC's own limit; use tipc-node-stream for more";
        check_limit(Self::NAME, spec, MAX_MESSAGE_BYTES, advice)
    }

    fn halves(spec: &Spec, socket: NodeSocket) -> (Self::Sender, Self::Receiver) {
        let socket = Arc::new(socket);
        let tx = MessageTx::new(NodeHalf(socket.clone()), spec.wait, MAX_MESSAGE_BYTES);
        (tx, MessageRx::new(NodeSource { socket }, spec.wait))
    }
}

/// The listening side; gives a channel for every connection.
#[derive(Debug)]
pub struct NodeListener<K> {
    socket: NodeSocket,
    spec: Spec,
    kind: PhantomData<fn() -> K>,
}

impl<K: ConnectionKind> Listener for NodeListener<K> {
    type Tx = K::Sender;
    type Rx = K::Receiver;

    fn accept(&mut self, until: Deadline) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let start = Instant::now();
        match self.socket.accept(Patience::from_deadline(until)) {
            Ok((socket, _)) => Ok(K::halves(&self.spec, socket)),
            Err(Errno::AGAIN) => {
                Err(OpenError::TimedOut { mechanism: K::NAME, waited: start.elapsed() })
            }
            Err(errno) => Err(call("accept", errno)),
        }
    }
}

/// The mechanism over one kind of connection.
#[derive(Debug)]
pub struct NodeConnection<K>(PhantomData<fn() -> K>);

/// A byte stream between services.
pub type TipcNodeStream = NodeConnection<Stream>;
/// A connection that keeps message boundaries.
pub type TipcNodeSeqpacket = NodeConnection<Seqpacket>;

impl<K: ConnectionKind> Mechanism for NodeConnection<K> {
    const ID: &'static str = K::NAME;
    const ABOUT: &'static str = K::SUMMARY;
    type Tx = K::Sender;
    type Rx = K::Receiver;
    type Listener = NodeListener<K>;

    fn caps() -> Caps {
        K::capabilities()
    }

    fn probe() -> Probe {
        probed(exchange_a_byte::<Self>())
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        K::check(spec)?;
        let socket = node_socket(K::KIND, spec)?;
        // Listen before bind: binding publishes the name at once, and who came before listen would be refused.
        socket.listen().map_err(|e| call("listen", e))?;
        let service = publish(&socket)?;
        let listener = NodeListener { socket, spec: spec.clone(), kind: PhantomData };
        Ok((listener, Offer::new().with_word("service", service)))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        K::check(spec)?;
        let socket = node_socket(K::KIND, spec)?;
        let to = offered(K::NAME, offer, "service")?;
        let ms = spec.open_timeout.as_millis().clamp(1, u16::MAX.into()) as u32;
        socket.set_option(CONN_TIMEOUT, ms).map_err(|e| call("setsockopt(SOL_TIPC)", e))?;
        match socket.connect(Some(to), Patience::Forever) {
            Ok(()) => Ok(K::halves(spec, socket)),
            Err(Errno::TIMEDOUT) => {
                Err(OpenError::TimedOut { mechanism: K::NAME, waited: spec.open_timeout })
            }
            Err(errno) => Err(call("connect", errno)),
        }
    }
}
