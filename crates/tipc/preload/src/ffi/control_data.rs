//! Control data of received messages: writes TIPC's own, and looks for TIPC sockets among the descriptors received on
//! other sockets.

use std::ffi::c_int;

use libc::msghdr;

use crate::adopt;
use crate::receive::{Arrival, RETURNED_LEN};

const SOL_TIPC: c_int = 271;
const ERRINFO: c_int = 1;
const RETDATA: c_int = 2;
const DESTNAME: c_int = 3;

/// Size of struct cmsghdr.
const HEADER: usize = size_of::<libc::cmsghdr>();

/// The program's control buffer, which is filled from the start.
struct Room {
    start: *mut u8,
    len: usize,
    used: usize,
    cut: bool,
}

impl Room {
    /// Appends an item. Like the kernel's put_cmsg, cuts it if there is not enough room.
    fn put(&mut self, kind: c_int, data: &[u8]) {
        let left = self.len - self.used;
        if left < HEADER {
            self.cut = true;
            return;
        }
        let whole = HEADER + data.len();
        let len = whole.min(left);
        self.cut |= len < whole;
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&len.to_ne_bytes());
        header[8..12].copy_from_slice(&SOL_TIPC.to_ne_bytes());
        header[12..16].copy_from_slice(&kind.to_ne_bytes());
        // SAFETY: `used + len` is at most the length of the room.
        unsafe {
            let at = self.start.add(self.used);
            std::ptr::copy_nonoverlapping(header.as_ptr(), at, HEADER);
            std::ptr::copy_nonoverlapping(data.as_ptr(), at.add(HEADER), len - HEADER);
        }
        self.used += whole.next_multiple_of(align_of::<usize>()).min(left);
    }

    fn put_numbers(&mut self, kind: c_int, numbers: &[u32]) {
        let (raw, len) = bytes(numbers);
        self.put(kind, &raw[..len]);
    }
}

/// Encodes up to three numbers as bytes. Returns a buffer, and how many of its bytes are used.
fn bytes(numbers: &[u32]) -> ([u8; 12], usize) {
    let mut raw = [0; 12];
    for (place, number) in raw.chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
    (raw, 4 * numbers.len().min(3))
}

/// Writes the control data of a message. Returns false if the program's buffer was too small for all of it; true if the
/// program passed no buffer.
///
/// # Safety
/// The message's control buffer must be writable for its whole length.
pub(super) unsafe fn give(
    message: &mut msghdr,
    arrival: &Arrival,
    returned: &[u8; RETURNED_LEN],
) -> bool {
    let len = if message.msg_control.is_null() { 0 } else { message.msg_controllen };
    let mut room = Room { start: message.msg_control.cast(), len, used: 0, cut: false };
    // A program without a control buffer does not want any, so nothing is cut.
    if len > 0 {
        if let Some((code, len)) = arrival.error {
            room.put_numbers(ERRINFO, &[code, len]);
            if len > 0 {
                room.put(RETDATA, &returned[..(len as usize).min(RETURNED_LEN)]);
            }
        }
        if let Some(service) = arrival.service {
            room.put_numbers(DESTNAME, &[service.service, service.lower, service.upper]);
        }
    }
    message.msg_controllen = room.used as _;
    !room.cut
}

/// Registers those of the descriptors received on another socket that are TIPC sockets.
///
/// # Safety
/// A successful recvmsg has filled in the message.
pub(super) unsafe fn look(message: &msghdr) {
    if message.msg_control.is_null() || message.msg_controllen == 0 {
        return;
    }
    // SAFETY: the kernel filled it in.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message).as_ref() };
    while let Some(header) = next {
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            let count = header.cmsg_len.saturating_sub(HEADER) / size_of::<c_int>();
            for n in 0..count {
                // SAFETY: this many descriptors follow the header.
                adopt::adopt(unsafe {
                    libc::CMSG_DATA(header).cast::<c_int>().add(n).read_unaligned()
                });
            }
        }
        // SAFETY: as for the first.
        next = unsafe { libc::CMSG_NXTHDR(message, header).as_ref() };
    }
}
