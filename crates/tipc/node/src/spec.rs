//! Bearers as a user writes them.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// The port of TIPC over UDP.
const UDP_PORT: u16 = 6118;

/// A bearer to be opened.
///
/// | written | meaning |
/// |---|---|
/// | `eth:DEVICE` | Ethernet frames on a device |
/// | `udp:IP` | UDP from this local address, with the network's multicast group |
/// | `udp:IP%DEVICE` | the same for IPv6, where the group needs a device |
/// | `udp:IP,REMOTE,...` | UDP to these remotes only, without multicast |
///
/// Each address may carry a port: `10.0.0.1:6200`, `[fd00::1]:6200`; without one it is 6118.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BearerSpec {
    /// Ethernet.
    Ethernet {
        /// The device's name.
        device: String,
    },
    /// UDP.
    Udp {
        /// Local address and port.
        local: SocketAddr,
        /// The device for IPv6 multicast.
        device: Option<String>,
        /// Remotes; when there are any, nothing is sent to a multicast group.
        remotes: Vec<SocketAddr>,
    },
}

impl BearerSpec {
    /// The UDP port on which the bearer receives a multicast group, if it does.
    pub(crate) fn group_port(&self) -> Option<u16> {
        match self {
            Self::Udp { local, remotes, .. } if remotes.is_empty() => Some(local.port()),
            _ => None,
        }
    }
}

/// A bearer that cannot be understood.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SpecError {
    /// Neither of the media.
    #[error("bearer {0:?}: write eth:DEVICE or udp:LOCAL-ADDRESS[%DEVICE][,REMOTE...]")]
    Medium(String),
    /// An address that is none.
    #[error(
        "bearer address {0:?}: expected an IP address, or ADDRESS:PORT with an IPv6 address in brackets"
    )]
    Address(String),
    /// The local address is none of a single host, or a remote has another family.
    #[error("bearer address {0}: expected the unicast address of one host, all of one family")]
    NotAHost(IpAddr),
}

fn endpoint(text: &str) -> Result<SocketAddr, SpecError> {
    let address = text
        .parse::<SocketAddr>()
        .or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, UDP_PORT)))
        .map_err(|_| SpecError::Address(text.to_owned()))?;
    let ip = address.ip();
    if ip.is_multicast() || ip.is_unspecified() {
        Err(SpecError::NotAHost(ip))
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
                let remotes = parts.map(endpoint).collect::<Result<Vec<_>, _>>()?;
                match remotes.iter().find(|r| r.is_ipv4() != local.is_ipv4()) {
                    Some(other) => Err(SpecError::NotAHost(other.ip())),
                    None => Ok(Self::Udp { local, device, remotes }),
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
        };
        assert_eq!("udp:10.9.0.1".parse(), Ok(udp("10.9.0.1:6118", None, &[])));
        assert_eq!("udp:fd00::1%eth0".parse(), Ok(udp("[fd00::1]:6118", Some("eth0"), &[])));
        let spec = "udp:10.9.0.1:7000,10.9.0.2,10.9.0.3:7001".parse();
        assert_eq!(spec, Ok(udp("10.9.0.1:7000", None, &["10.9.0.2:6118", "10.9.0.3:7001"])));
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        assert_eq!("ib:ib0".parse::<BearerSpec>(), Err(SpecError::Medium("ib:ib0".into())));
        assert_eq!("eth:".parse::<BearerSpec>(), Err(SpecError::Medium("eth:".into())));
        assert_eq!("udp:here".parse::<BearerSpec>(), Err(SpecError::Address("here".into())));
        let group: IpAddr = "228.0.18.103".parse().unwrap();
        assert_eq!("udp:228.0.18.103".parse::<BearerSpec>(), Err(SpecError::NotAHost(group)));
        assert!("udp:10.0.0.1,fd00::1".parse::<BearerSpec>().is_err());
    }
}
