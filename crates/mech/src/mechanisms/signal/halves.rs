//! The two halves of a channel of signals, and the address to which an end's signals go.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_sys::patience::Patience;
use crossway_sys::peer_watch::{PeerEvent, PeerWatch};
use crossway_sys::signal_queue::{self, Inbox, VALUE_BYTES, Value, queue};
use crossway_sys::{Errno, OsError, random};

use super::Signal;
use crate::building_blocks::queue_wait::wait_for;
use crate::contract::facts_of;
use crate::{Deadline, Facts, Mechanism, OpenError, RecvError, Rx, SendError, Tx, Wait};

/// The value of the low byte of a signal's note (`si_errno`) that means that the signal is a credit. A smaller value is
/// the length of a message in bytes.
const CREDIT: i32 = 0x40;
/// The value of the low byte of a signal's note that means that the peer has ended.
const END: i32 = 0x41;

/// Returns a random number that identifies the signals of one direction. Signals carry it above the low byte of their
/// note.
pub(super) fn tag() -> Result<i32, OsError> {
    Ok((random::unguessable()? as i32) & !0xff)
}

/// The address of an end: the signal numbers on which it receives, and the tag that identifies its signals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    /// The signal number for messages.
    pub(super) messages: i32,
    /// The signal number for credits.
    pub(super) credits: i32,
    pub(super) tag: i32,
}

impl Address {
    pub(super) const BYTES: usize = 12;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (room, field) in bytes.chunks_mut(4).zip([self.messages, self.credits, self.tag]) {
            room.copy_from_slice(&field.to_ne_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let field = |n: usize| {
            let field: [u8; 4] = std::array::from_fn(|i| bytes[4 * n + i]);
            i32::from_ne_bytes(field)
        };
        Address { messages: field(0), credits: field(1), tag: field(2) }
    }
}

/// The peer's process and the address of its end.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) process: OwnedFd,
    pub(super) at: Address,
}

impl Peer {
    pub(super) fn new(process: OwnedFd, at: Address) -> Result<Self, OpenError> {
        match signal_queue::may_reach(&process) {
            Ok(()) => Ok(Peer { process, at }),
            Err(Errno::INVAL) => Err(OpenError::Unsupported {
                mechanism: Signal::ID,
                why: "the peer's process is in a PID namespace that is not a descendant of this one, so no signal can be sent \
                      to it; run both ends in one PID namespace"
                    .to_owned(),
            }),
            Err(errno) => Err(OsError::new("pidfd_send_signal", "the peer", errno).into()),
        }
    }

    pub(super) fn copy(&self) -> Result<Self, OpenError> {
        let process =
            self.process.try_clone().map_err(|e| OsError::new("fcntl", "the peer's pidfd", e))?;
        Ok(Peer { process, at: self.at })
    }
}

/// Starts a thread that queues a note to an inbox of this process when the peer ends, which wakes a caller that sleeps
/// on that inbox.
pub(super) fn watch(lifeline: OwnedFd, inbox: &Inbox, tag: i32) -> Result<PeerWatch, OpenError> {
    let (process, signal) = (signal_queue::this_process()?, inbox.signal());
    let watch = PeerWatch::watch(lifeline, move |event| {
        if event == PeerEvent::Ended {
            // If there is no room, the inbox is not empty, so that no caller sleeps on it.
            let _ = queue(&process, signal, Value { note: tag | END, word: 0 });
        }
    })?;
    Ok(watch)
}

/// The sending half: queues signals to the peer's process while it has credits.
#[derive(Debug)]
pub struct SignalTx {
    // Dropped before the inbox that it notes the peer's end in.
    pub(super) watch: PeerWatch,
    pub(super) peer: Peer,
    pub(super) inbox: Inbox,
    pub(super) tag: i32,
    pub(super) wait: Wait,
    pub(super) window: u64,
    pub(super) credits: u64,
}

impl SignalTx {
    #[inline]
    fn put(&mut self, msg: &[u8], patience: Option<Deadline>) -> Result<(), SendError> {
        if msg.len() > VALUE_BYTES {
            return Err(SendError::TooLarge { len: msg.len(), max: VALUE_BYTES });
        }
        if self.watch.peer_has_ended() {
            return Err(SendError::PeerClosed);
        }
        while self.credits == 0 {
            self.take_credits(patience)?;
        }
        let mut word = [0; 8];
        word[..msg.len()].copy_from_slice(msg);
        let note = self.peer.at.tag | msg.len() as i32;
        let value = Value { note, word: u64::from_ne_bytes(word) };
        match queue(&self.peer.process, self.peer.at.messages, value) {
            Ok(()) => {
                self.credits -= 1;
                Ok(())
            }
            Err(Errno::SRCH) => Err(SendError::PeerClosed),
            Err(errno) => Err(queue_error(errno).into()),
        }
    }

    #[cold]
    fn take_credits(&mut self, patience: Option<Deadline>) -> Result<(), SendError> {
        let taken = match patience {
            None => self.inbox.take(Patience::Now),
            Some(until) => wait_for(self.wait, until, |patience| self.inbox.take(patience)),
        };
        let ended = self.watch.peer_has_ended();
        match taken {
            Ok(Some(value)) if value.note == self.tag | CREDIT => {
                self.credits = (self.credits + value.word).min(self.window);
                Ok(())
            }
            _ if ended => Err(SendError::PeerClosed),
            // A late signal of a former channel.
            Ok(Some(_)) => Ok(()),
            Ok(None) if patience.is_none() => Err(SendError::Full),
            Ok(None) => Err(SendError::TimedOut),
            Err(errno) => Err(OsError::new("sigtimedwait", "", errno).into()),
        }
    }
}

/// Turns an error of queuing a signal into one that explains it.
fn queue_error(errno: Errno) -> OsError {
    let what = match errno {
        Errno::AGAIN => {
            "(the peer's user has reached the limit of queued signals; raise it with ulimit -i)"
        }
        _ => "",
    };
    OsError::new("pidfd_send_signal", what, errno)
}

impl Tx for SignalTx {
    #[inline]
    fn try_send(&mut self, msg: &[u8]) -> Result<(), SendError> {
        self.put(msg, None)
    }

    #[inline]
    fn send(&mut self, msg: &[u8], until: Deadline) -> Result<(), SendError> {
        self.put(msg, Some(until))
    }

    fn facts(&self) -> Facts {
        facts_of([("max_message_bytes", VALUE_BYTES), ("queue_messages", self.window as usize)])
    }
}

/// The receiving half: takes signals out of this process's queue and grants credits for them.
#[derive(Debug)]
pub struct SignalRx {
    // Dropped before the inbox that it notes the peer's end in.
    pub(super) watch: PeerWatch,
    pub(super) peer: Peer,
    pub(super) own: OwnedFd,
    pub(super) inbox: Inbox,
    pub(super) tag: i32,
    pub(super) wait: Wait,
    pub(super) window: u64,
    /// Number of messages received for which no credit has been granted to the sender yet.
    pub(super) owed: u64,
}

impl SignalRx {
    #[inline]
    fn get(&mut self, buf: &mut [u8], patience: Option<Deadline>) -> Result<usize, RecvError> {
        loop {
            let ended = self.watch.peer_has_ended();
            let taken = match patience {
                // No more messages will arrive; take what is queued.
                _ if ended => self.inbox.take(Patience::Now),
                None => self.inbox.take(Patience::Now),
                Some(until) => wait_for(self.wait, until, |patience| self.inbox.take(patience)),
            };
            match taken {
                Ok(Some(value)) if value.note & !0xff == self.tag => match value.note & 0xff {
                    END => return self.end(),
                    len => return self.message(buf, value, len as usize),
                },
                // A late signal of a former channel.
                Ok(Some(_)) => {}
                Ok(None) if ended => return self.end(),
                Ok(None) if patience.is_none() => return Err(RecvError::Empty),
                Ok(None) => return Err(RecvError::TimedOut),
                Err(errno) => return Err(OsError::new("sigtimedwait", "", errno).into()),
            }
        }
    }

    #[inline]
    fn message(&mut self, buf: &mut [u8], value: Value, len: usize) -> Result<usize, RecvError> {
        if len > VALUE_BYTES {
            return Err(RecvError::Damaged(format!(
                "a signal of this channel states the invalid length {len}"
            )));
        }
        self.owed += 1;
        if self.owed >= self.window.div_ceil(2) {
            let credit = Value { note: self.peer.at.tag | CREDIT, word: self.owed };
            match queue(&self.peer.process, self.peer.at.credits, credit) {
                // A sender that has ended needs no credits.
                Ok(()) | Err(Errno::SRCH) => self.owed = 0,
                Err(errno) => return Err(queue_error(errno).into()),
            }
        }
        if len > buf.len() {
            return Err(RecvError::TooSmall { need: len, have: buf.len() });
        }
        buf[..len].copy_from_slice(&value.word.to_ne_bytes()[..len]);
        Ok(len)
    }

    /// Handles the end of the peer. Keeps the descriptor readable, as at the end of a stream.
    #[cold]
    fn end(&mut self) -> Result<usize, RecvError> {
        let _ = queue(&self.own, self.inbox.signal(), Value { note: self.tag | END, word: 0 });
        Err(RecvError::PeerClosed)
    }
}

impl Rx for SignalRx {
    #[inline]
    fn try_recv(&mut self, buf: &mut [u8]) -> Result<usize, RecvError> {
        self.get(buf, None)
    }

    #[inline]
    fn recv(&mut self, buf: &mut [u8], until: Deadline) -> Result<usize, RecvError> {
        self.get(buf, Some(until))
    }

    /// Returns the descriptor, which is also readable when the peer has ended.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.inbox.as_fd())
    }

    fn facts(&self) -> Facts {
        let most = signal_queue::most_queued().and_then(|n| usize::try_from(n).ok());
        facts_of([
            ("queue_messages", self.window as usize),
            ("user_signals_max", most.unwrap_or(0)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_its_bytes() {
        let at = Address { messages: 34, credits: 63, tag: i32::MIN };
        let back = Address::from_bytes(at.to_bytes());
        assert_eq!((back.messages, back.credits, back.tag), (34, 63, i32::MIN));
    }
}
