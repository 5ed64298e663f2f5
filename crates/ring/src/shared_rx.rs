//! The receiving end of a ring for several consumers (threads and processes), which take turns.
//!
//! The consumers have no state of their own. The position is the ring's own head; one more shared word contains how
//! much of the record at the head was taken, for readers that take bytes rather than records. A consumer takes
//! something by changing a single word, so a killed consumer has either taken it or not. This module does not decide
//! which consumer has the turn: [`SharedRx::turn`] takes the guard of a lock that excludes the others.

use crate::doorbell;
use crate::layout::{ASLEEP, AWAKE, HEADER, record_len, stated_len};
use crate::memory::RingMemory;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Only records shorter than this many bytes can be taken in parts.
pub const PART_MAX: u64 = 1 << PART_BITS;
const PART_BITS: u32 = 20;

/// The words that consumers share in addition to the ring's own.
pub trait ReceiverWords {
    /// The state of the bell ([`doorbell`]). The producer writes it, too.
    fn bell(&self) -> &AtomicU32;
    /// Number of bells removed from the socket.
    fn bells_consumed(&self) -> &AtomicU32;
    /// How much of a record was taken: the record's position and, in the low 20 bits, the number of bytes, less than
    /// [`PART_MAX`].
    fn part(&self) -> &AtomicU64;
}

/// The ring contains something that no correct producer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the header at position {position} reads {word:#018x}, which is not the header of a record \
     in a ring for messages of up to {max_message} bytes"
)]
pub struct Damaged {
    /// The position of the header.
    pub position: u64,
    /// The header word found there.
    pub word: u64,
    /// The longest message of the ring in bytes.
    pub max_message: usize,
}

/// A published record that the consumers have not taken completely: the next one ([`Turn::front`]), or one after it
/// ([`Turn::after`]).
#[derive(Clone, Copy, Debug)]
pub struct Front {
    position: u64,
    offset: usize,
    len: usize,
    taken: usize,
}

impl Front {
    /// The number of its bytes that have not been taken yet.
    pub const fn left(&self) -> usize {
        self.len - self.taken
    }
}

/// The receiving end of a ring, shared by several consumers.
pub struct SharedRx<M: RingMemory, W: ReceiverWords> {
    memory: M,
    words: W,
}

impl<M: RingMemory, W: ReceiverWords> SharedRx<M, W> {
    /// Creates the receiving end of a new ring, whose messages must be taken only through such ends.
    pub const fn new(memory: M, words: W) -> Self {
        Self { memory, words }
    }

    /// The shared words.
    pub const fn words(&self) -> &W {
        &self.words
    }

    /// Whether nothing is published, as far as this can be determined without having the turn.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let (_, offset) = self.place();
        self.memory.header(offset).load(Ordering::Acquire) == 0
    }

    #[inline]
    fn place(&self) -> (u64, usize) {
        let position = self.memory.head().load(Ordering::Acquire);
        // Even if another consumer has corrupted the head, the offset lies within the ring.
        (position, (position % self.memory.capacity() as u64) as usize & !(HEADER - 1))
    }

    /// Starts one consumer's turn, which lasts until `guard`, the guard of a lock that excludes the others, is dropped.
    pub const fn turn<G>(&self, guard: G) -> Turn<'_, M, W, G> {
        Turn { rx: self, _guard: guard }
    }
}

/// One consumer's turn.
pub struct Turn<'a, M: RingMemory, W: ReceiverWords, G> {
    rx: &'a SharedRx<M, W>,
    _guard: G,
}

impl<M: RingMemory, W: ReceiverWords, G> Turn<'_, M, W, G> {
    /// Whether nothing is published.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rx.is_empty()
    }

    /// The next record, if it is published.
    ///
    /// # Errors
    /// [`Damaged`] if the ring is corrupted.
    #[inline]
    pub fn front(&self) -> Result<Option<Front>, Damaged> {
        let (position, offset) = self.rx.place();
        let word = self.rx.memory.header(offset).load(Ordering::Acquire);
        if word == 0 {
            return Ok(None);
        }
        let max_message = self.rx.memory.max_message();
        match stated_len(word) {
            Some(len) if len <= max_message => {
                let part = self.rx.words.part().load(Ordering::Relaxed);
                let taken = (part % PART_MAX) as usize;
                let mine = part >> PART_BITS == part_of(position) && taken <= len;
                Ok(Some(Front { position, offset, len, taken: if mine { taken } else { 0 } }))
            }
            _ => Err(Damaged { position, word, max_message }),
        }
    }

    /// The record after another one, if it is published, for looking ahead.
    ///
    /// # Errors
    /// [`Damaged`] if the ring is corrupted.
    pub fn after(&self, front: &Front) -> Result<Option<Front>, Damaged> {
        let position = front.position.wrapping_add(record_len(front.offset, front.len) as u64);
        let offset = (position % self.rx.memory.capacity() as u64) as usize & !(HEADER - 1);
        let word = self.rx.memory.header(offset).load(Ordering::Acquire);
        let max_message = self.rx.memory.max_message();
        match stated_len(word) {
            _ if word == 0 => Ok(None),
            Some(len) if len <= max_message => Ok(Some(Front { position, offset, len, taken: 0 })),
            _ => Err(Damaged { position, word, max_message }),
        }
    }

    /// Passes the rest of a record to `read`. The producer may be hostile: the bytes may change while they are read.
    #[inline]
    pub fn with<R>(&self, front: &Front, read: impl FnOnce(&[u8]) -> R) -> R {
        let start = front.offset + HEADER;
        // SAFETY: the length was checked against the longest message, for which the capacity has room after any offset
        // within it; the record is published, and is freed only by the consumer that has the turn.
        unsafe { self.rx.memory.with(start, front.len, |bytes| read(&bytes[front.taken..])) }
    }

    /// Takes `bytes` bytes of the rest of a record; taking all of the rest takes the record.
    #[inline]
    pub fn take_part(&mut self, front: &Front, bytes: usize) {
        if bytes >= front.left() {
            return self.take(front);
        }
        let taken = (front.taken + bytes) as u64;
        self.rx.words.part().store(part_of(front.position) << PART_BITS | taken, Ordering::Relaxed);
    }

    /// Takes the record and frees its space.
    #[inline]
    pub fn take(&mut self, front: &Front) {
        let end = front.position.wrapping_add(record_len(front.offset, front.len) as u64);
        self.rx.memory.head().store(end, Ordering::Release);
    }

    /// Wakes the producer through `ring` if it waits for room and there is enough now.
    ///
    /// This happens within the turn. If a consumer is killed after it has set the producer's state to awake and before
    /// it has called `ring`, the lock reports this to the next consumer, which wakes the producer ([`Turn::settle`]).
    ///
    /// A producer that starts to wait at this moment may be missed. The ring is then not empty, and the consumer that
    /// takes the next message checks again; [`Turn::emptied`] never misses a producer.
    #[inline]
    pub fn wake_producer(&mut self, ring: impl FnOnce()) {
        let state = self.rx.memory.producer_state();
        if state.load(Ordering::Relaxed) == ASLEEP && self.is_to_wake_producer() {
            ring();
        }
    }

    #[cold]
    fn is_to_wake_producer(&self) -> bool {
        let state = self.rx.memory.producer_state();
        // Pairs with the producer's release store of its state, so that `head_wanted` is the value that belongs to this
        // sleep.
        state.load(Ordering::Acquire) == ASLEEP
            && self.rx.place().0 >= self.rx.memory.head_wanted().load(Ordering::Relaxed)
            && state.compare_exchange(ASLEEP, AWAKE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// As [`doorbell::is_heard`].
    ///
    /// # Errors
    /// The errors of `bells`.
    #[inline]
    pub fn is_heard<B: doorbell::Bells>(&self, seen: bool, bells: &B) -> Result<bool, B::Error> {
        doorbell::is_heard(self.rx.words.bell(), seen, bells)
    }

    /// Called when the ring was seen empty: wakes the producer through `ring` if it waits for room, then calls
    /// [`doorbell::emptied`].
    ///
    /// # Errors
    /// The errors of `bells`.
    #[inline]
    pub fn emptied<B: doorbell::Bells>(
        &mut self,
        bells: &B,
        ring: impl FnOnce(),
    ) -> Result<(), B::Error> {
        // No consumer may come again before the producer continues, so either we see that it waits, or it sees the
        // room. This precedes the removal of the bell: as long as the bell is in the socket, another consumer comes and
        // completes what a killed one has not.
        fence(Ordering::SeqCst);
        self.wake_producer(ring);
        doorbell::emptied(self.rx.words.bell(), bells)
    }

    /// Called when the last consumer was killed in its turn: calls [`doorbell::settle`], and `ring` in case that
    /// consumer was about to wake the producer.
    ///
    /// # Errors
    /// The errors of `bells`.
    pub fn settle<B: doorbell::Bells>(
        &mut self,
        bells: &B,
        ring: impl FnOnce(),
    ) -> Result<(), B::Error> {
        ring();
        doorbell::settle(self.rx.words.bell(), bells)
    }

    /// As [`doorbell::await_bell`].
    pub fn await_bell(&mut self, takes: usize, spins: bool) -> bool {
        doorbell::await_bell(self.rx.words.bell(), takes, spins)
    }

    /// As [`doorbell::end_wait`].
    ///
    /// # Errors
    /// The errors of `bells`.
    pub fn end_wait<B: doorbell::Bells>(&mut self, bells: &B) -> Result<(), B::Error> {
        doorbell::end_wait(self.rx.words.bell(), bells)
    }

    /// As [`doorbell::give_up`].
    ///
    /// # Errors
    /// The errors of `bells`.
    pub fn give_up<B: doorbell::Bells>(&mut self, bells: &B) -> Result<bool, B::Error> {
        doorbell::give_up(self.rx.words.bell(), bells)
    }

    /// As [`doorbell::eat_stray`].
    ///
    /// # Errors
    /// The errors of `bells`.
    pub fn eat_stray<B: doorbell::Bells>(&mut self, bells: &B) -> Result<bool, B::Error> {
        doorbell::eat_stray(self.rx.words.bell(), bells)
    }

    /// Number of bells removed so far: if it has not changed, a bell that was seen is still in the socket.
    pub fn bells_consumed(&self) -> u32 {
        self.rx.words.bells_consumed().load(Ordering::Relaxed)
    }
}

/// A record's position as stored in [`ReceiverWords::part`]. It wraps after 2^47 bytes. By then another part has been
/// stored, or no consumer takes parts.
fn part_of(position: u64) -> u64 {
    (position / HEADER as u64) & (u64::MAX >> PART_BITS)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use crossway_sys::shm::{self, Mapping};

    use super::*;
    use crate::layout::header;
    use crate::receiver::Receiver;
    use crate::region::{Dimensions, Direction, FreeWords, SharedRing};

    const MAX: usize = 100;

    fn receiver() -> SharedRx<SharedRing, Receiver> {
        let dimensions = Dimensions::choose(MAX, None);
        let fd = shm::create_sealed("crossway-test", dimensions.memory_len()).unwrap();
        let mapping = Arc::new(Mapping::of_pieces(&fd, &dimensions.pieces()).unwrap());
        let words = Receiver::of(&FreeWords::new(mapping.clone()), 0);
        SharedRx::new(SharedRing::new(mapping, dimensions, Direction::FromListener), words)
    }

    fn publish(rx: &SharedRx<SharedRing, Receiver>, offset: usize, len: usize) {
        rx.memory.header(offset).store(header(0, len), Ordering::Release);
    }

    #[test]
    fn a_length_beyond_the_longest_message_is_damage() {
        let rx = receiver();
        let turn = rx.turn(());
        assert!(turn.front().unwrap().is_none());
        publish(&rx, 0, MAX);
        let front = turn.front().unwrap().unwrap();
        assert_eq!(front.left(), MAX);
        publish(&rx, record_len(0, MAX), MAX + 1);
        assert!(turn.after(&front).is_err());
        for len in [MAX + 1, u32::MAX as usize] {
            publish(&rx, 0, len);
            assert_eq!(turn.front().unwrap_err().max_message, MAX);
        }
    }

    /// Another process may have written anything to the word that says how much of a record was taken.
    #[test]
    fn a_part_counts_only_for_its_record_and_not_beyond_its_end() {
        let rx = receiver();
        let mut turn = rx.turn(());
        publish(&rx, 0, MAX);
        let front = turn.front().unwrap().unwrap();
        turn.take_part(&front, 30);
        let front = turn.front().unwrap().unwrap();
        assert_eq!(front.left(), MAX - 30);
        assert_eq!(turn.with(&front, <[u8]>::len), MAX - 30);
        let beyond = part_of(0) << PART_BITS | (MAX as u64 + 1);
        let other = part_of(HEADER as u64) << PART_BITS | 30;
        for word in [beyond, other] {
            rx.words.part().store(word, Ordering::Relaxed);
            let front = turn.front().unwrap().unwrap();
            assert_eq!(turn.with(&front, <[u8]>::len), MAX);
        }
    }

    /// Returns whether the producer is woken when it waits for exactly as much room as is free now.
    fn wakes_producer<M: RingMemory, W: ReceiverWords>(turn: &mut Turn<'_, M, W, ()>) -> bool {
        let mut rang = false;
        turn.wake_producer(|| rang = true);
        rang
    }

    #[test]
    fn a_producer_is_woken_once_when_there_is_the_room_that_it_waits_for() {
        let rx = receiver();
        let mut turn = rx.turn(());
        let len = record_len(0, MAX);
        publish(&rx, 0, MAX);
        publish(&rx, len, MAX);
        assert!(!wakes_producer(&mut turn));
        rx.memory.head_wanted().store(2 * len as u64, Ordering::Relaxed);
        rx.memory.producer_state().store(ASLEEP, Ordering::Release);
        for has_room in [false, true] {
            let front = turn.front().unwrap().unwrap();
            turn.take(&front);
            assert_eq!(wakes_producer(&mut turn), has_room);
        }
        assert!(!wakes_producer(&mut turn), "it was woken already");
    }
}
