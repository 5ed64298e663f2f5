//! Descriptors whose calls take their way of waiting from the open file.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// An open file that belongs to this process alone. Its mode is changed only when a call needs the
/// other one, so that calls of one kind make no further system call.
#[derive(Debug)]
pub(crate) struct Switched {
    fd: OwnedFd,
    nonblocking: bool,
}

impl Switched {
    /// Takes over a descriptor.
    pub(crate) fn new(fd: OwnedFd) -> Result<Self, Errno> {
        let nonblocking = rustix::fs::fcntl_getfl(&fd)?.contains(OFlags::NONBLOCK);
        Ok(Switched { fd, nonblocking })
    }

    /// Whether calls return immediately now.
    #[inline]
    pub(crate) fn is_nonblocking(&self) -> bool {
        self.nonblocking
    }

    /// Makes calls return immediately, or wait.
    #[inline]
    pub(crate) fn set(&mut self, nonblocking: bool) -> Result<(), Errno> {
        if self.nonblocking != nonblocking {
            let flags = if nonblocking { OFlags::NONBLOCK } else { OFlags::empty() };
            rustix::fs::fcntl_setfl(&self.fd, flags)?;
            self.nonblocking = nonblocking;
        }
        Ok(())
    }
}

impl AsFd for Switched {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
