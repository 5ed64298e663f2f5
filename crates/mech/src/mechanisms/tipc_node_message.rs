//! TIPC's RDM and DGRAM through a node in user space.

use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossway_sys::Errno;
use crossway_tipc_client::{Address, ErrorCode, Event, Kind, NodeSocket, Patience};

use super::connection::{buffer_facts, exchange_a_byte};
use super::message_socket::{
    MessageRx, MessageSink, MessageSource, MessageTx, Received, check_limit,
};
use super::tipc_node::{MAX_MESSAGE_BYTES, call, node_socket, offered, probed, publish};
use crate::{
    Boundaries, Caps, Deadline, Facts, Listener, Mechanism, Offer, OpenError, Order, Privilege,
    Probe, Reliability, Spec,
};

/// What a connecting end says at the door.
const HELLO: &[u8] = b"crossway";

/// How long a call that should not wait gives the node's process to run. What fills the descriptor is only that it has not run yet:
/// within a node nothing holds these messages back.
const NODE_RUNS_WITHIN: Duration = Duration::from_secs(1);

/// One socket for both directions, as TIPC programs have it: what cannot be delivered comes back to where it was sent from, and so
/// wakes who waits for an answer.
#[derive(Debug)]
struct Port {
    socket: NodeSocket,
    peer_is_gone: AtomicBool,
    returned: AtomicU64,
}

impl Port {
    fn facts(&self) -> Facts {
        let mut facts = buffer_facts(self.socket.as_fd());
        let returned = i64::try_from(self.returned.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
        facts.insert("returned_messages".to_owned(), returned);
        facts
    }
}

/// Where messages go in.
#[derive(Debug)]
pub struct NodePortSink {
    port: Arc<Port>,
    to: Address,
}

impl MessageSink for NodePortSink {
    #[inline]
    fn send(&mut self, msg: &[u8], nonblocking: bool) -> Result<(), Errno> {
        if self.port.peer_is_gone.load(Ordering::Relaxed) {
            return Err(Errno::PIPE);
        }
        let patience = if nonblocking { Patience::Now } else { Patience::Forever };
        let outcome = match self.port.socket.send(msg, Some(self.to), patience) {
            Err(Errno::AGAIN) if nonblocking => {
                let patience = Patience::Until(Instant::now() + NODE_RUNS_WITHIN);
                self.port.socket.send(msg, Some(self.to), patience)
            }
            outcome => outcome,
        };
        match outcome {
            // The name or the node is gone from the name table.
            Err(Errno::HOSTUNREACH) => Err(Errno::PIPE),
            outcome => outcome.map(drop),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.port.socket.as_fd()
    }

    fn facts(&self) -> Facts {
        self.port.facts()
    }
}

/// Where messages come out.
#[derive(Debug)]
pub struct NodePortSource {
    port: Arc<Port>,
}

impl MessageSource for NodePortSource {
    #[inline]
    fn recv(&mut self, buf: &mut [u8], nonblocking: bool) -> Result<Received, Errno> {
        let patience = if nonblocking { Patience::Now } else { Patience::Forever };
        loop {
            let message = self.port.socket.recv_message(buf, patience)?;
            match message.event {
                Event::Data => return Ok(Received::Message(message.full_len)),
                Event::Returned(ErrorCode::Overload) => {
                    self.port.returned.fetch_add(1, Ordering::Relaxed);
                }
                // No such port, name or node any more.
                Event::Returned(_) => {
                    self.port.returned.fetch_add(1, Ordering::Relaxed);
                    self.port.peer_is_gone.store(true, Ordering::Relaxed);
                    return Ok(Received::End);
                }
                Event::End(_) | Event::MemberUp | Event::MemberDown => return Ok(Received::End),
            }
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.port.socket.as_fd()
    }

    fn facts(&self) -> Facts {
        self.port.facts()
    }
}

/// What tells RDM and DGRAM apart.
pub trait MessageType: Send + 'static {
    /// The mechanism's id.
    const NAME: &'static str;
    /// One line for people.
    const SUMMARY: &'static str;
    /// The socket's type.
    const KIND: Kind;
}

/// SOCK_RDM.
#[derive(Debug)]
pub struct Rdm;

impl MessageType for Rdm {
    const NAME: &'static str = "tipc-node-rdm";
    const SUMMARY: &'static str =
        "TIPC through a node in user space (tipcd), RDM messages; an overloaded receiver rejects";
    const KIND: Kind = Kind::Rdm;
}

/// SOCK_DGRAM.
#[derive(Debug)]
pub struct Dgram;

impl MessageType for Dgram {
    const NAME: &'static str = "tipc-node-dgram";
    const SUMMARY: &'static str =
        "TIPC through a node in user space (tipcd), datagrams; an overloaded receiver rejects";
    const KIND: Kind = Kind::Dgram;
}

type Halves = (MessageTx<NodePortSink>, MessageRx<NodePortSource>);

fn halves(spec: &Spec, socket: NodeSocket, to: Address) -> Halves {
    let (peer_is_gone, returned) = (AtomicBool::new(false), AtomicU64::new(0));
    let port = Arc::new(Port { socket, peer_is_gone, returned });
    let sink = NodePortSink { port: port.clone(), to };
    (
        MessageTx::new(sink, spec.wait, MAX_MESSAGE_BYTES),
        MessageRx::new(NodePortSource { port }, spec.wait),
    )
}

/// The listening side: one channel, fed by everyone who connects; it sends to who connected first.
#[derive(Debug)]
pub struct NodeMessageListener<T> {
    inbox: Option<NodeSocket>,
    door: NodeSocket,
    spec: Spec,
    kind: PhantomData<fn() -> T>,
}

impl<T: MessageType> Listener for NodeMessageListener<T> {
    type Tx = MessageTx<NodePortSink>;
    type Rx = MessageRx<NodePortSource>;

    fn accept(&mut self, until: Deadline) -> Result<Halves, OpenError> {
        let Some(inbox) = self.inbox.take() else {
            return Err(super::no_second_channel(T::NAME));
        };
        let start = Instant::now();
        let mut word = [0; HELLO.len() + 1];
        loop {
            match self.door.recv_message(&mut word, Patience::from_deadline(until)) {
                Ok(hello) if hello.event == Event::Data && word[..hello.len] == *HELLO => {
                    return Ok(halves(&self.spec, inbox, hello.from.into()));
                }
                // Whatever else comes to the door is a stranger's.
                Ok(_) => {}
                Err(errno) => {
                    self.inbox = Some(inbox);
                    return Err(match errno {
                        Errno::AGAIN => {
                            OpenError::TimedOut { mechanism: T::NAME, waited: start.elapsed() }
                        }
                        errno => call("recv", errno),
                    });
                }
            }
        }
    }
}

/// The mechanism over one kind of connectionless socket.
#[derive(Debug)]
pub struct NodeMessages<T>(PhantomData<fn() -> T>);

/// Reliably delivered messages: reliable on the way, not at a receiver that is full.
pub type TipcNodeRdm = NodeMessages<Rdm>;
/// Datagrams: may also be dropped on the way.
pub type TipcNodeDgram = NodeMessages<Dgram>;

fn check<T: MessageType>(spec: &Spec) -> Result<(), OpenError> {
    let advice = "this is TIPC's own limit; use tipc-node-stream for more";
    check_limit(T::NAME, spec, MAX_MESSAGE_BYTES, advice)
}

impl<T: MessageType> Mechanism for NodeMessages<T> {
    const ID: &'static str = T::NAME;
    const ABOUT: &'static str = T::SUMMARY;
    type Tx = MessageTx<NodePortSink>;
    type Rx = MessageRx<NodePortSource>;
    type Listener = NodeMessageListener<T>;

    fn caps() -> Caps {
        Caps {
            boundaries: Boundaries::Message,
            max_message: Some(MAX_MESSAGE_BYTES),
            order: Order::Fifo,
            reliability: Reliability::Lossy,
            carries_empty: false,
            in_place: false,
            waitable_fd: true,
            fan_in: true,
            fan_out: false,
            reconnects: false,
            crosses_hosts: true,
            can_block: true,
            can_spin: true,
            // A sender is told, a receiver never: nothing is connected to it.
            detects_peer_death: false,
            send_deadline: true,
            privilege: Privilege::None,
        }
    }

    fn probe() -> Probe {
        probed(exchange_a_byte::<Self>())
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        check::<T>(spec)?;
        let inbox = node_socket(T::KIND, spec)?;
        let door = node_socket(T::KIND, spec)?;
        let offer =
            Offer::new().with_word("inbox", publish(&inbox)?).with_word("door", publish(&door)?);
        let (inbox, kind) = (Some(inbox), PhantomData);
        Ok((NodeMessageListener { inbox, door, spec: spec.clone(), kind }, offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        check::<T>(spec)?;
        let to = offered(T::NAME, offer, "inbox")?;
        let door = offered(T::NAME, offer, "door")?;
        let socket = node_socket(T::KIND, spec)?;
        // A door that is gone has had its first visitor.
        let _ = socket.send(HELLO, Some(door), Patience::Until(Instant::now() + spec.open_timeout));
        Ok(halves(spec, socket, to))
    }
}
