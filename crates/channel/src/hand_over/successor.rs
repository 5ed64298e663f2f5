//! The process that takes channels over, as the process that hands them over sees it.

use std::os::fd::OwnedFd;

use crossway_mech::Deadline;
use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::{Errno, OsError};

use super::not_handed_over;
use crate::error::Error;
use crate::message::{self, Message, Outbox, Packet};
use crate::net::{Reader, Writer};

/// A connection on which another process has asked for the channels.
pub(crate) enum Successor {
    /// The process is on this host.
    Near(OwnedFd),
    /// The process is on another host.
    Far(Box<(Writer, Reader)>),
}

impl Successor {
    /// Whether the process has given up. It sends nothing while it waits, so only the end of the connection can be
    /// read.
    pub(crate) fn is_gone(&mut self) -> bool {
        match self {
            Successor::Near(socket) => matches!(message::receive(&*socket, true), Packet::End),
            Successor::Far(ends) => match ends.1.fill() {
                Ok(read) => read == 0,
                Err(errno) => errno != Errno::AGAIN,
            },
        }
    }

    /// Sends a packet, waiting for room.
    pub(super) fn send(
        &mut self,
        message: &Message,
        fds: Vec<OwnedFd>,
        until: Deadline,
    ) -> Result<(), Error> {
        match self {
            Successor::Near(socket) => {
                let mut outbox = Outbox::default();
                outbox.send(&*socket, message, fds);
                while !outbox.is_empty() {
                    let room = wait_ready(&*socket, Interest::Writable, until);
                    if !room.map_err(|e| OsError::new("poll", "successor", e))? {
                        return Err(not_handed_over(
                            "the other process did not receive the channels before the deadline",
                        ));
                    }
                    outbox.flush(&*socket);
                }
                Ok(())
            }
            Successor::Far(_) => {
                let text = serde_json::to_vec(message).expect("messages are plain data");
                self.send_held(&text, until)
            }
        }
    }

    /// Sends the new process a message that the old process has read from the transport but not passed to its program.
    /// Does nothing if the new process is on this host.
    pub(super) fn send_held(&mut self, message: &[u8], until: Deadline) -> Result<(), Error> {
        let Successor::Far(ends) = self else { return Ok(()) };
        ends.0.write_frame(message, until).map_err(|errno| match errno {
            Errno::TIMEDOUT => not_handed_over(
                "the other process did not receive the channels before the deadline",
            ),
            errno => OsError::new("send", "successor", errno).into(),
        })
    }
}
