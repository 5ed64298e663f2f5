//! Reads signals of a predictable size directly into their own buffers, so that only the kernel copies them.
//!
//! The size of a signal is in its header, which arrives together with it. When two signals of the same size have
//! arrived, the next ones probably have that size, too: a read then puts headers and signals alternately into separate
//! buffers. If a header turns out to be different, the bytes are copied to where an ordinary read would have put them.

use std::io::IoSliceMut;

use super::frame::{FIRST, HEADER, Header, OUT_OF_BAND};
use super::parts::Assembly;

/// Signal sizes in bytes for which reading ahead saves time. For smaller signals, copying costs less than giving a read
/// additional buffers.
const SIZES: std::ops::RangeInclusive<usize> = 1 << 10..=256 << 10;

/// Maximum total size in bytes of the signals that one read expects, unless it expects only one. With a higher maximum,
/// the signals would no longer be in the first-level cache when the program reads them.
const BYTES: usize = 16 << 10;

/// Maximum number of signals that a read expects.
const SIGNALS: usize = 15;

/// For signals up to this size in bytes, a read also takes bytes that follow the expected signals. Those bytes must be
/// copied once more; for larger signals, that costs more than another read.
const BEHIND: usize = 2 << 10;

/// The signals that are expected.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// The size of the last signal.
    last: usize,
    /// The predicted size of the next signals; 0 if there is no prediction.
    size: usize,
    /// Number of signals that the next read expects.
    depth: usize,
    heads: [[u8; HEADER]; SIGNALS],
    bodies: Vec<Vec<u8>>,
}

/// A part of what a read has put into the buffers.
pub(super) enum Arrived {
    /// A signal of which `left` bytes are still missing.
    Signal { header: Header, bytes: Vec<u8>, left: usize },
    /// Bytes of something other than an expected signal.
    Other(Vec<u8>),
}

impl Ahead {
    /// Notes the size of a signal that arrived in one piece.
    #[inline]
    pub(super) fn saw(&mut self, size: usize) {
        self.size = if size == self.last && SIZES.contains(&size) { size } else { 0 };
        self.last = size;
    }

    /// Whether there is a prediction for the next signals.
    #[inline]
    pub(super) fn expects(&self) -> bool {
        self.size > 0
    }

    /// Returns the buffers to read into. For small signals, the last one is `behind`, for bytes that follow the
    /// expected signals.
    pub(super) fn buffers<'a>(
        &'a mut self,
        assembly: &mut Assembly,
        behind: &'a mut [u8],
    ) -> Vec<IoSliceMut<'a>> {
        let most = (BYTES / (HEADER + self.size)).clamp(1, SIGNALS);
        self.depth = self.depth.clamp(1, most);
        let size = self.size;
        self.bodies.retain(|body| body.len() == size);
        while self.bodies.len() < self.depth {
            self.bodies.push(assembly.filled(size));
        }
        let mut buffers = Vec::with_capacity(2 * self.depth + 1);
        for (head, body) in self.heads.iter_mut().zip(&mut self.bodies).take(self.depth) {
            buffers.push(IoSliceMut::new(head));
            buffers.push(IoSliceMut::new(body));
        }
        if size <= BEHIND {
            buffers.push(IoSliceMut::new(behind));
        }
        buffers
    }

    /// Sorts the first `got` bytes that were read into the buffers; returns the number of bytes that follow the
    /// expected signals.
    pub(super) fn sort(&mut self, got: usize, mut take: impl FnMut(Arrived)) -> usize {
        let frame = HEADER + self.size;
        let expected = self.depth * frame;
        let mut left = got.min(expected);
        let mut used = 0;
        while left > 0 {
            let Some(header) = self.expected_header(used, left) else {
                take(Arrived::Other(self.gather(used, left)));
                break;
            };
            let mut bytes = std::mem::take(&mut self.bodies[used]);
            let arrived = (left - HEADER).min(self.size);
            bytes.truncate(arrived);
            take(Arrived::Signal { header, bytes, left: self.size - arrived });
            left -= HEADER + arrived;
            used += 1;
        }
        self.bodies.drain(..used);
        // Expects as many as arrived together, or more if all of the buffers were filled.
        self.depth = if got >= expected { 2 * self.depth } else { used.max(1) };
        got - got.min(expected)
    }

    /// Returns the header of the expected signal `at`; `None` if the header has not fully arrived, or differs from the
    /// header of an expected signal.
    fn expected_header(&self, at: usize, arrived: usize) -> Option<Header> {
        let header = Header::decode(&self.heads[at]).filter(|_| arrived >= HEADER)?;
        let size = self.size as u32;
        let alike = header.piece == size && header.size == size;
        (alike && header.flags & !OUT_OF_BAND == FIRST).then_some(header)
    }

    /// Returns a copy of `len` bytes that were read, beginning at a header.
    fn gather(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + HEADER + self.size);
        for (head, body) in self.heads.iter().zip(&self.bodies).skip(at) {
            if bytes.len() >= len {
                break;
            }
            bytes.extend_from_slice(head);
            bytes.extend_from_slice(body);
        }
        bytes.truncate(len);
        bytes
    }
}

#[cfg(test)]
mod tests;
