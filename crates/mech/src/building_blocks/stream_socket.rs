//! Connected stream sockets: their halves and capabilities.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_sys::{Errno, socket};

use super::byte_stream::{ByteSink, ByteSource, StreamRx, StreamTx};
use super::connection::{ConnectionFamily, SocketHalf};
use crate::{Boundaries, Caps, Facts, OpenError, Privilege, Spec};

/// The sending half of family `F`'s streams.
pub type SocketTx<F> = StreamTx<SocketHalf<F>>;
/// The receiving half of family `F`'s streams.
pub type SocketRx<F> = StreamRx<SocketHalf<F>>;

impl<F: ConnectionFamily> ByteSink for SocketHalf<F> {
    #[inline]
    fn write(&mut self, bytes: &[u8], nonblocking: bool) -> Result<usize, Errno> {
        if !F::SENDS_FAIL_AFTER_CLOSE && self.has_ended() {
            return Err(Errno::PIPE);
        }
        socket::send(self.as_fd(), bytes, nonblocking)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn facts(&self) -> Facts {
        self.read_facts()
    }
}

impl<F: ConnectionFamily> ByteSource for SocketHalf<F> {
    #[inline]
    fn read(&mut self, buf: &mut [u8], nonblocking: bool) -> Result<usize, Errno> {
        let outcome = socket::recv(self.as_fd(), buf, nonblocking);
        if let Ok(bytes) = outcome {
            self.note_received(bytes);
        }
        if !F::SENDS_FAIL_AFTER_CLOSE && outcome == Ok(0) {
            self.note_end();
        }
        outcome
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn facts(&self) -> Facts {
        self.read_facts()
    }
}

/// Makes the halves of a channel over a connected stream socket.
pub(crate) fn channel<F: ConnectionFamily>(
    spec: &Spec,
    fd: OwnedFd,
) -> Result<(SocketTx<F>, SocketRx<F>), OpenError> {
    let (sink, source) = SocketHalf::both(fd);
    Ok((StreamTx::new(sink, spec.wait), StreamRx::new(source, spec.wait)))
}

/// The capabilities of every connected stream socket.
pub(crate) fn stream_caps(crosses_hosts: bool, privilege: Privilege) -> Caps {
    Caps {
        boundaries: Boundaries::Stream,
        carries_empty: false,
        waitable_fd: true,
        reconnects: true,
        crosses_hosts,
        privilege,
        ..Caps::PLAIN
    }
}
