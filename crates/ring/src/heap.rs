//! A ring-shaped heap in shared memory, for a mechanism that tells by other means where a message is.

use crate::layout::{ASLEEP, AWAKE, LINE};
use crate::memory::RingMemory;
use crate::region::SharedRing;
use crate::sync::{Ordering, fence};

/// The peer wrote a head that no correct peer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedHead;

/// Bytes that a message takes: whole lines, so that no two messages share one.
fn room_for(len: usize) -> u64 {
    len.next_multiple_of(LINE) as u64
}

/// The end that takes room and writes.
pub struct HeapWriter {
    ring: SharedRing,
    tail: u64,
    head_seen: u64,
}

impl HeapWriter {
    /// The writing end of a fresh ring.
    pub fn new(ring: SharedRing) -> Self {
        HeapWriter { ring, tail: 0, head_seen: 0 }
    }

    /// The memory.
    pub fn ring(&self) -> &SharedRing {
        &self.ring
    }

    /// Where the next message goes: its position since the heap was made.
    pub fn position(&self) -> u64 {
        self.tail
    }

    /// The head at which there is room for a message of `len` bytes.
    #[inline]
    pub fn head_for(&self, len: usize) -> u64 {
        (self.tail + room_for(len)).saturating_sub(self.ring.capacity() as u64)
    }

    /// Whether the reader's head has come to `wanted`.
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

    /// Announces that this end is about to sleep until the head has come to `wanted`, and looks once more. If that says
    /// false, the reader will wake it.
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

    /// Lets `fill` write the next message.
    ///
    /// # Panics
    /// If there is no room, as [`HeapWriter::head_reaches`] would have told.
    #[inline]
    pub fn write(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) {
        assert!(
            len <= self.ring.max_message() && self.head_for(len) <= self.head_seen,
            "no room for the message"
        );
        let at = (self.tail % self.ring.capacity() as u64) as usize;
        // SAFETY: the reader has freed all up to one capacity before the message's end, as just asserted, and is not told
        // of the message before it is written.
        unsafe { self.ring.with_mut(at, len, fill) };
    }

    /// The reader has been told of a message of `len` bytes.
    #[inline]
    pub fn advance(&mut self, len: usize) {
        self.tail += room_for(len);
    }
}

/// The end that reads and frees.
pub struct HeapReader {
    ring: SharedRing,
    head: u64,
}

impl HeapReader {
    /// The reading end of a fresh ring.
    pub fn new(ring: SharedRing) -> Self {
        HeapReader { ring, head: 0 }
    }

    /// The memory.
    pub fn ring(&self) -> &SharedRing {
        &self.ring
    }

    /// Where the next message is.
    pub fn position(&self) -> u64 {
        self.head
    }

    /// Shows the next message, which the writer says is there and has `len` bytes, and frees its room. Also tells
    /// whether the writer sleeps and is to be woken.
    ///
    /// # Panics
    /// If it is longer than the longest message.
    #[inline]
    pub fn read<R>(&mut self, len: usize, read: impl FnOnce(&[u8]) -> R) -> (R, bool) {
        assert!(len <= self.ring.max_message(), "no message is that long");
        let at = (self.head % self.ring.capacity() as u64) as usize;
        // SAFETY: the capacity has room for the longest message. A correct writer told of the message after it was
        // written, and does not touch it before the head is stored below.
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
