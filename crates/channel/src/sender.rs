//! The sending half of a channel.

use std::sync::Arc;
use std::time::Instant;

use crossway_mech::{Deadline, SendError, Tx};
use crossway_ring::biased::{Flags, Owner};

use crate::link::{Link, Tally, flag};
use crate::message::Message;
use crate::page::Half;
use crate::protocol::{Internal, MARKER_LEN};
use crate::slice;
use crate::transport::TxHalf;

impl TxHalf {
    #[inline]
    fn send(&mut self, msg: &[u8], until: Deadline) -> Result<(), SendError> {
        match self {
            TxHalf::Spin(tx) => tx.send(msg, until),
            TxHalf::Futex(tx) => tx.send(msg, until),
            TxHalf::Eventfd(tx) => tx.send(msg, until),
            TxHalf::Uds(tx) => tx.send(msg, until),
            TxHalf::Net(tx) => tx.send(msg, until),
            TxHalf::Lossy(tx) => tx.send(msg, until),
            TxHalf::Parked => Err(SendError::Full),
        }
    }

    /// As [`Tx::send`], for what must not be lost.
    fn send_reliably(&mut self, item: &[u8], until: Deadline) -> Result<(), SendError> {
        match self {
            TxHalf::Lossy(tx) => tx.reliable().send(item, until),
            other => other.send(item, until),
        }
    }

    /// As [`Tx::try_send`], for what must not be lost. A parked half has no marker to carry.
    pub(crate) fn try_send_reliably(&mut self, item: &[u8]) -> Result<(), SendError> {
        match self {
            TxHalf::Lossy(tx) => tx.reliable().try_send(item),
            TxHalf::Parked => Ok(()),
            other => other.try_send(item),
        }
    }

    /// As [`Tx::try_send`].
    #[inline]
    fn try_send(&mut self, msg: &[u8]) -> Result<(), SendError> {
        match self {
            TxHalf::Spin(tx) => tx.try_send(msg),
            TxHalf::Futex(tx) => tx.try_send(msg),
            TxHalf::Eventfd(tx) => tx.try_send(msg),
            TxHalf::Uds(tx) => tx.try_send(msg),
            TxHalf::Net(tx) => tx.try_send(msg),
            TxHalf::Lossy(tx) => tx.try_send(msg),
            TxHalf::Parked => Err(SendError::Full),
        }
    }

    #[inline]
    fn send_in_place(
        &mut self,
        len: usize,
        scratch: &mut [u8],
        until: Deadline,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        match self {
            TxHalf::Spin(tx) => tx.send_in_place(len, scratch, until, fill),
            TxHalf::Futex(tx) => tx.send_in_place(len, scratch, until, fill),
            TxHalf::Eventfd(tx) => tx.send_in_place(len, scratch, until, fill),
            TxHalf::Uds(tx) => tx.send_in_place(len, scratch, until, fill),
            TxHalf::Net(tx) => {
                fill(&mut scratch[..len]);
                tx.send(&scratch[..len], until)
            }
            TxHalf::Lossy(tx) => {
                fill(&mut scratch[..len]);
                tx.send(&scratch[..len], until)
            }
            TxHalf::Parked => Err(SendError::Full),
        }
    }

    /// How often this half woke the peer's receiver; `None` if it does not count that.
    fn wakes(&self) -> Option<u64> {
        match self {
            TxHalf::Futex(tx) => Some(tx.sleeps_and_wakes().1),
            TxHalf::Eventfd(tx) => Some(tx.sleeps_and_wakes().1),
            TxHalf::Spin(_)
            | TxHalf::Uds(_)
            | TxHalf::Net(_)
            | TxHalf::Lossy(_)
            | TxHalf::Parked => None,
        }
    }

    #[inline]
    fn spins(&self) -> bool {
        matches!(self, TxHalf::Spin(_))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fin {
    Open,
    Due,
    Sent,
}

/// What the sender and the control thread take turns with.
pub(crate) struct TxState {
    pub(crate) half: TxHalf,
    /// Messages sent since the channel was made.
    pub(crate) sequence: u64,
    bytes: u64,
    /// The messages and wake-ups on this transport that were already reported to the policy.
    tally: Tally,
    fin: Fin,
    /// When an end that spins looks around next.
    slice: Instant,
    /// For what is written in place where the transport has no place.
    scratch: Vec<u8>,
}

impl TxState {
    pub(crate) fn new(half: TxHalf, sequence: u64) -> Self {
        let (scratch, slice) = (Vec::new(), Instant::now());
        let tally = Tally::from(sequence);
        TxState { half, sequence, bytes: 0, tally, fin: Fin::Open, slice, scratch }
    }

    /// Uses another transport from now on; returns the old one.
    pub(crate) fn replace(&mut self, next: TxHalf) -> TxHalf {
        self.tally = Tally::from(self.sequence);
        std::mem::replace(&mut self.half, next)
    }

    /// Sends something whole, over as many slices as it takes.
    #[inline]
    fn put(
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
    fn sent(&mut self, link: &Link, len: usize) {
        self.sequence += 1;
        self.bytes += len as u64;
        link.sent.publish(self.sequence, self.bytes);
    }

    /// A slice of spinning is over.
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

    /// Waits until there is a transport again and continues on it.
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

    /// Does what the flags ask. `waits`: until when the marker may wait for room; `None` not at all.
    #[cold]
    fn attend(
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
        // The control thread does not come in while we are: the marker stays due.
        if let Some(marker) = link.due_marker(self.sequence) {
            self.put(link, flags, until, |half, _, limit| half.send_reliably(&marker, limit))?;
            link.marked(&mut link.lock(), self);
        }
        Ok(())
    }

    /// Sends the last word once the sender is dropped, without waiting; true when it is out or in vain.
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

/// The sending half. Dropping it tells the peer's receiver, after everything that was sent, that nothing follows.
pub struct Sender {
    tx: Owner<TxState>,
    link: Arc<Link>,
}

impl Sender {
    pub(crate) fn new(tx: Owner<TxState>, link: Arc<Link>) -> Self {
        Sender { tx, link }
    }

    /// Sends a message, waiting for room until the deadline.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] and [`SendError::TooLarge`]: nothing was sent. [`SendError::PeerClosed`]: the peer is gone or has dropped its
    /// receiver; what was sent before may not have been received.
    #[inline]
    pub fn send(&mut self, msg: &[u8], until: Deadline) -> Result<(), SendError> {
        let link = &*self.link;
        check_len(link, msg.len())?;
        self.tx.with(|tx, flags| {
            if flags.raised() != 0 {
                tx.attend(link, flags, Some(until))?;
            }
            if msg.is_empty() {
                let empty = link.marks.encode(Internal::Empty);
                tx.put(link, flags, until, |half, _, limit| half.send(&empty, limit))?;
            } else {
                tx.put(link, flags, until, |half, _, limit| half.send(msg, limit))?;
            }
            tx.sent(link, msg.len());
            Ok(())
        })
    }

    /// Sends a message if there is room now.
    ///
    /// # Errors
    /// [`SendError::Full`] if not; else as [`Sender::send`].
    #[inline]
    pub fn try_send(&mut self, msg: &[u8]) -> Result<(), SendError> {
        let link = &*self.link;
        check_len(link, msg.len())?;
        self.tx.with(|tx, flags| {
            if flags.raised() != 0 {
                tx.attend(link, flags, None)?;
            }
            if matches!(tx.half, TxHalf::Parked) {
                return Err(SendError::Full);
            }
            if msg.is_empty() {
                tx.half.try_send(&link.marks.encode(Internal::Empty))?;
            } else {
                tx.half.try_send(msg)?;
            }
            tx.sent(link, msg.len());
            Ok(())
        })
    }

    /// Sends a message of `len` bytes that `fill` writes where the transport holds it. `fill` must write every byte.
    ///
    /// # Errors
    /// As [`Sender::send`].
    #[inline]
    pub fn send_in_place(
        &mut self,
        len: usize,
        until: Deadline,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        if len == 0 {
            fill(&mut []);
            return self.send(&[], until);
        }
        let link = &*self.link;
        check_len(link, len)?;
        let mut fill = Some(fill);
        self.tx.with(|tx, flags| {
            if flags.raised() != 0 {
                tx.attend(link, flags, Some(until))?;
            }
            if matches!(tx.half, TxHalf::Uds(_) | TxHalf::Net(_) | TxHalf::Lossy(_)) {
                // A socket may refuse what is filled already; then it is sent again as it is.
                tx.scratch.resize(len.max(tx.scratch.len()), 0);
                if let Some(fill) = fill.take() {
                    fill(&mut tx.scratch[..len]);
                }
                tx.put(link, flags, until, |half, scratch, limit| {
                    half.send(&scratch[..len], limit)
                })?;
            } else {
                tx.put(link, flags, until, |half, scratch, limit| {
                    half.send_in_place(len, scratch, limit, |place| {
                        if let Some(fill) = fill.take() {
                            fill(place);
                        }
                    })
                })?;
            }
            tx.sent(link, len);
            Ok(())
        })
    }

    /// Messages sent since the channel was made.
    pub fn sequence(&mut self) -> u64 {
        self.tx.with(|tx, _| tx.sequence)
    }

    /// Closes the sending direction, waiting until the deadline for room for the last word; between hosts, also for a connection to send it on.
    /// Dropping does the same without waiting: the last word then goes out as soon as there is room, while this process lives.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn close(mut self, until: Deadline) -> Result<(), SendError> {
        let link = &*self.link;
        self.tx.with(|tx, flags| {
            if flags.raised() != 0 {
                tx.attend(link, flags, Some(until))?;
            }
            let last: [u8; MARKER_LEN] = link.marks.encode(Internal::Fin { sequence: tx.sequence });
            tx.put(link, flags, until, |half, _, limit| half.send_reliably(&last, limit))?;
            tx.fin = Fin::Sent;
            // A process that exits next leaves the rest to its kernel.
            tx.half.session().map_or(Ok(()), |session| session.wait_written(until))
        })
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let link = &*self.link;
        self.tx.with(|tx, _| {
            if tx.fin == Fin::Open {
                tx.fin = Fin::Due;
                tx.finish(link);
            }
        });
        link.half_dropped(0);
    }
}

impl Link {
    /// The program has dropped its sender (0) or its receiver (1).
    pub(crate) fn half_dropped(&self, which: usize) {
        let mut state = self.lock();
        state.dropped[which] = true;
        if which == 1 && !state.over && !state.dropped[0] {
            state.say(Message::Deaf);
        }
        drop(state);
        self.call();
    }
}

#[inline]
fn check_len(link: &Link, len: usize) -> Result<(), SendError> {
    let max = link.shape.max_message;
    if len > max { Err(SendError::TooLarge { len, max }) } else { Ok(()) }
}
