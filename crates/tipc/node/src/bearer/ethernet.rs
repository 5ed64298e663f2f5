//! TIPC directly on Ethernet, EtherType 0x88CA.

use std::os::fd::{AsFd, BorrowedFd};

use crossway_sys::packet::{EtherSocket, hardware_address};
use crossway_sys::{Errno, socket};
use crossway_tipc_proto::addr::MediaAddr;
use crossway_tipc_proto::node::Destination;

use super::{BearerOpenError, SOCKET_OCTETS};

const ETHER_TYPE: u16 = 0x88ca;
const BROADCAST: [u8; 6] = [0xff; 6];

/// A packet socket on one device.
#[derive(Debug)]
pub struct EthernetBearer {
    socket: EtherSocket,
    mtu: usize,
}

impl EthernetBearer {
    pub(super) fn open(device: &str) -> Result<Self, BearerOpenError> {
        let socket = EtherSocket::open(device, ETHER_TYPE)?;
        socket::set_buffers(&socket.fd, SOCKET_OCTETS)?;
        let failed = |source| BearerOpenError::Mtu { device: device.to_owned(), source };
        let text =
            std::fs::read_to_string(format!("/sys/class/net/{device}/mtu")).map_err(failed)?;
        let mtu = text.trim().parse().map_err(|e| failed(std::io::Error::other(e)))?;
        Ok(Self { socket, mtu })
    }

    pub(super) const fn addr(&self) -> MediaAddr {
        MediaAddr::Ethernet(self.socket.mac)
    }

    pub(super) const fn mtu(&self) -> usize {
        self.mtu
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.fd.as_fd()
    }

    pub(super) fn try_recv(&self, buf: &mut [u8]) -> Result<(usize, MediaAddr), Errno> {
        let (len, from) = socket::recv_message_from(&self.socket.fd, buf, true)?;
        let mac = from.as_ref().and_then(hardware_address).unwrap_or_default();
        Ok((len.min(buf.len()), MediaAddr::Ethernet(mac)))
    }

    pub(super) fn try_send(&self, dest: &Destination, frame: &[u8]) -> Result<(), Errno> {
        let mac = match dest {
            Destination::Unicast(MediaAddr::Ethernet(mac)) => *mac,
            Destination::Unicast(MediaAddr::Udp { .. }) => return Err(Errno::AFNOSUPPORT),
            Destination::Broadcast => BROADCAST,
        };
        socket::send_to(&self.socket.fd, frame, &self.socket.station(mac), true).map(|_| ())
    }
}
