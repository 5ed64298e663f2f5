//! How the sending end waits for room, by spinning and by sleeping.

use crossway_sys::OsError;

use super::{Claim, RingTx};
use crate::bell::{Bell, FIRST_SLEEP, SLICE};
use crate::layout::{ASLEEP, AWAKE, HEADER};
use crate::memory::RingMemory;
use crate::pace::Budget;
use crate::sync::{Ordering, fence};
use crate::{Deadline, SendError};

impl<M: RingMemory, B: Bell> RingTx<M, B> {
    /// The position up to which the consumer has freed space: records that end there or before were taken.
    ///
    /// # Errors
    /// [`SendError::Os`] when no correct consumer could have freed that much.
    pub fn freed(&mut self) -> Result<u64, SendError> {
        self.read_head()?;
        Ok(self.head_seen)
    }

    /// Whether the consumer has taken everything up to this position, and nothing beyond it.
    pub fn is_freed_up_to(&self, position: u64) -> bool {
        self.memory.head().load(Ordering::Acquire) == position
    }

    /// Requests a wake-up without sleeping: asks the consumer to ring once a message of `len` bytes fits and half of
    /// the ring is free. Returns true if a message of that length fits already; in that case nothing was requested.
    ///
    /// # Errors
    /// As [`RingTx::freed`].
    pub fn ask_for_room(&mut self, len: usize) -> Result<bool, SendError> {
        let claim = self.plan(len);
        let (_, plenty) = self.heads_for(&claim);
        self.memory.head_wanted().store(plenty, Ordering::Relaxed);
        self.memory.producer_state().store(ASLEEP, Ordering::Release);
        // Either we see the space that the consumer has just freed, or it sees that we wait.
        fence(Ordering::SeqCst);
        self.read_head()?;
        let room = self.fits(&claim);
        if room {
            self.stay_awake();
        }
        Ok(room)
    }

    /// Announces that this end is about to sleep until a message of `len` bytes fits and half of the ring is free, and
    /// checks once more whether that is so; for callers that sleep by other means. If so, withdraws the announcement
    /// and returns true. If the result is false, the consumer will reset this end's state word and ring the bell when
    /// it has freed enough.
    pub fn announce_sleep(&mut self, len: usize) -> Result<bool, SendError> {
        let claim = self.plan(len);
        let (_, plenty) = self.heads_for(&claim);
        self.memory.head_wanted().store(plenty, Ordering::Relaxed);
        self.memory.producer_state().store(ASLEEP, Ordering::Release);
        self.sleeps += 1;
        self.bell.heavy_fence()?;
        self.read_head()?;
        if self.head_seen < plenty {
            return Ok(false);
        }
        self.stay_awake();
        Ok(true)
    }

    /// The head from which the record fits, and the one from which half of the ring is free as well.
    fn heads_for(&self, claim: &Claim) -> (u64, u64) {
        let least = (claim.end + HEADER as u64).saturating_sub(self.capacity);
        (least, least.max(self.tail.saturating_sub(self.capacity / 2)))
    }

    #[cold]
    pub(super) fn read_head(&mut self) -> Result<(), SendError> {
        let head = self.memory.head().load(Ordering::Acquire);
        // A correct head never moves backwards and never passes the tail.
        if head < self.head_seen || head > self.tail {
            return Err(SendError::Os(OsError::new(
                "shared ring",
                format!(
                    "(the peer set the head to {head}, which is not in {}..={})",
                    self.head_seen, self.tail
                ),
                std::io::Error::from(std::io::ErrorKind::InvalidData),
            )));
        }
        self.head_seen = head;
        Ok(())
    }

    #[cold]
    pub(super) fn wait_for_room(
        &mut self,
        len: usize,
        until: Deadline,
    ) -> Result<Claim, SendError> {
        let claim = self.plan(len);
        // Waiting for a part of the ring instead of one record keeps the two ends from moving in lockstep.
        let (least, plenty) = self.heads_for(&claim);
        if let Some(mut budget) = self.pace.budget(until) {
            let mut patience = self.pace.patience();
            loop {
                self.read_head()?;
                if self.head_seen >= plenty || (self.head_seen >= least && patience.is_over()) {
                    return Ok(claim);
                }
                self.check(len)?;
                match budget.spin() {
                    Budget::Left => {}
                    Budget::LookAround => self.look_for_peer()?,
                    Budget::TimedOut => return Err(SendError::TimedOut),
                    Budget::Spent => break,
                }
            }
        }
        self.sleep_for_room(len, claim, least, plenty, until)
    }

    fn sleep_for_room(
        &mut self,
        len: usize,
        claim: Claim,
        least: u64,
        plenty: u64,
        until: Deadline,
    ) -> Result<Claim, SendError> {
        let (mut wanted, mut slice) = (plenty, FIRST_SLEEP);
        loop {
            self.memory.head_wanted().store(wanted, Ordering::Relaxed);
            self.memory.producer_state().store(ASLEEP, Ordering::Release);
            self.sleeps += 1;
            self.bell.heavy_fence()?;
            self.read_head()?;
            let late = until.is_some_and(|t| t <= std::time::Instant::now());
            let outcome = if self.head_seen >= if late { least } else { wanted } {
                Some(Ok(claim))
            } else if let Err(e) = self.check(len) {
                Some(Err(e))
            } else if late {
                Some(Err(SendError::TimedOut))
            } else {
                None
            };
            if let Some(outcome) = outcome {
                self.stay_awake();
                return outcome;
            }
            let limit = until.map_or(slice, |t| {
                t.saturating_duration_since(std::time::Instant::now()).min(slice)
            });
            self.bell.sleep(self.memory.producer_state(), Some(limit))?;
            self.read_head()?;
            if self.head_seen >= wanted {
                self.stay_awake();
                return Ok(claim);
            }
            if self.memory.producer_state().load(Ordering::Relaxed) == ASLEEP {
                // Not woken: the slice has passed.
                (wanted, slice) = (least, SLICE);
                if let Err(e) = self.look_for_peer() {
                    self.stay_awake();
                    return Err(e);
                }
            }
        }
    }

    /// Withdraws the announcement of a sleep, or notes that the end was woken. By an exchange, so that it comes after
    /// that of a consumer that wakes this end now.
    fn stay_awake(&self) {
        self.memory.producer_state().swap(AWAKE, Ordering::AcqRel);
    }
}
