//! Two producers of one ring: the *owner*, which publishes most messages, and a *helper*. The helper publishes the
//! messages that the owner could not publish itself and has passed to the helper by other means. The two exclude each
//! other without waiting, and no message overtakes another.
//!
//! A ring has no shared tail, so each producer stores its position and sequence number in shared words ([`Words`]) for
//! the other.
//!
//! - The owner counts what it passes to the helper, before passing it. Whenever the helper has nothing left to publish,
//!   it stores in `passed` how much of the owner's count is in the ring.
//! - The owner publishes only while its count equals `passed`, which it checks after it has set `busy` ([`enter`]).
//! - The helper publishes only while something is waiting, and only if it sees that `busy` is 0 ([`is_free`]).
//!
//! Each side has a full fence between its store and its check (Dekker's pattern), so at most one of the two uses the
//! ring.

use crate::RingTx;
use crate::bell::Bell;
use crate::memory::RingMemory;
use crate::sync::{AtomicU64, Ordering, fence};

/// The words that the two producers share. The consumer must not be able to write to them.
pub trait Words {
    /// Non-zero while the owner uses the ring, or is about to check whether it may.
    fn busy(&self) -> &AtomicU64;
    /// The part of the owner's count that the helper has put into the ring.
    fn passed(&self) -> &AtomicU64;
    /// The position of the next record.
    fn tail(&self) -> &AtomicU64;
    /// Number of records published.
    fn sequence(&self) -> &AtomicU64;
}

/// The owner's turn at the ring; ends when this value is dropped.
pub struct Turn<'a>(&'a AtomicU64);

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Starts the owner's turn; returns `None` if something that it has passed to the helper is not in the ring yet.
/// `count` returns how much the owner has passed. Only one thread may call this at a time.
#[inline]
pub fn enter(words: &impl Words, count: impl FnOnce() -> u64) -> Option<Turn<'_>> {
    words.busy().store(1, Ordering::Relaxed);
    let turn = Turn(words.busy());
    // Either the helper sees that we are at the ring, or we see what was passed to it.
    fence(Ordering::SeqCst);
    (words.passed().load(Ordering::SeqCst) == count()).then_some(turn)
}

/// Whether the helper may publish what the owner has passed to it. False while the owner uses the ring; the helper then
/// tries again later. If the owner has died, the helper may publish regardless of the result.
pub fn is_free(words: &impl Words) -> bool {
    fence(Ordering::SeqCst);
    words.busy().load(Ordering::SeqCst) == 0
}

/// Moves `tx` to the position that the other producer has stored in `words`, if it is not there already.
#[inline]
pub fn resume<M: RingMemory, B: Bell>(words: &impl Words, tx: &mut RingTx<M, B>) {
    let tail = words.tail().load(Ordering::Acquire);
    if tail != tx.position() {
        tx.resume_at(tail, words.sequence().load(Ordering::Relaxed));
    }
}

/// As [`resume`], but also handles a producer that was killed after it had published a record and before it stored its
/// new position.
pub fn take_over<M: RingMemory, B: Bell>(words: &impl Words, tx: &mut RingTx<M, B>) {
    let tail = words.tail().load(Ordering::Acquire);
    tx.resume_at(tail, words.sequence().load(Ordering::Relaxed));
}

/// Stores the position of `tx` for the other producer.
#[inline]
pub fn leave<M: RingMemory, B: Bell>(words: &impl Words, tx: &RingTx<M, B>) {
    words.sequence().store(tx.sequence(), Ordering::Relaxed);
    words.tail().store(tx.position(), Ordering::Release);
}
