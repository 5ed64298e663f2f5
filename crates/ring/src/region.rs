//! The two rings of a channel in one shared memory.

use std::sync::Arc;

use crossway_sys::owned_word::Word;
use crossway_sys::shm::{self, Mapping};

use crate::layout::{LINE, least_capacity};
use crate::memory::RingMemory;
use crate::sync::{AtomicU32, AtomicU64};

/// Separates data written by two cores; by two lines, because processors fetch lines in pairs.
#[repr(C, align(128))]
struct Apart<T>(T);

/// One ring's control words, each on its own lines, so that polling one is not slowed down by writes to another.
#[repr(C)]
struct Control {
    head: Apart<AtomicU64>,
    producer_state: Apart<AtomicU32>,
    consumer_state: Apart<AtomicU32>,
    head_wanted: Apart<AtomicU64>,
}

/// Minimum default capacity in bytes: a few times the private caches of a core, so that in a stream
/// a message has reached the shared cache before it is read. Reading the message from the shared cache costs less than
/// fetching it line by line from the other core's private cache; the gain depends on the distance between the cores.
const LEAST_DEFAULT: usize = 4 << 20;

/// Selects one of a channel's two rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The listener sends, the connector receives.
    FromListener,
    /// The connector sends, the listener receives.
    FromConnector,
}

/// The granularity of mappings in bytes, which is also the offset of the first ring's records.
fn page() -> usize {
    shm::page_len()
}

/// The sizes from which both ends compute the same layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimensions {
    /// Capacity of each ring in bytes.
    pub capacity: usize,
    /// Longest message in bytes.
    pub max_message: usize,
}

impl Dimensions {
    /// Dimensions for messages up to `max_message` bytes. `asked` is the desired capacity in bytes, which is raised to
    /// the minimum and rounded up. `None` is the default, with which at least four messages of the maximum size fit, so
    /// that both ends work at the same time.
    pub fn choose(max_message: usize, asked: Option<usize>) -> Dimensions {
        let wish = asked.unwrap_or(LEAST_DEFAULT.max(4 * (max_message + LINE)));
        Dimensions {
            capacity: wish.next_multiple_of(page()).max(least_capacity(max_message, page())),
            max_message,
        }
    }

    /// The same with the capacity rounded up to whole pages of `page_len` bytes, for memory with
    /// larger pages than usual.
    pub fn in_pages_of(self, page_len: usize) -> Dimensions {
        Dimensions { capacity: self.capacity.next_multiple_of(page_len), ..self }
    }

    /// Size in bytes of the control words, which precede the rings.
    pub fn control_len() -> usize {
        page()
    }

    /// Size in bytes of the rings alone, for users that keep the control words in other memory.
    pub fn rings_len(self) -> usize {
        2 * self.capacity
    }

    /// The pieces of memory that holds the rings alone, in the order in which they must be mapped
    /// immediately behind the control words.
    pub fn ring_pieces(self) -> [(usize, usize); 4] {
        let (a, b) = ((0, self.capacity), (self.capacity, self.capacity));
        [a, a, b, b]
    }

    /// Size in bytes of the shared memory for two such rings.
    pub fn memory_len(self) -> usize {
        page() + 2 * self.capacity
    }

    /// The memory's pieces in the order in which they must be mapped, as offset and length: the control words, then
    /// each ring twice.
    pub fn pieces(self) -> [(usize, usize); 5] {
        let (a, b) = (page(), page() + self.capacity);
        let ring = self.capacity;
        [(0, page()), (a, ring), (a, ring), (b, ring), (b, ring)]
    }
}

/// The words of the control page that the rings do not use, for users that share more than messages.
#[derive(Clone, Debug)]
pub struct FreeWords {
    mapping: Arc<Mapping>,
}

impl FreeWords {
    /// Offset in bytes of the first free word from the start of the memory.
    pub const OFFSET: usize = 2 * size_of::<Control>();

    /// The free words of a mapping of [`Dimensions::pieces`].
    ///
    /// # Panics
    /// If the mapping is shorter than a page.
    pub fn new(mapping: Arc<Mapping>) -> Self {
        assert!(mapping.len() >= page(), "the mapping is too short for its control words");
        FreeWords { mapping }
    }

    /// The mapping that contains the words.
    pub const fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// The number of free words.
    pub fn count(&self) -> usize {
        (page() - Self::OFFSET) / 8
    }

    /// The address of a free word, for data larger than a word. It stays mapped as long as `self`.
    ///
    /// # Panics
    /// If `index` is out of range.
    pub fn place(&self, index: usize) -> std::ptr::NonNull<u64> {
        assert!(index < self.count(), "word {index} of {}", self.count());
        // SAFETY: within the control page, as just asserted.
        unsafe { self.mapping.start().byte_add(Self::OFFSET).cast::<u64>().add(index) }
    }

    /// A free word as an atomic.
    ///
    /// # Panics
    /// If `index` is out of range.
    #[inline]
    pub fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: mapped as long as `self`, aligned, and initialised by the kernel to 0; words that are used as such
        // are accessed atomically only.
        unsafe { AtomicU64::from_ptr(self.place(index).as_ptr()) }
    }
}

/// The first half of a free word, on which futex(2) can sleep.
#[derive(Clone, Debug)]
pub struct FreeFutex {
    words: FreeWords,
    index: usize,
}

impl FreeFutex {
    /// The free word with this index.
    ///
    /// # Panics
    /// If `index` is out of range.
    pub fn new(words: FreeWords, index: usize) -> Self {
        words.place(index);
        FreeFutex { words, index }
    }
}

impl Word for FreeFutex {
    #[inline]
    fn word(&self) -> &std::sync::atomic::AtomicU32 {
        // SAFETY: as in `FreeWords::word`.
        unsafe {
            std::sync::atomic::AtomicU32::from_ptr(self.words.place(self.index).as_ptr().cast())
        }
    }
}

/// One ring in a mapping, as one end sees it.
#[derive(Clone)]
pub struct SharedRing {
    mapping: Arc<Mapping>,
    control: *const Control,
    records: *mut u8,
    dimensions: Dimensions,
}

// SAFETY: the pointers point into the mapping, which the value keeps alive and which is not bound to a thread; they
// point to atomics, or to memory governed by the ring's protocol.
unsafe impl Send for SharedRing {}
// SAFETY: as above; anything but atomics is accessed through methods whose callers guarantee that it is their turn.
unsafe impl Sync for SharedRing {}

impl SharedRing {
    /// The ring of one direction in a mapping of [`Dimensions::pieces`].
    ///
    /// # Panics
    /// If the mapping is too short, or `dimensions` leave no room for the longest message.
    pub fn new(mapping: Arc<Mapping>, dimensions: Dimensions, direction: Direction) -> Self {
        assert!(2 * size_of::<Control>() <= page());
        let Dimensions { capacity, max_message } = dimensions;
        assert!(mapping.len() >= page() + 4 * capacity, "the mapping is too short for its rings");
        assert!(capacity >= least_capacity(max_message, page()), "the ring cannot hold a message");
        let nth = match direction {
            Direction::FromListener => 0,
            Direction::FromConnector => 1,
        };
        let start = mapping.start().as_ptr();
        // SAFETY: both lie within the mapping, as asserted above: two controls in the first piece, then two rings,
        // each twice.
        let (control, records) = unsafe {
            (start.cast::<Control>().add(nth).cast_const(), start.add(page() + 2 * nth * capacity))
        };
        SharedRing { mapping, control, records, dimensions }
    }

    /// Returns the memory of the records in a range to the kernel. May be called only when neither end uses the ring
    /// any more, because the content is lost at both ends. Returns false if `offset` is not within the ring, or if the
    /// kernel cannot do this.
    pub fn give_back(&self, offset: usize, len: usize) -> bool {
        let left = self.dimensions.capacity.saturating_sub(offset);
        let start = self.records.addr() - self.mapping.start().as_ptr().addr();
        left > 0 && self.mapping.give_back(start + offset, len.min(left))
    }

    /// The mapping.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    #[inline]
    fn control(&self) -> &Control {
        // SAFETY: within the mapping, page-aligned plus a multiple of the control's size, and only atomics inside, for
        // which every bit pattern is valid.
        unsafe { &*self.control }
    }
}

// SAFETY: both ends map the same memfd and compute the same layout from the same dimensions; it is zeroed when created;
// header and payload are the same memory; the mapping lives as long as `self`.
unsafe impl RingMemory for SharedRing {
    #[inline]
    fn push_out(&self, offset: usize, len: usize) {
        // The ring is mapped twice, so a record has no end.
        crossway_sys::cache::push_out(self.records.wrapping_add(offset), len);
    }

    #[inline]
    fn capacity(&self) -> usize {
        self.dimensions.capacity
    }

    #[inline]
    fn max_message(&self) -> usize {
        self.dimensions.max_message
    }

    #[inline]
    fn head(&self) -> &AtomicU64 {
        &self.control().head.0
    }

    #[inline]
    fn head_wanted(&self) -> &AtomicU64 {
        &self.control().head_wanted.0
    }

    #[inline]
    fn producer_state(&self) -> &AtomicU32 {
        &self.control().producer_state.0
    }

    #[inline]
    fn consumer_state(&self) -> &AtomicU32 {
        &self.control().consumer_state.0
    }

    #[inline]
    fn header(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && offset < self.dimensions.capacity);
        // SAFETY: the callers keep offsets below the capacity and multiples of 8; the records start at a multiple
        // of 8; concurrent access to a header word is atomic only, by the protocol.
        unsafe { AtomicU64::from_ptr(self.records.add(offset).cast()) }
    }

    #[inline]
    unsafe fn with<R>(&self, offset: usize, len: usize, read: impl FnOnce(&[u8]) -> R) -> R {
        debug_assert!(offset < self.dimensions.capacity + 8 && len <= self.dimensions.capacity);
        // SAFETY: in the ring or its second mapping, and not written by a correct peer, as the caller guarantees; the
        // module's documentation says what applies to a hostile one.
        read(unsafe { std::slice::from_raw_parts(self.records.add(offset), len) })
    }

    #[inline]
    unsafe fn with_mut<R>(
        &self,
        offset: usize,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        debug_assert!(offset < self.dimensions.capacity + 8 && len <= self.dimensions.capacity);
        // SAFETY: in the ring or its second mapping, and exclusively ours until published, as the caller guarantees.
        // The bytes are initialised: the memory was zeroed at first.
        write(unsafe { std::slice::from_raw_parts_mut(self.records.add(offset), len) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_below_the_minimum_is_raised() {
        let d = Dimensions::choose(1000, Some(1));
        assert_eq!(d.capacity, page());
        assert!(Dimensions::choose(page(), Some(1)).capacity > page());
    }

    #[test]
    fn larger_pages_raise_the_capacity() {
        let d = Dimensions::choose(64, None).in_pages_of(2 << 20);
        assert_eq!((d.capacity, d.rings_len()), (4 << 20, 8 << 20));
        assert_eq!(Dimensions::choose(64, Some(1)).in_pages_of(2 << 20).capacity, 2 << 20);
        assert_eq!(d.ring_pieces()[2], (4 << 20, 4 << 20));
    }

    #[test]
    fn the_default_holds_four_of_the_largest() {
        assert!(Dimensions::choose(1 << 20, None).capacity >= 4 << 20);
        assert!(Dimensions::choose(4 << 20, None).capacity >= 16 << 20);
    }
}
