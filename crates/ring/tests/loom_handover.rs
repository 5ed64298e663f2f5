//! Model checks of two producers of one ring: loom tries every interleaving and every permitted reordering of small
//! cases.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p crossway-ring --test loom_handover --release`
//!
//! If both producers use the ring at the same time, it is damaged or loses a message, and loom reports two writes to
//! one place.
#![cfg(loom)]
#![allow(unsafe_code)]

#[allow(dead_code)] // the ends share nothing else by it
mod loom_memory;

use std::collections::VecDeque;

use crossway_ring::bell::Silent;
use crossway_ring::handover::{self, Words};
use crossway_ring::{RecvError, RingRx, RingTx, Wait};
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

type Shared = loom_memory::Memory<()>;

/// What owner and helper share besides the ring.
#[derive(Default)]
struct Between {
    busy: AtomicU64,
    passed: AtomicU64,
    tail: AtomicU64,
    sequence: AtomicU64,
    /// Number of messages passed to the helper.
    count: AtomicU64,
    /// The messages that were passed to the helper and that it has not published yet.
    queue: Mutex<VecDeque<u64>>,
}

impl Words for Between {
    fn busy(&self) -> &AtomicU64 {
        &self.busy
    }
    fn passed(&self) -> &AtomicU64 {
        &self.passed
    }
    fn tail(&self) -> &AtomicU64 {
        &self.tail
    }
    fn sequence(&self) -> &AtomicU64 {
        &self.sequence
    }
}

fn publish(tx: &mut RingTx<Shared, Silent>, value: u64) {
    tx.try_send_with(8, |to| to.copy_from_slice(&value.to_ne_bytes())).unwrap();
}

/// Passes a message to the helper.
fn pass(between: &Between, value: u64) {
    between.count.fetch_add(1, Ordering::SeqCst);
    between.queue.lock().unwrap().push_back(value);
}

/// Sends a message directly if possible, otherwise passes it to the helper. Returns whether it was sent directly.
fn send(between: &Between, tx: &mut RingTx<Shared, Silent>, value: u64) -> bool {
    let Some(turn) = handover::enter(between, || between.count.load(Ordering::SeqCst)) else {
        pass(between, value);
        return false;
    };
    handover::resume(between, tx);
    publish(tx, value);
    handover::leave(between, tx);
    drop(turn);
    true
}

/// Plays the helper: publishes the messages that are passed to it, until their number is `most` or the queue is empty.
fn help(between: &Between, tx: &mut RingTx<Shared, Silent>, most: u64) {
    let mut done = between.passed.load(Ordering::SeqCst);
    while done < most {
        let Some(value) = between.queue.lock().unwrap().pop_front() else { return };
        while !handover::is_free(between) {
            thread::yield_now();
        }
        handover::take_over(between, tx);
        publish(tx, value);
        handover::leave(between, tx);
        done += 1;
        if between.queue.lock().unwrap().is_empty() {
            between.passed.store(done, Ordering::SeqCst);
        }
    }
}

fn received(shared: &Shared) -> Vec<u64> {
    let mut rx = RingRx::new(shared.clone(), Silent, Wait::Block);
    let mut got = Vec::new();
    loop {
        match rx.try_recv_with(8, |bytes| u64::from_ne_bytes(bytes.try_into().unwrap())) {
            Ok(value) => got.push(value),
            Err(RecvError::Damaged(what)) => panic!("{what}"),
            Err(_) => return got,
        }
    }
}

fn check(preemptions: usize, case: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 50_000;
    builder.check(case);
}

/// A message was passed; the owner sends two more while the helper is at work: they arrive in the order in which they
/// were sent.
#[test]
fn nothing_overtakes_what_was_passed() {
    check(3, || {
        let (shared, between) = (Shared::new(256, ()), Arc::new(Between::default()));
        pass(&between, 0);
        let helper = {
            let (shared, between) = (shared.clone(), between.clone());
            thread::spawn(move || {
                let mut tx = RingTx::new(shared, Silent, Wait::Block);
                help(&between, &mut tx, 3);
                tx.disown();
            })
        };
        let mut tx = RingTx::new(shared.clone(), Silent, Wait::Block);
        send(&between, &mut tx, 1);
        send(&between, &mut tx, 2);
        helper.join().unwrap();
        // What was passed after the helper had looked for the last time.
        help(&between, &mut tx, 3);
        tx.disown();
        assert_eq!(received(&shared), [0, 1, 2]);
    });
}

/// Another sender, which only passes messages, sends at the same time: no message is lost, and each sender's messages
/// arrive in order.
#[test]
fn a_sender_that_only_passes_does_not_bring_both_to_the_ring() {
    check(2, || {
        let (shared, between) = (Shared::new(256, ()), Arc::new(Between::default()));
        let helper = {
            let (shared, between) = (shared.clone(), between.clone());
            thread::spawn(move || {
                pass(&between, 10);
                let mut tx = RingTx::new(shared, Silent, Wait::Block);
                help(&between, &mut tx, 3);
                tx.disown();
            })
        };
        let mut tx = RingTx::new(shared.clone(), Silent, Wait::Block);
        send(&between, &mut tx, 1);
        send(&between, &mut tx, 2);
        helper.join().unwrap();
        help(&between, &mut tx, 3);
        tx.disown();
        let mut got = received(&shared);
        assert!(got.iter().position(|v| *v == 1) < got.iter().position(|v| *v == 2), "{got:?}");
        got.sort_unstable();
        assert_eq!(got, [1, 2, 10]);
    });
}

/// The owner is killed after it has published and before it has stored its position.
#[test]
fn a_record_of_a_killed_owner_is_found() {
    check(3, || {
        let (shared, between) = (Shared::new(256, ()), Arc::new(Between::default()));
        let mut tx = RingTx::new(shared.clone(), Silent, Wait::Block);
        send(&between, &mut tx, 0);
        let turn = handover::enter(&*between, || 0).unwrap();
        handover::resume(&*between, &mut tx);
        publish(&mut tx, 1);
        std::mem::forget(turn);
        tx.disown();
        let mut helper = RingTx::new(shared.clone(), Silent, Wait::Block);
        handover::take_over(&*between, &mut helper);
        publish(&mut helper, 2);
        helper.disown();
        assert_eq!(received(&shared), [0, 1, 2]);
    });
}
