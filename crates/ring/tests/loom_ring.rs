//! Model checks of the ring: loom tries every interleaving and every permitted reordering of small cases.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p crossway-ring --test loom_ring --release`
//!
//! A lost message, a torn read or an access to bytes that the other end has not released fails an assertion or loom's
//! own race check; a lost wake-up is a deadlock, which loom reports, since the model's sleep never times out.
#![cfg(loom)]
#![allow(unsafe_code)]

mod loom_memory;

use std::time::Duration;

use crossway_ring::layout::{ASLEEP, least_capacity};
use crossway_ring::{Bell, RingRx, RingTx};
use crossway_ring::{RecvError, SendError, Wait};
use crossway_sys::OsError;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use loom_memory::MAX;

/// Sleeping and waking: one lock per sleeper.
#[derive(Default)]
struct Sleepers {
    room: (Mutex<()>, Condvar),
    data: (Mutex<()>, Condvar),
}

type Memory = loom_memory::Memory<Sleepers>;

/// Sleeps on a lock where the real bell sleeps on a futex. The fences of `membarrier` are modelled by full fences on
/// both sides, which is their effect in the kernel.
struct ModelBell {
    memory: Memory,
    producer: bool,
}

impl ModelBell {
    fn place(&self, producer: bool) -> &(Mutex<()>, Condvar) {
        let sleepers = self.memory.extra();
        if producer { &sleepers.room } else { &sleepers.data }
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
    let memory = Memory::new(capacity, Sleepers::default());
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
            // Payload that does not look like a header, payload that looks like zero, and payload that looks like a
            // header.
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
    for messages in [6, 9] {
        model(2, move || {
            let (mut tx, mut rx) = ring(tight());
            let sender = thread::spawn(move || {
                for value in 0..messages {
                    send(&mut tx, value);
                }
            });
            for value in 0..messages {
                assert_eq!(recv(&mut rx).unwrap(), value);
            }
            assert!(matches!(recv(&mut rx), Err(RecvError::PeerClosed)));
            sender.join().unwrap();
        });
    }
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
