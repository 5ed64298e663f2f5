//! The two ends of a POSIX message queue.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crossway_sys::mqueue::MessageQueue;
use crossway_sys::patience::Patience;
use crossway_sys::peer_watch::{PeerEvent, PeerWatch};
use crossway_sys::{Errno, OsError};

use super::{MESSAGE, NOTE};
use crate::building_blocks::queue_wait::wait_for;
use crate::contract::facts_of;
use crate::{Deadline, Facts, OpenError, RecvError, Rx, SendError, Tx, Wait};

/// The sending half: a queue, and the thread that wakes this half when the receiver ends.
#[derive(Debug)]
pub struct MqTx {
    queue: Arc<MessageQueue>,
    watch: PeerWatch,
    wait: Wait,
    max: usize,
}

/// The receiving half: a queue, and the thread that puts a note into it when the sender ends.
#[derive(Debug)]
pub struct MqRx {
    queue: Arc<MessageQueue>,
    watch: PeerWatch,
    wait: Wait,
    max: usize,
    /// Buffer for callers whose own buffer is smaller than the queue's largest message, which the
    /// kernel rejects.
    bounce: Vec<u8>,
}

impl MqTx {
    pub(super) fn new(
        queue: MessageQueue,
        lifeline: OwnedFd,
        wait: Wait,
    ) -> Result<Self, OpenError> {
        let max = queue.attributes()?.message_bytes;
        let queue = Arc::new(queue);
        let watched = queue.clone();
        let watch = PeerWatch::watch(lifeline, move |event| {
            if event == PeerEvent::Ended {
                let mut sink = vec![0; max];
                while matches!(watched.receive(&mut sink, Patience::Now), Ok(Some(_))) {}
            }
        })?;
        Ok(MqTx { queue, watch, wait, max })
    }

    #[inline]
    fn put(
        &mut self,
        msg: &[u8],
        none_in_time: SendError,
        send: impl FnOnce(&MessageQueue) -> Result<bool, Errno>,
    ) -> Result<(), SendError> {
        if msg.len() > self.max {
            return Err(SendError::TooLarge { len: msg.len(), max: self.max });
        }
        if self.watch.peer_has_ended() {
            return Err(SendError::PeerClosed);
        }
        match send(&self.queue) {
            // The peer may have ended meanwhile, after or before it took this message: the next
            // send returns the error.
            Ok(true) => Ok(()),
            Ok(false) if self.watch.peer_has_ended() => Err(SendError::PeerClosed),
            Ok(false) => Err(none_in_time),
            Err(errno) => Err(OsError::new("mq_timedsend", "", errno).into()),
        }
    }
}

impl Tx for MqTx {
    #[inline]
    fn try_send(&mut self, msg: &[u8]) -> Result<(), SendError> {
        self.put(msg, SendError::Full, |queue| queue.send(msg, MESSAGE, Patience::Now))
    }

    #[inline]
    fn send(&mut self, msg: &[u8], until: Deadline) -> Result<(), SendError> {
        let wait = self.wait;
        self.put(msg, SendError::TimedOut, |queue| {
            let once = |patience| Ok(queue.send(msg, MESSAGE, patience)?.then_some(()));
            wait_for(wait, until, once).map(|sent| sent.is_some())
        })
    }

    fn facts(&self) -> Facts {
        queue_facts(&self.queue)
    }
}

impl MqRx {
    pub(super) fn new(
        queue: MessageQueue,
        lifeline: OwnedFd,
        wait: Wait,
    ) -> Result<Self, OpenError> {
        let max = queue.attributes()?.message_bytes;
        let queue = Arc::new(queue);
        let noted = queue.clone();
        let watch = PeerWatch::watch(lifeline, move |event| {
            if event == PeerEvent::Ended {
                // If the queue is full, no receiver sleeps on it.
                let _ = noted.send(&[], NOTE, Patience::Now);
            }
        })?;
        Ok(MqRx { queue, watch, wait, max, bounce: Vec::new() })
    }

    /// Receives into `buf` if that is large enough for the kernel, otherwise into `self.bounce`.
    /// Returns the length of the message.
    #[inline]
    fn take(
        &mut self,
        buf: &mut [u8],
        none_in_time: RecvError,
        receive: impl FnOnce(&MessageQueue, &mut [u8]) -> Result<Option<(usize, u32)>, Errno>,
    ) -> Result<usize, RecvError> {
        let room = if buf.len() >= self.max {
            buf
        } else {
            self.bounce.resize(self.max, 0);
            &mut self.bounce[..]
        };
        let received = if self.watch.peer_has_ended() {
            // No more messages will arrive; take what is in the queue.
            self.queue.receive(room, Patience::Now).map(|r| r.or(Some((0, NOTE))))
        } else {
            receive(&self.queue, room)
        };
        let taken = match received {
            Ok(Some((len, MESSAGE))) => Ok(len),
            Ok(Some(_)) => Err(RecvError::PeerClosed),
            Ok(None) => Err(none_in_time),
            Err(errno) => Err(OsError::new("mq_timedreceive", "", errno).into()),
        };
        if self.watch.peer_has_ended() {
            // Keeps the descriptor readable, as at the end of a stream. A full queue is readable
            // anyway.
            let _ = self.queue.send(&[], NOTE, Patience::Now);
        }
        taken
    }

    #[inline]
    fn copy_out(&self, buf: &mut [u8], len: usize) -> Result<usize, RecvError> {
        if buf.len() >= self.max {
            return Ok(len);
        }
        if buf.len() < len {
            return Err(RecvError::TooSmall { need: len, have: buf.len() });
        }
        buf[..len].copy_from_slice(&self.bounce[..len]);
        Ok(len)
    }
}

#[inline]
fn waiting(
    wait: Wait,
    until: Deadline,
) -> impl FnOnce(&MessageQueue, &mut [u8]) -> Result<Option<(usize, u32)>, Errno> {
    move |queue, room| wait_for(wait, until, |patience| queue.receive(room, patience))
}

impl Rx for MqRx {
    #[inline]
    fn try_recv(&mut self, buf: &mut [u8]) -> Result<usize, RecvError> {
        let len =
            self.take(buf, RecvError::Empty, |queue, room| queue.receive(room, Patience::Now))?;
        self.copy_out(buf, len)
    }

    #[inline]
    fn recv(&mut self, buf: &mut [u8], until: Deadline) -> Result<usize, RecvError> {
        let len = self.take(buf, RecvError::TimedOut, waiting(self.wait, until))?;
        self.copy_out(buf, len)
    }

    #[inline]
    fn recv_in_place<R>(
        &mut self,
        scratch: &mut [u8],
        until: Deadline,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError> {
        let len = self.take(scratch, RecvError::TimedOut, waiting(self.wait, until))?;
        let whole = if scratch.len() >= self.max { &*scratch } else { &self.bounce[..] };
        Ok(read(&whole[..len]))
    }

    /// Returns the queue's descriptor, which is also readable when the peer has ended.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queue.as_fd())
    }

    fn facts(&self) -> Facts {
        queue_facts(&self.queue)
    }
}

fn queue_facts(queue: &MessageQueue) -> Facts {
    let Ok(attributes) = queue.attributes() else { return Facts::new() };
    facts_of([
        ("queue_messages", attributes.messages),
        ("max_message_bytes", attributes.message_bytes),
    ])
}
