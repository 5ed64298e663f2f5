//! eventfd objects: a counter in the kernel that can be polled.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;
use rustix::io::Errno;

use crate::OsError;

/// A counter that polls readable while it is not zero. Its calls do not block, except [`EventFd::clear`] on a counter
/// made by [`EventFd::blocking`].
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// Creates a counter with value zero.
    pub fn new() -> Result<EventFd, OsError> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(EventFd)
            .map_err(|e| OsError::new("eventfd", "", e))
    }

    /// As [`EventFd::new`], but [`EventFd::clear`] sleeps until the counter is not zero.
    pub fn blocking() -> Result<EventFd, OsError> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC)
            .map(EventFd)
            .map_err(|e| OsError::new("eventfd", "", e))
    }

    /// Takes ownership of a received descriptor.
    pub fn from_fd(fd: OwnedFd) -> EventFd {
        EventFd(fd)
    }

    /// Duplicates the descriptor, for the peer.
    pub fn duplicate(&self) -> Result<OwnedFd, OsError> {
        self.0.try_clone().map_err(|e| OsError::new("fcntl(F_DUPFD_CLOEXEC)", "eventfd", e))
    }

    /// Adds one to the counter. A counter that has reached its maximum stays there. That is not an error, because the
    /// counter polls readable anyway.
    pub fn signal(&self) -> Result<(), OsError> {
        match rustix::io::write(&self.0, &1u64.to_ne_bytes()) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(e) => Err(OsError::new("write", "eventfd", e)),
        }
    }

    /// Sets the counter to zero; returns whether it was above zero.
    pub fn clear(&self) -> Result<bool, OsError> {
        let mut count = [0; 8];
        match rustix::io::read(&self.0, &mut count) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(e) => Err(OsError::new("read", "eventfd", e)),
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_collapse_until_cleared() {
        let event = EventFd::new().unwrap();
        assert!(!event.clear().unwrap());
        event.signal().unwrap();
        EventFd::from_fd(event.duplicate().unwrap()).signal().unwrap();
        assert!(event.clear().unwrap());
        assert!(!event.clear().unwrap());
    }
}
