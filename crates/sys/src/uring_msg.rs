//! io_uring as a mailbox: a ring into whose completion queue other processes post numbers
//! (IORING_OP_MSG_RING, Linux 5.18), and by which its owner posts to theirs.
//!
//! The other process needs a descriptor of the ring. Since Linux 6.7 a UNIX socket does not carry
//! one (EINVAL), so it takes it with pidfd_getfd(2) ([`crate::proc::descriptor_of`]).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use rustix::io::Errno;

use crate::{OsError, uring};

/// Number of entries in the submission queue: enough for a post and a watch.
const ENTRIES: u32 = 4;

/// The user data of own requests. Posts of others are below [`LARGEST_NUMBER`].
const OWN_POST: u64 = u64::MAX;
const WATCH: u64 = u64::MAX - 1;

/// The largest number that can be posted.
pub const LARGEST_NUMBER: u64 = u64::MAX >> 1;

/// What has arrived in a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// What another process has posted. It may be anything.
    Post {
        /// A number, at most [`LARGEST_NUMBER`].
        number: u64,
        /// A length.
        len: i32,
    },
    /// The watched socket was closed by its peer. All that the peer posted has arrived before.
    PeerClosed,
}

/// Whether a descriptor is one of an io_uring.
pub fn is_ring(fd: impl AsFd) -> bool {
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    std::fs::read_link(link).is_ok_and(|target| target.as_os_str() == "anon_inode:[io_uring]")
}

/// A ring that takes posts.
pub struct Mailbox {
    ring: IoUring,
    /// Whether a request is in flight that completes when the watched socket hangs up.
    watches: bool,
    hung_up: bool,
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").field("fd", &self.ring.as_raw_fd()).finish_non_exhaustive()
    }
}

impl AsFd for Mailbox {
    /// The descriptor polls readable when something has arrived.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps its descriptor open as long as `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl Mailbox {
    /// Creates a mailbox with room for `posts` posts; more of them take kernel memory.
    ///
    /// # Errors
    /// Those of [`uring::Ring::new`].
    pub fn new(posts: u32) -> Result<Mailbox, OsError> {
        let ring = uring::set_up(|| {
            // One more for the watch, one for a post that failed.
            IoUring::builder().setup_cqsize((posts + 2).next_power_of_two()).build(ENTRIES)
        })?;
        Ok(Mailbox { ring, watches: false, hung_up: false })
    }

    /// Posts to another process's ring, and watches `socket` from then on. Returns when the post
    /// has arrived; if it has failed, [`Mailbox::take`] returns the error.
    ///
    /// # Errors
    /// The kernel has no memory for the request.
    #[inline]
    pub fn post(
        &mut self,
        to: impl AsFd,
        number: u64,
        len: i32,
        socket: BorrowedFd<'_>,
    ) -> Result<(), Errno> {
        debug_assert!(number <= LARGEST_NUMBER);
        let ring = Fd(to.as_fd().as_raw_fd());
        let post = opcode::MsgRingData::new(ring, len, number, None)
            .build()
            .flags(Flags::SKIP_SUCCESS)
            .user_data(OWN_POST);
        self.push(&post)?;
        self.watch(socket)?;
        self.submit()
    }

    /// What arrived next; EAGAIN if there is nothing.
    ///
    /// # Errors
    /// A post failed: EBADFD if it was not to a ring, EINVAL before Linux 5.18.
    #[inline]
    pub fn take(&mut self, socket: BorrowedFd<'_>) -> Result<Arrived, Errno> {
        loop {
            let Some(entry) = self.ring.completion().next() else {
                if self.hung_up {
                    return Ok(Arrived::PeerClosed);
                }
                return self.nothing(socket);
            };
            match (entry.user_data(), entry.result()) {
                (WATCH, result) => {
                    // The request is cancelled when the thread that made it ends.
                    self.watches = false;
                    self.hung_up |= result >= 0;
                }
                (OWN_POST, result) => return Err(Errno::from_raw_os_error(-result.min(-1))),
                (number, len) => return Ok(Arrived::Post { number, len }),
            }
        }
    }

    #[inline]
    fn nothing(&mut self, socket: BorrowedFd<'_>) -> Result<Arrived, Errno> {
        if !self.watches {
            self.watch(socket)?;
            self.submit()?;
        }
        if self.ring.submission().cq_overflow() {
            // The kernel holds posts that found the queue full.
            let _ = self.ring.submit_and_wait(0);
        }
        Err(Errno::AGAIN)
    }

    /// Sleeps until something arrives, the time has come, or a signal arrives.
    ///
    /// # Errors
    /// The kernel has no memory for the request.
    #[inline]
    pub fn sleep(&mut self, socket: BorrowedFd<'_>, until: Option<Instant>) -> Result<(), Errno> {
        if self.hung_up {
            return Ok(());
        }
        self.watch(socket)?;
        let outcome = match until {
            None => self.ring.submit_and_wait(1),
            Some(until) => {
                let time = Timespec::from(until.saturating_duration_since(Instant::now()));
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
        };
        match outcome.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL)) {
            Ok(_) | Err(Errno::INTR | Errno::TIME | Errno::AGAIN | Errno::BUSY) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Queues the request that completes when the peer closes `socket`, unless it is in flight.
    #[inline]
    fn watch(&mut self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.watches || self.hung_up {
            return Ok(());
        }
        let closed = libc::POLLRDHUP.cast_unsigned().into();
        let poll = opcode::PollAdd::new(Fd(socket.as_raw_fd()), closed).build().user_data(WATCH);
        self.push(&poll)?;
        self.watches = true;
        Ok(())
    }

    #[inline]
    fn push(&mut self, entry: &Entry) -> Result<(), Errno> {
        // SAFETY: the requests of this module point to no memory, and the kernel takes references
        // to their descriptors when they are submitted.
        unsafe { self.ring.submission().push(entry) }.map_err(|_| Errno::BUSY)
    }

    #[inline]
    fn submit(&mut self) -> Result<(), Errno> {
        // The kernel may have no memory at the moment, or be interrupted before it has taken
        // anything.
        for pause in [0, 0, 1, 1, 10, 10].map(Duration::from_millis) {
            let outcome = self.ring.submit();
            if self.ring.submission().is_empty() {
                return Ok(());
            }
            if let Err(error) = outcome
                && !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
            {
                return Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL));
            }
            std::thread::sleep(pause);
        }
        Err(Errno::AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::socket::{self, SocketType};

    /// Two mailboxes, each with an end of a pair of sockets.
    fn two() -> Option<[(Mailbox, OwnedFd); 2]> {
        let (a, b) = socket::unix_pair(SocketType::Seqpacket).unwrap();
        match (Mailbox::new(8), Mailbox::new(8)) {
            (Ok(ours), Ok(theirs)) => Some([(ours, a), (theirs, b)]),
            (Err(error), _) | (_, Err(error)) => {
                let (why, remedy) = uring::why_missing(&error);
                eprintln!("SKIP io_uring: {why}; {remedy}");
                None
            }
        }
    }

    #[test]
    fn posts_arrive_in_order_and_then_the_close() {
        let Some([(mut ours, a), (mut theirs, b)]) = two() else { return };
        assert!(is_ring(&ours) && !is_ring(&a));
        assert_eq!(theirs.take(b.as_fd()), Err(Errno::AGAIN));
        // More than there is room for: the kernel keeps the others.
        for number in 0..100 {
            ours.post(&theirs, number, 7, a.as_fd()).unwrap();
        }
        match ours.take(a.as_fd()) {
            Err(Errno::AGAIN) => {}
            Err(Errno::INVAL) => return eprintln!("SKIP IORING_OP_MSG_RING: Linux 5.18 or later"),
            other => panic!("{other:?}"),
        }
        socket::shutdown_send(&a);
        for number in 0..100 {
            let arrived = loop {
                match theirs.take(b.as_fd()) {
                    Err(Errno::AGAIN) => theirs.sleep(b.as_fd(), None).unwrap(),
                    done => break done,
                }
            };
            assert_eq!(arrived, Ok(Arrived::Post { number, len: 7 }));
        }
        while theirs.take(b.as_fd()) == Err(Errno::AGAIN) {
            theirs.sleep(b.as_fd(), None).unwrap();
        }
        assert_eq!(theirs.take(b.as_fd()), Ok(Arrived::PeerClosed));
    }

    #[test]
    fn a_post_to_what_is_no_ring_fails() {
        let Some([(mut ours, a), _]) = two() else { return };
        ours.post(&a, 0, 0, a.as_fd()).unwrap();
        let failed = ours.take(a.as_fd());
        assert!(matches!(failed, Err(Errno::BADFD | Errno::INVAL)), "{failed:?}");
    }

    /// The kernel cancels a watch when the thread that made it ends.
    #[test]
    fn a_close_is_noticed_in_another_thread_than_before() {
        let Some([_, (mut theirs, b)]) = two() else { return };
        let (a, b) = {
            drop(b);
            socket::unix_pair(SocketType::Seqpacket).unwrap()
        };
        let (mut theirs, b) = std::thread::spawn(move || {
            assert_eq!(theirs.take(b.as_fd()), Err(Errno::AGAIN));
            (theirs, b)
        })
        .join()
        .unwrap();
        assert_eq!(theirs.take(b.as_fd()), Err(Errno::AGAIN));
        drop(a);
        while theirs.take(b.as_fd()) == Err(Errno::AGAIN) {
            theirs.sleep(b.as_fd(), None).unwrap();
        }
        assert_eq!(theirs.take(b.as_fd()), Ok(Arrived::PeerClosed));
    }

    #[test]
    fn a_sleep_ends_at_its_time() {
        let Some([_ours, (mut theirs, b)]) = two() else { return };
        let until = Instant::now() + Duration::from_millis(10);
        while Instant::now() < until {
            theirs.sleep(b.as_fd(), Some(until)).unwrap();
        }
        assert_eq!(theirs.take(b.as_fd()), Err(Errno::AGAIN));
    }
}
