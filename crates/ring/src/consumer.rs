//! The receiving end.

use crossway_sys::OsError;

use crate::awaited;
use crate::bell::{Bell, FIRST_SLEEP};
use crate::layout::{ASLEEP, AWAKE, CLOSED, HEADER, payload_len, record_len};
use crate::memory::RingMemory;
use crate::pace::{Budget, Pace};
use crate::sync::Ordering;
use crate::{Deadline, RecvError, Wait};

/// A receiver that polls without waiting asks the kernel whether the peer is alive at the first unsuccessful poll since
/// the last message and at every 64th one from then on.
const ASK_EVERY: u32 = 64;

/// A published message that has not been freed yet.
#[derive(Clone, Copy, Debug)]
struct Record {
    len: usize,
    end_offset: usize,
    end: u64,
}

/// The receiving end of a ring.
pub struct RingRx<M: RingMemory, B: Bell> {
    memory: M,
    bell: B,
    pace: Pace,
    /// Position and offset of the next record.
    head: u64,
    head_offset: usize,
    /// Number of records taken.
    sequence: u64,
    capacity: usize,
    max_message: usize,
    peer_gone: bool,
    /// Unsuccessful polls since the last message.
    empties: u32,
    sleeps: u64,
    wakes: u64,
}

impl<M: RingMemory, B: Bell> RingRx<M, B> {
    /// Creates the receiving end of a new ring.
    pub fn new(memory: M, bell: B, wait: Wait) -> Self {
        let (capacity, max_message) = (memory.capacity(), memory.max_message());
        RingRx {
            memory,
            bell,
            pace: Pace::new(wait),
            head: 0,
            head_offset: 0,
            sequence: 0,
            capacity,
            max_message,
            peer_gone: false,
            empties: 0,
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

    /// Passes the next message to `read`, if there is one now. A message longer than `room` bytes stays in the ring and
    /// results in [`RecvError::TooSmall`].
    #[inline]
    pub fn try_recv_with<R>(
        &mut self,
        room: usize,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError> {
        let record = match self.peek()? {
            Some(record) => record,
            None => self.nothing_now()?,
        };
        let result = self.take(record, room, read)?;
        if B::ARMED_WHEN_IDLE {
            // The descriptor must not poll readable after the last message was taken.
            self.arm_if_empty()?;
        }
        Ok(result)
    }

    /// Announces a sleep, for callers that sleep by other means, and checks for a message once more. If there is one,
    /// withdraws the announcement and returns true. If the result is false, the producer of the next message will reset
    /// this end's state word and ring the bell.
    pub fn announce_sleep(&mut self) -> Result<bool, RecvError> {
        Ok(self.arm()?.is_some())
    }

    /// As [`RingRx::try_recv_with`], but waits until the deadline.
    #[inline]
    pub fn recv_with<R>(
        &mut self,
        room: usize,
        until: Deadline,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError> {
        let record = match self.peek()? {
            Some(record) => {
                self.pace.went_on();
                record
            }
            None => self.wait_for_record(until)?,
        };
        self.take(record, room, read)
    }

    /// The next message, if one is published.
    // Always inlined, as in the sending end.
    #[inline(always)]
    fn peek(&mut self) -> Result<Option<Record>, RecvError> {
        let at = self.head_offset;
        let word = self.memory.header(at).load(Ordering::Acquire);
        if word == 0 {
            return Ok(None);
        }
        let len = match payload_len(word, self.sequence) {
            Some(len) if len <= self.max_message => len,
            _ => return self.damage(word),
        };
        let size = record_len(at, len);
        let end_offset =
            if at + size >= self.capacity { at + size - self.capacity } else { at + size };
        Ok(Some(Record { len, end_offset, end: self.head + size as u64 }))
    }

    #[cold]
    fn damage<T>(&self, word: u64) -> Result<T, RecvError> {
        Err(RecvError::Damaged(format!(
            "the header at position {} reads {word:#018x}, which is not the header of record {} \
             in a ring for messages of up to {} bytes",
            self.head, self.sequence, self.max_message
        )))
    }

    /// Reads a message and frees its space.
    #[inline(always)]
    fn take<R>(
        &mut self,
        record: Record,
        room: usize,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError> {
        if record.len > room {
            return Err(RecvError::TooSmall { need: record.len, have: room });
        }
        // SAFETY: `peek` checked the length against the longest message, for which the capacity has room; the record is
        // published, and is freed only below.
        let result = unsafe { self.memory.with(self.head_offset + HEADER, record.len, read) };
        self.head = record.end;
        self.head_offset = record.end_offset;
        self.sequence += 1;
        self.empties = 0;
        self.memory.head().store(self.head, Ordering::Release);
        self.bell.light_fence();
        if self.memory.producer_state().load(Ordering::Relaxed) == ASLEEP {
            self.wake_producer()?;
        }
        Ok(result)
    }

    /// Wakes a producer that waits for room, once there is enough room for it.
    #[cold]
    fn wake_producer(&mut self) -> Result<(), OsError> {
        let state = self.memory.producer_state();
        // Pairs with the producer's release store of its state, so that `head_wanted` is the value that belongs to this
        // sleep.
        if state.load(Ordering::Acquire) == ASLEEP
            && self.head >= self.memory.head_wanted().load(Ordering::Relaxed)
            && state.compare_exchange(ASLEEP, AWAKE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            self.wakes += 1;
            self.bell.ring(state)?;
        }
        Ok(())
    }

    /// Whether the peer has closed its end properly. What it published before is visible afterwards.
    #[inline]
    fn peer_closed(&self) -> bool {
        self.memory.producer_state().load(Ordering::Acquire) == CLOSED
    }

    /// Called when the ring is empty. Returns a message that has arrived in the meantime, or the error that explains
    /// why there is none.
    #[cold]
    fn nothing_now(&mut self) -> Result<Record, RecvError> {
        if B::ARMED_WHEN_IDLE
            && let Some(record) = self.arm()?
        {
            return Ok(record);
        }
        // A caller that polls in a loop should not pay for a system call each time.
        let ask = self.empties.is_multiple_of(ASK_EVERY);
        self.empties = self.empties.wrapping_add(1);
        if self.peer_closed() || self.peer_gone || (ask && self.bell.peer_gone()?) {
            // The peer may have sent something just before it ended.
            self.peer_gone = true;
            return self.peek()?.ok_or(RecvError::PeerClosed);
        }
        Err(RecvError::Empty)
    }

    /// Sets the state to asleep, so that the producer rings when it publishes the next message. Returns a message
    /// instead if there is one already.
    fn arm(&mut self) -> Result<Option<Record>, RecvError> {
        if self.memory.consumer_state().load(Ordering::Relaxed) != ASLEEP {
            self.bell.rearm()?;
            self.sleeps += 1;
            self.memory.consumer_state().store(ASLEEP, Ordering::Release);
            self.bell.heavy_fence()?;
        }
        match self.peek() {
            Ok(None) => Ok(None),
            found => {
                self.disarm()?;
                found
            }
        }
    }

    /// Sets the state back to awake after this end has found work by itself.
    fn disarm(&mut self) -> Result<(), RecvError> {
        if self.memory.consumer_state().swap(AWAKE, Ordering::AcqRel) == ASLEEP {
            self.bell.ring_self()?;
        }
        Ok(())
    }

    fn arm_if_empty(&mut self) -> Result<(), RecvError> {
        // Corruption found here is reported by the next call.
        if let Ok(None) = self.peek() {
            self.arm()?;
        }
        Ok(())
    }

    #[cold]
    fn wait_for_record(&mut self, until: Deadline) -> Result<Record, RecvError> {
        let amid_stream = self.pace.amid_stream();
        if let Some(mut budget) = self.pace.budget(until) {
            if amid_stream {
                self.pace.let_some_gather();
            }
            loop {
                match budget.spin() {
                    Budget::Left => {}
                    Budget::LookAround => {
                        self.peer_gone |= self.peer_closed() || self.bell.peer_gone()?;
                    }
                    Budget::TimedOut => return self.peek()?.ok_or(RecvError::TimedOut),
                    Budget::Spent => break,
                }
                if let Some(record) = self.peek()? {
                    if !amid_stream {
                        awaited::note_wait();
                    }
                    return Ok(record);
                }
                if self.peer_gone {
                    return Err(RecvError::PeerClosed);
                }
            }
        }
        self.pace.slept();
        self.sleep_for_record(until)
    }

    fn sleep_for_record(&mut self, until: Deadline) -> Result<Record, RecvError> {
        let mut most = Some(FIRST_SLEEP);
        loop {
            if let Some(record) = self.arm()? {
                return Ok(record);
            }
            let now_gone = self.peer_gone || self.peer_closed();
            let late = until.is_some_and(|t| t <= std::time::Instant::now());
            if now_gone || late {
                // The peer may have sent something just before it closed.
                let last = self.peek()?;
                if !B::ARMED_WHEN_IDLE || last.is_some() {
                    self.disarm()?;
                }
                self.peer_gone = now_gone;
                return last.ok_or(if now_gone {
                    RecvError::PeerClosed
                } else {
                    RecvError::TimedOut
                });
            }
            let left = until.map(|t| t.saturating_duration_since(std::time::Instant::now()));
            let limit = [left, most.take()].into_iter().flatten().min();
            self.bell.sleep(self.memory.consumer_state(), limit)?;
            if let Some(record) = self.peek()? {
                if !B::ARMED_WHEN_IDLE {
                    self.memory.consumer_state().store(AWAKE, Ordering::Relaxed);
                } else {
                    self.disarm()?;
                }
                return Ok(record);
            }
            if self.memory.consumer_state().load(Ordering::Relaxed) == ASLEEP {
                // Not woken: a slice has passed.
                self.peer_gone = self.bell.peer_gone()?;
            }
        }
    }
}

impl<M: RingMemory, B: Bell> Drop for RingRx<M, B> {
    fn drop(&mut self) {
        self.memory.consumer_state().store(CLOSED, Ordering::Release);
        let _ = self.bell.heavy_fence();
        let state = self.memory.producer_state();
        if state.compare_exchange(ASLEEP, AWAKE, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            let _ = self.bell.ring(state);
        }
    }
}
