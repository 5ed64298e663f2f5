//! The contract of a mechanism.
//!
//! Enea's study names four functions of IPC, which are the four parts of the contract: *initialization*
//! ([`Mechanism::probe`], [`Mechanism::listen`], [`Listener::accept`], [`Mechanism::connect`]), *communication*
//! ([`Tx`], [`Rx`]: by copy, and in place where the mechanism supports it), *monitoring* (how an end detects the death
//! of its peer: [`SendError::PeerClosed`], [`RecvError::PeerClosed`]), and *termination* (`Drop`, which leaves nothing
//! behind).
//!
//! Every channel is bidirectional: each end holds a [`Tx`] to send to its peer and an [`Rx`] to receive from it. A
//! mechanism that works in one direction only, such as a pipe, uses two objects.
//!
//! [`Spec::wait`] controls how ends wait. With [`Wait::Block`], an end does what an ordinary program would do. For
//! example, it blocks in `read` on a pipe without polling first, so that a result measures the mechanism and not the
//! harness.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Caps, Carrier, Offer, Probe};

pub use crossway_ring::{Deadline, RecvError, SendError, Wait};

/// Where the two ends access the payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// The sender's message is copied into the mechanism; the receiver reads its own copy, or reads in place if the
    /// mechanism supports that.
    #[default]
    Copy,
    /// The sender writes the payload directly into the mechanism's memory ([`Tx::send_in_place`]).
    InPlace,
}

/// Where a listener can be found. The default is for ends that share everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// The address to which a listener for other hosts binds; `None` for loopback.
    pub address: Option<std::net::IpAddr>,
    /// Whether UNIX sockets have paths instead of abstract names, because the ends share this run's folder, but no network
    /// namespace.
    pub unix_path: bool,
}

/// The requirements for a channel. Both ends get the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// The size of the largest message in bytes; rings and queues are laid out for it.
    pub max_message: usize,
    /// How the ends wait.
    pub wait: Wait,
    /// Capacity in bytes between the ends (ring, pipe with F_SETPIPE_SZ, queue); `None` for the mechanism's default.
    pub capacity_bytes: Option<usize>,
    /// SO_SNDBUF and SO_RCVBUF in bytes, before the kernel doubles and clamps them; `None` for the system's default.
    pub socket_buffer_bytes: Option<usize>,
    /// Where a listener can be found.
    pub bind: Bind,
    /// Time limit of [`Mechanism::connect`] and [`Listener::accept`].
    pub open_timeout: Duration,
    /// Whether the memory of rings is faulted in when they are opened, so that no page fault occurs during a
    /// measurement. Without this, opening and closing a ring costs little, and the first pass through it takes the page
    /// faults.
    pub fault_in: bool,
}

impl Default for Spec {
    fn default() -> Self {
        Spec {
            max_message: 64 * 1024,
            wait: Wait::Block,
            capacity_bytes: None,
            socket_buffer_bytes: None,
            bind: Bind::default(),
            open_timeout: Duration::from_secs(10),
            fault_in: true,
        }
    }
}

/// Values read back from the system after opening, such as `so_sndbuf_bytes`, `so_rcvbuf_bytes`, `pipe_bytes`,
/// `queue_messages`, `max_message_bytes`, `mtu_bytes` and `tcp_nodelay`. The unit is part of the name.
///
/// Those in [`COUNTERS`], and those whose name begins with [`LARGEST`], grow with the traffic: they say something only
/// after it.
pub type Facts = std::collections::BTreeMap<String, i64>;

/// The facts that count events since the channel was opened: how often an end of a ring slept and woke the other end,
/// how many messages came back undelivered, and how many found their receiver full; how many sends
/// were made without a copy, how many of these the kernel copied after all, and how many it refused.
pub const COUNTERS: [&str; 7] = [
    "ring_sleeps",
    "ring_wakes",
    "returned_messages",
    "dropped_messages",
    "zerocopy_sends",
    "zerocopy_sends_copied",
    "zerocopy_sends_refused",
];

/// The beginning of the names of facts that are the largest value seen since the channel was opened.
pub const LARGEST: &str = "largest_";

/// Combines facts that were read from another half, end or role when its traffic was over with those in `known`:
/// counters are added, of the largest values the larger one is kept, and others stay as they are if they are known.
pub fn combine(known: &mut Facts, more: Facts) {
    for (name, value) in more {
        let counts = COUNTERS.contains(&name.as_str());
        let largest = name.starts_with(LARGEST);
        known
            .entry(name)
            .and_modify(|old| match (counts, largest) {
                (true, _) => *old += value,
                (_, true) => *old = (*old).max(value),
                _ => {}
            })
            .or_insert(value);
    }
}

/// Converts sizes and counts to facts. Values that do not fit into a fact are omitted.
pub(crate) fn facts_of<const N: usize>(counts: [(&str, usize); N]) -> Facts {
    counts
        .into_iter()
        .filter_map(|(name, n)| Some((name.to_owned(), i64::try_from(n).ok()?)))
        .collect()
}

/// Why a channel could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The mechanism cannot do what the spec requests.
    #[error("{mechanism}: {why}")]
    Unsupported {
        /// Id of the mechanism, [`Mechanism::ID`].
        mechanism: &'static str,
        /// What it cannot do, and what to request instead.
        why: String,
    },
    /// The other end did not connect or accept within [`Spec::open_timeout`].
    #[error("{mechanism}: the peer did not open its end within {waited:?}")]
    TimedOut {
        /// Id of the mechanism, [`Mechanism::ID`].
        mechanism: &'static str,
        /// How long this end waited.
        waited: Duration,
    },
    /// The offer does not fit the mechanism: a descriptor or value is missing or invalid.
    #[error("{mechanism}: bad offer: {why}")]
    BadOffer {
        /// Id of the mechanism, [`Mechanism::ID`].
        mechanism: &'static str,
        /// What is wrong with the offer.
        why: String,
    },
    /// A system call failed.
    #[error("{0}")]
    Os(#[from] crossway_sys::OsError),
}

/// The sending half of a channel. A half belongs to one thread at a time; the two halves of an end can be in different
/// threads.
pub trait Tx: Send {
    /// Sends a message if there is room now; otherwise returns [`SendError::Full`].
    ///
    /// If a stream has taken only a part of the message, this half keeps the rest and returns `Ok`: the message is
    /// accepted. The next call sends the rest before anything else; [`Tx::flush`] waits until it is sent. The same
    /// applies to [`Tx::send`] with a deadline.
    fn try_send(&mut self, msg: &[u8]) -> Result<(), SendError>;

    /// Sends a message. If there is no room, waits as [`Spec::wait`] specifies, until the deadline.
    fn send(&mut self, msg: &[u8], until: Deadline) -> Result<(), SendError>;

    /// Sends a message of `len` bytes that `fill` writes directly into the mechanism's memory. `fill` must write every
    /// byte; the bytes that it leaves out have unspecified values (the memory is initialised). A mechanism without
    /// [`Caps::in_place`] makes `fill` write to `scratch`, which must have at least `len` bytes, and sends that.
    fn send_in_place(
        &mut self,
        len: usize,
        scratch: &mut [u8],
        until: Deadline,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        fill(&mut scratch[..len]);
        self.send(&scratch[..len], until)
    }

    /// Sends everything that this half has accepted and still keeps. After it returns, the peer will receive everything
    /// sent.
    fn flush(&mut self) -> Result<(), SendError> {
        Ok(())
    }

    /// Values read back from the system after opening, such as buffer sizes.
    fn facts(&self) -> Facts {
        Facts::new()
    }
}

/// The receiving half of a channel. A half belongs to one thread at a time; the two halves of an end can be in
/// different threads.
pub trait Rx: Send {
    /// Receives a message if it has arrived; otherwise returns [`RecvError::Empty`].
    ///
    /// From a mechanism with message boundaries, receives one message and returns its length. From a stream, fills the
    /// whole buffer or nothing: the bytes of a partially filled buffer are kept for the next call, which must request
    /// the same length.
    fn try_recv(&mut self, buf: &mut [u8]) -> Result<usize, RecvError>;

    /// Like [`Rx::try_recv`], but waits as [`Spec::wait`] specifies, until the deadline.
    fn recv(&mut self, buf: &mut [u8], until: Deadline) -> Result<usize, RecvError>;

    /// Passes a message to `read` in the mechanism's memory, or in `scratch` if it must be copied out. The space is
    /// free again when `read` returns. For streams `scratch.len()` is the number of bytes requested.
    fn recv_in_place<R>(
        &mut self,
        scratch: &mut [u8],
        until: Deadline,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError> {
        let n = self.recv(scratch, until)?;
        Ok(read(&scratch[..n]))
    }

    /// A descriptor that polls readable when [`Rx::try_recv`] would return something; `None` if the mechanism has none.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Values read back from the system after opening, such as buffer sizes.
    fn facts(&self) -> Facts {
        Facts::new()
    }
}

/// The listening side of a channel that is being opened.
pub trait Listener: Send + 'static {
    /// The sending half that [`Listener::accept`] returns.
    type Tx: Tx + 'static;
    /// The receiving half that [`Listener::accept`] returns.
    type Rx: Rx + 'static;

    /// Completes one channel, waiting for the peer until the deadline. If the channel is complete with the offer,
    /// returns immediately. With [`Caps::reconnects`], each call returns another channel. With [`Caps::fan_in`], all
    /// connecting ends send to the one channel that the first call returns. For other mechanisms, a second call fails
    /// with [`OpenError::Unsupported`].
    fn accept(&mut self, until: Deadline) -> Result<(Self::Tx, Self::Rx), OpenError>;
}

/// A communication mechanism between two processes.
pub trait Mechanism: 'static {
    /// The stable id, in kebab case.
    const ID: &'static str;
    /// A one-line description for users, with the name that the kernel or a study uses.
    const ABOUT: &'static str;
    /// What carries the mechanism's messages.
    const CARRIER: Carrier;
    /// The sending half of either end of a channel.
    type Tx: Tx + 'static;
    /// The receiving half of either end of a channel.
    type Rx: Rx + 'static;
    /// The result of [`Mechanism::listen`], which waits for the other end.
    type Listener: Listener<Tx = Self::Tx, Rx = Self::Rx>;

    /// The capabilities of the mechanism.
    fn caps() -> Caps;

    /// Returns the exact step by which the user raises [`Caps::max_message`] on this machine to at least `len` bytes;
    /// `None` if there is none.
    fn remedy_for_size(_len: usize) -> Option<String> {
        None
    }

    /// Tests whether the mechanism works here, by opening what it needs and closing it again.
    fn probe() -> Probe;

    /// Creates one end, and the [`Offer`] from which the other process creates its end.
    ///
    /// Once the offer has been passed on, the listener must not hold copies of the peer's descriptors, otherwise it
    /// would not notice the peer's death. Descriptors are therefore moved into the offer.
    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError>;

    /// Creates the other end, and takes the descriptors out of the offer. With [`Caps::reconnects`] or
    /// [`Caps::fan_in`], the offer's text alone must suffice, so that it can be used again.
    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError>;
}
