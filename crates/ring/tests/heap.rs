//! The ring's algorithm over heap memory instead of shared memory, so that Miri can watch every access: `make miri`.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossway_ring::bell::{FIRST_SLEEP, Silent};
use crossway_ring::layout::{ALIGN_FROM, ASLEEP, least_capacity};
use crossway_ring::{Bell, RecvError, RingMemory, RingRx, RingTx, SendError, Wait};
use crossway_sys::OsError;

/// Longest message in bytes. It is above [`ALIGN_FROM`], so that the alignment of long records is tested, too.
const MAX: usize = ALIGN_FROM + 40;

/// The memory of a ring. A range that crosses the end is copied, since the heap cannot be mapped twice.
struct Words {
    start: NonNull<u64>,
    count: usize,
    head: AtomicU64,
    head_wanted: AtomicU64,
    producer_state: AtomicU32,
    consumer_state: AtomicU32,
}

#[derive(Clone)]
struct Heap(Arc<Words>);

// SAFETY: plain memory, accessed by one thread at a time.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Heap {
    fn new(capacity: usize) -> Heap {
        let count = capacity / 8;
        let start = NonNull::from(Box::leak(vec![0u64; count].into_boxed_slice())).cast();
        Heap(Arc::new(Words {
            start,
            count,
            head: AtomicU64::new(0),
            head_wanted: AtomicU64::new(0),
            producer_state: AtomicU32::new(0),
            consumer_state: AtomicU32::new(0),
        }))
    }

    /// The first part of a range up to the end, and the length of the part at the start.
    fn split(&self, offset: usize, len: usize) -> (*mut u8, usize, usize) {
        let capacity = self.0.count * 8;
        let offset = offset % capacity;
        let first = len.min(capacity - offset);
        // SAFETY: below the capacity.
        (unsafe { self.0.start.as_ptr().cast::<u8>().add(offset) }, first, len - first)
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        let words = std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.count);
        // SAFETY: leaked by `Heap::new`, and nothing else refers to it.
        drop(unsafe { Box::from_raw(words) });
    }
}

// SAFETY: both ends share the words, which start as zeros; headers and payload are the same bytes.
unsafe impl RingMemory for Heap {
    fn capacity(&self) -> usize {
        self.0.count * 8
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
        assert!(offset.is_multiple_of(8) && offset < self.0.count * 8);
        // SAFETY: an aligned word below the capacity.
        unsafe { AtomicU64::from_ptr(self.0.start.as_ptr().add(offset / 8)) }
    }

    unsafe fn with<R>(&self, offset: usize, len: usize, read: impl FnOnce(&[u8]) -> R) -> R {
        let (start, first, second) = self.split(offset, len);
        // SAFETY: the range belongs to the caller.
        let first = unsafe { std::slice::from_raw_parts(start, first) };
        if second == 0 {
            return read(first);
        }
        // SAFETY: as above, at the start of the words.
        let second = unsafe { std::slice::from_raw_parts(self.split(0, second).0, second) };
        read(&[first, second].concat())
    }

    unsafe fn with_mut<R>(
        &self,
        offset: usize,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let (start, first, second) = self.split(offset, len);
        // SAFETY: the range belongs to the caller alone.
        let first = unsafe { std::slice::from_raw_parts_mut(start, first) };
        if second == 0 {
            return write(first);
        }
        // SAFETY: as above, at the start of the words.
        let second = unsafe { std::slice::from_raw_parts_mut(self.split(0, second).0, second) };
        let mut copy = vec![0; len];
        let result = write(&mut copy);
        let (a, b) = copy.split_at(first.len());
        first.copy_from_slice(a);
        second.copy_from_slice(b);
        result
    }
}

fn ends() -> (RingTx<Heap, Silent>, RingRx<Heap, Silent>) {
    let memory = Heap::new(least_capacity(MAX, 64));
    (RingTx::new(memory.clone(), Silent, Wait::Block), RingRx::new(memory, Silent, Wait::Block))
}

fn content(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + number) as u8).collect()
}

#[test]
fn messages_of_every_size_go_round_the_ring() {
    let (mut tx, mut rx) = ends();
    let mut next = 0;
    let mut number = 0;
    while number < 400 {
        // As many as fit, then all of them.
        let len = (number * 37) % (MAX + 1);
        match tx.try_send_with(len, |out| out.copy_from_slice(&content(number, len))) {
            Ok(()) => number += 1,
            Err(SendError::Full) => {
                assert!(next < number, "an empty ring takes every message");
                while next < number {
                    let len = (next * 37) % (MAX + 1);
                    rx.try_recv_with(MAX, |bytes| assert_eq!(bytes, content(next, len))).unwrap();
                    next += 1;
                }
                assert!(matches!(rx.try_recv_with(MAX, |_| ()), Err(RecvError::Empty)));
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_message_that_is_too_long_is_refused_and_stays_out() {
    let (mut tx, mut rx) = ends();
    assert!(matches!(tx.try_send_with(MAX + 1, |_| ()), Err(SendError::TooLarge { .. })));
    tx.try_send_with(9, |out| out.fill(1)).unwrap();
    let small = rx.try_recv_with(8, |_| ());
    assert!(matches!(small, Err(RecvError::TooSmall { need: 9, have: 8 })), "{small:?}");
    assert_eq!(rx.try_recv_with(9, |bytes| bytes.to_vec()).unwrap(), [1; 9]);
}

#[test]
fn what_was_sent_before_the_end_is_received() {
    let (mut tx, mut rx) = ends();
    tx.try_send_with(3, |out| out.copy_from_slice(b"end")).unwrap();
    drop(tx);
    assert_eq!(rx.try_recv_with(MAX, |bytes| bytes.to_vec()).unwrap(), b"end");
    assert!(matches!(rx.try_recv_with(MAX, |_| ()), Err(RecvError::PeerClosed)));
    let (mut tx, rx) = ends();
    drop(rx);
    assert!(matches!(tx.try_send_with(3, |_| ()), Err(SendError::PeerClosed)));
}

/// A bell whose end sends itself a message during its second sleep, as a sender does that has missed the announcement of
/// the sleep: without waking it.
struct Missed {
    tx: Mutex<RingTx<Heap, Silent>>,
    sleeps: Mutex<Vec<Option<Duration>>>,
}

impl Bell for Missed {
    fn light_fence(&self) {}

    fn heavy_fence(&self) -> Result<(), OsError> {
        Ok(())
    }

    fn sleep(&self, own_state: &AtomicU32, limit: Option<Duration>) -> Result<(), OsError> {
        let mut sleeps = self.sleeps.lock().unwrap();
        sleeps.push(limit);
        if sleeps.len() == 2 {
            self.tx.lock().unwrap().try_send_with(1, |out| out.fill(7)).unwrap();
            own_state.store(ASLEEP, Ordering::Relaxed);
        }
        Ok(())
    }

    fn ring(&self, _: &AtomicU32) -> Result<(), OsError> {
        Ok(())
    }

    fn peer_gone(&self) -> Result<bool, OsError> {
        Ok(false)
    }
}

#[test]
fn a_receiver_looks_again_after_a_moment_and_then_sleeps_until_it_is_woken() {
    let (tx, rx) = ends();
    let bell = Missed { tx: Mutex::new(tx), sleeps: Mutex::default() };
    let mut rx = RingRx::new(rx.memory().clone(), bell, Wait::Block);
    assert_eq!(rx.recv_with(MAX, None, <[u8]>::to_vec).unwrap(), [7]);
    assert_eq!(*rx.bell().sleeps.lock().unwrap(), [Some(FIRST_SLEEP), None]);
}
