//! The sending half of a channel.

mod half;
mod state;

use std::sync::Arc;

use crossway_mech::{Deadline, SendError};
use crossway_ring::biased::Owner;

use crate::link::Link;
use crate::message::Message;
use crate::protocol::{Internal, MARKER_LEN};
use crate::transport::TxHalf;

use state::Fin;
pub(crate) use state::TxState;

/// The sending half of a channel. When it is dropped, the peer's receiver gets everything that was sent and then
/// [`RecvError::Closed`](crate::RecvError::Closed).
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
    /// [`SendError::TimedOut`] and [`SendError::TooLarge`]: nothing was sent. [`SendError::PeerClosed`]: the peer is
    /// gone or has dropped its receiver; what was sent before may not have been received.
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

    /// Sends a message if there is room for it now.
    ///
    /// # Errors
    /// [`SendError::Full`] if there is no room; otherwise as [`Sender::send`].
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

    /// Sends a message of `len` bytes, which `fill` writes, directly into the transport's memory where possible. `fill`
    /// must write every byte.
    ///
    /// # Errors
    /// Those of [`Sender::send`].
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
                // The socket may refuse a message that is already filled; the same bytes are then sent again.
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

    /// Returns the number of messages sent since the channel was opened.
    pub fn sequence(&mut self) -> u64 {
        self.tx.with(|tx, _| tx.sequence)
    }

    /// Closes the sending direction. Waits until the deadline for room for the closing marker and, between hosts, for a
    /// connection that takes it. Dropping the sender does not wait: the marker is then sent as soon as there is room,
    /// provided that this process still runs.
    ///
    /// # Errors
    /// Those of [`Sender::send`].
    pub fn close(mut self, until: Deadline) -> Result<(), SendError> {
        let link = &*self.link;
        self.tx.with(|tx, flags| {
            if flags.raised() != 0 {
                tx.attend(link, flags, Some(until))?;
            }
            let last: [u8; MARKER_LEN] = link.marks.encode(Internal::Fin { sequence: tx.sequence });
            tx.put(link, flags, until, |half, _, limit| half.send_reliably(&last, limit))?;
            tx.fin = Fin::Sent;
            // If the process exits right after this call, its kernel sends the rest.
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
    /// Records that the program has dropped its sender (0) or its receiver (1).
    pub(crate) fn half_dropped(&self, which: usize) {
        let mut state = self.lock();
        state.dropped[which] = true;
        if which == 1 && !state.over && !state.dropped[0] {
            state.say(Message::Deaf);
        }
        let closed = state.dropped == [true; 2];
        drop(state);
        if closed {
            self.say_bye();
        }
        self.call();
    }
}

#[inline]
fn check_len(link: &Link, len: usize) -> Result<(), SendError> {
    let max = link.shape.max_message;
    if len > max { Err(SendError::TooLarge { len, max }) } else { Ok(()) }
}
