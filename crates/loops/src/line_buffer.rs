//! Payload buffers that begin on a cache line.
//!
//! A `Vec<u8>` begins wherever the allocator placed it, usually 16 bytes after the start of a page. Copies in the
//! kernel (`rep movsb` on current processors) and wide vector loads take up to twice as long if they straddle cache
//! lines. Without alignment, a figure would depend on the state of the heap instead of the mechanism. Hand-written
//! benchmarks use `aligned_alloc`.

use std::ops::{Deref, DerefMut};

/// Size of a cache line in bytes on all processors for which Linux shared memory is worth measuring today.
pub const LINE_BYTES: usize = 64;

/// A buffer of a fixed length that begins on a cache line.
#[derive(Debug)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    begin: usize,
}

impl LineBuffer {
    /// Creates a buffer of `len` bytes of `value` and touches every page.
    pub fn new(len: usize, value: u8) -> LineBuffer {
        let mut bytes: Vec<u8> = Vec::with_capacity(len + LINE_BYTES);
        let begin = bytes.as_ptr().align_offset(LINE_BYTES);
        // Never reallocated: the bytes before `begin` are part of the capacity.
        bytes.resize(begin + len, value);
        LineBuffer { bytes, begin }
    }

    /// The allocation and the offset of the buffer in it, for a loop that keeps its own positions.
    pub fn into_parts(self) -> (Vec<u8>, usize) {
        (self.bytes, self.begin)
    }
}

impl Deref for LineBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.begin..]
    }
}

impl DerefMut for LineBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.begin..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_of_any_length_begins_on_a_line_and_is_filled() {
        for len in [0, 1, 63, 64, 65, 4096, 100_000] {
            let buffer = LineBuffer::new(len, 7);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr() as usize % LINE_BYTES, 0, "{len}");
            assert!(buffer.iter().all(|&b| b == 7));
            let (bytes, begin) = buffer.into_parts();
            assert_eq!(bytes[begin..].len(), len);
        }
    }
}
