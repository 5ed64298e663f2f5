//! Frames on and off the media.

mod ethernet;
mod udp;

use std::os::fd::BorrowedFd;

use crossway_sys::{Errno, OsError};
use crossway_tipc_proto::addr::{MediaAddr, NetworkId};
use crossway_tipc_proto::node::Destination;

use crate::spec::BearerSpec;
use ethernet::EthernetBearer;
use udp::UdpBearer;

/// Octets asked of the kernel for a bearer's socket buffers: a whole window of the largest packets, twice.
const SOCKET_OCTETS: usize = 4 << 20;

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

    /// Becomes readable when a frame has come.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Udp(b) => b.fd(),
            Self::Ethernet(b) => b.fd(),
        }
    }

    /// Takes the next frame that has come, without waiting: its length in `buf` and its sender. A frame longer than `buf` is cut.
    pub fn try_recv(&self, buf: &mut [u8]) -> Result<(usize, MediaAddr), Errno> {
        match self {
            Self::Udp(b) => b.try_recv(buf),
            Self::Ethernet(b) => b.try_recv(buf),
        }
    }

    /// Sends a frame, without waiting. What does not go out is lost like any frame on a medium; the protocol repairs it.
    pub fn try_send(&self, dest: &Destination, frame: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Udp(b) => b.try_send(dest, frame),
            Self::Ethernet(b) => b.try_send(dest, frame),
        }
    }
}
