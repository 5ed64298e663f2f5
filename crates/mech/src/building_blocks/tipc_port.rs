//! TIPC's RDM and DGRAM over any implementation of TIPC. One socket serves both directions, as in other TIPC programs.
//!
//! Undeliverable messages are returned to the socket that sent them, so they wake a receiver that waits there for an
//! answer.

use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossway_sys::Errno;
use crossway_tipc_client::SocketKind;

use super::arrival;
use super::connection::buffer_facts;
use super::datagram::{AddressOf, DatagramFamily, Inbox};
use super::message_socket::{MessageSink, MessageSource, Received, check_limit};
use crate::{Carrier, Facts, Offer, OpenError, Privilege, Reliability, Spec};

/// The result of one receive call on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A message of this length in bytes. It is truncated if that is more than the buffers hold.
    Message(usize),
    /// A message of this port came back because the receiver was overloaded.
    Rejected,
    /// A message of this port came back because the port, name or node no longer exists.
    Unreachable,
    /// The socket can no longer be used.
    End,
}

/// A connectionless TIPC socket.
pub trait PortSocket: Inbox + Sync {
    /// Sends one message; EHOSTUNREACH if the name or the node is no longer in the name table.
    fn send_to(&self, msg: &[u8], to: &Self::Address, nonblocking: bool) -> Result<(), Errno>;

    /// Receives one message into `buf`, and the part that does not fit into `overflow`.
    fn receive(
        &self,
        buf: &mut [u8],
        overflow: &mut [u8],
        nonblocking: bool,
    ) -> Result<Arrival, Errno>;
}

/// An implementation of TIPC.
pub trait Tipc: 'static {
    /// The type of this implementation's sockets.
    type Socket: PortSocket;
    /// The privilege needed to use this implementation.
    const PRIVILEGE: Privilege;
    /// The largest message in bytes, for every socket type except streams.
    const LARGEST: usize;
    /// What carries the messages of this TIPC implementation.
    const CARRIER: Carrier;
    /// What the user can do about the limit [`Tipc::LARGEST`], as part of an error message.
    const ADVICE: &'static str;
    /// How to make this implementation available if it is missing.
    const REMEDY: &'static str;

    /// Creates a connectionless socket to which undeliverable messages are returned.
    fn port(kind: SocketKind, spec: &Spec) -> Result<Self::Socket, OpenError>;

    /// Binds the socket to a service of its own, so that peers can connect from this moment on. Returns the value for
    /// the offer that identifies the service.
    fn publish(socket: &Self::Socket) -> Result<String, OpenError>;

    /// Reads the service that the offer has under `name`.
    fn offered(
        mechanism: &'static str,
        offer: &Offer,
        name: &str,
    ) -> Result<<Self::Socket as Inbox>::Address, OpenError>;

    /// Creates the buffer for the part of a message that exceeds the caller's buffer.
    fn overflow(spec: &Spec) -> Vec<u8>;

    /// The version of the software that provides this implementation.
    fn version() -> String;
}

/// One of the two types of connectionless sockets, of one implementation of TIPC.
pub trait MessageType: Send + 'static {
    /// Id of the mechanism, [`Mechanism::ID`](crate::Mechanism::ID).
    const NAME: &'static str;
    /// A one-line description for users.
    const SUMMARY: &'static str;
    /// The type of the sockets, RDM or DGRAM.
    const KIND: SocketKind;
    /// The implementation of TIPC.
    type Tipc: Tipc;
}

#[derive(Debug)]
struct Port<S> {
    socket: S,
    peer_is_gone: AtomicBool,
    returned: AtomicU64,
}

impl<S: AsFd> Port<S> {
    fn facts(&self) -> Facts {
        let mut facts = buffer_facts(self.socket.as_fd());
        let returned = i64::try_from(self.returned.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
        facts.insert("returned_messages".to_owned(), returned);
        facts
    }
}

/// The sending direction of an end: the socket that serves both directions, and the peer's address.
#[derive(Debug)]
pub struct PortSink<S: Inbox> {
    port: Arc<Port<S>>,
    to: S::Address,
}

impl<S: PortSocket> MessageSink for PortSink<S> {
    #[inline]
    fn send(&mut self, msg: &[u8], nonblocking: bool) -> Result<(), Errno> {
        if self.port.peer_is_gone.load(Ordering::Relaxed) {
            return Err(Errno::PIPE);
        }
        match self.port.socket.send_to(msg, &self.to, nonblocking) {
            Err(Errno::HOSTUNREACH) => Err(Errno::PIPE),
            outcome => outcome,
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.port.socket.as_fd()
    }

    fn facts(&self) -> Facts {
        // The receiving direction counts what comes back.
        buffer_facts(self.port.socket.as_fd())
    }
}

/// The receiving direction of an end. It also receives messages that come back undelivered.
#[derive(Debug)]
pub struct PortSource<S> {
    port: Arc<Port<S>>,
    overflow: Vec<u8>,
}

impl<S: PortSocket> MessageSource for PortSource<S> {
    #[inline]
    fn recv(&mut self, buf: &mut [u8], nonblocking: bool) -> Result<Received, Errno> {
        loop {
            let beyond = self.overflow.len().saturating_sub(buf.len());
            let overflow = &mut self.overflow[..beyond];
            match self.port.socket.receive(buf, overflow, nonblocking)? {
                Arrival::Message(len) => return Ok(Received::Message(len)),
                Arrival::Rejected => {
                    self.port.returned.fetch_add(1, Ordering::Relaxed);
                }
                Arrival::Unreachable => {
                    self.port.returned.fetch_add(1, Ordering::Relaxed);
                    self.port.peer_is_gone.store(true, Ordering::Relaxed);
                    return Ok(Received::End);
                }
                Arrival::End => return Ok(Received::End),
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

/// Creates the two directions over one socket. Messages are sent to `to`.
pub(crate) fn port_halves<S: PortSocket>(
    socket: S,
    to: S::Address,
    overflow: Vec<u8>,
) -> (PortSink<S>, PortSource<S>) {
    let (peer_is_gone, returned) = (AtomicBool::new(false), AtomicU64::new(0));
    let port = Arc::new(Port { socket, peer_is_gone, returned });
    (PortSink { port: port.clone(), to }, PortSource { port, overflow })
}

/// The family of TIPC's connectionless sockets of type `T`.
#[derive(Debug)]
pub struct TipcMessages<T>(PhantomData<fn() -> T>);

type SocketOf<T> = <<T as MessageType>::Tipc as Tipc>::Socket;

impl<T: MessageType> TipcMessages<T> {
    fn port(spec: &Spec) -> Result<SocketOf<T>, OpenError> {
        check_limit(T::NAME, spec, T::Tipc::LARGEST, T::Tipc::ADVICE)?;
        T::Tipc::port(T::KIND, spec)
    }
}

impl<T: MessageType> DatagramFamily for TipcMessages<T> {
    const NAME: &'static str = T::NAME;
    const SUMMARY: &'static str = T::SUMMARY;
    const CARRIER: Carrier = T::Tipc::CARRIER;
    const RELIABILITY: Reliability = Reliability::Lossy;
    const CARRIES_EMPTY: bool = false;
    const LARGEST: Option<usize> = Some(T::Tipc::LARGEST);
    const CROSSES_HOSTS: bool = true;
    const PRIVILEGE: Privilege = T::Tipc::PRIVILEGE;
    const HELLOS: usize = 1;
    const NOT_YET: &'static [Errno] = arrival::MESSAGE;
    const ADVICE: &'static str = T::Tipc::ADVICE;
    type Inbox = SocketOf<T>;
    type Sink = PortSink<SocketOf<T>>;
    type Source = PortSource<SocketOf<T>>;

    fn inbox_to_offer(spec: &Spec) -> Result<(Self::Inbox, String), OpenError> {
        let socket = Self::port(spec)?;
        let service = T::Tipc::publish(&socket)?;
        Ok((socket, service))
    }

    fn inbox_for(spec: &Spec, _to: &AddressOf<Self>) -> Result<Self::Inbox, OpenError> {
        // Every TIPC socket has its own address; the listener learns it from the greeting.
        Self::port(spec)
    }

    fn address(offer: &Offer, name: &str) -> Result<AddressOf<Self>, OpenError> {
        T::Tipc::offered(T::NAME, offer, name)
    }

    fn halves(
        spec: &Spec,
        inbox: Self::Inbox,
        to: &AddressOf<Self>,
    ) -> Result<(Self::Sink, Self::Source, usize), OpenError> {
        let (sink, source) = port_halves(inbox, to.clone(), T::Tipc::overflow(spec));
        Ok((sink, source, T::Tipc::LARGEST))
    }

    fn remedy() -> &'static str {
        T::Tipc::REMEDY
    }

    fn version() -> String {
        T::Tipc::version()
    }
}
