//! The halves of a channel whose messages are announced by posts between two io_urings.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use crossway_sys::pages::{Pages, View};
use crossway_sys::uring_msg::{Arrived, Mailbox};
use crossway_sys::{Errno, OsError};

use crate::building_blocks::byte_stream::{recv_error, send_error};
use crate::building_blocks::in_place::{Put, Take};
use crate::building_blocks::slots::{Layout, Reports, Slots};
use crate::building_blocks::waiting::{Attempt, Patience, Stop, wait_for};
use crate::{Facts, RecvError, SendError, Wait};

/// One half's own ring, the ring of the half to which it posts, a socket that tells when that one
/// has ended, and one that tells it when this one has.
///
/// The two are of different pairs. A ring holds what it watches, and the peer, which has a
/// descriptor of our ring, keeps that ring alive after our end: it would never see the end of a
/// socket that our ring watches.
#[derive(Debug)]
pub(super) struct Line {
    mailbox: Mailbox,
    peer: OwnedFd,
    socket: OwnedFd,
    _life: OwnedFd,
}

impl Line {
    pub(super) fn new(mailbox: Mailbox, peer: OwnedFd, socket: OwnedFd, life: OwnedFd) -> Line {
        Line { mailbox, peer, socket, _life: life }
    }

    #[inline]
    fn post(&mut self, number: u64, len: usize) -> Result<(), Errno> {
        self.mailbox.post(&self.peer, number, len as i32, self.socket.as_fd())
    }

    #[inline]
    fn take(&mut self) -> Result<Arrived, Errno> {
        self.mailbox.take(self.socket.as_fd())
    }
}

impl Attempt for Line {
    type Out = Arrived;

    #[inline]
    fn attempt(&mut self, nonblocking: bool) -> Result<Arrived, Errno> {
        loop {
            match self.take() {
                Err(Errno::AGAIN) if !nonblocking => {
                    self.mailbox.sleep(self.socket.as_fd(), None)?;
                }
                done => return done,
            }
        }
    }

    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno> {
        self.mailbox.sleep(self.socket.as_fd(), Some(until))
    }
}

/// The sending half: slots in shared memory, and the receiver's ring.
#[derive(Debug)]
pub struct UringMsgTx {
    pages: Pages,
    line: Line,
    layout: Layout,
    wait: Wait,
    slots: Slots,
}

impl UringMsgTx {
    pub(super) fn new(pages: Pages, line: Line, layout: Layout, wait: Wait) -> Self {
        UringMsgTx { pages, line, layout, wait, slots: Slots::new(layout) }
    }

    #[inline]
    fn note(&mut self, arrived: Arrived) -> Result<(), SendError> {
        match arrived {
            Arrived::Post { number, .. } => self.slots.note(number),
            Arrived::PeerClosed => Err(SendError::PeerClosed),
        }
    }

    /// Notes everything that has arrived.
    #[inline]
    fn look(&mut self) -> Result<(), SendError> {
        loop {
            match self.line.take() {
                Ok(arrived) => self.note(arrived)?,
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(posting(errno).into()),
            }
        }
    }
}

impl Put for UringMsgTx {
    #[inline]
    fn put(
        &mut self,
        len: usize,
        patience: Patience,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        if len > self.layout.max {
            return Err(SendError::TooLarge { len, max: self.layout.max });
        }
        self.look()?;
        while self.slots.is_full() {
            let arrived = wait_for(&mut self.line, self.wait, patience).map_err(send_error)?;
            self.note(arrived)?;
        }
        let start = self.slots.next() * self.layout.slot_bytes;
        fill(self.pages.bytes_mut(start..start + len));
        self.line.post(self.slots.number(), len).map_err(posting)?;
        self.slots.used();
        // A post that fails has failed by now. A receiver that has ended may have taken this message before, so the next
        // one tells of that.
        match self.look() {
            Err(SendError::PeerClosed) => Ok(()),
            done => done,
        }
    }

    fn sizes(&self) -> Facts {
        self.layout.facts()
    }
}

fn posting(errno: Errno) -> OsError {
    OsError::new("io_uring_enter", "IORING_OP_MSG_RING", errno)
}

/// The receiving half: its own ring, and the sender's slots.
#[derive(Debug)]
pub struct UringMsgRx {
    view: View,
    line: Line,
    layout: Layout,
    wait: Wait,
    reports: Reports,
    /// The length in bytes of a message that did not fit into the caller's buffer.
    held: Option<usize>,
}

impl UringMsgRx {
    pub(super) fn new(view: View, line: Line, layout: Layout, wait: Wait) -> Self {
        UringMsgRx { view, line, layout, wait, reports: Reports::new(layout), held: None }
    }

    /// Checks what the peer, which may be faulty, has posted. Returns the length of the message.
    #[inline]
    fn check(&self, number: u64, len: i32) -> Result<usize, RecvError> {
        match usize::try_from(len) {
            Ok(len) if number == self.reports.number() && len <= self.layout.max => Ok(len),
            _ => Err(RecvError::Damaged(format!(
                "the peer announced message {number} with {len} bytes; message {} with at most {} \
                 bytes is next",
                self.reports.number(),
                self.layout.max
            ))),
        }
    }
}

impl Take for UringMsgRx {
    #[inline]
    fn take<R>(
        &mut self,
        room: usize,
        patience: Patience,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError> {
        let len = match self.held.take() {
            Some(len) => len,
            None => match wait_for(&mut self.line, self.wait, patience) {
                Ok(Arrived::Post { number, len }) => self.check(number, len)?,
                Ok(Arrived::PeerClosed) => return Err(RecvError::PeerClosed),
                Err(Stop::Errno(errno)) => return Err(posting(errno).into()),
                Err(stop) => return Err(recv_error(stop)),
            },
        };
        if len > room {
            self.held = Some(len);
            return Err(RecvError::TooSmall { need: len, have: room });
        }
        let start = self.reports.next() * self.layout.slot_bytes;
        let result = read(&self.view.bytes()[start..start + len]);
        let line = &mut self.line;
        self.reports.taken(|taken| {
            // Fails only if the sender has ended.
            let _ = line.post(taken, 0);
        });
        Ok(result)
    }

    /// The ring, which polls readable when a message has arrived or the sender has ended.
    fn readable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.line.mailbox.as_fd())
    }

    fn sizes(&self) -> Facts {
        self.layout.facts()
    }
}
