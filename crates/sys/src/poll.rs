//! Waits for descriptors with a deadline.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

/// The condition to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// There is data to read, or the end of the stream.
    Readable,
    /// There is room to write, or there are no readers left.
    Writable,
}

/// Sleeps until `fd` is ready (also: hung up, or in error) or the deadline has passed; returns whether it is ready.
/// `None` waits for ever. Signals do not end the wait.
pub fn wait_ready(
    fd: impl AsFd,
    interest: Interest,
    until: Option<Instant>,
) -> Result<bool, Errno> {
    let events = match interest {
        Interest::Readable => PollFlags::IN,
        Interest::Writable => PollFlags::OUT,
    };
    let mut fds = [PollFd::new(&fd, events)];
    loop {
        let left = until.map(|at| at.saturating_duration_since(Instant::now()));
        match rustix::event::poll(&mut fds, left.map(timespec).as_ref()) {
            Ok(0) if left.is_some_and(|left| left.is_zero()) => return Ok(false),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(errno) => return Err(errno),
        }
    }
}

/// Sleeps until one of several descriptors is readable (also: hung up, or in error) or the deadline has passed. Returns
/// one flag per descriptor; none is set if the time ran out. `None` waits for ever.
pub fn any_readable(fds: &[BorrowedFd<'_>], until: Option<Instant>) -> Result<Vec<bool>, Errno> {
    let mut polled: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    loop {
        let left = until.map(|at| at.saturating_duration_since(Instant::now()));
        match rustix::event::poll(&mut polled, left.map(timespec).as_ref()) {
            Ok(0) if left.is_some_and(|left| !left.is_zero()) => {}
            Ok(_) => return Ok(polled.iter().map(|p| !p.revents().is_empty()).collect()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Sleeps until one of several descriptors meets its condition (also: hung up, or in error) or the deadline has passed;
/// returns whether one does. `None` waits for ever. A signal ends the wait, too.
pub fn any_ready(
    fds: &[(BorrowedFd<'_>, Interest)],
    until: Option<Instant>,
) -> Result<bool, Errno> {
    let flags = |interest| match interest {
        Interest::Readable => PollFlags::IN,
        Interest::Writable => PollFlags::OUT,
    };
    let mut polled: Vec<_> = fds.iter().map(|(fd, i)| PollFd::new(fd, flags(*i))).collect();
    let left = until.map(|at| at.saturating_duration_since(Instant::now()));
    match rustix::event::poll(&mut polled, left.map(timespec).as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Whether the peer has already shut down its sending side.
pub fn is_hung_up(fd: impl AsFd) -> Result<bool, Errno> {
    is_any_now(fd, PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}

/// Whether nothing can be exchanged with the peer any more: it has closed, or both directions have been shut down.
pub fn has_closed(fd: impl AsFd) -> Result<bool, Errno> {
    is_any_now(fd, PollFlags::HUP | PollFlags::ERR)
}

fn is_any_now(fd: impl AsFd, wanted: PollFlags) -> Result<bool, Errno> {
    let mut fds = [PollFd::new(&fd, wanted)];
    loop {
        match rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(_) => return Ok(fds[0].revents().intersects(wanted)),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Converts a relative time for the kernel, capped at the range of its seconds.
pub(crate) fn timespec(left: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_pipe_is_not_readable_before_the_deadline_and_is_after_a_write() {
        let (r, w) = rustix::pipe::pipe().unwrap();
        let until = Instant::now() + Duration::from_millis(3);
        assert_eq!(wait_ready(&r, Interest::Readable, Some(until)), Ok(false));
        assert!(Instant::now() >= until);
        rustix::io::write(&w, b"x").unwrap();
        assert_eq!(wait_ready(&r, Interest::Readable, None), Ok(true));
        assert_eq!(wait_ready(&w, Interest::Writable, None), Ok(true));
    }

    #[test]
    fn a_pipe_whose_writer_is_gone_is_hung_up() {
        let (r, w) = rustix::pipe::pipe().unwrap();
        assert_eq!(is_hung_up(&r), Ok(false));
        drop(w);
        assert_eq!(is_hung_up(&r), Ok(true));
        assert_eq!(wait_ready(&r, Interest::Readable, None), Ok(true));
    }
}
