//! Model checks of the ring: loom tries every interleaving and every permitted reordering of small cases.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p crossway-ring --test loom_ring --release`
//!
//! A lost message, a torn read or an access to bytes that the other end has not released fails an assertion or loom's own
//! race check; a lost wake-up is a deadlock, which loom reports, since the model's sleep never times out.
#![cfg(loom)]
#![allow(unsafe_code)]

use std::time::Duration;

use crossway_ring::layout::{ASLEEP, least_capacity};
use crossway_ring::{Bell, RingMemory, RingRx, RingTx};
use crossway_ring::{RecvError, SendError, Wait};
use crossway_sys::OsError;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

const MAX: usize = 8;

/// One word of the ring: the same eight bytes as an atomic header and as plain payload.
struct Word {
    header: AtomicU64,
    payload: UnsafeCell<[u8; 8]>,
}

// SAFETY: loom checks each access to the payload.
unsafe impl Sync for Word {}
// SAFETY: plain bytes and an atomic.
unsafe impl Send for Word {}

struct Inner {
    words: Vec<Word>,
    head: AtomicU64,
    head_wanted: AtomicU64,
    producer_state: AtomicU32,
    consumer_state: AtomicU32,
    /// Sleeping and waking: one lock per sleeper.
    room: (Mutex<()>, Condvar),
    data: (Mutex<()>, Condvar),
}

#[derive(Clone)]
struct Memory(Arc<Inner>);

impl Memory {
    fn new(capacity: usize) -> Memory {
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
            room: (Mutex::new(()), Condvar::new()),
            data: (Mutex::new(()), Condvar::new()),
        }))
    }

    fn word(&self, at: usize) -> &Word {
        &self.0.words[at / 8 % self.0.words.len()]
    }
}

// SAFETY: a model; the words are what both ends share.
unsafe impl RingMemory for Memory {
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

/// Sleeps on a lock where the real bell sleeps on a futex. The fences of `membarrier` are modelled by full fences on both
/// sides, which is their effect in the kernel.
struct ModelBell {
    memory: Memory,
    producer: bool,
}

impl ModelBell {
    fn place(&self, producer: bool) -> &(Mutex<()>, Condvar) {
        if producer { &self.memory.0.room } else { &self.memory.0.data }
    }
}

impl Bell for ModelBell {
    fn light_fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn heavy_fence(&self) -> Result<(), OsError> {
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn sleep(&self, own_state: &AtomicU32, _limit: Option<Duration>) -> Result<(), OsError> {
        let (lock, condvar) = self.place(self.producer);
        let mut guard = lock.lock().unwrap();
        while own_state.load(Ordering::SeqCst) == ASLEEP {
            guard = condvar.wait(guard).unwrap();
        }
        Ok(())
    }

    fn ring(&self, _other_state: &AtomicU32) -> Result<(), OsError> {
        let (lock, condvar) = self.place(!self.producer);
        drop(lock.lock().unwrap());
        condvar.notify_one();
        Ok(())
    }

    fn peer_gone(&self) -> Result<bool, OsError> {
        Ok(false)
    }
}

type Ends = (RingTx<Memory, ModelBell>, RingRx<Memory, ModelBell>);

fn ring(capacity: usize) -> Ends {
    let memory = Memory::new(capacity);
    let bell = |producer| ModelBell { memory: memory.clone(), producer };
    (
        RingTx::new(memory.clone(), bell(true), Wait::Block),
        RingRx::new(memory.clone(), bell(false), Wait::Block),
    )
}

fn send(tx: &mut RingTx<Memory, ModelBell>, value: u64) {
    tx.send_with(8, None, |to| to.copy_from_slice(&value.to_ne_bytes())).unwrap();
}

fn recv(rx: &mut RingRx<Memory, ModelBell>) -> Result<u64, RecvError> {
    rx.recv_with(8, None, |from| u64::from_ne_bytes(from.try_into().unwrap()))
}

fn model(preemptions: usize, case: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(case);
}

/// The smallest ring: each message but the first waits for room, and records often cross the end.
fn tight() -> usize {
    least_capacity(MAX, 8)
}

#[test]
fn messages_arrive_in_order_through_a_ring_with_room() {
    model(3, || {
        let (mut tx, mut rx) = ring(256);
        let sender = thread::spawn(move || {
            // Payload that does not look like a header, payload that looks like zero, and payload that looks like a header.
            for value in [1, 0, u64::MAX] {
                send(&mut tx, value);
            }
        });
        for value in [1, 0, u64::MAX] {
            assert_eq!(recv(&mut rx).unwrap(), value);
        }
        assert!(matches!(recv(&mut rx), Err(RecvError::PeerClosed)));
        sender.join().unwrap();
    });
}

#[test]
fn a_full_ring_makes_the_sender_sleep_and_wakes_it() {
    model(2, || {
        let (mut tx, mut rx) = ring(tight());
        let sender = thread::spawn(move || {
            for value in 0..9 {
                send(&mut tx, value);
            }
        });
        for value in 0..9 {
            assert_eq!(recv(&mut rx).unwrap(), value);
        }
        assert!(matches!(recv(&mut rx), Err(RecvError::PeerClosed)));
        sender.join().unwrap();
    });
}

#[test]
fn old_payload_is_never_taken_for_a_header() {
    // The payload is the very header word that the consumer will expect at that place one lap later.
    model(2, || {
        let (mut tx, mut rx) = ring(tight());
        let forged = |n: u64| crossway_ring::layout::header(n + 1, 8);
        let sender = thread::spawn(move || {
            for n in 0..8 {
                send(&mut tx, forged(n));
            }
        });
        for n in 0..8 {
            assert_eq!(recv(&mut rx).unwrap(), forged(n));
        }
        sender.join().unwrap();
    });
}

#[test]
fn the_receiver_that_closes_first_sets_a_sleeping_sender_free() {
    model(3, || {
        let (mut tx, mut rx) = ring(tight());
        let sender = thread::spawn(move || {
            loop {
                match tx.send_with(8, None, |to| to.fill(1)) {
                    Ok(()) => {}
                    Err(SendError::PeerClosed) => return,
                    Err(e) => panic!("{e}"),
                }
            }
        });
        recv(&mut rx).unwrap();
        drop(rx);
        sender.join().unwrap();
    });
}

#[test]
fn the_sender_that_closes_first_sets_a_sleeping_receiver_free() {
    model(3, || {
        let (mut tx, mut rx) = ring(256);
        let receiver = thread::spawn(move || {
            let mut received = 0;
            while recv(&mut rx).is_ok() {
                received += 1;
            }
            received
        });
        send(&mut tx, 7);
        drop(tx);
        assert_eq!(receiver.join().unwrap(), 1, "messages sent before the close arrive");
    });
}

#[test]
fn looking_without_waiting_sees_whole_messages_only() {
    model(3, || {
        let (mut tx, mut rx) = ring(tight());
        let sender = thread::spawn(move || {
            let mut value = 0;
            while value < 6 {
                match tx.try_send_with(8, |to| to.copy_from_slice(&u64::to_ne_bytes(value))) {
                    Ok(()) => value += 1,
                    Err(SendError::Full) => thread::yield_now(),
                    Err(e) => panic!("{e}"),
                }
            }
        });
        let mut expected = 0;
        while expected < 6 {
            match rx.try_recv_with(8, |from| u64::from_ne_bytes(from.try_into().unwrap())) {
                Ok(value) => {
                    assert_eq!(value, expected);
                    expected += 1;
                }
                Err(RecvError::Empty) => thread::yield_now(),
                // The sender closes when it has sent everything.
                Err(e) => panic!("{e}"),
            }
        }
        sender.join().unwrap();
    });
}

#[test]
fn round_trips_over_two_rings_wake_both_sides() {
    model(2, || {
        let (mut tx, mut rx) = ring(tight());
        let (mut back_tx, mut back_rx) = ring(tight());
        let server = thread::spawn(move || {
            while let Ok(value) = recv(&mut rx) {
                send(&mut back_tx, value + 1);
            }
        });
        for value in 0..2 {
            send(&mut tx, value);
            assert_eq!(recv(&mut back_rx).unwrap(), value + 1);
        }
        drop(tx);
        server.join().unwrap();
    });
}
