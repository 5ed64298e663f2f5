//! The receiving state, which the receiver and the control thread use in turn: the transport's half, the counts, and
//! messages taken from the transport but not yet received.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crossway_mech::{Deadline, RecvError as TransportError, Rx};
use crossway_ring::biased::Flags;

use crate::error::RecvError;
use crate::link::{Link, Tally, flag};
use crate::net::lossy::Next;
use crate::page::Half;
use crate::protocol::{Internal, MARKER_LEN, Marks};
use crate::receiver::Poll;
use crate::slice;
use crate::transport::RxHalf;

/// The outcome of reading from a transport.
pub(super) enum Got<R> {
    Message(R),
    Internal(Option<Internal>),
    /// This many messages before the next one were lost.
    Lost(u64),
}

impl<R> From<Next<Got<R>>> for Got<R> {
    fn from(next: Next<Got<R>>) -> Got<R> {
        match next {
            Next::Item(got) => got,
            Next::Lost(count) => Got::Lost(count),
        }
    }
}

/// Passes a message from a transport to `read`, unless it is internal.
#[inline]
fn sort<R>(marks: Marks, bytes: &[u8], read: impl FnOnce(&[u8]) -> R) -> Got<R> {
    if marks.is_internal(bytes) {
        Got::Internal(marks.decode(bytes))
    } else {
        Got::Message(read(bytes))
    }
}

impl RxHalf {
    /// Passes the next message to `read`, unless it is internal.
    #[inline]
    pub(super) fn recv<R>(
        &mut self,
        marks: Marks,
        scratch: &mut [u8],
        until: Deadline,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Got<R>, TransportError> {
        let look = |bytes: &[u8]| sort(marks, bytes, read);
        match self {
            RxHalf::Spin(rx) => rx.recv_in_place(scratch, until, look),
            RxHalf::Futex(rx) => rx.recv_in_place(scratch, until, look),
            RxHalf::Eventfd(rx) => rx.recv_in_place(scratch, until, look),
            RxHalf::Uds(rx) => rx.recv_in_place(scratch, until, look),
            RxHalf::Net(rx) => rx.recv(until, look),
            RxHalf::Lossy(rx) => rx.recv(until, look).map(Got::from),
            RxHalf::Parked => Err(TransportError::Empty),
        }
    }

    /// Does the same as [`RxHalf::recv`], without waiting.
    pub(super) fn try_recv<R>(
        &mut self,
        marks: Marks,
        scratch: &mut [u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Got<R>, TransportError> {
        let look = |bytes: &[u8]| sort(marks, bytes, read);
        match self {
            RxHalf::Spin(rx) => rx.try_recv_with(usize::MAX, look),
            RxHalf::Futex(rx) => rx.try_recv_with(usize::MAX, look),
            RxHalf::Eventfd(rx) => rx.try_recv_with(usize::MAX, look),
            RxHalf::Uds(rx) => {
                let len = rx.try_recv(scratch)?;
                Ok(look(&scratch[..len]))
            }
            RxHalf::Net(rx) => rx.try_recv(look),
            RxHalf::Lossy(rx) => rx.try_recv(look).map(Got::from),
            RxHalf::Parked => Err(TransportError::Empty),
        }
    }

    /// Returns how often this half has announced that it sleeps; `None` if it does not count that.
    fn sleeps(&self) -> Option<u64> {
        match self {
            RxHalf::Futex(rx) => Some(rx.sleeps_and_wakes().0),
            RxHalf::Eventfd(rx) => Some(rx.sleeps_and_wakes().0),
            RxHalf::Spin(_)
            | RxHalf::Uds(_)
            | RxHalf::Net(_)
            | RxHalf::Lossy(_)
            | RxHalf::Parked => None,
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            RxHalf::Eventfd(rx) => rx.wait_fd(),
            RxHalf::Uds(rx) => rx.wait_fd(),
            RxHalf::Net(rx) => rx.wait_fd(),
            RxHalf::Lossy(rx) => Some(rx.wait_fd()),
            _ => None,
        }
    }
}

/// The receiving state; the receiver and the control thread use it in turn.
pub(crate) struct RxState {
    pub(crate) half: RxHalf,
    /// Number of messages taken from transports since the channel was created, including those that were lost.
    pub(crate) sequence: u64,
    bytes: u64,
    /// The messages and wake-ups on this transport that were already reported to the policy.
    tally: Tally,
    /// Whether the peer's sender has announced that it sends no more.
    pub(crate) fin: bool,
    /// Whether the transport has already reported that the peer has closed.
    gone: bool,
    /// Messages taken from a transport but not yet received: the control thread was looking for the marker, a buffer
    /// was too small, or another process owned this end before.
    pub(crate) held: VecDeque<Vec<u8>>,
    /// Buffer for messages from sockets.
    pub(super) scratch: Vec<u8>,
    /// When a spinning end checks its flags next.
    pub(super) slice: Instant,
    /// The descriptor for poll, if the program wants one.
    poll: Option<Poll>,
    max_message: usize,
}

impl RxState {
    pub(crate) fn new(
        half: RxHalf,
        sequence: u64,
        max_message: usize,
        poll: Option<Poll>,
    ) -> Result<Self, RecvError> {
        let mut state = RxState {
            half: RxHalf::Parked,
            sequence,
            bytes: 0,
            tally: Tally::default(),
            fin: false,
            gone: false,
            held: VecDeque::new(),
            scratch: Vec::new(),
            slice: Instant::now(),
            poll,
            max_message,
        };
        drop(state.replace(half)?);
        Ok(state)
    }

    /// Continues on another transport; returns the old one.
    pub(crate) fn replace(&mut self, next: RxHalf) -> Result<RxHalf, RecvError> {
        if let Some(poll) = &self.poll {
            poll.replace(self.half.wait_fd(), next.wait_fd())?;
        }
        if matches!(next, RxHalf::Uds(_)) {
            self.scratch.resize(self.max_message.max(MARKER_LEN), 0);
        }
        self.gone = false;
        self.tally = Tally::from(self.sequence);
        Ok(std::mem::replace(&mut self.half, next))
    }

    #[inline]
    pub(super) fn count(&mut self, link: &Link, len: usize) {
        self.sequence += 1;
        self.bytes += len as u64;
        link.received.publish(self.sequence, self.bytes);
    }

    /// Counts messages that were lost, so that later messages keep their numbers.
    #[cold]
    pub(super) fn lose(&mut self, link: &Link, count: u64) {
        self.sequence += count;
        link.lost.fetch_add(count, Ordering::Relaxed);
        link.received.publish(self.sequence, self.bytes);
    }

    /// Handles internal messages; returns true for the empty message, which belongs to the program.
    #[cold]
    pub(super) fn handle(
        &mut self,
        link: &Link,
        internal: Option<Internal>,
    ) -> Result<bool, RecvError> {
        if let (
            RxHalf::Lossy(_),
            Some(Internal::Move { sequence, .. } | Internal::Fin { sequence }),
        ) = (&self.half, internal)
        {
            self.lose(link, sequence.saturating_sub(self.sequence));
        }
        match internal {
            Some(Internal::Move { epoch, sequence }) => link.follow(self, epoch, sequence)?,
            Some(Internal::Empty) => return Ok(true),
            Some(Internal::Fin { sequence }) if sequence == self.sequence => {
                self.fin = true;
                if self.poll.is_some() {
                    // The program may poll no more, so the control thread looks for a marker that follows.
                    link.call();
                }
                match &mut self.half {
                    RxHalf::Net(rx) => rx.acknowledge_all(),
                    RxHalf::Lossy(rx) => rx.reliable().acknowledge_all(),
                    _ => {}
                }
            }
            Some(Internal::Fin { sequence }) => {
                return Err(RecvError::Damaged(format!(
                    "{sequence} messages were sent, but {} were received",
                    self.sequence
                )));
            }
            None => {
                return Err(RecvError::Damaged(
                    "it contains an internal message of unknown kind".into(),
                ));
            }
        }
        Ok(false)
    }

    /// Converts a transport's error into the channel's; `Ok` means that the call should be repeated.
    #[cold]
    pub(super) fn explain(&mut self, link: &Link, error: TransportError) -> Result<(), RecvError> {
        Err(match error {
            TransportError::Empty => RecvError::Empty,
            TransportError::TimedOut => RecvError::TimedOut,
            TransportError::TooSmall { need, have } => RecvError::TooSmall { need, have },
            // A socket whose peer closed with unread messages reports that once before it returns what the peer had
            // sent.
            TransportError::PeerClosed if !self.gone && matches!(self.half, RxHalf::Uds(_)) => {
                self.gone = true;
                return Ok(());
            }
            TransportError::PeerClosed => {
                // The control connection ends at the same time, but its end may be noticed later.
                link.lost(None);
                RecvError::PeerDied
            }
            TransportError::Damaged(why) => RecvError::Damaged(why),
            TransportError::Os(error) => RecvError::Os(error),
        })
    }

    /// Starts the next slice of spinning; returns an error if the deadline has passed.
    #[cold]
    pub(super) fn look_around(
        &mut self,
        link: &Link,
        flags: Flags<'_>,
        until: Deadline,
    ) -> Result<(), RecvError> {
        self.slice = slice::next(link, Half::Receiver, flags, until).ok_or(RecvError::TimedOut)?;
        Ok(())
    }

    #[cold]
    pub(super) fn wait_parked(&mut self, link: &Link, until: Deadline) -> Result<(), RecvError> {
        loop {
            if link.follow_parked(self)? {
                return Ok(());
            }
            let state = link.lock();
            if state.over {
                return Err(RecvError::PeerDied);
            }
            if state.has_next_rx() {
                continue;
            }
            if !link.wait(state, until).1 {
                return Err(RecvError::TimedOut);
            }
        }
    }

    /// Handles the raised flags; returns the next held message, if there is one.
    #[cold]
    pub(super) fn attend(&mut self, link: &Link, flags: Flags<'_>) -> Option<Vec<u8>> {
        let raised = flags.raised();
        if raised & flag::NOTE != 0 {
            flags.lower(flag::NOTE);
            link.note_cpu(Half::Receiver);
            link.count_wakes(&mut self.tally, self.sequence, self.half.sleeps());
        }
        if raised & flag::HELD != 0 {
            let held = self.held.pop_front();
            if self.held.is_empty() {
                flags.lower(flag::HELD);
                self.show_held();
            }
            return held;
        }
        None
    }

    /// Makes the program's descriptor poll readable if there is something to receive that is not in the transport: a
    /// held message, or the end that came before.
    pub(crate) fn show_held(&self) {
        if let Some(poll) = &self.poll {
            poll.show(!self.held.is_empty() || self.fin);
        }
    }

    /// Keeps a message for the program's next call.
    fn hold(&mut self, link: &Link, message: Vec<u8>) {
        self.held.push_back(message);
        link.rx.raise(flag::HELD);
    }

    /// Called by the control thread while the program is not inside a call: checks whether the marker is next. A
    /// message that comes first is held, or dropped if `discard` is set because the receiver no longer exists. Returns
    /// true if there is nothing more to do.
    pub(crate) fn visit(&mut self, link: &Link, discard: bool) -> bool {
        if matches!(self.half, RxHalf::Parked) {
            let _ = link.follow_parked(self);
            return true;
        }
        // A program that polls makes the next call itself when the marker makes its descriptor readable.
        if self.poll.is_some() && !discard && !self.fin {
            return true;
        }
        if discard {
            self.held.clear();
        }
        // After the end of the messages, only markers follow.
        while self.held.is_empty() || self.fin {
            let read = |bytes: &[u8]| if discard { Vec::new() } else { bytes.to_vec() };
            match self.half.try_recv(link.marks, &mut self.scratch, read) {
                Ok(Got::Message(message)) => {
                    self.count(link, message.len());
                    if !discard {
                        self.hold(link, message);
                        return false;
                    }
                }
                Ok(Got::Internal(internal)) => {
                    let moves = matches!(internal, Some(Internal::Move { .. }));
                    match self.handle(link, internal) {
                        Ok(true) => {
                            self.count(link, 0);
                            if !discard {
                                self.hold(link, Vec::new());
                                return false;
                            }
                        }
                        // The transport reports damage to the program.
                        Err(_) => return true,
                        Ok(false) if moves => return true,
                        Ok(false) => {}
                    }
                }
                Ok(Got::Lost(count)) => self.lose(link, count),
                Err(TransportError::Empty) => return false,
                Err(error) => {
                    if self.explain(link, error).is_err() {
                        return true;
                    }
                }
            }
        }
        false
    }
}
