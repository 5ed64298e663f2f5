//! The kernel's TIPC with connections: AF_TIPC with SOCK_STREAM and SOCK_SEQPACKET.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_sys::Errno;
use crossway_sys::socket::{self, SocketType};
use crossway_sys::tipc::{self, TipcMessage};

use super::tipc_kernel::{REMEDY, offered, publish, tipc_socket};
use super::tipc_kernel_message::KernelTipc;
use crate::building_blocks::arrival;
use crate::building_blocks::connection::{BACKLOG, ConnectionFamily, Dialling, SocketHalf};
use crate::building_blocks::message_socket::{
    MessageRx, MessageSink, MessageSource, MessageTx, Received, check_limit,
};
use crate::building_blocks::stream_socket::{SocketRx, SocketTx, channel, stream_caps};
use crate::building_blocks::tipc_port::Tipc;
use crate::{
    Boundaries, Caps, Carrier, Facts, Family, Offer, OpenError, Privilege, Spec, Transport,
};

fn listening(kind: SocketType, spec: &Spec) -> Result<(OwnedFd, Offer), OpenError> {
    let fd = tipc_socket(kind, spec)?;
    // Listen before bind: binding publishes the name immediately, and peers that connect before listen
    // would be refused.
    socket::listen(&fd, BACKLOG)?;
    let service = publish(&fd)?;
    Ok((fd, Offer::new().with_word("service", service)))
}

fn dialling(
    mechanism: &'static str,
    kind: SocketType,
    spec: &Spec,
    offer: &Offer,
) -> Result<Dialling<OwnedFd>, OpenError> {
    let fd = tipc_socket(kind, spec)?;
    // Connecting ends when the other side has accepted, and ignores SO_SNDTIMEO.
    tipc::set_connect_timeout(&fd, spec.open_timeout)?;
    Ok((fd, offered(mechanism, offer, "service")?))
}

/// The mechanism `tipc-kernel-stream`: AF_TIPC with SOCK_STREAM, a connection that carries bytes.
#[derive(Debug)]
pub struct TipcKernelStream;

impl ConnectionFamily for TipcKernelStream {
    const NAME: &'static str = "tipc-kernel-stream";
    const SUMMARY: &'static str = "the kernel's TIPC, connected byte stream (AF_TIPC)";
    const CARRIER: Carrier = Carrier::new(Family::Tipc, Transport::Tipc);
    const NOT_YET: &'static [Errno] = arrival::CONNECTION;
    type Socket = OwnedFd;
    type Sender = SocketTx<Self>;
    type Receiver = SocketRx<Self>;

    fn capabilities() -> Caps {
        stream_caps(true, Privilege::Module)
    }

    fn listening(spec: &Spec) -> Result<(OwnedFd, Offer), OpenError> {
        listening(SocketType::Stream, spec)
    }

    fn dialling(spec: &Spec, offer: &Offer) -> Result<Dialling<OwnedFd>, OpenError> {
        dialling(Self::NAME, SocketType::Stream, spec, offer)
    }

    fn channel(spec: &Spec, fd: OwnedFd) -> Result<(Self::Sender, Self::Receiver), OpenError> {
        channel(spec, fd)
    }

    fn remedy() -> &'static str {
        REMEDY
    }
}

/// The mechanism `tipc-kernel-seqpacket`: AF_TIPC with SOCK_SEQPACKET, a connection that preserves message boundaries.
#[derive(Debug)]
pub struct TipcKernelSeqpacket;

impl ConnectionFamily for TipcKernelSeqpacket {
    const NAME: &'static str = "tipc-kernel-seqpacket";
    const SUMMARY: &'static str = "the kernel's TIPC, connected messages (AF_TIPC)";
    const CARRIER: Carrier = Carrier::new(Family::Tipc, Transport::Tipc);
    const NOT_YET: &'static [Errno] = arrival::CONNECTION;
    type Socket = OwnedFd;
    type Sender = MessageTx<SocketHalf<Self>>;
    type Receiver = MessageRx<SeqpacketSource>;

    fn capabilities() -> Caps {
        Caps {
            boundaries: Boundaries::Message,
            max_message: Some(tipc::MAX_MESSAGE_BYTES),
            ..stream_caps(true, Privilege::Module)
        }
    }

    fn listening(spec: &Spec) -> Result<(OwnedFd, Offer), OpenError> {
        check(spec)?;
        listening(SocketType::Seqpacket, spec)
    }

    fn dialling(spec: &Spec, offer: &Offer) -> Result<Dialling<OwnedFd>, OpenError> {
        check(spec)?;
        dialling(Self::NAME, SocketType::Seqpacket, spec, offer)
    }

    fn channel(spec: &Spec, fd: OwnedFd) -> Result<(Self::Sender, Self::Receiver), OpenError> {
        let (sink, half) = SocketHalf::both(fd);
        let source = SeqpacketSource { half, overflow: vec![0; spec.max_message] };
        Ok((
            MessageTx::new(sink, spec.wait, tipc::MAX_MESSAGE_BYTES),
            MessageRx::new(source, spec.wait),
        ))
    }

    fn remedy() -> &'static str {
        REMEDY
    }
}

fn check(spec: &Spec) -> Result<(), OpenError> {
    check_limit(TipcKernelSeqpacket::NAME, spec, tipc::MAX_MESSAGE_BYTES, KernelTipc::ADVICE)
}

impl MessageSink for SocketHalf<TipcKernelSeqpacket> {
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

/// The receiving side of a connection.
#[derive(Debug)]
pub struct SeqpacketSource {
    half: SocketHalf<TipcKernelSeqpacket>,
    overflow: Vec<u8>,
}

impl MessageSource for SeqpacketSource {
    #[inline]
    fn recv(&mut self, buf: &mut [u8], nonblocking: bool) -> Result<Received, Errno> {
        let beyond = self.overflow.len().saturating_sub(buf.len());
        let overflow = &mut self.overflow[..beyond];
        match tipc::recv(self.half.as_fd(), buf, overflow, true, nonblocking)? {
            // The peer has shut the connection down properly; empty messages do not arrive.
            TipcMessage::Data(0) | TipcMessage::Returned(_) => Ok(Received::End),
            TipcMessage::Data(len) => Ok(Received::Message(len)),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.half.as_fd()
    }

    fn facts(&self) -> Facts {
        self.half.read_facts()
    }
}
