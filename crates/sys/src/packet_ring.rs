//! The receive ring of a packet socket (packet(7), PACKET_RX_RING version 2): frames are read where the kernel put
//! them, without a system call or a copy for each frame.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::shm::Mapping;
use crate::{OsError, socket};

/// Number of bytes that the kernel needs before each frame: for its record, the sender's address and the hardware
/// header.
const BEFORE_FRAME: usize = 96;

/// Minimum size in bytes of one block of the ring's memory; a frame never crosses a block boundary.
const BLOCK_BYTES: usize = 64 << 10;

/// A ring of received frames that have not been read yet. When it is full, the kernel drops further frames.
#[derive(Debug)]
pub struct PacketRing {
    mapping: Mapping,
    block_bytes: usize,
    slot_bytes: usize,
    slots_per_block: usize,
    slots: usize,
    next: usize,
}

/// A frame in the ring; its slot is returned to the kernel when this value is dropped.
#[derive(Debug)]
pub struct RingFrame<'a> {
    slot: NonNull<u8>,
    bytes: &'a mut [u8],
}

impl PacketRing {
    /// Gives a packet socket a ring of about `bytes` bytes for frames of up to `largest` bytes, not counting the
    /// hardware header. From then on the socket's frames are received only through the ring.
    ///
    /// # Errors
    /// [`OsError`]: there is not enough memory (ENOMEM), or this is not a packet socket.
    pub fn attach(fd: &OwnedFd, largest: usize, bytes: usize) -> Result<Self, OsError> {
        let slot_bytes = (BEFORE_FRAME + largest).next_multiple_of(64);
        let block_bytes = BLOCK_BYTES.max(slot_bytes.next_power_of_two());
        let slots_per_block = block_bytes / slot_bytes;
        let blocks = bytes.div_ceil(block_bytes).max(2);
        let slots = blocks * slots_per_block;
        let version = (libc::tpacket_versions::TPACKET_V2 as i32).to_ne_bytes();
        socket::set_raw(fd, libc::SOL_PACKET, libc::PACKET_VERSION, Some(&version))
            .map_err(|e| OsError::new("setsockopt(PACKET_VERSION)", "version 2", e))?;
        // A tpacket_req: bytes per block, number of blocks, bytes per slot, number of slots.
        let mut request = [0; size_of::<libc::tpacket_req>()];
        for (field, value) in
            request.chunks_exact_mut(4).zip([block_bytes, blocks, slot_bytes, slots])
        {
            field.copy_from_slice(&(value as u32).to_ne_bytes());
        }
        socket::set_raw(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, Some(&request)).map_err(
            |e| {
                OsError::new(
                    "setsockopt(PACKET_RX_RING)",
                    format!("{slots} frames of {largest} bytes"),
                    e,
                )
            },
        )?;
        let mapping = Mapping::lazily(fd, blocks * block_bytes, true)?;
        Ok(Self { mapping, block_bytes, slot_bytes, slots_per_block, slots, next: 0 })
    }

    /// The oldest received frame, without its hardware header; `None` when there is none. Frames longer than the ring's
    /// maximum are skipped.
    pub fn take(&mut self) -> Option<RingFrame<'_>> {
        loop {
            let (block, place) =
                (self.next / self.slots_per_block, self.next % self.slots_per_block);
            let offset = block * self.block_bytes + place * self.slot_bytes;
            // SAFETY: `next` is below `slots`, so that the whole slot lies within the mapping.
            let slot = unsafe { self.mapping.start().add(offset) };
            if status(&slot).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                return None;
            }
            self.next = (self.next + 1) % self.slots;
            // SAFETY: slots are aligned to 16 bytes and begin with this record, which the kernel wrote before it set
            // the status that was just read, and does not touch until the status is set back.
            let record = unsafe { slot.cast::<libc::tpacket2_hdr>().read() };
            let (from, hardware) = (usize::from(record.tp_net), usize::from(record.tp_mac));
            let until = hardware + record.tp_snaplen as usize;
            if record.tp_snaplen < record.tp_len || from > until || until > self.slot_bytes {
                status(&slot).store(libc::TP_STATUS_KERNEL, Ordering::Release);
                continue;
            }
            // SAFETY: within the slot, as just checked, and after the status word; only this process touches it until
            // the `RingFrame` that holds the slice sets the status back, and no other can be created before that, since
            // it borrows the ring.
            let bytes =
                unsafe { std::slice::from_raw_parts_mut(slot.add(from).as_ptr(), until - from) };
            return Some(RingFrame { slot, bytes });
        }
    }
}

impl RingFrame<'_> {
    /// The bytes of the frame.
    pub const fn bytes(&mut self) -> &mut [u8] {
        self.bytes
    }
}

impl Drop for RingFrame<'_> {
    fn drop(&mut self) {
        status(&self.slot).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

/// The status word, which shows whether a slot belongs to the kernel or to this process.
const fn status(slot: &NonNull<u8>) -> &AtomicU32 {
    // SAFETY: every slot begins with this word, aligned to 16 bytes; both sides only access it as a whole. The mapping
    // outlives the borrow, which is that of a pointer made within `PacketRing::take` or kept by a `RingFrame` that
    // borrows the ring.
    unsafe { slot.cast::<AtomicU32>().as_ref() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{ETHERNET_HEADER_LEN, EtherSocket};
    use crate::poll;
    use crate::records::send_many;
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    /// The two EtherTypes for experiments (IEEE 802), so that no other frames interfere. Each of the two tests has its
    /// own, because both run at the same time on one interface.
    const ETHER_TYPES: [u16; 2] = [0x88b5, 0x88b6];

    fn on_loopback(ether_type: u16) -> Option<EtherSocket> {
        match EtherSocket::open("lo", ether_type) {
            Ok(socket) => Some(socket),
            Err(e) => {
                eprintln!("SKIP packet ring: {e}; run as root");
                None
            }
        }
    }

    fn wait(socket: &EtherSocket) {
        let until = Instant::now() + Duration::from_secs(120);
        assert_eq!(poll::any_readable(&[socket.fd.as_fd()], Some(until)), Ok(vec![true]));
    }

    #[test]
    fn frames_come_in_order_round_the_ring_and_each_place_is_used_again() {
        let Some(socket) = on_loopback(ETHER_TYPES[0]) else { return };
        let mut ring = PacketRing::attach(&socket.fd, 1000, 1).unwrap();
        let header: [u8; ETHERNET_HEADER_LEN] = socket.header_to(socket.mac);
        assert!(ring.slots < 200, "three times round is more than this test sends");
        assert!(ring.take().is_none());
        for round in 0..30u8 {
            let frames: Vec<Vec<u8>> = (0..20).map(|n| vec![n; 900 + usize::from(round)]).collect();
            assert_eq!(send_many(&socket.sender, frames.iter().map(|f| (&header, &f[..]))), Ok(20));
            for frame in &frames {
                wait(&socket);
                let mut came = ring.take().unwrap();
                assert_eq!(came.bytes(), frame, "round {round}");
            }
            assert!(ring.take().is_none());
        }
    }

    #[test]
    fn a_full_ring_loses_what_comes_last_and_a_frame_too_long_is_skipped() {
        let Some(socket) = on_loopback(ETHER_TYPES[1]) else { return };
        let mut ring = PacketRing::attach(&socket.fd, 1000, 1).unwrap();
        let header = socket.header_to(socket.mac);
        let long = vec![1; 3 * ring.slot_bytes];
        let body = [2; 64];
        let room = ring.slots - 1;
        assert_eq!(send_many(&socket.sender, [(&header, &long[..])].into_iter()), Ok(1));
        for n in 0..ring.slots + 20 {
            let tail = [&[n as u8][..], &body].concat();
            assert_eq!(send_many(&socket.sender, [(&header, &tail[..])].into_iter()), Ok(1));
        }
        wait(&socket);
        for n in 0..room {
            let mut frame = ring.take().unwrap();
            assert_eq!(frame.bytes()[0], n as u8);
        }
        assert!(ring.take().is_none(), "the ring was full");
    }

    #[test]
    fn other_sockets_get_no_ring() {
        let socket = OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let error = PacketRing::attach(&socket, 1500, 1 << 20).unwrap_err();
        assert!(error.to_string().contains("PACKET_VERSION"), "{error}");
    }
}
