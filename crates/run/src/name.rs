//! The name of the accepted end of a pair (an abstract UNIX address): it proves to the connecting end that it was made for its
//! connection, and tells a later program that inherits an end which TCP connection the pair stands for.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

const BEGIN: &[u8] = b"crossway-run/";
/// Secret, two flags, two addresses with ports, two scopes.
const LEN: usize = 8 + 1 + 2 * (16 + 2 + 4);

/// A TCP connection, as its two ends name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The address of the end that was accepted, as that end reports it.
    pub accepted: SocketAddr,
    /// The address of the end that connected, as that end reports it.
    pub connecting: SocketAddr,
    /// Which ends have IPv6 sockets: 1 the accepted one, 2 the connecting one. Such an end reports IPv4 addresses in IPv6's form.
    pub families: u8,
}

impl Connection {
    /// The name of the accepted end.
    pub fn name(&self, secret: u64) -> Vec<u8> {
        let mut raw = Vec::with_capacity(LEN);
        raw.extend_from_slice(&secret.to_be_bytes());
        raw.push(self.families);
        for address in [self.accepted, self.connecting] {
            let (ip, scope) = match address {
                SocketAddr::V4(four) => (four.ip().to_ipv6_mapped(), 0),
                SocketAddr::V6(six) => (*six.ip(), six.scope_id()),
            };
            raw.extend_from_slice(&ip.octets());
            raw.extend_from_slice(&address.port().to_be_bytes());
            raw.extend_from_slice(&scope.to_be_bytes());
        }
        let mut name = BEGIN.to_vec();
        name.extend_from_slice(URL_SAFE_NO_PAD.encode(raw).as_bytes());
        name
    }

    /// The connection and the secret in a name; `None` if it is not such a name.
    pub fn of(name: &[u8]) -> Option<(Self, u64)> {
        let raw = URL_SAFE_NO_PAD.decode(name.strip_prefix(BEGIN)?).ok()?;
        if raw.len() != LEN {
            return None;
        }
        let (secret, rest) = raw.split_first_chunk::<8>()?;
        let (families, rest) = rest.split_first()?;
        let address = |raw: &[u8]| {
            let ip = Ipv6Addr::from(*raw.first_chunk::<16>()?);
            let port = u16::from_be_bytes(*raw[16..].first_chunk()?);
            let scope = u32::from_be_bytes(*raw[18..].first_chunk()?);
            Some(match ip.to_canonical() {
                IpAddr::V4(four) => SocketAddr::new(four.into(), port),
                IpAddr::V6(six) => SocketAddrV6::new(six, port, 0, scope).into(),
            })
        };
        let (accepted, connecting) = rest.split_at(22);
        let connection = Self {
            accepted: address(accepted)?,
            connecting: address(connecting)?,
            families: *families,
        };
        Some((connection, u64::from_be_bytes(*secret)))
    }

    /// The own and the peer's address, as a program sees them at one end.
    pub fn seen_from(&self, is_accepted: bool) -> (SocketAddr, SocketAddr) {
        let six = self.families & if is_accepted { 1 } else { 2 } != 0;
        let shown = |address: SocketAddr| match address {
            SocketAddr::V4(four) if six => {
                SocketAddrV6::new(four.ip().to_ipv6_mapped(), four.port(), 0, 0).into()
            }
            address => address,
        };
        let (own, peer) = if is_accepted {
            (self.accepted, self.connecting)
        } else {
            (self.connecting, self.accepted)
        };
        (shown(own), shown(peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_contains_the_connection_and_fits_an_address() {
        let of = |text: &str| text.parse::<SocketAddr>().unwrap();
        let all = [
            ("127.0.0.1:80", "127.0.0.1:40000"),
            ("[fe80::1:2:3:4%4294967295]:65535", "[fe80::1:2:3:4%7]:1"),
        ];
        for (accepted, connecting) in all {
            let connection =
                Connection { accepted: of(accepted), connecting: of(connecting), families: 3 };
            let name = connection.name(u64::MAX);
            // The first of the 108 bytes of sun_path is 0.
            assert!(name.len() <= 107, "{}", name.len());
            assert_eq!(Connection::of(&name), Some((connection, u64::MAX)));
            assert_eq!(Connection::of(&name[..name.len() - 1]), None);
        }
        assert_eq!(Connection::of(b"crossway-run/"), None);
        assert_eq!(Connection::of(b"other"), None);
    }

    #[test]
    fn each_end_sees_addresses_of_its_own_family() {
        let (accepted, connecting) =
            ("127.0.0.1:80".parse().unwrap(), "127.0.0.1:4000".parse().unwrap());
        let connection = Connection { accepted, connecting, families: 1 };
        assert_eq!(connection.seen_from(false), (connecting, accepted));
        let (own, peer) = connection.seen_from(true);
        assert_eq!(own.to_string(), "[::ffff:127.0.0.1]:80");
        assert_eq!(peer.to_string(), "[::ffff:127.0.0.1]:4000");
    }
}
