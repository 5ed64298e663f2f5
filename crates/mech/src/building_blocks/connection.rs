//! Mechanisms based on a connected socket: listen, connect and accept are the same for all of them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::{Errno, OsError, socket};

use super::arrival::{await_name, tried_for};
use crate::{
    Caps, Carrier, Deadline, Facts, Listener, Mechanism, Offer, OpenError, Probe, Rx, Spec, Tx,
};

/// Maximum number of connections waiting for [`Listener::accept`]; the kernel clamps it to net.core.somaxconn.
pub(crate) const BACKLOG: i32 = 1024;

/// A socket with the operations needed for listening and connecting.
pub trait Endpoint: AsFd + Send + Sized + 'static {
    /// The address type of the socket.
    type Address;

    /// Accepts the next connection of this listening socket. `mechanism` is the id for errors.
    fn accept_until(&self, mechanism: &'static str, until: Deadline) -> Result<Self, OpenError>;

    /// Connects within `limit`. If that time has passed, the error is EAGAIN, EINPROGRESS or ETIMEDOUT.
    fn connect_within(
        &self,
        address: &Self::Address,
        limit: Duration,
    ) -> Result<Result<(), Errno>, OpenError>;
}

/// A family of connected sockets.
pub trait ConnectionFamily: Send + Sized + 'static {
    /// The mechanism's id, [`Mechanism::ID`].
    const NAME: &'static str;
    /// A one-line description for users.
    const SUMMARY: &'static str;
    /// What carries the mechanism's messages.
    const CARRIER: Carrier;
    /// The type of the sockets.
    type Socket: Endpoint;
    /// The sending half that [`ConnectionFamily::channel`] makes.
    type Sender: Tx;
    /// The receiving half that [`ConnectionFamily::channel`] makes.
    type Receiver: Rx;

    /// The capabilities of the mechanism.
    fn capabilities() -> Caps;

    /// Creates a bound and listening socket, and the offer with its address.
    fn listening(spec: &Spec) -> Result<(Self::Socket, Offer), OpenError>;

    /// Creates a socket of the family, and returns it with the address to which it must be connected.
    fn dialling(spec: &Spec, offer: &Offer) -> Result<Dialling<Self::Socket>, OpenError>;

    /// Creates the halves of a channel over a connected socket.
    fn channel(
        spec: &Spec,
        socket: Self::Socket,
    ) -> Result<(Self::Sender, Self::Receiver), OpenError>;

    /// Tests whether the family works here.
    fn try_here() -> Result<(), String> {
        crate::self_test::exchange_a_byte::<Self>()
    }

    /// Whether the kernel itself makes sends fail, sooner or later, after the peer has closed.
    const SENDS_FAIL_AFTER_CLOSE: bool = true;

    /// How to make the family available if it is missing.
    fn remedy() -> &'static str;

    /// The version of the software that provides the family.
    fn version() -> String {
        crate::self_test::kernel_version()
    }

    /// The errors of connecting while the listening end's name is not known yet; connecting is then retried.
    const NOT_YET: &'static [Errno] = &[];

    /// Adds facts other than the sizes of the buffers.
    fn add_facts(_fd: BorrowedFd<'_>, _facts: &mut Facts) {}
}

/// A socket that is to be connected, and the address to connect it to.
pub type Dialling<S> = (S, <S as Endpoint>::Address);

/// One direction of a connected socket; the two halves of a channel share it.
#[derive(Debug)]
pub struct SocketHalf<F> {
    shared: Arc<Shared>,
    sends: bool,
    /// Largest number of bytes that one receive call has returned. A study makes a claim about this number
    /// (`report/src/studies/cluster/limits.rs`).
    largest_recv: usize,
    family: std::marker::PhantomData<fn() -> F>,
}

#[derive(Debug)]
struct Shared {
    fd: OwnedFd,
    /// Whether the receiving half has seen the end of the stream.
    ended: AtomicBool,
}

/// Notifies the peer when the first half is dropped, as closing a pipe's end does. Dropping the last half closes the
/// socket.
impl<F> Drop for SocketHalf<F> {
    fn drop(&mut self) {
        if Arc::strong_count(&self.shared) > 1 {
            if self.sends {
                socket::shutdown_send(&self.shared.fd);
            } else {
                socket::shutdown_recv(&self.shared.fd);
            }
        }
    }
}

impl<F: ConnectionFamily> SocketHalf<F> {
    /// Returns the two directions of a connected socket, the sending one first.
    pub(crate) fn both(fd: OwnedFd) -> (Self, Self) {
        let shared = Arc::new(Shared { fd, ended: AtomicBool::new(false) });
        let family = std::marker::PhantomData;
        let half = |sends| SocketHalf { shared: shared.clone(), sends, largest_recv: 0, family };
        (half(true), half(false))
    }

    /// Records that the peer will send nothing more.
    #[cold]
    pub(crate) fn note_end(&self) {
        self.shared.ended.store(true, Ordering::Relaxed);
    }

    /// Whether the peer is known to send nothing more.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Relaxed)
    }

    /// Records the number of bytes that a receive call has returned.
    #[inline]
    pub(crate) fn note_received(&mut self, bytes: usize) {
        self.largest_recv = self.largest_recv.max(bytes);
    }

    /// Values read back from the system after opening, such as buffer sizes.
    pub(crate) fn read_facts(&self) -> Facts {
        let mut facts = buffer_facts(self.as_fd());
        if self.largest_recv > 0 {
            facts.insert("largest_recv_bytes".to_owned(), self.largest_recv as i64);
        }
        F::add_facts(self.as_fd(), &mut facts);
        facts
    }
}

impl<F> AsFd for SocketHalf<F> {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.fd.as_fd()
    }
}

/// Returns SO_SNDBUF and SO_RCVBUF as the kernel reports them, that is, doubled.
pub(crate) fn buffer_facts(fd: BorrowedFd<'_>) -> Facts {
    let mut facts = Facts::new();
    for (name, value) in [
        ("so_sndbuf_bytes", socket::send_buffer_bytes(fd)),
        ("so_rcvbuf_bytes", socket::recv_buffer_bytes(fd)),
    ] {
        if let Some(bytes) = value.ok().and_then(|n| i64::try_from(n).ok()) {
            facts.insert(name.to_owned(), bytes);
        }
    }
    facts
}

/// The listening side, which accepts a new channel for every connection.
#[derive(Debug)]
pub struct ConnectionListener<F: ConnectionFamily> {
    socket: F::Socket,
    spec: Spec,
}

impl<F: ConnectionFamily> Listener for ConnectionListener<F> {
    type Tx = F::Sender;
    type Rx = F::Receiver;

    fn accept(&mut self, until: Deadline) -> Result<(Self::Tx, Self::Rx), OpenError> {
        F::channel(&self.spec, self.socket.accept_until(F::NAME, until)?)
    }
}

impl<F: ConnectionFamily> Mechanism for F {
    const ID: &'static str = F::NAME;
    const ABOUT: &'static str = F::SUMMARY;
    const CARRIER: Carrier = <F as ConnectionFamily>::CARRIER;
    type Tx = F::Sender;
    type Rx = F::Receiver;
    type Listener = ConnectionListener<F>;

    fn caps() -> Caps {
        F::capabilities()
    }

    fn probe() -> Probe {
        Probe::of(F::try_here(), F::version, F::remedy())
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        let (socket, offer) = F::listening(spec)?;
        Ok((ConnectionListener { socket, spec: spec.clone() }, offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let limit = spec.open_timeout;
        let outcome = await_name(limit, F::NOT_YET, |left| {
            // A socket whose connection was refused cannot be used again, so each attempt needs a new one.
            let attempt = Spec { open_timeout: left, ..spec.clone() };
            let (socket, address) = F::dialling(&attempt, offer)?;
            Ok(socket.connect_within(&address, left)?.map(|()| socket))
        })?;
        let socket = outcome.map_err(|errno| match errno {
            Errno::AGAIN | Errno::INPROGRESS | Errno::TIMEDOUT => {
                OpenError::TimedOut { mechanism: F::NAME, waited: limit }
            }
            errno => {
                let mut words: Vec<_> = offer.words.values().cloned().collect();
                if F::NOT_YET.contains(&errno) {
                    words.push(tried_for(limit));
                }
                OsError::new("connect", words.join(" "), errno).into()
            }
        })?;
        F::channel(spec, socket)
    }
}

impl Endpoint for OwnedFd {
    type Address = socket::Address;

    fn accept_until(&self, mechanism: &'static str, until: Deadline) -> Result<Self, OpenError> {
        if until.is_some() {
            let start = Instant::now();
            let came = wait_ready(self, Interest::Readable, until)
                .map_err(|e| OsError::new("poll", "listening socket", e))?;
            if !came {
                return Err(OpenError::TimedOut { mechanism, waited: start.elapsed() });
            }
        }
        Ok(socket::accept(self).map_err(|e| OsError::new("accept", "", e))?)
    }

    fn connect_within(
        &self,
        address: &socket::Address,
        limit: Duration,
    ) -> Result<Result<(), Errno>, OpenError> {
        // The timeout stays set: a blocking send that runs into it continues (waiting.rs), and removing it would be a
        // system call that an ordinary program does not make.
        socket::set_send_timeout(self, Some(limit.max(Duration::from_millis(1))))
            .map_err(|e| OsError::new("setsockopt(SO_SNDTIMEO)", "", e))?;
        Ok(socket::connect(self, address))
    }
}

/// Applies [`Spec::socket_buffer_bytes`]; for TCP this must come before listen and connect.
pub(crate) fn set_buffers(fd: BorrowedFd<'_>, spec: &Spec) -> Result<(), OpenError> {
    if let Some(bytes) = spec.socket_buffer_bytes {
        socket::set_buffers(fd, bytes)?;
    }
    Ok(())
}
