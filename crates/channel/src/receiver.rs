//! The receiving half of a channel.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use crossway_mech::{Deadline, RecvError as TransportError, Rx};
use crossway_ring::biased::{Flags, Owner};
use crossway_sys::epoll::{Epoll, Report};

use crate::error::RecvError;
use crate::link::{Link, flag};
use crate::page::Half;
use crate::protocol::{Internal, MARKER_LEN, Marks};
use crate::slice;
use crate::transport::RxHalf;

/// What came out of a transport.
enum Got<R> {
    Message(R),
    Internal(Option<Internal>),
}

/// Shows what came out of a transport to `read`, unless it is internal.
#[inline]
fn sort<R>(marks: Marks, bytes: &[u8], read: impl FnOnce(&[u8]) -> R) -> Got<R> {
    if marks.is_internal(bytes) {
        Got::Internal(marks.decode(bytes))
    } else {
        Got::Message(read(bytes))
    }
}

impl RxHalf {
    /// Shows what comes to `read`, unless it is internal.
    #[inline]
    fn recv<R>(
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
            RxHalf::Parked => Err(TransportError::Empty),
        }
    }

    /// As [`RxHalf::recv`], without waiting.
    fn try_recv<R>(
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
            RxHalf::Parked => Err(TransportError::Empty),
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            RxHalf::Eventfd(rx) => rx.wait_fd(),
            RxHalf::Uds(rx) => rx.wait_fd(),
            RxHalf::Net(rx) => rx.wait_fd(),
            _ => None,
        }
    }
}

/// What the receiver and the control thread take turns with.
pub(crate) struct RxState {
    pub(crate) half: RxHalf,
    /// Messages taken from transports since the channel was made.
    pub(crate) sequence: u64,
    bytes: u64,
    /// The peer's sender has said its last word.
    pub(crate) fin: bool,
    /// The transport has said once that the peer is gone.
    gone: bool,
    /// Messages that were taken from their transport and not received yet: the control thread looked what comes, a buffer was too small, or
    /// another process had this end before.
    pub(crate) held: VecDeque<Vec<u8>>,
    /// Room for what sockets give.
    scratch: Vec<u8>,
    /// When an end that spins looks around next.
    slice: Instant,
    /// The descriptor for poll, if the program wants one.
    poll: Option<Epoll>,
    max_message: usize,
}

impl RxState {
    pub(crate) fn new(
        half: RxHalf,
        sequence: u64,
        max_message: usize,
        poll: Option<Epoll>,
    ) -> Result<Self, RecvError> {
        let mut state = RxState {
            half: RxHalf::Parked,
            sequence,
            bytes: 0,
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

    /// Uses another transport from now on; returns the old one.
    pub(crate) fn replace(&mut self, next: RxHalf) -> Result<RxHalf, RecvError> {
        if let Some(poll) = &self.poll {
            if let Some(fd) = self.half.wait_fd() {
                poll.remove(fd)?;
            }
            if let Some(fd) = next.wait_fd() {
                poll.add(fd, 0, Report::WhileReadable)?;
            }
        }
        if matches!(next, RxHalf::Uds(_)) {
            self.scratch.resize(self.max_message.max(MARKER_LEN), 0);
        }
        self.gone = false;
        Ok(std::mem::replace(&mut self.half, next))
    }

    #[inline]
    fn count(&mut self, link: &Link, len: usize) {
        self.sequence += 1;
        self.bytes += len as u64;
        link.received.publish(self.sequence, self.bytes);
    }

    /// Deals with what is not a message; true if it is the empty message.
    #[cold]
    fn handle(&mut self, link: &Link, internal: Option<Internal>) -> Result<bool, RecvError> {
        match internal {
            Some(Internal::Move { epoch, sequence }) => link.follow(self, epoch, sequence)?,
            Some(Internal::Empty) => return Ok(true),
            Some(Internal::Fin { sequence }) if sequence == self.sequence => {
                self.fin = true;
                if let RxHalf::Net(rx) = &mut self.half {
                    rx.acknowledge_all();
                }
            }
            Some(Internal::Fin { sequence }) => {
                return Err(RecvError::Damaged(format!(
                    "{sequence} messages were sent, {} were received",
                    self.sequence
                )));
            }
            None => return Err(RecvError::Damaged("an internal message of no known kind".into())),
        }
        Ok(false)
    }

    /// What a transport's error means for the channel; nothing if it is worth another try.
    #[cold]
    fn explain(&mut self, link: &Link, error: TransportError) -> Result<(), RecvError> {
        Err(match error {
            TransportError::Empty => RecvError::Empty,
            TransportError::TimedOut => RecvError::TimedOut,
            TransportError::TooSmall { need, have } => RecvError::TooSmall { need, have },
            // A socket whose peer closed with messages unread says so once before it gives what the peer had sent.
            TransportError::PeerClosed if !self.gone && matches!(self.half, RxHalf::Uds(_)) => {
                self.gone = true;
                return Ok(());
            }
            TransportError::PeerClosed => {
                // The control connection ends at the same time, and may be heard of later.
                link.lost(None);
                RecvError::PeerDied
            }
            TransportError::Damaged(why) => RecvError::Damaged(why),
            TransportError::Os(error) => RecvError::Os(error),
        })
    }

    /// A slice of spinning is over.
    #[cold]
    fn look_around(
        &mut self,
        link: &Link,
        flags: Flags<'_>,
        until: Deadline,
    ) -> Result<(), RecvError> {
        self.slice = slice::next(link, Half::Receiver, flags, until).ok_or(RecvError::TimedOut)?;
        Ok(())
    }

    #[cold]
    fn wait_parked(&mut self, link: &Link, until: Deadline) -> Result<(), RecvError> {
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

    /// Does what the flags ask; gives a message that was held, if there is one.
    #[cold]
    fn attend(&mut self, link: &Link, flags: Flags<'_>) -> Option<Vec<u8>> {
        let raised = flags.raised();
        if raised & flag::NOTE != 0 {
            flags.lower(flag::NOTE);
            link.note_cpu(Half::Receiver);
        }
        if raised & flag::HELD != 0 {
            let held = self.held.pop_front();
            if self.held.is_empty() {
                flags.lower(flag::HELD);
            }
            return held;
        }
        None
    }

    /// Keeps a message for the next call.
    fn hold(&mut self, link: &Link, message: Vec<u8>) {
        self.held.push_back(message);
        link.rx.raise(flag::HELD);
    }

    /// Control thread, while the program is elsewhere: looks whether the marker is next. A message is held, or thrown away if nobody will
    /// receive it. True if there is nothing more to do here.
    pub(crate) fn visit(&mut self, link: &Link, discard: bool) -> bool {
        if matches!(self.half, RxHalf::Parked) {
            let _ = link.follow_parked(self);
            return true;
        }
        // A program that polls comes by itself when the marker makes its descriptor readable.
        if self.poll.is_some() && !discard && !self.fin {
            return true;
        }
        if discard {
            self.held.clear();
        }
        while self.held.is_empty() {
            let read = |bytes: &[u8]| if discard { Vec::new() } else { bytes.to_vec() };
            match self.half.try_recv(link.marks, &mut self.scratch, read) {
                Ok(Got::Message(message)) => {
                    self.count(link, message.len());
                    if !discard {
                        self.hold(link, message);
                    }
                }
                Ok(Got::Internal(internal)) => {
                    let moves = matches!(internal, Some(Internal::Move { .. }));
                    match self.handle(link, internal) {
                        Ok(true) => {
                            self.count(link, 0);
                            if !discard {
                                self.hold(link, Vec::new());
                            }
                        }
                        // The program hears of damage from the transport itself.
                        Err(_) => return true,
                        Ok(false) if moves => return true,
                        Ok(false) => {}
                    }
                }
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

/// The receiving half. Dropping it makes the peer's sends fail.
pub struct Receiver {
    rx: Owner<RxState>,
    link: Arc<Link>,
    /// A second descriptor of the state's epoll.
    poll: Option<std::os::fd::OwnedFd>,
}

impl Receiver {
    pub(crate) fn new(
        rx: Owner<RxState>,
        link: Arc<Link>,
        poll: Option<std::os::fd::OwnedFd>,
    ) -> Self {
        Receiver { rx, link, poll }
    }

    pub(crate) fn link(&self) -> Arc<Link> {
        Arc::clone(&self.link)
    }

    /// Shows the next message to `read`, where the transport holds it, waiting for it until the deadline.
    ///
    /// # Errors
    /// See [`RecvError`].
    #[inline]
    pub fn recv_in_place<R>(
        &mut self,
        until: Deadline,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError> {
        let link = &*self.link;
        let mut read = Some(read);
        self.rx.with(|rx, flags| {
            if flags.raised() != 0
                && let Some(held) = rx.attend(link, flags)
            {
                return Ok(once(&mut read, &held));
            }
            let mut only_look = false;
            loop {
                if rx.fin {
                    return Err(RecvError::Closed);
                }
                let sliced = matches!(rx.half, RxHalf::Spin(_));
                let limit = if sliced { Some(rx.slice) } else { until };
                let mut len = 0;
                let look = |bytes: &[u8]| {
                    len = bytes.len();
                    once(&mut read, bytes)
                };
                let got = if std::mem::take(&mut only_look) {
                    rx.half.try_recv(link.marks, &mut rx.scratch, look)
                } else {
                    rx.half.recv(link.marks, &mut rx.scratch, limit, look)
                };
                match got {
                    Ok(Got::Message(result)) => {
                        rx.count(link, len);
                        return Ok(result);
                    }
                    Ok(Got::Internal(internal)) => {
                        if rx.handle(link, internal)? {
                            rx.count(link, 0);
                            return Ok(once(&mut read, &[]));
                        }
                    }
                    Err(TransportError::TimedOut) if sliced => {
                        rx.look_around(link, flags, until)?;
                        // That is how a spinning ring asks whether the peer lives; a slice is too short for it.
                        only_look = true;
                    }
                    Err(TransportError::Empty) if sliced => {}
                    Err(TransportError::Empty) if matches!(rx.half, RxHalf::Parked) => {
                        rx.wait_parked(link, until)?;
                    }
                    Err(error) => rx.explain(link, error)?,
                }
            }
        })
    }

    /// Receives the next message, waiting for it until the deadline; returns its length.
    ///
    /// # Errors
    /// See [`RecvError`].
    #[inline]
    pub fn recv(&mut self, buf: &mut [u8], until: Deadline) -> Result<usize, RecvError> {
        let outcome = self.recv_in_place(until, |bytes| copy(bytes, buf))?;
        self.hold_if_too_small(outcome)
    }

    /// Receives the next message if one is there.
    ///
    /// # Errors
    /// [`RecvError::Empty`] if none is; else see [`RecvError`].
    #[inline]
    pub fn try_recv(&mut self, buf: &mut [u8]) -> Result<usize, RecvError> {
        let link = &*self.link;
        let outcome = self.rx.with(|rx, flags| {
            if flags.raised() != 0
                && let Some(held) = rx.attend(link, flags)
            {
                return Ok(copy(&held, buf));
            }
            loop {
                if rx.fin {
                    return Err(RecvError::Closed);
                }
                let mut len = 0;
                let got = rx.half.try_recv(link.marks, &mut rx.scratch, |bytes| {
                    len = bytes.len();
                    copy(bytes, buf)
                });
                match got {
                    Ok(Got::Message(outcome)) => {
                        rx.count(link, len);
                        return Ok(outcome);
                    }
                    Ok(Got::Internal(internal)) => {
                        if rx.handle(link, internal)? {
                            rx.count(link, 0);
                            return Ok(Ok(0));
                        }
                    }
                    Err(TransportError::Empty) if matches!(rx.half, RxHalf::Parked) => {
                        if !link.follow_parked(rx)? {
                            return Err(RecvError::Empty);
                        }
                    }
                    Err(error) => rx.explain(link, error)?,
                }
            }
        })?;
        self.hold_if_too_small(outcome)
    }

    /// A message that does not fit stays for the next call.
    #[inline]
    fn hold_if_too_small(&mut self, outcome: Result<usize, Big>) -> Result<usize, RecvError> {
        outcome.map_err(|big| {
            let link = &*self.link;
            let need = big.message.len();
            // It is the next one: what else is held came after it.
            self.rx.with(|rx, _| rx.held.push_front(big.message));
            link.rx.raise(flag::HELD);
            RecvError::TooSmall { need, have: big.have }
        })
    }

    /// Takes what is there into the messages that are held, for a process that takes this end over.
    pub(crate) fn take_in(&mut self, until: Deadline) -> Result<(), RecvError> {
        let link = Arc::clone(&self.link);
        let mut held = self.rx.with(|rx, _| std::mem::take(&mut rx.held));
        link.rx.lower(flag::HELD);
        let outcome = loop {
            match self.recv_in_place(until, <[u8]>::to_vec) {
                Ok(message) => held.push_back(message),
                Err(RecvError::TimedOut | RecvError::Closed) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.rx.with(|rx, _| rx.held = held);
        outcome
    }

    /// What is held, how many messages were taken from transports, these included, and whether no more will come.
    pub(crate) fn give_up(&mut self) -> (VecDeque<Vec<u8>>, u64, bool) {
        self.rx.with(|rx, _| (std::mem::take(&mut rx.held), rx.sequence, rx.fin))
    }

    /// A descriptor that polls readable while [`Receiver::try_recv`] would not say [`RecvError::Empty`], the same for the channel's whole life,
    /// whatever transport it uses. Around a switch it may poll readable for nothing. `None` unless the policy asked for it
    /// ([`Policy::pollable`](crate::Policy)).
    pub fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.poll.as_ref().map(AsFd::as_fd)
    }

    /// Messages received since the channel was made.
    pub fn sequence(&mut self) -> u64 {
        self.rx.with(|rx, _| rx.sequence - rx.held.len() as u64)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.link.half_dropped(1);
    }
}

/// A message that was too big for the buffer.
struct Big {
    message: Vec<u8>,
    have: usize,
}

#[inline]
fn copy(bytes: &[u8], buf: &mut [u8]) -> Result<usize, Big> {
    match buf.get_mut(..bytes.len()) {
        Some(to) => {
            to.copy_from_slice(bytes);
            Ok(bytes.len())
        }
        None => Err(Big { message: bytes.to_vec(), have: buf.len() }),
    }
}

#[inline]
fn once<R>(read: &mut Option<impl FnOnce(&[u8]) -> R>, bytes: &[u8]) -> R {
    read.take().expect("one message is read per call")(bytes)
}
