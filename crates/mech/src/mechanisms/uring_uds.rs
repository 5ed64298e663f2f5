//! AF_UNIX stream sockets whose sends and receives are io_uring requests: one `io_uring_enter` per message at each end,
//! of any size (MSG_WAITALL: the kernel continues until the whole message is transferred).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::uds_stream::UdsStream;
use super::uring_stream::{UringRx, UringTx, halves, missing_ring};
use crate::building_blocks::connection::{ConnectionFamily, Dialling, SocketHalf, set_buffers};
use crate::building_blocks::stream_socket::stream_caps;
use crate::self_test::exchange_a_byte;
use crate::{Caps, Carrier, Facts, Family, Offer, OpenError, Privilege, Spec, Transport};

/// The mechanism `uring-uds`: unix(7) with SOCK_STREAM, whose sends and receives are requests of io_uring(7).
#[derive(Debug)]
pub struct UringUds;

impl ConnectionFamily for UringUds {
    const NAME: &'static str = "uring-uds";
    const SUMMARY: &'static str = "UNIX-domain stream socket, used through io_uring requests";
    const CARRIER: Carrier = Carrier::new(Family::Uring, Transport::Unix);
    type Socket = OwnedFd;
    type Sender = UringTx<SocketHalf<Self>>;
    type Receiver = UringRx<SocketHalf<Self>>;

    fn capabilities() -> Caps {
        stream_caps(false, Privilege::None)
    }

    fn channel(spec: &Spec, fd: OwnedFd) -> Result<(Self::Sender, Self::Receiver), OpenError> {
        // An accepted AF_UNIX socket has the default buffers, regardless of those of the listening one.
        set_buffers(fd.as_fd(), spec)?;
        let (sink, source) = SocketHalf::both(fd);
        halves(spec, sink, source)
    }

    fn listening(spec: &Spec) -> Result<(OwnedFd, Offer), OpenError> {
        UdsStream::listening(spec)
    }

    fn dialling(spec: &Spec, offer: &Offer) -> Result<Dialling<OwnedFd>, OpenError> {
        UdsStream::dialling(spec, offer)
    }

    fn try_here() -> Result<(), String> {
        missing_ring().map_or_else(exchange_a_byte::<Self>, |(why, _)| Err(why))
    }

    fn remedy() -> &'static str {
        missing_ring().map_or(UdsStream::remedy(), |(_, remedy)| remedy)
    }

    fn add_facts(fd: BorrowedFd<'_>, facts: &mut Facts) {
        UdsStream::add_facts(fd, facts);
    }
}
