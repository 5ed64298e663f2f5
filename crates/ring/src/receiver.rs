//! The control words of a shared receiving end and its lock, within a mapping.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crossway_sys::shm::Mapping;

use crate::process_lock::LockWords;
use crate::region::FreeWords;
use crate::shared_rx::ReceiverWords;

/// The memory layout: the words that the producer also writes have their own lines, apart from those that only
/// consumers change.
#[repr(C, align(128))]
struct Words {
    bell: AtomicU32,
    _apart: [u8; 124],
    holder: AtomicU32,
    numbers: AtomicU32,
    bells_consumed: AtomicU32,
    begun: AtomicU32,
    part: AtomicU64,
}

/// The size of the words in bytes.
pub const LEN: usize = size_of::<Words>();

/// The control words of one receiving end.
#[derive(Clone, Debug)]
pub struct Receiver {
    _mapping: Arc<Mapping>,
    words: *const Words,
}

// SAFETY: the pointer points into the mapping, which the value keeps alive and which is not bound to a thread, and only
// to atomics.
unsafe impl Send for Receiver {}
// SAFETY: as above.
unsafe impl Sync for Receiver {}

impl Receiver {
    /// Uses the words at an offset of a mapping. They must all have been 0 when the mapping was created.
    ///
    /// # Panics
    /// If the words would lie outside the mapping or not start on a cache line.
    pub fn at(mapping: Arc<Mapping>, offset: usize) -> Self {
        assert!(offset.is_multiple_of(align_of::<Words>()), "the words are not aligned");
        assert!(offset + LEN <= mapping.len(), "the words lie beyond the mapping");
        // SAFETY: within the mapping, as just asserted; mappings start at a page.
        let words = unsafe { mapping.start().as_ptr().add(offset) }.cast_const().cast();
        Self { _mapping: mapping, words }
    }

    /// Uses the words of a control page that start at the free word with this index.
    ///
    /// # Panics
    /// As [`Receiver::at`].
    pub fn of(free: &FreeWords, index: usize) -> Self {
        Self::at(free.mapping().clone(), FreeWords::OFFSET + 8 * index)
    }

    #[inline]
    fn words(&self) -> &Words {
        // SAFETY: within the mapping, which lives as long as `self`; only atomics and unused padding, for which every
        // bit pattern is valid.
        unsafe { &*self.words }
    }

    /// 1 if the consumers have read everything that was sent before the ring existed, otherwise 0.
    pub fn begun(&self) -> &AtomicU32 {
        &self.words().begun
    }
}

impl ReceiverWords for Receiver {
    #[inline]
    fn bell(&self) -> &AtomicU32 {
        &self.words().bell
    }

    #[inline]
    fn bells_consumed(&self) -> &AtomicU32 {
        &self.words().bells_consumed
    }

    #[inline]
    fn part(&self) -> &AtomicU64 {
        &self.words().part
    }
}

impl LockWords for Receiver {
    #[inline]
    fn holder(&self) -> &AtomicU32 {
        &self.words().holder
    }

    #[inline]
    fn numbers(&self) -> &AtomicU32 {
        &self.words().numbers
    }
}
