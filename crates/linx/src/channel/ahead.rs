//! Reads signals of a known size into buffers of their own, so that only the kernel copies them.
//!
//! The size of a signal is in its header, which arrives with it. When several signals of one size have arrived, the next ones
//! probably have that size, too: a read then puts headers and signals in turn into separate buffers. If a header differs,
//! the bytes are copied to where they would have been otherwise.

use std::io::IoSliceMut;

use super::frame::{FIRST, HEADER, Header, OUT_OF_BAND};
use super::parts::Assembly;

/// Sizes in bytes for which it pays: below, a copy costs less than the further buffers of a read.
const SIZES: std::ops::RangeInclusive<usize> = 1 << 10..=256 << 10;

/// Number of bytes in signals that a read expects at most, if that is more than one signal: with more, their buffers leave the
/// first-level cache before the program has read them.
const BYTES: usize = 16 << 10;

/// Number of signals that a read expects at most.
const SIGNALS: usize = 15;

/// Size in bytes up to which a read also takes what comes after the expected signals. What it takes is copied once more, which
/// costs larger signals more than a further read.
const BEHIND: usize = 2 << 10;

/// The signals that are expected.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// The size of the last signal.
    last: usize,
    /// The size of the next signals; 0 if nothing is known about them.
    size: usize,
    /// Number of signals that the next read expects.
    depth: usize,
    heads: [[u8; HEADER]; SIGNALS],
    bodies: Vec<Vec<u8>>,
}

/// What a read has put into the buffers of the signals.
pub(super) enum Arrived {
    /// A signal of which `left` bytes are still missing.
    Signal { header: Header, bytes: Vec<u8>, left: usize },
    /// Bytes that are not what was expected.
    Other(Vec<u8>),
}

impl Ahead {
    /// Takes note of a signal that arrived in one piece.
    #[inline]
    pub(super) fn saw(&mut self, size: usize) {
        self.size = if size == self.last && SIZES.contains(&size) { size } else { 0 };
        self.last = size;
    }

    /// Whether the size of the next signals is known.
    #[inline]
    pub(super) fn expects(&self) -> bool {
        self.size > 0
    }

    /// The buffers to read into, with `behind` for what comes after the expected signals if these are small.
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

    /// Sorts the first `got` bytes that were read into the buffers; returns the number of bytes behind the expected signals.
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
        // As many as arrive at once, or more if it could be more.
        self.depth = if got >= expected { 2 * self.depth } else { used.max(1) };
        got - got.min(expected)
    }

    /// The header of a signal if it has arrived and is the expected one.
    fn expected_header(&self, at: usize, arrived: usize) -> Option<Header> {
        let header = Header::decode(&self.heads[at]).filter(|_| arrived >= HEADER)?;
        let size = self.size as u32;
        let alike = header.piece == size && header.size == size;
        (alike && header.flags & !OUT_OF_BAND == FIRST).then_some(header)
    }

    /// The bytes from a header on.
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
