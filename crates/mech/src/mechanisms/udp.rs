//! UDP and UDP-Lite: on one host, messages arrive in order if the receiver has room, and are lost
//! otherwise.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_sys::socket::{self, Address, Inet};

use super::tcp::bound;
use crate::building_blocks::connection::set_buffers;
use crate::building_blocks::datagram::{Datagram, DatagramFamily, DatagramSocket};
use crate::{Carrier, Facts, Family, Offer, OpenError, Reliability, Spec, Transport};

/// The mechanism `udp`, udp(7): one call and one copy per message at each end. A full receiver drops messages silently.
pub type Udp = Datagram<OverIp<WholeChecksum>>;

/// The mechanism `udp-lite`, udplite(7): as [`Udp`], but the checksum covers only the header, so
/// that damaged content arrives.
pub type UdpLite = Datagram<OverIp<HeaderChecksum>>;

/// The family of [`Udp`] and [`UdpLite`].
#[derive(Debug)]
pub struct OverIp<P>(std::marker::PhantomData<fn() -> P>);

/// What distinguishes the protocols.
pub trait Protocol: Send + Sized + 'static {
    /// The mechanism's id.
    const NAME: &'static str;
    /// A one-line description for users.
    const SUMMARY: &'static str;
    /// The protocol of the sockets.
    const INET: Inet;
    /// How to make the protocol available if it is missing.
    const REMEDY: &'static str;

    /// Prepares a new socket.
    fn prepare(_fd: BorrowedFd<'_>) -> Result<(), OpenError> {
        Ok(())
    }
}

/// The protocol of [`Udp`].
#[derive(Debug)]
pub struct WholeChecksum;

impl Protocol for WholeChecksum {
    const NAME: &'static str = "udp";
    const SUMMARY: &'static str = "UDP; a full receiver drops messages silently";
    const INET: Inet = Inet::Udp;
    const REMEDY: &'static str = "bring the loopback interface up: ip link set lo up";
}

/// The protocol of [`UdpLite`].
#[derive(Debug)]
pub struct HeaderChecksum;

impl Protocol for HeaderChecksum {
    const NAME: &'static str = "udp-lite";
    const SUMMARY: &'static str =
        "UDP-Lite, with a checksum over the header only; a full receiver drops messages silently";
    const INET: Inet = Inet::UdpLite;
    const REMEDY: &'static str = "use a kernel with UDP-Lite: Linux 2.6.20 to 7.0, such as Debian's in a guest (crossway guest up k --kernel 6.12)";

    fn prepare(fd: BorrowedFd<'_>) -> Result<(), OpenError> {
        Ok(socket::set_udp_lite_coverage(fd, HEADER_BYTES)?)
    }
}

/// Length in bytes of the header of UDP and UDP-Lite.
const HEADER_BYTES: u16 = 8;

/// The largest payload in bytes of an IPv4 packet of 65535 bytes, without its own header and UDP's.
const LARGEST_OVER_IPV4: usize = 65_535 - 20 - 8;

/// The largest payload in bytes over IPv6, where the packet length does not include the IPv6 header.
const LARGEST_OVER_IPV6: usize = 65_535 - 8;

impl<P: Protocol> DatagramFamily for OverIp<P> {
    const NAME: &'static str = P::NAME;
    const SUMMARY: &'static str = P::SUMMARY;
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
        let (fd, offer) = bound(P::INET, spec)?;
        P::prepare(fd.as_fd())?;
        let word = offer.word(Self::NAME, "address")?;
        Ok((fd, word))
    }

    fn inbox_for(spec: &Spec, to: &Address) -> Result<OwnedFd, OpenError> {
        // On whatever interface leads to the peer.
        let any = match socket::as_inet(to) {
            Some(SocketAddr::V6(_)) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
            _ => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        };
        let fd = socket_towards::<P>(spec, to)?;
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
        let outbox = socket_towards::<P>(spec, to)?;
        let name = socket::as_inet(to).map(|address| address.to_string()).unwrap_or_default();
        let (sink, source) = DatagramSocket::both(outbox, inbox, to, name, add_facts)?;
        let max = match socket::as_inet(to) {
            Some(SocketAddr::V6(_)) => LARGEST_OVER_IPV6,
            _ => LARGEST_OVER_IPV4,
        };
        Ok((sink, source, max))
    }

    fn remedy() -> &'static str {
        P::REMEDY
    }
}

/// Creates a socket of the address family of `to`.
fn socket_towards<P: Protocol>(spec: &Spec, to: &Address) -> Result<OwnedFd, OpenError> {
    let to = socket::as_inet(to).ok_or_else(|| OpenError::BadOffer {
        mechanism: P::NAME,
        why: "the address is not an Internet address".to_owned(),
    })?;
    let fd = socket::inet(P::INET, to)?;
    P::prepare(fd.as_fd())?;
    set_buffers(fd.as_fd(), spec)?;
    Ok(fd)
}

/// Adds the path MTU. It is known only for a connected socket, and so only for the sending half.
fn add_facts(fd: BorrowedFd<'_>, facts: &mut Facts) {
    if let Ok(bytes) = socket::ip_mtu_bytes(fd) {
        facts.insert("mtu_bytes".to_owned(), bytes.into());
    }
}
