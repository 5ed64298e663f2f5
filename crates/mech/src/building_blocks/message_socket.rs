//! The two halves of every kernel message channel: each message costs one system call to send and one to receive.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use crossway_sys::Errno;
use crossway_sys::poll::{Interest, wait_ready};

use super::byte_stream::{recv_error, send_error};
use super::waiting::{Attempt, Patience, Stop, wait_for};
use crate::{Deadline, Facts, OpenError, RecvError, Rx, SendError, Spec, Tx, Wait};

/// The sending side of a kernel message channel.
pub trait MessageSink: Send + 'static {
    /// Sends one whole message; EMSGSIZE if it can never fit. With `nonblocking`, EAGAIN if there is no room.
    fn send(&mut self, msg: &[u8], nonblocking: bool) -> Result<(), Errno>;
    /// Sleeps until there may be room, but not beyond `until`.
    fn await_room(&mut self, until: Instant) -> Result<(), Errno> {
        wait_ready(self.fd(), Interest::Writable, Some(until)).map(drop)
    }

    /// The descriptor to poll when waiting with a deadline.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Values read back from the system after opening, such as buffer sizes.
    fn facts(&self) -> Facts;
}

/// The result of one receive call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A message of this length in bytes. It is truncated if that is more than the buffer holds.
    Message(usize),
    /// The channel has ended.
    End,
}

/// The receiving side of a kernel message channel.
pub trait MessageSource: Send + 'static {
    /// Receives one message; with `nonblocking`, EAGAIN if there is none.
    fn recv(&mut self, buf: &mut [u8], nonblocking: bool) -> Result<Received, Errno>;
    /// Whether a `recv` that may block spins by itself before it sleeps, for as long as the source was configured to.
    #[inline]
    fn spins_itself(&self) -> bool {
        false
    }

    /// The descriptor to poll when waiting.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Values read back from the system after opening, such as buffer sizes.
    fn facts(&self) -> Facts;
}

/// The sending half of a message channel.
#[derive(Debug)]
pub struct MessageTx<S> {
    sink: S,
    wait: Wait,
    max: usize,
}

struct Sending<'a, S> {
    sink: &'a mut S,
    msg: &'a [u8],
}

impl<S: MessageSink> Attempt for Sending<'_, S> {
    type Out = ();

    #[inline]
    fn attempt(&mut self, nonblocking: bool) -> Result<(), Errno> {
        self.sink.send(self.msg, nonblocking)
    }

    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno> {
        self.sink.await_room(until)
    }
}

impl<S: MessageSink> MessageTx<S> {
    /// Creates the half over an open sink that takes messages of up to `max` bytes.
    pub(crate) fn new(sink: S, wait: Wait, max: usize) -> Self {
        MessageTx { sink, wait, max }
    }

    #[inline]
    fn send_message(&mut self, msg: &[u8], patience: Patience) -> Result<(), SendError> {
        if msg.len() > self.max {
            return Err(SendError::TooLarge { len: msg.len(), max: self.max });
        }
        wait_for(&mut Sending { sink: &mut self.sink, msg }, self.wait, patience).map_err(|stop| {
            match stop {
                Stop::Errno(Errno::MSGSIZE) => {
                    SendError::TooLarge { len: msg.len(), max: self.max }
                }
                stop => send_error(stop),
            }
        })
    }
}

impl<S: MessageSink> Tx for MessageTx<S> {
    #[inline]
    fn try_send(&mut self, msg: &[u8]) -> Result<(), SendError> {
        self.send_message(msg, Patience::Now)
    }

    #[inline]
    fn send(&mut self, msg: &[u8], until: Deadline) -> Result<(), SendError> {
        self.send_message(msg, Patience::Until(until))
    }

    fn facts(&self) -> Facts {
        let mut facts = self.sink.facts();
        if let Ok(max) = i64::try_from(self.max) {
            facts.insert("max_message_bytes".to_owned(), max);
        }
        facts
    }
}

/// The receiving half of a message channel.
#[derive(Debug)]
pub struct MessageRx<S> {
    source: S,
    wait: Wait,
}

struct Receiving<'a, S> {
    source: &'a mut S,
    buf: &'a mut [u8],
}

impl<S: MessageSource> Attempt for Receiving<'_, S> {
    type Out = Received;

    #[inline]
    fn attempt(&mut self, nonblocking: bool) -> Result<Received, Errno> {
        self.source.recv(self.buf, nonblocking)
    }

    #[inline]
    fn spins_itself(&self) -> bool {
        self.source.spins_itself()
    }

    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno> {
        wait_ready(self.source.fd(), Interest::Readable, Some(until)).map(drop)
    }
}

impl<S: MessageSource> MessageRx<S> {
    /// Creates the half over an open source.
    pub(crate) fn new(source: S, wait: Wait) -> Self {
        MessageRx { source, wait }
    }

    #[inline]
    fn recv_message(&mut self, buf: &mut [u8], patience: Patience) -> Result<usize, RecvError> {
        let have = buf.len();
        let mut receiving = Receiving { source: &mut self.source, buf };
        match wait_for(&mut receiving, self.wait, patience).map_err(recv_error)? {
            Received::Message(len) if len <= have => Ok(len),
            Received::Message(need) => Err(RecvError::TooSmall { need, have }),
            Received::End => Err(RecvError::PeerClosed),
        }
    }
}

impl<S: MessageSource> Rx for MessageRx<S> {
    #[inline]
    fn try_recv(&mut self, buf: &mut [u8]) -> Result<usize, RecvError> {
        self.recv_message(buf, Patience::Now)
    }

    #[inline]
    fn recv(&mut self, buf: &mut [u8], until: Deadline) -> Result<usize, RecvError> {
        self.recv_message(buf, Patience::Until(until))
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.source.fd())
    }

    fn facts(&self) -> Facts {
        self.source.facts()
    }
}

/// Checks that the channel can carry the messages that the spec announces.
pub(crate) fn check_limit(
    mechanism: &'static str,
    spec: &Spec,
    max: usize,
    advice: &str,
) -> Result<(), OpenError> {
    if spec.max_message <= max {
        return Ok(());
    }
    let asked = spec.max_message;
    let why = format!(
        "messages of {asked} bytes were requested, but the maximum is {max} bytes; {advice}"
    );
    Err(OpenError::Unsupported { mechanism, why })
}
