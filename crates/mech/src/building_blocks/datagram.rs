//! Connectionless message sockets of AF_UNIX and UDP. Each end has one socket to send with and one to receive with.
//! (TIPC uses one socket for both, see tipc_port.rs.)
//!
//! The receiving socket is bound and not connected, so that several senders can send to it. The sending one is
//! connected, so that a plain `send` suffices, `poll` reports room at the receiver, and the kernel can report that the
//! receiver has closed. A connecting end introduces itself by a message to a third socket of the listener, the
//! *greeting socket*. The source of that message is the address at which the connecting end receives.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::socket::{self, Address};
use crossway_sys::{Errno, OsError};

use super::arrival::{await_name, tried_for};
use super::message_socket::{
    MessageRx, MessageSink, MessageSource, MessageTx, Received, check_limit,
};
use crate::{
    Caps, Carrier, Deadline, Facts, Listener, Mechanism, Offer, OpenError, Privilege, Probe,
    Reliability, Spec,
};

/// The message with which a connecting end introduces itself.
const HELLO: &[u8] = b"crossway";

/// A receiving socket, with the operations needed for the introduction.
pub trait Inbox: AsFd + Send + 'static {
    /// The address type of the socket.
    type Address: Clone + Send + 'static;

    /// Sends the introduction `word` to the greeting socket `to`, waiting no longer than `within`.
    fn greet(&self, to: &Self::Address, word: &[u8], within: Duration) -> Result<(), Errno>;

    /// Receives a message. Returns its full length, and its sender if that can be replied to. EAGAIN if there is none.
    fn hear(&self, buf: &mut [u8]) -> Result<(usize, Option<Self::Address>), Errno>;
}

impl Inbox for OwnedFd {
    type Address = Address;

    fn greet(&self, to: &Address, word: &[u8], _within: Duration) -> Result<(), Errno> {
        socket::send_to(self, word, to, true).map(drop)
    }

    fn hear(&self, buf: &mut [u8]) -> Result<(usize, Option<Address>), Errno> {
        socket::recv_message_from(self, buf, true)
    }
}

/// The address type of the sockets of family `F`.
pub type AddressOf<F> = <<F as DatagramFamily>::Inbox as Inbox>::Address;

/// A family of connectionless sockets.
pub trait DatagramFamily: Send + Sized + 'static {
    /// The mechanism's id, [`Mechanism::ID`].
    const NAME: &'static str;
    /// A one-line description for users.
    const SUMMARY: &'static str;
    /// What carries the mechanism's messages.
    const CARRIER: Carrier;
    /// Whether every message that a send has accepted arrives.
    const RELIABILITY: Reliability;
    /// Whether empty messages arrive.
    const CARRIES_EMPTY: bool = true;
    /// Whether one send reaches all connected ends.
    const FAN_OUT: bool = false;
    /// Maximum length of a message in bytes, on any machine; `None` if there is no general limit.
    const LARGEST: Option<usize>;
    /// Whether the ends may be on different hosts.
    const CROSSES_HOSTS: bool;
    /// The privilege needed to use the mechanism.
    const PRIVILEGE: Privilege = Privilege::None;
    /// Number of times that an end sends its introduction; more than one if the network may lose it.
    const HELLOS: usize;
    /// The errors of sending while the listening end's name is not known yet; sending is then retried.
    const NOT_YET: &'static [Errno] = &[];
    /// What the user can do about the size limit of messages, as part of an error message.
    const ADVICE: &'static str;
    /// The receiving socket, as needed for the introduction.
    type Inbox: Inbox;
    /// Sends to the peer's receiving socket.
    type Sink: MessageSink;
    /// Receives what peers send to this end's socket.
    type Source: MessageSource;

    /// Creates the listening end's receiving socket. Returns the socket, and the text of its address for the offer.
    fn inbox_to_offer(spec: &Spec) -> Result<(Self::Inbox, String), OpenError>;

    /// Creates the connecting end's receiving socket, to which the owner of the address `to` can send.
    fn inbox_for(spec: &Spec, to: &AddressOf<Self>) -> Result<Self::Inbox, OpenError>;

    /// Reads the address that the offer has under `name`.
    fn address(offer: &Offer, name: &str) -> Result<AddressOf<Self>, OpenError>;

    /// Creates the two directions. Also returns the length in bytes of the largest message that can be sent.
    fn halves(
        spec: &Spec,
        inbox: Self::Inbox,
        to: &AddressOf<Self>,
    ) -> Result<(Self::Sink, Self::Source, usize), OpenError>;

    /// How to make the family available if it is missing.
    fn remedy() -> &'static str;

    /// The version of the software that provides the family.
    fn version() -> String {
        crate::self_test::kernel_version()
    }
}

/// A sending or receiving socket.
#[derive(Debug)]
pub struct DatagramSocket {
    fd: OwnedFd,
    add_facts: fn(BorrowedFd<'_>, &mut Facts),
}

impl DatagramSocket {
    /// Creates the two directions over two sockets, and connects `outbox` to `to`. Errors call that address `name`.
    pub(crate) fn both(
        outbox: OwnedFd,
        inbox: OwnedFd,
        to: &Address,
        name: String,
        add_facts: fn(BorrowedFd<'_>, &mut Facts),
    ) -> Result<(Self, Self), OpenError> {
        socket::connect(&outbox, to).map_err(|e| OsError::new("connect", name, e))?;
        Ok((DatagramSocket { fd: outbox, add_facts }, DatagramSocket { fd: inbox, add_facts }))
    }

    fn read_facts(&self) -> Facts {
        let mut facts = super::connection::buffer_facts(self.fd.as_fd());
        (self.add_facts)(self.fd.as_fd(), &mut facts);
        facts
    }
}

impl AsFd for DatagramSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl MessageSink for DatagramSocket {
    #[inline]
    fn send(&mut self, msg: &[u8], nonblocking: bool) -> Result<(), Errno> {
        socket::send(&self.fd, msg, nonblocking).map(drop)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn facts(&self) -> Facts {
        self.read_facts()
    }
}

impl MessageSource for DatagramSocket {
    #[inline]
    fn recv(&mut self, buf: &mut [u8], nonblocking: bool) -> Result<Received, Errno> {
        socket::recv_message(&self.fd, buf, nonblocking).map(Received::Message)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn facts(&self) -> Facts {
        self.read_facts()
    }
}

/// The sending half of family `F`.
pub type DatagramTx<F> = MessageTx<<F as DatagramFamily>::Sink>;
/// The receiving half of family `F`.
pub type DatagramRx<F> = MessageRx<<F as DatagramFamily>::Source>;

fn halves<F: DatagramFamily>(
    spec: &Spec,
    inbox: F::Inbox,
    to: &AddressOf<F>,
) -> Result<(DatagramTx<F>, DatagramRx<F>), OpenError> {
    let (sink, source, max) = F::halves(spec, inbox, to)?;
    check_limit(F::NAME, spec, max, F::ADVICE)?;
    Ok((MessageTx::new(sink, spec.wait, max), MessageRx::new(source, spec.wait)))
}

/// The listening side. It has one channel, to which all connected ends send; its own messages go to the end that
/// connected first.
#[derive(Debug)]
pub struct DatagramListener<F: DatagramFamily> {
    inbox: Option<F::Inbox>,
    greeting: F::Inbox,
    spec: Spec,
}

impl<F: DatagramFamily> Listener for DatagramListener<F> {
    type Tx = DatagramTx<F>;
    type Rx = DatagramRx<F>;

    fn accept(&mut self, until: Deadline) -> Result<(Self::Tx, Self::Rx), OpenError> {
        if self.inbox.is_none() {
            return Err(super::complete::no_second_channel(F::NAME));
        }
        let start = Instant::now();
        let peer = loop {
            let came = wait_ready(&self.greeting, Interest::Readable, until)
                .map_err(|e| OsError::new("poll", "greeting socket", e))?;
            if !came {
                return Err(OpenError::TimedOut { mechanism: F::NAME, waited: start.elapsed() });
            }
            let mut word = [0; HELLO.len()];
            match self.greeting.hear(&mut word) {
                // Any other message there is from a stranger and is ignored.
                Ok((len, Some(peer))) if len == HELLO.len() && word == *HELLO => break peer,
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(errno) => return Err(OsError::new("recvfrom", "greeting socket", errno).into()),
            }
        };
        let Some(inbox) = self.inbox.take() else {
            return Err(super::complete::no_second_channel(F::NAME));
        };
        halves::<F>(&self.spec, inbox, &peer)
    }
}

/// The mechanism over family `F`.
#[derive(Debug)]
pub struct Datagram<F>(std::marker::PhantomData<fn() -> F>);

impl<F: DatagramFamily> Mechanism for Datagram<F> {
    const ID: &'static str = F::NAME;
    const ABOUT: &'static str = F::SUMMARY;
    const CARRIER: Carrier = F::CARRIER;
    type Tx = DatagramTx<F>;
    type Rx = DatagramRx<F>;
    type Listener = DatagramListener<F>;

    fn caps() -> Caps {
        Caps {
            max_message: F::LARGEST,
            reliability: F::RELIABILITY,
            carries_empty: F::CARRIES_EMPTY,
            waitable_fd: true,
            fan_in: true,
            fan_out: F::FAN_OUT,
            crosses_hosts: F::CROSSES_HOSTS,
            // A sender gets an error (ECONNREFUSED), a receiver never does, because its socket is not connected.
            detects_peer_death: false,
            privilege: F::PRIVILEGE,
            ..Caps::PLAIN
        }
    }

    fn probe() -> Probe {
        Probe::of(crate::self_test::exchange_a_byte::<Self>(), F::version, F::remedy())
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        let (inbox, inbox_word) = F::inbox_to_offer(spec)?;
        let (greeting, greeting_word) = F::inbox_to_offer(spec)?;
        let offer =
            Offer::new().with_word("inbox", inbox_word).with_word("greeting", greeting_word);
        Ok((DatagramListener { inbox: Some(inbox), greeting, spec: spec.clone() }, offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let to = F::address(offer, "inbox")?;
        let greeting = F::address(offer, "greeting")?;
        let inbox = F::inbox_for(spec, &to)?;
        for _ in 0..F::HELLOS {
            let greeted = await_name(spec.open_timeout, F::NOT_YET, |left| {
                Ok(inbox.greet(&greeting, HELLO, left))
            })?;
            match greeted {
                Err(errno) if F::NOT_YET.contains(&errno) => {
                    let greeting = offer.words.get("greeting").map_or("", String::as_str);
                    let greeting = format!("{greeting} {}", tried_for(spec.open_timeout));
                    return Err(OsError::new("send", greeting, errno).into());
                }
                // A greeting socket that is full or closed has already received an introduction; whether the listener
                // receives shows when connecting to its inbox.
                _ => {}
            }
        }
        halves::<F>(spec, inbox, &to)
    }
}
