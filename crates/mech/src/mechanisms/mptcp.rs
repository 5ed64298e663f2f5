//! Multipath TCP: TCP connections that can use several paths at the same time. Over loopback there is only one path.
//!
//! For up to a minute, the kernel continues to accept and discard data that is sent to an end that has closed properly:
//! only a receiver notices the close. A sender here therefore gets an error as soon as its own receiving half has
//! reached the end of the stream. If an end never receives, it notices the close late.

use std::os::fd::{BorrowedFd, OwnedFd};

use crossway_sys::socket::{self, Inet};

use super::tcp;
use crate::building_blocks::connection::{ConnectionFamily, Dialling};
use crate::building_blocks::stream_socket::{SocketRx, SocketTx, channel, stream_caps};
use crate::{Caps, Carrier, Facts, Family, Offer, OpenError, Privilege, Spec, Transport};

/// The mechanism `mptcp`: TCP sockets created with IPPROTO_MPTCP; one call and one copy per message at each end.
#[derive(Debug)]
pub struct Mptcp;

impl ConnectionFamily for Mptcp {
    const NAME: &'static str = "mptcp";
    const SUMMARY: &'static str = "Multipath TCP (IPPROTO_MPTCP)";
    const CARRIER: Carrier = Carrier::new(Family::Network, Transport::Tcp);
    type Socket = OwnedFd;
    type Sender = SocketTx<Self>;
    type Receiver = SocketRx<Self>;
    const SENDS_FAIL_AFTER_CLOSE: bool = false;

    fn capabilities() -> Caps {
        stream_caps(true, Privilege::None)
    }

    fn listening(spec: &Spec) -> Result<(OwnedFd, Offer), OpenError> {
        tcp::listening(Inet::Mptcp, spec)
    }

    fn dialling(spec: &Spec, offer: &Offer) -> Result<Dialling<OwnedFd>, OpenError> {
        tcp::dialling(Self::NAME, Inet::Mptcp, spec, offer)
    }

    fn channel(spec: &Spec, fd: OwnedFd) -> Result<(Self::Sender, Self::Receiver), OpenError> {
        channel(spec, fd)
    }

    fn remedy() -> &'static str {
        "use a kernel with CONFIG_MPTCP and enable it: sysctl -w net.mptcp.enabled=1"
    }

    fn add_facts(fd: BorrowedFd<'_>, facts: &mut Facts) {
        tcp::add_tcp_facts(fd, facts);
        // A connection silently falls back to plain TCP if either side or a middlebox does not support MPTCP.
        if let Ok(speaks) = socket::mptcp_in_use(fd) {
            facts.insert("mptcp_in_use".to_owned(), speaks.into());
        }
    }
}
