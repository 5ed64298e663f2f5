//! Bearer specifications as users write them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Default port of TIPC over UDP.
const UDP_PORT: u16 = 6118;

/// The specification of a bearer that is to be opened.
///
/// | syntax | meaning |
/// |---|---|
/// | `eth:DEVICE` | Ethernet frames on a device |
/// | `udp:IP` | UDP from this local address, with the network's multicast group |
/// | `udp:IP%DEVICE` | the same for IPv6, where the group needs a device |
/// | `udp:IP,REMOTE,...` | UDP to these remotes only, without multicast |
///
/// Each address may include a port: `10.0.0.1:6200`, `[fd00::1]:6200`; the default is 6118. After the local address,
/// `mtu=BYTES` sets the size of the largest packet that the bearer sends, not counting the IP and UDP headers
/// (`udp:10.0.0.1,mtu=1472`); a link uses the smaller value of its two ends. The default is the same as for a kernel's
/// bearer: 14,000 over IPv4, 1,280 over IPv6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BearerSpec {
    /// An Ethernet device: frames with TIPC's EtherType, 0x88ca.
    Ethernet {
        /// Name of the device.
        device: String,
    },
    /// UDP over IPv4 or IPv6, with one TIPC frame per datagram.
    Udp {
        /// Local address and port.
        local: SocketAddr,
        /// Device for IPv6 multicast.
        device: Option<String>,
        /// Remotes; if there are any, multicast is not used.
        remotes: Vec<SocketAddr>,
        /// Size in bytes of the largest packet, not counting the IP and UDP headers; `None` for the default of a
        /// kernel's bearer.
        mtu: Option<u16>,
    },
}

impl BearerSpec {
    /// The device that the specification names, if any.
    pub(crate) fn device(&self) -> Option<&str> {
        match self {
            Self::Ethernet { device } => Some(device),
            Self::Udp { device, .. } => device.as_deref(),
        }
    }
}

/// Why a bearer specification is invalid.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SpecError {
    /// The medium is not supported.
    #[error("bearer {0:?}: write eth:DEVICE or udp:LOCAL-ADDRESS[%DEVICE][,mtu=BYTES][,REMOTE...]")]
    Medium(String),
    /// The address is invalid.
    #[error(
        "bearer address {0:?}: expected an IP address, or ADDRESS:PORT with an IPv6 address in brackets"
    )]
    Address(String),
    /// The port cannot be used.
    #[error("bearer address {0:?}: use a port from 1 to 65535, or omit it for 6118")]
    Port(String),
    /// The local address does not belong to a single host, or a remote has a different address family.
    #[error("bearer address {0}: use unicast addresses of hosts, either all IPv4 or all IPv6")]
    NotAHost(IpAddr),
    /// The packet size is out of range.
    #[error(
        "bearer packet size {text:?}: expected mtu=BYTES from {least} to {most}, the size of a packet without its IP \
         and UDP headers (1472 fills an IPv4 packet of 1500 bytes, 1452 an IPv6 packet)"
    )]
    Mtu {
        /// Text of the specification.
        text: String,
        /// Minimum packet size in bytes that a kernel accepts from a peer over this version of IP.
        least: u16,
        /// Maximum packet size in bytes, given by the largest datagram.
        most: u16,
    },
    /// The packet size is specified twice.
    #[error("bearer {0:?}: mtu= is specified more than once")]
    TwoMtus(String),
}

/// Returns the minimum and maximum packet size in bytes. The minimum is what a kernel accepts from a peer (room for a
/// packet's header, the header of a message inside the packet, and the IP and UDP headers); the maximum fills the
/// largest datagram.
const fn mtu_bounds(local: SocketAddr) -> (u16, u16) {
    if local.is_ipv4() { (128, 65_507) } else { (148, 65_527) }
}

fn packet_size(text: &str, local: SocketAddr) -> Result<u16, SpecError> {
    let (least, most) = mtu_bounds(local);
    let bounds = least..=most;
    text.parse().ok().filter(|mtu| bounds.contains(mtu)).ok_or_else(|| SpecError::Mtu {
        text: text.to_owned(),
        least,
        most,
    })
}

impl fmt::Display for BearerSpec {
    /// Writes the specification; default ports are omitted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let station = |f: &mut fmt::Formatter<'_>, at: &SocketAddr| match at.port() {
            UDP_PORT => write!(f, "{}", at.ip()),
            _ => write!(f, "{at}"),
        };
        match self {
            Self::Ethernet { device } => write!(f, "eth:{device}"),
            Self::Udp { local, device, remotes, mtu } => {
                f.write_str("udp:")?;
                station(f, local)?;
                device.iter().try_for_each(|device| write!(f, "%{device}"))?;
                mtu.iter().try_for_each(|mtu| write!(f, ",mtu={mtu}"))?;
                remotes.iter().try_for_each(|remote| {
                    f.write_str(",")?;
                    station(f, remote)
                })
            }
        }
    }
}

fn endpoint(text: &str) -> Result<SocketAddr, SpecError> {
    let address = text
        .parse::<SocketAddr>()
        .or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, UDP_PORT)))
        .map_err(|_| SpecError::Address(text.to_owned()))?;
    let ip = address.ip();
    if ip.is_multicast() || ip.is_unspecified() {
        Err(SpecError::NotAHost(ip))
    } else if address.port() == 0 {
        Err(SpecError::Port(text.to_owned()))
    } else {
        Ok(address)
    }
}

impl FromStr for BearerSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        match text.split_once(':') {
            Some(("eth", device)) if !device.is_empty() => {
                Ok(Self::Ethernet { device: device.to_owned() })
            }
            Some(("udp", rest)) => {
                let mut parts = rest.split(',');
                let first = parts.next().unwrap_or_default();
                let (address, device) = match first.split_once('%') {
                    Some((address, device)) => (address, Some(device.to_owned())),
                    None => (first, None),
                };
                let local = endpoint(address)?;
                let (mut remotes, mut mtu) = (Vec::new(), None);
                for part in parts {
                    match part.strip_prefix("mtu=") {
                        Some(_) if mtu.is_some() => {
                            return Err(SpecError::TwoMtus(text.to_owned()));
                        }
                        Some(size) => mtu = Some(packet_size(size, local)?),
                        None => remotes.push(endpoint(part)?),
                    }
                }
                match remotes.iter().find(|r| r.is_ipv4() != local.is_ipv4()) {
                    Some(other) => Err(SpecError::NotAHost(other.ip())),
                    None => Ok(Self::Udp { local, device, remotes, mtu }),
                }
            }
            _ => Err(SpecError::Medium(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearers_are_read_with_their_defaults() {
        assert_eq!("eth:br0".parse(), Ok(BearerSpec::Ethernet { device: "br0".into() }));
        let udp = |local: &str, device: Option<&str>, remotes: &[&str]| BearerSpec::Udp {
            local: local.parse().unwrap(),
            device: device.map(Into::into),
            remotes: remotes.iter().map(|r| r.parse().unwrap()).collect(),
            mtu: None,
        };
        assert_eq!("udp:10.9.0.1".parse(), Ok(udp("10.9.0.1:6118", None, &[])));
        assert_eq!("udp:fd00::1%eth0".parse(), Ok(udp("[fd00::1]:6118", Some("eth0"), &[])));
        for text in
            ["eth:br0", "udp:10.9.0.1", "udp:fd00::1%eth0", "udp:[fd00::1]:7000,mtu=1452,fd00::2"]
        {
            assert_eq!(text.parse::<BearerSpec>().unwrap().to_string(), text);
        }
        let spec = "udp:10.9.0.1:7000,10.9.0.2,10.9.0.3:7001".parse();
        assert_eq!(spec, Ok(udp("10.9.0.1:7000", None, &["10.9.0.2:6118", "10.9.0.3:7001"])));
    }

    #[test]
    fn a_packet_size_stands_behind_the_local_address() {
        let mtu = |text: &str| match text.parse() {
            Ok(BearerSpec::Udp { mtu, remotes, .. }) => Ok((mtu, remotes.len())),
            Ok(BearerSpec::Ethernet { .. }) => panic!("{text}"),
            Err(error) => Err(error),
        };
        assert_eq!(mtu("udp:10.9.0.1,mtu=1472"), Ok((Some(1472), 0)));
        assert_eq!(mtu("udp:10.9.0.1,mtu=128,10.9.0.2"), Ok((Some(128), 1)));
        assert_eq!(mtu("udp:fd00::1%eth0,fd00::2,mtu=1452"), Ok((Some(1452), 1)));
        assert_eq!(mtu("udp:10.9.0.1,mtu=65507"), Ok((Some(65_507), 0)));
        for (text, size, least, most) in [
            ("udp:10.9.0.1,mtu=127", "127", 128, 65_507),
            ("udp:fd00::1,mtu=147", "147", 148, 65_527),
            ("udp:10.9.0.1,mtu=65508", "65508", 128, 65_507),
            ("udp:10.9.0.1,mtu=", "", 128, 65_507),
            ("udp:10.9.0.1,mtu=-1", "-1", 128, 65_507),
            ("udp:10.9.0.1,mtu=1e3", "1e3", 128, 65_507),
        ] {
            let text_of_size = size.to_owned();
            assert_eq!(
                mtu(text),
                Err(SpecError::Mtu { text: text_of_size, least, most }),
                "{text}"
            );
        }
        let twice = "udp:10.9.0.1,mtu=1472,mtu=1472";
        assert_eq!(mtu(twice), Err(SpecError::TwoMtus(twice.into())));
        assert!(mtu("udp:10.9.0.1,MTU=1472").is_err(), "an address it is not");
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        assert_eq!("ib:ib0".parse::<BearerSpec>(), Err(SpecError::Medium("ib:ib0".into())));
        assert_eq!("eth:".parse::<BearerSpec>(), Err(SpecError::Medium("eth:".into())));
        assert_eq!("udp:here".parse::<BearerSpec>(), Err(SpecError::Address("here".into())));
        let group: IpAddr = "228.0.18.103".parse().unwrap();
        assert_eq!("udp:228.0.18.103".parse::<BearerSpec>(), Err(SpecError::NotAHost(group)));
        assert_eq!(
            "udp:10.0.0.1:0".parse::<BearerSpec>(),
            Err(SpecError::Port("10.0.0.1:0".into()))
        );
        assert!("udp:10.0.0.1,fd00::1".parse::<BearerSpec>().is_err());
    }
}
