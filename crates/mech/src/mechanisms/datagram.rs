//! Connectionless message sockets: each direction is a socket that sends and one that receives.
//!
//! (AF_UNIX and UDP; TIPC has one socket for both, tipc_port.rs.)
//!
//! The receiving socket is bound and not connected, so that several senders can feed it; the sending one is connected,
//! so that the plain `send` does, `poll` knows about room at the receiver, and the kernel can report that the receiver is
//! gone. Who connects introduces itself at the listener's door, a third socket, by a message whose source is the address
//! where it receives.

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
    Caps, Deadline, Facts, Listener, Mechanism, Offer, OpenError, Privilege, Probe, Reliability,
    Spec,
};

/// What a connecting end says at the door.
const HELLO: &[u8] = b"crossway";

/// A socket that receives, as the greeting at the door needs it.
pub trait Inbox: AsFd + Send + 'static {
    /// Where such a socket is.
    type Address: Clone + Send + 'static;

    /// Says `word` at `door`, without waiting for longer than `within`.
    fn greet(&self, door: &Self::Address, word: &[u8], within: Duration) -> Result<(), Errno>;

    /// Takes what was said here: its whole length and who said it, if that can be answered. EAGAIN when there is nothing.
    fn hear(&self, buf: &mut [u8]) -> Result<(usize, Option<Self::Address>), Errno>;
}

impl Inbox for OwnedFd {
    type Address = Address;

    fn greet(&self, door: &Address, word: &[u8], _within: Duration) -> Result<(), Errno> {
        socket::send_to(self, word, door, true).map(drop)
    }

    fn hear(&self, buf: &mut [u8]) -> Result<(usize, Option<Address>), Errno> {
        socket::recv_message_from(self, buf, true)
    }
}

/// Where the sockets of family `F` are.
pub type AddressOf<F> = <<F as DatagramFamily>::Inbox as Inbox>::Address;

/// A family of connectionless sockets.
pub trait DatagramFamily: Send + Sized + 'static {
    /// The mechanism's id, [`Mechanism::ID`].
    const NAME: &'static str;
    /// One line for people.
    const SUMMARY: &'static str;
    /// Whether what was sent arrives.
    const RELIABILITY: Reliability;
    /// Whether the empty message does.
    const CARRIES_EMPTY: bool = true;
    /// Whether one send reaches all who connected.
    const FAN_OUT: bool = false;
    /// What this machine or any other carries at most.
    const LARGEST: Option<usize>;
    /// The ends may be on different hosts.
    const CROSSES_HOSTS: bool;
    /// What it takes to use it.
    const PRIVILEGE: Privilege = Privilege::None;
    /// How often an end introduces itself: more than once where the network may lose it.
    const HELLOS: usize;
    /// How that fails while the listening end's name is not known here yet; it is then tried again.
    const NOT_YET: &'static [Errno] = &[];
    /// What to do about the limit of a message.
    const ADVICE: &'static str;
    /// What receives.
    type Inbox: Inbox;
    /// Where messages go in.
    type Sink: MessageSink;
    /// Where they come out.
    type Source: MessageSource;

    /// A socket to receive with at the listening end, and the word for its address.
    fn inbox_to_offer(spec: &Spec) -> Result<(Self::Inbox, String), OpenError>;

    /// A socket to receive with at the connecting end, to which `to` can send.
    fn inbox_for(spec: &Spec, to: &AddressOf<Self>) -> Result<Self::Inbox, OpenError>;

    /// The address in a word of the offer.
    fn address(offer: &Offer, name: &str) -> Result<AddressOf<Self>, OpenError>;

    /// The two directions, and the largest message to send.
    fn halves(
        spec: &Spec,
        inbox: Self::Inbox,
        to: &AddressOf<Self>,
    ) -> Result<(Self::Sink, Self::Source, usize), OpenError>;

    /// What brings the family here when it is missing.
    fn remedy() -> &'static str;

    /// The version of what provides it.
    fn version() -> String {
        crate::self_test::kernel_version()
    }
}

/// A socket that sends, or one that receives.
#[derive(Debug)]
pub struct DatagramSocket {
    fd: OwnedFd,
    add_facts: fn(BorrowedFd<'_>, &mut Facts),
}

impl DatagramSocket {
    /// The two directions over two sockets; `outbox` is connected to `to` here, which errors call `name`.
    pub(super) fn both(
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

/// The listening side: one channel, fed by everyone who connects; it sends to who connected first.
#[derive(Debug)]
pub struct DatagramListener<F: DatagramFamily> {
    inbox: Option<F::Inbox>,
    door: F::Inbox,
    spec: Spec,
}

impl<F: DatagramFamily> Listener for DatagramListener<F> {
    type Tx = DatagramTx<F>;
    type Rx = DatagramRx<F>;

    fn accept(&mut self, until: Deadline) -> Result<(Self::Tx, Self::Rx), OpenError> {
        if self.inbox.is_none() {
            return Err(crate::complete::no_second_channel(F::NAME));
        }
        let start = Instant::now();
        let who = loop {
            let came = wait_ready(&self.door, Interest::Readable, until)
                .map_err(|e| OsError::new("poll", "door", e))?;
            if !came {
                return Err(OpenError::TimedOut { mechanism: F::NAME, waited: start.elapsed() });
            }
            let mut word = [0; HELLO.len()];
            match self.door.hear(&mut word) {
                // Whatever else comes to the door is a stranger's.
                Ok((len, Some(who))) if len == HELLO.len() && word == *HELLO => break who,
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(errno) => return Err(OsError::new("recvfrom", "door", errno).into()),
            }
        };
        let Some(inbox) = self.inbox.take() else {
            return Err(crate::complete::no_second_channel(F::NAME));
        };
        halves::<F>(&self.spec, inbox, &who)
    }
}

/// The mechanism over family `F`.
#[derive(Debug)]
pub struct Datagram<F>(std::marker::PhantomData<fn() -> F>);

impl<F: DatagramFamily> Mechanism for Datagram<F> {
    const ID: &'static str = F::NAME;
    const ABOUT: &'static str = F::SUMMARY;
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
            // A sender is told (ECONNREFUSED), a receiver never: nothing is connected to it.
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
        let (door, door_word) = F::inbox_to_offer(spec)?;
        let offer = Offer::new().with_word("inbox", inbox_word).with_word("door", door_word);
        Ok((DatagramListener { inbox: Some(inbox), door, spec: spec.clone() }, offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let to = F::address(offer, "inbox")?;
        let door = F::address(offer, "door")?;
        let inbox = F::inbox_for(spec, &to)?;
        for _ in 0..F::HELLOS {
            let greeted = await_name(spec.open_timeout, F::NOT_YET, |left| {
                Ok(inbox.greet(&door, HELLO, left))
            })?;
            match greeted {
                Err(errno) if F::NOT_YET.contains(&errno) => {
                    let door = offer.words.get("door").map_or("", String::as_str);
                    let door = format!("{door} {}", tried_for(spec.open_timeout));
                    return Err(OsError::new("send", door, errno).into());
                }
                // A door that is full or gone has had its first visitor; that somebody receives is what connecting to
                // the inbox shows.
                _ => {}
            }
        }
        halves::<F>(spec, inbox, &to)
    }
}
