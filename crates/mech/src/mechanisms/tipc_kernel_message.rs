//! AF_TIPC, SOCK_RDM and SOCK_DGRAM.

use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossway_sys::Errno;
use crossway_sys::socket::{self, Address, Kind};
use crossway_sys::tipc::{self, TipcAddress, TipcMessage};

use super::datagram::{Datagram, DatagramFamily};
use super::message_socket::{MessageSink, MessageSource, Received};
use super::tipc_kernel::{REMEDY, offered, publish, tipc_socket};
use crate::{Facts, Offer, OpenError, Privilege, Reliability, Spec};

/// Reliably delivered messages: reliable on the way, not at a receiver that is full.
pub type TipcKernelRdm = Datagram<TipcMessages<Rdm>>;
/// Datagrams: may also be dropped on the way.
pub type TipcKernelDgram = Datagram<TipcMessages<Dgram>>;

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
    const NAME: &'static str = "tipc-kernel-rdm";
    const SUMMARY: &'static str = "the kernel's TIPC, RDM messages; an overloaded receiver rejects";
    const KIND: Kind = Kind::Rdm;
}

/// SOCK_DGRAM.
#[derive(Debug)]
pub struct Dgram;

impl MessageType for Dgram {
    const NAME: &'static str = "tipc-kernel-dgram";
    const SUMMARY: &'static str = "the kernel's TIPC, datagrams; an overloaded receiver rejects";
    const KIND: Kind = Kind::Dgram;
}

/// The family of AF_TIPC's connectionless sockets.
#[derive(Debug)]
pub struct TipcMessages<T>(PhantomData<fn() -> T>);

/// One socket for both directions, as TIPC programs have it: what cannot be delivered comes back to where it was sent
/// from, and so wakes who waits for an answer.
#[derive(Debug)]
struct Port {
    fd: OwnedFd,
    peer_is_gone: AtomicBool,
    returned: AtomicU64,
}

impl Port {
    fn facts(&self) -> Facts {
        let mut facts = super::connection::buffer_facts(self.fd.as_fd());
        let returned = i64::try_from(self.returned.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
        facts.insert("returned_messages".to_owned(), returned);
        facts
    }
}

/// Where messages go in.
#[derive(Debug)]
pub struct PortSink {
    port: Arc<Port>,
    to: Address,
}

impl MessageSink for PortSink {
    #[inline]
    fn send(&mut self, msg: &[u8], nonblocking: bool) -> Result<(), Errno> {
        if self.port.peer_is_gone.load(Ordering::Relaxed) {
            return Err(Errno::PIPE);
        }
        match socket::send_to(&self.port.fd, msg, &self.to, nonblocking) {
            // The name or the node is gone from the name table.
            Err(Errno::HOSTUNREACH) => Err(Errno::PIPE),
            outcome => outcome.map(drop),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.port.fd.as_fd()
    }

    fn facts(&self) -> Facts {
        self.port.facts()
    }
}

/// Where messages come out.
#[derive(Debug)]
pub struct PortSource {
    port: Arc<Port>,
    overflow: Vec<u8>,
}

impl MessageSource for PortSource {
    #[inline]
    fn recv(&mut self, buf: &mut [u8], nonblocking: bool) -> Result<Received, Errno> {
        loop {
            let beyond = self.overflow.len().saturating_sub(buf.len());
            let overflow = &mut self.overflow[..beyond];
            match tipc::recv(&self.port.fd, buf, overflow, false, nonblocking)? {
                TipcMessage::Data(len) => return Ok(Received::Message(len)),
                TipcMessage::Returned(tipc::REASON_OVERLOAD) => {
                    self.port.returned.fetch_add(1, Ordering::Relaxed);
                }
                // No such port, name or node any more.
                TipcMessage::Returned(_) => {
                    self.port.returned.fetch_add(1, Ordering::Relaxed);
                    self.port.peer_is_gone.store(true, Ordering::Relaxed);
                    return Ok(Received::End);
                }
            }
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.port.fd.as_fd()
    }

    fn facts(&self) -> Facts {
        self.port.facts()
    }
}

impl<T: MessageType> DatagramFamily for TipcMessages<T> {
    const NAME: &'static str = T::NAME;
    const SUMMARY: &'static str = T::SUMMARY;
    const RELIABILITY: Reliability = Reliability::Lossy;
    const CARRIES_EMPTY: bool = false;
    const LARGEST: Option<usize> = Some(tipc::MAX_MESSAGE_BYTES);
    const CROSSES_HOSTS: bool = true;
    const PRIVILEGE: Privilege = Privilege::Module;
    const HELLOS: usize = 1;
    const ADVICE: &'static str = "this is TIPC's own limit; use tipc-kernel-stream for more";
    type Sink = PortSink;
    type Source = PortSource;

    fn inbox_to_offer(spec: &Spec) -> Result<(OwnedFd, String), OpenError> {
        let fd = port_socket::<T>(spec)?;
        let service = publish(&fd)?;
        Ok((fd, service.to_string()))
    }

    fn inbox_for(spec: &Spec, _to: &Address) -> Result<OwnedFd, OpenError> {
        // Every TIPC socket has an address of its own; the listener learns it from the hello.
        port_socket::<T>(spec)
    }

    fn address(offer: &Offer, name: &str) -> Result<Address, OpenError> {
        offered(Self::NAME, offer, name)
    }

    fn describe(address: &Address) -> String {
        TipcAddress::from_any(address).map(|address| address.to_string()).unwrap_or_default()
    }

    fn halves(
        spec: &Spec,
        inbox: OwnedFd,
        to: &Address,
    ) -> Result<(PortSink, PortSource, usize), OpenError> {
        let (sink, source) = port_halves(spec, inbox, to);
        Ok((sink, source, tipc::MAX_MESSAGE_BYTES))
    }

    fn remedy() -> &'static str {
        REMEDY
    }
}

/// The two directions of one socket that sends to `to`.
pub(super) fn port_halves(spec: &Spec, fd: OwnedFd, to: &Address) -> (PortSink, PortSource) {
    let (peer_is_gone, returned) = (AtomicBool::new(false), AtomicU64::new(0));
    let port = Arc::new(Port { fd, peer_is_gone, returned });
    let sink = PortSink { port: port.clone(), to: to.clone() };
    (sink, PortSource { port, overflow: vec![0; spec.max_message] })
}

fn port_socket<T: MessageType>(spec: &Spec) -> Result<OwnedFd, OpenError> {
    let fd = tipc_socket(T::KIND, spec)?;
    tipc::return_undeliverable(&fd)?;
    Ok(fd)
}
