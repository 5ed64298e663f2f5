//! The two ends of a System V message queue.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use crossway_sys::lease::Lease;
use crossway_sys::patience::Patience;
use crossway_sys::peer_watch::{PeerEvent, PeerWatch};
use crossway_sys::sysv_queue::{Envelope, Received, Sent, SysvQueue};
use crossway_sys::{Errno, OsError};

use super::{MESSAGE, NOTE};
use crate::building_blocks::queue_wait::wait_for;
use crate::contract::facts_of;
use crate::{Deadline, Facts, OpenError, RecvError, Rx, SendError, Tx, Wait};

/// The sending half: one msgsnd(2) per message.
#[derive(Debug)]
pub struct SysvTx {
    queue: SysvQueue,
    /// The thread that watches for the end of the receiver; `None` only while this half is being dropped.
    watch: Option<PeerWatch>,
    /// The lease on the queue, held until the receiver has a lease of its own.
    lease: Arc<Mutex<Option<Lease>>>,
    wait: Wait,
    max: usize,
    envelope: Envelope,
}

/// The receiving half: one msgrcv(2) per message.
#[derive(Debug)]
pub struct SysvRx {
    queue: SysvQueue,
    watch: PeerWatch,
    wait: Wait,
    envelope: Envelope,
    /// The lease on the queue. Dropping it removes the queue.
    _lease: Lease,
}

impl SysvTx {
    pub(super) fn new(
        queue: SysvQueue,
        lease: Option<Lease>,
        lifeline: OwnedFd,
        wait: Wait,
        max: usize,
    ) -> Result<Self, OpenError> {
        let lease = Arc::new(Mutex::new(lease));
        let held = lease.clone();
        let watch = PeerWatch::watch(lifeline, move |event| {
            let lease = held.lock().unwrap_or_else(PoisonError::into_inner).take();
            match event {
                PeerEvent::Confirmed => lease.into_iter().for_each(Lease::cancel),
                PeerEvent::Ended => {
                    // Fails only for a queue of another user, which we could not have opened.
                    let _ = queue.remove();
                    drop(lease);
                }
            }
        })?;
        let envelope = Envelope::with_room(max);
        Ok(SysvTx { queue, watch: Some(watch), lease, wait, max, envelope })
    }

    #[inline]
    fn put(&mut self, len: usize, until: Option<Deadline>) -> Result<(), SendError> {
        let (queue, envelope) = (self.queue, &mut self.envelope);
        let once = |patience| match queue.send(envelope, MESSAGE, len, patience)? {
            Sent::NoRoom => Ok(None),
            sent => Ok(Some(sent)),
        };
        let (sent, none_in_time) = match until {
            None => ({ once }(Patience::Now), SendError::Full),
            Some(until) => (wait_for(self.wait, until, once), SendError::TimedOut),
        };
        match sent {
            Ok(Some(Sent::Removed)) => Err(SendError::PeerClosed),
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(none_in_time),
            Err(errno) => Err(OsError::new("msgsnd", queue.id(), errno).into()),
        }
    }

    #[inline]
    fn room(&mut self, len: usize) -> Result<&mut [u8], SendError> {
        if len > self.max {
            return Err(SendError::TooLarge { len, max: self.max });
        }
        Ok(self.envelope.text_mut(len))
    }
}

impl Drop for SysvTx {
    fn drop(&mut self) {
        let Some(watch) = self.watch.take() else { return };
        let unconfirmed = self.lease.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if unconfirmed {
            // The receiver has not connected yet and may still want the messages in the queue.
            watch.leave_watching();
        }
    }
}

impl Tx for SysvTx {
    #[inline]
    fn try_send(&mut self, msg: &[u8]) -> Result<(), SendError> {
        self.room(msg.len())?.copy_from_slice(msg);
        self.put(msg.len(), None)
    }

    #[inline]
    fn send(&mut self, msg: &[u8], until: Deadline) -> Result<(), SendError> {
        self.room(msg.len())?.copy_from_slice(msg);
        self.put(msg.len(), Some(until))
    }

    /// Makes `fill` write the message directly behind its type, where the kernel expects it. That saves a copy.
    #[inline]
    fn send_in_place(
        &mut self,
        len: usize,
        _scratch: &mut [u8],
        until: Deadline,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        fill(self.room(len)?);
        self.put(len, Some(until))
    }

    fn facts(&self) -> Facts {
        queue_facts(self.queue, self.max)
    }
}

impl SysvRx {
    pub(super) fn new(
        queue: SysvQueue,
        lease: Lease,
        lifeline: OwnedFd,
        wait: Wait,
        max: usize,
    ) -> Result<Self, OpenError> {
        let watch = PeerWatch::watch(lifeline, move |event| {
            if event == PeerEvent::Ended {
                // If the queue is full, no receiver sleeps on it.
                let _ = queue.send(&mut Envelope::with_room(0), NOTE, 0, Patience::Now);
            }
        })?;
        watch.confirm();
        Ok(SysvRx { queue, watch, wait, envelope: Envelope::with_room(max), _lease: lease })
    }

    /// Receives into the envelope, which holds the type and the message. Returns the length of the message.
    #[inline]
    fn take(&mut self, until: Option<Deadline>) -> Result<usize, RecvError> {
        let (queue, envelope) = (self.queue, &mut self.envelope);
        let mut once = |patience| match queue.receive(envelope, NOTE, patience)? {
            Received::Nothing => Ok(None),
            received => Ok(Some(received)),
        };
        let (received, none_in_time) = if self.watch.peer_has_ended() {
            // No more messages will arrive; take what is in the queue.
            (once(Patience::Now), RecvError::PeerClosed)
        } else if let Some(until) = until {
            (wait_for(self.wait, until, once), RecvError::TimedOut)
        } else {
            (once(Patience::Now), RecvError::Empty)
        };
        match received {
            Ok(Some(Received::Message { kind: MESSAGE, len })) => Ok(len),
            Ok(Some(_)) => Err(RecvError::PeerClosed),
            Ok(None) => Err(none_in_time),
            Err(errno) if errno == Errno::TOOBIG => Err(RecvError::Damaged(
                "a message in the queue is larger than this channel allows".to_owned(),
            )),
            Err(errno) => Err(OsError::new("msgrcv", queue.id(), errno).into()),
        }
    }

    #[inline]
    fn copy_out(&self, buf: &mut [u8], len: usize) -> Result<usize, RecvError> {
        if buf.len() < len {
            return Err(RecvError::TooSmall { need: len, have: buf.len() });
        }
        buf[..len].copy_from_slice(self.envelope.text(len));
        Ok(len)
    }
}

impl Rx for SysvRx {
    #[inline]
    fn try_recv(&mut self, buf: &mut [u8]) -> Result<usize, RecvError> {
        let len = self.take(None)?;
        self.copy_out(buf, len)
    }

    #[inline]
    fn recv(&mut self, buf: &mut [u8], until: Deadline) -> Result<usize, RecvError> {
        let len = self.take(Some(until))?;
        self.copy_out(buf, len)
    }

    /// Passes the message to `read` where the kernel put it, behind its type.
    #[inline]
    fn recv_in_place<R>(
        &mut self,
        _scratch: &mut [u8],
        until: Deadline,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError> {
        let len = self.take(Some(until))?;
        Ok(read(self.envelope.text(len)))
    }

    fn facts(&self) -> Facts {
        queue_facts(self.queue, self.envelope.room())
    }
}

fn queue_facts(queue: SysvQueue, max: usize) -> Facts {
    let Ok(status) = queue.status() else { return Facts::new() };
    facts_of([("queue_bytes", status.queue_bytes), ("max_message_bytes", max)])
}
