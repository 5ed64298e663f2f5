//! Tests of the sending end: which part of the ring an exchange uses, and that any mixture of messages arrives.

use std::sync::Arc;
use std::time::Duration;

use crossway_sys::OsError;
use crossway_sys::shm::{self, Mapping};

use crate::awaited::note_wait;
use crate::bell::Bell;
use crate::memory::RingMemory;
use crate::region::{Dimensions, Direction, SharedRing};
use crate::sync::{AtomicU32, Ordering};
use crate::{RingRx, RingTx, SendError, Wait};

struct NoBell;

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

type Ends = (RingTx<SharedRing, NoBell>, RingRx<SharedRing, NoBell>);

fn ring(max_message: usize, capacity: usize) -> Ends {
    let dimensions = Dimensions::choose(max_message, Some(capacity));
    let fd = shm::create_sealed("crossway-test", dimensions.memory_len()).unwrap();
    let end = || {
        let mapping = Arc::new(Mapping::of_pieces(&fd, &dimensions.pieces()).unwrap());
        SharedRing::new(mapping, dimensions, Direction::FromListener)
    };
    (RingTx::new(end(), NoBell, Wait::Spin), RingRx::new(end(), NoBell, Wait::Spin))
}

fn send(tx: &mut RingTx<SharedRing, NoBell>, len: usize, with: u8) -> Result<(), SendError> {
    tx.try_send_with(len, |to| to.fill(with))
}

fn take(rx: &mut RingRx<SharedRing, NoBell>, len: usize, with: u8) {
    rx.try_recv_with(usize::MAX, |from| {
        assert_eq!(from.len(), len);
        assert!(from.iter().all(|byte| *byte == with), "{len} bytes of {with}");
    })
    .unwrap();
}

/// How many bytes at the start of the ring were ever written to.
fn used(tx: &RingTx<SharedRing, NoBell>) -> usize {
    let memory = tx.memory();
    let words = (0..memory.capacity()).step_by(8).rev();
    words
        .filter(|at| memory.header(*at).load(Ordering::Relaxed) != 0)
        .map(|at| at + 8)
        .next()
        .unwrap_or(0)
}

/// How much of a ring of 1 MiB is used by messages of which none is sent before the last one was taken.
fn used_in_turns(len: usize, awaited: bool) -> usize {
    let (mut tx, mut rx) = ring(1 << 16, 1 << 20);
    for n in 0..40_000_u32 {
        if awaited {
            note_wait();
        }
        send(&mut tx, len, n as u8 | 1).unwrap();
        take(&mut rx, len, n as u8 | 1);
    }
    used(&tx)
}

#[test]
fn an_exchange_of_short_messages_stays_at_the_start_of_the_ring() {
    for len in [8, 64, 120, 256, 1024] {
        let used = used_in_turns(len, true);
        assert!(used <= 4096 + 1024, "{len}: {used}");
    }
    assert!(used_in_turns(4096, true) <= 3 * 4096);
}

#[test]
fn long_messages_and_streams_use_the_whole_ring() {
    assert!(used_in_turns(8192, true) > 1 << 19);
    assert!(used_in_turns(64, false) > 1 << 19);
}

/// Short messages that are awaited lie in pairs of lines of their own.
#[test]
fn an_awaited_message_shares_no_pair_of_lines() {
    let (mut tx, mut rx) = ring(256, 1 << 16);
    send(&mut tx, 16, 1).unwrap();
    for n in 1..10 {
        note_wait();
        send(&mut tx, 64, 2).unwrap();
        assert_eq!(tx.position(), n * 128);
    }
    send(&mut tx, 64, 3).unwrap();
    assert_eq!(tx.position(), 9 * 128 + 72);
    take(&mut rx, 16, 1);
    for _ in 1..10 {
        take(&mut rx, 64, 2);
    }
    take(&mut rx, 64, 3);
}

/// Fills and empties small rings in an order that looks random, with awaited messages among others: whatever fits by the
/// length of a plain record is accepted, and everything arrives.
#[test]
fn any_mixture_arrives_in_order_and_room_that_was_promised_is_there() {
    for capacity in [4096, 16384] {
        let (mut tx, mut rx) = ring(3000, capacity);
        let mut seed = 7_u64;
        let mut next = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        let mut waiting = std::collections::VecDeque::new();
        let (mut with, mut sent) = (0_u8, 0);
        while sent < 20_000 {
            if next(3) > 0 {
                let len = [next(16), 64, next(300), next(3000)][next(4)];
                let promised = next(8) == 0 && tx.ask_for_room(len).unwrap();
                if next(2) == 0 {
                    note_wait();
                }
                with = with.wrapping_add(1);
                match send(&mut tx, len, with) {
                    Ok(()) => {
                        waiting.push_back((len, with));
                        sent += 1;
                    }
                    Err(SendError::Full) => assert!(!promised && !waiting.is_empty()),
                    Err(e) => panic!("{e}"),
                }
            }
            for _ in 0..next(3) {
                if let Some((len, with)) = waiting.pop_front() {
                    take(&mut rx, len, with);
                }
            }
        }
    }
}

/// As after a process was killed between publishing a record and saying so.
#[test]
fn a_producer_that_takes_over_finds_the_end_of_any_record() {
    let (mut tx, mut rx) = ring(256, 1 << 16);
    for n in 0..200 {
        let (position, sequence) = (tx.position(), tx.sequence());
        if n % 3 > 0 {
            note_wait();
        }
        send(&mut tx, 64, 5).unwrap();
        let (end, count) = (tx.position(), tx.sequence());
        tx.resume_at(position, sequence);
        assert_eq!((tx.position(), tx.sequence()), (end, count));
        take(&mut rx, 64, 5);
    }
}
