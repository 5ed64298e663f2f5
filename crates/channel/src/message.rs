//! The packets of the control connection: one JSON object each, with descriptors attached.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_mech::Offer;
use crossway_sys::{Errno, OsError, fdpass, random};
use serde::{Deserialize, Serialize};

use crate::event::Reason;
use crate::protocol::Signal;
use crate::status::Status;
use crate::transport::{Shape, Transport};
use crossway_sys::kernel::boot_id;

/// The version of the control protocol. Peers with different versions refuse each other with an error that says so.
pub(crate) const VERSION: u32 = 4;
/// Longest packet on a control connection, in bytes.
pub(crate) const PACKET: usize = 128 << 10;

/// A transport on offer. Its descriptors are attached to the packet, in the order of `fds`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OfferText {
    pub(crate) transport: Transport,
    words: BTreeMap<String, String>,
    fds: Vec<String>,
}

impl OfferText {
    /// Splits an offer into its text and its descriptors.
    pub(crate) fn new(transport: Transport, offer: Offer) -> (OfferText, Vec<OwnedFd>) {
        let (names, fds) = offer.fds.into_iter().unzip();
        (OfferText { transport, words: offer.words, fds: names }, fds)
    }

    /// Moves the contents out, leaving an empty offer of the same transport.
    pub(crate) fn take(&mut self) -> OfferText {
        let (words, fds) = (std::mem::take(&mut self.words), std::mem::take(&mut self.fds));
        OfferText { transport: self.transport, words, fds }
    }

    /// Restores the offer from its text and descriptors; `None` if the text lists more or fewer descriptors than there
    /// are.
    pub(crate) fn offer(self, fds: Vec<OwnedFd>) -> Option<Offer> {
        (self.fds.len() == fds.len())
            .then(|| Offer { words: self.words, fds: self.fds.into_iter().zip(fds).collect() })
    }
}

/// The connector's first packet. The first descriptor attached is the shared page, the others belong to the offer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    pub(crate) name: String,
    pub(crate) id: u64,
    pub(crate) marks: [u64; 2],
    pub(crate) shape: Shape,
    pub(crate) boot_id: String,
    /// The transports that the connector's policy allows.
    pub(crate) transports: Vec<Transport>,
    pub(crate) first: OfferText,
}

impl Hello {
    /// Creates the connector's first packet about a new channel, with a random id.
    ///
    /// # Errors
    /// Those of [`random::unguessable`].
    pub(crate) fn new(
        name: &str,
        shape: Shape,
        transports: Vec<Transport>,
        first: OfferText,
    ) -> Result<Hello, OsError> {
        Ok(Hello {
            version: VERSION,
            name: name.to_owned(),
            id: random::unguessable()?,
            marks: [random::unguessable()?, random::unguessable()?],
            shape,
            boot_id: boot_id(),
            transports,
            first,
        })
    }
}

/// The listener's answer to a connector that it accepts.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Welcome {
    /// The random number that the connector wrote to the [shared page](crate::page), as the listener read it there.
    pub(crate) read_nonce: u64,
    /// The random number that the listener wrote to the shared page.
    pub(crate) wrote_nonce: u64,
    pub(crate) boot_id: String,
    /// The transports that the listener's policy allows.
    pub(crate) transports: Vec<Transport>,
}

/// The state of an end that another process takes over. Its channel is parked (on no transport), so nothing is in
/// transit in either direction.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Handed {
    pub(crate) id: u64,
    pub(crate) marks: [u64; 2],
    pub(crate) shape: Shape,
    pub(crate) epoch: u32,
    /// The numbers of messages sent and received so far.
    pub(crate) sequences: (u64, u64),
    /// Number of messages counted as received although they were lost, where loss is allowed.
    pub(crate) lost: u64,
    /// Number of messages that were received but not yet passed to the program.
    pub(crate) held: usize,
    /// Number of moves so far in which the new process did not take over the connections, including this one.
    pub(crate) moves: u32,
    /// Whether the peer has announced that it sends no more.
    pub(crate) fin: bool,
    /// Whether the peer's program receives no more.
    pub(crate) deaf: bool,
    pub(crate) peer_pid: u32,
    pub(crate) peer_allows: Vec<Transport>,
    pub(crate) peer_budget: f64,
}

/// The question of the connecting end of a moved channel to a process that may have the channel now.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Rejoin {
    pub(crate) id: u64,
    pub(crate) secret: [u64; 2],
    /// The transports that the connecting end's policy allows with that process.
    pub(crate) transports: Vec<Transport>,
    /// Between hosts: the ids of listeners that the connecting end reaches within its own host. They must not answer
    /// over the network as if they were on another host.
    pub(crate) near: Vec<u64>,
}

/// A packet of the control connection.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Message {
    /// The connector's first message.
    Hello(Box<Hello>),
    /// Answer to [`Message::Hello`]: the connector is accepted.
    Welcome(Welcome),
    /// Answer to [`Message::Hello`]: the connector is refused, for this reason.
    Refused(String),
    /// Between hosts: the listener at this place listens on this other name. Both names have the same hash and
    /// therefore the same TIPC service.
    OtherName(String),
    /// A message of the switch protocol. An offer carries the transport and the reason.
    Signal { signal: Signal, offer: Option<OfferText>, why: Option<Reason> },
    /// The follower asks the leader for a transport.
    Wish { transport: Transport, why: Reason },
    /// The transports that the follower's policy allows now, and the CPU time that its ends may spend waiting.
    Policy { transports: Vec<Transport>, cpu_budget: f64 },
    /// The program has dropped its receiver, so that sending is pointless.
    Deaf,
    /// The program has closed the channel.
    Bye,
    /// First message of a program that asks for the state of this process's channels.
    AskStatus,
    /// Answer to [`Message::AskStatus`].
    Status(Vec<Status>),
    /// First message of a program that asks all channels of a name in this process to use a transport.
    AskSwitch { name: String, transport: Transport },
    /// Answer to [`Message::AskSwitch`]: the number of channels that were asked.
    Asked(usize),
    /// First message of a process that takes over this listener's channels, with the id of its own listener.
    TakeOver(u64),
    /// Between hosts, the answer to [`Message::TakeOver`]: the request was received. The channels follow as soon as the
    /// program hands them over.
    Heard,
    /// A channel. Within a host, the last descriptor attached is memory with the messages that the program has not
    /// received; before it come the control connection and the shared page, if the new process gets them. Between
    /// hosts, each message that the program has not received follows in a frame.
    Handed(Handed),
    /// All channels were handed over.
    AllHanded,
    /// Between hosts: the number of items of the epoch's session that were received.
    Received { epoch: u32, items: u64 },
    /// Between hosts, from the leader: connection number `connection` of the epoch's session broke.
    Broken { epoch: u32, connection: u64 },
    /// First packet of a new control connection between hosts, from a connector that lost the previous one. `received`
    /// is the number of packets that the connector has received; `moves` is how often the listening end had moved
    /// before the connection was lost.
    Resume { id: u64, secret: [u64; 2], moves: u32, received: u64 },
    /// First packet of a new connection between hosts for the messages of an epoch. `received` is the number of items
    /// that the connector has received.
    Attach { id: u64, secret: [u64; 2], epoch: u32, received: u64 },
    /// Answer to [`Message::Resume`] and [`Message::Attach`]: the number of packets or items that this end has
    /// received.
    Resumed { received: u64 },
    /// Answer to [`Message::Attach`]: the epoch is over.
    Settled,
    /// Answer to [`Message::Resume`] and [`Message::Attach`]: this process does not have the channel.
    Unknown,
    /// From the leader: another process gets the channel, but not this connection. That process is on another host if
    /// `far` is true.
    Moving { far: bool },
    /// Answer to [`Message::Moving`], and the follower's last packet on this connection.
    Gone,
    /// Answer to [`Message::Moving`]: the follower cannot follow, for this reason.
    Stays(String),
    /// First packet of the follower to a process that may have the moved channel. Within a host, the shared page is
    /// attached.
    Rejoin(Rejoin),
    /// Within a host, the answer of a listener that does not have the channel, with the listener's id.
    NotHere(u64),
    /// The follower's first packet on the new connection, once [`Message::Welcome`] has accepted that connection.
    Rejoined,
}

/// A packet that waits for room in the socket, and its descriptors.
type Waiting = (Vec<u8>, Vec<OwnedFd>);

/// A queue of packets to send; the sender never waits for a slow peer.
#[derive(Debug, Default)]
pub(crate) struct Outbox(VecDeque<Waiting>);

impl Outbox {
    /// Sends a packet now or with a later [`Outbox::flush`].
    pub(crate) fn send(&mut self, socket: impl AsFd, message: &Message, fds: Vec<OwnedFd>) {
        let text = serde_json::to_vec(message).expect("messages are plain data");
        debug_assert!(text.len() <= PACKET, "a packet of {} bytes", text.len());
        self.0.push_back((text, fds));
        self.flush(socket);
    }

    /// Sends as many packets as there is room for. Errors are ignored, because the reader notices when the peer has
    /// ended.
    pub(crate) fn flush(&mut self, socket: impl AsFd) {
        while let Some((text, fds)) = self.0.front() {
            let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            match fdpass::try_send(&socket, text, &borrowed) {
                Err(Errno::AGAIN) => return,
                _ => drop(self.0.pop_front()),
            }
        }
    }

    /// Whether no packet waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The result of reading from a control connection.
#[derive(Debug)]
pub(crate) enum Packet {
    /// A message and its descriptors.
    Message(Message, Vec<OwnedFd>),
    /// No packet is there yet.
    Nothing,
    /// The peer closed the connection or died.
    End,
    /// The connection between hosts broke; a new one may replace it.
    Broken,
    /// A packet that no correct peer sends; the text says why.
    Nonsense(String),
}

/// Reads the next packet; if `nonblocking`, does not wait for it.
pub(crate) fn receive(socket: impl AsFd, nonblocking: bool) -> Packet {
    thread_local! {
        static BYTES: RefCell<Vec<u8>> = RefCell::new(vec![0; PACKET]);
    }
    let mut fds = Vec::new();
    BYTES.with_borrow_mut(|bytes| match fdpass::receive(&socket, bytes, &mut fds, nonblocking) {
        Ok(0) => Packet::End,
        Ok(len) => match serde_json::from_slice(&bytes[..len]) {
            Ok(message) => Packet::Message(message, fds),
            Err(error) => Packet::Nonsense(error.to_string()),
        },
        Err(Errno::AGAIN) => Packet::Nothing,
        Err(_) => Packet::End,
    })
}
