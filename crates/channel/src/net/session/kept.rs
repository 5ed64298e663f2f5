//! The items that a sender keeps until they are acknowledged.

use crate::net::frames::HEADER;

/// The items that a sender keeps until the receiver acknowledges them.
#[derive(Default)]
pub(super) struct Kept {
    /// Frames; those before `start` have been acknowledged.
    pub(super) bytes: Vec<u8>,
    pub(super) start: usize,
    /// The bytes before this index have been written to the connection.
    pub(super) written: usize,
    /// The number of the first frame kept.
    pub(super) first: u64,
}

impl Kept {
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(super) fn unwritten(&self) -> usize {
        self.bytes.len() - self.written
    }

    pub(super) fn push(&mut self, item: &[u8]) {
        let len = u32::try_from(item.len()).expect("a message is shorter than 4 GiB");
        self.bytes.extend_from_slice(&len.to_le_bytes());
        self.bytes.extend_from_slice(item);
    }

    /// Forgets the items before item `number`; returns false if fewer were sent.
    pub(super) fn forget(&mut self, number: u64) -> bool {
        while self.first < number {
            let Some(header) = self.bytes[self.start..].first_chunk::<HEADER>() else {
                return false;
            };
            self.start += HEADER + u32::from_le_bytes(*header) as usize;
            self.first += 1;
        }
        self.written = self.written.max(self.start);
        if self.start >= self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.written -= self.start;
            self.start = 0;
        }
        true
    }
}
