//! The memory of a ring in loom's model, shared by the models of the ring and of the bell.

use crossway_ring::RingMemory;
use crossway_ring::layout::least_capacity;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The longest message in bytes.
pub(crate) const MAX: usize = 8;

/// One word of the ring: the same eight bytes as an atomic header and as plain payload.
struct Word {
    header: AtomicU64,
    payload: UnsafeCell<[u8; 8]>,
}

// SAFETY: loom checks each access to the payload.
unsafe impl Sync for Word {}
// SAFETY: plain bytes and an atomic.
unsafe impl Send for Word {}

struct Inner<E> {
    words: Vec<Word>,
    head: AtomicU64,
    head_wanted: AtomicU64,
    producer_state: AtomicU32,
    consumer_state: AtomicU32,
    extra: E,
}

/// The memory of a ring, and `E`, the other data that the two ends of a model share.
pub(crate) struct Memory<E>(Arc<Inner<E>>);

impl<E> Clone for Memory<E> {
    fn clone(&self) -> Self {
        Memory(self.0.clone())
    }
}

impl<E> Memory<E> {
    pub(crate) fn new(capacity: usize, extra: E) -> Memory<E> {
        assert!(capacity >= least_capacity(MAX, 8));
        let words = (0..capacity / 8)
            .map(|_| Word { header: AtomicU64::new(0), payload: UnsafeCell::new([0; 8]) })
            .collect();
        Memory(Arc::new(Inner {
            words,
            head: AtomicU64::new(0),
            head_wanted: AtomicU64::new(0),
            producer_state: AtomicU32::new(0),
            consumer_state: AtomicU32::new(0),
            extra,
        }))
    }

    pub(crate) fn extra(&self) -> &E {
        &self.0.extra
    }

    fn word(&self, at: usize) -> &Word {
        &self.0.words[at / 8 % self.0.words.len()]
    }
}

// SAFETY: a model; the words are what both ends share.
unsafe impl<E: Send + Sync + 'static> RingMemory for Memory<E> {
    fn capacity(&self) -> usize {
        self.0.words.len() * 8
    }

    fn max_message(&self) -> usize {
        MAX
    }

    fn head(&self) -> &AtomicU64 {
        &self.0.head
    }

    fn head_wanted(&self) -> &AtomicU64 {
        &self.0.head_wanted
    }

    fn producer_state(&self) -> &AtomicU32 {
        &self.0.producer_state
    }

    fn consumer_state(&self) -> &AtomicU32 {
        &self.0.consumer_state
    }

    fn header(&self, offset: usize) -> &AtomicU64 {
        &self.word(offset).header
    }

    unsafe fn with<R>(&self, offset: usize, len: usize, read: impl FnOnce(&[u8]) -> R) -> R {
        let mut copy = Vec::new();
        for at in (offset..offset + len).step_by(8) {
            // SAFETY: loom reports the race if the caller breaks its promise.
            self.word(at).payload.with(|p| copy.extend(unsafe { *p }));
        }
        read(&copy[..len])
    }

    unsafe fn with_mut<R>(
        &self,
        offset: usize,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let mut copy = vec![0; len.next_multiple_of(8)];
        let result = write(&mut copy[..len]);
        for (at, bytes) in (offset..offset + len).step_by(8).zip(copy.chunks(8)) {
            let bytes: [u8; 8] = bytes.try_into().unwrap();
            let word = self.word(at);
            // SAFETY: as above.
            word.payload.with_mut(|p| unsafe { *p = bytes });
            // The same bytes, as they appear to an end that reads them as a header at the wrong time.
            word.header.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
        result
    }
}
