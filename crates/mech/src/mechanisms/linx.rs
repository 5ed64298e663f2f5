//! The LINX messaging model between two processes: signals between named endpoints, over each of its transports.
//!
//! What the studies call `lfs_socket_sig` is `linx-uds`, and `lfs_fifo_sig` is `linx-fifo`. The listening end runs a
//! private node in a thread. The node registers the endpoints but does not forward signals. Each end has one endpoint
//! to send from and one to receive at, like a program that has one for each of its threads. A message is the payload of
//! a signal; header and signal number add 24 bytes. Each message costs one system call to send, and two to receive if
//! the receiver sleeps. Compared with the raw mechanism, a signal is copied once more if it is shorter than 1 KiB or
//! has a different length than the signal before. The receiver is attached to the sender, so it is notified of the
//! sender's death by a signal after the last message.

use std::cell::{OnceCell, RefCell};
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossway_linx::limits::{LARGEST_SIGNAL, LEAST_SIGNAL};
use crossway_linx::signal::{ATTACH, USER_BASE};
use crossway_linx::{
    Endpoint, Error, Filter, Node, NodeThread, Options, Settings, Signal, Spid, Transport,
};
use crossway_sys::OsError;

use crate::contract::facts_of;
use crate::self_test::exchange_a_byte;
use crate::{
    Caps, Carrier, Deadline, Facts, Family, Listener, Mechanism, Meeting, NodeKind, Offer,
    OpenError, Probe, RecvError, Rx, SendError, Spec, Tx, Wait, carrier,
};

/// Minimum length in bytes of messages that are allocated in memory shared with the receiver when they are written in
/// place, if the transport has such memory. Copying a shorter message costs no more than managing shared memory.
const SHARED_FROM: usize = 4096;

/// The number of a signal that carries a message.
const MESSAGE: u32 = USER_BASE;
/// The number of the connecting end's first signal, which contains the endpoint to send to.
pub(super) const HELLO: u32 = USER_BASE + 1;

const MAX_MESSAGE: usize = LARGEST_SIGNAL - LEAST_SIGNAL;

/// The transport of a LINX mechanism.
pub trait Via: 'static {
    /// Id of the mechanism, [`Mechanism::ID`].
    const NAME: &'static str;
    /// A one-line description for users.
    const SUMMARY: &'static str;
    /// What carries the mechanism's messages.
    const CARRIER: Carrier;
    /// The transport that the endpoints use.
    const TRANSPORT: Transport;
}

/// LINX over one of its transports.
#[derive(Debug)]
pub struct Linx<V>(PhantomData<V>);

/// The transport of [`LinxUds`]: stream sockets of AF_UNIX.
#[derive(Debug)]
pub struct Uds;
/// The transport of [`LinxFifo`]: two named pipes, one each way.
#[derive(Debug)]
pub struct Fifo;
/// The transport of [`LinxShm`]: rings in shared memory.
#[derive(Debug)]
pub struct Shm;

/// LINX over UNIX sockets, `lfs_socket_sig` in the studies.
pub type LinxUds = Linx<Uds>;
/// LINX over FIFOs, `lfs_fifo_sig` in the studies.
pub type LinxFifo = Linx<Fifo>;
/// LINX over rings in shared memory.
pub type LinxShm = Linx<Shm>;

impl Via for Uds {
    const NAME: &'static str = "linx-uds";
    const SUMMARY: &'static str = "LINX signals over UNIX stream sockets (lfs_socket_sig)";
    const CARRIER: Carrier = Carrier::new(Family::Unix, carrier::Transport::Unix)
        .through(NodeKind::Linx)
        .meeting(&[Meeting::Path]);
    const TRANSPORT: Transport = Transport::Uds;
}

impl Via for Fifo {
    const NAME: &'static str = "linx-fifo";
    const SUMMARY: &'static str = "LINX signals over FIFOs, one each way (lfs_fifo_sig)";
    const CARRIER: Carrier = Carrier::new(Family::Pipe, carrier::Transport::Pipe)
        .through(NodeKind::Linx)
        .meeting(&[Meeting::Path]);
    const TRANSPORT: Transport = Transport::Fifo;
}

impl Via for Shm {
    const NAME: &'static str = "linx-shm";
    const SUMMARY: &'static str =
        "LINX signals over rings in shared memory, with wake-ups through eventfds";
    const CARRIER: Carrier = Carrier::new(Family::SharedMemory, carrier::Transport::Memory)
        .through(NodeKind::Linx)
        .meeting(&[Meeting::Path]);
    const TRANSPORT: Transport = Transport::Shm;
}

/// The sending half: an endpoint, and the number of the peer's receiving endpoint.
#[derive(Debug)]
pub struct LinxTx {
    endpoint: Endpoint,
    to: Spid,
    /// How long there must continuously be no room before the channel counts as full.
    settles_within: Duration,
    // Declared after the endpoint, so that the endpoint's signals are passed on before the node ends.
    _node: Option<Arc<NodeThread>>,
}

/// The receiving half: an endpoint that is attached to the peer's sending one.
#[derive(Debug)]
pub struct LinxRx {
    endpoint: RefCell<Endpoint>,
    /// A copy of the endpoint's descriptor to wait for. It is made only when requested, because keeping it up to date
    /// costs system calls.
    wait: OnceCell<OwnedFd>,
    /// A message that did not fit into the caller's buffer.
    refused: Option<Signal>,
    peer_gone: bool,
    _node: Option<Arc<NodeThread>>,
}

fn sending(error: Error) -> SendError {
    match error {
        Error::TimedOut => SendError::TimedOut,
        Error::Gone { .. } | Error::NodeGone => SendError::PeerClosed,
        Error::BadSize { size } => {
            SendError::TooLarge { len: size.saturating_sub(LEAST_SIGNAL), max: MAX_MESSAGE }
        }
        Error::Os(error) => SendError::Os(error),
        other => SendError::Os(OsError::new("send", "LINX", std::io::Error::other(other))),
    }
}

pub(super) fn os(error: Error) -> OsError {
    match error {
        Error::Os(error) => error,
        other => OsError::new("open", "LINX endpoint", std::io::Error::other(other)),
    }
}

impl Tx for LinxTx {
    fn try_send(&mut self, msg: &[u8]) -> Result<(), SendError> {
        match self.send(msg, Some(Instant::now() + self.settles_within)) {
            Err(SendError::TimedOut) => Err(SendError::Full),
            outcome => outcome,
        }
    }

    #[inline]
    fn send(&mut self, msg: &[u8], until: Deadline) -> Result<(), SendError> {
        self.endpoint.send_copy(MESSAGE, msg, self.to, until).map_err(sending)
    }

    fn send_in_place(
        &mut self,
        len: usize,
        _scratch: &mut [u8],
        until: Deadline,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        let mut signal = if len < SHARED_FROM {
            self.endpoint.alloc(MESSAGE, len).map_err(sending)?
        } else {
            self.endpoint.alloc_for(MESSAGE, len, self.to).map_err(sending)?
        };
        fill(signal.payload_mut());
        self.endpoint.send_until(signal, self.to, until).map_err(sending)
    }

    fn flush(&mut self) -> Result<(), SendError> {
        self.endpoint.flush(None).map_err(sending)
    }

    fn facts(&self) -> Facts {
        facts_of([("max_message_bytes", MAX_MESSAGE)])
    }
}

impl LinxRx {
    #[inline]
    fn next(&mut self, until: Deadline) -> Result<Signal, RecvError> {
        if let Some(signal) = self.refused.take() {
            return Ok(signal);
        }
        loop {
            if self.peer_gone {
                return Err(RecvError::PeerClosed);
            }
            match self.endpoint.get_mut().receive(&Filter::ANY, until) {
                Ok(Some(signal)) if signal.number() == MESSAGE => return Ok(signal),
                Ok(Some(signal)) => self.peer_gone |= signal.number() == ATTACH,
                Ok(None) => return Err(RecvError::TimedOut),
                Err(Error::NodeGone) => self.peer_gone = true,
                Err(other) => return Err(RecvError::Os(os(other))),
            }
        }
    }

    #[inline]
    fn within(&mut self, signal: Signal, have: usize) -> Result<Signal, RecvError> {
        let need = signal.payload().len();
        if need <= have {
            return Ok(signal);
        }
        self.refused = Some(signal);
        Err(RecvError::TooSmall { need, have })
    }
}

impl Rx for LinxRx {
    fn try_recv(&mut self, buf: &mut [u8]) -> Result<usize, RecvError> {
        match self.recv(buf, Some(Instant::now())) {
            Err(RecvError::TimedOut) => Err(RecvError::Empty),
            outcome => outcome,
        }
    }

    fn recv(&mut self, buf: &mut [u8], until: Deadline) -> Result<usize, RecvError> {
        let signal = self.next(until)?;
        let signal = self.within(signal, buf.len())?;
        let len = signal.payload().len();
        buf[..len].copy_from_slice(signal.payload());
        self.endpoint.get_mut().free(signal);
        Ok(len)
    }

    #[inline]
    fn recv_in_place<R>(
        &mut self,
        _scratch: &mut [u8],
        until: Deadline,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError> {
        let signal = self.next(until)?;
        let result = read(signal.payload());
        self.endpoint.get_mut().free(signal);
        Ok(result)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        if self.wait.get().is_none() {
            let mut endpoint = self.endpoint.borrow_mut();
            let own = endpoint.descriptor().ok()?.try_clone_to_owned().ok()?;
            let _ = self.wait.set(own);
        }
        self.wait.get().map(AsFd::as_fd)
    }

    fn facts(&self) -> Facts {
        facts_of([("max_message_bytes", MAX_MESSAGE)])
    }
}

/// The two endpoints of an end.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) tx: Endpoint,
    pub(super) rx: Endpoint,
}

impl Ends {
    pub(super) fn open(to_send: OwnedFd, to_receive: OwnedFd) -> Result<Ends, OpenError> {
        let open =
            |connection, name| Endpoint::open_on(connection, name, &Options::default()).map_err(os);
        Ok(Ends { tx: open(to_send, "tx")?, rx: open(to_receive, "rx")? })
    }

    pub(super) fn halves(
        mut self,
        from: Spid,
        to: Spid,
        settles_within: Duration,
        node: Option<Arc<NodeThread>>,
    ) -> Result<(LinxTx, LinxRx), OpenError> {
        self.rx.attach(from, None).map_err(os)?;
        let tx = LinxTx { endpoint: self.tx, to, settles_within, _node: node.clone() };
        let rx = LinxRx {
            endpoint: RefCell::new(self.rx),
            wait: OnceCell::new(),
            refused: None,
            peer_gone: false,
            _node: node,
        };
        Ok((tx, rx))
    }
}

/// The listening side: the thread with the node, and this end's two endpoints.
#[derive(Debug)]
pub struct LinxListener {
    mechanism: &'static str,
    ends: Option<(Endpoint, Endpoint)>,
    node: Arc<NodeThread>,
}

impl Listener for LinxListener {
    type Tx = LinxTx;
    type Rx = LinxRx;

    fn accept(&mut self, until: Deadline) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let start = Instant::now();
        let again = || crate::building_blocks::complete::no_second_channel(self.mechanism);
        let (tx, mut rx) = self.ends.take().ok_or_else(again)?;
        match rx.receive(&Filter::only(&[HELLO]), until).map_err(os)? {
            Some(hello) => {
                let (from, to) = (hello.sender(), spid_in(&hello));
                let (Some(from), Some(to)) = (from, to) else {
                    return Err(OpenError::BadOffer {
                        mechanism: self.mechanism,
                        why: "the connecting end did not send its address".to_owned(),
                    });
                };
                Ends { tx, rx }.halves(from, to, Duration::ZERO, Some(Arc::clone(&self.node)))
            }
            None => {
                self.ends = Some((tx, rx));
                Err(OpenError::TimedOut { mechanism: self.mechanism, waited: start.elapsed() })
            }
        }
    }
}

/// Rejects specs that signals cannot satisfy.
pub(super) fn check(mechanism: &'static str, spec: &Spec) -> Result<(), OpenError> {
    let why = if spec.max_message > MAX_MESSAGE {
        format!("a LINX signal carries at most {MAX_MESSAGE} bytes; request smaller messages")
    } else if spec.wait != Wait::Block {
        "a LINX endpoint cannot spin while it waits for a signal; request blocking waits".to_owned()
    } else {
        return Ok(());
    };
    Err(OpenError::Unsupported { mechanism, why })
}

/// Reads an endpoint's number from a signal's payload.
fn spid_in(signal: &Signal) -> Option<Spid> {
    Spid::new(u32::from_ne_bytes(signal.payload().try_into().ok()?))
}

impl<V: Via> Mechanism for Linx<V> {
    const ID: &'static str = V::NAME;
    const ABOUT: &'static str = V::SUMMARY;
    const CARRIER: Carrier = V::CARRIER;
    type Tx = LinxTx;
    type Rx = LinxRx;
    type Listener = LinxListener;

    fn caps() -> Caps {
        Caps {
            max_message: Some(MAX_MESSAGE),
            in_place: true,
            waitable_fd: true,
            can_spin: false,
            ..Caps::PLAIN
        }
    }

    fn probe() -> Probe {
        Probe::of_kernel(
            exchange_a_byte::<Self>(),
            "allow this process to use UNIX sockets, pipes and shared memory: check its seccomp profile and its limits",
        )
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        check(Self::ID, spec)?;
        let defaults = Settings::default();
        let channel_bytes =
            spec.capacity_bytes.or(spec.socket_buffer_bytes).unwrap_or(defaults.channel_bytes);
        let settings = Settings { transport: V::TRANSPORT, channel_bytes, ..defaults };
        let node = Node::spawn_private(settings).map_err(os)?;
        let connect = || node.connection().map_err(os);
        let ends = Ends::open(connect()?, connect()?)?;
        let offer = Offer::new()
            .with_word("spid", ends.rx.spid().get())
            .with_word("from", ends.tx.spid().get())
            .with_fd("tx", connect()?)
            .with_fd("rx", connect()?);
        let ends = Some((ends.tx, ends.rx));
        Ok((LinxListener { mechanism: Self::ID, ends, node: Arc::new(node) }, offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        check(Self::ID, spec)?;
        let named = |offer: &Offer, word| -> Result<Spid, OpenError> {
            Spid::new(offer.word(Self::ID, word)?).ok_or_else(|| OpenError::BadOffer {
                mechanism: Self::ID,
                why: format!("the value '{word}' is not the number of an endpoint"),
            })
        };
        let (to, from) = (named(offer, "spid")?, named(offer, "from")?);
        let (tx, rx) = (offer.take_fd(Self::ID, "tx")?, offer.take_fd(Self::ID, "rx")?);
        let mut ends = Ends::open(tx, rx)?;
        let own = ends.rx.spid().get().to_ne_bytes();
        let until = Some(Instant::now() + spec.open_timeout);
        ends.tx.send_copy(HELLO, &own, to, until).map_err(os)?;
        ends.halves(from, to, Duration::ZERO, None)
    }
}
