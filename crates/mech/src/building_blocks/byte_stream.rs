//! The two halves of every kernel byte stream: pipes, FIFOs, stream sockets.
//!
//! A message of N bytes costs one system call at each end if the kernel takes and returns it whole. Only the kernel
//! copies, with one exception: if a call with limited or no waiting time has transferred only a part of a message, the
//! half keeps a copy of the bytes that are still to be sent, or of those already received, because a stream cannot take
//! back what it has transferred.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::{Errno, OsError};

use super::waiting::{Attempt, Patience, Stop, wait_for};
use crate::{Deadline, Facts, RecvError, Rx, SendError, Tx, Wait};

/// The sending side of a kernel byte stream. It reports a closed peer as EPIPE or ECONNRESET.
pub trait ByteSink: Send + 'static {
    /// Whether blocking is a mode of the descriptor. Each change of that mode costs a system call.
    const SWITCHES_MODE: bool = false;

    /// Writes some or all of the bytes and returns their number; with `nonblocking`, EAGAIN if there is no room.
    fn write(&mut self, bytes: &[u8], nonblocking: bool) -> Result<usize, Errno>;

    /// Like `write`, but waits as requested. A sink whose kernel interface can wait by itself overrides this.
    #[inline(always)]
    fn write_within(&mut self, bytes: &[u8], wait: Wait, patience: Patience) -> Result<usize, Stop>
    where
        Self: Sized,
    {
        wait_for(&mut Writing { sink: self, bytes }, wait, patience)
    }

    /// The descriptor to poll when waiting with a deadline.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Values read back from the system after opening, such as buffer sizes.
    fn facts(&self) -> Facts;
}

/// The receiving side of a kernel byte stream.
pub trait ByteSource: Send + 'static {
    /// Whether blocking is a mode of the descriptor. Each change of that mode costs a system call.
    const SWITCHES_MODE: bool = false;

    /// Reads available bytes and returns their number, 0 at the end; with `nonblocking`, EAGAIN if there are none.
    fn read(&mut self, buf: &mut [u8], nonblocking: bool) -> Result<usize, Errno>;

    /// Like `read`, but waits as requested. A source whose kernel interface can wait by itself overrides this.
    #[inline(always)]
    fn read_within(&mut self, buf: &mut [u8], wait: Wait, patience: Patience) -> Result<usize, Stop>
    where
        Self: Sized,
    {
        wait_for(&mut Reading { source: self, buf }, wait, patience)
    }

    /// Whether a `read` that may block spins by itself before it sleeps, for as long as the source was configured to.
    #[inline]
    fn spins_itself(&self) -> bool {
        false
    }

    /// The descriptor to poll when waiting.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Values read back from the system after opening, such as buffer sizes.
    fn facts(&self) -> Facts;
}

/// The sending half of a byte stream.
#[derive(Debug)]
pub struct StreamTx<S> {
    sink: S,
    wait: Wait,
    /// A copy of the part of an accepted message that had not been sent when the call returned. Its first `sent` bytes
    /// have been sent since.
    rest: Vec<u8>,
    sent: usize,
}

struct Writing<'a, S> {
    sink: &'a mut S,
    bytes: &'a [u8],
}

impl<S: ByteSink> Attempt for Writing<'_, S> {
    type Out = usize;
    const SWITCHES_MODE: bool = S::SWITCHES_MODE;

    #[inline(always)]
    fn attempt(&mut self, nonblocking: bool) -> Result<usize, Errno> {
        self.sink.write(self.bytes, nonblocking)
    }

    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno> {
        wait_ready(self.sink.fd(), Interest::Writable, Some(until)).map(drop)
    }
}

impl<S: ByteSink> StreamTx<S> {
    /// Creates the half over an open sink.
    pub(crate) fn new(sink: S, wait: Wait) -> Self {
        StreamTx { sink, wait, rest: Vec::new(), sent: 0 }
    }

    #[inline(always)]
    fn write_some(&mut self, bytes: &[u8], patience: Patience) -> Result<usize, SendError> {
        self.sink.write_within(bytes, self.wait, patience).map_err(send_error)
    }

    /// Writes the unsent part of an accepted message.
    #[cold]
    fn write_rest(&mut self, patience: Patience) -> Result<(), SendError> {
        while self.sent < self.rest.len() {
            let rest = &self.rest[self.sent..];
            self.sent += self.sink.write_within(rest, self.wait, patience).map_err(send_error)?;
        }
        self.rest.clear();
        self.sent = 0;
        Ok(())
    }

    #[inline(always)]
    fn write_message(&mut self, msg: &[u8], patience: Patience) -> Result<(), SendError> {
        if !self.rest.is_empty() {
            self.write_rest(patience)?;
        }
        if msg.is_empty() {
            return Ok(());
        }
        let done = self.write_some(msg, patience)?;
        if done < msg.len() { self.write_remainder(msg, done, patience) } else { Ok(()) }
    }

    /// Writes the remainder of a message after the kernel accepted only a part in the first call.
    #[inline(never)]
    fn write_remainder(
        &mut self,
        msg: &[u8],
        mut done: usize,
        patience: Patience,
    ) -> Result<(), SendError> {
        while done < msg.len() {
            match self.write_some(&msg[done..], patience) {
                Ok(more) => done += more,
                Err(SendError::Full | SendError::TimedOut) => {
                    self.rest.extend_from_slice(&msg[done..]);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Converts the reason why a send stopped to the contract's error.
#[cold]
pub(crate) fn send_error(stop: Stop) -> SendError {
    match stop {
        Stop::WouldBlock => SendError::Full,
        Stop::TimedOut => SendError::TimedOut,
        // ECONNREFUSED: no socket is bound to the address any more (AF_UNIX datagrams, UDP by ICMP).
        Stop::Errno(
            Errno::PIPE | Errno::CONNRESET | Errno::CONNREFUSED | Errno::NOTCONN | Errno::SHUTDOWN,
        ) => SendError::PeerClosed,
        Stop::Errno(errno) => SendError::Os(OsError::new("send", "", errno)),
    }
}

/// Converts the reason why a receive stopped to the contract's error.
#[cold]
pub(crate) fn recv_error(stop: Stop) -> RecvError {
    match stop {
        Stop::WouldBlock => RecvError::Empty,
        Stop::TimedOut => RecvError::TimedOut,
        Stop::Errno(Errno::CONNRESET | Errno::CONNREFUSED | Errno::PIPE | Errno::NOTCONN) => {
            RecvError::PeerClosed
        }
        Stop::Errno(errno) => RecvError::Os(OsError::new("recv", "", errno)),
    }
}

impl<S: ByteSink> Tx for StreamTx<S> {
    #[inline]
    fn try_send(&mut self, msg: &[u8]) -> Result<(), SendError> {
        self.write_message(msg, Patience::Now)
    }

    #[inline(always)]
    fn send(&mut self, msg: &[u8], until: Deadline) -> Result<(), SendError> {
        self.write_message(msg, Patience::Until(until))
    }

    #[inline(always)]
    fn flush(&mut self) -> Result<(), SendError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        self.write_rest(Patience::Until(None))
    }

    fn facts(&self) -> Facts {
        self.sink.facts()
    }
}

/// The receiving half of a byte stream.
#[derive(Debug)]
pub struct StreamRx<S> {
    source: S,
    wait: Wait,
    /// The part of a message that had arrived when a receive stopped waiting. The next call returns it first.
    held: Vec<u8>,
}

struct Reading<'a, S> {
    source: &'a mut S,
    buf: &'a mut [u8],
}

impl<S: ByteSource> Attempt for Reading<'_, S> {
    type Out = usize;
    const SWITCHES_MODE: bool = S::SWITCHES_MODE;

    #[inline(always)]
    fn attempt(&mut self, nonblocking: bool) -> Result<usize, Errno> {
        self.source.read(self.buf, nonblocking)
    }

    #[inline]
    fn spins_itself(&self) -> bool {
        self.source.spins_itself()
    }

    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno> {
        wait_ready(self.source.fd(), Interest::Readable, Some(until)).map(drop)
    }
}

impl<S: ByteSource> StreamRx<S> {
    /// Creates the half over an open source.
    pub(crate) fn new(source: S, wait: Wait) -> Self {
        StreamRx { source, wait, held: Vec::new() }
    }

    #[cold]
    fn take_held(&mut self, buf: &mut [u8]) -> usize {
        let taken = self.held.len().min(buf.len());
        buf[..taken].copy_from_slice(&self.held[..taken]);
        self.held.drain(..taken);
        taken
    }

    #[inline(always)]
    fn read_exactly(&mut self, buf: &mut [u8], patience: Patience) -> Result<usize, RecvError> {
        let mut done = if self.held.is_empty() { 0 } else { self.take_held(buf) };
        while done < buf.len() {
            match self.source.read_within(&mut buf[done..], self.wait, patience) {
                Ok(0) => return Err(RecvError::PeerClosed),
                Ok(more) => done += more,
                Err(stop @ (Stop::WouldBlock | Stop::TimedOut)) => {
                    self.held.extend_from_slice(&buf[..done]);
                    return Err(recv_error(stop));
                }
                Err(stop) => return Err(recv_error(stop)),
            }
        }
        Ok(done)
    }
}

impl<S: ByteSource> Rx for StreamRx<S> {
    #[inline]
    fn try_recv(&mut self, buf: &mut [u8]) -> Result<usize, RecvError> {
        self.read_exactly(buf, Patience::Now)
    }

    #[inline(always)]
    fn recv(&mut self, buf: &mut [u8], until: Deadline) -> Result<usize, RecvError> {
        self.read_exactly(buf, Patience::Until(until))
    }

    /// Returns the descriptor, which is also readable when only a part of the requested bytes has arrived.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.source.fd())
    }

    fn facts(&self) -> Facts {
        self.source.facts()
    }
}
