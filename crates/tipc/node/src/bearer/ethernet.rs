//! TIPC directly on Ethernet, EtherType 0x88CA.

use std::os::fd::{AsFd, BorrowedFd};

use crossway_sys::Errno;
use crossway_sys::link_watch::{LinkChange, LinkWatch};
use crossway_sys::packet::{ETHERNET_HEADER_LEN, EtherSocket};
use crossway_sys::packet_ring::PacketRing;
use crossway_sys::packet_send_ring::SendRing;
use crossway_sys::records::{MOST_SENT, send_many};
use crossway_tipc_proto::addr::MediaAddr;

use super::{BearerOpenError, set_buffers};

/// Size in bytes of the ring that holds received frames until they are read.
const RING_BYTES: usize = 8 << 20;

/// Size in bytes of the ring from which frames are sent. It has room for more frames than the node sends in one turn,
/// because frames in the device's queue still occupy the ring. It is small enough to stay in a CPU's cache.
const SEND_RING_BYTES: usize = 512 << 10;

const ETHER_TYPE: u16 = 0x88ca;
pub(crate) const BROADCAST: [u8; 6] = [0xff; 6];

/// A packet socket on one device.
#[derive(Debug)]
pub struct EthernetBearer {
    socket: EtherSocket,
    mtu: usize,
    /// The ring of received frames; `None` after it has been taken.
    ring: Option<PacketRing>,
    /// Reports the removal of the device, as the kernel does to its own TIPC node. On systems that do not notify
    /// processes, the value is the error that prevents it, or `Err(None)` once that error has been fetched.
    watch: Result<LinkWatch, Option<Errno>>,
    /// The ring for sending. If it could not be created (frames too long, too little memory), frames are sent as
    /// messages.
    out: Option<SendRing>,
}

impl EthernetBearer {
    pub(super) fn open(device: &str, socket_bytes: usize) -> Result<Self, BearerOpenError> {
        let socket = EtherSocket::open(device, ETHER_TYPE)?;
        set_buffers(&socket.sender, socket_bytes)?;
        let failed = |source| BearerOpenError::Mtu { device: device.to_owned(), source };
        let text =
            std::fs::read_to_string(format!("/sys/class/net/{device}/mtu")).map_err(failed)?;
        let mtu = text.trim().parse().map_err(|e| failed(std::io::Error::other(e)))?;
        let ring = Some(PacketRing::attach(&socket.fd, mtu, RING_BYTES)?);
        let largest = ETHERNET_HEADER_LEN + mtu;
        let out = SendRing::attach(&socket.sender, largest, SEND_RING_BYTES).ok();
        let watch = LinkWatch::open(device, socket.index)
            .map_err(|e| Some(Errno::from_raw_os_error(e.errno())));
        Ok(Self { socket, mtu, ring, out, watch })
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

    /// Writes a frame to a station into the ring from which [`EthernetBearer::launch`] sends. Returns false if there is
    /// no such ring or it has no room.
    pub(super) fn put(&mut self, station: [u8; 6], frame: &[u8]) -> bool {
        let header = self.socket.header_to(station);
        self.out.as_mut().is_some_and(|ring| ring.put(&header, frame).is_ok())
    }

    /// Sends the frames in the ring in one call, and returns the number sent. The others are passed to `back` with
    /// their headers.
    pub(super) fn launch(
        &mut self,
        mut back: impl FnMut([u8; ETHERNET_HEADER_LEN], &[u8]),
    ) -> usize {
        let Some(ring) = &mut self.out else { return 0 };
        let back = |bytes: &[u8]| {
            if let Some((header, frame)) = bytes.split_first_chunk() {
                back(*header, frame);
            }
        };
        // An error will occur again with the first frame that was returned.
        ring.launch(&self.socket.sender, back).unwrap_or_default()
    }

    /// Sends frames in one call, and returns the number sent.
    pub(super) fn try_send<'a>(
        &mut self,
        frames: impl Iterator<Item = (&'a [u8; ETHERNET_HEADER_LEN], &'a [u8])>,
    ) -> Result<usize, Errno> {
        match &mut self.out {
            Some(ring) => ring.send(&self.socket.sender, frames.take(MOST_SENT)),
            None => send_many(&self.socket.sender, frames),
        }
    }

    pub(super) const fn take_ring(&mut self) -> Option<PacketRing> {
        self.ring.take()
    }

    pub(super) fn watch(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().ok().map(AsFd::as_fd)
    }

    pub(super) fn device_change(&mut self) -> Option<LinkChange> {
        self.watch.as_mut().ok()?.next_change()
    }

    /// Returns the error that prevents the device from being watched, if any. Only the first call returns it.
    pub(super) const fn take_unwatched(&mut self) -> Option<Errno> {
        match &mut self.watch {
            Ok(_) => None,
            Err(errno) => errno.take(),
        }
    }

    pub(super) fn header_to(&self, station: [u8; 6]) -> [u8; ETHERNET_HEADER_LEN] {
        self.socket.header_to(station)
    }
}
