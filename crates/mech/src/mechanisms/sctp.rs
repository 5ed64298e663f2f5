//! SCTP in the one-to-one style (RFC 6458, section 4), which is SOCK_STREAM with IPPROTO_SCTP, with default options or
//! with SCTP_NODELAY.
//!
//! This is the style that a program written for TCP gets when it is switched to SCTP: listen, connect, accept, one
//! socket per association. (SOCK_SEQPACKET is the one-to-many style, in which one socket serves all associations, and
//! there is no connection that can be lost.) Unlike TCP, it preserves message boundaries. The kernel may deliver a
//! large message in pieces and marks the last one. The pieces are reassembled here, so one receive returns one message.
//!
//! By default, a small message waits until the previous one is acknowledged, and the receiver's kernel delays
//! acknowledgements by up to 200 ms if the receiver sends nothing in the other direction. This does not affect streams
//! and round trips, but it delays single messages at intervals.
//!
//! SCTP has no half-closed associations: an end that drops its sending half can still receive what is in flight, but
//! nothing after that.

use std::marker::PhantomData;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_sys::Errno;
use crossway_sys::socket::{self, Inet};

use super::tcp;
use crate::building_blocks::connection::{ConnectionFamily, Dialling, SocketHalf};
use crate::building_blocks::message_socket::{
    MessageRx, MessageSink, MessageSource, MessageTx, Received, check_limit,
};
use crate::building_blocks::stream_socket::stream_caps;
use crate::{
    Boundaries, Caps, Carrier, Facts, Family, Offer, OpenError, Privilege, Spec, Transport,
};

/// How the user raises the limit of the message size.
const LARGER: &str =
    "set socket_buffer_bytes to at least half the message size (net.core.wmem_max limits it)";

/// sctp(7) with default options.
pub type Sctp = OneToOne<Delays>;
/// sctp(7) with SCTP_NODELAY at both ends.
pub type SctpNodelay = OneToOne<SendsAtOnce>;

/// What distinguishes the two mechanisms.
pub trait Delaying: std::fmt::Debug + Send + 'static {
    /// Id of the mechanism, [`Mechanism::ID`](crate::Mechanism::ID).
    const NAME: &'static str;
    /// A one-line description for users.
    const SUMMARY: &'static str;
    /// Whether SCTP_NODELAY is set.
    const NODELAY: bool;
}

/// By default, a small message may wait for the acknowledgement of the previous one.
#[derive(Debug)]
pub struct Delays;

impl Delaying for Delays {
    const NAME: &'static str = "sctp";
    const SUMMARY: &'static str =
        "SCTP, one-to-one style, default options: TCP's calls, with message boundaries";
    const NODELAY: bool = false;
}

/// With SCTP_NODELAY, every message is sent immediately.
#[derive(Debug)]
pub struct SendsAtOnce;

impl Delaying for SendsAtOnce {
    const NAME: &'static str = "sctp-nodelay";
    const SUMMARY: &'static str =
        "SCTP, one-to-one style, with SCTP_NODELAY: every message is sent immediately";
    const NODELAY: bool = true;
}

/// The family of one-to-one SCTP sockets.
#[derive(Debug)]
pub struct OneToOne<D>(PhantomData<fn() -> D>);

impl<D: Delaying> ConnectionFamily for OneToOne<D> {
    const NAME: &'static str = D::NAME;
    const SUMMARY: &'static str = D::SUMMARY;
    const CARRIER: Carrier = Carrier::new(Family::Network, Transport::Sctp);
    type Socket = OwnedFd;
    type Sender = MessageTx<SocketHalf<Self>>;
    type Receiver = MessageRx<SctpSource<D>>;

    fn capabilities() -> Caps {
        Caps { boundaries: Boundaries::Message, ..stream_caps(true, Privilege::Module) }
    }

    fn listening(spec: &Spec) -> Result<(OwnedFd, Offer), OpenError> {
        let (fd, offer) = tcp::listening(Inet::Sctp, spec)?;
        check::<D>(spec, &fd)?;
        // Accepted sockets inherit the option, which saves a call per connection; the facts read it back.
        hurry::<D>(&fd)?;
        Ok((fd, offer))
    }

    fn dialling(spec: &Spec, offer: &Offer) -> Result<Dialling<OwnedFd>, OpenError> {
        let (fd, address) = tcp::dialling(Self::NAME, Inet::Sctp, spec, offer)?;
        hurry::<D>(&fd)?;
        Ok((fd, address))
    }

    fn channel(spec: &Spec, fd: OwnedFd) -> Result<(Self::Sender, Self::Receiver), OpenError> {
        let max = check::<D>(spec, &fd)?;
        let (sink, half) = SocketHalf::both(fd);
        let source = SctpSource { half, parts: Vec::new() };
        Ok((MessageTx::new(sink, spec.wait, max), MessageRx::new(source, spec.wait)))
    }

    fn try_here() -> Result<(), String> {
        // Without the protocol there is no address to test.
        socket::inet(Inet::Sctp, SocketAddr::from(([127, 0, 0, 1], 0)))
            .map_err(|e| e.to_string())?;
        crate::self_test::exchange_a_byte::<Self>()
    }

    fn remedy() -> &'static str {
        "load the kernel's module as root: modprobe sctp (CONFIG_IP_SCTP); if the kernel has no such module, use a guest with its own \
         kernel, crossway guest run"
    }

    fn add_facts(fd: BorrowedFd<'_>, facts: &mut Facts) {
        if let Ok(on) = socket::sctp_nodelay(fd) {
            facts.insert("sctp_nodelay".to_owned(), i64::from(on));
        }
    }
}

fn hurry<D: Delaying>(fd: &OwnedFd) -> Result<(), OpenError> {
    if D::NODELAY {
        socket::set_sctp_nodelay(fd, true)?;
    }
    Ok(())
}

/// Checks the size of the largest message, which SO_SNDBUF limits according to RFC 6458 (section 8.1.14).
fn check<D: Delaying>(spec: &Spec, fd: impl AsFd) -> Result<usize, OpenError> {
    let max = socket::send_buffer_bytes(fd)?;
    check_limit(D::NAME, spec, max, LARGER)?;
    Ok(max)
}

impl<D: Delaying> MessageSink for SocketHalf<OneToOne<D>> {
    #[inline]
    fn send(&mut self, msg: &[u8], nonblocking: bool) -> Result<(), Errno> {
        match socket::send(self.as_fd(), msg, nonblocking) {
            Err(errno) if is_the_end(errno) => {
                self.note_end();
                Err(Errno::PIPE)
            }
            outcome => outcome.map(drop),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn facts(&self) -> Facts {
        self.read_facts()
    }
}

/// Whether an errno means that the association has ended. ESRCH is among them, because the association may end while a
/// call waits.
fn is_the_end(errno: Errno) -> bool {
    matches!(errno, Errno::PIPE | Errno::CONNRESET | Errno::SHUTDOWN | Errno::NOTCONN | Errno::SRCH)
}

/// The receiving side of an association.
#[derive(Debug)]
pub struct SctpSource<D> {
    half: SocketHalf<OneToOne<D>>,
    /// The pieces of an incomplete message that have been received.
    parts: Vec<u8>,
}

/// Receives a piece of a message. Returns its length and whether it is the last piece; a length of 0 is the end.
///
/// The kernel reports only once that the peer has aborted the association: to the first call afterwards, even if that
/// is a send. This is recorded, because a receive call would otherwise wait for ever.
#[inline]
fn receive<D: Delaying>(
    half: &SocketHalf<OneToOne<D>>,
    buf: &mut [u8],
    nonblocking: bool,
) -> Result<(usize, bool), Errno> {
    let ended = half.has_ended();
    match socket::recv_piece(half.as_fd(), buf, nonblocking || ended) {
        Err(Errno::AGAIN) if ended => Ok((0, true)),
        Err(errno) if is_the_end(errno) => {
            half.note_end();
            Ok((0, true))
        }
        outcome => outcome,
    }
}

impl<D: Delaying> SctpSource<D> {
    /// Receives the remaining pieces of a message, as far as they are available.
    #[cold]
    fn complete(&mut self, buf: &mut [u8], nonblocking: bool) -> Result<Received, Errno> {
        const PIECE: usize = 64 * 1024;
        loop {
            let have = self.parts.len();
            self.parts.resize(have + PIECE, 0);
            let piece = receive(&self.half, &mut self.parts[have..], nonblocking);
            self.parts.truncate(have + piece.map_or(0, |(len, _)| len));
            match piece? {
                (0, _) => return Ok(Received::End),
                (_, false) => {}
                (_, true) => break,
            }
        }
        let len = self.parts.len();
        if len <= buf.len() {
            buf[..len].copy_from_slice(&self.parts);
        }
        self.parts.clear();
        Ok(Received::Message(len))
    }
}

impl<D: Delaying> MessageSource for SctpSource<D> {
    #[inline]
    fn recv(&mut self, buf: &mut [u8], nonblocking: bool) -> Result<Received, Errno> {
        if !self.parts.is_empty() {
            return self.complete(buf, nonblocking);
        }
        match receive(&self.half, buf, nonblocking)? {
            (0, _) => Ok(Received::End),
            (len, true) => Ok(Received::Message(len)),
            (len, false) => {
                self.parts.extend_from_slice(&buf[..len]);
                self.complete(buf, nonblocking)
            }
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.half.as_fd()
    }

    fn facts(&self) -> Facts {
        self.half.read_facts()
    }
}
