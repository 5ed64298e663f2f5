//! AF_XDP sockets: frames of an interface in memory that the kernel and a program share.
//!
//! The memory consists of chunks, each for one frame. Four queues pass the chunks between the
//! kernel and the program: empty ones to receive into (fill), received ones (rx), ones to send
//! (tx), and sent ones (completion). Each side of a socket uses two of them: [`Receiver`],
//! [`Sender`].

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;

use crate::pages::{Pages, View};
use crate::shm::{Mapping, page_len};
use crate::{OsError, socket};

/// Size in bytes of a chunk.
pub const CHUNK_LEN: usize = 4096;

/// Length in bytes of the longest frame that fits into a chunk: in a received one, the kernel
/// leaves 256 bytes free.
pub const LONGEST_FRAME: usize = CHUNK_LEN - 256;

/// How often a sender asks the kernel again to send what it could not.
const TRIES: u32 = 10_000;

/// Size in bytes of the memory of a socket whose queues have `depth` entries: the first half is for
/// received frames, the second for sent ones.
pub fn memory_len(depth: u32) -> usize {
    2 * depth as usize * CHUNK_LEN
}

/// Creates a socket on queue 0 of an interface, over memory of [`memory_len`]. `depth`, a power of
/// two, is the number of frames that each queue holds.
///
/// # Errors
/// EPERM without CAP_NET_RAW, EAFNOSUPPORT without CONFIG_XDP_SOCKETS, ENOBUFS if too little memory
/// may be locked.
pub fn open(interface: u32, memory: &Pages, depth: u32) -> Result<OwnedFd, OsError> {
    // SAFETY: socket takes no pointers; the descriptor is new and owned by nobody else.
    let fd = unsafe {
        let fd = libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(OsError::last("socket", "AF_XDP"));
        }
        OwnedFd::from_raw_fd(fd)
    };
    let set = |name, what: &'static str, value: &[u8]| {
        socket::set_raw(&fd, libc::SOL_XDP, name, Some(value))
            .map_err(|e| OsError::new("setsockopt", what, e))
    };
    // struct xdp_umem_reg of Linux 5.4, which later kernels take, too: address, length, chunk size,
    // room before the frame, flags.
    let mut memory_is = [0; 32];
    memory_is[0..8].copy_from_slice(&memory.address().to_ne_bytes());
    memory_is[8..16].copy_from_slice(&(memory_len(depth) as u64).to_ne_bytes());
    memory_is[16..20].copy_from_slice(&(CHUNK_LEN as u32).to_ne_bytes());
    set(libc::XDP_UMEM_REG, "XDP_UMEM_REG", &memory_is)?;
    for (name, what) in [
        (libc::XDP_UMEM_FILL_RING, "XDP_UMEM_FILL_RING"),
        (libc::XDP_UMEM_COMPLETION_RING, "XDP_UMEM_COMPLETION_RING"),
        (libc::XDP_RX_RING, "XDP_RX_RING"),
        (libc::XDP_TX_RING, "XDP_TX_RING"),
    ] {
        set(name, what, &depth.to_ne_bytes())?;
    }
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_COPY,
        sxdp_ifindex: interface,
        sxdp_queue_id: 0,
        sxdp_shared_umem_fd: 0,
    };
    let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: the address is a whole sockaddr_xdp that outlives the call.
    let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
    if bound != 0 {
        return Err(OsError::last("bind", "AF_XDP socket"));
    }
    // From now on and not only when a receiver takes the socket over: in another process, that may
    // be after the peer has sent, and a frame for which no chunk is free is lost.
    let [_, _, fill, _] = places(&fd)?;
    let mut fill = Queue::map(&fd, libc::XDP_UMEM_PGOFF_FILL_RING, depth, &fill)?;
    for chunk in 0..u64::from(depth) {
        fill.produce(chunk * CHUNK_LEN as u64);
    }
    Ok(fd)
}

/// Number of frames for which the socket had no room.
///
/// # Errors
/// It is not an AF_XDP socket.
pub fn dropped(fd: impl AsFd) -> Result<u64, Errno> {
    // struct xdp_statistics; kernels before Linux 5.9 know its first three numbers only.
    let mut numbers = [0; size_of::<libc::xdp_statistics>()];
    socket::twin::read_option(fd, libc::SOL_XDP, libc::XDP_STATISTICS, &mut numbers)?;
    let number = |nth: usize| u64::from_ne_bytes(std::array::from_fn(|i| numbers[8 * nth + i]));
    // No chunk was free; the queue was full.
    Ok(number(0) + number(3))
}

/// Where a queue's words are in its mapping, in bytes.
struct Places {
    producer: usize,
    consumer: usize,
    entries: usize,
}

/// One of the four queues. This process is either its producer or its consumer.
#[derive(Debug)]
struct Queue<T> {
    mapping: Mapping,
    producer: usize,
    consumer: usize,
    entries: usize,
    mask: u32,
    /// How many entries this process has produced or consumed.
    position: u32,
    _entry: std::marker::PhantomData<T>,
}

impl<T: Copy> Queue<T> {
    fn map(fd: &OwnedFd, at: u64, depth: u32, places: &Places) -> Result<Self, OsError> {
        let len = places.entries + depth as usize * size_of::<T>();
        let len = len.next_multiple_of(page_len());
        let mapping = Mapping::lazily_from(fd, at, len, true)?;
        let words = [places.producer, places.consumer];
        if words.iter().any(|at| !at.is_multiple_of(4) || at + 4 > len) {
            return Err(OsError::new("getsockopt", "XDP_MMAP_OFFSETS", Errno::INVAL));
        }
        Ok(Queue {
            mapping,
            producer: places.producer,
            consumer: places.consumer,
            entries: places.entries,
            mask: depth - 1,
            position: 0,
            _entry: std::marker::PhantomData,
        })
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: within the mapping and aligned, as `map` checked; both sides access it
        // atomically.
        unsafe { self.mapping.start().add(at).cast::<AtomicU32>().as_ref() }
    }

    fn entry(&self) -> NonNull<T> {
        let at = self.entries + (self.position & self.mask) as usize * size_of::<T>();
        // SAFETY: the mapping has room for all entries behind `entries`, and the mask keeps the
        // index below their number.
        unsafe { self.mapping.start().add(at).cast() }
    }

    /// Whether there is no entry to consume.
    #[inline]
    fn is_empty(&self) -> bool {
        self.word(self.producer).load(Ordering::Acquire) == self.position
    }

    /// Whether the kernel has consumed all that this process produced.
    #[inline]
    fn is_consumed(&self) -> bool {
        self.word(self.consumer).load(Ordering::Acquire) == self.position
    }

    #[inline]
    fn consume(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: the kernel has published this entry and leaves it alone until it is consumed.
        let entry = unsafe { self.entry().read_unaligned() };
        self.position = self.position.wrapping_add(1);
        self.word(self.consumer).store(self.position, Ordering::Release);
        Some(entry)
    }

    /// Adds an entry. There is always room: no more chunks exist than the queue has entries.
    #[inline]
    fn produce(&mut self, entry: T) {
        // SAFETY: an entry that the kernel has consumed or that was never used.
        unsafe { self.entry().write_unaligned(entry) };
        self.position = self.position.wrapping_add(1);
        self.word(self.producer).store(self.position, Ordering::Release);
    }
}

/// Where the words of the four queues are: rx, tx, fill, completion.
fn places(fd: &OwnedFd) -> Result<[Places; 4], OsError> {
    let mut numbers = [0; size_of::<libc::xdp_mmap_offsets>()];
    let len = socket::twin::read_option(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, &mut numbers)
        .map_err(|e| OsError::new("getsockopt", "XDP_MMAP_OFFSETS", e))?;
    // Before Linux 5.4, a queue has three numbers: no flags.
    let each = len / 4;
    Ok(std::array::from_fn(|queue| {
        let number = |nth: usize| {
            let at = queue * each + 8 * nth;
            u64::from_ne_bytes(std::array::from_fn(|i| numbers[at + i])) as usize
        };
        Places { producer: number(0), consumer: number(1), entries: number(2) }
    }))
}

/// The queues and the memory for receiving.
#[derive(Debug)]
pub struct Receiver {
    received: Queue<libc::xdp_desc>,
    fill: Queue<u64>,
    memory: View,
}

impl Receiver {
    /// Takes over the receiving side of a new socket.
    ///
    /// # Errors
    /// The descriptor is no such socket, or `memory` is not its memory.
    pub fn new(fd: &OwnedFd, memory: BorrowedFd<'_>, depth: u32) -> Result<Receiver, OsError> {
        let [rx, _, fill, _] = places(fd)?;
        let received = Queue::map(fd, libc::XDP_PGOFF_RX_RING as u64, depth, &rx)?;
        let mut fill = Queue::map(fd, libc::XDP_UMEM_PGOFF_FILL_RING, depth, &fill)?;
        // [`open`] has put all chunks there.
        fill.position = depth;
        let memory = View::new(memory, memory_len(depth), memory_len(depth))?;
        Ok(Receiver { received, fill, memory })
    }

    /// Passes the next frame to `read`, if one has arrived.
    #[inline]
    pub fn take<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let frame = self.received.consume()?;
        let start = frame.addr as usize;
        let result = read(&self.memory.bytes()[start..start + frame.len as usize]);
        self.fill.produce(frame.addr - frame.addr % CHUNK_LEN as u64);
        Some(result)
    }
}

/// The queues and the memory for sending.
#[derive(Debug)]
pub struct Sender {
    to_send: Queue<libc::xdp_desc>,
    sent: Queue<u64>,
    memory: Pages,
    free: Vec<u64>,
    depth: u32,
}

impl Sender {
    /// Takes over the sending side of a new socket.
    ///
    /// # Errors
    /// The descriptor is no such socket, or `memory` is not its memory.
    pub fn new(fd: &OwnedFd, memory: OwnedFd, depth: u32) -> Result<Sender, OsError> {
        let [_, tx, _, completion] = places(fd)?;
        // A signed number of 32 bits on some processors.
        let at = u64::from(libc::XDP_PGOFF_TX_RING as u32);
        let to_send = Queue::map(fd, at, depth, &tx)?;
        let sent = Queue::map(fd, libc::XDP_UMEM_PGOFF_COMPLETION_RING, depth, &completion)?;
        let memory = Pages::of_memfd(memory)?;
        if memory.len() < memory_len(depth) {
            return Err(OsError::new("mmap", "memory of an AF_XDP socket", Errno::INVAL));
        }
        let free = (depth..2 * depth).map(|chunk| u64::from(chunk) * CHUNK_LEN as u64).collect();
        Ok(Sender { to_send, sent, memory, free, depth })
    }

    fn reap(&mut self) {
        while let Some(chunk) = self.sent.consume() {
            self.free.push(chunk);
        }
    }

    /// Sends a frame that consists of two parts, at most [`LONGEST_FRAME`] bytes.
    ///
    /// # Errors
    /// EMSGSIZE: the frame is too long. EAGAIN: no chunk is free. Others are of the interface.
    #[inline]
    pub fn send(&mut self, fd: &OwnedFd, header: &[u8], body: &[u8]) -> Result<(), Errno> {
        let len = header.len() + body.len();
        if len > LONGEST_FRAME {
            return Err(Errno::MSGSIZE);
        }
        self.reap();
        let addr = self.free.pop().ok_or(Errno::AGAIN)?;
        let start = addr as usize;
        let chunk = self.memory.bytes_mut(start..start + len);
        let (first, second) = chunk.split_at_mut(header.len());
        first.copy_from_slice(header);
        second.copy_from_slice(body);
        self.to_send.produce(libc::xdp_desc { addr, len: len as u32, options: 0 });
        self.launch(fd)
    }

    /// Makes the kernel send what is queued.
    #[inline]
    fn launch(&mut self, fd: &OwnedFd) -> Result<(), Errno> {
        for _ in 0..TRIES {
            let flags = rustix::net::SendFlags::DONTWAIT;
            match rustix::net::send(fd, &[], flags) {
                Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
            if self.to_send.is_consumed() {
                return Ok(());
            }
            // The kernel sends a number of frames per call, and waits until the other end's
            // interface has room.
            std::thread::yield_now();
            self.reap();
        }
        Err(Errno::NOBUFS)
    }

    /// Waits until the kernel has passed on everything that was sent, or gives up.
    pub fn settle(&mut self, fd: &OwnedFd) {
        for _ in 0..TRIES {
            self.reap();
            if self.free.len() == self.depth as usize {
                return;
            }
            let _ = self.launch(fd);
            std::thread::yield_now();
        }
    }
}
