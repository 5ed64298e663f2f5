//! A heap in shared memory from which space is allocated and freed in ring order, for mechanisms that announce each
//! message by other means. The *head* is the position up to which the reader has freed space.

use crate::layout::{ASLEEP, AWAKE, LINE};
use crate::memory::RingMemory;
use crate::region::SharedRing;
use crate::sync::{Ordering, fence};

/// The error for a head that no correct peer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedHead;

/// The space in bytes that a message takes: whole cache lines, so that no two messages share one.
fn room_for(len: usize) -> u64 {
    len.next_multiple_of(LINE) as u64
}

/// The end that allocates space and writes.
pub struct HeapWriter {
    ring: SharedRing,
    tail: u64,
    head_seen: u64,
}

impl HeapWriter {
    /// Creates the writing end of a new ring.
    pub fn new(ring: SharedRing) -> Self {
        HeapWriter { ring, tail: 0, head_seen: 0 }
    }

    /// The shared memory.
    pub fn ring(&self) -> &SharedRing {
        &self.ring
    }

    /// The position of the next message, counted since the heap was created.
    pub fn position(&self) -> u64 {
        self.tail
    }

    /// The head at which there is room for a message of `len` bytes.
    #[inline]
    pub fn head_for(&self, len: usize) -> u64 {
        (self.tail + room_for(len)).saturating_sub(self.ring.capacity() as u64)
    }

    /// Whether the reader's head has reached `wanted`.
    #[inline]
    pub fn head_reaches(&mut self, wanted: u64) -> Result<bool, DamagedHead> {
        if self.head_seen < wanted {
            let head = self.ring.head().load(Ordering::Acquire);
            if head < self.head_seen || head > self.tail {
                return Err(DamagedHead);
            }
            self.head_seen = head;
        }
        Ok(self.head_seen >= wanted)
    }

    /// Announces that this end is about to sleep until the head has reached `wanted`, and checks once more whether it
    /// has. If so, withdraws the announcement and returns true. If the result is false, the reader will report that
    /// this end must be woken ([`HeapReader::read`]).
    pub fn announce_sleep(&mut self, wanted: u64) -> Result<bool, DamagedHead> {
        self.ring.head_wanted().store(wanted, Ordering::Relaxed);
        self.ring.producer_state().store(ASLEEP, Ordering::Release);
        // Either we see the head that the reader has just stored, or it sees that we sleep.
        fence(Ordering::SeqCst);
        let reached = self.head_reaches(wanted)?;
        if reached {
            self.ring.producer_state().store(AWAKE, Ordering::Relaxed);
        }
        Ok(reached)
    }

    /// Calls `fill` to write the next message, of `len` bytes.
    ///
    /// # Panics
    /// If there is no room; check with [`HeapWriter::head_reaches`] first.
    #[inline]
    pub fn write(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) {
        assert!(
            len <= self.ring.max_message() && self.head_for(len) <= self.head_seen,
            "no room for the message"
        );
        let at = (self.tail % self.ring.capacity() as u64) as usize;
        // SAFETY: the reader has freed everything up to one capacity before the message's end, as just asserted, and is
        // not informed of the message before it is written.
        unsafe { self.ring.with_mut(at, len, fill) };
    }

    /// Moves past a message of `len` bytes once the reader has been informed of it.
    #[inline]
    pub fn advance(&mut self, len: usize) {
        self.tail += room_for(len);
    }
}

/// The end that reads and frees space.
pub struct HeapReader {
    ring: SharedRing,
    head: u64,
}

impl HeapReader {
    /// Creates the reading end of a new ring.
    pub fn new(ring: SharedRing) -> Self {
        HeapReader { ring, head: 0 }
    }

    /// The shared memory.
    pub fn ring(&self) -> &SharedRing {
        &self.ring
    }

    /// The position of the next message.
    pub fn position(&self) -> u64 {
        self.head
    }

    /// Passes the next message, which the writer has announced with its length `len`, to `read`, and frees its space.
    /// Also returns whether the writer sleeps and must be woken.
    ///
    /// # Panics
    /// If `len` exceeds the length of the longest message.
    #[inline]
    pub fn read<R>(&mut self, len: usize, read: impl FnOnce(&[u8]) -> R) -> (R, bool) {
        assert!(len <= self.ring.max_message(), "no message is that long");
        let at = (self.head % self.ring.capacity() as u64) as usize;
        // SAFETY: the capacity has room for the longest message. A correct writer announced the message after writing
        // it, and does not touch it before the head is stored below.
        let result = unsafe { self.ring.with(at, len, read) };
        self.head += room_for(len);
        self.ring.head().store(self.head, Ordering::Release);
        fence(Ordering::SeqCst);
        let state = self.ring.producer_state();
        let wake = state.load(Ordering::Acquire) == ASLEEP
            && self.head >= self.ring.head_wanted().load(Ordering::Relaxed)
            && state.compare_exchange(ASLEEP, AWAKE, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        (result, wake)
    }
}
