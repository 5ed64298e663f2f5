//! Multipath TCP: a TCP connection that can use several paths at once; over loopback there is one.
//!
//! The kernel goes on taking, and throwing away, what is sent to an end that has closed in order, for up to a minute: only
//! a receiver is told. So a sender is told here as soon as its own receiving half has seen the end; one that never
//! receives learns it late.

use std::os::fd::{BorrowedFd, OwnedFd};

use crossway_sys::socket::{self, Inet};

use super::connection::{ConnectionFamily, Dialling};
use super::stream_socket::{SocketRx, SocketTx, channel, stream_caps};
use super::tcp;
use crate::{Caps, Facts, Offer, OpenError, Privilege, Spec};

/// mptcp(7).
#[derive(Debug)]
pub struct Mptcp;

impl ConnectionFamily for Mptcp {
    const NAME: &'static str = "mptcp";
    const SUMMARY: &'static str = "Multipath TCP (IPPROTO_MPTCP)";
    type Socket = OwnedFd;
    type Sender = SocketTx<Self>;
    type Receiver = SocketRx<Self>;
    const SENDER_IS_TOLD: bool = false;

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
        "a kernel with CONFIG_MPTCP, switched on by: sysctl -w net.mptcp.enabled=1"
    }

    fn add_facts(fd: BorrowedFd<'_>, facts: &mut Facts) {
        tcp::add_tcp_facts(fd, facts);
        // A connection falls back to plain TCP, silently, when either side or a box between them does not speak it.
        if let Ok(speaks) = socket::mptcp_in_use(fd) {
            facts.insert("mptcp_in_use".to_owned(), speaks.into());
        }
    }
}
