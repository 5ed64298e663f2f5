//! Sends many datagrams with one call. A run, which is a sequence of datagrams to one address, is sent as one message
//! that the kernel splits (UDP_SEGMENT); on reception the kernel joins datagrams into one message again (UDP_GRO). See
//! udp(7).

use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::OsError;
use crate::records::{MOST_SENT, send_headers};
use crate::socket::{Address, set_raw};

/// Maximum number of segments in a run: UDP_MAX_SEGMENTS of the oldest kernels that support UDP_SEGMENT.
const SEGMENTS_MOST: usize = 64;

/// Maximum length of a run in bytes, so that it still fits an IP packet with its headers.
const RUN_BYTES_MAX: usize = 65_000;

/// Space for one control message with an integer.
// SAFETY: CMSG_SPACE only calculates.
const CONTROL_LEN: usize = unsafe { libc::CMSG_SPACE(size_of::<libc::c_int>() as u32) } as usize;

/// Buffer for the one control message of a datagram: the length of a run's segments.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Control([u8; CONTROL_LEN]);

impl Control {
    pub(crate) const EMPTY: Self = Self([0; CONTROL_LEN]);
    pub(crate) const LEN: usize = CONTROL_LEN;

    /// Creates the control message that makes the kernel split a message into pieces of `len` bytes.
    fn cut(len: u16) -> Self {
        let mut control = Self::EMPTY;
        let header: *mut libc::cmsghdr = control.0.as_mut_ptr().cast();
        // SAFETY: the room is as large as CMSG_SPACE of a larger value says and aligned for the header; CMSG_DATA lies
        // in it.
        unsafe {
            (*header).cmsg_level = libc::SOL_UDP;
            (*header).cmsg_type = libc::UDP_SEGMENT;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
            libc::CMSG_DATA(header).cast::<u16>().write_unaligned(len);
        }
        control
    }

    /// The length of the segments that the kernel joined, from the `len` bytes of control messages received; `None` if
    /// it joined none.
    pub(crate) fn joined(&self, len: usize) -> Option<usize> {
        let header: *const libc::cmsghdr = self.0.as_ptr().cast();
        // SAFETY: CMSG_LEN only calculates; the header is read only if the received bytes contain it and its value,
        // which are aligned and lie within the buffer.
        let segment = unsafe {
            let full = libc::CMSG_LEN(size_of::<libc::c_int>() as u32) as usize;
            if len < full || (*header).cmsg_len < full {
                return None;
            }
            if ((*header).cmsg_level, (*header).cmsg_type) != (libc::SOL_UDP, libc::UDP_GRO) {
                return None;
            }
            libc::CMSG_DATA(header).cast::<libc::c_int>().read_unaligned()
        };
        usize::try_from(segment).ok()
    }
}

/// Asks the kernel to join datagrams that arrive together into one message, a run. The receiver splits it again
/// ([`crate::records::Inbox::of_runs`]).
///
/// # Errors
/// Kernels before 5.0 do not know the option.
pub fn join_runs(fd: impl AsFd) -> Result<(), OsError> {
    set_raw(fd, libc::SOL_UDP, libc::UDP_GRO, Some(&1_u32.to_ne_bytes()))
        .map_err(|e| OsError::new("setsockopt(UDP_GRO)", "", e))
}

/// What a call to [`send_many_to`] sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Number of datagrams.
    pub datagrams: usize,
    /// Number of messages that carried more than one datagram.
    pub runs: usize,
}

/// Consecutive datagrams that are sent as one message.
#[derive(Clone, Copy)]
struct Run<'a> {
    to: &'a Address,
    /// Length in bytes of each datagram except the last, which may be shorter.
    segment: usize,
    last: usize,
    bytes: usize,
    count: usize,
}

impl Run<'_> {
    fn takes(&self, to: &Address, len: usize, segment_max: usize) -> bool {
        len > 0
            && self.segment <= segment_max
            && self.last == self.segment
            && len <= self.segment
            && self.count < SEGMENTS_MOST
            && self.bytes + len <= RUN_BYTES_MAX
            && self.to == to
    }
}

/// Sends up to [`MOST_SENT`] datagrams, each to its own address, without waiting. Consecutive datagrams to one address
/// with equal lengths of up to `segment_max` bytes (the last may be shorter) are sent as one message that the kernel
/// splits. If `segment_max` is 0, each datagram is sent as a message of its own.
///
/// # Errors
/// The error of the first message. An error of a later message ends the call before that message and is returned by the
/// next call. For a run, EIO, EINVAL, EMSGSIZE and others may mean that the route to that address does not support
/// splitting.
pub fn send_many_to<'a>(
    fd: impl AsFd,
    datagrams: impl Iterator<Item = (&'a Address, &'a [u8])>,
    segment_max: usize,
) -> Result<Sent, Errno> {
    let mut parts: [MaybeUninit<libc::iovec>; MOST_SENT] =
        [const { MaybeUninit::uninit() }; MOST_SENT];
    let mut runs: [Option<Run<'_>>; MOST_SENT] = [None; MOST_SENT];
    let mut count = 0_usize;
    for ((to, bytes), part) in datagrams.zip(&mut parts) {
        let len = bytes.len();
        part.write(libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: len });
        let before = count.checked_sub(1).and_then(|n| runs[n].as_mut());
        if let Some(run) = before.filter(|run| run.takes(to, len, segment_max)) {
            run.last = len;
            run.bytes += len;
            run.count += 1;
        } else {
            runs[count] = Some(Run { to, segment: len, last: len, bytes: len, count: 1 });
            count += 1;
        }
    }
    let mut headers: [MaybeUninit<libc::mmsghdr>; MOST_SENT] =
        [const { MaybeUninit::uninit() }; MOST_SENT];
    let mut controls: [MaybeUninit<Control>; MOST_SENT] =
        [const { MaybeUninit::uninit() }; MOST_SENT];
    let mut part = parts.as_mut_ptr();
    for ((run, header), control) in runs.iter().flatten().zip(&mut headers).zip(&mut controls) {
        // SAFETY: mmsghdr is plain data, and all zeros is a valid value.
        let header = header.write(unsafe { std::mem::zeroed() });
        header.msg_hdr.msg_name = run.to.as_ptr().cast_mut().cast();
        header.msg_hdr.msg_namelen = run.to.addr_len();
        header.msg_hdr.msg_iov = part.cast();
        header.msg_hdr.msg_iovlen = run.count as _;
        if run.count > 1 {
            // The length of a run's segments is below RUN_BYTES_MAX.
            let control = control.write(Control::cut(run.segment as u16));
            header.msg_hdr.msg_control = (&raw mut *control).cast();
            header.msg_hdr.msg_controllen = Control::LEN as _;
        }
        // SAFETY: the counts of the runs add up to the number of parts written, so the pointer stays within the array
        // or at its end.
        part = unsafe { part.add(run.count) };
    }
    // SAFETY: the first `count` headers are initialised; each points to as many iovecs as its run has datagrams, and
    // those to bytes that are borrowed for 'a, as are the addresses, whose lengths stand next to the pointers; each
    // control message belongs to its header.
    let sent = unsafe { send_headers(fd, &mut headers, count)? };
    let gone = || runs[..sent].iter().flatten();
    Ok(Sent {
        datagrams: gone().map(|run| run.count).sum(),
        runs: gone().filter(|run| run.count > 1).count(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Inbox;
    use std::net::UdpSocket;

    fn pair() -> (UdpSocket, UdpSocket, Address) {
        let [a, b] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let to = crate::socket::inet_address(b.local_addr().unwrap());
        (a, b, to)
    }

    fn came(inbox: &mut Inbox, n: usize) -> Vec<usize> {
        inbox.segments_mut(n).unwrap().map(|segment| segment.len()).collect()
    }

    #[test]
    fn many_datagrams_go_to_an_address_each_by_one_call() {
        let [a, b, c] = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let to = [&b, &c, &b].map(|s| crate::socket::inet_address(s.local_addr().unwrap()));
        let bytes = [&b"one"[..], b"two", b"three"];
        let sent = send_many_to(&a, to.iter().zip(bytes), 1000);
        assert_eq!(sent, Ok(Sent { datagrams: 3, runs: 0 }), "neighbours have different addresses");
        let mut inbox = Inbox::new(256);
        assert_eq!(inbox.receive(&b), Ok(2));
        assert_eq!((inbox.get(0), inbox.get(1)), (Some(&b"one"[..]), Some(&b"three"[..])));
        assert_eq!(inbox.receive(&c), Ok(1));
        assert_eq!(inbox.get_mut(0).map(|bytes| &*bytes), Some(&b"two"[..]));
        assert_eq!(send_many_to(&a, std::iter::empty(), 1000), Ok(Sent::default()));
    }

    #[test]
    fn runs_go_as_one_message_and_come_as_one_or_each_by_itself() {
        let (a, b, to) = pair();
        // Two runs, the first ended by its shorter last segment, and one datagram that is alone because of its length.
        let bytes: Vec<Vec<u8>> =
            [900, 900, 400, 500, 500, 1200].iter().map(|len| vec![*len as u8; *len]).collect();
        let all = || bytes.iter().map(|bytes| (&to, &bytes[..]));
        assert_eq!(send_many_to(&a, all(), 900), Ok(Sent { datagrams: 6, runs: 2 }));
        let mut inbox = Inbox::of_runs(65_536);
        assert_eq!(inbox.receive(&b), Ok(6), "not asked to join them, the system takes them apart");
        join_runs(&b).unwrap();
        assert_eq!(send_many_to(&a, all(), 900), Ok(Sent { datagrams: 6, runs: 2 }));
        assert_eq!(inbox.receive(&b), Ok(3));
        let lens: Vec<_> = (0..3).map(|n| came(&mut inbox, n)).collect();
        assert_eq!(lens, [vec![900, 900, 400], vec![500, 500], vec![1200]]);
        let second = inbox.segments_mut(0).unwrap().nth(1).unwrap();
        assert_eq!(*second, bytes[1]);
        // Segments beyond the limit are sent individually.
        assert_eq!(send_many_to(&a, all(), 499), Ok(Sent { datagrams: 6, runs: 0 }));
        assert_eq!(inbox.receive(&b), Ok(6));
    }

    #[test]
    fn a_run_stays_within_the_system_s_bounds() {
        let (a, b, to) = pair();
        join_runs(&b).unwrap();
        let many = [[7_u8; 1000]; 80];
        let all = many.iter().map(|bytes| (&to, &bytes[..]));
        let sent = send_many_to(&a, all, 1000);
        assert_eq!(sent, Ok(Sent { datagrams: 80, runs: 2 }), "64 and the other 16");
        let large = vec![3_u8; 9000];
        let all = std::iter::repeat_n((&to, &large[..]), 10);
        let sent = send_many_to(&a, all, 9000);
        assert_eq!(sent, Ok(Sent { datagrams: 10, runs: 2 }), "seven of 9,000 bytes and three");
        // An empty datagram is sent too, and does not end a run as its last segment.
        let empty = [&[1_u8; 10][..], &[], &[2; 10]];
        let sent = send_many_to(&a, empty.iter().map(|bytes| (&to, *bytes)), 1000);
        assert_eq!(sent, Ok(Sent { datagrams: 3, runs: 0 }));
        let mut inbox = Inbox::of_runs(65_536);
        assert_eq!(inbox.receive(&b), Ok(7));
        let lens: Vec<_> = (0..7).map(|n| came(&mut inbox, n)).collect();
        assert_eq!((&lens[0][..], &lens[1][..]), (&[1000; 64][..], &[1000; 16][..]));
        assert_eq!((&lens[2][..], &lens[3][..]), (&[9000; 7][..], &[9000; 3][..]));
        assert_eq!(lens[4..], [vec![10], vec![0], vec![10]]);
        let too_many = std::iter::repeat_n((&to, &[1_u8; 10][..]), MOST_SENT + 1);
        assert_eq!(send_many_to(&a, too_many, 1000), Ok(Sent { datagrams: MOST_SENT, runs: 2 }));
    }

    #[test]
    fn implausible_segment_lengths_are_handled() {
        let mut control = Control::cut(1400);
        assert_eq!(
            control.joined(Control::LEN),
            None,
            "a sender's control message is none of these"
        );
        let header: *mut libc::cmsghdr = control.0.as_mut_ptr().cast();
        // SAFETY: as in `cut`.
        let says = |kind, value: libc::c_int, len: usize| unsafe {
            (*header).cmsg_type = kind;
            (*header).cmsg_len = len as _;
            libc::CMSG_DATA(header).cast::<libc::c_int>().write_unaligned(value);
            (*header.cast::<Control>()).joined(Control::LEN)
        };
        // SAFETY: only calculates.
        let full = unsafe { libc::CMSG_LEN(4) } as usize;
        assert_eq!(says(libc::UDP_GRO, 1400, full), Some(1400));
        assert_eq!(says(libc::UDP_GRO, 0, full), Some(0));
        assert_eq!(says(libc::UDP_GRO, -1, full), None);
        assert_eq!(says(libc::UDP_GRO, 1400, full - 1), None);
        assert_eq!(says(libc::UDP_SEGMENT, 1400, full), None);
        assert_eq!(control.joined(0), None, "none came");
    }
}
