//! What travels on the control connection: one JSON object per packet, with descriptors beside it.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_mech::Offer;
use crossway_sys::{Errno, OsError, fdpass, random};
use serde::{Deserialize, Serialize};

use crate::channel::boot_id;
use crate::event::Reason;
use crate::protocol::Signal;
use crate::status::Status;
use crate::transport::{Shape, Transport};

/// The version of the control protocol; peers of different versions refuse each other by name.
pub(crate) const VERSION: u32 = 3;
/// Longest packet on a control connection, in bytes.
pub(crate) const PACKET: usize = 128 << 10;

/// A transport on offer; its descriptors travel beside the packet, in the order of `fds`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OfferText {
    pub(crate) transport: Transport,
    words: BTreeMap<String, String>,
    fds: Vec<String>,
}

impl OfferText {
    /// Takes an offer apart.
    pub(crate) fn new(transport: Transport, offer: Offer) -> (OfferText, Vec<OwnedFd>) {
        let (names, fds) = offer.fds.into_iter().unzip();
        (OfferText { transport, words: offer.words, fds: names }, fds)
    }

    /// Takes its content out.
    pub(crate) fn take(&mut self) -> OfferText {
        let (words, fds) = (std::mem::take(&mut self.words), std::mem::take(&mut self.fds));
        OfferText { transport: self.transport, words, fds }
    }

    /// Puts it together again; `None` if the descriptors do not match.
    pub(crate) fn offer(self, fds: Vec<OwnedFd>) -> Option<Offer> {
        (self.fds.len() == fds.len())
            .then(|| Offer { words: self.words, fds: self.fds.into_iter().zip(fds).collect() })
    }
}

/// The connector's first packet. The first descriptor beside it is the shared page, the others are the offer's.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    pub(crate) name: String,
    pub(crate) id: u64,
    pub(crate) marks: [u64; 2],
    pub(crate) shape: Shape,
    pub(crate) boot_id: String,
    /// What the connector's policy lets the channel use.
    pub(crate) transports: Vec<Transport>,
    pub(crate) first: OfferText,
}

impl Hello {
    /// The first words about a new channel.
    ///
    /// # Errors
    /// As [`random::unguessable`].
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
    /// The number that the connector wrote to the page.
    pub(crate) read_nonce: u64,
    /// The number that the listener wrote there.
    pub(crate) wrote_nonce: u64,
    pub(crate) boot_id: String,
    /// What the listener's policy lets the channel use.
    pub(crate) transports: Vec<Transport>,
}

/// An end that another process takes over: parked, with nothing under way in either direction.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Handed {
    pub(crate) id: u64,
    pub(crate) marks: [u64; 2],
    pub(crate) shape: Shape,
    pub(crate) epoch: u32,
    /// Messages sent and received so far.
    pub(crate) sequences: (u64, u64),
    /// Messages counted as received that were lost, where that is allowed.
    pub(crate) lost: u64,
    /// Number of messages that were received, but not given to the program.
    pub(crate) held: usize,
    /// Moves without the connections so far, this one included.
    pub(crate) moves: u32,
    /// The peer sends no more.
    pub(crate) fin: bool,
    /// The peer receives no more.
    pub(crate) deaf: bool,
    pub(crate) peer_pid: u32,
    pub(crate) peer_allows: Vec<Transport>,
}

/// The connecting end of a channel that was moved asks a process whether it has it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Rejoin {
    pub(crate) id: u64,
    pub(crate) secret: [u64; 2],
    /// What the connecting end's policy lets the channel use there.
    pub(crate) transports: Vec<Transport>,
    /// Between hosts: listeners that the connecting end reaches within its host. They must not answer as if they were on another one.
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
    /// Between hosts: the listener there has this other name, which shares the TIPC service of the one wanted.
    OtherName(String),
    /// A message of the switch protocol. An offer carries the transport and the reason.
    Signal { signal: Signal, offer: Option<OfferText>, why: Option<Reason> },
    /// The follower asks the leader for a transport.
    Wish { transport: Transport, why: Reason },
    /// The follower's program has changed what the channel may use.
    Policy { transports: Vec<Transport> },
    /// The program has dropped its receiver, so that sending is pointless.
    Deaf,
    /// The program has closed the channel.
    Bye,
    /// First message of a program that asks for the state of this process's channels.
    AskStatus,
    /// Answer to [`Message::AskStatus`].
    Status(Vec<Status>),
    /// First message of a program that asks this process's channels of a name to use a transport.
    AskSwitch { name: String, transport: Transport },
    /// Answer to [`Message::AskSwitch`]: the number of channels that were asked.
    Asked(usize),
    /// First message of a process that takes over this listener's channels, with the id of its own listener.
    TakeOver(u64),
    /// Between hosts, the answer to [`Message::TakeOver`]. The channels follow as soon as the program hands them over.
    Heard,
    /// A channel. Within a host, what its program has not received is in the last descriptor beside it, and before that are its control
    /// connection and its shared page, if the new process is given them. Between hosts, each message that it has not received follows
    /// in a frame.
    Handed(Handed),
    /// All channels were handed over.
    AllHanded,
    /// Between hosts: the number of items of the epoch's session that were received.
    Received { epoch: u32, items: u64 },
    /// Between hosts, from the leader: the connection with this number of the epoch's session has broken.
    Broken { epoch: u32, connection: u64 },
    /// First between hosts, from a connector that lost its control connection: how many packets it has received there, and how often the
    /// listening end had moved before that connection.
    Resume { id: u64, secret: [u64; 2], moves: u32, received: u64 },
    /// First between hosts: a connection for the messages of an epoch, and how many items were received before.
    Attach { id: u64, secret: [u64; 2], epoch: u32, received: u64 },
    /// Answer to [`Message::Resume`] and [`Message::Attach`]: the number of packets or items that this end has received.
    Resumed { received: u64 },
    /// Answer to [`Message::Attach`]: the epoch is over.
    Settled,
    /// Answer to [`Message::Resume`] and [`Message::Attach`]: this process has no such channel.
    Unknown,
    /// From the leader: another process gets the channel, but not this connection; on another host if `far`.
    Moving { far: bool },
    /// Answer to [`Message::Moving`], and the follower's last packet on this connection.
    Gone,
    /// Answer to [`Message::Moving`]: the follower cannot follow, for this reason.
    Stays(String),
    /// First message of the follower of a channel that was moved. Within a host, its shared page comes with it.
    Rejoin(Rejoin),
    /// Within a host, the answer of a listener that does not have the channel, with the listener's id.
    NotHere(u64),
    /// The follower's first packet on the new connection.
    Rejoined,
}

/// A packet that waits for room.
type Waiting = (Vec<u8>, Vec<OwnedFd>);

/// Packets on their way out; the peer may be slow, the sender never waits.
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

    /// Sends what there is room for. Errors are of no interest: the reader finds out that the peer is gone.
    pub(crate) fn flush(&mut self, socket: impl AsFd) {
        while let Some((text, fds)) = self.0.front() {
            let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            match fdpass::try_send(&socket, text, &borrowed) {
                Err(Errno::AGAIN) => return,
                _ => drop(self.0.pop_front()),
            }
        }
    }

    /// Whether something waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What reading a control connection gave.
#[derive(Debug)]
pub(crate) enum Packet {
    /// A message and its descriptors.
    Message(Message, Vec<OwnedFd>),
    /// No packet is there yet.
    Nothing,
    /// The peer closed the connection or died.
    End,
    /// The connection between hosts died; another may take its place.
    Broken,
    /// A packet that no correct peer sends; the text describes it.
    Nonsense(String),
}

/// Reads the next packet.
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
