//! AF_UNIX sequenced packets: connected sockets that preserve message boundaries and order.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_sys::poll::is_hung_up;
use crossway_sys::socket::{self, SocketType};
use crossway_sys::{Errno, OsError};

use super::uds_stream::{bound, offer_of, offered_address};
use crate::building_blocks::connection::{
    BACKLOG, ConnectionFamily, Dialling, SocketHalf, set_buffers,
};
use crate::building_blocks::message_socket::{
    MessageRx, MessageSink, MessageSource, MessageTx, Received, check_limit,
};
use crate::{Caps, Carrier, Facts, Family, Offer, OpenError, Spec, Transport};

/// The mechanism `uds-seqpacket`, unix(7) with SOCK_SEQPACKET: one call and one copy per message at each end.
#[derive(Debug)]
pub struct UdsSeqpacket;

impl MessageSink for SocketHalf<UdsSeqpacket> {
    #[inline]
    fn send(&mut self, msg: &[u8], nonblocking: bool) -> Result<(), Errno> {
        socket::send(self.as_fd(), msg, nonblocking).map(drop)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn facts(&self) -> Facts {
        self.read_facts()
    }
}

/// The receiving side.
///
/// The kernel returns 0 both for an empty message and at the end. Only a message has a sender's address (both ends are
/// bound for this reason), but requesting it makes every receive about 7 % more expensive, so it is requested only
/// after the first 0. One case goes wrong: if the first empty message is also the last message before the peer closes,
/// it is taken for the end.
#[derive(Debug)]
pub struct SeqpacketSource {
    half: SocketHalf<UdsSeqpacket>,
    peer_sends_empty: bool,
}

impl SeqpacketSource {
    /// Determines what a first 0 meant.
    #[cold]
    fn first_zero(&mut self) -> Result<Received, Errno> {
        if has_ended(self.half.as_fd())? {
            return Ok(Received::End);
        }
        self.peer_sends_empty = true;
        Ok(Received::Message(0))
    }
}

impl MessageSource for SeqpacketSource {
    #[inline]
    fn recv(&mut self, buf: &mut [u8], nonblocking: bool) -> Result<Received, Errno> {
        if self.peer_sends_empty {
            return match socket::recv_message_from(self.half.as_fd(), buf, nonblocking)? {
                (0, None) => Ok(Received::End),
                (len, _) => Ok(Received::Message(len)),
            };
        }
        match socket::recv_message(self.half.as_fd(), buf, nonblocking)? {
            0 => self.first_zero(),
            len => Ok(Received::Message(len)),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.half.as_fd()
    }

    fn facts(&self) -> Facts {
        self.half.read_facts()
    }
}

/// The largest message in bytes of an AF_UNIX message socket: SO_SNDBUF minus the 32 bytes that the kernel sets aside
/// (net/unix/af_unix.c).
pub(super) fn max_message(fd: impl AsFd) -> Result<usize, OsError> {
    Ok(socket::send_buffer_bytes(fd)?.saturating_sub(32))
}

impl ConnectionFamily for UdsSeqpacket {
    const NAME: &'static str = "uds-seqpacket";
    const SUMMARY: &'static str = "UNIX-domain socket that keeps message boundaries";
    const CARRIER: Carrier = Carrier::new(Family::Unix, Transport::Unix);
    type Socket = OwnedFd;
    type Sender = MessageTx<SocketHalf<Self>>;
    type Receiver = MessageRx<SeqpacketSource>;

    fn capabilities() -> Caps {
        Caps { waitable_fd: true, reconnects: true, ..Caps::PLAIN }
    }

    fn listening(spec: &Spec) -> Result<(OwnedFd, Offer), OpenError> {
        listening(Self::NAME, spec)
    }

    fn dialling(spec: &Spec, offer: &Offer) -> Result<Dialling<OwnedFd>, OpenError> {
        dialling(Self::NAME, spec, offer)
    }

    fn channel(spec: &Spec, fd: OwnedFd) -> Result<(Self::Sender, Self::Receiver), OpenError> {
        let max = sized(Self::NAME, spec, &fd)?;
        let (sink, half) = SocketHalf::both(fd);
        let source = SeqpacketSource { half, peer_sends_empty: false };
        Ok((MessageTx::new(sink, spec.wait, max), MessageRx::new(source, spec.wait)))
    }

    fn remedy() -> &'static str {
        "use a kernel with CONFIG_UNIX"
    }
}

/// What [`ConnectionFamily::listening`] does for a mechanism on these sockets.
pub(super) fn listening(
    mechanism: &'static str,
    spec: &Spec,
) -> Result<(OwnedFd, Offer), OpenError> {
    let (fd, name) = bound(SocketType::Seqpacket, spec)?;
    check_limit(mechanism, spec, max_message(&fd)?, LARGER)?;
    socket::listen(&fd, BACKLOG)?;
    Ok((fd, offer_of(name)))
}

/// What [`ConnectionFamily::dialling`] does for a mechanism on these sockets.
pub(super) fn dialling(
    mechanism: &'static str,
    spec: &Spec,
    offer: &Offer,
) -> Result<Dialling<OwnedFd>, OpenError> {
    let fd = socket::unix(SocketType::Seqpacket)?;
    set_buffers(fd.as_fd(), spec)?;
    socket::bind(&fd, &socket::unnamed_address(), "a free abstract address")?;
    Ok((fd, offered_address(mechanism, offer)?))
}

/// Sets the buffers of a connected socket, checks that it carries the messages that the spec announces, and returns the
/// largest that it does carry, in bytes.
pub(super) fn sized(
    mechanism: &'static str,
    spec: &Spec,
    fd: &OwnedFd,
) -> Result<usize, OpenError> {
    // An accepted AF_UNIX socket has the default buffers, regardless of those of the listening one.
    set_buffers(fd.as_fd(), spec)?;
    let max = max_message(fd)?;
    check_limit(mechanism, spec, max, LARGER)?;
    Ok(max)
}

/// Whether nothing can arrive on this socket any more, after a receive call returned 0. The end is final, so if more
/// can still arrive, it was an empty message.
pub(super) fn has_ended(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(is_hung_up(fd)? && !socket::has_message(fd)?)
}

/// What the user can do about a limit that SO_SNDBUF sets, as part of an error message.
pub(super) const LARGER: &str =
    "request a larger socket_buffer_bytes (net.core.wmem_max limits it)";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Listener, Mechanism, RecvError, Rx, Tx};

    #[test]
    fn the_limit_follows_the_requested_buffer_at_both_ends() {
        let spec = Spec { socket_buffer_bytes: Some(8192), max_message: 4096, ..Spec::default() };
        let (mut listener, mut offer) = UdsSeqpacket::listen(&spec).unwrap();
        let (tx, _rx) = UdsSeqpacket::connect(&spec, &mut offer).unwrap();
        let (other_tx, _rx) = listener.accept(None).unwrap();
        for facts in [tx.facts(), other_tx.facts()] {
            assert_eq!(facts["so_sndbuf_bytes"], 16_384, "the kernel doubles the requested size");
            assert_eq!(facts["max_message_bytes"], 16_384 - 32);
        }
    }

    #[test]
    fn empty_messages_before_the_end_are_not_the_end() {
        let (mut listener, mut offer) = UdsSeqpacket::listen(&Spec::default()).unwrap();
        let (mut tx, goes) = UdsSeqpacket::connect(&Spec::default(), &mut offer).unwrap();
        let (_tx, mut rx) = listener.accept(None).unwrap();
        for len in [1, 0, 0] {
            tx.send(&[7; 1][..len], None).unwrap();
        }
        drop((tx, goes));
        for len in [1, 0, 0] {
            assert_eq!(rx.recv(&mut [0; 8], None).unwrap(), len);
        }
        for _ in 0..2 {
            assert!(matches!(rx.recv(&mut [0; 8], None), Err(RecvError::PeerClosed)));
        }
    }

    #[test]
    fn messages_that_no_buffer_holds_are_refused_when_opening() {
        let spec = Spec { max_message: 1 << 30, ..Spec::default() };
        let Err(OpenError::Unsupported { why, .. }) = UdsSeqpacket::listen(&spec) else {
            panic!("taken");
        };
        assert!(why.contains("socket_buffer_bytes"), "{why}");
    }
}
