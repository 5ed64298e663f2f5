//! UDP: on one host, messages arrive in order if the receiver has room, and are lost otherwise.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_sys::socket::{self, Address, Inet};

use super::tcp::bound;
use crate::building_blocks::connection::set_buffers;
use crate::building_blocks::datagram::{Datagram, DatagramFamily, DatagramSocket};
use crate::{Carrier, Facts, Family, Offer, OpenError, Reliability, Spec, Transport};

/// The mechanism `udp`, udp(7): one call and one copy per message at each end. A full receiver drops messages silently.
pub type Udp = Datagram<UdpDatagrams>;

/// The family of [`Udp`].
#[derive(Debug)]
pub struct UdpDatagrams;

/// The largest payload in bytes of an IPv4 packet of 65535 bytes, without its own header and UDP's.
const LARGEST_OVER_IPV4: usize = 65_535 - 20 - 8;

/// The largest payload in bytes over IPv6, where the packet length does not include the IPv6 header.
const LARGEST_OVER_IPV6: usize = 65_535 - 8;

impl DatagramFamily for UdpDatagrams {
    const NAME: &'static str = "udp";
    const SUMMARY: &'static str = "UDP; a full receiver drops messages silently";
    const CARRIER: Carrier = Carrier::new(Family::Network, Transport::Udp);
    const RELIABILITY: Reliability = Reliability::Lossy;
    const LARGEST: Option<usize> = Some(LARGEST_OVER_IPV6);
    const CROSSES_HOSTS: bool = true;
    const HELLOS: usize = 3;
    const ADVICE: &'static str = "this is the limit of UDP; request smaller messages";
    type Inbox = OwnedFd;
    type Sink = DatagramSocket;
    type Source = DatagramSocket;

    fn inbox_to_offer(spec: &Spec) -> Result<(OwnedFd, String), OpenError> {
        let (fd, offer) = bound(Inet::Udp, spec)?;
        let word = offer.word(Self::NAME, "address")?;
        Ok((fd, word))
    }

    fn inbox_for(spec: &Spec, to: &Address) -> Result<OwnedFd, OpenError> {
        // On whatever interface leads to the peer.
        let any = match socket::as_inet(to) {
            Some(SocketAddr::V6(_)) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
            _ => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        };
        let fd = socket_towards(spec, to)?;
        socket::bind(&fd, &socket::inet_address(any), &any.to_string())?;
        Ok(fd)
    }

    fn address(offer: &Offer, name: &str) -> Result<Address, OpenError> {
        let address: SocketAddr = offer.word(Self::NAME, name)?;
        Ok(socket::inet_address(address))
    }

    fn halves(
        spec: &Spec,
        inbox: OwnedFd,
        to: &Address,
    ) -> Result<(DatagramSocket, DatagramSocket, usize), OpenError> {
        let outbox = socket_towards(spec, to)?;
        let name = socket::as_inet(to).map(|address| address.to_string()).unwrap_or_default();
        let (sink, source) = DatagramSocket::both(outbox, inbox, to, name, add_facts)?;
        let max = match socket::as_inet(to) {
            Some(SocketAddr::V6(_)) => LARGEST_OVER_IPV6,
            _ => LARGEST_OVER_IPV4,
        };
        Ok((sink, source, max))
    }

    fn remedy() -> &'static str {
        "bring the loopback interface up: ip link set lo up"
    }
}

/// Creates a socket of the address family of `to`.
fn socket_towards(spec: &Spec, to: &Address) -> Result<OwnedFd, OpenError> {
    let to = socket::as_inet(to).ok_or_else(|| OpenError::BadOffer {
        mechanism: UdpDatagrams::NAME,
        why: "the address is not an Internet address".to_owned(),
    })?;
    let fd = socket::inet(Inet::Udp, to)?;
    set_buffers(fd.as_fd(), spec)?;
    Ok(fd)
}

/// Adds the path MTU. It is known only for a connected socket, and so only for the sending half.
fn add_facts(fd: BorrowedFd<'_>, facts: &mut Facts) {
    if let Ok(bytes) = socket::ip_mtu_bytes(fd) {
        facts.insert("mtu_bytes".to_owned(), bytes.into());
    }
}
