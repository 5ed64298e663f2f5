//! The payload of a replay: messages of any size, cut from one area of random bytes that both ends know.
//!
//! Each message lies at a place that its number determines, so that the receiver knows the sum of its words without
//! having the message. The first word is the sequence number if the size permits; the receiver reads every byte.

use crate::line_buffer::{LINE_BYTES, LineBuffer};
use crate::payload::{SEQUENCED_SIZE, next_random, sum};
use crate::script::{RoleScript, Step};

/// A message's place in the area, bytes from its begin, and what its words add up to without the sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Where it begins.
    pub(crate) offset: usize,
    /// Its size.
    pub(crate) size: usize,
    rest: u64,
}

/// The area of random bytes.
#[derive(Debug)]
pub(crate) struct Arena {
    bytes: LineBuffer,
}

impl Arena {
    /// Fills an area that is larger than the sender's private caches and has room for two of the largest messages.
    pub(crate) fn new(script: &RoleScript, seed: u64, working_set_bytes: usize) -> Arena {
        let largest = script.largest as usize;
        let room = 2 * largest.next_multiple_of(LINE_BYTES) + LINE_BYTES;
        let len = working_set_bytes.max(room).next_multiple_of(LINE_BYTES);
        let mut bytes = LineBuffer::new(len, 0);
        let mut state = seed;
        for word in bytes.as_chunks_mut::<8>().0 {
            *word = next_random(&mut state).to_le_bytes();
        }
        Arena { bytes }
    }

    /// The place of each message of a role's steps. Messages of the same channel and direction follow each other.
    pub(crate) fn places(&self, steps: &[Step]) -> Vec<Place> {
        // What the words before each one add up to.
        let mut sums = Vec::with_capacity(self.bytes.len() / 8 + 1);
        let mut total = 0u64;
        sums.push(total);
        for word in self.bytes.as_chunks::<8>().0 {
            total = total.wrapping_add(u64::from_le_bytes(*word));
            sums.push(total);
        }
        let mut next: Vec<[usize; 2]> = Vec::new();
        let mut places = Vec::with_capacity(steps.len());
        for step in steps {
            let (size, channel) = (step.size as usize, usize::from(step.channel));
            next.resize(next.len().max(channel + 1), [0; 2]);
            let at = &mut next[channel][usize::from(step.when.is_some())];
            if *at + size > self.bytes.len() {
                *at = 0;
            }
            let offset = *at;
            *at += size.next_multiple_of(LINE_BYTES);
            let first = offset / 8 + usize::from(size >= SEQUENCED_SIZE);
            let whole = sums[offset / 8 + size / 8].wrapping_sub(sums[first]);
            let tail = &self.bytes[offset + size - size % 8..offset + size];
            places.push(Place { offset, size, rest: whole.wrapping_add(sum(tail)) });
        }
        places
    }

    /// Writes the message's number into it, calls `send`, and restores the word, which a later message may contain.
    #[inline]
    pub(crate) fn with_number<R>(
        &mut self,
        place: &Place,
        sequence: u64,
        send: impl FnOnce(&[u8]) -> R,
    ) -> R {
        let message = &mut self.bytes[place.offset..place.offset + place.size];
        let Some(first) = message.first_chunk_mut::<SEQUENCED_SIZE>() else { return send(message) };
        let saved = std::mem::replace(first, sequence.to_le_bytes());
        let sent = send(message);
        if let Some(first) = message.first_chunk_mut::<SEQUENCED_SIZE>() {
            *first = saved;
        }
        sent
    }
}

/// What a receiver found in messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Number of messages.
    pub(crate) messages: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Messages with an earlier number than expected.
    pub(crate) out_of_order: u64,
    /// Messages with wrong content or length.
    pub(crate) corrupt: u64,
    /// Numbers that were skipped.
    pub(crate) missing: u64,
}

impl Tally {
    /// Reads every byte of a message and checks it against its place and number.
    #[inline]
    pub(crate) fn check(&mut self, message: &[u8], place: &Place, expected: u64) {
        let total = sum(message);
        let sequence =
            message.first_chunk::<SEQUENCED_SIZE>().map(|first| u64::from_le_bytes(*first));
        self.messages += 1;
        self.bytes += message.len() as u64;
        let right = sequence.unwrap_or(0).wrapping_add(place.rest);
        let in_turn = sequence.is_none_or(|sequence| sequence == expected);
        if total != right || message.len() != place.size || !in_turn {
            self.judge(sequence, total == right && message.len() == place.size, expected);
        }
    }

    #[cold]
    fn judge(&mut self, sequence: Option<u64>, content_right: bool, expected: u64) {
        match sequence {
            Some(sequence) if content_right && sequence < expected => self.out_of_order += 1,
            Some(sequence) if content_right => self.missing += sequence - expected,
            _ => self.corrupt += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::{Script, When};
    use super::*;

    #[test]
    fn messages_of_any_size_are_checked_byte_by_byte_also_after_the_area_has_been_used_up() {
        let sizes = [1u32, 7, 8, 9, 63, 64, 65, 4096, 5000, 12, 4096, 3];
        let steps = |sends: bool| -> Vec<Step> {
            let when = sends.then_some(When::Now);
            (0..300u32)
                .map(|message| Step {
                    message,
                    size: sizes[message as usize % sizes.len()],
                    channel: 0,
                    when,
                    due_ns: None,
                    polled: false,
                    exchange: None,
                })
                .collect()
        };
        let script = Script {
            roles: vec![steps(true), steps(false)],
            channels: vec![[0, 1]],
            conversations: vec![0],
            messages: 300,
            ..Script::default()
        };
        let [mine, theirs] = [0, 1].map(|role| script.of_role(role));
        let (mut here, there) = (Arena::new(&mine, 7, 20_000), Arena::new(&theirs, 7, 20_000));
        let (sent, received) = (here.places(&mine.steps), there.places(&theirs.steps));
        assert_eq!(sent, received);
        let mut tally = Tally::default();
        for (number, (out, place)) in sent.iter().zip(&received).enumerate() {
            let number = number as u64;
            here.with_number(out, number, |message| tally.check(message, place, number));
        }
        let good = Tally { messages: 300, bytes: tally.bytes, ..Tally::default() };
        assert_eq!(tally, good);
        // One changed byte anywhere, a wrong length, a repeated and a skipped message are noticed.
        for at in [0, 3, 60] {
            let mut bad = Tally::default();
            here.with_number(&sent[4], 4, |message| {
                let mut message = message.to_vec();
                message[at] ^= 1;
                bad.check(&message, &received[4], 4);
            });
            assert!(bad.corrupt + bad.missing + bad.out_of_order > 0, "byte {at}");
        }
        let mut short = Tally::default();
        here.with_number(&sent[7], 7, |message| short.check(&message[..4000], &received[7], 7));
        assert_eq!(short.corrupt, 1);
        let mut again = Tally::default();
        here.with_number(&sent[7], 7, |message| {
            again.check(message, &received[7], 8);
            again.check(message, &received[7], 5);
        });
        assert_eq!((again.out_of_order, again.missing, again.corrupt), (1, 2, 0));
    }
}
