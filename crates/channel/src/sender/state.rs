//! The sending state, which the sender and the control thread use in turn: the transport's half and the counts.

use std::time::Instant;

use crossway_mech::{Deadline, SendError};
use crossway_ring::biased::Flags;

use crate::link::{Link, Tally, flag};
use crate::page::Half;
use crate::protocol::Internal;
use crate::slice;
use crate::transport::TxHalf;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fin {
    Open,
    Due,
    Sent,
}

/// The sending state; the sender and the control thread use it in turn.
pub(crate) struct TxState {
    pub(crate) half: TxHalf,
    /// Number of messages sent since the channel was created.
    pub(crate) sequence: u64,
    bytes: u64,
    /// The messages and wake-ups on this transport that were already reported to the policy.
    tally: Tally,
    pub(super) fin: Fin,
    /// When a spinning end checks its flags next.
    slice: Instant,
    /// Buffer for messages that the program writes in place, on transports without memory of their own.
    pub(super) scratch: Vec<u8>,
}

impl TxState {
    pub(crate) fn new(half: TxHalf, sequence: u64) -> Self {
        let (scratch, slice) = (Vec::new(), Instant::now());
        let tally = Tally::from(sequence);
        TxState { half, sequence, bytes: 0, tally, fin: Fin::Open, slice, scratch }
    }

    /// Continues on another transport; returns the old one.
    pub(crate) fn replace(&mut self, next: TxHalf) -> TxHalf {
        self.tally = Tally::from(self.sequence);
        std::mem::replace(&mut self.half, next)
    }

    /// Sends a whole message, for as many slices of spinning as necessary.
    #[inline]
    pub(super) fn put(
        &mut self,
        link: &Link,
        flags: Flags<'_>,
        until: Deadline,
        mut send: impl FnMut(&mut TxHalf, &mut Vec<u8>, Deadline) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        loop {
            let sliced = self.half.spins();
            let limit = if sliced { Some(self.slice) } else { until };
            match send(&mut self.half, &mut self.scratch, limit) {
                Err(SendError::TimedOut) if sliced => self.look_around(link, flags, until)?,
                Err(SendError::Full) if matches!(self.half, TxHalf::Parked) => {
                    self.wait_parked(link, until)?;
                }
                done => return done,
            }
        }
    }

    #[inline]
    pub(super) fn sent(&mut self, link: &Link, len: usize) {
        self.sequence += 1;
        self.bytes += len as u64;
        link.sent.publish(self.sequence, self.bytes);
    }

    /// Starts the next slice of spinning; returns an error if the deadline has passed or the peer has ended.
    #[cold]
    fn look_around(
        &mut self,
        link: &Link,
        flags: Flags<'_>,
        until: Deadline,
    ) -> Result<(), SendError> {
        if flags.raised() & flag::DEAF != 0 {
            return Err(SendError::PeerClosed);
        }
        self.slice = slice::next(link, Half::Sender, flags, until).ok_or(SendError::TimedOut)?;
        Ok(())
    }

    /// Waits until there is a transport again, and continues on it.
    #[cold]
    fn wait_parked(&mut self, link: &Link, until: Deadline) -> Result<(), SendError> {
        let mut state = link.lock();
        while !state.must_mark {
            if state.over {
                return Err(SendError::PeerClosed);
            }
            let (woken, in_time) = link.wait(state, until);
            state = woken;
            if !in_time {
                return Err(SendError::TimedOut);
            }
        }
        link.marked(&mut state, self);
        Ok(())
    }

    /// Handles the raised flags. `waits` is the deadline for sending the marker; `None` means that this call must not
    /// wait for room.
    #[cold]
    pub(super) fn attend(
        &mut self,
        link: &Link,
        flags: Flags<'_>,
        waits: Option<Deadline>,
    ) -> Result<(), SendError> {
        let raised = flags.raised();
        if raised & flag::NOTE != 0 {
            flags.lower(flag::NOTE);
            link.note_cpu(Half::Sender);
            link.count_wakes(&mut self.tally, self.sequence, self.half.wakes());
        }
        if raised & flag::DEAF != 0 {
            return Err(SendError::PeerClosed);
        }
        if raised & flag::MOVE == 0 || link.try_mark(self)? {
            return Ok(());
        }
        let until = waits.ok_or(SendError::Full)?;
        // The control thread cannot enter while this call runs, so the marker stays due.
        if let Some(marker) = link.due_marker(self.sequence) {
            self.put(link, flags, until, |half, _, limit| half.send_reliably(&marker, limit))?;
            link.marked(&mut link.lock(), self);
        }
        Ok(())
    }

    /// Sends the final marker after the sender was dropped, without waiting. Returns true if it was sent or is no
    /// longer needed.
    pub(crate) fn finish(&mut self, link: &Link) -> bool {
        if self.fin == Fin::Due {
            let last = link.marks.encode(Internal::Fin { sequence: self.sequence });
            let parked = matches!(self.half, TxHalf::Parked) && !link.lock().over;
            if parked || matches!(self.half.try_send_reliably(&last), Err(SendError::Full)) {
                return false;
            }
            self.fin = Fin::Sent;
        }
        true
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.fin == Fin::Sent
    }
}
