//! Frames on and off the media.

mod ethernet;
mod udp;

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use crossway_sys::datagrams::Sent;
use crossway_sys::link_watch::LinkChange;
use crossway_sys::packet::ETHERNET_HEADER_LEN;
use crossway_sys::packet_ring::PacketRing;
use crossway_sys::records::Inbox;
use crossway_sys::socket::{self, Address};
use crossway_sys::{Errno, OsError};
use crossway_tipc_proto::addr::{MediaAddr, NetworkId};
use crossway_tipc_proto::node::Destination;

use crate::spec::BearerSpec;
pub(crate) use ethernet::BROADCAST as ETHERNET_BROADCAST;
use ethernet::EthernetBearer;
use udp::UdpBearer;

/// Octets asked of the kernel for a bearer's socket buffers unless configured: a whole window of the largest packets, twice.
pub(crate) const SOCKET_OCTETS: usize = 4 << 20;

/// Gives a bearer's socket buffers for bursts.
fn set_buffers(fd: &OwnedFd, octets: usize) -> Result<(), OsError> {
    socket::set_buffers(fd, octets)?;
    // The usual limit of a system holds fewer packets than a window. Without the privilege it stays at that.
    let _ = socket::force_recv_buffer(fd, octets);
    Ok(())
}

/// A bearer cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BearerOpenError {
    /// The system refuses.
    #[error("{os}; {}", remedy(.os))]
    Os {
        /// Which call, on what, and why.
        #[from]
        os: OsError,
    },
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

/// What to do when the system refuses a medium.
fn remedy(error: &OsError) -> &'static str {
    match Errno::from_raw_os_error(error.errno()) {
        Errno::PERM | Errno::ACCESS => {
            "it needs CAP_NET_RAW: run as root or give the program that capability, or use a UDP bearer"
        }
        Errno::ADDRINUSE => {
            "another program has this address and port: stop it, or give the bearer another port on all nodes (udp:ADDRESS:PORT)"
        }
        Errno::ADDRNOTAVAIL => "name an address of this host: ip address shows them",
        Errno::NODEV | Errno::NXIO if error.call == "setsockopt(IP_ADD_MEMBERSHIP)" => {
            "name an address of this host: ip address shows them"
        }
        Errno::NODEV if error.call.starts_with("setsockopt") => {
            "the multicast group needs a device with IPv6 (udp:ADDRESS%DEVICE), or name the remotes (udp:ADDRESS,REMOTE)"
        }
        Errno::NODEV | Errno::NXIO => "name a network device of this host: ip link shows them",
        Errno::NETDOWN => "bring the device up first: ip link set DEVICE up",
        _ => "ip address shows the addresses and devices of this host",
    }
}

/// Where a frame is to go, as its medium wants it.
#[derive(Clone, Debug)]
pub enum Recipient {
    /// An address for the socket.
    Udp(Address),
    /// What stands before the frame.
    Station([u8; ETHERNET_HEADER_LEN]),
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
    /// Opens what a specification names, for one network, and asks for so many octets of socket buffers.
    ///
    /// # Errors
    /// [`BearerOpenError`] says why not.
    pub fn open(
        spec: &BearerSpec,
        network: NetworkId,
        socket_octets: usize,
    ) -> Result<Self, BearerOpenError> {
        match spec {
            BearerSpec::Ethernet { device } => {
                EthernetBearer::open(device, socket_octets).map(Self::Ethernet)
            }
            BearerSpec::Udp { local, device, remotes, mtu } => Ok(Self::Udp(UdpBearer::open(
                *local,
                device.as_deref(),
                remotes.clone(),
                *mtu,
                (network, socket_octets),
            )?)),
        }
    }

    /// Octets of its socket's receive buffer as the system granted them; `None` where frames come through a ring.
    pub(crate) fn receive_buffer(&self) -> Option<usize> {
        match self {
            Self::Udp(b) => socket::recv_buffer_bytes(b.fd()).ok(),
            Self::Ethernet(_) => None,
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

    /// Becomes readable when [`Bearer::device_change`] may have something to tell; `None` for media that are not told of devices: the
    /// system chooses the device of a UDP bearer's packets, for each anew, and a kernel's UDP bearer is not told either.
    pub(crate) fn watch(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Udp(_) => None,
            Self::Ethernet(b) => b.watch(),
        }
    }

    /// The next change of the device, without waiting.
    pub(crate) fn device_change(&mut self) -> Option<LinkChange> {
        match self {
            Self::Udp(_) => None,
            Self::Ethernet(b) => b.device_change(),
        }
    }

    /// Why the device is not watched, the first time.
    pub(crate) const fn take_unwatched(&mut self) -> Option<Errno> {
        match self {
            Self::Udp(_) => None,
            Self::Ethernet(b) => b.take_unwatched(),
        }
    }

    /// The ring through which an Ethernet bearer's frames come, the first time; whoever has it reads them. Other media have none.
    pub const fn take_ring(&mut self) -> Option<PacketRing> {
        match self {
            Self::Ethernet(b) => b.take_ring(),
            Self::Udp(_) => None,
        }
    }

    /// Takes messages that have come, of one frame or of a run, without waiting; tells how many. Fewer than an inbox holds: there are no
    /// more for now. Not for a bearer with a ring.
    pub fn try_receive(&self, inbox: &mut Inbox) -> Result<usize, Errno> {
        inbox.receive(self.fd())
    }

    /// Where a frame is to be sent on this medium: one address, or that of each remote; none for an address of another medium, which
    /// discovery never lets in.
    pub fn recipients(&self, dest: &Destination) -> impl Iterator<Item = Recipient> + use<'_> {
        let station = |b: &EthernetBearer, mac| Some(Recipient::Station(b.header_to(mac)));
        let (one, many) = match (self, dest) {
            (Self::Udp(b), Destination::Broadcast) => (None, b.remotes()),
            (Self::Udp(_), Destination::Unicast(MediaAddr::Udp { ip, port })) => {
                let address = socket::inet_address(SocketAddr::new(*ip, *port));
                (Some(Recipient::Udp(address)), &[][..])
            }
            (Self::Ethernet(b), Destination::Unicast(MediaAddr::Ethernet(mac))) => {
                (station(b, *mac), &[][..])
            }
            (Self::Ethernet(b), Destination::Broadcast) => {
                (station(b, ETHERNET_BROADCAST), &[][..])
            }
            (Self::Udp(_), Destination::Unicast(MediaAddr::Ethernet(_)))
            | (Self::Ethernet(_), Destination::Unicast(MediaAddr::Udp { .. })) => (None, &[][..]),
        };
        one.into_iter().chain(many.iter().cloned().map(Recipient::Udp))
    }

    /// Puts a frame directly where [`Bearer::launch`] sends it from, if the medium has such a place and room in it. Nothing else is to be
    /// sent between the two.
    pub fn put(&mut self, dest: &Destination, frame: &[u8]) -> bool {
        match (self, dest) {
            (Self::Ethernet(b), Destination::Unicast(MediaAddr::Ethernet(mac))) => {
                b.put(*mac, frame)
            }
            (Self::Ethernet(b), Destination::Broadcast) => b.put(ETHERNET_BROADCAST, frame),
            _ => false,
        }
    }

    /// Sends by one call, without waiting, what was put there; tells how many frames went. Those that did not are handed back in their order.
    pub fn launch(&mut self, mut back: impl FnMut(Recipient, &[u8])) -> usize {
        match self {
            Self::Ethernet(b) => b.launch(|header, frame| back(Recipient::Station(header), frame)),
            Self::Udp(_) => 0,
        }
    }

    /// Sends frames by one call, without waiting, at most [`crossway_sys::records::MOST_SENT`]; tells how many went. What does not go out is
    /// lost like any frame on a medium, unless it is sent again; the protocol repairs it. A UDP bearer sends runs of frames of one length
    /// to one station as one message, as long as the system takes these.
    ///
    /// # Errors
    /// EAGAIN and ENOBUFS: no room for the first frame, for now. Others: the first frame cannot go.
    pub fn try_send<'a>(
        &mut self,
        frames: impl Iterator<Item = (&'a Recipient, &'a [u8])> + Clone,
    ) -> Result<Sent, Errno> {
        // A recipient of another medium cannot come up: each is made by the bearer that is given it.
        match self {
            Self::Udp(b) => b.try_send(frames.filter_map(|(to, frame)| match to {
                Recipient::Udp(address) => Some((address, frame)),
                Recipient::Station(_) => None,
            })),
            Self::Ethernet(b) => b
                .try_send(frames.filter_map(|(to, frame)| match to {
                    Recipient::Station(header) => Some((header, frame)),
                    Recipient::Udp(_) => None,
                }))
                .map(|datagrams| Sent { datagrams, runs: 0 }),
        }
    }

    /// Why runs of frames stopped to go as one message, the first time after that.
    pub(crate) const fn take_refusal(&mut self) -> Option<Errno> {
        match self {
            Self::Udp(b) => b.take_refusal(),
            Self::Ethernet(_) => None,
        }
    }

    /// Largest frame that goes with others as one message; `None`: none does.
    pub(crate) fn segment_max(&self) -> Option<usize> {
        match self {
            Self::Udp(b) => Some(b.segment_max()).filter(|octets| *octets > 0),
            Self::Ethernet(_) => None,
        }
    }
}
