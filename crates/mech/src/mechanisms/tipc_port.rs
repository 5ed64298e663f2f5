//! TIPC's RDM and DGRAM, over whichever TIPC there is: one socket for both directions, as TIPC programs have it.
//!
//! What cannot be delivered comes back to the socket from which it was sent, and so wakes who waits there for an answer.

use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossway_sys::Errno;
use crossway_tipc_client::Kind;

use super::arrival;
use super::connection::buffer_facts;
use super::datagram::{AddressOf, DatagramFamily, Inbox};
use super::message_socket::{MessageSink, MessageSource, Received, check_limit};
use crate::{Facts, Offer, OpenError, Privilege, Reliability, Spec};

/// What one receiving call found at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A message of so many bytes; cut if that is more than the buffers have.
    Message(usize),
    /// A message of this port's own: the receiver was overloaded.
    Rejected,
    /// A message of this port's own: there is no such port, name or node any more.
    Unreachable,
    /// The socket is of no more use.
    End,
}

/// A connectionless TIPC socket.
pub trait PortSocket: Inbox + Sync {
    /// Sends one message; EHOSTUNREACH when the name or the node is gone from the name table.
    fn send_to(&self, msg: &[u8], to: &Self::Address, nonblocking: bool) -> Result<(), Errno>;

    /// Receives one message into `buf`, and what does not fit there into `overflow`.
    fn receive(
        &self,
        buf: &mut [u8],
        overflow: &mut [u8],
        nonblocking: bool,
    ) -> Result<Arrival, Errno>;
}

/// An implementation of TIPC.
pub trait Tipc: 'static {
    /// Its sockets.
    type Socket: PortSocket;
    /// What it takes to use it.
    const PRIVILEGE: Privilege;
    /// The largest message of every type but stream.
    const LARGEST: usize;
    /// What to do about that.
    const ADVICE: &'static str;
    /// What brings it here.
    const REMEDY: &'static str;

    /// A connectionless socket to which undeliverable messages come back.
    fn port(kind: Kind, spec: &Spec) -> Result<Self::Socket, OpenError>;

    /// Binds the socket to a service of its own; peers can come from this moment on. The word that names it.
    fn publish(socket: &Self::Socket) -> Result<String, OpenError>;

    /// The service that a word of an offer names.
    fn offered(
        mechanism: &'static str,
        offer: &Offer,
        name: &str,
    ) -> Result<<Self::Socket as Inbox>::Address, OpenError>;

    /// Where what is received goes beyond the caller's buffer.
    fn overflow(spec: &Spec) -> Vec<u8>;

    /// The version of what provides it.
    fn version() -> String;
}

/// One of the types of connectionless sockets, of one implementation.
pub trait MessageType: Send + 'static {
    /// The mechanism's id.
    const NAME: &'static str;
    /// One line for people.
    const SUMMARY: &'static str;
    /// The socket's type.
    const KIND: Kind;
    /// Whose sockets.
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

/// Where messages go in.
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
        self.port.facts()
    }
}

/// Where messages come out.
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

/// The two directions of one socket that sends to `to`.
pub(super) fn port_halves<S: PortSocket>(
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
        // Every TIPC socket has an address of its own; the listener learns it from the hello.
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
