//! TCP with the system's defaults: Nagle's algorithm on, acknowledgements delayed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_sys::socket::{self, Inet};

use crate::building_blocks::connection::{BACKLOG, ConnectionFamily, Dialling, set_buffers};
use crate::building_blocks::stream_socket::{SocketRx, SocketTx, channel, stream_caps};
use crate::{Caps, Carrier, Facts, Family, Offer, OpenError, Privilege, Spec, Transport};

/// The mechanism `tcp`, tcp(7) with default options: one call and one copy per message at each end.
#[derive(Debug)]
pub struct Tcp;

impl ConnectionFamily for Tcp {
    const NAME: &'static str = "tcp";
    const SUMMARY: &'static str = "TCP, default options: Nagle's algorithm on (ipc-bench: tcp)";
    const CARRIER: Carrier = Carrier::new(Family::Network, Transport::Tcp);
    type Socket = OwnedFd;
    type Sender = SocketTx<Self>;
    type Receiver = SocketRx<Self>;

    fn capabilities() -> Caps {
        stream_caps(true, Privilege::None)
    }

    fn channel(spec: &Spec, fd: OwnedFd) -> Result<(Self::Sender, Self::Receiver), OpenError> {
        channel(spec, fd)
    }

    fn listening(spec: &Spec) -> Result<(OwnedFd, Offer), OpenError> {
        listening(Inet::Tcp, spec)
    }

    fn dialling(spec: &Spec, offer: &Offer) -> Result<Dialling<OwnedFd>, OpenError> {
        dialling(Self::NAME, Inet::Tcp, spec, offer)
    }

    fn remedy() -> &'static str {
        "bring the loopback interface up: ip link set lo up"
    }

    fn add_facts(fd: BorrowedFd<'_>, facts: &mut Facts) {
        add_tcp_facts(fd, facts);
    }
}

/// Returns the address to bind to, with port 0, so that the kernel chooses one.
pub(super) fn bind_address(spec: &Spec) -> SocketAddr {
    SocketAddr::new(spec.bind.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), 0)
}

/// Creates a bound socket, and the offer with its address.
pub(super) fn bound(protocol: Inet, spec: &Spec) -> Result<(OwnedFd, Offer), OpenError> {
    let wanted = bind_address(spec);
    let fd = socket::inet(protocol, wanted)?;
    set_buffers(fd.as_fd(), spec)?;
    socket::bind(&fd, &socket::inet_address(wanted), &wanted.to_string())?;
    let address = socket::as_inet(&socket::local_address(&fd)?).unwrap_or(wanted);
    Ok((fd, Offer::new().with_word("address", address)))
}

/// Creates a listening socket, and the offer with its address.
pub(super) fn listening(protocol: Inet, spec: &Spec) -> Result<(OwnedFd, Offer), OpenError> {
    let (fd, offer) = bound(protocol, spec)?;
    socket::listen(&fd, BACKLOG)?;
    Ok((fd, offer))
}

/// Creates a socket, and returns it with the offered address to which it must be connected.
pub(super) fn dialling(
    mechanism: &'static str,
    protocol: Inet,
    spec: &Spec,
    offer: &Offer,
) -> Result<Dialling<OwnedFd>, OpenError> {
    let address: SocketAddr = offer.word(mechanism, "address")?;
    let fd = socket::inet(protocol, address)?;
    set_buffers(fd.as_fd(), spec)?;
    Ok((fd, socket::inet_address(address)))
}

/// Adds the state of Nagle's algorithm and the segment size of the connection.
pub(super) fn add_tcp_facts(fd: BorrowedFd<'_>, facts: &mut Facts) {
    if let Ok(on) = socket::tcp_nodelay(fd) {
        facts.insert("tcp_nodelay".to_owned(), i64::from(on));
    }
    if let Ok(bytes) = socket::tcp_max_segment_bytes(fd) {
        facts.insert("mss_bytes".to_owned(), i64::from(bytes));
    }
}
