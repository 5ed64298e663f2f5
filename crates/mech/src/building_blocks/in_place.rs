//! Halves whose messages are written and read where they lie: each has one function that passes a
//! message on, from which all calls of the contract follow.

use std::os::fd::BorrowedFd;

use super::waiting::Patience;
use crate::{Deadline, Facts, RecvError, Rx, SendError, Tx};

/// A sending half whose messages are written where they lie.
pub trait Put: Send + 'static {
    /// Sends a message of `len` bytes that `fill` writes.
    fn put(
        &mut self,
        len: usize,
        patience: Patience,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError>;

    /// What [`Tx::facts`] returns.
    fn sizes(&self) -> Facts;
}

impl<T: Put> Tx for T {
    #[inline]
    fn try_send(&mut self, msg: &[u8]) -> Result<(), SendError> {
        self.put(msg.len(), Patience::Now, |to| to.copy_from_slice(msg))
    }

    #[inline]
    fn send(&mut self, msg: &[u8], until: Deadline) -> Result<(), SendError> {
        self.put(msg.len(), Patience::Until(until), |to| to.copy_from_slice(msg))
    }

    #[inline]
    fn send_in_place(
        &mut self,
        len: usize,
        _scratch: &mut [u8],
        until: Deadline,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        self.put(len, Patience::Until(until), fill)
    }

    fn facts(&self) -> Facts {
        self.sizes()
    }
}

/// A receiving half whose messages are read where they lie.
pub trait Take: Send + 'static {
    /// Passes the next message to `read` if it has at most `room` bytes; keeps it otherwise.
    fn take<R>(
        &mut self,
        room: usize,
        patience: Patience,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError>;

    /// What [`Rx::wait_fd`] returns.
    fn readable(&self) -> Option<BorrowedFd<'_>>;

    /// What [`Rx::facts`] returns.
    fn sizes(&self) -> Facts;
}

impl<T: Take> Rx for T {
    #[inline]
    fn try_recv(&mut self, buf: &mut [u8]) -> Result<usize, RecvError> {
        self.take(buf.len(), Patience::Now, |from| copy(from, buf))
    }

    #[inline]
    fn recv(&mut self, buf: &mut [u8], until: Deadline) -> Result<usize, RecvError> {
        self.take(buf.len(), Patience::Until(until), |from| copy(from, buf))
    }

    #[inline]
    fn recv_in_place<R>(
        &mut self,
        _scratch: &mut [u8],
        until: Deadline,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError> {
        self.take(usize::MAX, Patience::Until(until), read)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.readable()
    }

    fn facts(&self) -> Facts {
        self.sizes()
    }
}

/// Copies a message into a buffer that is long enough. Returns its length in bytes.
#[inline]
pub(crate) fn copy(from: &[u8], to: &mut [u8]) -> usize {
    to[..from.len()].copy_from_slice(from);
    from.len()
}
