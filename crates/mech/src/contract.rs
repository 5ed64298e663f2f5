//! What a mechanism is.
//!
//! Enea's study names four functions of IPC; they are the contract's four parts: *initialization*
//! ([`Mechanism::probe`], [`Mechanism::listen`], [`Listener::accept`], [`Mechanism::connect`]), *communication*
//! ([`Tx`], [`Rx`]: by copy, and in place where the mechanism can), *monitoring* (how an end learns that its
//! peer died: [`SendError::PeerClosed`], [`RecvError::PeerClosed`]), and *termination* (`Drop`: nothing stays
//! behind).
//!
//! Every channel is bidirectional: each end holds a [`Tx`] towards its peer and an [`Rx`] from it. Mechanisms
//! that carry one direction only (a pipe) use two objects.
//!
//! Blocking follows [`Spec::wait`]. With [`Wait::Block`] an end does what an ordinary program would write: a
//! pipe blocks in `read`, it is not polled first, so that a figure is the mechanism's and not the harness's.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Caps, Offer, Probe};

pub use crossway_ring::{Deadline, RecvError, SendError, Wait};

/// Who touches the payload where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// The sender's message is copied into the mechanism; the receiver reads its own copy, or in place where
    /// the mechanism shows it.
    #[default]
    Copy,
    /// The sender writes the payload where the mechanism holds it ([`Tx::send_in_place`]).
    InPlace,
}

/// What is asked of a channel; both ends are given the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// No message will be larger; rings and queues are laid out for it.
    pub max_message: usize,
    /// How the ends wait.
    pub wait: Wait,
    /// Room between the ends in bytes (ring, pipe with F_SETPIPE_SZ, queue); `None`: the mechanism's own default.
    pub capacity_bytes: Option<usize>,
    /// SO_SNDBUF and SO_RCVBUF as asked for, before the kernel doubles and clamps them; `None`: the default.
    pub socket_buffer_bytes: Option<usize>,
    /// The address a cross-host listener binds to; `None`: loopback.
    pub bind_address: Option<std::net::IpAddr>,
    /// How long [`Mechanism::connect`] and [`Listener::accept`] may take.
    pub open_timeout: Duration,
}

impl Default for Spec {
    fn default() -> Self {
        Spec {
            max_message: 64 * 1024,
            wait: Wait::Block,
            capacity_bytes: None,
            socket_buffer_bytes: None,
            bind_address: None,
            open_timeout: Duration::from_secs(10),
        }
    }
}

/// Values read back from the system after opening: `so_sndbuf_bytes`, `so_rcvbuf_bytes`, `pipe_bytes`,
/// `queue_messages`, `max_message_bytes`, `mtu_bytes`, `tcp_nodelay` ... Units are in the name.
pub type Facts = std::collections::BTreeMap<String, i64>;

/// Sizes and counts as facts; what no fact can hold is left out.
pub(crate) fn facts_of<const N: usize>(counts: [(&str, usize); N]) -> Facts {
    counts
        .into_iter()
        .filter_map(|(name, n)| Some((name.to_owned(), i64::try_from(n).ok()?)))
        .collect()
}

/// Why a channel could not be made.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The mechanism cannot do what the spec asks.
    #[error("{mechanism}: {why}")]
    Unsupported {
        /// The mechanism's id.
        mechanism: &'static str,
        /// What it cannot do, and what to ask for instead.
        why: String,
    },
    /// The other end did not come within [`Spec::open_timeout`].
    #[error("{mechanism}: the peer did not open its end within {waited:?}")]
    TimedOut {
        /// The mechanism's id.
        mechanism: &'static str,
        /// The time given.
        waited: Duration,
    },
    /// The offer does not fit the mechanism: a missing descriptor or word.
    #[error("{mechanism}: bad offer: {why}")]
    BadOffer {
        /// The mechanism's id.
        mechanism: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A system call failed.
    #[error("{0}")]
    Os(#[from] crossway_sys::OsError),
}

/// The sending half.
pub trait Tx: Send + 'static {
    /// Sends if there is room now, else [`SendError::Full`].
    ///
    /// A stream that took a part of the message keeps the rest in this half and answers `Ok`: the message is
    /// accepted. The rest goes out before anything else at the next call; [`Tx::flush`] waits until it has.
    /// The same holds for [`Tx::send`] with a deadline.
    fn try_send(&mut self, msg: &[u8]) -> Result<(), SendError>;

    /// Sends, waiting for room as [`Spec::wait`] says, until the deadline.
    fn send(&mut self, msg: &[u8], until: Deadline) -> Result<(), SendError>;

    /// Sends a message of `len` bytes that `fill` writes where the mechanism holds it. `fill` must write every
    /// byte: what it leaves is unspecified, though initialised. Mechanisms without [`Caps::in_place`] fill `scratch`
    /// (at least `len` bytes) and send that.
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

    /// Hands over what was collected for batching. After it returns, the peer will see everything sent.
    fn flush(&mut self) -> Result<(), SendError> {
        Ok(())
    }

    /// Values read back from the system.
    fn facts(&self) -> Facts {
        Facts::new()
    }
}

/// The receiving half.
pub trait Rx: Send + 'static {
    /// Receives what is there now, else [`RecvError::Empty`]. Messages: one message, its length returned.
    /// Streams: fills the whole buffer or nothing; what arrived of it in part is kept for the next call, which
    /// must ask for the same length.
    fn try_recv(&mut self, buf: &mut [u8]) -> Result<usize, RecvError>;

    /// As [`Rx::try_recv`], waiting as [`Spec::wait`] says, until the deadline.
    fn recv(&mut self, buf: &mut [u8], until: Deadline) -> Result<usize, RecvError>;

    /// Shows a message to `read` where the mechanism holds it, or in `scratch` where it must be copied out.
    /// The room is free again when `read` returns. For streams `scratch.len()` is the number of bytes wanted.
    fn recv_in_place<R>(
        &mut self,
        scratch: &mut [u8],
        until: Deadline,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError> {
        let n = self.recv(scratch, until)?;
        Ok(read(&scratch[..n]))
    }

    /// A descriptor that polls readable when [`Rx::try_recv`] would not be empty, if the mechanism has one.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Values read back from the system.
    fn facts(&self) -> Facts {
        Facts::new()
    }
}

/// The listening side of a channel that is being made.
pub trait Listener: Send + 'static {
    /// What [`Listener::accept`] gives to send with.
    type Tx: Tx;
    /// What [`Listener::accept`] gives to receive with.
    type Rx: Rx;

    /// Completes one channel; waits for the peer until the deadline. Mechanisms whose channel is complete with
    /// the offer return at once. Those with [`Caps::reconnects`] give a further channel at each call; with
    /// [`Caps::fan_in`] all connectors feed the one channel that the first call gives; for the others the second
    /// call is [`OpenError::Unsupported`].
    fn accept(&mut self, until: Deadline) -> Result<(Self::Tx, Self::Rx), OpenError>;
}

/// A way for two processes to talk.
pub trait Mechanism: 'static {
    /// The stable kebab-case id.
    const ID: &'static str;
    /// One line for people: what it is, with the name the kernel or a study gives it.
    const ABOUT: &'static str;
    /// The sending half.
    type Tx: Tx;
    /// The receiving half.
    type Rx: Rx;
    /// The listening side.
    type Listener: Listener<Tx = Self::Tx, Rx = Self::Rx>;

    /// What it can do.
    fn caps() -> Caps;

    /// What raises [`Caps::max_message`] here so that messages of `len` bytes go, if anything does: the exact step.
    fn remedy_for_size(_len: usize) -> Option<String> {
        None
    }

    /// Tries it, really: opens what it needs and closes it again.
    fn probe() -> Probe;

    /// Makes one end and the [`Offer`] from which the other process makes its own.
    ///
    /// After the offer was handed over the listener must hold no copy of the peer's descriptors, or it would
    /// never see the peer's death: descriptors are moved into the offer.
    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError>;

    /// Makes the other end. Descriptors are taken out of the offer; with [`Caps::reconnects`] or [`Caps::fan_in`]
    /// the offer's text alone must do, so that it can be used again.
    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError>;
}
