//! Waits for the readiness of many descriptors at once (epoll(7)).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use crate::OsError;

/// What one wait reports about a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The token that was passed to [`Epoll::add`].
    pub token: u64,
    /// There is data to read, or the end of the stream.
    pub readable: bool,
    /// There is room to write, or the descriptor is hung up or in error.
    pub writable: bool,
    /// The peer has shut down its sending side, or the descriptor is hung up or in error; data sent before may still be
    /// unread.
    pub ended: bool,
}

// SAFETY: the pointers in `events` are rustix's view of the kernel's output; they hold the tokens of `Epoll::add` and
// are never dereferenced.
unsafe impl Send for Epoll {}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// When a descriptor is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Only on an error or a hang-up (EPOLLERR, EPOLLHUP), not for data.
    Errors,
    /// Whenever the descriptor is readable (level-triggered).
    WhileReadable,
    /// Once for each arrival of data (edge-triggered), and at the end of the stream.
    Input,
    /// Once for each arrival of data or of room to write (edge-triggered): the caller must read or write until EAGAIN.
    Changes,
}

/// An epoll instance.
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<Event>,
}

impl std::fmt::Debug for Epoll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Epoll").field("fd", &self.fd).finish_non_exhaustive()
    }
}

fn flags(trigger: Trigger) -> EventFlags {
    match trigger {
        Trigger::Errors => EventFlags::empty(),
        Trigger::WhileReadable => EventFlags::IN,
        Trigger::Input => EventFlags::IN | EventFlags::RDHUP | EventFlags::ET,
        Trigger::Changes => EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET,
    }
}

impl Epoll {
    /// Creates an instance whose waits report at most `batch` descriptors.
    ///
    /// # Errors
    /// [`OsError`] of epoll_create1.
    pub fn new(batch: usize) -> Result<Self, OsError> {
        let fd = epoll::create(CreateFlags::CLOEXEC)
            .map_err(|e| OsError::new("epoll_create1", "", e))?;
        Ok(Self { fd, events: Vec::with_capacity(batch) })
    }

    /// Starts watching a descriptor. Closing it ends the watch if no duplicate of it is open.
    ///
    /// # Errors
    /// [`OsError`] of epoll_ctl.
    pub fn add(&self, fd: impl AsFd, token: u64, trigger: Trigger) -> Result<(), OsError> {
        epoll::add(&self.fd, fd, EventData::new_u64(token), flags(trigger))
            .map_err(|e| OsError::new("epoll_ctl(EPOLL_CTL_ADD)", token, e))
    }

    /// Changes how a watched descriptor is reported. A condition that already holds is reported once more.
    ///
    /// # Errors
    /// [`OsError`] of epoll_ctl.
    pub fn change(&self, fd: impl AsFd, token: u64, trigger: Trigger) -> Result<(), OsError> {
        epoll::modify(&self.fd, fd, EventData::new_u64(token), flags(trigger))
            .map_err(|e| OsError::new("epoll_ctl(EPOLL_CTL_MOD)", token, e))
    }

    /// Stops watching a descriptor.
    ///
    /// # Errors
    /// [`OsError`] of epoll_ctl.
    pub fn remove(&self, fd: impl AsFd) -> Result<(), OsError> {
        epoll::delete(&self.fd, fd).map_err(|e| OsError::new("epoll_ctl(EPOLL_CTL_DEL)", "", e))
    }

    /// Sleeps until a descriptor is ready or `until` has passed; `None` waits for ever. A signal ends the wait, too.
    ///
    /// # Errors
    /// The errno of epoll_wait.
    pub fn wait(
        &mut self,
        until: Option<Instant>,
    ) -> Result<impl Iterator<Item = Ready> + '_, Errno> {
        let left = until.map(|at| at.saturating_duration_since(Instant::now()));
        self.wait_for(left)
    }

    /// As [`Epoll::wait`], with a time limit relative to now.
    ///
    /// # Errors
    /// The errno of epoll_wait.
    pub fn wait_for(
        &mut self,
        left: Option<Duration>,
    ) -> Result<impl Iterator<Item = Ready> + '_, Errno> {
        let limit = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        self.events.clear();
        let room = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.fd, room, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        Ok(self.events.iter().map(|event| {
            let flags = event.flags;
            let ended = EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP;
            let ended = flags.intersects(ended);
            Ready {
                token: event.data.u64(),
                readable: ended || flags.contains(EventFlags::IN),
                writable: flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR),
                ended,
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_reported_once_and_levels_as_long_as_they_hold() {
        let mut epoll = Epoll::new(8).unwrap();
        let (r, w) = rustix::pipe::pipe().unwrap();
        epoll.add(&r, 7, Trigger::Changes).unwrap();
        let now = Some(Duration::ZERO);
        assert_eq!(epoll.wait_for(now).unwrap().count(), 0);
        rustix::io::write(&w, b"x").unwrap();
        let ready: Vec<_> = epoll.wait_for(None).unwrap().collect();
        assert_eq!(ready, [Ready { token: 7, readable: true, writable: false, ended: false }]);
        assert_eq!(epoll.wait_for(now).unwrap().count(), 0, "an edge is reported once");
        epoll.change(&r, 8, Trigger::WhileReadable).unwrap();
        for _ in 0..2 {
            assert_eq!(epoll.wait_for(now).unwrap().next().map(|r| r.token), Some(8));
        }
        let until = Instant::now() + Duration::from_millis(3);
        epoll.remove(&r).unwrap();
        assert_eq!(epoll.wait(Some(until)).unwrap().count(), 0);
        assert!(Instant::now() >= until);
    }

    /// tipcd uses [`Trigger::Errors`] for a medium whose frames it fetches at intervals.
    #[test]
    fn data_wakes_no_waiter_that_asked_for_errors_only() {
        let mut epoll = Epoll::new(8).unwrap();
        let (r, w) = rustix::pipe::pipe().unwrap();
        epoll.add(&r, 7, Trigger::WhileReadable).unwrap();
        epoll.change(&r, 7, Trigger::Errors).unwrap();
        rustix::io::write(&w, b"x").unwrap();
        let now = Some(Duration::ZERO);
        assert_eq!(epoll.wait_for(now).unwrap().count(), 0);
        epoll.change(&r, 7, Trigger::WhileReadable).unwrap();
        assert_eq!(epoll.wait_for(now).unwrap().count(), 1, "data that came before is reported");
        epoll.change(&r, 7, Trigger::Errors).unwrap();
        drop(w);
        assert_eq!(epoll.wait_for(now).unwrap().next().map(|r| r.ended), Some(true));
    }

    /// tipcd waits for this change when a program sends a request before it has received the previous answer.
    #[test]
    fn reception_by_the_other_end_is_reported_as_a_change() {
        use crate::socket::{self, SocketType};
        let mut epoll = Epoll::new(8).unwrap();
        let (ours, theirs) = socket::unix_pair(SocketType::Seqpacket).unwrap();
        assert_eq!(socket::peer_credentials(&ours).unwrap().pid, std::process::id());
        assert_eq!(socket::is_all_received(&ours), Ok(true));
        epoll.add(&ours, 7, Trigger::WhileReadable).unwrap();
        for _ in 0..2 {
            socket::send(&ours, b"answer", true).unwrap();
        }
        epoll.change(&ours, 7, Trigger::Changes).unwrap();
        let now = Some(Duration::ZERO);
        assert_eq!(epoll.wait_for(now).unwrap().count(), 1, "there is room");
        assert_eq!(epoll.wait_for(now).unwrap().count(), 0);
        for left in [false, true] {
            socket::recv(&theirs, &mut [0; 8], true).unwrap();
            assert_eq!(epoll.wait_for(now).unwrap().count(), 1, "it was received");
            assert_eq!(socket::is_all_received(&ours), Ok(left));
        }
        socket::send(&ours, b"answer", true).unwrap();
        drop(theirs);
        assert_eq!(epoll.wait_for(now).unwrap().next().map(|r| r.ended), Some(true));
        assert_eq!(socket::is_all_received(&ours), Ok(true), "thrown away");
    }
}
