//! Byte streams whose reads and writes are all made as io_uring requests.
//!
//! Blocking takes one system call per message at each end: `io_uring_enter` submits the request and waits for its
//! completion. Spinning also submits with one call, and then polls the completion queue without any call. Each half has
//! its own ring, because the halves may be in different threads.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crossway_sys::Errno;
use crossway_sys::patience::Patience as SysPatience;
use crossway_sys::pipe::PipeEnd;
use crossway_sys::uring::{Ring, Waiting, why_missing};

use crate::building_blocks::byte_stream::{ByteSink, ByteSource, StreamRx, StreamTx};
use crate::building_blocks::connection::{ConnectionFamily, SocketHalf};
use crate::building_blocks::pipe_halves::pipe_facts;
use crate::building_blocks::waiting::{Patience, Stop};
use crate::{Facts, OpenError, Spec, Wait};

/// An object on which io_uring requests can be made.
pub trait Object: AsFd + Send + 'static {
    /// Writes some or all of the bytes and returns their number; `None` if there was no room in time.
    fn put(&self, ring: &mut Ring, bytes: &[u8], how: Waiting) -> Result<Option<usize>, Errno>;
    /// Reads available bytes and returns their number, 0 at the end; `None` if nothing arrived in time.
    fn get(&self, ring: &mut Ring, buf: &mut [u8], how: Waiting) -> Result<Option<usize>, Errno>;
    /// Values read back from the system after opening, such as buffer sizes.
    fn read_back(&self) -> Facts;
}

impl Object for PipeEnd {
    #[inline]
    fn put(&self, ring: &mut Ring, bytes: &[u8], how: Waiting) -> Result<Option<usize>, Errno> {
        ring.write(self, bytes, how)
    }

    #[inline]
    fn get(&self, ring: &mut Ring, buf: &mut [u8], how: Waiting) -> Result<Option<usize>, Errno> {
        ring.read(self, buf, how)
    }

    fn read_back(&self) -> Facts {
        pipe_facts(self)
    }
}

impl<F: ConnectionFamily> Object for SocketHalf<F> {
    #[inline]
    fn put(&self, ring: &mut Ring, bytes: &[u8], how: Waiting) -> Result<Option<usize>, Errno> {
        ring.send(self, bytes, how)
    }

    #[inline]
    fn get(&self, ring: &mut Ring, buf: &mut [u8], how: Waiting) -> Result<Option<usize>, Errno> {
        ring.recv(self, buf, how)
    }

    fn read_back(&self) -> Facts {
        self.read_facts()
    }
}

/// One direction of a stream, and the io_uring that serves it.
#[derive(Debug)]
pub struct UringEnd<O> {
    object: O,
    ring: Ring,
}

impl<O: Object> UringEnd<O> {
    fn new(object: O) -> Result<Self, OpenError> {
        Ok(UringEnd { object, ring: Ring::new()? })
    }
}

/// Makes the halves of a channel with the directions `sink` and `source`.
pub(super) fn halves<O: Object>(
    spec: &Spec,
    sink: O,
    source: O,
) -> Result<(UringTx<O>, UringRx<O>), OpenError> {
    let tx = StreamTx::new(UringEnd::new(sink)?, spec.wait);
    Ok((tx, StreamRx::new(UringEnd::new(source)?, spec.wait)))
}

/// The sending half of a byte stream `O`, with its own io_uring.
pub type UringTx<O> = StreamTx<UringEnd<O>>;
/// The receiving half of a byte stream `O`, with its own io_uring.
pub type UringRx<O> = StreamRx<UringEnd<O>>;

/// Makes a request with the channel's way of waiting.
#[inline]
pub(super) fn within(
    wait: Wait,
    patience: Patience,
    request: impl FnOnce(Waiting) -> Result<Option<usize>, Errno>,
) -> Result<usize, Stop> {
    let (how, none_in_time) = match patience {
        Patience::Now => (Waiting::Asleep(SysPatience::Now), Stop::WouldBlock),
        Patience::Until(deadline) => {
            let patience = SysPatience::from_deadline(deadline);
            let how = match wait {
                Wait::Block => Waiting::Asleep(patience),
                Wait::Spin => Waiting::Awake(patience),
                Wait::Hybrid { spin_us } => {
                    Waiting::AwakeFirst(Duration::from_micros(spin_us.into()), patience)
                }
            };
            (how, Stop::TimedOut)
        }
    };
    request(how).map_err(Stop::Errno)?.ok_or(none_in_time)
}

fn plainly(nonblocking: bool) -> Waiting {
    Waiting::Asleep(if nonblocking { SysPatience::Now } else { SysPatience::Forever })
}

impl<O: Object> ByteSink for UringEnd<O> {
    fn write(&mut self, bytes: &[u8], nonblocking: bool) -> Result<usize, Errno> {
        self.object.put(&mut self.ring, bytes, plainly(nonblocking))?.ok_or(Errno::AGAIN)
    }

    #[inline]
    fn write_within(
        &mut self,
        bytes: &[u8],
        wait: Wait,
        patience: Patience,
    ) -> Result<usize, Stop> {
        within(wait, patience, |how| self.object.put(&mut self.ring, bytes, how))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.object.as_fd()
    }

    fn facts(&self) -> Facts {
        self.object.read_back()
    }
}

impl<O: Object> ByteSource for UringEnd<O> {
    fn read(&mut self, buf: &mut [u8], nonblocking: bool) -> Result<usize, Errno> {
        self.object.get(&mut self.ring, buf, plainly(nonblocking))?.ok_or(Errno::AGAIN)
    }

    #[inline]
    fn read_within(
        &mut self,
        buf: &mut [u8],
        wait: Wait,
        patience: Patience,
    ) -> Result<usize, Stop> {
        within(wait, patience, |how| self.object.get(&mut self.ring, buf, how))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.object.as_fd()
    }

    fn facts(&self) -> Facts {
        self.object.read_back()
    }
}

/// Rings of a channel: each end has one for each direction.
const RINGS: usize = 4;

/// Returns the reason why the rings of a channel cannot be created here, and what to do about it; `None` if they can.
pub(super) fn missing_ring() -> Option<(String, &'static str)> {
    // At the same time, as in a channel: the kernel counts the memory of all against one limit.
    let rings: Result<Vec<Ring>, _> = (0..RINGS).map(|_| Ring::new()).collect();
    rings.err().map(|error| why_missing(&error))
}
