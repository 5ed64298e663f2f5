//! A lifeline detects immediately and reliably that another process has ended. It is a socket pair over which nothing
//! is ever sent: the kernel closes a dead process's end, whatever killed the process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::OsError;

/// One end of a lifeline.
#[derive(Debug)]
pub struct Lifeline(OwnedFd);

/// Why [`Lifeline::wait_readable`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// The descriptor became readable.
    Readable,
    /// The peer's end is closed, and the descriptor is not readable.
    PeerClosed,
    /// The time limit passed, or a signal arrived.
    Timeout,
}

impl Lifeline {
    /// Creates both ends; the second one is for the peer.
    pub fn pair() -> Result<(Lifeline, OwnedFd), OsError> {
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map(|(a, b)| (Lifeline(a), b))
            .map_err(|e| OsError::new("socketpair", "lifeline", e))
    }

    /// Takes ownership of an end received from the peer.
    pub fn from_fd(fd: OwnedFd) -> Lifeline {
        Lifeline(fd)
    }

    /// Whether every copy of the peer's end is closed. Makes one system call; does not block.
    pub fn peer_gone(&self) -> Result<bool, OsError> {
        crate::poll::is_hung_up(&self.0).map_err(|e| OsError::new("poll", "lifeline", e))
    }

    /// Sleeps until `fd` is readable, the peer has closed its end, `timeout` has passed, or a signal arrives.
    pub fn wait_readable(
        &self,
        fd: BorrowedFd<'_>,
        timeout: Option<Duration>,
    ) -> Result<Wakeup, OsError> {
        let mut fds = [PollFd::new(&fd, PollFlags::IN), PollFd::new(&self.0, PollFlags::RDHUP)];
        poll(&mut fds, timeout)?;
        Ok(if fds[0].revents().contains(PollFlags::IN) {
            Wakeup::Readable
        } else if !fds[1].revents().is_empty() || !fds[0].revents().is_empty() {
            // A hang-up of `fd` itself also means that the peer has closed.
            Wakeup::PeerClosed
        } else {
            Wakeup::Timeout
        })
    }
}

impl Lifeline {
    /// A descriptor that polls readable when `fd` does, or when the peer has closed its end. `fd` and this end must
    /// stay open for as long as the descriptor is used.
    pub fn watched_with(&self, fd: BorrowedFd<'_>) -> Result<OwnedFd, OsError> {
        let error = |e| OsError::new("epoll", "lifeline", e);
        let either = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(error)?;
        let none = epoll::EventData::new_u64(0);
        epoll::add(&either, fd, none, epoll::EventFlags::IN).map_err(error)?;
        epoll::add(&either, &self.0, none, epoll::EventFlags::RDHUP).map_err(error)?;
        Ok(either)
    }
}

impl AsFd for Lifeline {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn poll(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<(), OsError> {
    let timeout = timeout.map(|t| Timespec {
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    match rustix::event::poll(fds, timeout.as_ref()) {
        Ok(_) => Ok(()),
        Err(Errno::INTR) => {
            for fd in fds {
                fd.clear_revents();
            }
            Ok(())
        }
        Err(e) => Err(OsError::new("poll", "lifeline", e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_is_gone_when_its_last_copy_is_closed() {
        let (end, other) = Lifeline::pair().unwrap();
        let copy = other.try_clone().unwrap();
        drop(other);
        assert!(!end.peer_gone().unwrap());
        drop(copy);
        assert!(end.peer_gone().unwrap());
    }

    #[test]
    fn one_descriptor_reports_data_and_death() {
        use crate::poll::{Interest, wait_ready};
        let (end, other) = Lifeline::pair().unwrap();
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let either = end.watched_with(reader.as_fd()).unwrap();
        let now = || Some(std::time::Instant::now());
        assert!(!wait_ready(&either, Interest::Readable, now()).unwrap());
        std::io::Write::write_all(&mut writer, b"x").unwrap();
        assert!(wait_ready(&either, Interest::Readable, None).unwrap());
        std::io::Read::read_exact(&mut reader, &mut [0]).unwrap();
        assert!(!wait_ready(&either, Interest::Readable, now()).unwrap());
        drop(other);
        assert!(wait_ready(&either, Interest::Readable, None).unwrap());
    }

    #[test]
    fn data_wins_over_death() {
        let (end, other) = Lifeline::pair().unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let none = Some(Duration::ZERO);
        assert_eq!(end.wait_readable(reader.as_fd(), none).unwrap(), Wakeup::Timeout);
        std::io::Write::write_all(&mut writer, b"x").unwrap();
        drop(other);
        assert_eq!(end.wait_readable(reader.as_fd(), None).unwrap(), Wakeup::Readable);
        let (empty, _writer) = std::io::pipe().unwrap();
        assert_eq!(end.wait_readable(empty.as_fd(), None).unwrap(), Wakeup::PeerClosed);
    }
}
