//! Internet addresses: as C programs write them, and which of them are this host's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ops::Deref;

/// The bytes of a sockaddr_in or sockaddr_in6.
#[derive(Clone, Copy, Debug)]
pub struct RawAddress {
    bytes: [u8; size_of::<libc::sockaddr_in6>()],
    len: usize,
}

impl Deref for RawAddress {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// An address as the kernel writes it to a program's memory. Allocates nothing.
pub fn raw_address(address: SocketAddr) -> RawAddress {
    let mut bytes = [0; size_of::<libc::sockaddr_in6>()];
    let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
    put(2, &address.port().to_be_bytes());
    let len = match address {
        SocketAddr::V4(four) => {
            put(0, &(libc::AF_INET as u16).to_ne_bytes());
            put(4, &four.ip().octets());
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(six) => {
            put(0, &(libc::AF_INET6 as u16).to_ne_bytes());
            put(4, &six.flowinfo().to_ne_bytes());
            put(8, &six.ip().octets());
            put(24, &six.scope_id().to_ne_bytes());
            size_of::<libc::sockaddr_in6>()
        }
    };
    RawAddress { bytes, len }
}

/// The address that a program has written so; `None` if it is too short or of another family.
pub fn address_of(raw: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(*raw.get(2..)?.first_chunk()?);
    match i32::from(u16::from_ne_bytes(*raw.first_chunk()?)) {
        libc::AF_INET if raw.len() >= 16 => {
            let ip = Ipv4Addr::from(*raw[4..].first_chunk::<4>()?);
            Some(SocketAddr::new(ip.into(), port))
        }
        libc::AF_INET6 if raw.len() >= 28 => {
            let number = |at: usize| Some(u32::from_ne_bytes(*raw[at..].first_chunk()?));
            let ip = Ipv6Addr::from(*raw[8..].first_chunk::<16>()?);
            Some(SocketAddrV6::new(ip, port, number(4)?, number(24)?).into())
        }
        _ => None,
    }
}

/// The address without IPv6's way to write IPv4 addresses.
pub fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Whether a connection between these two addresses stays within the host.
pub fn stays_local(one: IpAddr, other: IpAddr) -> bool {
    one == other || (one.is_loopback() && other.is_loopback())
}

/// Whether an address is one of this host's. For any but a loopback address, this asks the kernel which own address it would use
/// to reach it.
pub fn is_own_address(address: SocketAddr) -> bool {
    address.ip().is_loopback()
        || address.ip().is_unspecified()
        || own_address_towards(address) == Some(address.ip())
}

/// The own address by which the kernel would reach another one; `None` if it cannot be reached.
pub fn own_address_towards(address: SocketAddr) -> Option<IpAddr> {
    // Connecting a datagram socket sends nothing.
    let asks = super::inet(super::Inet::Udp, address).ok()?;
    super::connect(&asks, &address.into()).ok()?;
    SocketAddr::try_from(rustix::net::getsockname(asks).ok()?).ok().map(|own| own.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_told_from_others() {
        let of = |text: &str| text.parse().unwrap();
        assert!(is_own_address(of("127.0.0.1:1")) && is_own_address(of("[::1]:1")));
        // An address for documentation.
        assert!(!is_own_address(of("192.0.2.1:1")));
        let others = crate::addresses::own_addresses().unwrap();
        assert!(others.into_iter().all(|ip| is_own_address(SocketAddr::new(ip, 1))));
    }

    #[test]
    fn addresses_survive_their_raw_form() {
        for text in ["127.0.0.1:80", "[fe80::1%7]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            let raw = raw_address(address);
            assert_eq!(address_of(&raw), Some(address));
            assert_eq!(address_of(&raw[..raw.len() - 1]), None);
        }
        assert_eq!(address_of(&[0; 28]), None);
    }
}
