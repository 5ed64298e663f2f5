//! The memory interface of the ring's algorithm, implemented by real shared memory and by loom's model.

use crate::sync::{AtomicU32, AtomicU64};

/// The memory of one ring, as seen by one of its ends.
///
/// # Safety
///
/// Both ends must see the same memory, initially zeroed. The sizes must be correct and never change; `header` and the
/// payload at the same offset must be the same bytes; all references must stay valid as long as the value lives.
pub unsafe trait RingMemory: Send + 'static {
    /// Space for records in bytes; a multiple of [`LINE`](crate::layout::LINE), and at least
    /// [`least_capacity`](crate::layout::least_capacity) of the longest message.
    fn capacity(&self) -> usize;
    /// Longest message in bytes.
    fn max_message(&self) -> usize;
    /// Position up to which the consumer has freed space. Written by the consumer.
    fn head(&self) -> &AtomicU64;
    /// The head that a sleeping producer waits for. Written by the producer.
    fn head_wanted(&self) -> &AtomicU64;
    /// State of the producer's end.
    fn producer_state(&self) -> &AtomicU32;
    /// State of the consumer's end.
    fn consumer_state(&self) -> &AtomicU32;
    /// The header word at `offset`, a multiple of 8 below the capacity.
    fn header(&self, offset: usize) -> &AtomicU64;

    /// Passes `len` bytes at `offset` to `read`.
    ///
    /// # Safety
    /// Both `offset` and `len` must be at most the capacity (the range may cross the end and continue at the start),
    /// and the range must belong to the consumer: published, and not yet freed.
    unsafe fn with<R>(&self, offset: usize, len: usize, read: impl FnOnce(&[u8]) -> R) -> R;

    /// Passes `len` bytes at `offset` to `write` for writing.
    ///
    /// # Safety
    /// As [`RingMemory::with`], and the range must belong to the producer: freed, and not yet published.
    unsafe fn with_mut<R>(
        &self,
        offset: usize,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> R,
    ) -> R;

    /// Hints that another core is about to read the record of `len` bytes at `offset`.
    #[inline]
    fn push_out(&self, offset: usize, len: usize) {
        let _ = (offset, len);
    }
}
