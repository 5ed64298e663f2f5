//! The halves of a session, which the program's threads use.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crossway_mech::{Deadline, RecvError, SendError};
use crossway_sys::Errno;
use crossway_sys::poll::{Interest, wait_ready};

use super::{Bell, Sending, Session, push_out, sleep};
use crate::net::frames::{HEADER, Reader};
use crate::net::stream::Stream;

/// The sending half.
pub(crate) struct NetTx(pub(super) Arc<Session>);

/// The state after an attempt to send.
enum Attempt {
    /// The item was accepted. Contains the connection if part of the item still waits for room there.
    Done(Option<Arc<Stream>>),
    /// Nothing was sent because the connection has no room.
    Blocked(Arc<Stream>),
    /// Nothing was sent because there is no connection, or because too many bytes are not acknowledged yet.
    Wait,
}

impl NetTx {
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.0
    }

    fn attempt(&self, item: &[u8]) -> Result<Attempt, SendError> {
        let session = &*self.0;
        if session.is_over() {
            return Err(SendError::PeerClosed);
        }
        let mut sending = session.sending();
        if push_out(&mut sending).is_err() {
            sending.writer = None;
            session.report();
        }
        let room = sending.kept.len() + HEADER + item.len() <= session.kept_limit;
        match &sending.writer {
            Some(writer) if sending.kept.unwritten() > 0 => {
                return Ok(Attempt::Blocked(Arc::clone(writer.stream())));
            }
            _ if !room => return Ok(Attempt::Wait),
            _ => {}
        }
        sending.kept.push(item);
        Ok(Attempt::Done(self.push_rest(&mut sending)))
    }

    /// Writes as much as the connection accepts; returns the connection if something is left to write.
    fn push_rest(&self, sending: &mut Sending) -> Option<Arc<Stream>> {
        if push_out(sending).is_err() {
            sending.writer = None;
            self.0.report();
        }
        let unwritten = sending.kept.unwritten() > 0;
        sending.writer.as_ref().filter(|_| unwritten).map(|writer| Arc::clone(writer.stream()))
    }

    /// Accepts a message if there is room; keeps it until the peer has acknowledged it.
    pub(crate) fn try_send(&mut self, msg: &[u8]) -> Result<(), SendError> {
        match self.attempt(msg)? {
            Attempt::Done(rest) => {
                if rest.is_some() {
                    // The rest is sent by the next call or by the control thread.
                    self.0.report();
                }
                Ok(())
            }
            Attempt::Blocked(_) | Attempt::Wait => Err(SendError::Full),
        }
    }

    /// Does the same as [`NetTx::try_send`], but waits for room.
    pub(crate) fn send(&mut self, msg: &[u8], until: Deadline) -> Result<(), SendError> {
        loop {
            match self.attempt(msg)? {
                Attempt::Done(mut rest) => {
                    while let Some(stream) = rest.take() {
                        if wait_ready(&*stream, Interest::Writable, until) == Ok(false) {
                            self.0.report();
                            break;
                        }
                        rest = self.push_rest(&mut self.0.sending());
                    }
                    return Ok(());
                }
                Attempt::Blocked(stream) => {
                    // An error will be reported by the next attempt.
                    if wait_ready(&*stream, Interest::Writable, until) == Ok(false) {
                        return Err(SendError::TimedOut);
                    }
                }
                Attempt::Wait => {
                    let session = &*self.0;
                    let sending = session.sending();
                    let full = sending.kept.len() + HEADER + msg.len() > session.kept_limit;
                    if full && !session.is_over() && !sleep(&session.changed, sending, until) {
                        return Err(SendError::TimedOut);
                    }
                }
            }
        }
    }
}

/// The receiving half.
pub(crate) struct NetRx {
    session: Arc<Session>,
    reader: Option<Reader>,
    /// The session's connection number when the reader was taken.
    connection: u64,
    acknowledged: u64,
}

impl NetRx {
    pub(super) fn new(session: Arc<Session>) -> NetRx {
        NetRx { session, reader: None, connection: 0, acknowledged: 0 }
    }

    /// Takes over a new connection, if there is one; returns whether there is any connection.
    fn take_up(&mut self) -> bool {
        let mut receiving = self.session.receiving();
        if receiving.connection != self.connection {
            self.reader = None;
        }
        if let Some(next) = receiving.next.take() {
            self.reader = Some(next);
        }
        self.connection = receiving.connection;
        self.reader.is_some()
    }

    /// Passes the next item to `look`, without waiting.
    pub(crate) fn try_recv<R>(&mut self, look: impl FnOnce(&[u8]) -> R) -> Result<R, RecvError> {
        loop {
            if !self.take_up() {
                return Err(self.nothing());
            }
            let reader = self.reader.as_mut().expect("just taken up");
            let found = reader.frame(self.session.longest).map_err(RecvError::Damaged)?;
            if let Some(len) = found {
                let mut receiving = self.session.receiving();
                if receiving.connection != self.connection {
                    // The item will come again on the next connection.
                    continue;
                }
                receiving.count += 1;
                receiving.unacknowledged += HEADER + len;
                let count = receiving.count;
                let due = receiving.unacknowledged >= self.session.kept_limit / 4;
                if due {
                    receiving.unacknowledged = 0;
                }
                drop(receiving);
                let result = look(reader.show(len));
                reader.consume(len);
                if let Some(bell) = self.session.bell.get() {
                    let more = !matches!(reader.frame(self.session.longest), Ok(None));
                    bell.raise(more || self.session.is_over());
                }
                if due {
                    self.acknowledged = count;
                    self.session.acknowledge(count);
                }
                return Ok(result);
            }
            match reader.fill() {
                Ok(1..) => {}
                Err(Errno::AGAIN) => {
                    if let Some(bell) = self.session.bell.get() {
                        bell.raise(self.session.is_over());
                    }
                    return Err(self.nothing());
                }
                Ok(0) | Err(_) => self.lose(),
            }
        }
    }

    fn nothing(&self) -> RecvError {
        if self.session.is_over() { RecvError::PeerClosed } else { RecvError::Empty }
    }

    /// Handles the end of the connection.
    fn lose(&mut self) {
        if let (Some(reader), Some(bell)) = (self.reader.take(), self.session.bell.get()) {
            bell.unwatch(reader.stream());
        }
        let mut receiving = self.session.receiving();
        if receiving.connection == self.connection {
            receiving.stream = None;
            drop(receiving);
            self.session.report();
        }
    }

    /// Does the same as [`NetRx::try_recv`], but waits for an item.
    pub(crate) fn recv<R>(
        &mut self,
        until: Deadline,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError> {
        let mut look = Some(look);
        loop {
            let shown = self.try_recv(|item| look.take().expect("one item is shown")(item));
            match shown {
                Err(RecvError::Empty) => {}
                done => return done,
            }
            match &self.reader {
                Some(reader) => {
                    // An error will be reported by the next attempt.
                    if wait_ready(&**reader.stream(), Interest::Readable, until) == Ok(false) {
                        return Err(RecvError::TimedOut);
                    }
                }
                None => {
                    let session = &*self.session;
                    let receiving = session.receiving();
                    let idle = receiving.next.is_none() && !session.is_over();
                    if idle && !sleep(&session.arrived, receiving, until) {
                        return Err(RecvError::TimedOut);
                    }
                }
            }
        }
    }

    /// Acknowledges everything received, because the sender may be waiting for the acknowledgement.
    pub(crate) fn acknowledge_all(&mut self) {
        let count = self.session.receiving().count;
        if self.acknowledged != count {
            self.acknowledged = count;
            self.session.acknowledge(count);
        }
    }

    /// Returns a descriptor that polls readable while [`NetRx::try_recv`] would not return `Empty`. It may also poll
    /// readable without an item. `None` if it cannot be created.
    pub(crate) fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        let session = &*self.session;
        if session.bell.get().is_none() {
            let bell = Bell::new().ok()?;
            let receiving = session.receiving();
            if let Some(stream) = &receiving.stream {
                bell.watch(stream);
            }
            let held = receiving.next.as_ref().is_some_and(Reader::holds_bytes);
            bell.raise(session.is_over() || held);
            let _ = session.bell.set(bell);
        }
        session.bell.get().map(|bell| bell.fd.as_fd())
    }
}
