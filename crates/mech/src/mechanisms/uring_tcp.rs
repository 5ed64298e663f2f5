//! TCP with the system's defaults, whose sends and receives are io_uring requests: one `io_uring_enter` per message at
//! each end, of any size (MSG_WAITALL: the kernel continues until the whole message is transferred).

use std::os::fd::{BorrowedFd, OwnedFd};

use super::tcp::Tcp;
use super::uring_stream::{UringRx, UringTx, halves, missing_ring};
use crate::building_blocks::connection::{ConnectionFamily, Dialling, SocketHalf};
use crate::building_blocks::stream_socket::stream_caps;
use crate::self_test::exchange_a_byte;
use crate::{Caps, Carrier, Facts, Family, Offer, OpenError, Privilege, Spec, Transport};

/// The mechanism `uring-tcp`: tcp(7) whose sends and receives are requests of io_uring(7).
#[derive(Debug)]
pub struct UringTcp;

impl ConnectionFamily for UringTcp {
    const NAME: &'static str = "uring-tcp";
    const SUMMARY: &'static str = "TCP, default options, used through io_uring requests";
    const CARRIER: Carrier = Carrier::new(Family::Uring, Transport::Tcp);
    type Socket = OwnedFd;
    type Sender = UringTx<SocketHalf<Self>>;
    type Receiver = UringRx<SocketHalf<Self>>;

    fn capabilities() -> Caps {
        stream_caps(true, Privilege::None)
    }

    fn channel(spec: &Spec, fd: OwnedFd) -> Result<(Self::Sender, Self::Receiver), OpenError> {
        let (sink, source) = SocketHalf::both(fd);
        halves(spec, sink, source)
    }

    fn listening(spec: &Spec) -> Result<(OwnedFd, Offer), OpenError> {
        Tcp::listening(spec)
    }

    fn dialling(spec: &Spec, offer: &Offer) -> Result<Dialling<OwnedFd>, OpenError> {
        Tcp::dialling(spec, offer)
    }

    fn try_here() -> Result<(), String> {
        missing_ring().map_or_else(exchange_a_byte::<Self>, |(why, _)| Err(why))
    }

    fn remedy() -> &'static str {
        missing_ring().map_or(Tcp::remedy(), |(_, remedy)| remedy)
    }

    fn add_facts(fd: BorrowedFd<'_>, facts: &mut Facts) {
        Tcp::add_facts(fd, facts);
    }
}
