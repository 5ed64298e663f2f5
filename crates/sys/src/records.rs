//! Messages that consist of a header and a body, over sockets that preserve message boundaries; one or many per call.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer, recvmsg, sendmsg,
};

use crate::datagrams::Control;
use crate::error::last_errno;
use crate::socket::{recv_flags, send_flags};

/// Maximum number of messages received by one call.
pub const MOST: usize = 64;

/// Maximum number of messages sent by one call: two messages of 64 KiB, fragmented for an MTU of 1500 bytes, fit into
/// one call.
pub const MOST_SENT: usize = 128;

/// Sends one message of two parts; never raises SIGPIPE.
#[inline]
pub fn send(fd: impl AsFd, header: &[u8], body: &[u8], nonblocking: bool) -> Result<usize, Errno> {
    send_parts(fd, &[IoSlice::new(header), IoSlice::new(body)], nonblocking)
}

/// Sends bytes from several buffers; never raises SIGPIPE.
#[inline]
pub fn send_parts(fd: impl AsFd, parts: &[IoSlice<'_>], nonblocking: bool) -> Result<usize, Errno> {
    retry_on_intr(|| {
        let control = &mut SendAncillaryBuffer::default();
        sendmsg(fd.as_fd(), parts, control, send_flags(nonblocking))
    })
}

/// The result of one receive call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Came {
    /// Length in bytes of header and body, including bytes that did not fit; 0 at the end of the stream.
    pub len: usize,
    /// Whether the body did not fit. The rest is then lost, unless the message was only peeked at.
    pub truncated: bool,
}

/// Receives one message into two parts; `peek` leaves it in the queue.
#[inline]
pub fn recv(
    fd: impl AsFd,
    header: &mut [u8],
    body: &mut [u8],
    nonblocking: bool,
    peek: bool,
) -> Result<Came, Errno> {
    let mut flags = RecvFlags::TRUNC | recv_flags(nonblocking);
    if peek {
        flags |= RecvFlags::PEEK;
    }
    let mut parts = [IoSliceMut::new(header), IoSliceMut::new(body)];
    loop {
        match recvmsg(fd.as_fd(), &mut parts, &mut RecvAncillaryBuffer::default(), flags) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
            Ok(got) => {
                return Ok(Came {
                    len: got.bytes,
                    truncated: got.flags.contains(ReturnFlags::TRUNC),
                });
            }
        }
    }
}

/// Where a message came from, as the kernel reports it.
#[derive(Clone, Copy)]
struct Source {
    /// All bytes are initialised.
    address: MaybeUninit<libc::sockaddr_storage>,
    /// Length in bytes of the part that the kernel wrote.
    len: libc::socklen_t,
}

/// Buffers for receiving many messages with one call.
pub struct Inbox {
    bytes: Vec<u8>,
    stride: usize,
    lens: [(usize, bool); MOST],
    /// Where the kernel reports the segment length of joined datagrams, if joining is enabled.
    controls: Option<Box<[Control; MOST]>>,
    /// For each message, the length in bytes of its segments except the last; 0: the message was not joined.
    segments: [usize; MOST],
    /// The senders' addresses, if they are wanted.
    sources: Option<Box<[Source; MOST]>>,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("stride", &self.stride).finish_non_exhaustive()
    }
}

impl Inbox {
    /// Creates buffers for messages of up to `largest` bytes.
    pub fn new(largest: usize) -> Self {
        // Buffers are an odd number of cache lines apart, so that their beginnings do not compete for the same few
        // cache sets.
        let stride = (largest.div_ceil(64) | 1) * 64;
        Self {
            bytes: vec![0; stride * MOST],
            stride,
            lens: [(0, false); MOST],
            controls: None,
            segments: [0; MOST],
            sources: None,
        }
    }

    /// As [`Inbox::new`], for a socket that joins datagrams ([`crate::datagrams::join_runs`]); `largest` applies to the
    /// joined message.
    pub fn of_runs(largest: usize) -> Self {
        Self { controls: Some(Box::new([Control::EMPTY; MOST])), ..Self::new(largest) }
    }

    /// Also keeps the sender's address of each message, for [`Inbox::source`].
    #[must_use]
    pub fn with_sources(self) -> Self {
        Self {
            sources: Some(Box::new([Source { address: MaybeUninit::zeroed(), len: 0 }; MOST])),
            ..self
        }
    }

    /// Receives the messages that are available, at most [`MOST`], without waiting; returns how many, or EAGAIN if
    /// there are none. The end of the stream is a message of length 0. Fewer than [`MOST`] means that the queue was
    /// empty at that moment.
    pub fn receive(&mut self, fd: impl AsFd) -> Result<usize, Errno> {
        self.receive_up_to(fd, MOST)
    }

    /// As [`Inbox::receive`], for at most `most` messages.
    pub fn receive_up_to(&mut self, fd: impl AsFd, most: usize) -> Result<usize, Errno> {
        let most = most.min(MOST);
        let mut parts: [MaybeUninit<libc::iovec>; MOST] = [const { MaybeUninit::uninit() }; MOST];
        let mut headers: [MaybeUninit<libc::mmsghdr>; MOST] =
            [const { MaybeUninit::uninit() }; MOST];
        for (n, chunk) in self.bytes.chunks_exact_mut(self.stride).take(most).enumerate() {
            let part = parts[n]
                .write(libc::iovec { iov_base: chunk.as_mut_ptr().cast(), iov_len: chunk.len() });
            // SAFETY: mmsghdr is plain data, and all zeros is a valid value.
            let header = headers[n].write(unsafe { std::mem::zeroed() });
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            if let Some(controls) = &mut self.controls {
                header.msg_hdr.msg_control = (&raw mut controls[n]).cast();
                header.msg_hdr.msg_controllen = Control::LEN as _;
            }
            if let Some(sources) = &mut self.sources {
                header.msg_hdr.msg_name = sources[n].address.as_mut_ptr().cast();
                header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as _;
            }
        }
        let count = loop {
            // SAFETY: all headers are initialised; each points to one iovec, and that to a separate chunk of the length
            // next to it, as do the pointers for the control message and the sender's address where there are any; all
            // of them live until the call returns.
            let count = unsafe {
                libc::recvmmsg(
                    fd.as_fd().as_raw_fd(),
                    headers.as_mut_ptr().cast(),
                    most as u32,
                    (libc::MSG_DONTWAIT | libc::MSG_TRUNC) as _,
                    std::ptr::null_mut(),
                )
            };
            match usize::try_from(count) {
                Ok(count) => break count,
                Err(_) if last_errno() == Errno::INTR => {}
                Err(_) => return Err(last_errno()),
            }
        };
        for (n, header) in headers.iter().enumerate().take(count) {
            // SAFETY: initialised above.
            let header = unsafe { header.assume_init_ref() };
            let full = header.msg_len as usize;
            self.lens[n] = (full.min(self.stride), header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0);
            let told = header.msg_hdr.msg_controllen;
            self.segments[n] =
                self.controls.as_ref().and_then(|c| c[n].joined(told)).unwrap_or_default();
            if let Some(sources) = &mut self.sources {
                sources[n].len = header.msg_hdr.msg_namelen;
            }
        }
        Ok(count)
    }

    /// Message `n` of those received by the last call; `None` if it was longer than the buffers.
    pub fn get(&self, n: usize) -> Option<&[u8]> {
        let (len, truncated) = self.lens[n];
        (!truncated).then(|| &self.bytes[n * self.stride..][..len])
    }

    /// The IP address and port that message `n` of those received by the last call came from; `None` if sources are not
    /// kept ([`Inbox::with_sources`]) or the sender has no IP address.
    pub fn source(&self, n: usize) -> Option<SocketAddr> {
        let Source { address, len } = &self.sources.as_ref()?[n];
        // SAFETY: the room was zeroed, and all bytes that the kernel wrote there are valid in these plain types; each
        // is read only if its family says so and the kernel wrote all of it.
        unsafe {
            let family = i32::from((*address.as_ptr()).ss_family);
            if family == libc::AF_INET && *len as usize >= size_of::<libc::sockaddr_in>() {
                let v4 = &*address.as_ptr().cast::<libc::sockaddr_in>();
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
            } else if family == libc::AF_INET6 && *len as usize >= size_of::<libc::sockaddr_in6>() {
                let v6 = &*address.as_ptr().cast::<libc::sockaddr_in6>();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                Some(SocketAddr::new(ip.into(), u16::from_be(v6.sin6_port)))
            } else {
                None
            }
        }
    }

    /// As [`Inbox::get`], for a reader that decodes in place.
    pub fn get_mut(&mut self, n: usize) -> Option<&mut [u8]> {
        let (len, truncated) = self.lens[n];
        (!truncated).then(|| &mut self.bytes[n * self.stride..][..len])
    }

    /// The datagrams that were joined into message `n`; just one if it was not joined, and `None` as for
    /// [`Inbox::get`]. A segment length that does not match the message yields segments that nobody sent, but never
    /// bytes of other messages.
    pub fn segments_mut(&mut self, n: usize) -> Option<impl Iterator<Item = &mut [u8]>> {
        let segment = self.segments[n];
        let bytes = self.get_mut(n)?;
        let empty = bytes.is_empty().then(<&mut [u8]>::default);
        let segment = if segment == 0 { bytes.len() } else { segment };
        Some(empty.into_iter().chain(bytes.chunks_mut(segment.max(1))))
    }
}

/// Sends up to [`MOST_SENT`] messages of two parts each, without waiting; returns how many were sent. EAGAIN when not
/// even the first message was sent.
pub fn send_many<'a, H: AsRef<[u8]> + 'a>(
    fd: impl AsFd,
    messages: impl Iterator<Item = (&'a H, &'a [u8])>,
) -> Result<usize, Errno> {
    let mut parts: [MaybeUninit<[libc::iovec; 2]>; MOST_SENT] =
        [const { MaybeUninit::uninit() }; MOST_SENT];
    let mut headers: [MaybeUninit<libc::mmsghdr>; MOST_SENT] =
        [const { MaybeUninit::uninit() }; MOST_SENT];
    let mut count = 0;
    for (n, (header, body)) in messages.take(MOST_SENT).enumerate() {
        let part = |bytes: &[u8]| libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let pair = parts[n].write([part(header.as_ref()), part(body)]);
        // SAFETY: mmsghdr is plain data, and all zeros is a valid value.
        let header = headers[n].write(unsafe { std::mem::zeroed() });
        header.msg_hdr.msg_iov = pair.as_mut_ptr();
        header.msg_hdr.msg_iovlen = 2;
        count = n + 1;
    }
    // SAFETY: the first `count` headers are initialised; each points to two iovecs, and those to bytes that are
    // borrowed for 'a.
    unsafe { send_headers(fd, &mut headers, count) }
}

/// Sends the messages of the first `count` headers.
///
/// # Safety
/// These headers are initialised, and the memory they point to is readable until the call returns; the kernel only
/// reads it.
pub(crate) unsafe fn send_headers(
    fd: impl AsFd,
    headers: &mut [MaybeUninit<libc::mmsghdr>; MOST_SENT],
    count: usize,
) -> Result<usize, Errno> {
    loop {
        // SAFETY: the caller promises it.
        let sent = unsafe {
            libc::sendmmsg(
                fd.as_fd().as_raw_fd(),
                headers.as_mut_ptr().cast(),
                count as u32,
                (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
            )
        };
        match usize::try_from(sent) {
            Ok(sent) => return Ok(sent),
            Err(_) if last_errno() == Errno::INTR => {}
            Err(_) => return Err(last_errno()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{SocketType, unix_pair};

    #[test]
    fn messages_of_two_parts_arrive_one_by_one_and_together() {
        let (a, b) = unix_pair(SocketType::Seqpacket).unwrap();
        assert_eq!(send(&a, b"head", b"body", true), Ok(8));
        let (mut head, mut body) = ([0; 4], [0; 3]);
        let cut = Came { len: 8, truncated: true };
        assert_eq!(recv(&b, &mut head, &mut body, true, true), Ok(cut));
        assert_eq!(recv(&b, &mut head, &mut body, true, false), Ok(cut));
        assert_eq!((&head, &body), (b"head", b"bod"));
        let many = [(b"1", &b"one"[..]), (b"2", &[]), (b"3", b"three")];
        assert_eq!(send_many(&a, many.into_iter()), Ok(3));
        assert_eq!(send(&a, b"", &[7; 300], true), Ok(300));
        drop(a);
        let mut inbox = Inbox::new(256);
        // After the end of the stream every further slot reports the end, too.
        assert_eq!(inbox.receive(&b), Ok(MOST));
        assert_eq!(inbox.get(0), Some(&b"1one"[..]));
        assert_eq!(inbox.get(1), Some(&b"2"[..]));
        assert_eq!(inbox.get(2), Some(&b"3three"[..]));
        assert_eq!(inbox.get(3), Some(&[7; 300][..]), "the buffers are rounded up");
        assert_eq!(inbox.get(4), Some(&b""[..]), "the end");
    }

    #[test]
    fn messages_name_the_socket_that_they_came_from() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(to) = std::net::UdpSocket::bind(host) else {
                assert_eq!(host, "[::1]:0", "there is no IPv4");
                eprintln!("SKIP addresses of IPv6 senders: this host has no IPv6");
                continue;
            };
            let from: Vec<_> = (0..3).map(|_| std::net::UdpSocket::bind(host).unwrap()).collect();
            for socket in &from {
                socket.send_to(b"x", to.local_addr().unwrap()).unwrap();
            }
            let mut inbox = Inbox::new(64).with_sources();
            assert_eq!(inbox.receive(&to), Ok(3));
            for (n, socket) in from.iter().enumerate() {
                assert_eq!(inbox.source(n), Some(socket.local_addr().unwrap()));
            }
        }
        let (a, b) = unix_pair(SocketType::Seqpacket).unwrap();
        send(&a, b"", b"x", true).unwrap();
        for (mut inbox, who) in
            [(Inbox::new(64).with_sources(), "unnamed"), (Inbox::new(64), "not kept")]
        {
            assert!(inbox.receive(&b).is_ok() || who == "not kept");
            assert_eq!(inbox.source(0), None, "{who}");
        }
    }

    #[test]
    fn messages_longer_than_the_buffers_are_reported() {
        let (a, b) = unix_pair(SocketType::Seqpacket).unwrap();
        send(&a, b"", &[1; 1000], true).unwrap();
        let mut inbox = Inbox::new(64);
        assert_eq!(inbox.receive(&b), Ok(1));
        assert_eq!(inbox.get(0), None);
        assert_eq!(inbox.receive(&b), Err(Errno::AGAIN));
        while send(&a, b"", &[1; 1000], true).is_ok() {}
        assert_eq!(send_many(&a, [(b"x", &b"y"[..])].into_iter()), Err(Errno::AGAIN));
    }

    #[test]
    fn segments_that_do_not_divide_the_bytes_still_cover_them_once() {
        let (a, b) = unix_pair(SocketType::Seqpacket).unwrap();
        let mut inbox = Inbox::of_runs(256);
        let all: Vec<u8> = (0..100).collect();
        send(&a, b"", &all, true).unwrap();
        assert_eq!(inbox.receive(&b), Ok(1));
        for (segment, count) in [(0, 1), (1, 100), (30, 4), (99, 2), (100, 1), (usize::MAX, 1)] {
            inbox.segments[0] = segment;
            let found: Vec<Vec<u8>> = inbox.segments_mut(0).unwrap().map(|s| s.to_vec()).collect();
            assert_eq!(
                (found.len(), found.concat()),
                (count, all.clone()),
                "segments of {segment}"
            );
        }
        // Not only closed: a process that another test is starting may have a copy for a moment.
        rustix::net::shutdown(&a, rustix::net::Shutdown::Both).unwrap();
        assert_eq!(inbox.receive(&b), Ok(MOST));
        assert_eq!(inbox.segments_mut(0).unwrap().count(), 1, "an empty message is one segment");
    }
}
