//! TIPC over UDP: one message a datagram, discovery and broadcasts to a multicast group or to each remote.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_sys::multicast::{self, Through};
use crossway_sys::socket::{self, Inet};
use crossway_sys::{Errno, OsError};
use crossway_tipc_proto::addr::{MediaAddr, NetworkId};
use crossway_tipc_proto::node::Destination;

use super::SOCKET_OCTETS;

/// What the kernel uses: over IPv4 it leaves the cutting to IP, over IPv6 it stays below the smallest legal MTU.
const MTU_V4: usize = 14_000;
const MTU_V6: usize = 1_280;

/// A UDP socket.
#[derive(Debug)]
pub struct UdpBearer {
    fd: OwnedFd,
    local: SocketAddr,
    broadcast: Vec<SocketAddr>,
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
            socket::set_buffers(&fd, SOCKET_OCTETS)?;
            return Ok(Self { fd, local, broadcast: remotes });
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
        socket::set_buffers(&fd, SOCKET_OCTETS)?;
        Ok(Self { fd, local, broadcast: vec![SocketAddr::new(group, local.port())] })
    }

    pub(super) fn addr(&self) -> MediaAddr {
        MediaAddr::Udp { ip: self.local.ip(), port: self.local.port() }
    }

    pub(super) const fn mtu(&self) -> usize {
        if self.local.is_ipv4() { MTU_V4 } else { MTU_V6 }
    }

    pub(super) fn broadcasts(&self) -> bool {
        self.broadcast.iter().all(|to| to.ip().is_multicast())
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn try_recv(&self, buf: &mut [u8]) -> Result<(usize, MediaAddr), Errno> {
        let (len, from) = socket::recv_message_from(&self.fd, buf, true)?;
        let from = from.as_ref().and_then(socket::as_inet).unwrap_or(self.local);
        Ok((len.min(buf.len()), MediaAddr::Udp { ip: from.ip(), port: from.port() }))
    }

    pub(super) fn try_send(&self, dest: &Destination, frame: &[u8]) -> Result<(), Errno> {
        match dest {
            Destination::Unicast(MediaAddr::Udp { ip, port }) => {
                self.send(SocketAddr::new(*ip, *port), frame)
            }
            // Discovery never lets an address of another medium in.
            Destination::Unicast(MediaAddr::Ethernet(_)) => Err(Errno::AFNOSUPPORT),
            Destination::Broadcast => {
                let mut result = Ok(());
                for remote in &self.broadcast {
                    // One remote that cannot be reached must not keep the frame from the others.
                    result = self.send(*remote, frame).and(result);
                }
                result
            }
        }
    }

    fn send(&self, to: SocketAddr, frame: &[u8]) -> Result<(), Errno> {
        socket::send_to(&self.fd, frame, &socket::inet_address(to), true).map(|_| ())
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
