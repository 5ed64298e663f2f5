//! The descriptor that the program of a receiver polls.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crossway_sys::OsError;
use crossway_sys::epoll::{Epoll, Trigger};
use crossway_sys::eventfd::EventFd;

use crate::net::stream::Stream;

/// A descriptor for programs that poll. It stays the same while connections change.
pub(super) struct Bell {
    epoll: Mutex<Epoll>,
    /// A duplicate of the epoll descriptor.
    pub(super) fd: OwnedFd,
    /// Signalled while a whole item waits in the receiver's memory, or when nothing more will arrive.
    ready: EventFd,
    is_raised: AtomicBool,
}

impl Bell {
    pub(super) fn new() -> Result<Bell, OsError> {
        let (epoll, ready) = (Epoll::new(1)?, EventFd::new()?);
        epoll.add(&ready, 1, Trigger::WhileReadable)?;
        let fd = epoll.as_fd().try_clone_to_owned();
        let fd = fd.map_err(|e| OsError::new("fcntl(F_DUPFD_CLOEXEC)", "epoll", e))?;
        Ok(Bell { epoll: Mutex::new(epoll), fd, ready, is_raised: AtomicBool::new(false) })
    }

    pub(super) fn watch(&self, stream: &Stream) {
        let epoll = self.epoll.lock().unwrap_or_else(PoisonError::into_inner);
        // If the connection is closed meanwhile, another one replaces it.
        let _ = epoll.add(stream, 0, Trigger::WhileReadable);
    }

    /// Stops watching a connection that has ended, which would otherwise poll readable until its descriptor is closed.
    pub(super) fn unwatch(&self, stream: &Stream) {
        let epoll = self.epoll.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = epoll.remove(stream);
    }

    pub(super) fn raise(&self, on: bool) {
        if self.is_raised.swap(on, Ordering::AcqRel) != on {
            let _ = if on { self.ready.signal() } else { self.ready.clear().map(drop) };
        }
    }
}
