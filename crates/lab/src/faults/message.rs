//! The messages of the fault matrix: any two of them differ in every whole 64-bit word.

use crossway_loops::payload::next_random;

/// Length of a message's number in bytes; it is at the start of the message.
pub(super) const NUMBER_BYTES: u64 = 8;

/// Fills `message` with the content of message `number` of a channel. The message must have room at least for the
/// number.
pub(super) fn fill(message: &mut [u8], number: u64) {
    let mut state = number ^ 0x6661_756c_7473;
    let (words, tail) = message.as_chunks_mut::<8>();
    for word in words.iter_mut() {
        *word = next_random(&mut state).to_le_bytes();
    }
    tail.fill(number as u8);
    if let Some(first) = words.first_mut() {
        *first = number.to_le_bytes();
    }
}

/// Distinguishes received messages that were sent from those that were not.
#[derive(Debug)]
pub(super) struct Sorter {
    expected: Vec<u8>,
    seen: std::collections::BTreeSet<u64>,
    /// Number of received messages that were sent, each counted once.
    pub(super) received: u64,
    /// Number of all other received messages: wrong content, wrong length, or duplicates.
    pub(super) not_sent: u64,
}

impl Sorter {
    /// Creates a sorter for messages of `size` bytes.
    pub(super) fn new(size: usize) -> Sorter {
        Sorter { expected: vec![0; size], seen: Default::default(), received: 0, not_sent: 0 }
    }

    /// Classifies a received message.
    pub(super) fn take(&mut self, message: &[u8]) {
        let number = message.first_chunk::<8>().map(|word| u64::from_le_bytes(*word));
        let genuine = number.is_some_and(|number| {
            fill(&mut self.expected, number);
            message == self.expected && self.seen.insert(number)
        });
        if genuine {
            self.received += 1;
        } else {
            self.not_sent += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn altered_short_and_repeated_messages_were_not_sent() {
        let mut sorter = Sorter::new(100);
        let mut message = vec![0; 100];
        for number in 0..10 {
            fill(&mut message, number);
            sorter.take(&message);
        }
        assert_eq!((sorter.received, sorter.not_sent), (10, 0));
        sorter.take(&message);
        fill(&mut message, 10);
        sorter.take(&message[..99]);
        message[98] ^= 1;
        sorter.take(&message);
        sorter.take(&[]);
        assert_eq!((sorter.received, sorter.not_sent), (10, 4));
    }
}
