//! The descriptor that a program polls.

use std::os::fd::{AsFd, BorrowedFd};

use crossway_sys::OsError;
use crossway_sys::epoll::{Epoll, Trigger};
use crossway_sys::eventfd::EventFd;

/// Polls readable when the transport's descriptor does, or while there is something that is not in the transport.
pub(crate) struct Poll {
    either: Epoll,
    beside: EventFd,
}

impl Poll {
    pub(crate) fn new() -> Result<Poll, OsError> {
        let (either, beside) = (Epoll::new(1)?, EventFd::new()?);
        either.add(&beside, 0, Trigger::WhileReadable)?;
        Ok(Poll { either, beside })
    }

    /// Watches the new transport's descriptor instead of the old one's.
    pub(super) fn replace(
        &self,
        old: Option<BorrowedFd<'_>>,
        new: Option<BorrowedFd<'_>>,
    ) -> Result<(), OsError> {
        if let Some(fd) = old {
            self.either.remove(fd)?;
        }
        if let Some(fd) = new {
            self.either.add(fd, 0, Trigger::WhileReadable)?;
        }
        Ok(())
    }

    /// Says whether there is something that is not in the transport.
    pub(super) fn show(&self, is_there: bool) {
        // Neither call fails on an open counter.
        let _ = if is_there { self.beside.signal() } else { self.beside.clear().map(drop) };
    }
}

impl AsFd for Poll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.either.as_fd()
    }
}
