//! The halves of a transport whose messages travel in datagrams. The last item on the transport, a marker or the end of
//! the channel, travels on a session's connection, so it is never lost. It states how many messages were sent before
//! it, so the receiver knows how many were lost.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crossway_mech::{Deadline, RecvError, SendError};
use crossway_sys::epoll::{Epoll, Trigger};
use crossway_sys::eventfd::EventFd;
use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::{Errno, OsError};

use super::datagrams::{Buffer, Came, Datagrams};
use super::session::{NetRx, NetTx, Session};
use crate::transport::Transport;

/// The sending half.
pub(crate) struct LossyTx {
    net: NetTx,
    datagrams: Arc<Datagrams>,
    /// Number of messages sent.
    number: u64,
    buffer: Buffer,
}

impl LossyTx {
    pub(crate) fn session(&self) -> &Arc<Session> {
        self.net.session()
    }

    pub(crate) fn datagrams(&self) -> &Arc<Datagrams> {
        &self.datagrams
    }

    /// Returns the session's sending half, which loses nothing.
    pub(crate) const fn reliable(&mut self) -> &mut NetTx {
        &mut self.net
    }

    /// Sends a message if there is room for it.
    pub(crate) fn try_send(&mut self, msg: &[u8]) -> Result<(), SendError> {
        if self.session().is_over() {
            return Err(SendError::PeerClosed);
        }
        match self.datagrams.send(self.number + 1, msg, &mut self.buffer) {
            Err(Errno::AGAIN) => Err(SendError::Full),
            // If the peer cannot be reached at the moment, the message is lost.
            Ok(()) | Err(_) => {
                self.number += 1;
                Ok(())
            }
        }
    }

    /// Does the same as [`LossyTx::try_send`], but waits for room.
    pub(crate) fn send(&mut self, msg: &[u8], until: Deadline) -> Result<(), SendError> {
        loop {
            match self.try_send(msg) {
                Err(SendError::Full) => {}
                done => return done,
            }
            // An error will be reported by the next attempt.
            if wait_ready(&*self.datagrams, Interest::Writable, until) == Ok(false) {
                return Err(SendError::TimedOut);
            }
        }
    }
}

/// The next thing that the receiving half has to report.
pub(crate) enum Next<R> {
    /// A message, or the item that ends the transport.
    Item(R),
    /// This many messages before the next one were lost.
    Lost(u64),
}

/// The receiving half.
pub(crate) struct LossyRx {
    net: NetRx,
    datagrams: Arc<Datagrams>,
    /// Polls readable when a datagram or an item of the session may have arrived.
    either: Epoll,
    /// Number of the last message received.
    number: u64,
    buffer: Buffer,
    /// Length of a message in the buffer that has not been passed to the caller yet.
    ahead: Option<usize>,
    /// A marker or the end of the channel, held back until all datagrams that arrived before it have been received.
    last: Option<Vec<u8>>,
    /// Readable while `last` is held back.
    last_waits: EventFd,
}

impl LossyRx {
    fn new(net: NetRx, datagrams: Arc<Datagrams>) -> Result<LossyRx, OsError> {
        let (either, last_waits) = (Epoll::new(1)?, EventFd::new()?);
        either.add(&*datagrams, 0, Trigger::WhileReadable)?;
        let bell = net.wait_fd().ok_or_else(|| {
            let why = "no descriptor is left for its connection";
            OsError::new("epoll_create1", Transport::Udp.id(), std::io::Error::other(why))
        })?;
        either.add(bell, 1, Trigger::WhileReadable)?;
        either.add(&last_waits, 2, Trigger::WhileReadable)?;
        let buffer = Buffer::new();
        let (number, ahead, last) = (0, None, None);
        Ok(LossyRx { net, datagrams, either, number, buffer, ahead, last, last_waits })
    }

    /// Returns the session's receiving half, which loses nothing.
    pub(crate) const fn reliable(&mut self) -> &mut NetRx {
        &mut self.net
    }

    /// Passes the next item to `look`, without waiting. If messages before it were lost, returns [`Next::Lost`] first.
    pub(crate) fn try_recv<R>(
        &mut self,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<Next<R>, RecvError> {
        loop {
            if let Some(len) = self.ahead.take() {
                return Ok(Next::Item(look(self.buffer.message(len))));
            }
            match self.datagrams.receive(self.number, &mut self.buffer) {
                Came::Message(number, len) => {
                    let lost = number - self.number - 1;
                    (self.number, self.ahead) = (number, Some(len));
                    if lost > 0 {
                        return Ok(Next::Lost(lost));
                    }
                    continue;
                }
                Came::Useless => continue,
                Came::Nothing => {}
            }
            if let Some(item) = self.last.take() {
                let _ = self.last_waits.clear();
                return Ok(Next::Item(look(&item)));
            }
            self.last = Some(self.net.try_recv(<[u8]>::to_vec)?);
            // Writing to an eventfd cannot fail here.
            let _ = self.last_waits.signal();
        }
    }

    /// Does the same as [`LossyRx::try_recv`], but waits for an item.
    pub(crate) fn recv<R>(
        &mut self,
        until: Deadline,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<Next<R>, RecvError> {
        let mut look = Some(look);
        loop {
            let shown = self.try_recv(|item| look.take().expect("one item is shown")(item));
            match shown {
                Err(RecvError::Empty) => {}
                done => return done,
            }
            // An error will be reported by the next attempt.
            if wait_ready(&self.either, Interest::Readable, until) == Ok(false) {
                return Err(RecvError::TimedOut);
            }
        }
    }

    /// Returns a descriptor that polls readable while [`LossyRx::try_recv`] would not return `Empty`. It may also poll
    /// readable without a message.
    pub(crate) fn wait_fd(&self) -> BorrowedFd<'_> {
        self.either.as_fd()
    }
}

/// Creates both halves of one end.
pub(crate) fn halves(
    session: &Arc<Session>,
    datagrams: Arc<Datagrams>,
) -> Result<(LossyTx, LossyRx), OsError> {
    let (net_tx, net_rx) = session.halves();
    let rx = LossyRx::new(net_rx, Arc::clone(&datagrams))?;
    Ok((LossyTx { net: net_tx, datagrams, number: 0, buffer: Buffer::new() }, rx))
}
