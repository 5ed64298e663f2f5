//! The payload of a window, and how a reader proves that it has read the payload. The bytes are random and different
//! for each window, derived from a secret that no program knows. A sender gets the bytes as a file. A receiver gets no
//! such file, and can compute the checksum of the bytes only by reading them.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crossway_sys::{OsError, shm};

use super::protocol::{Checksum, Payload};
use crossway_loops::line_buffer::LINE_BYTES;
use crossway_loops::payload::{SEQUENCED_SIZE, next_random, sum};

/// Minimum number of different messages in the payload.
const LEAST_MESSAGES: usize = 4;
/// The modulus of Adler-32.
const ADLER: u64 = 65_521;
/// First sequence numbers are below this, so that every language can represent the numbers exactly.
const FIRST_NUMBERS: u64 = 1 << 40;

/// A file in memory that the program opens by its path.
#[derive(Debug)]
pub(crate) struct SharedFile {
    file: std::fs::File,
    path: PathBuf,
}

impl SharedFile {
    pub(crate) fn new(label: &str, bytes: usize) -> Result<SharedFile, OsError> {
        use std::os::fd::AsRawFd;
        let fd = shm::create_sealed(label, bytes.max(1))?;
        let file = std::fs::File::from(fd);
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into();
        Ok(SharedFile { file, path })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.path.clone()
    }

    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), OsError> {
        self.file.write_all_at(bytes, 0).map_err(|e| OsError::new("write", "the payload's file", e))
    }

    pub(crate) fn read(&self, bytes: &mut [u8]) -> Result<(), OsError> {
        self.file.read_exact_at(bytes, 0).map_err(|e| OsError::new("read", "the payload's file", e))
    }
}

/// The messages of one sender in one window.
#[derive(Debug)]
pub(crate) struct Content {
    size: usize,
    stride: usize,
    /// The sequence number of the first message.
    pub(crate) first: u64,
    bytes: Vec<u8>,
}

/// The key that makes the content of one window different from that of all others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContentKey {
    pub(crate) secret: u64,
    /// Whether the connecting end is the sender.
    pub(crate) from_connector: bool,
    /// The sender's index.
    pub(crate) sender: u16,
    pub(crate) window: u32,
}

impl Content {
    /// Creates the content. The roles of both ends create the same content independently.
    pub(crate) fn new(size: usize, working_set_bytes: u64, key: ContentKey) -> Content {
        let stride = size.next_multiple_of(LINE_BYTES).max(LINE_BYTES);
        let count = (working_set_bytes as usize).div_ceil(stride).max(LEAST_MESSAGES);
        let mut state = key.secret
            ^ (u64::from(key.window) << 32)
            ^ (u64::from(key.sender) << 1)
            ^ u64::from(key.from_connector);
        let first = next_random(&mut state) % FIRST_NUMBERS;
        let mut bytes = vec![0; stride * count];
        for word in bytes.as_chunks_mut::<8>().0 {
            *word = next_random(&mut state).to_le_bytes();
        }
        Content { size, stride, first, bytes }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Size of a message in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn described(&self, path: PathBuf) -> Payload {
        let count = (self.bytes.len() / self.stride) as u64;
        Payload { path, count, stride: self.stride as u64 }
    }

    /// The sum of the checksums of the first `messages` messages.
    pub(crate) fn checksum(&self, messages: u64, kind: Checksum) -> u64 {
        match kind {
            Checksum::Sum64 => self.sum64(messages),
            Checksum::Adler32 => self.adler32(messages),
        }
    }

    fn numbered(&self) -> bool {
        self.size >= SEQUENCED_SIZE
    }

    /// The prepared messages, without their sequence numbers.
    fn prepared(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.stride).map(|slot| &slot[..self.size])
    }

    fn sum64(&self, messages: u64) -> u64 {
        let count = (self.bytes.len() / self.stride) as u64;
        let skipped = if self.numbered() { SEQUENCED_SIZE } else { 0 };
        let mut total = 0u64;
        for (slot, message) in (0u64..).zip(self.prepared()) {
            let turns = messages / count + u64::from(slot < messages % count);
            total = total.wrapping_add(sum(&message[skipped..]).wrapping_mul(turns));
        }
        if self.numbered() {
            let numbers = u128::from(messages) * u128::from(self.first)
                + u128::from(messages) * u128::from(messages.saturating_sub(1)) / 2;
            total = total.wrapping_add(numbers as u64);
        }
        total
    }

    fn adler32(&self, messages: u64) -> u64 {
        let len = self.size as u64;
        let skipped = if self.numbered() { SEQUENCED_SIZE } else { 0 };
        // The parts of each message's checksum that do not depend on its number, which changes every turn.
        let fixed: Vec<(u64, u64)> = self
            .prepared()
            .map(|message| {
                let (mut a, mut b) = (1, len % ADLER);
                for (at, byte) in message.iter().enumerate().skip(skipped) {
                    a += u64::from(*byte);
                    b = (b + (len - at as u64) * u64::from(*byte)) % ADLER;
                }
                (a % ADLER, b)
            })
            .collect();
        (0..messages).fold(0u64, |total, n| {
            let (mut a, mut b) = fixed[(n % fixed.len() as u64) as usize];
            if self.numbered() {
                for (at, byte) in (0u64..).zip((self.first + n).to_le_bytes()) {
                    a += u64::from(byte);
                    b += (len - at) * u64::from(byte);
                }
            }
            total.wrapping_add(((b % ADLER) << 16) | (a % ADLER))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: ContentKey = ContentKey { secret: 5, from_connector: true, sender: 0, window: 3 };

    fn messages(content: &Content, count: u64) -> Vec<Vec<u8>> {
        let prepared: Vec<_> = content.prepared().collect();
        (0..count)
            .map(|n| {
                let mut message = prepared[(n % prepared.len() as u64) as usize].to_vec();
                if let Some(first) = message.first_chunk_mut::<8>() {
                    *first = (content.first + n).to_le_bytes();
                }
                message
            })
            .collect()
    }

    fn adler(message: &[u8]) -> u64 {
        let (mut a, mut b) = (1, 0);
        for byte in message {
            a = (a + u64::from(*byte)) % ADLER;
            b = (b + a) % ADLER;
        }
        (b << 16) | a
    }

    #[test]
    fn the_expected_checksums_are_those_of_reading_every_message() {
        for size in [0, 1, 7, 8, 9, 64, 1000, 100_000] {
            let content = Content::new(size, 1000, KEY);
            for count in [0, 1, 3, 50] {
                let sent = messages(&content, count);
                let sums = sent.iter().fold(0u64, |t, m| t.wrapping_add(sum(m)));
                assert_eq!(content.checksum(count, Checksum::Sum64), sums, "{size} x {count}");
                let adlers = sent.iter().map(|m| adler(m)).sum::<u64>();
                assert_eq!(content.checksum(count, Checksum::Adler32), adlers, "{size} x {count}");
            }
        }
    }

    #[test]
    fn no_two_windows_senders_or_trials_have_the_same_content() {
        let base = Content::new(64, 4096, KEY);
        for other in [
            ContentKey { window: 4, ..KEY },
            ContentKey { secret: 6, ..KEY },
            ContentKey { from_connector: false, ..KEY },
            ContentKey { sender: 1, ..KEY },
        ] {
            let other = Content::new(64, 4096, other);
            assert_ne!(base.bytes, other.bytes);
            assert_ne!(base.first, other.first);
        }
    }
}
