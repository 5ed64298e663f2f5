//! The send ring of a packet socket (packet(7), PACKET_TX_RING version 2): sends many frames with one call. No frame
//! needs a message header, a check or a socket look-up of its own.
//!
//! By default the kernel would transmit the ring's pages themselves and mark a slot as free only when the device has
//! released it. Here it copies every frame whole: each begins with a header for PACKET_VNET_HDR (struct virtio_net_hdr)
//! that declares the entire frame to be headers, and the kernel copies headers. So a slot can be reused regardless of
//! what happens to the frame later.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::shm::Mapping;
use crate::{Errno, OsError, socket};

/// Length in bytes of the record before a frame; a tpacket2_hdr is aligned to 16.
const RECORD_BYTES: usize = size_of::<libc::tpacket2_hdr>().next_multiple_of(16);

/// Length in bytes of a virtio_net_hdr.
const VNET_BYTES: usize = 10;

/// Offset of the two-byte field in a virtio_net_hdr that holds the length of the headers.
const VNET_HEADERS: usize = 2;

/// Minimum size in bytes of one block of the ring's memory; a frame never crosses a block boundary.
const BLOCK_BYTES: usize = 64 << 10;

/// Maximum length in bytes of a frame. Longer ones gain nothing from a ring, and their length would soon exceed the
/// field that makes the kernel copy them.
const FRAME_BYTES_MAX: usize = 16 << 10;

/// A ring of frames to be sent.
#[derive(Debug)]
pub struct SendRing {
    mapping: Mapping,
    block_bytes: usize,
    slot_bytes: usize,
    slots_per_block: usize,
    slots: usize,
    next: usize,
    /// Number of frames, starting at `next`, that were put but not yet launched.
    put: usize,
}

impl SendRing {
    /// Gives a packet socket (SOCK_RAW) a ring of about this many `bytes` for frames of up to `largest` bytes, hardware
    /// header included.
    ///
    /// # Errors
    /// [`OsError`]: frames of this length are not supported (EMSGSIZE), there is not enough memory (ENOMEM), or this is
    /// not a packet socket.
    pub fn attach(fd: &OwnedFd, largest: usize, bytes: usize) -> Result<Self, OsError> {
        if largest > FRAME_BYTES_MAX {
            let what = format!("frames of {largest} bytes");
            return Err(OsError::new("setsockopt(PACKET_TX_RING)", what, Errno::MSGSIZE));
        }
        let slot_bytes = (RECORD_BYTES + VNET_BYTES + largest).next_multiple_of(64);
        let slots_per_block = BLOCK_BYTES / slot_bytes;
        let blocks = bytes.div_ceil(BLOCK_BYTES).max(2);
        let slots = blocks * slots_per_block;
        let number = |n: i32| n.to_ne_bytes();
        let version = number(libc::tpacket_versions::TPACKET_V2 as i32);
        socket::set_raw(fd, libc::SOL_PACKET, libc::PACKET_VERSION, Some(&version))
            .map_err(|e| OsError::new("setsockopt(PACKET_VERSION)", "version 2", e))?;
        socket::set_raw(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, Some(&number(1)))
            .map_err(|e| OsError::new("setsockopt(PACKET_VNET_HDR)", "", e))?;
        // A tpacket_req: bytes per block, number of blocks, bytes per slot, number of slots.
        let mut request = [0; size_of::<libc::tpacket_req>()];
        for (field, value) in
            request.chunks_exact_mut(4).zip([BLOCK_BYTES, blocks, slot_bytes, slots])
        {
            field.copy_from_slice(&(value as u32).to_ne_bytes());
        }
        let made = socket::set_raw(fd, libc::SOL_PACKET, libc::PACKET_TX_RING, Some(&request))
            .map_err(|e| {
                let what = format!("{slots} frames of {largest} bytes");
                OsError::new("setsockopt(PACKET_TX_RING)", what, e)
            });
        let mapping = made.and_then(|()| Mapping::lazily(fd, blocks * BLOCK_BYTES, true));
        let mapping = mapping.inspect_err(|_| {
            // Falls back to ordinary messages: a ring of zero slots removes the ring, and messages have no such header.
            let none = [0; size_of::<libc::tpacket_req>()];
            let _ = socket::set_raw(fd, libc::SOL_PACKET, libc::PACKET_TX_RING, Some(&none));
            let off = number(0);
            let _ = socket::set_raw(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, Some(&off));
        })?;
        Ok(Self {
            mapping,
            block_bytes: BLOCK_BYTES,
            slot_bytes,
            slots_per_block,
            slots,
            next: 0,
            put: 0,
        })
    }

    /// Sends frames, each given as header and body, through `fd`, the socket to which the ring is attached. Makes one
    /// call, which does not wait. Returns how many frames were sent.
    ///
    /// # Errors
    /// The error of the first frame: EAGAIN and ENOBUFS mean that there is no room for now, EMSGSIZE that the frame is
    /// longer than the ring's maximum. If a later frame fails, the call stops before it; the next call that begins with
    /// that frame returns the error.
    pub fn send<'a, H: AsRef<[u8]> + 'a>(
        &mut self,
        fd: impl AsFd,
        frames: impl Iterator<Item = (&'a H, &'a [u8])>,
    ) -> Result<usize, Errno> {
        let mut refused = None;
        for (header, body) in frames {
            if let Err(errno) = self.put(header.as_ref(), body) {
                refused = Some(errno);
                break;
            }
        }
        match self.launch(fd, |_| ()) {
            Ok(0) => refused.map_or(Ok(0), Err),
            outcome => outcome,
        }
    }

    /// Appends a frame, given as header and body, to the ring; [`SendRing::launch`] sends it.
    ///
    /// # Errors
    /// EAGAIN: no slot is free; EMSGSIZE: the frame is longer than the ring's maximum.
    pub fn put(&mut self, header: &[u8], body: &[u8]) -> Result<(), Errno> {
        if self.put == self.slots {
            return Err(Errno::AGAIN);
        }
        self.fill((self.next + self.put) % self.slots, header, body)?;
        self.put += 1;
        Ok(())
    }

    /// Sends the frames that were put into the ring, with one call and without waiting; returns how many were sent.
    /// Frames that the kernel did not accept are removed from the ring and passed to `back` in order.
    ///
    /// # Errors
    /// The error of the first frame, as with [`SendRing::send`].
    pub fn launch(&mut self, fd: impl AsFd, mut back: impl FnMut(&[u8])) -> Result<usize, Errno> {
        let put = std::mem::take(&mut self.put);
        if put == 0 {
            return Ok(0);
        }
        let first = self.next;
        let outcome = socket::send(fd, &[], true);
        // The kernel resumes where it stopped, and so does `next`.
        let untaken = libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_WRONG_FORMAT;
        let slot = |n| (first + n) % self.slots;
        let taken = |n: &usize| self.status(slot(*n)).load(Ordering::Acquire) & untaken == 0;
        // Usually all frames were sent, which the last one's status shows.
        let gone = if taken(&(put - 1)) { put } else { (0..put).take_while(taken).count() };
        for n in gone..put {
            back(self.frame(slot(n)));
            self.status(slot(n)).store(libc::TP_STATUS_AVAILABLE, Ordering::Release);
        }
        self.next = slot(gone);
        match (gone, outcome) {
            (0, Err(errno)) => Err(errno),
            (0, Ok(_)) => Err(Errno::AGAIN),
            (gone, _) => Ok(gone),
        }
    }

    /// The start of a slot.
    fn slot(&self, slot: usize) -> NonNull<u8> {
        let (block, place) = (slot / self.slots_per_block, slot % self.slots_per_block);
        // SAFETY: callers pass numbers below `slots`, so that the whole slot lies within the mapping.
        unsafe { self.mapping.start().add(block * self.block_bytes + place * self.slot_bytes) }
    }

    /// The status word, which shows whether a slot belongs to the kernel or to this process.
    fn status(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: every slot begins with this word, aligned to 64 bytes; both sides only access it as a whole. The
        // mapping outlives the borrow, which is that of `self`.
        unsafe { self.slot(slot).cast::<AtomicU32>().as_ref() }
    }

    /// The frame in a slot that was filled but not accepted by the kernel.
    fn frame(&self, slot: usize) -> &[u8] {
        let start = self.slot(slot).as_ptr();
        // SAFETY: `fill` wrote this record, whose length covers the bytes after it that it wrote too, all within the
        // slot; the kernel touches a slot that it has not taken only during the call that takes it.
        unsafe {
            let len = (&raw const (*start.cast::<libc::tpacket2_hdr>()).tp_len).read() as usize;
            let bytes = start.add(RECORD_BYTES + VNET_BYTES);
            std::slice::from_raw_parts(bytes, len - VNET_BYTES)
        }
    }

    /// Writes a frame into a slot.
    fn fill(&self, slot: usize, header: &[u8], body: &[u8]) -> Result<(), Errno> {
        let len = header.len() + body.len();
        if RECORD_BYTES + VNET_BYTES + len > self.slot_bytes {
            return Err(Errno::MSGSIZE);
        }
        // Still held by the device or by a queue in front of it.
        let busy = libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_SENDING;
        if self.status(slot).load(Ordering::Acquire) & busy != 0 {
            return Err(Errno::AGAIN);
        }
        let mut vnet = [0; VNET_BYTES];
        // Below FRAME_BYTES_MAX, rounded up to the slot size.
        vnet[VNET_HEADERS..VNET_HEADERS + 2].copy_from_slice(&(len as u16).to_ne_bytes());
        let start = self.slot(slot).as_ptr();
        // SAFETY: the slot holds the record and this many bytes after it, as was just checked, and the kernel does not
        // touch it before the status, which is written last, says so. The record's fields are at the offsets that its
        // type defines.
        unsafe {
            let record: *mut libc::tpacket2_hdr = start.cast();
            (&raw mut (*record).tp_len).write((VNET_BYTES + len) as u32);
            let mut at = start.add(RECORD_BYTES);
            for part in [&vnet[..], header, body] {
                at.copy_from_nonoverlapping(part.as_ptr(), part.len());
                at = at.add(part.len());
            }
        }
        self.status(slot).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{ETHERNET_HEADER_LEN, EtherSocket};
    use crate::packet_ring::PacketRing;
    use rustix::thread::UnshareFlags;

    /// The EtherTypes for experiments (IEEE 802) are used by the tests of the receive ring; this one is unassigned.
    const ETHER_TYPE: u16 = 0x88b7;

    fn on_loopback() -> Option<EtherSocket> {
        match EtherSocket::open("lo", ETHER_TYPE) {
            Ok(socket) => Some(socket),
            Err(e) => {
                eprintln!("SKIP send ring: {e}; run as root");
                None
            }
        }
    }

    #[test]
    fn frames_leave_in_order_round_the_ring_and_each_place_is_used_again() {
        let Some(socket) = on_loopback() else { return };
        let header: [u8; ETHERNET_HEADER_LEN] = socket.header_to(socket.mac);
        let mut out = SendRing::attach(&socket.sender, ETHERNET_HEADER_LEN + 1000, 1).unwrap();
        let mut inward = PacketRing::attach(&socket.fd, 1000, 1 << 20).unwrap();
        let count = 3 * out.slots + 7;
        assert!(count < 400, "{count} frames wait to be received");
        let body = |n: usize| vec![n as u8; 64 + n];
        let mut sent = 0;
        while sent < count {
            let bodies: Vec<_> = (sent..count.min(sent + 50)).map(body).collect();
            sent += out.send(&socket.sender, bodies.iter().map(|b| (&header, &b[..]))).unwrap();
        }
        // By now every slot of the ring has been written three times, and nothing was received yet.
        for n in 0..count {
            let mut frame = inward.take().unwrap_or_else(|| panic!("frame {n} of {count}"));
            assert_eq!(frame.bytes(), body(n), "frame {n}");
        }
        assert!(inward.take().is_none());
        assert_eq!(out.send(&socket.sender, std::iter::empty::<(&[u8; 14], _)>()), Ok(0));
    }

    #[test]
    fn a_frame_that_is_too_long_stops_those_behind_it_only() {
        let Some(socket) = on_loopback() else { return };
        let header = [0; ETHERNET_HEADER_LEN];
        let mut out = SendRing::attach(&socket.sender, ETHERNET_HEADER_LEN + 1000, 1).unwrap();
        let (short, long) = ([1; 100], [2; 1100]);
        let frames = [&short[..], &short, &long, &short];
        let all = || frames.iter().map(|f| (&header, *f));
        assert_eq!(out.send(&socket.sender, all()), Ok(2));
        assert_eq!(out.send(&socket.sender, all().skip(2)), Err(Errno::MSGSIZE));
        assert_eq!(out.send(&socket.sender, all().skip(3)), Ok(1));
        assert_eq!(out.put(&header, &long), Err(Errno::MSGSIZE));
        assert_eq!(out.launch(&socket.sender, |_| panic!("none was put")), Ok(0));
        // A socket without a ring still sends messages.
        let Some(other) = on_loopback() else { return };
        assert!(SendRing::attach(&other.sender, 60_000, 1).is_err());
        // More than any memory; no length of 32 bits is.
        #[cfg(target_pointer_width = "64")]
        assert!(SendRing::attach(&other.sender, 1_000, 1 << 45).is_err());
        let messages = [(&header, &[5; 100][..])];
        assert_eq!(crate::records::send_many(&other.sender, messages.into_iter()), Ok(1));
    }

    #[test]
    fn frames_that_the_kernel_refuses_are_handed_back_and_their_slots_are_free() {
        let outcome = std::thread::spawn(|| {
            // SAFETY: only this thread enters the new namespace, and it owns no network descriptors that anything
            // relies on.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
                .map_err(|e| OsError::new("unshare", "CLONE_NEWNET", e))?;
            // The loopback device of a new namespace is down.
            let socket = EtherSocket::open("lo", ETHER_TYPE)?;
            Ok::<_, OsError>((
                SendRing::attach(&socket.sender, ETHERNET_HEADER_LEN + 1000, 1)?,
                socket,
            ))
        })
        .join()
        .unwrap();
        let (mut out, socket) = match outcome {
            Ok(made) => made,
            Err(e) => {
                return eprintln!("SKIP send ring on a device that is down: {e}; run as root");
            }
        };
        let header = [0; ETHERNET_HEADER_LEN];
        for _ in 0..out.slots {
            let frames = std::iter::repeat_n((&header, &[7; 100][..]), 3);
            assert_eq!(out.send(&socket.sender, frames), Err(Errno::NETDOWN));
        }
        for n in 0..3 {
            out.put(&header, &[n; 60]).unwrap();
        }
        let mut back = Vec::new();
        let outcome = out.launch(&socket.sender, |frame| back.push(frame.to_vec()));
        assert_eq!(outcome, Err(Errno::NETDOWN));
        assert_eq!(back, [0, 1, 2].map(|n| [&header[..], &[n; 60]].concat()));
        assert_eq!(out.next, 0);
        assert!((0..out.slots).all(|n| out.status(n).load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn other_sockets_get_no_ring() {
        let socket = OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let error = SendRing::attach(&socket, 1514, 1 << 20).unwrap_err();
        assert!(error.to_string().contains("PACKET_VERSION"), "{error}");
    }
}
