//! Sends and receives frames on the media.

mod ethernet;
mod udp;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use crossway_sys::datagrams::Sent;
use crossway_sys::link_watch::LinkChange;
use crossway_sys::packet::ETHERNET_HEADER_LEN;
use crossway_sys::packet_ring::PacketRing;
use crossway_sys::socket::{self, Address};
use crossway_sys::{Errno, OsError};
use crossway_tipc_proto::addr::{MediaAddr, NetworkId};
use crossway_tipc_proto::node::Destination;

use crate::spec::BearerSpec;
pub(crate) use ethernet::BROADCAST as ETHERNET_BROADCAST;
use ethernet::EthernetBearer;
use udp::UdpBearer;

/// Default size in bytes that is requested for a bearer's socket buffers: twice a full window of the largest packets.
pub(crate) const SOCKET_BYTES: usize = 4 << 20;

/// Requests buffers of this size for a bearer's socket, so that it can take bursts.
fn set_buffers(fd: &OwnedFd, bytes: usize) -> Result<(), OsError> {
    socket::set_buffers(fd, bytes)?;
    // The usual system limit holds fewer packets than a window. Without the privilege to exceed it, the buffer stays at the limit.
    let _ = socket::force_recv_buffer(fd, bytes);
    Ok(())
}

/// Why a bearer cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BearerOpenError {
    /// A system call failed.
    #[error("{os}; {}", remedy(.os))]
    Os {
        /// The call, the object that it was applied to, and the cause.
        #[from]
        os: OsError,
    },
    /// The device's MTU cannot be read.
    #[error(
        "cannot read the MTU of device {device}: {source}; is it a network device of this host?"
    )]
    Mtu {
        /// Name of the device.
        device: String,
        /// The underlying error.
        source: std::io::Error,
    },
}

/// Returns the remedy for an error of the system that prevents a medium from being used.
fn remedy(error: &OsError) -> &'static str {
    match Errno::from_raw_os_error(error.errno()) {
        Errno::PERM | Errno::ACCESS if error.call == "bind" => {
            "run as root, or choose a port that is not privileged (udp:ADDRESS:PORT)"
        }
        Errno::PERM | Errno::ACCESS => {
            "CAP_NET_RAW is required: run as root or grant the program that capability, or use a UDP bearer"
        }
        Errno::ADDRINUSE => {
            "another program uses this address and port: stop it, or choose a different port for the bearer on all nodes (udp:ADDRESS:PORT)"
        }
        Errno::ADDRNOTAVAIL => "use an address of this host (`ip address` shows them)",
        Errno::NODEV | Errno::NXIO if error.call == "setsockopt(IP_ADD_MEMBERSHIP)" => {
            "use an address of this host (`ip address` shows them)"
        }
        Errno::NODEV if error.call.starts_with("setsockopt") => {
            "specify a device that has IPv6, for the multicast group (udp:ADDRESS%DEVICE), or list the remotes \
             (udp:ADDRESS,REMOTE)"
        }
        Errno::NODEV | Errno::NXIO => "use a network device of this host (`ip link` shows them)",
        Errno::NETDOWN => "bring the device up first: `ip link set DEVICE up`",
        _ => "`ip address` shows the addresses and devices of this host",
    }
}

/// The destination of a frame, in the form that its medium needs.
#[derive(Clone, Debug)]
pub enum Recipient {
    /// An address for the UDP socket.
    Udp(Address),
    /// The Ethernet header that precedes the frame.
    Station([u8; ETHERNET_HEADER_LEN]),
}

/// A medium that is open for sending and receiving frames.
#[derive(Debug)]
pub enum Bearer {
    /// UDP over IPv4 or IPv6.
    Udp(UdpBearer),
    /// An Ethernet device, through a packet socket.
    Ethernet(EthernetBearer),
}

impl Bearer {
    /// Opens the bearer described by `spec`, and requests `socket_bytes` bytes for each of its socket buffers.
    /// `network` determines a UDP bearer's multicast group.
    ///
    /// # Errors
    /// [`BearerOpenError`] gives the reason.
    pub fn open(
        spec: &BearerSpec,
        network: NetworkId,
        socket_bytes: usize,
    ) -> Result<Self, BearerOpenError> {
        match spec {
            BearerSpec::Ethernet { device } => {
                EthernetBearer::open(device, socket_bytes).map(Self::Ethernet)
            }
            BearerSpec::Udp { local, device, remotes, mtu } => Ok(Self::Udp(UdpBearer::open(
                *local,
                device.as_deref(),
                remotes.clone(),
                *mtu,
                (network, socket_bytes),
            )?)),
        }
    }

    /// Size of the receive buffer of the bearer's socket as granted by the system; `None` if frames are received
    /// through a ring.
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

    /// Largest TIPC packet, in bytes.
    pub fn mtu(&self) -> usize {
        match self {
            Self::Udp(b) => b.mtu(),
            Self::Ethernet(b) => b.mtu(),
        }
    }

    /// Length in bytes of the largest TIPC packet that the medium carries without fragmenting it.
    pub(crate) fn whole_max(&self) -> usize {
        match self {
            Self::Udp(b) => b.whole_max(),
            Self::Ethernet(b) => b.mtu(),
        }
    }

    /// Whether one frame reaches all stations, so that no separate copies need to be sent.
    pub fn broadcasts(&self) -> bool {
        match self {
            Self::Udp(b) => b.broadcasts(),
            Self::Ethernet(_) => true,
        }
    }

    /// The destinations of a UDP bearer's discovery messages and broadcasts; empty for other media.
    pub fn remotes(&self) -> &[SocketAddr] {
        match self {
            Self::Udp(b) => b.stations(),
            Self::Ethernet(_) => &[],
        }
    }

    /// The stations whose frames are accepted; `None` for all.
    pub(crate) fn stations(&self) -> Option<BTreeSet<MediaAddr>> {
        match self {
            Self::Udp(b) => b.accepted(),
            Self::Ethernet(_) => None,
        }
    }

    /// The UDP bearer, if this is one.
    pub(crate) const fn as_udp(&mut self) -> Option<&mut UdpBearer> {
        match self {
            Self::Udp(b) => Some(b),
            Self::Ethernet(_) => None,
        }
    }

    /// The descriptors that become readable when a frame has arrived.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let (own, group) = match self {
            Self::Udp(b) => (b.fd(), b.group_fd()),
            Self::Ethernet(b) => (b.fd(), None),
        };
        [own].into_iter().chain(group)
    }

    /// The descriptor that becomes readable when [`Bearer::device_change`] may return a change; `None` for media and
    /// systems without device notifications. UDP bearers have none because the system chooses the device for each
    /// packet; a kernel's UDP bearer is not notified either.
    pub(crate) fn watch(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Udp(_) => None,
            Self::Ethernet(b) => b.watch(),
        }
    }

    /// Returns the next change of the device, if there is one. Does not wait.
    pub(crate) fn device_change(&mut self) -> Option<LinkChange> {
        match self {
            Self::Udp(_) => None,
            Self::Ethernet(b) => b.device_change(),
        }
    }

    /// Returns the error that prevents the device from being watched, if any. Only the first call returns it.
    pub(crate) const fn take_unwatched(&mut self) -> Option<Errno> {
        match self {
            Self::Udp(_) => None,
            Self::Ethernet(b) => b.take_unwatched(),
        }
    }

    /// Returns the ring through which an Ethernet bearer receives its frames, for the caller to read. Only the first
    /// call returns it. Other media have none.
    pub const fn take_ring(&mut self) -> Option<PacketRing> {
        match self {
            Self::Ethernet(b) => b.take_ring(),
            Self::Udp(_) => None,
        }
    }

    /// The addresses on this medium to which a frame must be sent: one address, or the address of each remote. Empty
    /// for an address of a different medium, which discovery would not have accepted.
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

    /// Writes a frame directly into the buffer from which [`Bearer::launch`] sends. Returns false if the medium has no
    /// such buffer or the buffer has no room. Nothing else may be sent between this call and the launch.
    pub fn put(&mut self, dest: &Destination, frame: &[u8]) -> bool {
        match (self, dest) {
            (Self::Ethernet(b), Destination::Unicast(MediaAddr::Ethernet(mac))) => {
                b.put(*mac, frame)
            }
            (Self::Ethernet(b), Destination::Broadcast) => b.put(ETHERNET_BROADCAST, frame),
            _ => false,
        }
    }

    /// Sends the frames written by [`Bearer::put`] in one call, without waiting. Returns the number sent. The others
    /// are passed to `back` in their order.
    pub fn launch(&mut self, mut back: impl FnMut(Recipient, &[u8])) -> usize {
        match self {
            Self::Ethernet(b) => b.launch(|header, frame| back(Recipient::Station(header), frame)),
            Self::Udp(_) => 0,
        }
    }

    /// Sends at most [`crossway_sys::records::MOST_SENT`] frames in one call, without waiting. Returns the number sent.
    /// If the caller does not send the others again, they are lost, and the protocol repairs that like any loss on the
    /// medium. A UDP bearer sends a run of frames of equal length to one station as one message, as long as the system
    /// accepts such messages.
    ///
    /// # Errors
    /// EAGAIN and ENOBUFS if there is no room for the first frame at present; other errors if the first frame cannot be
    /// sent at all.
    pub fn try_send<'a>(
        &mut self,
        frames: impl Iterator<Item = (&'a Recipient, &'a [u8])> + Clone,
    ) -> Result<Sent, Errno> {
        // Recipients of another medium cannot occur: each is created by the bearer to which it is passed.
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

    /// Returns the error that made the bearer stop sending runs of frames as one message, if any. Only the first call
    /// returns it.
    pub(crate) const fn take_refusal(&mut self) -> Option<Errno> {
        match self {
            Self::Udp(b) => b.take_refusal(),
            Self::Ethernet(_) => None,
        }
    }

    /// Maximum length in bytes of a frame that is sent in a run; `None` if runs are not used.
    pub(crate) fn segment_max(&self) -> Option<usize> {
        match self {
            Self::Udp(b) => Some(b.segment_max()).filter(|bytes| *bytes > 0),
            Self::Ethernet(_) => None,
        }
    }
}
