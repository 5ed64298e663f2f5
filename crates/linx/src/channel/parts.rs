//! Reassembles signals from pieces.

use std::collections::HashMap;

use crossway_ring::pool::{Pool, Reference};

use super::Broken;
use super::frame::{ABANDONED, FIRST, GONE, Header, OUT_OF_BAND};
use crate::limits::{LEAST_SIGNAL, VOUCHED};
use crate::{Signal, Spid};

/// Number of freed buffers kept for further signals.
const KEPT: usize = 16;

/// Something that has arrived completely.
#[derive(Debug)]
pub(crate) enum Came {
    Signal(Signal),
    /// The endpoint `spid` has ended; this answers the attach with the number `id`.
    Gone {
        id: u32,
        spid: Spid,
    },
}

/// Takes over a signal that the peer has passed by reference.
pub(super) fn accept(pool: Option<&Pool>, header: &Header, body: &[u8]) -> Result<Came, Broken> {
    let place = body.first_chunk().map(|bytes| Reference::decode(*bytes));
    // There is a byte behind the signal, for C programs.
    let place = place.filter(|place| (header.size as usize) < place.room());
    let block = place.and_then(|place| pool?.accept(place));
    let block = block.ok_or(Broken::Damaged("an invalid reference to shared memory"))?;
    if block[..LEAST_SIGNAL] == [0; LEAST_SIGNAL] {
        return Err(Broken::Damaged("a signal has the number 0"));
    }
    let out_of_band = header.flags & OUT_OF_BAND != 0;
    let signal = Signal::by_reference(block, header.size as usize, header.from, out_of_band);
    Ok(Came::Signal(signal))
}

/// The incomplete signals of all channels, and spare buffers.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    /// The bytes received so far, by channel and sender.
    begun: HashMap<(u32, Spid), Vec<u8>>,
    free: Vec<Vec<u8>>,
}

impl Assembly {
    /// Returns an empty buffer with room for `len` bytes.
    #[inline]
    pub(crate) fn buffer(&mut self, len: usize) -> Vec<u8> {
        if let Some(at) = self.free.iter().rposition(|free| free.capacity() >= len) {
            let mut buffer = self.free.swap_remove(at);
            buffer.clear();
            return buffer;
        }
        Vec::with_capacity(len)
    }

    /// Returns a buffer of `len` bytes with arbitrary content.
    pub(crate) fn filled(&mut self, len: usize) -> Vec<u8> {
        let found = self.free.iter().rposition(|free| free.capacity() >= len);
        let mut buffer = found.map_or_else(Vec::new, |at| self.free.swap_remove(at));
        // Costs nothing if the buffer was used for a signal of this size before.
        buffer.resize(len, 0);
        buffer
    }

    /// Takes back a buffer that is no longer needed.
    #[inline]
    pub(crate) fn give_back(&mut self, buffer: Vec<u8>) {
        if self.free.len() == KEPT {
            // Larger buffers are more valuable.
            let least = (0..KEPT).min_by_key(|at| self.free[*at].capacity()).unwrap_or(0);
            if self.free[least].capacity() >= buffer.capacity() {
                return;
            }
            self.free[least] = buffer;
        } else {
            self.free.push(buffer);
        }
    }

    /// Returns the buffer to which the bytes of a piece must be appended.
    #[inline]
    pub(crate) fn begin(&mut self, channel: u32, header: &Header) -> Result<Vec<u8>, Broken> {
        let size = header.size as usize;
        if header.flags & FIRST != 0 {
            if header.piece != header.size && self.begun.contains_key(&(channel, header.from)) {
                return Err(Broken::Damaged("a signal begins before the previous one is complete"));
            }
            return Ok(self.buffer(size));
        }
        let buffer = self
            .begun
            .remove(&(channel, header.from))
            .ok_or(Broken::Damaged("a further piece of a signal arrived before its first piece"))?;
        if buffer.len() + header.piece as usize > size {
            return Err(Broken::Damaged("the pieces of a signal exceed its size"));
        }
        Ok(buffer)
    }

    /// Handles a piece whose bytes have all arrived; returns the signal if this was its last piece.
    #[inline]
    pub(crate) fn complete(
        &mut self,
        channel: u32,
        header: &Header,
        bytes: Vec<u8>,
    ) -> Result<Option<Came>, Broken> {
        if bytes.len() < header.size as usize {
            if self.begun.len() > 16 * VOUCHED {
                return Err(Broken::Damaged("too many signals are incomplete at the same time"));
            }
            self.begun.insert((channel, header.from), bytes);
            return Ok(None);
        }
        if bytes[..LEAST_SIGNAL] == [0; LEAST_SIGNAL] {
            return Err(Broken::Damaged("a signal has the number 0"));
        }
        let out_of_band = header.flags & OUT_OF_BAND != 0;
        Ok(Some(Came::Signal(Signal::received(bytes, header.from, out_of_band))))
    }

    /// Handles the header of a notice, which no bytes follow; `None` if it does not report the end of an endpoint.
    pub(crate) fn notice(&mut self, channel: u32, header: &Header) -> Option<Came> {
        if header.flags & (ABANDONED | GONE) != 0 {
            self.begun.remove(&(channel, header.from));
        }
        (header.flags & GONE != 0).then_some(Came::Gone { id: header.to, spid: header.from })
    }

    /// Discards the incomplete signals of a channel that has ended.
    pub(crate) fn forget(&mut self, channel: u32) {
        self.begun.retain(|(of, _), _| *of != channel);
    }
}
