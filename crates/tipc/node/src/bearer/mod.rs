//! Frames on and off the media.

mod ethernet;
mod udp;

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use crossway_sys::records::{Inbox, send_many_to};
use crossway_sys::socket::{self, Address};
use crossway_sys::{Errno, OsError};
use crossway_tipc_proto::addr::{MediaAddr, NetworkId};
use crossway_tipc_proto::node::Destination;

use crate::spec::BearerSpec;
pub(crate) use ethernet::BROADCAST as ETHERNET_BROADCAST;
use ethernet::EthernetBearer;
use udp::UdpBearer;

/// Octets asked of the kernel for a bearer's socket buffers: a whole window of the largest packets, twice.
const SOCKET_OCTETS: usize = 4 << 20;

/// Gives a bearer's socket buffers for bursts.
fn set_buffers(fd: &OwnedFd) -> Result<(), OsError> {
    socket::set_buffers(fd, SOCKET_OCTETS)?;
    // The usual limit of a system holds fewer packets than a window. Without the privilege it stays at that.
    let _ = socket::force_recv_buffer(fd, SOCKET_OCTETS);
    Ok(())
}

/// A bearer cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BearerOpenError {
    /// The system refuses.
    #[error(
        "{0}; an Ethernet bearer needs CAP_NET_RAW (run as root), a UDP bearer an address of this host"
    )]
    Os(#[from] OsError),
    /// The device's MTU cannot be read.
    #[error(
        "cannot read the MTU of device {device}: {source}; is it the name of a network device here?"
    )]
    Mtu {
        /// The device.
        device: String,
        /// Why.
        source: std::io::Error,
    },
}

/// A medium that is open.
#[derive(Debug)]
pub enum Bearer {
    /// UDP over IPv4 or IPv6.
    Udp(UdpBearer),
    /// Ethernet.
    Ethernet(EthernetBearer),
}

impl Bearer {
    /// Opens what a specification names, for one network.
    ///
    /// # Errors
    /// [`BearerOpenError`] says why not.
    pub fn open(spec: &BearerSpec, network: NetworkId) -> Result<Self, BearerOpenError> {
        match spec {
            BearerSpec::Ethernet { device } => EthernetBearer::open(device).map(Self::Ethernet),
            BearerSpec::Udp { local, device, remotes } => {
                Ok(Self::Udp(UdpBearer::open(*local, device.as_deref(), remotes.clone(), network)?))
            }
        }
    }

    /// This node's address on the medium.
    pub fn addr(&self) -> MediaAddr {
        match self {
            Self::Udp(b) => b.addr(),
            Self::Ethernet(b) => b.addr(),
        }
    }

    /// Largest TIPC packet, in octets.
    pub fn mtu(&self) -> usize {
        match self {
            Self::Udp(b) => b.mtu(),
            Self::Ethernet(b) => b.mtu(),
        }
    }

    /// Whether one frame reaches all stations, and not one copy to each.
    pub fn broadcasts(&self) -> bool {
        match self {
            Self::Udp(b) => b.broadcasts(),
            Self::Ethernet(_) => true,
        }
    }

    /// Where a UDP bearer sends discovery and broadcasts; nothing for a medium that has its own.
    pub fn remotes(&self) -> &[SocketAddr] {
        match self {
            Self::Udp(b) => b.stations(),
            Self::Ethernet(_) => &[],
        }
    }

    /// The UDP bearer, if it is one.
    pub(crate) const fn as_udp(&mut self) -> Option<&mut UdpBearer> {
        match self {
            Self::Udp(b) => Some(b),
            Self::Ethernet(_) => None,
        }
    }

    /// Becomes readable when a frame has come.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Udp(b) => b.fd(),
            Self::Ethernet(b) => b.fd(),
        }
    }

    /// Takes frames that have come, without waiting; tells how many. Fewer than an inbox holds: there are no more for now.
    pub fn try_receive(&self, inbox: &mut Inbox) -> Result<usize, Errno> {
        inbox.receive(self.fd())
    }

    /// Where a frame is to be sent on this medium: one address, or that of each remote; none for an address of another medium, which
    /// discovery never lets in.
    pub fn addresses(&self, dest: &Destination) -> impl Iterator<Item = Address> + use<'_> {
        let (one, many) = match (self, dest) {
            (Self::Udp(b), Destination::Broadcast) => (None, b.remotes()),
            (Self::Udp(_), Destination::Unicast(MediaAddr::Udp { ip, port })) => {
                (Some(socket::inet_address(SocketAddr::new(*ip, *port))), &[][..])
            }
            (Self::Ethernet(b), Destination::Unicast(MediaAddr::Ethernet(mac))) => {
                (Some(b.station(*mac)), &[][..])
            }
            (Self::Ethernet(b), Destination::Broadcast) => (Some(b.everybody()), &[][..]),
            (Self::Udp(_), Destination::Unicast(MediaAddr::Ethernet(_)))
            | (Self::Ethernet(_), Destination::Unicast(MediaAddr::Udp { .. })) => (None, &[][..]),
        };
        one.into_iter().chain(many.iter().cloned())
    }

    /// Sends frames by one call, without waiting, at most [`crossway_sys::records::MOST`]; tells how many went. What does not go out is
    /// lost like any frame on a medium, unless it is sent again; the protocol repairs it.
    ///
    /// # Errors
    /// EAGAIN and ENOBUFS: no room for the first frame, for now. Others: the first frame cannot go.
    pub fn try_send<'a>(
        &self,
        frames: impl Iterator<Item = (&'a Address, &'a [u8])>,
    ) -> Result<usize, Errno> {
        send_many_to(self.fd(), frames)
    }
}
