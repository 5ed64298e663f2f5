//! The memory and the socket that the models of the bell share.
#![cfg(loom)]

use std::time::Duration;

use crossway_ring::RingMemory;
use crossway_ring::bell::Bell;
use crossway_ring::doorbell::QUIET;
use crossway_ring::layout::least_capacity;
use crossway_ring::shared_rx::ReceiverWords;
use crossway_sys::OsError;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::sync::{Arc, Condvar, Mutex};

pub(crate) const MAX: usize = 8;

/// One word of the ring: the same eight bytes as an atomic header and as plain payload.
pub(crate) struct Word {
    pub(crate) header: AtomicU64,
    payload: UnsafeCell<u64>,
}

/// The socket's queue towards the program, and the counter with which the program asks for room.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) bells: u32,
    pub(crate) ended: bool,
    pub(crate) room: bool,
    /// A consumer was killed in its turn.
    pub(crate) orphaned: bool,
}

pub(crate) struct Inner {
    words: Vec<Word>,
    pub(crate) head: AtomicU64,
    head_wanted: AtomicU64,
    producer_state: AtomicU32,
    consumer_state: AtomicU32,
    pub(crate) bell: AtomicU32,
    pub(crate) eaten: AtomicU32,
    part: AtomicU64,
    queue: (Mutex<Queue>, Condvar),
    pub(crate) turn: Mutex<()>,
}

// SAFETY: loom checks each access to the payload.
unsafe impl Sync for Inner {}
// SAFETY: plain bytes and atomics.
unsafe impl Send for Inner {}

#[derive(Clone)]
pub(crate) struct Shared(pub(crate) Arc<Inner>);

impl Shared {
    pub(crate) fn new(capacity: usize) -> Self {
        assert!(capacity >= least_capacity(MAX, 8));
        let words = (0..capacity / 8)
            .map(|_| Word { header: AtomicU64::new(0), payload: UnsafeCell::new(0) })
            .collect();
        Self(Arc::new(Inner {
            words,
            head: AtomicU64::new(0),
            head_wanted: AtomicU64::new(0),
            producer_state: AtomicU32::new(0),
            consumer_state: AtomicU32::new(0),
            bell: AtomicU32::new(QUIET),
            eaten: AtomicU32::new(0),
            part: AtomicU64::new(0),
            queue: (Mutex::new(Queue::default()), Condvar::new()),
            turn: Mutex::new(()),
        }))
    }

    pub(crate) fn word(&self, at: usize) -> &Word {
        &self.0.words[at / 8 % self.0.words.len()]
    }

    /// Accesses the queue without waking anything.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&mut Queue) -> R) -> R {
        look(&mut self.0.queue.0.lock().unwrap())
    }

    pub(crate) fn queue<R>(&self, change: impl FnOnce(&mut Queue) -> R) -> R {
        let result = change(&mut self.0.queue.0.lock().unwrap());
        self.0.queue.1.notify_all();
        result
    }

    /// Sleeps until `until` is true of the queue.
    pub(crate) fn poll(&self, until: impl Fn(&Queue) -> bool) {
        let (lock, condvar) = &self.0.queue;
        let mut queue = lock.lock().unwrap();
        while !until(&queue) {
            queue = condvar.wait(queue).unwrap();
        }
    }
}

// SAFETY: a model; the words are what both ends share.
unsafe impl RingMemory for Shared {
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
        // SAFETY: loom reports the race if the caller breaks its promise.
        let bytes = self.word(offset).payload.with(|p| unsafe { *p }).to_ne_bytes();
        read(&bytes[..len])
    }

    unsafe fn with_mut<R>(
        &self,
        offset: usize,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let mut bytes = [0; 8];
        let result = write(&mut bytes[..len]);
        // SAFETY: as above.
        self.word(offset).payload.with_mut(|p| unsafe { *p = u64::from_ne_bytes(bytes) });
        result
    }
}

impl ReceiverWords for Shared {
    fn bell(&self) -> &AtomicU32 {
        &self.0.bell
    }

    fn bells_eaten(&self) -> &AtomicU32 {
        &self.0.eaten
    }

    fn part(&self) -> &AtomicU64 {
        &self.0.part
    }
}

/// A bell without function: the producer rings through the socket, not through the ring.
pub(crate) struct NoBell;

impl Bell for NoBell {
    fn light_fence(&self) {}

    fn heavy_fence(&self) -> Result<(), OsError> {
        Ok(())
    }

    fn sleep(&self, _own_state: &AtomicU32, _limit: Option<Duration>) -> Result<(), OsError> {
        Ok(())
    }

    fn ring(&self, _other_state: &AtomicU32) -> Result<(), OsError> {
        Ok(())
    }

    fn peer_gone(&self) -> Result<bool, OsError> {
        Ok(false)
    }
}
