//! The calls of a sending half, which are passed on to the transport in use.

use crossway_mech::{Deadline, SendError, Tx};

use crate::transport::TxHalf;

impl TxHalf {
    #[inline]
    pub(super) fn send(&mut self, msg: &[u8], until: Deadline) -> Result<(), SendError> {
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

    /// Does the same as [`Tx::send`], for items that must not be lost.
    pub(super) fn send_reliably(&mut self, item: &[u8], until: Deadline) -> Result<(), SendError> {
        match self {
            TxHalf::Lossy(tx) => tx.reliable().send(item, until),
            other => other.send(item, until),
        }
    }

    /// Does the same as [`Tx::try_send`], for items that must not be lost. A parked half needs no marker and drops it.
    pub(crate) fn try_send_reliably(&mut self, item: &[u8]) -> Result<(), SendError> {
        match self {
            TxHalf::Lossy(tx) => tx.reliable().try_send(item),
            TxHalf::Parked => Ok(()),
            other => other.try_send(item),
        }
    }

    /// Does the same as [`Tx::try_send`].
    #[inline]
    pub(super) fn try_send(&mut self, msg: &[u8]) -> Result<(), SendError> {
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
    pub(super) fn send_in_place(
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

    /// Returns how often this half woke the peer's receiver; `None` if it does not count that.
    pub(super) fn wakes(&self) -> Option<u64> {
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
    pub(super) fn spins(&self) -> bool {
        matches!(self, TxHalf::Spin(_))
    }
}
