//! The channels over which signals are sent and received.

mod ahead;
pub(crate) mod frame;
mod parts;
mod ring;
mod stream;

use std::os::fd::BorrowedFd;

use crossway_ring::pool::Block;
use crossway_sys::{Errno, OsError};

use crate::{Signal, Spid};

use frame::Header;
pub(crate) use parts::{Assembly, Came};
pub(crate) use ring::{RingChannel, dimensions};
pub(crate) use stream::{Pipe, StreamChannel};

/// A signal to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a> {
    pub(crate) from: Spid,
    pub(crate) to: Spid,
    pub(crate) out_of_band: bool,
    pub(crate) number: u32,
    pub(crate) payload: &'a [u8],
    /// The block of a pool that contains the signal; `None` if it is not in a pool.
    pub(crate) block: Option<&'a Block>,
    /// The signal as it is sent in a single piece: header, number and payload, contiguous in memory; `None` if they are
    /// not contiguous.
    pub(crate) frame: Option<&'a [u8]>,
}

impl<'a> Outgoing<'a> {
    /// Describes a whole signal that is to be sent.
    pub(crate) fn of(signal: &'a mut Signal, from: Spid, to: Spid, out_of_band: bool) -> Self {
        signal.put_header(&Header::of_signal(signal.size(), from, to, out_of_band).encode());
        let signal = &*signal;
        Outgoing {
            from,
            to,
            out_of_band,
            number: signal.number(),
            payload: signal.payload(),
            block: signal.block(),
            frame: signal.with_header(),
        }
    }

    pub(crate) fn size(&self) -> usize {
        crate::limits::LEAST_SIGNAL + self.payload.len()
    }
}

/// The reason why a channel is no longer usable.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The peer has closed the channel, and everything it sent was received.
    Ended,
    /// The peer has written data that no correct peer writes.
    Damaged(&'static str),
    /// A system call failed.
    Os(OsError),
}

/// The result of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The channel has accepted the signal, though part of it may still wait for room.
    Taken,
    /// The channel has passed the signal's block to the receiver.
    Lent,
    /// There was no room, and nothing was accepted.
    Full,
}

/// The result of an attempt to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// Something was read; there may be more.
    Something,
    /// There is nothing now.
    Nothing,
}

/// One end of a channel.
pub(crate) enum Channel {
    Stream(StreamChannel),
    Ring(RingChannel),
}

impl Channel {
    /// Accepts the signal if there is room. With `patient`, waits briefly for room if one system call can both wait and
    /// send.
    #[inline]
    pub(crate) fn send(&mut self, out: &Outgoing<'_>, patient: bool) -> Result<Sent, Broken> {
        match self {
            Channel::Stream(channel) => channel.send(out, patient),
            Channel::Ring(channel) => channel.send(out),
        }
    }

    /// Allocates a block for a signal of `size` bytes that can be passed by reference. `None` if the channel has no
    /// pool, or if the pool has no room.
    pub(crate) fn block(&self, size: usize) -> Option<Block> {
        match self {
            Channel::Stream(channel) => channel.block(size),
            Channel::Ring(channel) => channel.block(size),
        }
    }

    #[cfg(test)]
    pub(crate) fn pool(&self) -> Option<&crossway_ring::pool::Pool> {
        match self {
            Channel::Stream(channel) => channel.pool(),
            Channel::Ring(channel) => channel.pool(),
        }
    }

    /// Sends accepted bytes for which there was no room before; returns true when nothing remains. `patient` has the
    /// same meaning as for [`Channel::send`].
    pub(crate) fn flush(&mut self, patient: bool) -> Result<bool, Broken> {
        match self {
            Channel::Stream(channel) => channel.flush(patient),
            Channel::Ring(channel) => channel.flush(),
        }
    }

    /// Whether accepted bytes still wait for room.
    pub(crate) fn holds_back(&self) -> bool {
        match self {
            Channel::Stream(channel) => channel.holds_back(),
            Channel::Ring(channel) => channel.holds_back(),
        }
    }

    /// Whether part of a large signal has arrived.
    pub(crate) fn is_amid_signal(&self) -> bool {
        match self {
            Channel::Stream(channel) => channel.is_amid_signal(),
            Channel::Ring(_) => false,
        }
    }

    /// Asks to be woken when there is room; returns true if there already is some. On a channel with
    /// [`Channel::room_fd`], it does nothing and returns false: that descriptor reports room.
    pub(crate) fn ask_for_room(&mut self) -> Result<bool, Broken> {
        match self {
            Channel::Stream(_) => Ok(false),
            Channel::Ring(channel) => channel.ask_for_room(),
        }
    }

    /// Returns the descriptor that becomes writable when there is room; `None` if the descriptor for reading also
    /// reports room.
    pub(crate) fn room_fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Channel::Stream(channel) => Some(channel.write_fd()),
            Channel::Ring(_) => None,
        }
    }

    /// Returns the descriptor that becomes readable when something arrives.
    pub(crate) fn read_fd(&self) -> BorrowedFd<'_> {
        match self {
            Channel::Stream(channel) => channel.read_fd(),
            Channel::Ring(channel) => channel.read_fd(),
        }
    }

    /// Returns the next signal or notice from data that was already read, or `None` if none is complete; makes no
    /// system call.
    #[inline]
    pub(crate) fn next(&mut self, assembly: &mut Assembly) -> Result<Option<Came>, Broken> {
        match self {
            Channel::Stream(channel) => channel.next(assembly),
            Channel::Ring(channel) => channel.next(assembly),
        }
    }

    /// Reads once. With `patient`, the read may wait briefly for the rest of a signal. On rings, where nothing has to
    /// be read, it clears earlier wake-ups instead.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        assembly: &mut Assembly,
        patient: bool,
    ) -> Result<Filled, Broken> {
        match self {
            Channel::Stream(channel) => channel.fill(assembly, patient),
            Channel::Ring(channel) => channel.clear_bell(),
        }
    }

    /// Makes the descriptor report arrivals from now on; returns false if something has already arrived.
    #[inline]
    pub(crate) fn arm(&mut self) -> Result<bool, Broken> {
        match self {
            Channel::Stream(_) => Ok(true),
            Channel::Ring(channel) => channel.arm(),
        }
    }
}

impl From<OsError> for Broken {
    fn from(error: OsError) -> Self {
        Broken::Os(error)
    }
}

impl Broken {
    fn of(call: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::PIPE | Errno::CONNRESET => Broken::Ended,
            errno => Broken::Os(OsError::new(call, "channel", errno)),
        }
    }
}
