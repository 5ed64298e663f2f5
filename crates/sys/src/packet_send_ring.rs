//! The send ring of a packet socket (packet(7), PACKET_TX_RING in version 2): many frames by one call, without a message header, a
//! check and a look-up of the socket for each.
//!
//! The kernel would usually send a ring's pages themselves and say that a place is free as soon as the device let go of it. Here it copies
//! every frame whole: each begins with a header for PACKET_VNET_HDR (struct virtio_net_hdr) that declares all of the frame to be headers,
//! and these the kernel copies. So a place may be written again whatever becomes of the frame on its way.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::shm::Mapping;
use crate::{Errno, OsError, socket};

/// Octets of the record before a frame; a tpacket2_hdr is aligned to 16.
const RECORD_OCTETS: usize = size_of::<libc::tpacket2_hdr>().next_multiple_of(16);

/// Octets of a virtio_net_hdr.
const VNET_OCTETS: usize = 10;

/// Where a virtio_net_hdr says how many octets are headers, two octets.
const VNET_HEADERS: usize = 2;

/// Least octets of one piece of the ring's memory; a frame never crosses from one piece into the next.
const BLOCK_OCTETS: usize = 64 << 10;

/// Frames beyond this gain nothing from a ring, and their length would soon not fit the field that has them copied.
const FRAME_OCTETS_MOST: usize = 16 << 10;

/// A ring of frames on their way out.
#[derive(Debug)]
pub struct SendRing {
    mapping: Mapping,
    block_octets: usize,
    slot_octets: usize,
    slots_per_block: usize,
    slots: usize,
    next: usize,
    /// Frames from `next` on that the kernel was not shown yet.
    put: usize,
}

impl SendRing {
    /// Gives a packet socket (SOCK_RAW) a ring of about `octets` for frames of up to `largest` octets, hardware header included.
    ///
    /// # Errors
    /// [`OsError`]: frames so long are not sent this way (EMSGSIZE), there is not so much memory (ENOMEM), or this is no packet socket.
    pub fn attach(fd: &OwnedFd, largest: usize, octets: usize) -> Result<Self, OsError> {
        if largest > FRAME_OCTETS_MOST {
            let what = format!("frames of {largest} octets");
            return Err(OsError::new("setsockopt(PACKET_TX_RING)", what, Errno::MSGSIZE));
        }
        let slot_octets = (RECORD_OCTETS + VNET_OCTETS + largest).next_multiple_of(64);
        let slots_per_block = BLOCK_OCTETS / slot_octets;
        let blocks = octets.div_ceil(BLOCK_OCTETS).max(2);
        let slots = blocks * slots_per_block;
        let number = |n: i32| n.to_ne_bytes();
        let version = number(libc::tpacket_versions::TPACKET_V2 as i32);
        socket::set_raw(fd, libc::SOL_PACKET, libc::PACKET_VERSION, Some(&version))
            .map_err(|e| OsError::new("setsockopt(PACKET_VERSION)", "version 2", e))?;
        socket::set_raw(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, Some(&number(1)))
            .map_err(|e| OsError::new("setsockopt(PACKET_VNET_HDR)", "", e))?;
        // A tpacket_req: octets of a block, blocks, octets of a slot, slots.
        let mut request = [0; size_of::<libc::tpacket_req>()];
        for (field, value) in
            request.chunks_exact_mut(4).zip([BLOCK_OCTETS, blocks, slot_octets, slots])
        {
            field.copy_from_slice(&(value as u32).to_ne_bytes());
        }
        let made = socket::set_raw(fd, libc::SOL_PACKET, libc::PACKET_TX_RING, Some(&request))
            .map_err(|e| {
                let what = format!("{slots} frames of {largest}");
                OsError::new("setsockopt(PACKET_TX_RING)", what, e)
            });
        let mapping = made.and_then(|()| Mapping::lazily(fd, blocks * BLOCK_OCTETS, true));
        let mapping = mapping.inspect_err(|_| {
            // Messages are sent as before: a ring of no slots is none, and they have no such header.
            let none = [0; size_of::<libc::tpacket_req>()];
            let _ = socket::set_raw(fd, libc::SOL_PACKET, libc::PACKET_TX_RING, Some(&none));
            let off = number(0);
            let _ = socket::set_raw(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, Some(&off));
        })?;
        Ok(Self {
            mapping,
            block_octets: BLOCK_OCTETS,
            slot_octets,
            slots_per_block,
            slots,
            next: 0,
            put: 0,
        })
    }

    /// Sends frames of two parts each by one call, without waiting, through the socket that the ring is attached to; tells how many went.
    ///
    /// # Errors
    /// That of the first frame: EAGAIN and ENOBUFS mean no room for now, EMSGSIZE that it is longer than the ring's largest. One that befalls
    /// a later frame ends the call before it, and comes with the next call.
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

    /// Puts a frame of two parts behind the others; [`SendRing::launch`] sends them.
    ///
    /// # Errors
    /// EAGAIN: no place is free; EMSGSIZE: it is longer than the ring's largest.
    pub fn put(&mut self, header: &[u8], body: &[u8]) -> Result<(), Errno> {
        if self.put == self.slots {
            return Err(Errno::AGAIN);
        }
        self.fill((self.next + self.put) % self.slots, header, body)?;
        self.put += 1;
        Ok(())
    }

    /// Sends what was put there by one call, without waiting; tells how many went. What the kernel did not take is not kept, but handed back
    /// in its order.
    ///
    /// # Errors
    /// That of the first frame, as [`SendRing::send`].
    pub fn launch(&mut self, fd: impl AsFd, mut back: impl FnMut(&[u8])) -> Result<usize, Errno> {
        let put = std::mem::take(&mut self.put);
        if put == 0 {
            return Ok(0);
        }
        let first = self.next;
        let outcome = socket::send(fd, &[], true);
        // The kernel begins again where it stopped, and so does `next`.
        let untaken = libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_WRONG_FORMAT;
        let slot = |n| (first + n) % self.slots;
        let taken = |n: &usize| self.status(slot(*n)).load(Ordering::Acquire) & untaken == 0;
        // Mostly all of them went, and the last one tells.
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

    /// Where a slot begins.
    fn slot(&self, slot: usize) -> NonNull<u8> {
        let (block, place) = (slot / self.slots_per_block, slot % self.slots_per_block);
        // SAFETY: callers pass numbers below `slots`, so that the whole slot lies within the mapping.
        unsafe { self.mapping.start().add(block * self.block_octets + place * self.slot_octets) }
    }

    /// Whose turn a slot is.
    fn status(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: every slot begins with this word, aligned to 64 octets; both sides only access it as a whole. The mapping outlives the
        // borrow, which is that of `self`.
        unsafe { self.slot(slot).cast::<AtomicU32>().as_ref() }
    }

    /// The frame in a slot that was filled and not taken.
    fn frame(&self, slot: usize) -> &[u8] {
        let start = self.slot(slot).as_ptr();
        // SAFETY: `fill` wrote this record, whose length covers the octets behind it that it wrote too, all within the slot; the kernel
        // does not touch a slot that it has not taken outside of the call that takes it.
        unsafe {
            let len = (&raw const (*start.cast::<libc::tpacket2_hdr>()).tp_len).read() as usize;
            let octets = start.add(RECORD_OCTETS + VNET_OCTETS);
            std::slice::from_raw_parts(octets, len - VNET_OCTETS)
        }
    }

    /// Fills a slot.
    fn fill(&self, slot: usize, header: &[u8], body: &[u8]) -> Result<(), Errno> {
        let len = header.len() + body.len();
        if RECORD_OCTETS + VNET_OCTETS + len > self.slot_octets {
            return Err(Errno::MSGSIZE);
        }
        // Still with the device, or with a queue before it.
        let busy = libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_SENDING;
        if self.status(slot).load(Ordering::Acquire) & busy != 0 {
            return Err(Errno::AGAIN);
        }
        let mut vnet = [0; VNET_OCTETS];
        // Below FRAME_OCTETS_MOST, rounded up to a slot's octets.
        vnet[VNET_HEADERS..VNET_HEADERS + 2].copy_from_slice(&(len as u16).to_ne_bytes());
        let start = self.slot(slot).as_ptr();
        // SAFETY: the slot holds the record and so many octets behind it, as was just checked, and the kernel does not touch it before
        // the status says so, which it does last. The record's fields lie at the places that its type gives them.
        unsafe {
            let record: *mut libc::tpacket2_hdr = start.cast();
            (&raw mut (*record).tp_len).write((VNET_OCTETS + len) as u32);
            let mut at = start.add(RECORD_OCTETS);
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

    /// The types for experiments (IEEE 802) are those of the tests of the receive ring; this one is nobody's.
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
        // Every place of the ring has been written three times by now, and nothing was received yet.
        for n in 0..count {
            let mut frame = inward.take().unwrap_or_else(|| panic!("frame {n} of {count}"));
            assert_eq!(frame.octets(), body(n), "frame {n}");
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
        // A socket that gets no ring still sends messages.
        let Some(other) = on_loopback() else { return };
        assert!(SendRing::attach(&other.sender, 60_000, 1).is_err());
        assert!(SendRing::attach(&other.sender, 1_000, 1 << 45).is_err());
        let messages = [(&header, &[5; 100][..])];
        assert_eq!(crate::records::send_many(&other.sender, messages.into_iter()), Ok(1));
    }

    #[test]
    fn what_the_kernel_refuses_is_taken_back_and_its_place_is_free() {
        let outcome = std::thread::spawn(|| {
            // SAFETY: only this thread leaves, and it has no descriptors of a network that anybody relies on.
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
