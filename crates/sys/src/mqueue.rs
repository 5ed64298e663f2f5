//! POSIX message queues (`mq_open(3)`, `mq_overview(7)`).
//!
//! On Linux a queue descriptor is a file descriptor: it can be polled, passed by `SCM_RIGHTS` and closed by `close`. A
//! queue whose name was unlinked lives until its last descriptor is closed. [`MessageQueue::create_unnamed`] unlinks
//! the name immediately, so a queue is visible in `/dev/mqueue` only between two system calls.
//!
//! Calls on the measured path return the bare [`Errno`].

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;

use crate::OsError;
use crate::clock::timespec;
use crate::patience::Patience;

/// The limits of a queue and its current fill level (`mq_getattr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Maximum number of messages in the queue.
    pub messages: usize,
    /// Largest message in bytes.
    pub message_bytes: usize,
    /// Current number of messages in the queue.
    pub queued: usize,
}

/// The limits for unprivileged processes (`/proc/sys/fs/mqueue`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `msg_max`: maximum number of messages in a queue.
    pub messages: usize,
    /// `msgsize_max`: largest message in bytes.
    pub message_bytes: usize,
}

impl Limits {
    /// Reads the limits; `None` when the kernel has no POSIX message queues.
    pub fn read() -> Option<Limits> {
        let value = |name: &str| -> Option<usize> {
            std::fs::read_to_string(format!("/proc/sys/fs/mqueue/{name}")).ok()?.trim().parse().ok()
        };
        Some(Limits { messages: value("msg_max")?, message_bytes: value("msgsize_max")? })
    }
}

/// The kernel's HARD_MSGSIZEMAX: the largest message, in bytes, for a process with `CAP_SYS_RESOURCE`.
const HARD_MESSAGE_BYTES: usize = 16 << 20;

/// The largest message in bytes that this process may request for a queue; 0 if the kernel has no queues.
pub fn largest_message_bytes() -> usize {
    use rustix::thread::{CapabilitySet, capabilities};
    let privileged =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_RESOURCE));
    if privileged {
        return HARD_MESSAGE_BYTES;
    }
    Limits::read().map_or(0, |limits| limits.message_bytes)
}

/// A message queue.
#[derive(Debug)]
pub struct MessageQueue {
    fd: OwnedFd,
}

impl MessageQueue {
    /// Creates a queue for `messages` messages of at most `message_bytes` under `name`, which begins with a slash, and
    /// immediately unlinks the name. Hold a lease on the name: the process could be killed between the two calls.
    ///
    /// Errors: `EINVAL` when the attributes exceed [`Limits`] (for processes with `CAP_SYS_RESOURCE`, the hard limits),
    /// `EMFILE` when they exceed `RLIMIT_MSGQUEUE`, `ENOSYS` when the kernel has no queues.
    pub fn create_unnamed(
        name: &str,
        messages: usize,
        message_bytes: usize,
    ) -> Result<Self, OsError> {
        let c_name = CString::new(name)
            .map_err(|_| OsError::new("mq_open", format!("{name:?}"), Errno::INVAL))?;
        let mut attributes = zeroed_attributes();
        attributes.mq_maxmsg = messages.try_into().unwrap_or(libc::c_long::MAX);
        attributes.mq_msgsize = message_bytes.try_into().unwrap_or(libc::c_long::MAX);
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        let mode: libc::mode_t = 0o600;
        // SAFETY: with O_CREAT mq_open takes a mode and a pointer to attributes, both given; all pointers
        // outlive the call.
        let fd = unsafe { libc::mq_open(c_name.as_ptr(), flags, mode, &raw mut attributes) };
        if fd < 0 {
            return Err(OsError::last(
                "mq_open",
                format!("{name} (mq_maxmsg {messages}, mq_msgsize {message_bytes})"),
            ));
        }
        // SAFETY: the name is a C string that outlives the call.
        let unlinked = unsafe { libc::mq_unlink(c_name.as_ptr()) };
        let error = (unlinked < 0).then(|| OsError::last("mq_unlink", name));
        // SAFETY: mq_open returned this descriptor just now and nothing else owns it; on Linux an mqd_t is a
        // file descriptor.
        let queue = MessageQueue { fd: unsafe { OwnedFd::from_raw_fd(fd) } };
        error.map_or(Ok(queue), Err)
    }

    /// Takes ownership of a queue descriptor received from another process. Errors: `EBADF` when it is not a queue.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, OsError> {
        let queue = MessageQueue { fd };
        queue.attributes()?;
        Ok(queue)
    }

    /// Reads the queue's attributes.
    pub fn attributes(&self) -> Result<Attributes, OsError> {
        let mut a = zeroed_attributes();
        // SAFETY: the descriptor is open as long as `self` lives and `a` outlives the call.
        if unsafe { libc::mq_getattr(self.fd.as_raw_fd(), &raw mut a) } < 0 {
            return Err(OsError::last("mq_getattr", ""));
        }
        // The kernel never gives a negative number here.
        let size = |n: libc::c_long| usize::try_from(n).unwrap_or(0);
        Ok(Attributes {
            messages: size(a.mq_maxmsg),
            message_bytes: size(a.mq_msgsize),
            queued: size(a.mq_curmsgs),
        })
    }

    /// Sends a message; returns whether there was room in time. Messages of higher priority overtake those of lower
    /// priority.
    ///
    /// A deadline is converted to the wall clock, which `mq_timedsend` uses. If that clock is set while we wait, the
    /// wait ends early or late by the same amount; if early, we wait again.
    pub fn send(&self, message: &[u8], priority: u32, patience: Patience) -> Result<bool, Errno> {
        loop {
            let until = wall_clock(patience);
            let until_ptr = until.as_ref().map_or(std::ptr::null(), |t| t as *const libc::timespec);
            // SAFETY: pointer and length describe `message`; `until_ptr` is null, which means no limit, or points
            // to `until`, which outlives the call.
            let sent = unsafe {
                libc::mq_timedsend(
                    self.fd.as_raw_fd(),
                    message.as_ptr().cast(),
                    message.len(),
                    priority,
                    until_ptr,
                )
            };
            if sent == 0 {
                return Ok(true);
            }
            match crate::error::last_errno() {
                Errno::INTR => {}
                Errno::AGAIN => return Ok(false),
                Errno::TIMEDOUT if patience.is_over() => return Ok(false),
                Errno::TIMEDOUT => {}
                errno => return Err(errno),
            }
        }
    }

    /// Receives the oldest message of the highest priority; returns its length and priority, or `None` when no message
    /// arrived in time. `buffer` must be as large as the queue's largest message, otherwise the call fails with
    /// `EMSGSIZE`.
    pub fn receive(
        &self,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<Option<(usize, u32)>, Errno> {
        loop {
            let until = wall_clock(patience);
            let until_ptr = until.as_ref().map_or(std::ptr::null(), |t| t as *const libc::timespec);
            let mut priority = 0;
            // SAFETY: pointer and length describe `buffer`, which is borrowed exclusively; `until_ptr` as in `send`;
            // `priority` outlives the call.
            let received = unsafe {
                libc::mq_timedreceive(
                    self.fd.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    &raw mut priority,
                    until_ptr,
                )
            };
            if let Ok(len) = usize::try_from(received) {
                return Ok(Some((len, priority)));
            }
            match crate::error::last_errno() {
                Errno::INTR => {}
                Errno::AGAIN => return Ok(None),
                Errno::TIMEDOUT if patience.is_over() => return Ok(None),
                Errno::TIMEDOUT => {}
                errno => return Err(errno),
            }
        }
    }
}

impl AsFd for MessageQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<MessageQueue> for OwnedFd {
    fn from(queue: MessageQueue) -> OwnedFd {
        queue.fd
    }
}

fn zeroed_attributes() -> libc::mq_attr {
    // SAFETY: mq_attr consists of integers only; all zeroes is a value of it.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// The instant on CLOCK_REALTIME at which to stop waiting; `None`: never. `Patience::Now` becomes the epoch, which is
/// long past, so the kernel returns before it sleeps. The descriptor therefore does not need O_NONBLOCK, which would
/// also affect other processes that have the queue open.
fn wall_clock(patience: Patience) -> Option<libc::timespec> {
    let at = match patience {
        Patience::Forever => return None,
        Patience::Now => Duration::ZERO,
        Patience::Until(_) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            now.saturating_add(patience.left().unwrap_or_default())
        }
    };
    Some(timespec(at))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn create(messages: usize, message_bytes: usize) -> Result<MessageQueue, OsError> {
        let name = format!("/{}", crate::lease::fresh_name("test"));
        MessageQueue::create_unnamed(&name, messages, message_bytes)
    }

    fn queue() -> MessageQueue {
        create(2, 64).expect("POSIX message queues")
    }

    #[test]
    fn a_queue_carries_messages_with_boundaries_and_leaves_no_name() {
        let q = queue();
        assert_eq!(
            q.attributes().unwrap(),
            Attributes { messages: 2, message_bytes: 64, queued: 0 }
        );
        assert!(q.send(b"one", 1, Patience::Now).unwrap());
        assert!(q.send(b"", 1, Patience::Now).unwrap());
        assert_eq!(q.attributes().unwrap().queued, 2);
        let mut buf = [0; 64];
        assert_eq!(q.receive(&mut buf, Patience::Now).unwrap(), Some((3, 1)));
        assert_eq!(&buf[..3], b"one");
        assert_eq!(q.receive(&mut buf, Patience::Forever).unwrap(), Some((0, 1)));
        // /proc shows the queue's name for the descriptor, marked as deleted.
        let link = std::fs::read_link(format!("/proc/self/fd/{}", q.fd.as_raw_fd())).unwrap();
        assert!(link.to_string_lossy().ends_with("(deleted)"), "{link:?}");
    }

    #[test]
    fn a_higher_priority_overtakes() {
        let q = queue();
        assert!(q.send(b"low", 0, Patience::Now).unwrap());
        assert!(q.send(b"high", 1, Patience::Now).unwrap());
        let mut buf = [0; 64];
        assert_eq!(q.receive(&mut buf, Patience::Now).unwrap(), Some((4, 1)));
        assert_eq!(q.receive(&mut buf, Patience::Now).unwrap(), Some((3, 0)));
    }

    #[test]
    fn full_and_empty_end_at_once_or_at_the_deadline() {
        let q = queue();
        let mut buf = [0; 64];
        let soon = || Patience::Until(Instant::now() + Duration::from_millis(20));
        assert_eq!(q.receive(&mut buf, Patience::Now).unwrap(), None);
        let before = Instant::now();
        assert_eq!(q.receive(&mut buf, soon()).unwrap(), None);
        assert!(before.elapsed() >= Duration::from_millis(20));
        assert!(q.send(b"a", 1, soon()).unwrap());
        assert!(q.send(b"b", 1, soon()).unwrap());
        assert!(!q.send(b"c", 1, Patience::Now).unwrap());
        let before = Instant::now();
        assert!(!q.send(b"c", 1, soon()).unwrap());
        assert!(before.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn errors_name_the_call_and_the_attributes() {
        let most = usize::MAX / 2;
        let e = create(1, most).unwrap_err();
        assert_eq!(e.call, "mq_open");
        assert!(e.to_string().contains(&format!("mq_msgsize {most}")), "{e}");
        assert_eq!(queue().send(&[0; 65], 1, Patience::Now), Err(Errno::MSGSIZE));
        let file = std::fs::File::open("/dev/null").unwrap();
        let e = MessageQueue::from_fd(file.into()).unwrap_err();
        assert_eq!((e.call, e.errno()), ("mq_getattr", libc::EBADF));
    }
}
