//! TIPC over UDP: one TIPC message per datagram. Discovery messages and broadcasts are sent to a multicast group or to
//! each remote.

use std::collections::BTreeSet;
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

/// Largest packets in bytes, as in the kernel: over IPv4, fragmentation is left to IP; over IPv6, packets stay below
/// the smallest legal MTU.
const MTU_V4: usize = 14_000;
const MTU_V6: usize = 1_280;

/// Length of the IP and UDP headers in bytes.
const HEADERS_V4: usize = 20 + 8;
const HEADERS_V6: usize = 40 + 8;

/// A bearer's UDP sockets.
#[derive(Debug)]
pub struct UdpBearer {
    /// Bound to the local address; sends everything.
    fd: OwnedFd,
    /// Bound to the multicast group, if there is one; only receives.
    group: Option<OwnedFd>,
    local: SocketAddr,
    /// Destinations of broadcasts, in the form shown to an operator.
    remotes: Vec<SocketAddr>,
    /// The same destinations in the form passed to the system.
    broadcast: Vec<Address>,
    multicasts: bool,
    mtu: usize,
    /// Maximum length in bytes of frames that IP does not fragment.
    whole_max: usize,
    /// Maximum length in bytes of frames that fit into the device's MTU, so that runs of them are sent as one message;
    /// 0 if each frame is sent separately.
    segment_max: usize,
    /// The error that made the bearer stop sending runs as one message; `None` if there is none or it has been fetched.
    refusal: Option<Errno>,
}

/// Why a remote cannot be added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RemoteError {
    /// The bearer already has this remote.
    #[error("the bearer already has this remote")]
    Exists,
    /// The address has a different family from the bearer's, or does not belong to a single host.
    #[error("expected a unicast address of the bearer's address family")]
    NotAHost,
    /// The remote is the last one, and a bearer needs at least one.
    #[error("it is the bearer's only remote; disable the bearer instead")]
    Last,
}

/// Returns the multicast group of a network: 228.0.x.y with the two low bytes of the network ID, or ff02:: with its
/// decimal digits.
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
        (network, socket_bytes): (NetworkId, usize),
    ) -> Result<Self, OsError> {
        let fd = socket::inet(Inet::Udp, local)?;
        set_buffers(&fd, socket_bytes)?;
        // Checked even if it is not needed: a name that is not a device's is a mistake.
        let through = match (local.ip(), device) {
            (IpAddr::V4(ip), None) => Through::V4(ip),
            (IpAddr::V4(ip), Some(device)) => {
                multicast::interface_index(&fd, device).map(|_| Through::V4(ip))?
            }
            (IpAddr::V6(ip), device) => {
                let device = device.map(str::to_owned).or_else(|| device_of(ip.into()));
                let index = |device: String| multicast::interface_index(&fd, &device);
                Through::V6(device.map_or(Ok(0), index)?)
            }
        };
        // Not shared: of several sockets bound to one address, only the last receives.
        bind_through(&fd, local, through)?;
        if !remotes.is_empty() {
            return Self::new(fd, None, local, remotes, mtu);
        }
        // Datagrams to a group do not reach a socket bound to a unicast address. All sockets that receive the group's
        // packets share its address.
        let group = SocketAddr::new(group(local.ip(), network), local.port());
        let receiver = socket::inet(Inet::Udp, local)?;
        set_buffers(&receiver, socket_bytes)?;
        socket::set_reuse_address(&receiver)?;
        multicast::join(&receiver, group.ip(), through)?;
        bind_through(&receiver, group, through)?;
        multicast::send_through(&fd, through)?;
        Self::new(fd, Some(receiver), local, vec![group], mtu)
    }

    fn new(
        fd: OwnedFd,
        group: Option<OwnedFd>,
        local: SocketAddr,
        remotes: Vec<SocketAddr>,
        mtu: Option<u16>,
    ) -> Result<Self, OsError> {
        // A kernel that does not join runs delivers the datagrams one by one.
        for fd in [&fd].into_iter().chain(&group) {
            let _ = join_runs(fd);
        }
        let broadcast = remotes.iter().copied().map(socket::inet_address).collect();
        let multicasts = remotes.iter().all(|to| to.ip().is_multicast());
        let (usual, headers) =
            if local.is_ipv4() { (MTU_V4, HEADERS_V4) } else { (MTU_V6, HEADERS_V6) };
        let segment_max = device_of(local.ip())
            .and_then(|device| interface_mtu(&device).ok())
            .map_or(0, |mtu| mtu.saturating_sub(headers));
        let mtu = mtu.map_or(usual, usize::from);
        // Unless it is known, losses of fragments cannot be told from others.
        let whole_max = if segment_max > 0 { mtu.min(segment_max) } else { mtu };
        Ok(Self {
            fd,
            group,
            local,
            remotes,
            broadcast,
            multicasts,
            mtu,
            whole_max,
            segment_max,
            refusal: None,
        })
    }

    /// Sends frames in one call. If the system can split messages, each run of frames is sent as one message.
    ///
    /// A run that the system refuses is sent frame by frame. If that succeeds, splitting was the problem (a device
    /// without checksum offload before Linux 6.11, IPsec, or a path with a smaller MTU than the device), and runs are
    /// not used again.
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

    /// Maximum length in bytes of a frame that is sent in a run; 0 if runs are not used.
    pub(crate) const fn segment_max(&self) -> usize {
        self.segment_max
    }

    /// Returns the error that made the bearer stop sending runs as one message, if any. Only the first call returns it.
    pub(super) const fn take_refusal(&mut self) -> Option<Errno> {
        self.refusal.take()
    }

    /// The multicast group, or the remotes, as socket addresses.
    pub(super) fn stations(&self) -> &[SocketAddr] {
        &self.remotes
    }

    /// The stations whose frames are accepted: the remotes, or `None` for all if the bearer has a multicast group.
    pub(super) fn accepted(&self) -> Option<BTreeSet<MediaAddr>> {
        let station = |remote: &SocketAddr| MediaAddr::Udp { ip: remote.ip(), port: remote.port() };
        self.group.is_none().then(|| self.remotes.iter().map(station).collect())
    }

    /// Adds a remote to send to.
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

    /// Stops sending discovery messages and broadcasts to a remote.
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

    pub(super) const fn whole_max(&self) -> usize {
        self.whole_max
    }

    pub(super) const fn broadcasts(&self) -> bool {
        self.multicasts
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The descriptor of the socket that receives the multicast group's packets, if there is one.
    pub(super) fn group_fd(&self) -> Option<BorrowedFd<'_>> {
        self.group.as_ref().map(AsFd::as_fd)
    }

    /// Destinations of a broadcast: the group, or each remote.
    pub(super) fn remotes(&self) -> &[Address] {
        &self.broadcast
    }
}

/// Binds a socket to an address. For an IPv6 address that is valid only on a link, the system requires the device.
fn bind_through(fd: &OwnedFd, mut address: SocketAddr, through: Through) -> Result<(), OsError> {
    let object = format!("udp:{address}");
    if let (SocketAddr::V6(six), Through::V6(index)) = (&mut address, through)
        && (six.ip().is_unicast_link_local() || six.ip().is_multicast())
    {
        six.set_scope_id(index);
    }
    socket::bind(fd, &socket::inet_address(address), &object)
}

/// Returns the device with this address; `None` if no device has it, so that the outgoing device is unknown.
fn device_of(ip: IpAddr) -> Option<String> {
    // All of 127.0.0.0/8 is local without being assigned to a device.
    if ip.is_loopback() { Some("lo".to_owned()) } else { interface_of(ip).ok()? }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    /// Receives one byte from each socket and checks that it is the expected one.
    fn assert_received(sockets: &[&OwnedFd], expected: u8) {
        for fd in sockets {
            let socket = UdpSocket::from(fd.try_clone().unwrap());
            socket.set_nonblocking(false).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let mut byte = [0];
            assert_eq!(socket.recv(&mut byte).unwrap(), 1);
            assert_eq!(byte, [expected]);
        }
    }

    #[test]
    fn bearers_share_a_group_and_no_address_in_any_order() {
        let free = UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let at = |last: u8| SocketAddr::new(Ipv4Addr::new(127, 99, 7, last).into(), port);
        let open = |last: u8, remotes: &[u8]| {
            let remotes = remotes.iter().map(|last| at(*last)).collect();
            UdpBearer::open(at(last), None, remotes, None, (NetworkId(4711), 1 << 16))
        };
        let first = open(1, &[]).expect("no other test uses this port");
        let listed = open(2, &[3]).expect("beside one that receives the group's packets");
        let second = open(3, &[]).expect("after one with listed remotes");
        for last in 1..4 {
            for remotes in [&[][..], &[4]] {
                let again = open(last, remotes).expect_err("the address is taken");
                assert_eq!(again.errno(), Errno::ADDRINUSE.raw_os_error());
            }
        }
        let sender = UdpSocket::bind("127.99.7.4:0").unwrap();
        multicast::send_through(&sender, Through::V4(Ipv4Addr::new(127, 99, 7, 4))).unwrap();
        for (bearer, last) in [(&first, 1), (&listed, 2), (&second, 3)] {
            sender.send_to(&[last], at(last)).unwrap();
            assert_received(&[&bearer.fd], last);
        }
        sender.send_to(&[5], first.remotes[0]).unwrap();
        assert_received(&[first.group.as_ref().unwrap(), second.group.as_ref().unwrap()], 5);
    }

    #[test]
    fn the_group_follows_the_network_as_the_kernels_tool_sets_it() {
        let v4 = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(group(v4, NetworkId(4711)), "228.0.18.103".parse::<IpAddr>().unwrap());
        let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
        assert_eq!(group(v6, NetworkId(4711)), "ff02::4711".parse::<IpAddr>().unwrap());
        assert!(
            group(v6, NetworkId(123_456)).is_multicast(),
            "an identifier of six digits still gives a group"
        );
    }
}
