//! The two halves of an end, each with a port of its own.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crossway_sys::binder::{Event, LARGEST_MEMORY, Port};
use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::{Errno, OsError};

use super::{Codes, LARGEST};
use crate::building_blocks::byte_stream::{recv_error, send_error};
use crate::building_blocks::waiting::{Attempt, Patience, wait_for};
use crate::contract::facts_of;
use crate::{Deadline, Facts, RecvError, Rx, SendError, Spec, Tx, Wait};

/// What is on its way at most, in bytes of the receiver's memory, half of which is for one-way
/// transactions. The rest is for what the driver loses between messages of different sizes.
const WINDOW: usize = LARGEST_MEMORY / 8 * 3;
/// What the driver counts for each message besides its content, at most, in bytes (`struct
/// binder_buffer`).
const OVERHEAD: usize = 256;

/// The memory that a message of `len` bytes takes.
const fn cost(len: usize) -> usize {
    len.next_multiple_of(8) + OVERHEAD
}

/// The window of a channel in bytes: what was asked for, within what fits, and at least three
/// messages.
fn window(spec: &Spec) -> usize {
    let least = 3 * cost(spec.max_message);
    spec.capacity_bytes.unwrap_or(WINDOW).max(least).min(WINDOW)
}

/// The sending half.
#[derive(Debug)]
pub struct BinderTx {
    port: Port,
    peer: u32,
    codes: Codes,
    /// Bytes that the peer has not given back.
    on_the_way: usize,
    window: usize,
    wait: Wait,
    peer_has_ended: bool,
}

struct Sending<'a> {
    tx: &'a mut BinderTx,
    msg: &'a [u8],
}

impl Attempt for Sending<'_> {
    type Out = ();
    const SWITCHES_MODE: bool = true;

    #[inline]
    fn attempt(&mut self, nonblocking: bool) -> Result<(), Errno> {
        let BinderTx { port, peer, codes, on_the_way, window, peer_has_ended, .. } = &mut *self.tx;
        let bytes = cost(self.msg.len());
        while *on_the_way + bytes > *window {
            if *peer_has_ended {
                return Err(Errno::PIPE);
            }
            match port.receive(nonblocking)? {
                Event::Message(code) if code == codes.room => {
                    let given = port.message().first_chunk().map_or(0, |b| u64::from_ne_bytes(*b));
                    *on_the_way = on_the_way.saturating_sub(given as usize);
                    port.release()?;
                }
                Event::Message(_) => port.release()?,
                Event::Ended(port) => *peer_has_ended |= port == *peer,
            }
        }
        port.send(*peer, codes.message, self.msg)?;
        *on_the_way += bytes;
        Ok(())
    }

    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno> {
        wait_ready(&self.tx.port, Interest::Readable, Some(until)).map(drop)
    }
}

impl BinderTx {
    pub(super) fn new(port: Port, peer: u32, codes: Codes, spec: &Spec) -> Self {
        BinderTx {
            port,
            peer,
            codes,
            on_the_way: 0,
            window: window(spec),
            wait: spec.wait,
            peer_has_ended: false,
        }
    }

    #[inline]
    fn send_message(&mut self, msg: &[u8], patience: Patience) -> Result<(), SendError> {
        if msg.len() > LARGEST {
            return Err(SendError::TooLarge { len: msg.len(), max: LARGEST });
        }
        let wait = self.wait;
        wait_for(&mut Sending { tx: self, msg }, wait, patience).map_err(send_error)
    }
}

impl Tx for BinderTx {
    #[inline]
    fn try_send(&mut self, msg: &[u8]) -> Result<(), SendError> {
        self.send_message(msg, Patience::Now)
    }

    #[inline]
    fn send(&mut self, msg: &[u8], until: Deadline) -> Result<(), SendError> {
        self.send_message(msg, Patience::Until(until))
    }

    fn facts(&self) -> Facts {
        facts_of([("max_message_bytes", LARGEST), ("queue_bytes", self.window)])
    }
}

/// The receiving half.
#[derive(Debug)]
pub struct BinderRx {
    port: Port,
    peer: u32,
    codes: Codes,
    /// Bytes given back that the peer has not been told of.
    given: usize,
    window: usize,
    wait: Wait,
    peer_has_ended: bool,
    /// Whether somebody polls the descriptor, which shows the next message only when the one before
    /// was given back.
    is_polled: AtomicBool,
}

struct Receiving<'a>(&'a mut BinderRx);

impl Attempt for Receiving<'_> {
    /// `None` is the end.
    type Out = Option<()>;
    const SWITCHES_MODE: bool = true;

    #[inline]
    fn attempt(&mut self, nonblocking: bool) -> Result<Option<()>, Errno> {
        let rx = &mut *self.0;
        loop {
            // What a peer has sent may come after the note of its end, but it is there then.
            match rx.port.receive(nonblocking || rx.peer_has_ended) {
                Ok(Event::Message(code)) if code == rx.codes.message => return Ok(Some(())),
                Ok(Event::Message(_)) => {}
                Ok(Event::Ended(port)) => rx.peer_has_ended |= port == rx.peer,
                Err(Errno::AGAIN) if rx.peer_has_ended => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
    }

    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno> {
        wait_ready(&self.0.port, Interest::Readable, Some(until)).map(drop)
    }
}

impl BinderRx {
    pub(super) fn new(port: Port, peer: u32, codes: Codes, spec: &Spec) -> Self {
        BinderRx {
            port,
            peer,
            codes,
            given: 0,
            window: window(spec),
            wait: spec.wait,
            peer_has_ended: false,
            is_polled: AtomicBool::new(false),
        }
    }

    /// Passes the next message to `read`, where the kernel has put it.
    #[inline]
    fn take<R>(
        &mut self,
        patience: Patience,
        read: impl FnOnce(&[u8]) -> Result<R, RecvError>,
    ) -> Result<R, RecvError> {
        let wait = self.wait;
        let Some(()) = wait_for(&mut Receiving(self), wait, patience).map_err(recv_error)? else {
            return Err(RecvError::PeerClosed);
        };
        let message = self.port.message();
        self.given += cost(message.len());
        let outcome = read(message);
        if self.given >= self.window / 3 || self.is_polled.load(Ordering::Relaxed) {
            self.give_back()?;
        }
        outcome
    }

    fn give_back(&mut self) -> Result<(), RecvError> {
        self.port.release().map_err(|errno| OsError::new("ioctl", "binder", errno))?;
        if self.given >= self.window / 3 {
            // A peer that has ended needs no room.
            let _ = self.port.send(self.peer, self.codes.room, &(self.given as u64).to_ne_bytes());
            self.given = 0;
        }
        Ok(())
    }

    #[inline]
    fn copy(&mut self, buf: &mut [u8], patience: Patience) -> Result<usize, RecvError> {
        self.take(patience, |message| {
            let have = buf.len();
            let room = buf.get_mut(..message.len());
            room.ok_or(RecvError::TooSmall { need: message.len(), have })?.copy_from_slice(message);
            Ok(message.len())
        })
    }
}

impl Rx for BinderRx {
    #[inline]
    fn try_recv(&mut self, buf: &mut [u8]) -> Result<usize, RecvError> {
        self.copy(buf, Patience::Now)
    }

    #[inline]
    fn recv(&mut self, buf: &mut [u8], until: Deadline) -> Result<usize, RecvError> {
        self.copy(buf, Patience::Until(until))
    }

    /// Passes the message to `read` where the kernel has put it.
    #[inline]
    fn recv_in_place<R>(
        &mut self,
        _scratch: &mut [u8],
        until: Deadline,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError> {
        self.take(Patience::Until(until), |message| Ok(read(message)))
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.is_polled.store(true, Ordering::Relaxed);
        Some(self.port.as_fd())
    }

    fn facts(&self) -> Facts {
        facts_of([("queue_bytes", self.window)])
    }
}
