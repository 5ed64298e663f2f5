//! The sending end.

mod room;

use crossway_sys::OsError;

use crate::awaited::is_next_awaited;
use crate::bell::Bell;
use crate::layout::{ASLEEP, AWAKE, CLOSED, HEADER, header, payload_len, record_len};
use crate::memory::RingMemory;
use crate::pace::Pace;
use crate::sync::Ordering;
use crate::{Deadline, SendError, Wait};

/// Longest message in bytes whose lines are pushed out if its receiver waits for it. Beyond it, the receiver's core
/// fetches lines ahead by itself.
const PUSHED: usize = 4096;

/// The position and offset at which the next record will end.
#[derive(Clone, Copy, Debug)]
struct Claim {
    end: u64,
    end_offset: usize,
}

/// The sending end of a ring.
pub struct RingTx<M: RingMemory, B: Bell> {
    memory: M,
    bell: B,
    pace: Pace,
    /// Position and offset of the next record.
    tail: u64,
    tail_offset: usize,
    /// Number of records created.
    sequence: u64,
    /// The consumer's head when last read.
    head_seen: u64,
    capacity: u64,
    max_message: usize,
    peer_gone: bool,
    disowned: bool,
    sleeps: u64,
    wakes: u64,
}

impl<M: RingMemory, B: Bell> RingTx<M, B> {
    /// Creates the sending end of a new ring.
    pub fn new(memory: M, bell: B, wait: Wait) -> Self {
        let (capacity, max_message) = (memory.capacity() as u64, memory.max_message());
        RingTx {
            memory,
            bell,
            pace: Pace::new(wait),
            tail: 0,
            tail_offset: 0,
            sequence: 0,
            head_seen: 0,
            capacity,
            max_message,
            peer_gone: false,
            disowned: false,
            sleeps: 0,
            wakes: 0,
        }
    }

    /// How often this end announced a sleep, and how many system calls it made to wake the other end.
    pub fn sleeps_and_wakes(&self) -> (u64, u64) {
        (self.sleeps, self.wakes)
    }

    /// The bell of this end.
    pub fn bell(&self) -> &B {
        &self.bell
    }

    /// The memory of the ring.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// The position at which the next record will start.
    pub const fn position(&self) -> u64 {
        self.tail
    }

    /// Number of records created.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Continues where another producer of the same ring has stopped: at its position and with its number of records,
    /// or one record later if that producer was killed after it had published a record and before it could report that.
    ///
    /// The producers exclude each other by other means. Any values are accepted, because they may come from a hostile
    /// process: wrong ones damage the ring, which its consumer detects.
    pub fn resume_at(&mut self, position: u64, sequence: u64) {
        let position = position & !(HEADER as u64 - 1);
        (self.tail, self.sequence) = (position, sequence);
        self.tail_offset = (position % self.capacity) as usize;
        // What was read before may belong to a position that was wrong.
        self.head_seen = self.head_seen.min(position);
        let word = self.memory.header(self.tail_offset).load(Ordering::Acquire);
        if let Some(len) = payload_len(word, sequence).filter(|len| *len <= self.max_message) {
            let claim = self.plan(len);
            (self.tail, self.tail_offset) = (claim.end, claim.end_offset);
            self.sequence += 1;
        }
    }

    /// Sends a message of `len` bytes that `fill` writes in place, if there is room now.
    #[inline]
    pub fn try_send_with(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        self.check(len)?;
        match self.claim(len)? {
            Some(claim) => self.publish(claim, len, fill),
            None => {
                self.look_for_peer()?;
                Err(SendError::Full)
            }
        }
    }

    /// Marks this value as a copy created by fork. It does not close the ring when dropped, and must not send.
    pub fn disown(&mut self) {
        self.disowned = true;
    }

    /// As [`RingTx::try_send_with`], but waits for room until the deadline.
    #[inline]
    pub fn send_with(
        &mut self,
        len: usize,
        until: Deadline,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        self.check(len)?;
        let claim = match self.claim(len)? {
            Some(claim) => claim,
            None => self.wait_for_room(len, until)?,
        };
        self.publish(claim, len, fill)
    }

    /// Rejects messages that cannot be sent at all.
    // Always inlined, as what is on the way of a message below: a plan or a record that is handed on in memory costs a
    // stream of 64 bytes half of its rate, where its fields are loaded together before the stores have been completed.
    #[inline(always)]
    fn check(&self, len: usize) -> Result<(), SendError> {
        if len > self.max_message {
            return Err(SendError::TooLarge { len, max: self.max_message });
        }
        if self.memory.consumer_state().load(Ordering::Relaxed) == CLOSED || self.peer_gone {
            return Err(SendError::PeerClosed);
        }
        Ok(())
    }

    /// Checks for room; `None` if there is not enough now.
    #[inline(always)]
    fn claim(&mut self, len: usize) -> Result<Option<Claim>, SendError> {
        let claim = self.plan(len);
        if self.fits(&claim) {
            return Ok(Some(claim));
        }
        self.read_head()?;
        Ok(self.fits(&claim).then_some(claim))
    }

    /// The end of a record for a message of `len` bytes.
    #[inline(always)]
    fn plan(&self, len: usize) -> Claim {
        let size = record_len(self.tail_offset, len);
        let end_offset = self.tail_offset + size;
        let capacity = self.capacity as usize;
        Claim {
            end: self.tail + size as u64,
            end_offset: if end_offset >= capacity { end_offset - capacity } else { end_offset },
        }
    }

    /// Whether the record and the zeroed header word after it overwrite nothing that the consumer may still read.
    #[inline(always)]
    fn fits(&self, claim: &Claim) -> bool {
        claim.end + HEADER as u64 <= self.head_seen + self.capacity
    }

    /// Writes the record and makes it visible.
    #[inline(always)]
    fn publish(
        &mut self,
        claim: Claim,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        let at = self.tail_offset;
        // The consumer reads this word as soon as it has taken the record that the other header publishes.
        self.memory.header(claim.end_offset).store(0, Ordering::Relaxed);
        // SAFETY: `fits` says that the consumer has freed everything up to the record's end, and that it is no longer
        // than the capacity; it is not published before the header is stored below.
        unsafe { self.memory.with_mut(at + HEADER, len, fill) };
        self.memory.header(at).store(header(self.sequence, len), Ordering::Release);
        if len <= PUSHED && is_next_awaited() {
            self.memory.push_out(at, HEADER + len);
        }
        self.sequence += 1;
        self.tail = claim.end;
        self.tail_offset = claim.end_offset;
        self.wake_consumer()
    }

    #[inline]
    fn wake_consumer(&mut self) -> Result<(), SendError> {
        self.bell.light_fence();
        if self.memory.consumer_state().load(Ordering::Relaxed) == ASLEEP {
            self.wake_consumer_now()?;
        }
        Ok(())
    }

    #[cold]
    fn wake_consumer_now(&mut self) -> Result<(), OsError> {
        let state = self.memory.consumer_state();
        if state.compare_exchange(ASLEEP, AWAKE, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.wakes += 1;
            self.bell.ring(state)?;
        }
        Ok(())
    }

    /// Asks the kernel whether the peer is alive; costs a system call.
    #[cold]
    fn look_for_peer(&mut self) -> Result<(), SendError> {
        if self.peer_gone || self.bell.peer_gone()? {
            self.peer_gone = true;
            return Err(SendError::PeerClosed);
        }
        Ok(())
    }
}

impl<M: RingMemory, B: Bell> Drop for RingTx<M, B> {
    fn drop(&mut self) {
        if self.disowned {
            return;
        }
        self.memory.producer_state().store(CLOSED, Ordering::Release);
        // Neither the peer's check nor ours may be reordered with the store: closing is rare, so both fences are full.
        let _ = self.bell.heavy_fence();
        let _ = self.wake_consumer();
    }
}
