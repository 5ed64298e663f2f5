//! System V message queues (`msgget(2)`, `msgop(2)`, `msgctl(2)`).
//!
//! A queue has an id and no descriptor. It exists until it is removed (`IPC_RMID`), which wakes all waiters with
//! `EIDRM`. Calls on the measured path return the bare [`Errno`].

use std::mem::MaybeUninit;

use rustix::io::Errno;

use crate::OsError;
use crate::error::last_errno;
use crate::interrupt::interrupted_at;
use crate::patience::Patience;

/// The kernel's limits (`/proc/sys/kernel`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `msgmax`: largest message in bytes.
    pub message_bytes: usize,
    /// `msgmnb`: the capacity of a new queue in bytes, and the maximum that an unprivileged process may set.
    pub queue_bytes: usize,
    /// `msgmni`: maximum number of queues.
    pub queues: usize,
}

impl Limits {
    /// Reads the limits; `None` when the kernel has no System V queues.
    pub fn read() -> Option<Limits> {
        let value = |name: &str| -> Option<usize> {
            std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse().ok()
        };
        Some(Limits {
            message_bytes: value("msgmax")?,
            queue_bytes: value("msgmnb")?,
            queues: value("msgmni")?,
        })
    }
}

/// The capacity and fill level of a queue (`IPC_STAT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Maximum total length of the texts of all queued messages, in bytes (`msg_qbytes`).
    pub queue_bytes: usize,
    /// Current number of messages.
    pub queued: usize,
}

/// A message buffer with space for the type in front of the text, as the kernel requires.
#[derive(Debug)]
pub struct Envelope {
    // Words, so that the type, the first word, is aligned.
    words: Vec<libc::c_long>,
    room: usize,
}

const WORD: usize = size_of::<libc::c_long>();

impl Envelope {
    /// Creates an envelope for texts of up to `room` bytes.
    pub fn with_room(room: usize) -> Self {
        Envelope { words: vec![0; 1 + room.div_ceil(WORD)], room }
    }

    /// The capacity for text in bytes.
    pub fn room(&self) -> usize {
        self.room
    }

    /// The first `len` bytes of the text. Panics if the envelope is smaller.
    pub fn text(&self, len: usize) -> &[u8] {
        assert!(len <= self.room, "text of {len} bytes in an envelope for {}", self.room);
        let text = self.words[1..].as_ptr().cast::<u8>();
        // SAFETY: the words after the first are at least `room` initialised bytes, borrowed with `self`; a byte
        // needs no alignment.
        unsafe { std::slice::from_raw_parts(text, len) }
    }

    /// The first `len` bytes of the text, for writing. Panics if the envelope is smaller.
    pub fn text_mut(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.room, "text of {len} bytes in an envelope for {}", self.room);
        let text = self.words[1..].as_mut_ptr().cast::<u8>();
        // SAFETY: as in `text`, and exclusively borrowed; any bytes make valid words.
        unsafe { std::slice::from_raw_parts_mut(text, len) }
    }
}

/// The outcome of [`SysvQueue::send`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The message is in the queue.
    Done,
    /// There was no room in time.
    NoRoom,
    /// The queue was removed.
    Removed,
}

/// The outcome of [`SysvQueue::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A message was received.
    Message {
        /// The type that its sender gave it, greater than 0.
        kind: libc::c_long,
        /// The length of its text in bytes.
        len: usize,
    },
    /// No message arrived in time.
    Nothing,
    /// The queue was removed.
    Removed,
}

/// The id of a queue. Dropping it does not remove the queue: see [`SysvQueue::remove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SysvQueue {
    id: libc::c_int,
}

impl SysvQueue {
    /// Creates a queue that only this user may open. Hold a lease on the key. Errors: `EEXIST` when the key is taken,
    /// `ENOSPC` when there are `msgmni` queues already.
    pub fn create(key: i32) -> Result<Self, OsError> {
        let flags = libc::IPC_CREAT | libc::IPC_EXCL | 0o600;
        // SAFETY: takes integers only.
        let id = unsafe { libc::msgget(key, flags) };
        if id < 0 {
            return Err(OsError::last("msgget", format!("key {key:#x}")));
        }
        Ok(SysvQueue { id })
    }

    /// The queue with this id. Does not check whether it exists: [`SysvQueue::status`] and every other call do.
    pub fn from_id(id: i32) -> Self {
        SysvQueue { id }
    }

    /// The id, under which `ipcs -q` lists it.
    pub fn id(self) -> i32 {
        self.id
    }

    /// Sets the capacity in bytes. Errors: `EPERM` when above `msgmnb` and without `CAP_SYS_RESOURCE`.
    pub fn set_queue_bytes(self, bytes: usize) -> Result<(), OsError> {
        let mut ds = self.stat()?;
        ds.msg_qbytes = bytes as libc::msglen_t;
        // SAFETY: `ds` outlives the call, which only reads it.
        if unsafe { libc::msgctl(self.id, libc::IPC_SET, &raw mut ds) } < 0 {
            return Err(self.error("msgctl(IPC_SET)"));
        }
        Ok(())
    }

    /// Reads the capacity and the fill level.
    pub fn status(self) -> Result<Status, OsError> {
        let ds = self.stat()?;
        Ok(Status { queue_bytes: ds.msg_qbytes as usize, queued: ds.msg_qnum as usize })
    }

    /// Removes the queue and its messages and wakes all waiters. A queue that no longer exists is not an error.
    pub fn remove(self) -> Result<(), OsError> {
        // SAFETY: IPC_RMID reads no buffer.
        if unsafe { libc::msgctl(self.id, libc::IPC_RMID, std::ptr::null_mut()) } < 0 {
            let error = self.error("msgctl(IPC_RMID)");
            // Removed already; a queue that exists but belongs to another user gives EPERM.
            if !matches!(error.errno(), libc::EIDRM | libc::EINVAL) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Sends the first `len` bytes of the envelope as a message of type `kind`, which must be above zero. Panics if the
    /// envelope is smaller.
    pub fn send(
        self,
        envelope: &mut Envelope,
        kind: libc::c_long,
        len: usize,
        patience: Patience,
    ) -> Result<Sent, Errno> {
        assert!(len <= envelope.room, "text of {len} bytes in an envelope for {}", envelope.room);
        envelope.words[0] = kind;
        let once = |flags: libc::c_int| {
            // SAFETY: the envelope holds the type and at least `len` bytes after it and outlives the call.
            let sent = unsafe { libc::msgsnd(self.id, envelope.words.as_ptr().cast(), len, flags) };
            if sent == 0 { Ok(Sent::Done) } else { Err(last_errno()) }
        };
        self.wait(patience, once, Sent::NoRoom, Sent::Removed, Errno::AGAIN)
    }

    /// Receives the first message of the lowest type that is not above `highest`, which must be above zero.
    ///
    /// Errors: `E2BIG` when the message does not fit the envelope; it then stays in the queue.
    pub fn receive(
        self,
        envelope: &mut Envelope,
        highest: libc::c_long,
        patience: Patience,
    ) -> Result<Received, Errno> {
        let room = envelope.room;
        let words = &mut envelope.words;
        let once = |flags: libc::c_int| {
            // SAFETY: the envelope has room for the type and `room` bytes after it, is exclusively ours and
            // outlives the call; any bytes make valid words.
            let received =
                unsafe { libc::msgrcv(self.id, words.as_mut_ptr().cast(), room, -highest, flags) };
            match usize::try_from(received) {
                Ok(len) => Ok(Received::Message { kind: words[0], len }),
                Err(_) => Err(last_errno()),
            }
        };
        self.wait(patience, once, Received::Nothing, Received::Removed, Errno::NOMSG)
    }

    fn stat(self) -> Result<libc::msqid_ds, OsError> {
        let mut ds = MaybeUninit::<libc::msqid_ds>::zeroed();
        // SAFETY: the kernel fills `ds`, which outlives the call.
        if unsafe { libc::msgctl(self.id, libc::IPC_STAT, ds.as_mut_ptr()) } < 0 {
            return Err(self.error("msgctl(IPC_STAT)"));
        }
        // SAFETY: zeroed at first, and the call succeeded; the struct holds integers only.
        Ok(unsafe { ds.assume_init() })
    }

    fn error(self, call: &'static str) -> OsError {
        OsError::last(call, format_args!("System V message queue {}", self.id))
    }

    /// Makes the call as `patience` requires: without waiting; waiting for ever; or, with a deadline, first without
    /// waiting and then interrupted at the deadline.
    fn wait<T>(
        self,
        patience: Patience,
        mut once: impl FnMut(libc::c_int) -> Result<T, Errno>,
        nothing: T,
        removed: T,
        nothing_errno: Errno,
    ) -> Result<T, Errno> {
        let mut flags = if patience == Patience::Forever { 0 } else { libc::IPC_NOWAIT };
        loop {
            let result = match patience {
                Patience::Until(at) if flags == 0 => interrupted_at(at, || once(0))?,
                _ => once(flags),
            };
            let errno = match result {
                Ok(done) => return Ok(done),
                Err(errno) => errno,
            };
            match errno {
                Errno::INTR if patience == Patience::Forever => {}
                _ if errno == Errno::INTR || errno == nothing_errno => {
                    if patience.is_over() {
                        return Ok(nothing);
                    }
                    flags = 0;
                }
                _ if self.is_removed(errno) => return Ok(removed),
                _ => return Err(errno),
            }
        }
    }

    /// Whether a failure means that the queue was removed, before or during the wait. An id that was once valid
    /// becomes invalid only by removal: ids contain a sequence number and are reused only after many queues.
    fn is_removed(self, errno: Errno) -> bool {
        match errno {
            Errno::IDRM => true,
            // Also returned for a message above msgmax.
            Errno::INVAL => self.stat().is_err(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    struct Removed(SysvQueue);
    impl Drop for Removed {
        fn drop(&mut self) {
            self.0.remove().unwrap();
        }
    }

    fn queue() -> Removed {
        Removed(SysvQueue::create(crate::lease::fresh_key()).expect("System V message queues"))
    }

    #[test]
    fn a_queue_carries_messages_lowest_type_first() {
        let q = queue();
        let mut e = Envelope::with_room(64);
        e.text_mut(5).copy_from_slice(b"later");
        assert_eq!(q.0.send(&mut e, 2, 5, Patience::Now).unwrap(), Sent::Done);
        e.text_mut(5).copy_from_slice(b"first");
        assert_eq!(q.0.send(&mut e, 1, 5, Patience::Now).unwrap(), Sent::Done);
        assert_eq!(q.0.send(&mut e, 1, 0, Patience::Forever).unwrap(), Sent::Done);
        assert_eq!(q.0.status().unwrap().queued, 3);
        let mut got = |patience| q.0.receive(&mut e, 2, patience).unwrap();
        assert_eq!(got(Patience::Now), Received::Message { kind: 1, len: 5 });
        assert_eq!(got(Patience::Now), Received::Message { kind: 1, len: 0 });
        assert_eq!(got(Patience::Forever), Received::Message { kind: 2, len: 5 });
        assert_eq!(e.text(5), b"later");
    }

    #[test]
    fn full_and_empty_end_at_once_or_at_the_deadline() {
        let q = queue();
        q.0.set_queue_bytes(100).unwrap();
        assert_eq!(q.0.status().unwrap().queue_bytes, 100);
        let mut e = Envelope::with_room(64);
        for patience in [Patience::Now, Patience::Until(Instant::now() + Duration::from_millis(20))]
        {
            assert_eq!(q.0.receive(&mut e, 1, patience).unwrap(), Received::Nothing);
            assert!(patience.is_over());
        }
        assert_eq!(q.0.send(&mut e, 1, 64, Patience::Now).unwrap(), Sent::Done);
        for patience in [Patience::Now, Patience::Until(Instant::now() + Duration::from_millis(20))]
        {
            assert_eq!(q.0.send(&mut e, 1, 64, patience).unwrap(), Sent::NoRoom);
            assert!(patience.is_over());
        }
    }

    #[test]
    fn a_message_in_time_ends_the_wait() {
        let q = queue();
        let queue = q.0;
        let sender = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(10));
            queue.send(&mut Envelope::with_room(0), 1, 0, Patience::Now).unwrap()
        });
        let far = Patience::Until(Instant::now() + Duration::from_secs(60));
        let got = q.0.receive(&mut Envelope::with_room(8), 1, far).unwrap();
        assert_eq!(got, Received::Message { kind: 1, len: 0 });
        assert_eq!(sender.join().unwrap(), Sent::Done);
    }

    #[test]
    fn removal_wakes_waiters() {
        let q = queue();
        let queue = q.0;
        let waiting = std::thread::spawn(move || {
            queue.receive(&mut Envelope::with_room(8), 1, Patience::Forever).unwrap()
        });
        std::thread::sleep(Duration::from_millis(10));
        q.0.remove().unwrap();
        assert_eq!(waiting.join().unwrap(), Received::Removed);
        assert_eq!(
            q.0.send(&mut Envelope::with_room(8), 1, 0, Patience::Forever).unwrap(),
            Sent::Removed
        );
        assert_eq!(SysvQueue::from_id(q.0.id()).status().unwrap_err().errno(), libc::EINVAL);
    }

    #[test]
    fn a_message_larger_than_msgmax_is_refused() {
        let q = queue();
        let limits = Limits::read().unwrap();
        assert_eq!(q.0.status().unwrap().queue_bytes, limits.queue_bytes);
        let len = limits.message_bytes + 1;
        let sent = q.0.send(&mut Envelope::with_room(len), 1, len, Patience::Now);
        assert_eq!(sent, Err(Errno::INVAL));
    }
}
