//! The payload: messages that the sender writes and of which the receiver reads every byte.
//!
//! A message consists of 64-bit little-endian words; the first is the sequence number if the size permits. The words
//! add up to `multiplier * sequence + constant` (wrapping). The receiver has to read every byte to compute the sum. It
//! can check the content of each message with a single comparison and without further information from the sender. The
//! short `verify` phase before the measurement, with random content and CRC-32, shows that nothing is swapped or
//! truncated (`verify.rs`).

use crossway_mech::Access;
use crossway_sys::topology::Topology;

use crate::line_buffer::{LINE_BYTES, LineBuffer};

/// Marks the end of a stream whose length was not agreed on beforehand; sequence numbers never reach it.
pub const END_MARK: u64 = u64::MAX;

/// Position of the lowest bit of the sender's index within a sequence number; the index takes all bits from there
/// upwards.
pub const SENDER_SHIFT: u32 = 48;

/// Difference between successive words of a message written in place: odd, so that no two words are equal.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Smallest message size with room for a sequence number.
pub const SEQUENCED_SIZE: usize = 8;

const LEAST_BUFFERS: usize = 4;

/// Working set in bytes if the sizes of the private caches are unknown.
const USUAL_WORKING_SET: u64 = 4 << 20;

/// Number of messages by which the numbering runs ahead of the sending. If a sequence number were written immediately
/// before its message is sent, a copy that loads words wider than the number would wait for the store, and the figure
/// would include that wait.
const LEAD: usize = 8;

/// The size of the working set that a sender on this CPU sends from, bytes: twice that of its private caches. Limits are
/// measured with the same working set, since more of a smaller one stays in the caches.
pub fn working_set_bytes(topology: &Topology, cpu: u32) -> u64 {
    topology.private_cache_bytes(cpu).map_or(USUAL_WORKING_SET, |bytes| 2 * bytes)
}

/// Adds up a message's words; the last word may be incomplete. Reads every byte.
#[inline]
pub fn sum(bytes: &[u8]) -> u64 {
    let (lines, rest) = bytes.as_chunks::<LINE_BYTES>();
    // Eight independent sums, so that the compiler can use vector instructions.
    let mut sums = [0u64; LINE_BYTES / 8];
    for line in lines {
        let (words, _) = line.as_chunks::<8>();
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    let mut total = sums.iter().fold(0u64, |a, b| a.wrapping_add(*b));
    let (words, tail) = rest.as_chunks::<8>();
    for word in words {
        total = total.wrapping_add(u64::from_le_bytes(*word));
    }
    if !tail.is_empty() {
        let mut word = [0; 8];
        word[..tail.len()].copy_from_slice(tail);
        total = total.wrapping_add(u64::from_le_bytes(word));
    }
    total
}

/// The sum that the words of a message must have, as a function of its sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Law {
    multiplier: u64,
    constant: u64,
}

impl Law {
    fn of(size: usize, access: Access, seed: u64) -> Law {
        // A message without a number always has the same sum.
        let numbered = size >= SEQUENCED_SIZE;
        match access {
            Access::Copy => {
                let mut rest = [0; 8];
                let tail = size % 8;
                rest[..tail].copy_from_slice(&tail_bytes(seed)[..tail]);
                let balanced = if size >= 16 { seed } else { 0 };
                let constant = balanced.wrapping_add(u64::from_le_bytes(rest));
                Law { multiplier: u64::from(numbered), constant }
            }
            Access::InPlace => {
                let mut message = vec![0; size];
                write_in_place(&mut message, 0);
                Law { multiplier: (size / 8) as u64, constant: sum(&message) }
            }
        }
    }
}

/// The trailing bytes of a message that do not fill a word.
fn tail_bytes(seed: u64) -> [u8; 8] {
    (seed | 0x0101_0101_0101_0101).to_le_bytes()
}

/// Writes a whole message for [`Access::InPlace`]: the words are `sequence + i * STEP`, the trailing bytes are
/// constant.
#[inline]
pub fn write_in_place(message: &mut [u8], sequence: u64) {
    let (words, tail) = message.as_chunks_mut::<8>();
    let mut value = sequence;
    for word in words {
        *word = value.to_le_bytes();
        value = value.wrapping_add(STEP);
    }
    tail.fill(0x5a);
}

/// The sender's prepared messages, which are used in turn. They are larger than the sender's private caches, so that no
/// message is sent from a cache line that is still in the cache from the previous round.
#[derive(Debug)]
pub struct Source {
    arena: Vec<u8>,
    /// Offset of the first message in the arena; aligned to a cache line.
    begin: usize,
    size: usize,
    stride: usize,
    at: usize,
    /// Offset at which the next sequence number is written, `lead` messages ahead of `at`.
    ahead: usize,
    lead: u64,
    sequence: u64,
    end: Vec<u8>,
}

impl Source {
    /// Prepares messages with a total of at least `working_set_bytes` and touches every page.
    pub fn new(size: usize, sender: u16, seed: u64, working_set_bytes: usize) -> Source {
        let stride = size.next_multiple_of(LINE_BYTES).max(LINE_BYTES);
        let count = working_set_bytes.div_ceil(stride).max(LEAST_BUFFERS);
        let mut lines = LineBuffer::new(stride * count, 0);
        let mut state = seed ^ u64::from(sender);
        let (words, _) = lines[..].as_chunks_mut::<8>();
        for word in words {
            *word = next_random(&mut state).to_le_bytes();
        }
        for message in lines.chunks_exact_mut(stride) {
            balance(&mut message[..size], seed);
        }
        let end = lines[..size].to_vec();
        let (arena, begin) = lines.into_parts();
        let mut source = Source {
            end,
            arena,
            begin,
            size,
            stride,
            at: begin,
            ahead: begin,
            lead: 0,
            sequence: u64::from(sender) << SENDER_SHIFT,
        };
        if let Some(first) = source.end.first_chunk_mut::<SEQUENCED_SIZE>() {
            *first = END_MARK.to_le_bytes();
        }
        let lead = LEAD.min(count / 2) as u64;
        for number in 0..lead {
            source.write_ahead(source.sequence + number);
        }
        source.lead = lead;
        source
    }

    /// Makes the source write each sequence number immediately before its message is used, for senders that feed
    /// several streams from one source.
    pub fn without_lead(mut self) -> Source {
        (self.lead, self.ahead) = (0, self.at);
        self
    }

    #[inline]
    fn write_ahead(&mut self, sequence: u64) {
        let message = &mut self.arena[self.ahead..self.ahead + self.size];
        if let Some(first) = message.first_chunk_mut::<SEQUENCED_SIZE>() {
            *first = sequence.to_le_bytes();
        }
        self.ahead += self.stride;
        if self.ahead == self.arena.len() {
            self.ahead = self.begin;
        }
    }

    /// Total size of the messages that are used in turn, bytes.
    pub fn working_set_bytes(&self) -> usize {
        self.arena.len() - self.begin
    }

    /// The next message for [`Access::Copy`], with its sequence number written.
    #[inline]
    pub fn next_message(&mut self) -> &[u8] {
        let sequence = self.next_sequence();
        self.write_ahead(sequence + self.lead);
        let start = self.at;
        self.at += self.stride;
        if self.at == self.arena.len() {
            self.at = self.begin;
        }
        &self.arena[start..start + self.size]
    }

    /// The next sequence number, for a message that is written in place.
    #[inline]
    pub fn next_sequence(&mut self) -> u64 {
        let sequence = self.sequence;
        self.sequence += 1;
        sequence
    }

    /// Swaps the next sequence number with that of another stream fed by the same source.
    pub fn swap_sequence(&mut self, other: &mut u64) {
        std::mem::swap(&mut self.sequence, other);
    }

    /// The message size in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The message that marks the end of the stream; the size must be at least [`SEQUENCED_SIZE`].
    pub fn end_message(&self) -> &[u8] {
        &self.end
    }
}

/// Sets the last whole word so that all words but the first add up to `seed`, and the trailing bytes to their expected
/// values.
fn balance(message: &mut [u8], seed: u64) {
    let size = message.len();
    let tail = size % 8;
    message[size - tail..].copy_from_slice(&tail_bytes(seed)[..tail]);
    if size >= 16 {
        let last = size - tail - 8;
        let others = sum(&message[8..last]);
        message[last..last + 8].copy_from_slice(&seed.wrapping_sub(others).to_le_bytes());
    }
}

/// One step of SplitMix64 (Steele, Lea, Flood 2014), which is fast and works with any seed.
pub fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(STEP);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Kind of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A message with content.
    Message,
    /// The end mark.
    End,
}

/// The receiver's checks and counters for one sender.
#[derive(Clone, Copy, Debug)]
pub struct Checker {
    law: Law,
    size: usize,
    expected: u64,
    /// Number of messages received.
    pub messages: u64,
    /// Number of messages with a sequence number below the expected one.
    pub out_of_order: u64,
    /// Number of messages with a wrong length or sum.
    pub corrupt: u64,
    /// Number of sequence numbers that were skipped.
    pub missing: u64,
}

impl Checker {
    /// Creates a checker for the messages that `sender` creates with the same arguments.
    pub fn new(size: usize, access: Access, sender: u16, seed: u64) -> Checker {
        Checker {
            law: Law::of(size, access, seed),
            size,
            expected: u64::from(sender) << SENDER_SHIFT,
            messages: 0,
            out_of_order: 0,
            corrupt: 0,
            missing: 0,
        }
    }

    /// Reads every byte of a message and checks it.
    #[inline]
    pub fn check(&mut self, message: &[u8]) -> Seen {
        let total = sum(message);
        let sequence = match message.first_chunk::<SEQUENCED_SIZE>() {
            Some(first) => u64::from_le_bytes(*first),
            None => self.expected,
        };
        let right = self.law.multiplier.wrapping_mul(sequence).wrapping_add(self.law.constant);
        if sequence != self.expected || total != right || message.len() != self.size {
            return self.judge(message.len(), sequence, total == right);
        }
        self.expected += 1;
        self.messages += 1;
        Seen::Message
    }

    #[cold]
    fn judge(&mut self, len: usize, sequence: u64, content_right: bool) -> Seen {
        if sequence == END_MARK {
            return Seen::End;
        }
        self.messages += 1;
        if !content_right || len != self.size {
            // The number cannot be trusted either: continue as if it had been the expected one.
            self.corrupt += 1;
            self.expected += 1;
        } else if sequence < self.expected {
            self.out_of_order += 1;
        } else {
            self.missing += sequence - self.expected;
            self.expected = sequence + 1;
        }
        Seen::Message
    }

    /// The sequence number expected of the next message.
    pub fn position(&self) -> u64 {
        self.expected
    }

    /// Resets the counters but not the sequence numbers. Messages lost in the previous window are no longer counted.
    pub fn restart(&mut self) {
        (self.messages, self.out_of_order, self.corrupt, self.missing) = (0, 0, 0, 0);
    }
}

/// The sender's index in a message's sequence number; `None` for the end mark or a message without a number.
#[inline]
pub fn sender_of(message: &[u8]) -> Option<u16> {
    let first = message.first_chunk::<SEQUENCED_SIZE>()?;
    let sequence = u64::from_le_bytes(*first);
    (sequence != END_MARK).then_some((sequence >> SENDER_SHIFT) as u16)
}

#[cfg(test)]
#[path = "payload_tests.rs"]
mod tests;
