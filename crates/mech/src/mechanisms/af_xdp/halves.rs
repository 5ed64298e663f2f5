//! The two directions of an AF_XDP socket.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crossway_sys::Errno;
use crossway_sys::lifeline::{Lifeline, Wakeup};
use crossway_sys::packet::ETHERNET_HEADER_LEN;
use crossway_sys::xdp::{Receiver, Sender, dropped};

use super::{MTU, Programs};
use crate::building_blocks::message_socket::{MessageSink, MessageSource, Received};
use crate::contract::facts_of;
use crate::{Facts, OpenError};

/// What precedes a message in its frame: addresses, which nobody looks at, and the first EtherType
/// for experiments (IEEE 802), by which the program in the kernel knows our frames.
const HEADER: [u8; ETHERNET_HEADER_LEN] = [0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x88, 0xb5];

/// A half that does not wait asks the kernel whether the peer is alive this often.
const ASK_EVERY: u32 = 64;

/// The sending direction.
pub struct XdpSink {
    sender: Sender,
    socket: Arc<OwnedFd>,
    lifeline: Arc<Lifeline>,
    sends: u32,
    _programs: Option<Programs>,
}

impl XdpSink {
    pub(super) fn new(
        sender: Sender,
        socket: Arc<OwnedFd>,
        lifeline: Arc<Lifeline>,
        programs: Option<Programs>,
    ) -> Self {
        XdpSink { sender, socket, lifeline, sends: 0, _programs: programs }
    }
}

impl Drop for XdpSink {
    fn drop(&mut self) {
        // Frames on their way are lost when the interfaces or their programs go.
        self.sender.settle(&self.socket);
    }
}

impl MessageSink for XdpSink {
    #[inline]
    fn send(&mut self, msg: &[u8], _nonblocking: bool) -> Result<(), Errno> {
        self.sends = self.sends.wrapping_add(1);
        if self.sends.is_multiple_of(ASK_EVERY) && is_gone(&self.lifeline)? {
            return Err(Errno::PIPE);
        }
        self.sender.send(&self.socket, &HEADER, msg)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn facts(&self) -> Facts {
        facts_of([("mtu_bytes", MTU)])
    }
}

#[cold]
fn is_gone(lifeline: &Lifeline) -> Result<bool, Errno> {
    lifeline.peer_gone().map_err(|e| Errno::from_raw_os_error(e.errno()))
}

/// The receiving direction.
pub struct XdpSource {
    receiver: Receiver,
    socket: Arc<OwnedFd>,
    lifeline: Arc<Lifeline>,
    /// Polls readable when a frame has arrived or the peer has ended.
    either: OwnedFd,
    /// Attempts in vain since the last message.
    empties: u32,
    has_ended: bool,
    _programs: Option<Programs>,
}

impl XdpSource {
    pub(super) fn new(
        receiver: Receiver,
        socket: Arc<OwnedFd>,
        lifeline: Arc<Lifeline>,
        programs: Option<Programs>,
    ) -> Result<Self, OpenError> {
        let either = lifeline.watched_with(socket.as_fd())?;
        let (empties, has_ended) = (0, false);
        Ok(XdpSource {
            receiver,
            socket,
            lifeline,
            either,
            empties,
            has_ended,
            _programs: programs,
        })
    }

    #[inline]
    fn take(&mut self, buf: &mut [u8]) -> Option<Received> {
        let came = self.receiver.take(|frame| {
            let message = frame.get(ETHERNET_HEADER_LEN..).unwrap_or_default();
            let fits = message.len().min(buf.len());
            buf[..fits].copy_from_slice(&message[..fits]);
            Received::Message(message.len())
        });
        if came.is_some() {
            self.empties = 0;
        }
        came
    }
}

impl MessageSource for XdpSource {
    #[inline]
    fn recv(&mut self, buf: &mut [u8], nonblocking: bool) -> Result<Received, Errno> {
        loop {
            if let Some(received) = self.take(buf) {
                return Ok(received);
            }
            if self.has_ended {
                return Ok(Received::End);
            }
            if !nonblocking {
                let waited = self.lifeline.wait_readable(self.socket.as_fd(), None);
                let woken = waited.map_err(|e| Errno::from_raw_os_error(e.errno()))?;
                self.has_ended = woken == Wakeup::PeerClosed;
                continue;
            }
            let asks = self.empties.is_multiple_of(ASK_EVERY);
            self.empties = self.empties.wrapping_add(1);
            if !asks || !is_gone(&self.lifeline)? {
                return Err(Errno::AGAIN);
            }
            // The peer may have sent something just before it ended.
            self.has_ended = true;
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.either.as_fd()
    }

    fn facts(&self) -> Facts {
        let dropped = dropped(&*self.socket).unwrap_or_default() as usize;
        facts_of([("mtu_bytes", MTU), ("dropped_messages", dropped)])
    }
}
