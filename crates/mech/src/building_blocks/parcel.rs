//! Messages that stay with the sender until the receiver has taken them: only a notice is sent over a socket, and the
//! payload is transferred in another way.
//!
//! The sender has a number of slots, which it uses in turn. Notices are sent over a UNIX SEQPACKET socket. Each time
//! the receiver has taken half as many messages as there are slots, it sends an acknowledgement, which frees the slots
//! of these messages. When the socket reports end of file, the peer has ended.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::{Errno, OsError, fdpass, socket};

use super::byte_stream::{recv_error, send_error};
use super::in_place::Put;
use super::slots::{Layout, Reports, Slots};
use super::waiting::{Attempt, Patience, Stop, wait_for};
use crate::{Deadline, Facts, RecvError, Rx, SendError, Wait};

/// The notice that announces a message to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Uniquely identifies the message.
    pub stamp: u64,
    /// The address of the slot in the sender's memory.
    pub address: u64,
    /// The length of the message in bytes.
    pub len: u64,
    /// The index of its slot.
    pub slot: u32,
    /// The sender's process ID.
    pub pid: u32,
}

const NOTICE_BYTES: usize = 32;

impl Notice {
    fn to_bytes(self) -> [u8; NOTICE_BYTES] {
        let mut bytes = [0; NOTICE_BYTES];
        bytes[0..8].copy_from_slice(&self.stamp.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.address.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.len.to_ne_bytes());
        bytes[24..28].copy_from_slice(&self.slot.to_ne_bytes());
        bytes[28..32].copy_from_slice(&self.pid.to_ne_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; NOTICE_BYTES]) -> Self {
        let eight = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        let four = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        Notice { stamp: eight(0), address: eight(8), len: eight(16), slot: four(24), pid: four(28) }
    }
}

/// The slots in which a sender keeps messages until the receiver has taken them.
pub trait Store: Send + 'static {
    /// Borrows the first `len` bytes of a slot's payload for writing.
    fn payload(&mut self, slot: usize, len: usize) -> &mut [u8];
    /// Makes the message in a slot ready to be taken, and returns its notice.
    fn notice(&mut self, slot: usize, number: u64, len: usize) -> Notice;
    /// The descriptor that is sent with the notice of a slot, if any.
    fn descriptor(&self, slot: usize) -> Option<BorrowedFd<'_>>;
}

/// The way in which the receiver takes an announced message.
pub trait Taker: Send + 'static {
    /// Whether descriptors are sent with notices.
    const DESCRIPTORS: bool;
    /// Copies the message to `buf`, which has the length of the message.
    fn copy(
        &mut self,
        notice: &Notice,
        fd: Option<OwnedFd>,
        socket: BorrowedFd<'_>,
        buf: &mut [u8],
    ) -> Result<(), RecvError>;
    /// Passes the message to `read`, in place or copied to `scratch`.
    fn show<R>(
        &mut self,
        notice: &Notice,
        fd: Option<OwnedFd>,
        socket: BorrowedFd<'_>,
        scratch: &mut [u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError>;
}

/// The sending half of a channel whose messages stay in the sender's slots `S`. Only notices pass through a socket.
#[derive(Debug)]
pub struct ParcelTx<S> {
    store: S,
    socket: OwnedFd,
    layout: Layout,
    wait: Wait,
    slots: Slots,
}

impl<S: Store> ParcelTx<S> {
    /// Creates the half over a store and this direction's socket.
    pub(crate) fn new(store: S, socket: OwnedFd, layout: Layout, wait: Wait) -> Self {
        ParcelTx { store, socket, layout, wait, slots: Slots::new(layout) }
    }
}

impl<S: Store> Put for ParcelTx<S> {
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
        self.slots.wait_for_free(self.socket.as_fd(), self.wait, patience)?;
        let slot = self.slots.next();
        fill(self.store.payload(slot, len));
        let notice = self.store.notice(slot, self.slots.number(), len).to_bytes();
        let posted = match self.store.descriptor(slot) {
            None => socket::send(&self.socket, &notice, false),
            Some(fd) => fdpass::send(&self.socket, &notice, &[fd])
                .map_err(|e| Errno::from_io_error(&e.source).unwrap_or(Errno::INVAL)),
        };
        posted.map_err(|errno| send_error(Stop::Errno(errno)))?;
        self.slots.used();
        Ok(())
    }

    fn sizes(&self) -> Facts {
        self.layout.facts()
    }
}

/// The receiving half of a channel whose messages stay with the sender. It takes announced messages with `T`.
#[derive(Debug)]
pub struct ParcelRx<T> {
    taker: T,
    socket: OwnedFd,
    layout: Layout,
    wait: Wait,
    reports: Reports,
    fds: Vec<OwnedFd>,
    /// The notice of a message that did not fit into the caller's buffer, with its descriptor.
    held: Option<(Notice, Option<OwnedFd>)>,
}

struct Arrival<'a> {
    socket: BorrowedFd<'a>,
    fds: Option<&'a mut Vec<OwnedFd>>,
}

impl Attempt for Arrival<'_> {
    type Out = Option<Notice>;

    #[inline]
    fn attempt(&mut self, nonblocking: bool) -> Result<Option<Notice>, Errno> {
        let mut bytes = [0; NOTICE_BYTES];
        loop {
            let received = match &mut self.fds {
                None => socket::recv(self.socket, &mut bytes, nonblocking),
                Some(fds) => fdpass::receive(self.socket, &mut bytes, fds, nonblocking),
            };
            return match received {
                Ok(NOTICE_BYTES) => Ok(Some(Notice::from_bytes(&bytes))),
                // Neither a notice nor the end: the sender is faulty.
                Ok(1..) => Err(Errno::BADMSG),
                Ok(0) => Ok(None),
                // Reported once when the sender closed with unread acknowledgements; its notices follow.
                Err(Errno::CONNRESET) => continue,
                Err(errno) => Err(errno),
            };
        }
    }

    fn sleep_until(&mut self, until: Instant) -> Result<(), Errno> {
        wait_ready(self.socket, Interest::Readable, Some(until)).map(drop)
    }
}

impl<T: Taker> ParcelRx<T> {
    /// Creates the half over a taker and this direction's socket.
    pub(crate) fn new(taker: T, socket: OwnedFd, layout: Layout, wait: Wait) -> Self {
        ParcelRx {
            taker,
            socket,
            layout,
            wait,
            reports: Reports::new(layout),
            fds: Vec::new(),
            held: None,
        }
    }

    /// Returns the next notice. If its message is longer than `room`, keeps the notice and returns an error.
    #[inline]
    fn next(
        &mut self,
        room: Option<usize>,
        patience: Patience,
    ) -> Result<(Notice, Option<OwnedFd>), RecvError> {
        let (notice, fd) = match self.held.take() {
            Some(held) => held,
            None => {
                let fds = T::DESCRIPTORS.then_some(&mut self.fds);
                let mut arrival = Arrival { socket: self.socket.as_fd(), fds };
                let notice = match wait_for(&mut arrival, self.wait, patience) {
                    Ok(Some(notice)) => notice,
                    Ok(None) => return Err(RecvError::PeerClosed),
                    Err(Stop::Errno(Errno::BADMSG)) => {
                        return Err(RecvError::Damaged(
                            "the peer announced a message with a notice of the wrong size"
                                .to_owned(),
                        ));
                    }
                    Err(stop) => return Err(recv_error(stop)),
                };
                (notice, self.fds.pop())
            }
        };
        if notice.len > self.layout.max as u64 || notice.slot as usize >= self.layout.slots {
            return Err(RecvError::Damaged(format!(
                "the peer announced an impossible message: {notice:?}"
            )));
        }
        let need = notice.len as usize;
        if let Some(have) = room.filter(|&have| have < need) {
            self.held = Some((notice, fd));
            return Err(RecvError::TooSmall { need, have });
        }
        Ok((notice, fd))
    }

    #[inline]
    fn take(&mut self, buf: &mut [u8], patience: Patience) -> Result<usize, RecvError> {
        let (notice, fd) = self.next(Some(buf.len()), patience)?;
        let len = notice.len as usize;
        self.taker.copy(&notice, fd, self.socket.as_fd(), &mut buf[..len])?;
        self.reports.taken_over(&self.socket);
        Ok(len)
    }
}

impl<T: Taker> Rx for ParcelRx<T> {
    #[inline]
    fn try_recv(&mut self, buf: &mut [u8]) -> Result<usize, RecvError> {
        self.take(buf, Patience::Now)
    }

    #[inline]
    fn recv(&mut self, buf: &mut [u8], until: Deadline) -> Result<usize, RecvError> {
        self.take(buf, Patience::Until(until))
    }

    #[inline]
    fn recv_in_place<R>(
        &mut self,
        scratch: &mut [u8],
        until: Deadline,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, RecvError> {
        let (notice, fd) = self.next(Some(scratch.len()), Patience::Until(until))?;
        let scratch = &mut scratch[..notice.len as usize];
        let result = self.taker.show(&notice, fd, self.socket.as_fd(), scratch, read)?;
        self.reports.taken_over(&self.socket);
        Ok(result)
    }

    /// Returns the descriptor that is readable when a notice has arrived or the sender has ended.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn facts(&self) -> Facts {
        self.layout.facts()
    }
}

/// Returns the error for a system call of the taker that failed.
pub(crate) fn os_error(call: &'static str, object: &str, errno: Errno) -> RecvError {
    OsError::new(call, object, errno).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_survives_its_bytes() {
        let notice = Notice { stamp: u64::MAX - 1, address: 1 << 40, len: 77, slot: 3, pid: 12 };
        assert_eq!(Notice::from_bytes(&notice.to_bytes()), notice);
    }
}
