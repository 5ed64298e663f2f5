//! `uring-multishot`: AF_UNIX sequenced packets, used through io_uring with memory that the kernel knows beforehand.
//!
//! The sender writes each message into a registered buffer and sends it from there: one `io_uring_enter` per message.
//! The receiver makes one request for all messages (a multishot receive). The kernel puts each message into one of the
//! buffers that the receiver has provided, and says by a completion into which; the receiver reads it there and gives
//! the buffer back. A receiver that waits makes one `io_uring_enter`, and one that finds completions makes no call at
//! all. While it has more messages than buffers, the kernel ends the request, and the receiver makes it again.
//!
//! The end of the connection is a completion, too. So is an empty message: if that is the last one before the peer
//! closes, it is taken for the end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use crossway_sys::pipe::ignore_sigpipe;
use crossway_sys::uring_buffers::{Arrived, Inbox, Outbox};
use crossway_sys::{Errno, OsError};

use super::uds_seqpacket;
use super::uring_stream::{missing_ring, within};
use crate::Wait;
use crate::building_blocks::byte_stream::{recv_error, send_error};
use crate::building_blocks::connection::{ConnectionFamily, Dialling, SocketHalf};
use crate::building_blocks::in_place::{Put, Take};
use crate::building_blocks::slots::Layout;
use crate::building_blocks::waiting::{Attempt, Patience, wait_for};
use crate::contract::facts_of;
use crate::self_test::exchange_a_byte;
use crate::{
    Caps, Carrier, Facts, Family, Offer, OpenError, RecvError, SendError, Spec, Transport,
};

/// The mechanism `uring-multishot`: unix(7) with SOCK_SEQPACKET, by io_uring(7) with IORING_RECV_MULTISHOT and registered
/// buffers.
#[derive(Debug)]
pub struct UringMultishot;

impl ConnectionFamily for UringMultishot {
    const NAME: &'static str = "uring-multishot";
    const SUMMARY: &'static str = "UNIX-domain message socket, received by one io_uring request \
         for all messages (multishot), with registered buffers";
    const CARRIER: Carrier = Carrier::new(Family::Uring, Transport::Unix);
    type Socket = OwnedFd;
    type Sender = MultishotTx;
    type Receiver = MultishotRx;

    fn capabilities() -> Caps {
        Caps { in_place: true, waitable_fd: true, reconnects: true, ..Caps::PLAIN }
    }

    fn channel(spec: &Spec, fd: OwnedFd) -> Result<(MultishotTx, MultishotRx), OpenError> {
        ignore_sigpipe();
        uds_seqpacket::sized(Self::NAME, spec, &fd)?;
        // One byte more, by which a message is recognised that is too long.
        let layout = Layout::of(spec, 1);
        let outbox = Outbox::new(layout.max).map_err(unlocked)?;
        let mut inbox = Inbox::new(layout.slots, layout.slot_bytes)?;
        // From here on, the ring polls readable when something arrives.
        inbox.arm(fd.as_fd()).map_err(|e| OsError::new("io_uring_enter", "IORING_OP_RECV", e))?;
        let (sends, receives) = SocketHalf::both(fd);
        Ok((
            MultishotTx { outbox, socket: sends, max: layout.max, wait: spec.wait },
            MultishotRx {
                line: Line { inbox, socket: receives },
                layout,
                wait: spec.wait,
                held: None,
            },
        ))
    }

    fn listening(spec: &Spec) -> Result<(OwnedFd, Offer), OpenError> {
        uds_seqpacket::listening(Self::NAME, spec)
    }

    fn dialling(spec: &Spec, offer: &Offer) -> Result<Dialling<OwnedFd>, OpenError> {
        uds_seqpacket::dialling(Self::NAME, spec, offer)
    }

    fn try_here() -> Result<(), String> {
        if let Some((why, _)) = missing_ring() {
            return Err(why);
        }
        // What the ends of a channel with messages of the usual size register, all at the same time.
        let usual = || Outbox::new(Spec::default().max_message).map_err(|error| error.to_string());
        let _both = (usual()?, usual()?);
        exchange_a_byte::<Self>()
    }

    fn remedy() -> &'static str {
        missing_ring().map_or(
            "use Linux 6.0 or later, which has multishot receives; if memory cannot be registered, raise the limit of \
             locked memory (ulimit -l)",
            |(_, remedy)| remedy,
        )
    }
}

/// Says what helps if the registered buffer is more than may be locked: the probe takes no more than usual.
#[cold]
fn unlocked(error: OsError) -> OpenError {
    if error.errno() != Errno::NOMEM.raw_os_error() {
        return error.into();
    }
    let why = format!(
        "{error}; raise the limit of locked memory (ulimit -l), or request smaller messages"
    );
    OpenError::Unsupported { mechanism: UringMultishot::NAME, why }
}

/// The sending half: a ring, and its registered buffer.
#[derive(Debug)]
pub struct MultishotTx {
    outbox: Outbox,
    socket: SocketHalf<UringMultishot>,
    max: usize,
    wait: Wait,
}

impl Put for MultishotTx {
    #[inline]
    fn put(
        &mut self,
        len: usize,
        patience: Patience,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        if len > self.max {
            return Err(SendError::TooLarge { len, max: self.max });
        }
        fill(self.outbox.message(len));
        let (outbox, socket) = (&mut self.outbox, &self.socket);
        within(self.wait, patience, |how| outbox.send(socket, len, how))
            .map(drop)
            .map_err(send_error)
    }

    fn sizes(&self) -> Facts {
        let mut facts = self.socket.read_facts();
        facts.extend(facts_of([("max_message_bytes", self.max)]));
        facts
    }
}

/// What a receiver waits for.
enum Got {
    Message { buffer: u16, len: usize },
    Empty,
    End,
}

/// The ring of a receiving half, and its socket.
#[derive(Debug)]
struct Line {
    inbox: Inbox,
    socket: SocketHalf<UringMultishot>,
}

impl Attempt for Line {
    type Out = Got;

    #[inline]
    fn attempt(&mut self, nonblocking: bool) -> Result<Got, Errno> {
        loop {
            match self.inbox.take() {
                Ok(Arrived::Message { buffer, len }) => return Ok(Got::Message { buffer, len }),
                // The kernel ended the request, so nothing has arrived since.
                Ok(Arrived::Nothing) => {
                    let ended = uds_seqpacket::has_ended(self.socket.as_fd())?;
                    self.inbox.arm(self.socket.as_fd())?;
                    return Ok(if ended { Got::End } else { Got::Empty });
                }
                Err(Errno::AGAIN) if !nonblocking => {
                    self.inbox.sleep(self.socket.as_fd(), None)?;
                }
                Err(Errno::AGAIN) if self.inbox.arm(self.socket.as_fd())? => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno> {
        self.inbox.sleep(self.socket.as_fd(), Some(until))
    }
}

/// The receiving half: a ring with one request, and the buffers that the kernel fills.
#[derive(Debug)]
pub struct MultishotRx {
    line: Line,
    layout: Layout,
    wait: Wait,
    /// A message that did not fit into the caller's buffer: the kernel's buffer, and the length in bytes.
    held: Option<(u16, usize)>,
}

impl Take for MultishotRx {
    #[inline]
    fn take<R>(
        &mut self,
        room: usize,
        patience: Patience,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError> {
        let (buffer, len) = match self.held.take() {
            Some(held) => held,
            None => match wait_for(&mut self.line, self.wait, patience) {
                Ok(Got::Message { buffer, len }) => (buffer, len),
                Ok(Got::Empty) => return Ok(read(&[])),
                Ok(Got::End) => return Err(RecvError::PeerClosed),
                Err(stop) => return Err(recv_error(stop)),
            },
        };
        let max = self.layout.max;
        if len > room.min(max) {
            if len <= max {
                self.held = Some((buffer, len));
                return Err(RecvError::TooSmall { need: len, have: room });
            }
            self.line.inbox.give_back(buffer);
            return Err(RecvError::Damaged(format!(
                "a message is longer than {max} bytes; both ends must be opened with the same settings"
            )));
        }
        let result = read(self.line.inbox.bytes(buffer, len));
        self.line.inbox.give_back(buffer);
        Ok(result)
    }

    /// The ring, which polls readable when a message has arrived or the sender has ended.
    fn readable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.line.inbox.as_fd())
    }

    fn sizes(&self) -> Facts {
        let mut facts = self.line.socket.read_facts();
        facts.extend(facts_of([
            ("max_message_bytes", self.layout.max),
            ("provided_buffers", self.layout.slots),
        ]));
        facts
    }
}
