//! io_uring with memory that it knows beforehand: an [`Outbox`] sends from a registered buffer
//! (IORING_REGISTER_BUFFERS), and one request of an [`Inbox`] receives every message that comes
//! (IORING_RECV_MULTISHOT, Linux 6.0), each into a buffer out of those that were provided for it
//! (IORING_REGISTER_PBUF_RING).

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

use io_uring::squeue::Entry;
use io_uring::types::{BufRingEntry, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};
use rustix::io::Errno;

use crate::OsError;
use crate::pages::Pages;
use crate::shm::{Mapping, create_sealed, page_len};
use crate::uring::{self, Ring, Waiting};

/// A ring that sends from memory of its own, which is registered.
#[derive(Debug)]
pub struct Outbox {
    ring: Ring,
    memory: Pages,
}

impl Outbox {
    /// Creates a ring, and a buffer for messages of `largest` bytes.
    ///
    /// # Errors
    /// Those of [`Ring::new`], and `ENOMEM` if the buffer is more than may be locked.
    pub fn new(largest: usize) -> Result<Outbox, OsError> {
        let ring = Ring::new()?;
        let memory = Pages::new("crossway-uring", largest)?;
        ring.register(&memory)?;
        Ok(Outbox { ring, memory })
    }

    /// Where the next message of `len` bytes is to be written.
    ///
    /// # Panics
    /// If the buffer is shorter.
    #[inline]
    pub fn message(&mut self, len: usize) -> &mut [u8] {
        self.memory.bytes_mut(0..len)
    }

    /// Sends what was written, to a socket that keeps message boundaries; `None` if there was no room in time. The
    /// program must ignore SIGPIPE.
    ///
    /// # Errors
    /// Those of write(2).
    #[inline]
    pub fn send(
        &mut self,
        socket: impl AsFd,
        len: usize,
        waiting: Waiting,
    ) -> Result<Option<usize>, Errno> {
        self.ring.write_registered(socket, &self.memory, len, waiting)
    }
}

/// What has arrived in an inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// A message.
    Message {
        /// The buffer that holds it until [`Inbox::give_back`].
        buffer: u16,
        /// Its length in bytes, at most that of the buffer.
        len: usize,
    },
    /// A message without bytes, or the end.
    Nothing,
}

/// The user data of requests.
const RECEIVE: u64 = 1;
const CANCELLATION: u64 = 2;

/// Number of entries in the submission queue: enough for the request and its cancellation.
const ENTRIES: u32 = 4;

/// The only group of provided buffers.
const GROUP: u16 = 0;

/// Most buffers of an inbox; the list of them has one page.
pub const MOST_BUFFERS: usize = 64;

/// A ring with one request, which receives all messages of a socket.
///
/// While all buffers hold messages, further ones wait in the socket.
pub struct Inbox {
    ring: IoUring,
    /// A page with the list of the buffers that the kernel may fill, and the buffers. Not unmapped while the kernel may
    /// write.
    memory: ManuallyDrop<Mapping>,
    buffers: usize,
    buffer_bytes: usize,
    /// How many buffers were given to the kernel so far, modulo 65,536.
    tail: u16,
    /// Whether the request is in flight.
    armed: bool,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("fd", &self.ring.as_raw_fd()).finish_non_exhaustive()
    }
}

impl AsFd for Inbox {
    /// The descriptor polls readable when something has arrived, as long as [`Inbox::arm`] is called after everything
    /// that has arrived was taken.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps its descriptor open as long as `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl Inbox {
    /// Creates a ring with buffers of `buffer_bytes` each.
    ///
    /// # Errors
    /// Those of [`Ring::new`], and `EINVAL` before Linux 5.19.
    ///
    /// # Panics
    /// If these are no buffers, or more than [`MOST_BUFFERS`].
    pub fn new(buffers: usize, buffer_bytes: usize) -> Result<Inbox, OsError> {
        assert!((1..=MOST_BUFFERS).contains(&buffers), "{buffers} buffers");
        let ring = uring::set_up(|| {
            // Two more for ends of the request.
            let completions = (buffers as u32 + 2).next_power_of_two();
            IoUring::builder().setup_cqsize(completions).build(ENTRIES)
        })?;
        let bytes = page_len() + buffers * buffer_bytes;
        let memory = Mapping::new(create_sealed("crossway-uring", bytes)?, bytes)?;
        let list = memory.start().as_ptr() as u64;
        let places = (buffers as u16).next_power_of_two();
        uring::when_released(|| {
            // SAFETY: the list is empty, begins at a page boundary, and has room for `places` entries. The memory stays
            // mapped until the ring is closed.
            unsafe { ring.submitter().register_buf_ring_with_flags(list, places, GROUP, 0) }
        })
        .map_err(|e| OsError::new("io_uring_register", format!("{buffers} buffers"), e))?;
        let memory = ManuallyDrop::new(memory);
        let mut inbox = Inbox { ring, memory, buffers, buffer_bytes, tail: 0, armed: false };
        (0..buffers as u16).for_each(|buffer| inbox.provide(buffer));
        Ok(inbox)
    }

    /// Puts a buffer into the list of those that the kernel may fill.
    #[inline]
    fn provide(&mut self, buffer: u16) {
        let places = self.buffers.next_power_of_two();
        let list = self.memory.start().as_ptr().cast::<BufRingEntry>();
        let start = self.start_of(buffer);
        // SAFETY: the place is within the list, which is mapped, aligned, and all zeros at first. The kernel reads a place
        // only after the tail has passed it. The tail lies in the first place, in bytes that none of these calls writes,
        // and is only written by this thread.
        unsafe {
            let place = &mut *list.add(usize::from(self.tail) & (places - 1));
            place.set_addr(start as u64);
            place.set_len(self.buffer_bytes as u32);
            place.set_bid(buffer);
            self.tail = self.tail.wrapping_add(1);
            let tail = BufRingEntry::tail(list).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Ordering::Release);
        }
    }

    #[inline]
    fn start_of(&self, buffer: u16) -> *mut u8 {
        let offset = page_len() + usize::from(buffer) * self.buffer_bytes;
        assert!(usize::from(buffer) < self.buffers, "buffer {buffer} of {}", self.buffers);
        // SAFETY: the buffer lies within the mapping, as was just checked.
        unsafe { self.memory.start().as_ptr().add(offset) }
    }

    /// The bytes of a message that has arrived and was not given back.
    ///
    /// # Panics
    /// If it is none of this inbox.
    #[inline]
    pub fn bytes(&self, buffer: u16, len: usize) -> &[u8] {
        assert!(len <= self.buffer_bytes, "{len} of {} bytes", self.buffer_bytes);
        // SAFETY: within the buffer, whose bytes are initialised. The kernel has filled it and does not write to it again
        // before it is given back, for which `self` must be borrowed exclusively. Nobody else has the memory.
        unsafe { std::slice::from_raw_parts(self.start_of(buffer), len) }
    }

    /// Lets the kernel fill the buffer of a message again.
    ///
    /// # Panics
    /// If it is none of this inbox.
    #[inline]
    pub fn give_back(&mut self, buffer: u16) {
        self.provide(buffer);
    }

    /// What arrived next; EAGAIN if nothing has arrived by now.
    ///
    /// # Errors
    /// Those of recv(2); EINVAL before Linux 6.0.
    #[inline]
    pub fn take(&mut self) -> Result<Arrived, Errno> {
        loop {
            let entry = self.ring.completion().next().ok_or(Errno::AGAIN)?;
            if entry.user_data() != RECEIVE {
                continue;
            }
            self.armed &= cqueue::more(entry.flags());
            let buffer = cqueue::buffer_select(entry.flags());
            match (usize::try_from(entry.result()), buffer) {
                (Ok(len), Some(buffer)) if len > 0 => return Ok(Arrived::Message { buffer, len }),
                (Ok(_), buffer) => {
                    if let Some(unused) = buffer {
                        self.provide(unused);
                    }
                    return Ok(Arrived::Nothing);
                }
                (Err(_), _) => match Errno::from_raw_os_error(-entry.result()) {
                    // All buffers were in use; or the thread that made the request has ended.
                    Errno::NOBUFS | Errno::CANCELED | Errno::INTR | Errno::AGAIN => {}
                    errno => return Err(errno),
                },
            }
        }
    }

    /// Makes the request unless it is in flight, and returns whether it did. What is in the socket has then arrived.
    ///
    /// # Errors
    /// The kernel has no memory for the request.
    #[inline]
    pub fn arm(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Errno> {
        if self.armed {
            return Ok(false);
        }
        self.receive(socket)?;
        self.enter(0, None)?;
        Ok(true)
    }

    /// Sleeps until something arrives, the time has come, or a signal arrives.
    ///
    /// # Errors
    /// The kernel has no memory for the request.
    #[inline]
    pub fn sleep(&mut self, socket: BorrowedFd<'_>, until: Option<Instant>) -> Result<(), Errno> {
        self.receive(socket)?;
        self.enter(1, until)
    }

    /// Queues the request, unless it is in flight.
    #[inline]
    fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        if !self.armed {
            let receive = opcode::RecvMulti::new(Fd(socket.as_raw_fd()), GROUP).build();
            self.push(&receive.user_data(RECEIVE))?;
            self.armed = true;
        }
        Ok(())
    }

    #[inline]
    fn push(&mut self, entry: &Entry) -> Result<(), Errno> {
        // SAFETY: the requests of this module point to no memory but the provided buffers, which live until none is in
        // flight; the kernel takes references to their descriptors when they are submitted.
        unsafe { self.ring.submission().push(entry) }.map_err(|_| Errno::BUSY)
    }

    #[inline]
    fn enter(&mut self, want: usize, until: Option<Instant>) -> Result<(), Errno> {
        let outcome = match until {
            None => self.ring.submit_and_wait(want),
            Some(until) => {
                let time = Timespec::from(until.saturating_duration_since(Instant::now()));
                self.ring.submitter().submit_with_args(want, &SubmitArgs::new().timespec(&time))
            }
        };
        match outcome.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL)) {
            // What could not be submitted will be in the next call.
            Ok(_) | Err(Errno::INTR | Errno::TIME | Errno::AGAIN | Errno::BUSY) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Ends the request.
    fn disarm(&mut self) -> Result<(), Errno> {
        self.push(&opcode::AsyncCancel::new(RECEIVE).build().user_data(CANCELLATION))?;
        while self.armed {
            self.enter(1, None)?;
            while !matches!(self.take(), Err(Errno::AGAIN)) {}
        }
        Ok(())
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        // The kernel ends the requests of a closed ring later, and may write until then.
        if !self.armed || self.disarm().is_ok() {
            // SAFETY: nothing uses the memory from here on.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

#[cfg(test)]
#[path = "uring_buffers_tests.rs"]
mod tests;
