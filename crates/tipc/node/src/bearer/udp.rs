//! TIPC over UDP: one message a datagram, discovery and broadcasts to a multicast group or to each remote.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_sys::OsError;
use crossway_sys::multicast::{self, Through};
use crossway_sys::socket::{self, Address, Inet};
use crossway_tipc_proto::addr::{MediaAddr, NetworkId};

use super::set_buffers;

/// What the kernel uses: over IPv4 it leaves the cutting to IP, over IPv6 it stays below the smallest legal MTU.
const MTU_V4: usize = 14_000;
const MTU_V6: usize = 1_280;

/// A UDP socket.
#[derive(Debug)]
pub struct UdpBearer {
    fd: OwnedFd,
    local: SocketAddr,
    broadcast: Vec<Address>,
    multicasts: bool,
}

/// The group of a network: 228.0.x.y with the number's two low octets, or ff02:: with its decimal digits.
fn group(local: IpAddr, network: NetworkId) -> IpAddr {
    let [.., high, low] = network.0.to_be_bytes();
    match local {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::new(228, 0, high, low)),
        IpAddr::V6(_) => {
            let text = format!("ff02::{}", network.0);
            IpAddr::V6(text.parse().unwrap_or(Ipv6Addr::new(
                0xff02,
                0,
                0,
                0,
                0,
                0,
                0,
                u16::from_be_bytes([high, low]),
            )))
        }
    }
}

impl UdpBearer {
    pub(super) fn open(
        local: SocketAddr,
        device: Option<&str>,
        remotes: Vec<SocketAddr>,
        network: NetworkId,
    ) -> Result<Self, OsError> {
        let fd = socket::inet(Inet::Udp, local)?;
        let object = format!("udp:{local}");
        if !remotes.is_empty() {
            socket::bind(&fd, &socket::inet_address(local), &object)?;
            set_buffers(&fd)?;
            let broadcast = remotes.iter().copied().map(socket::inet_address).collect();
            let multicasts = remotes.iter().all(|to| to.ip().is_multicast());
            return Ok(Self { fd, local, broadcast, multicasts });
        }
        // Datagrams to the group do not reach a socket that is bound to a unicast address.
        let (any, through) = match local.ip() {
            IpAddr::V4(ip) => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), Through::V4(ip)),
            IpAddr::V6(_) => {
                let index =
                    device.map_or(Ok(0), |device| multicast::interface_index(&fd, device))?;
                (IpAddr::V6(Ipv6Addr::UNSPECIFIED), Through::V6(index))
            }
        };
        socket::set_reuse_address(&fd)?;
        socket::bind(&fd, &socket::inet_address(SocketAddr::new(any, local.port())), &object)?;
        let group = group(local.ip(), network);
        multicast::join(&fd, group, through)?;
        set_buffers(&fd)?;
        let broadcast = vec![socket::inet_address(SocketAddr::new(group, local.port()))];
        Ok(Self { fd, local, broadcast, multicasts: true })
    }

    pub(super) fn addr(&self) -> MediaAddr {
        MediaAddr::Udp { ip: self.local.ip(), port: self.local.port() }
    }

    pub(super) const fn mtu(&self) -> usize {
        if self.local.is_ipv4() { MTU_V4 } else { MTU_V6 }
    }

    pub(super) const fn broadcasts(&self) -> bool {
        self.multicasts
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Where a broadcast goes: the group, or each remote.
    pub(super) fn remotes(&self) -> &[Address] {
        &self.broadcast
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_follows_the_network_as_the_kernels_tool_sets_it() {
        let v4 = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(group(v4, NetworkId(4711)), "228.0.18.103".parse::<IpAddr>().unwrap());
        let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
        assert_eq!(group(v6, NetworkId(4711)), "ff02::4711".parse::<IpAddr>().unwrap());
        assert!(
            group(v6, NetworkId(123_456)).is_multicast(),
            "six digits make no group of digits, but still a group"
        );
    }
}
