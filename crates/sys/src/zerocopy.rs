//! Sends whose bytes the kernel may read from the sender's memory after the call, and the notices
//! that it no longer does (SO_ZEROCOPY, MSG_ZEROCOPY; `Documentation/networking/msg_zerocopy.rst`).

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::SendFlags;

use crate::OsError;
use crate::error::last_errno;
use crate::pages::Pages;
use crate::poll::timespec;
use crate::socket::{send_flags, set_raw};

/// SO_ZEROCOPY (asm-generic/socket.h).
const SO_ZEROCOPY: i32 = 60;
/// MSG_ZEROCOPY (linux/socket.h).
const MSG_ZEROCOPY: SendFlags = SendFlags::from_bits_retain(0x0400_0000);
/// The origin of notices about such sends (linux/errqueue.h).
const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
/// The bytes were copied all the same (linux/errqueue.h).
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;

/// Allows such sends on the socket, which must not be connected or listening yet.
///
/// # Errors
/// The kernel is older than 4.14, or has no such sends for sockets of this kind.
pub fn enable(fd: impl AsFd) -> Result<(), OsError> {
    set_raw(fd, libc::SOL_SOCKET, SO_ZEROCOPY, Some(&1_u32.to_ne_bytes()))
        .map_err(|e| OsError::new("setsockopt(SO_ZEROCOPY)", "", e))
}

/// Sends a range of the pages, and returns the number of bytes taken. ENOBUFS if the kernel may not
/// pin more memory for this user (`ulimit -l`) or this socket (net.core.optmem_max).
///
/// The kernel may read the bytes until a [`Notice`] covers the send; until then they must not be
/// written to. The sends of a socket that succeed are numbered from 0 on.
#[inline]
pub fn send(
    fd: impl AsFd,
    pages: &Pages,
    range: Range<usize>,
    nonblocking: bool,
) -> Result<usize, Errno> {
    let flags = send_flags(nonblocking) | MSG_ZEROCOPY;
    let bytes = pages.bytes(range);
    retry_on_intr(|| rustix::net::send(&fd, bytes, flags))
}

/// The kernel no longer reads the bytes of some sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The number of the first of these sends, modulo 2^32.
    pub first: u32,
    /// The number of the last one.
    pub last: u32,
    /// Whether the kernel has copied bytes of these sends after all, as it always does over loopback.
    pub copied: bool,
}

/// Takes the next notice from the socket's error queue; `None` if there is none.
pub fn take_notice(fd: impl AsFd) -> Result<Option<Notice>, Errno> {
    /// Room for one notice with the address that follows it.
    #[repr(C, align(8))]
    struct Control([u8; 128]);
    loop {
        let mut control = Control([0; 128]);
        // SAFETY: msghdr is plain data, and all zeros is a valid value.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = control.0.len() as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the only pointer in the header points to a live buffer of the length next to it.
        if unsafe { libc::recvmsg(fd.as_fd().as_raw_fd(), &mut header, flags) } < 0 {
            match last_errno() {
                Errno::INTR => continue,
                Errno::AGAIN => return Ok(None),
                errno => return Err(errno),
            }
        }
        // SAFETY: the header is as recvmsg left it, and the buffer that it points to is still there.
        let Some(message) = (unsafe { libc::CMSG_FIRSTHDR(&header).as_ref() }) else { continue };
        let is_error = [(libc::SOL_IP, libc::IP_RECVERR), (libc::SOL_IPV6, libc::IPV6_RECVERR)]
            .contains(&(message.cmsg_level, message.cmsg_type));
        if !is_error {
            continue;
        }
        // SAFETY: such a message begins with this structure, and the buffer is larger.
        let error =
            unsafe { libc::CMSG_DATA(message).cast::<libc::sock_extended_err>().read_unaligned() };
        if error.ee_origin == SO_EE_ORIGIN_ZEROCOPY {
            let copied = error.ee_code & SO_EE_CODE_ZEROCOPY_COPIED != 0;
            return Ok(Some(Notice { first: error.ee_info, last: error.ee_data, copied }));
        }
    }
}

/// Sleeps until there is a notice, the connection is gone, or the time has passed; `None`: for ever.
/// Returns whether the connection is gone: all its notices are there then.
pub fn await_notice(fd: impl AsFd, until: Option<Instant>) -> Result<bool, Errno> {
    // Errors and the end are reported without having been asked for.
    let mut fds = [PollFd::new(&fd, PollFlags::empty())];
    let left = until.map(|at| timespec(at.saturating_duration_since(Instant::now())));
    match poll(&mut fds, left.as_ref()) {
        Ok(_) => Ok(fds[0].revents().contains(PollFlags::HUP)),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;
    use crate::socket::{self, Inet};

    fn connected() -> (std::os::fd::OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let fd = socket::inet(Inet::Tcp, address).unwrap();
        enable(&fd).unwrap();
        socket::connect(&fd, &socket::inet_address(address)).unwrap();
        (fd, listener.accept().unwrap().0)
    }

    #[test]
    fn a_notice_covers_every_send_and_says_that_loopback_copies() {
        let (fd, mut peer) = connected();
        let pages = Pages::new("crossway-test", 8192).unwrap();
        assert_eq!(take_notice(&fd), Ok(None));
        for _ in 0..3 {
            assert_eq!(send(&fd, &pages, 0..8192, false), Ok(8192));
        }
        peer.read_exact(&mut [0; 3 * 8192]).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let mut next = 0;
        while next < 3 {
            assert_eq!(await_notice(&fd, Some(until)), Ok(false));
            while let Some(notice) = take_notice(&fd).unwrap() {
                assert_eq!(notice.first, next);
                assert!(notice.copied);
                next = notice.last + 1;
            }
            assert!(Instant::now() < until, "{next} of 3 sends");
        }
        assert_eq!(next, 3);
    }

    #[test]
    fn a_send_without_permission_gives_no_notice() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let pages = Pages::new("crossway-test", 4096).unwrap();
        assert_eq!(send(&stream, &pages, 0..4096, false), Ok(4096));
        assert_eq!(take_notice(&stream), Ok(None));
        let soon = Instant::now() + Duration::from_millis(1);
        assert_eq!(await_notice(&stream, Some(soon)), Ok(false));
    }
}
