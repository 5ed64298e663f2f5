//! Model checks of the bell and the shared receiving end: loom tries every interleaving and every permitted reordering of
//! small cases, with a consumer that is killed at any point.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p crossway-ring --test loom_doorbell --release`
//!
//! If a message waits while the socket does not poll readable, the model deadlocks, which loom reports, since the model's
//! poll never times out. A socket that polls readable without a message fails an assertion at the end.
#![cfg(loom)]
#![allow(unsafe_code)]

mod loom_doorbell_model;
mod loom_memory;

use std::convert::Infallible;

use crossway_ring::bell::Silent;
use crossway_ring::doorbell::{self, Bells, Presence, QUIET};
use crossway_ring::layout::least_capacity;
use crossway_ring::shared_rx::{ReceiverWords, SharedRx};
use crossway_ring::{RingMemory, RingTx, SendError, Wait};
use loom::sync::atomic::Ordering;
use loom::thread;
use loom_doorbell_model::Shared;
use loom_memory::MAX;

/// The consumer was killed.
#[derive(Debug)]
struct Dead;

/// A consumer's end of the socket. It is killed before step number `fuse`.
struct Socket<'a> {
    shared: &'a Shared,
    steps_left: std::cell::Cell<u32>,
}

impl Socket<'_> {
    fn step(&self) -> Result<(), Dead> {
        let left = self.steps_left.get();
        if left == 0 {
            return Err(Dead);
        }
        self.steps_left.set(left - 1);
        Ok(())
    }
}

impl Bells for Socket<'_> {
    type Error = Dead;

    fn presence(&self) -> Result<Presence, Dead> {
        self.step()?;
        Ok(self.shared.look(|queue| match (queue.bells, queue.ended) {
            (0, true) => Presence::End,
            (0, false) => Presence::Nothing,
            _ => Presence::Bell,
        }))
    }

    fn eat(&self) -> Result<(), Dead> {
        self.step()?;
        self.shared.queue(|queue| {
            queue.bells = queue.bells.checked_sub(1).expect("a bell is there when it is eaten");
        });
        self.shared.bells_eaten().fetch_add(1, Ordering::Relaxed);
        // The consumer may also be killed after removing the bell.
        self.step()
    }

    fn ring_is_empty(&self) -> Result<bool, Dead> {
        self.step()?;
        let head = self.shared.head().load(Ordering::Acquire) as usize;
        Ok(self.shared.header(head % self.shared.capacity()).load(Ordering::Acquire) == 0)
    }
}

/// Wakes a producer that waits for room, unless the consumer is killed before.
fn make_room_known(shared: &Shared, socket: &Socket<'_>) {
    shared.queue(|queue| match socket.step() {
        Ok(()) => queue.room = true,
        Err(Dead) => queue.orphaned = true,
    });
}

/// A program's receiving call: returns one message, or `None` at the end.
fn receive(shared: &Shared, fuse: u32) -> Result<Option<u64>, Dead> {
    let rx = SharedRx::new(shared.clone(), shared.clone());
    let socket = Socket { shared, steps_left: std::cell::Cell::new(fuse) };
    let mut waited = None;
    loop {
        {
            let guard = shared.extra().turn.lock().unwrap();
            let mut turn = rx.turn(guard);
            if shared.look(|queue| std::mem::take(&mut queue.orphaned)) {
                turn.settle(&socket, || make_room_known(shared, &socket))?;
            }
            let outcome = attempt(shared, &mut turn, &socket, waited);
            if outcome.is_err() {
                shared.look(|queue| queue.orphaned = true);
            }
            match outcome? {
                Attempt::Took(value) => return Ok(Some(value)),
                Attempt::Ended => return Ok(None),
                Attempt::Nothing => waited = Some(turn.bells_eaten()),
            }
        }
        shared.poll(|queue| queue.bells > 0 || queue.ended);
    }
}

enum Attempt {
    Took(u64),
    Nothing,
    Ended,
}

fn attempt<G>(
    shared: &Shared,
    turn: &mut crossway_ring::shared_rx::Turn<'_, Shared, Shared, G>,
    socket: &Socket<'_>,
    waited: Option<u32>,
) -> Result<Attempt, Dead> {
    if let Some(front) = turn.front().unwrap() {
        let seen = waited == Some(turn.bells_eaten());
        if !turn.is_heard(seen, socket)? {
            return Ok(Attempt::Nothing);
        }
        let value = turn.with(&front, |bytes| u64::from_ne_bytes(bytes.try_into().unwrap()));
        turn.take(&front);
        if turn.is_empty() {
            // The message was taken and is delivered, whether or not its receiver survives.
            turn.emptied(socket, || make_room_known(shared, socket)).unwrap_or_else(|Dead| {
                shared.look(|queue| queue.orphaned = true);
            });
        } else {
            turn.wake_producer(|| make_room_known(shared, socket));
        }
        return Ok(Attempt::Took(value));
    }
    turn.emptied(socket, || make_room_known(shared, socket))?;
    if waited.is_some() {
        match socket.presence()? {
            Presence::Bell if turn.is_empty() => {
                turn.eat_stray(socket)?;
            }
            Presence::End if turn.is_empty() => return Ok(Attempt::Ended),
            _ => {}
        }
    }
    Ok(Attempt::Nothing)
}

const FOREVER: u32 = u32::MAX;

fn ring(shared: &Shared, tx: &mut RingTx<Shared, Silent>) {
    let Ok(_) = doorbell::announce(
        shared.bell(),
        || tx.freed().unwrap() == tx.position(),
        || {
            shared.queue(|queue| queue.bells += 1);
            Ok::<_, Infallible>(())
        },
    );
}

/// The part of tipcd: publishes batches of messages and announces each once; then ends.
fn produce(shared: &Shared, batches: &[u64]) {
    let mut tx = RingTx::new(shared.clone(), Silent, Wait::Block);
    let mut value = 0;
    for batch in batches {
        for _ in 0..*batch {
            loop {
                match tx.try_send_with(8, |to| to.copy_from_slice(&u64::to_ne_bytes(value))) {
                    Ok(()) => break,
                    Err(SendError::Full) => {
                        ring(shared, &mut tx);
                        if !tx.ask_for_room(8).unwrap() {
                            shared.poll(|queue| queue.room);
                        }
                        shared.look(|queue| queue.room = false);
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            value += 1;
        }
        ring(shared, &mut tx);
    }
}

/// Asserts that nothing remains that would wake a consumer.
fn assert_quiet(shared: &Shared) {
    assert_eq!(shared.bell().load(Ordering::SeqCst), QUIET);
    assert_eq!(shared.look(|queue| queue.bells), 0, "the socket polls readable without a message");
}

fn model(preemptions: usize, case: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 50_000;
    builder.check(case);
}

#[test]
fn each_batch_is_noticed_and_no_bell_is_superfluous() {
    model(3, || {
        let shared = Shared::with_socket(256);
        let tipcd = {
            let shared = shared.clone();
            thread::spawn(move || produce(&shared, &[1, 2, 1]))
        };
        for value in 0..4 {
            assert_eq!(receive(&shared, FOREVER).unwrap(), Some(value));
        }
        tipcd.join().unwrap();
        assert_quiet(&shared);
    });
}

#[test]
fn a_full_ring_goes_on_when_the_consumer_made_room() {
    model(2, || {
        let shared = Shared::with_socket(least_capacity(MAX, 8));
        let tipcd = {
            let shared = shared.clone();
            thread::spawn(move || produce(&shared, &[5]))
        };
        for value in 0..5 {
            assert_eq!(receive(&shared, FOREVER).unwrap(), Some(value));
        }
        tipcd.join().unwrap();
        assert_quiet(&shared);
    });
}

#[test]
fn two_consumers_share_what_comes_and_both_hear_the_end() {
    model(2, || {
        let shared = Shared::with_socket(256);
        let tipcd = {
            let shared = shared.clone();
            thread::spawn(move || {
                produce(&shared, &[1, 2]);
                shared.queue(|queue| queue.ended = true);
            })
        };
        let consume = |shared: Shared| {
            move || {
                let mut got = Vec::new();
                while let Some(value) = receive(&shared, FOREVER).unwrap() {
                    got.push(value);
                }
                got
            }
        };
        let other = thread::spawn(consume(shared.clone()));
        let mut got = consume(shared.clone())();
        assert!(got.is_sorted());
        got.extend(other.join().unwrap());
        got.sort_unstable();
        assert_eq!(got, [0, 1, 2]);
        tipcd.join().unwrap();
    });
}

#[test]
fn a_consumer_killed_anywhere_leaves_everything_to_the_next() {
    // A receiving call that finds one message and empties the ring takes fewer steps than this.
    for fuse in 0..6 {
        model(3, move || {
            let shared = Shared::with_socket(256);
            let tipcd = {
                let shared = shared.clone();
                thread::spawn(move || produce(&shared, &[1, 1]))
            };
            // The killed consumer has taken at most one message, which is lost.
            let first = receive(&shared, fuse).unwrap_or(None).map_or(0, |value| value + 1);
            for value in first..2 {
                assert_eq!(receive(&shared, FOREVER).unwrap(), Some(value));
            }
            tipcd.join().unwrap();
            // A stray bell may remain: the consumer that it wakes removes only this bell.
            if shared.look(|queue| queue.bells) > 0 {
                let shared_too = shared.clone();
                let waiter = thread::spawn(move || receive(&shared_too, FOREVER).unwrap());
                shared.poll(|queue| queue.bells == 0);
                shared.queue(|queue| queue.ended = true);
                assert_eq!(waiter.join().unwrap(), None);
            }
            assert_quiet(&shared);
        });
    }
}

#[test]
fn a_consumer_killed_anywhere_leaves_no_producer_waiting_for_room() {
    for fuse in 0..6 {
        model(2, move || {
            let shared = Shared::with_socket(least_capacity(MAX, 8));
            let tipcd = {
                let shared = shared.clone();
                thread::spawn(move || produce(&shared, &[4]))
            };
            let first = receive(&shared, fuse).unwrap_or(None).map_or(0, |value| value + 1);
            for value in first..4 {
                assert_eq!(receive(&shared, FOREVER).unwrap(), Some(value));
            }
            tipcd.join().unwrap();
        });
    }
}
