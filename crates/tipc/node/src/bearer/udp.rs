//! TIPC over UDP: one message a datagram, discovery and broadcasts to a multicast group or to each remote.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_sys::addresses::interface_of;
use crossway_sys::datagrams::{Sent, join_runs, send_many_to};
use crossway_sys::multicast::{self, Through};
use crossway_sys::netns::interface_mtu;
use crossway_sys::socket::{self, Address, Inet};
use crossway_sys::{Errno, OsError};
use crossway_tipc_proto::addr::{MediaAddr, NetworkId};

use super::set_buffers;

/// What the kernel uses: over IPv4 it leaves the cutting to IP, over IPv6 it stays below the smallest legal MTU.
const MTU_V4: usize = 14_000;
const MTU_V6: usize = 1_280;

/// Octets of the headers of IP and UDP.
const HEADERS_V4: usize = 20 + 8;
const HEADERS_V6: usize = 40 + 8;

/// A UDP socket.
#[derive(Debug)]
pub struct UdpBearer {
    fd: OwnedFd,
    local: SocketAddr,
    /// Where a broadcast goes, as an operator reads it and as the system takes it.
    remotes: Vec<SocketAddr>,
    broadcast: Vec<Address>,
    multicasts: bool,
    mtu: usize,
    /// Frames of up to so many octets fit the device, and runs of them go as one message; 0: each frame goes by itself.
    segment_max: usize,
    /// Why runs do not go as one message any more, until it was asked for.
    refusal: Option<Errno>,
}

/// Why a remote cannot be added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RemoteError {
    /// It is there already.
    #[error("the bearer sends there already")]
    Exists,
    /// Of another family than the bearer, or no address of one host.
    #[error("expected the unicast address of one host, of the bearer's family")]
    NotAHost,
    /// It is the last one, and without any there is no bearer.
    #[error("it is the bearer's only remote; disable the bearer instead")]
    Last,
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
        mtu: Option<u16>,
        (network, socket_octets): (NetworkId, usize),
    ) -> Result<Self, OsError> {
        let fd = socket::inet(Inet::Udp, local)?;
        set_buffers(&fd, socket_octets)?;
        let object = format!("udp:{local}");
        // Also where it is not needed: a name that is no device's is a mistake.
        let index = device.map_or(Ok(0), |device| multicast::interface_index(&fd, device))?;
        if !remotes.is_empty() {
            socket::bind(&fd, &socket::inet_address(local), &object)?;
            return Self::new(fd, local, remotes, mtu);
        }
        // Nothing else asks reliably whether the address is one of this host. Link-local ones would be bound with their device.
        let is_link_local = matches!(local.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local());
        if !is_link_local {
            let one = socket::inet(Inet::Udp, local)?;
            socket::bind(&one, &socket::inet_address(SocketAddr::new(local.ip(), 0)), &object)?;
        }
        // Datagrams to the group do not reach a socket that is bound to a unicast address.
        let (any, through) = match local.ip() {
            IpAddr::V4(ip) => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), Through::V4(ip)),
            IpAddr::V6(_) => (IpAddr::V6(Ipv6Addr::UNSPECIFIED), Through::V6(index)),
        };
        socket::set_reuse_address(&fd)?;
        socket::bind(&fd, &socket::inet_address(SocketAddr::new(any, local.port())), &object)?;
        let group = group(local.ip(), network);
        multicast::join(&fd, group, through)?;
        Self::new(fd, local, vec![SocketAddr::new(group, local.port())], mtu)
    }

    fn new(
        fd: OwnedFd,
        local: SocketAddr,
        remotes: Vec<SocketAddr>,
        mtu: Option<u16>,
    ) -> Result<Self, OsError> {
        // A kernel that does not join runs hands them over one by one.
        let _ = join_runs(&fd);
        let broadcast = remotes.iter().copied().map(socket::inet_address).collect();
        let multicasts = remotes.iter().all(|to| to.ip().is_multicast());
        let (usual, headers) =
            if local.is_ipv4() { (MTU_V4, HEADERS_V4) } else { (MTU_V6, HEADERS_V6) };
        let segment_max = device_mtu(local.ip()).map_or(0, |mtu| mtu.saturating_sub(headers));
        let mtu = mtu.map_or(usual, usize::from);
        Ok(Self { fd, local, remotes, broadcast, multicasts, mtu, segment_max, refusal: None })
    }

    /// Sends frames by one call, runs of them as one message each where the system cuts these.
    ///
    /// A refused run goes frame by frame; when that succeeds the cutting was at fault (a device without checksum offload before Linux
    /// 6.11, IPsec, a path that takes less than the device), and is not asked for again.
    pub(super) fn try_send<'a>(
        &mut self,
        frames: impl Iterator<Item = (&'a Address, &'a [u8])> + Clone,
    ) -> Result<Sent, Errno> {
        let sent = send_many_to(&self.fd, frames.clone(), self.segment_max);
        match sent {
            Err(refusal @ (Errno::IO | Errno::INVAL | Errno::MSGSIZE | Errno::OPNOTSUPP))
                if self.segment_max > 0 =>
            {
                let plain = send_many_to(&self.fd, frames, 0)?;
                self.segment_max = 0;
                self.refusal = Some(refusal);
                Ok(plain)
            }
            sent => sent,
        }
    }

    /// Largest frame that goes with others as one message; 0: none does.
    pub(crate) const fn segment_max(&self) -> usize {
        self.segment_max
    }

    /// Why runs stopped to go as one message, the first time after that.
    pub(super) const fn take_refusal(&mut self) -> Option<Errno> {
        self.refusal.take()
    }

    /// The group, or each remote.
    pub(super) fn stations(&self) -> &[SocketAddr] {
        &self.remotes
    }

    /// Sends to one remote more from now on.
    pub(crate) fn add_remote(&mut self, remote: SocketAddr) -> Result<(), RemoteError> {
        let ip = remote.ip();
        if remote.is_ipv4() != self.local.is_ipv4() || ip.is_multicast() || ip.is_unspecified() {
            return Err(RemoteError::NotAHost);
        }
        if self.remotes.contains(&remote) {
            return Err(RemoteError::Exists);
        }
        self.remotes.push(remote);
        self.broadcast.push(socket::inet_address(remote));
        Ok(())
    }

    /// Sends no more discovery and broadcasts to a remote.
    pub(crate) fn remove_remote(&mut self, remote: SocketAddr) -> Result<(), RemoteError> {
        if remote.ip().is_multicast() || remote.is_ipv4() != self.local.is_ipv4() {
            return Err(RemoteError::NotAHost);
        }
        if self.remotes == [remote] {
            return Err(RemoteError::Last);
        }
        self.remotes.retain(|there| *there != remote);
        self.broadcast = self.remotes.iter().copied().map(socket::inet_address).collect();
        Ok(())
    }

    pub(super) fn addr(&self) -> MediaAddr {
        MediaAddr::Udp { ip: self.local.ip(), port: self.local.port() }
    }

    pub(super) const fn mtu(&self) -> usize {
        self.mtu
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

/// The MTU of the device with this address; `None` if no device has it, and then nothing is known of where frames leave.
fn device_mtu(ip: IpAddr) -> Option<usize> {
    // All of 127.0.0.0/8 is there without being told of.
    let name = if ip.is_loopback() { Some("lo".to_owned()) } else { interface_of(ip).ok()? };
    interface_mtu(&name?).ok()
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
