//! A session carries the messages of one epoch between two hosts, over one connection after another.
//!
//! Items (messages and markers) carry no numbers; both ends count them. The sender keeps each one until the receiver
//! has acknowledged it. When the connection dies, the receiver reports how many items its program has received, and the
//! sender continues there on the next connection. So each item arrives exactly once while both ends live, however often
//! connections break. Acknowledgements travel on the control connection; each covers many items.

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

/// Default number of bytes that a sender keeps until they are acknowledged.
const KEPT: usize = 1 << 20;

struct Sending {
    kept: Kept,
    writer: Option<Writer>,
}

struct Receiving {
    /// Number of items that the program has received.
    count: u64,
    /// Number of bytes received since the last acknowledgement.
    unacknowledged: usize,
    /// Increases with each disconnection, so that the receiving half notices that its reader is obsolete.
    connection: u64,
    /// The next connection, until the receiving half takes it.
    next: Option<Reader>,
    /// The stream of the current connection, by which a waiting receiver can be woken.
    stream: Option<Arc<Stream>>,
}

/// The state that both halves, the control thread and a thread that reconnects share.
pub(crate) struct Session {
    sending: Mutex<Sending>,
    receiving: Mutex<Receiving>,
    /// Notified when there is a new connection, room for items, or the end of the session.
    changed: Condvar,
    arrived: Condvar,
    kept_limit: usize,
    longest: usize,
    over: AtomicBool,
    bell: OnceLock<Bell>,
    /// The channel, and the epoch in which this session is its transport.
    owner: OnceLock<(Weak<Link>, u32)>,
    /// Number of connections so far, the same at both ends.
    connections: AtomicU64,
    /// Number of the last connection whose break was reported to the peer.
    told: AtomicU64,
}

impl Session {
    /// Creates a session without a connection.
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

    /// Returns both halves of one end.
    pub(crate) fn halves(self: &Arc<Self>) -> (NetTx, NetRx) {
        (NetTx(Arc::clone(self)), NetRx::new(Arc::clone(self)))
    }

    /// Sets the channel and the epoch in which this session is its transport.
    pub(crate) fn belongs_to(&self, link: Weak<Link>, epoch: u32) {
        // A session belongs to one channel all its life.
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

    /// Whether the session has no connection.
    pub(crate) fn is_down(&self) -> bool {
        self.sending().writer.is_none() || self.receiving().stream.is_none()
    }

    /// Drops the connection and returns how many items have been received; the peer must continue after them.
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

    /// Continues on a new connection. `count` is the number of items that the peer has received.
    ///
    /// # Errors
    /// `count` exceeds the number of items sent, or is less than the peer had acknowledged.
    pub(crate) fn connect(&self, writer: Writer, reader: Reader, count: u64) -> Result<(), String> {
        let mut sending = self.sending();
        if count < sending.kept.first || !sending.kept.forget(count) {
            return Err(format!("it claims to have received {count} items, which is impossible"));
        }
        sending.kept.written = sending.kept.start;
        sending.writer = Some(writer);
        let flushed = push_out(&mut sending);
        drop(sending);
        let mut receiving = self.receiving();
        if let Some(bell) = self.bell.get() {
            bell.watch(reader.stream());
            // The first items may have arrived together with the answer, and are in memory already.
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

    /// Returns the number of connections so far.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Acquire)
    }

    /// Returns the number of the connection that broke, which must be reported to the peer; `None` if there is none, or
    /// if an earlier call has returned it.
    pub(crate) fn untold(&self) -> Option<u64> {
        let connections = self.connections();
        let news = self.is_down() && self.told.swap(connections, Ordering::AcqRel) < connections;
        news.then_some(connections)
    }

    /// Handles an acknowledgement of the first `count` items; returns false if fewer were sent.
    pub(crate) fn acknowledged(&self, count: u64) -> bool {
        let mut sending = self.sending();
        // The count may be older than that of a new connection; then it contains no news.
        let known = sending.kept.first >= count || sending.kept.forget(count);
        drop(sending);
        self.changed.notify_all();
        known
    }

    /// Ends the session after the peer has ended: senders fail, and receivers get the items that have arrived.
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

    /// Control thread: sends waiting items; returns whether some still wait for room.
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

    /// Waits until everything has been written to the connection.
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
                    // An error will be reported by the next attempt.
                    wait_ready(&*stream, Interest::Writable, until) != Ok(false)
                }
                None => sleep(&self.changed, sending, until),
            };
            if !in_time {
                return Err(SendError::TimedOut);
            }
        }
    }

    /// Whether the peer has acknowledged everything, or the session is over.
    pub(crate) fn is_all_acknowledged(&self) -> bool {
        self.is_over() || self.sending().kept.len() == 0
    }

    fn lost_writer(&self) {
        self.sending().writer = None;
        self.report();
    }

    /// Tells the control thread that the connection died, so that it provides another one.
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

/// Writes as much as the connection accepts; returns true if nothing is left to write.
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

/// Sleeps until the condition is notified or the deadline passes. Returns false, without sleeping, if the deadline has
/// passed already.
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
