//! The messages of one epoch between two hosts, over one connection after another.
//!
//! Items are numbered by counting. The sender keeps each one until the receiver has acknowledged it; when the connection dies, the receiver says
//! how many items its program has got, and the sender continues there on the next connection. So each item arrives exactly once while both ends
//! live, whatever happens to the connections. Acknowledgements travel on the control connection, each for many items.

mod bell;
mod halves;
mod kept;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use crossway_mech::{Deadline, SendError};
use crossway_sys::Errno;
use crossway_sys::poll::{Interest, wait_ready};

use super::frames::{HEADER, Reader, Writer};
use super::stream::Stream;
use crate::link::Link;
use crate::message::Message;

use bell::Bell;
pub(crate) use halves::{NetRx, NetTx};
use kept::Kept;

/// Bytes that a sender keeps until they are acknowledged, unless told otherwise.
const KEPT: usize = 1 << 20;

struct Sending {
    kept: Kept,
    writer: Option<Writer>,
}

struct Receiving {
    /// Items that the program has got.
    count: u64,
    /// Bytes of them since the last acknowledgement.
    unacknowledged: usize,
    /// Grows with each connection.
    connection: u64,
    /// The next connection, until the receiver takes it.
    next: Option<Reader>,
    /// That of the receiver, to wake it.
    stream: Option<Arc<Stream>>,
}

/// What both halves, the control thread and whoever reconnects share.
pub(crate) struct Session {
    sending: Mutex<Sending>,
    receiving: Mutex<Receiving>,
    /// A connection, room, or the end came.
    changed: Condvar,
    arrived: Condvar,
    kept_limit: usize,
    longest: usize,
    over: AtomicBool,
    bell: OnceLock<Bell>,
    /// The channel, and in which epoch this is its transport.
    owner: OnceLock<(Weak<Link>, u32)>,
    /// Connections so far, the same at both ends.
    connections: AtomicU64,
    /// Those of which the peer was told that they broke.
    told: AtomicU64,
}

impl Session {
    /// A session without a connection yet.
    pub(crate) fn new(max_message: usize, capacity_bytes: Option<usize>) -> Arc<Session> {
        let kept_limit = capacity_bytes.unwrap_or(KEPT).max(2 * (max_message + HEADER));
        Arc::new(Session {
            sending: Mutex::new(Sending { kept: Kept::default(), writer: None }),
            receiving: Mutex::new(Receiving {
                count: 0,
                unacknowledged: 0,
                connection: 0,
                next: None,
                stream: None,
            }),
            changed: Condvar::new(),
            arrived: Condvar::new(),
            kept_limit,
            longest: max_message,
            over: AtomicBool::new(false),
            bell: OnceLock::new(),
            owner: OnceLock::new(),
            connections: AtomicU64::new(0),
            told: AtomicU64::new(0),
        })
    }

    /// Both halves of one end.
    pub(crate) fn halves(self: &Arc<Self>) -> (NetTx, NetRx) {
        (NetTx(Arc::clone(self)), NetRx::new(Arc::clone(self)))
    }

    /// Says which channel's transport this is, and in which epoch.
    pub(crate) fn belongs_to(&self, link: Weak<Link>, epoch: u32) {
        // A session has one owner for all its life.
        let _ = self.owner.set((link, epoch));
    }

    pub(crate) fn epoch(&self) -> Option<u32> {
        self.owner.get().map(|(_, epoch)| *epoch)
    }

    fn sending(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receiving(&self) -> MutexGuard<'_, Receiving> {
        self.receiving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Whether it has no connection.
    pub(crate) fn is_down(&self) -> bool {
        self.sending().writer.is_none() || self.receiving().stream.is_none()
    }

    /// Takes the connection away, and tells how many items have been received: the peer is to continue there.
    pub(crate) fn disconnect(&self) -> u64 {
        self.sending().writer = None;
        let mut receiving = self.receiving();
        receiving.connection += 1;
        receiving.next = None;
        if let Some(stream) = receiving.stream.take() {
            stream.shutdown();
        }
        self.arrived.notify_all();
        receiving.count
    }

    /// Continues on a connection, whose peer has received `count` items.
    ///
    /// # Errors
    /// The peer claims to have what was not sent, or no longer has what it had.
    pub(crate) fn connect(&self, writer: Writer, reader: Reader, count: u64) -> Result<(), String> {
        let mut sending = self.sending();
        if count < sending.kept.first || !sending.kept.forget(count) {
            return Err(format!("it claims to have received {count} items"));
        }
        sending.kept.written = sending.kept.start;
        sending.writer = Some(writer);
        let flushed = push_out(&mut sending);
        drop(sending);
        let mut receiving = self.receiving();
        if let Some(bell) = self.bell.get() {
            bell.watch(reader.stream());
            // What came behind the answer is in memory already.
            if reader.holds_bytes() {
                bell.raise(true);
            }
        }
        receiving.stream = Some(Arc::clone(reader.stream()));
        receiving.next = Some(reader);
        drop(receiving);
        self.connections.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_all();
        self.arrived.notify_all();
        if flushed.is_err() {
            self.lost_writer();
        }
        Ok(())
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Acquire)
    }

    /// The number of a connection that broke and of which the peer has not been told.
    pub(crate) fn untold(&self) -> Option<u64> {
        let connections = self.connections();
        let news = self.is_down() && self.told.swap(connections, Ordering::AcqRel) < connections;
        news.then_some(connections)
    }

    /// The peer has received this many items.
    pub(crate) fn acknowledged(&self, count: u64) -> bool {
        let mut sending = self.sending();
        // One that was overtaken by a new connection says nothing new.
        let known = sending.kept.first >= count || sending.kept.forget(count);
        drop(sending);
        self.changed.notify_all();
        known
    }

    /// The peer is gone for good: senders fail, receivers get what is there.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.sending().writer = None;
        let receiving = self.receiving();
        if let Some(stream) = &receiving.stream {
            stream.expect_no_more();
        }
        drop(receiving);
        if let Some(bell) = self.bell.get() {
            bell.raise(true);
        }
        self.changed.notify_all();
        self.arrived.notify_all();
    }

    /// Control thread: sends what waits for room; whether something still does.
    pub(crate) fn flush(&self) -> bool {
        let mut sending = self.sending();
        if sending.writer.is_none() {
            return false;
        }
        let outcome = push_out(&mut sending);
        let waits = sending.kept.unwritten() > 0;
        drop(sending);
        if outcome.is_err() {
            self.lost_writer();
        }
        outcome == Ok(false) || (outcome == Ok(true) && waits)
    }

    /// Waits until a connection has taken everything.
    pub(crate) fn wait_written(&self, until: Deadline) -> Result<(), SendError> {
        loop {
            let mut sending = self.sending();
            if self.is_over() {
                // A peer that has received the last item may end before this thread runs again.
                let written = sending.kept.unwritten() == 0;
                return if written { Ok(()) } else { Err(SendError::PeerClosed) };
            }
            if push_out(&mut sending).is_err() {
                sending.writer = None;
                self.report();
            }
            let in_time = match &sending.writer {
                Some(_) if sending.kept.unwritten() == 0 => return Ok(()),
                Some(writer) => {
                    let stream = Arc::clone(writer.stream());
                    drop(sending);
                    // An error is met again by the next attempt.
                    wait_ready(&*stream, Interest::Writable, until) != Ok(false)
                }
                None => sleep(&self.changed, sending, until),
            };
            if !in_time {
                return Err(SendError::TimedOut);
            }
        }
    }

    /// Whether the peer has acknowledged everything.
    pub(crate) fn is_all_acknowledged(&self) -> bool {
        self.is_over() || self.sending().kept.len() == 0
    }

    fn lost_writer(&self) {
        self.sending().writer = None;
        self.report();
    }

    /// The connection died: the control thread sees to another one.
    fn report(&self) {
        if let Some((link, _)) = self.owner.get()
            && let Some(link) = link.upgrade()
        {
            link.call();
        }
    }

    fn acknowledge(&self, count: u64) {
        if let Some((link, epoch)) = self.owner.get()
            && let Some(link) = link.upgrade()
        {
            let message = Message::Received { epoch: *epoch, items: count };
            link.lock().wire.send(&message, Vec::new());
        }
    }
}

/// Writes what the connection takes; true when nothing waits.
fn push_out(sending: &mut Sending) -> Result<bool, Errno> {
    let Sending { kept, writer: Some(writer) } = sending else { return Ok(false) };
    loop {
        let outcome = match kept.unwritten() {
            0 => writer.flush().map(|()| 0),
            _ => writer.write(&kept.bytes[kept.written..]),
        };
        match outcome {
            Ok(_) if kept.unwritten() == 0 => return Ok(true),
            Ok(taken) => kept.written += taken,
            Err(Errno::AGAIN) => return Ok(false),
            Err(errno) => return Err(errno),
        }
    }
}

/// Sleeps until it is woken; false once the deadline has passed.
fn sleep<T>(condition: &Condvar, guard: MutexGuard<'_, T>, until: Deadline) -> bool {
    let Some(until) = until else {
        drop(condition.wait(guard).unwrap_or_else(PoisonError::into_inner));
        return true;
    };
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return false;
    }
    drop(condition.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_peer_is_an_error_for_what_no_connection_has_taken() {
        for (written, expected) in [(true, true), (false, false)] {
            let session = Session::new(100, None);
            let mut sending = session.sending();
            sending.kept.push(b"last");
            if written {
                sending.kept.written = sending.kept.bytes.len();
            }
            drop(sending);
            session.end();
            assert_eq!(session.wait_written(None).is_ok(), expected);
        }
    }
}
