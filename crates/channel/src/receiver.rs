//! The receiving half of a channel.

mod poll;
mod state;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crossway_mech::{Deadline, RecvError as TransportError};
use crossway_ring::biased::Owner;

use crate::error::RecvError;
use crate::link::{Link, flag};
use crate::transport::RxHalf;

pub(crate) use poll::Poll;
use state::Got;
pub(crate) use state::RxState;

/// The receiving half. Dropping it makes the peer's sends fail.
pub struct Receiver {
    rx: Owner<RxState>,
    link: Arc<Link>,
    /// A duplicate of the receiving state's epoll descriptor, for the program.
    poll: Option<OwnedFd>,
}

impl Receiver {
    pub(crate) fn new(rx: Owner<RxState>, link: Arc<Link>, poll: Option<OwnedFd>) -> Self {
        Receiver { rx, link, poll }
    }

    pub(crate) fn link(&self) -> Arc<Link> {
        Arc::clone(&self.link)
    }

    /// Passes the next message to `read` in the transport's memory where possible, waiting for a message until the
    /// deadline.
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
                    Ok(Got::Lost(count)) => rx.lose(link, count),
                    Err(TransportError::TimedOut) if sliced => {
                        rx.look_around(link, flags, until)?;
                        // A spinning ring checks in this way whether its peer is alive; a slice is too short for that.
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

    /// Receives the next message if there is one; returns its length.
    ///
    /// # Errors
    /// [`RecvError::Empty`] if there is none; otherwise see [`RecvError`].
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
                    Ok(Got::Lost(count)) => rx.lose(link, count),
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

    /// Keeps a message that does not fit into the buffer, for the next call.
    #[inline]
    fn hold_if_too_small(&mut self, outcome: Result<usize, Big>) -> Result<usize, RecvError> {
        outcome.map_err(|big| {
            let link = &*self.link;
            let need = big.message.len();
            // It is the next message: other held ones arrived after it.
            self.rx.with(|rx, _| {
                rx.held.push_front(big.message);
                rx.show_held();
            });
            link.rx.raise(flag::HELD);
            RecvError::TooSmall { need, have: big.have }
        })
    }

    /// Moves all messages that arrive before the deadline to the held ones, for a process that takes this end over.
    pub(crate) fn take_in(&mut self, until: Deadline) -> Result<(), RecvError> {
        let mut held = self.rx.with(|rx, flags| {
            flags.lower(flag::HELD);
            std::mem::take(&mut rx.held)
        });
        let outcome = loop {
            match self.recv_in_place(until, <[u8]>::to_vec) {
                Ok(message) => held.push_back(message),
                Err(RecvError::TimedOut | RecvError::Closed) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.rx.with(|rx, _| {
            // The control thread may have held further messages meanwhile.
            held.append(&mut rx.held);
            if !held.is_empty() {
                self.link.rx.raise(flag::HELD);
            }
            rx.held = held;
        });
        outcome
    }

    /// Removes and returns the held messages. Also returns the number of messages taken from transports, including the
    /// held ones, and whether the peer has announced that it sends no more.
    pub(crate) fn give_up(&mut self) -> (VecDeque<Vec<u8>>, u64, bool) {
        self.rx.with(|rx, _| (std::mem::take(&mut rx.held), rx.sequence, rx.fin))
    }

    /// Returns a descriptor that polls readable while [`Receiver::try_recv`] would not return [`RecvError::Empty`]. It
    /// stays the same while the channel exists, whatever transport is in use. Around a switch it may poll readable
    /// without a message. `None` unless the policy asked for it ([`Policy::pollable`](crate::Policy)).
    pub fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.poll.as_ref().map(AsFd::as_fd)
    }

    /// Returns the number of messages received since the channel was created. Where loss is allowed, this includes
    /// messages lost before the last one received.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use crate::{Directory, Options, Policy, Transport};

    #[test]
    fn what_the_control_thread_holds_while_an_end_is_handed_over_is_neither_lost_nor_moved() {
        const COUNT: u32 = 20_000;
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            policy: Policy { pin: Some(Transport::UdsSeqpacket), ..Policy::default() },
            directory: Directory::at(dir.path()),
            ..Options::default()
        };
        let soon = Some(Instant::now() + Duration::from_secs(120));
        let listener = options.clone().listen("held").unwrap();
        let (mut sender, _keeps) = options.connect("held", soon).unwrap().split();
        let mut here = listener.accept(soon).unwrap();
        let (link, done) = (here.link(), AtomicBool::new(false));
        let held = std::thread::scope(|scope| {
            scope.spawn(move || {
                for n in 0..COUNT {
                    sender.send(&n.to_le_bytes(), soon).unwrap();
                }
                sender.close(soon).unwrap();
            });
            // As the control thread does during a switch.
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    link.rx.try_visit(|rx| rx.visit(&link, false));
                }
            });
            loop {
                here.receiver().take_in(Some(Instant::now() + Duration::from_micros(20))).unwrap();
                let (all_taken, late) =
                    here.receiver().rx.with(|rx, _| (rx.fin, Some(Instant::now()) > soon));
                if all_taken || late {
                    done.store(true, Ordering::Relaxed);
                    return here.receiver().give_up().0;
                }
            }
        });
        let numbers: Vec<u32> = held
            .iter()
            .map(|message| u32::from_le_bytes(message[..].try_into().unwrap()))
            .collect();
        let wrong = (0..).zip(&numbers).position(|(due, number)| due != *number);
        let around = wrong.map(|at| &numbers[at.saturating_sub(2)..numbers.len().min(at + 4)]);
        assert_eq!((numbers.len(), wrong), (COUNT as usize, None), "around the first: {around:?}");
    }
}
