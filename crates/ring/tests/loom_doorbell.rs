//! Model checks of the bell and the shared receiving end: loom tries every interleaving and every permitted reordering
//! of small cases, with a consumer that is killed at any point.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p crossway-ring --test loom_doorbell --release`
//!
//! If a message waits while the socket does not poll readable, the model deadlocks, because its poll never times out;
//! loom reports that. A socket that polls readable without a message fails an assertion at the end.
#![cfg(loom)]
#![allow(unsafe_code)]

mod loom_doorbell_model;
mod loom_memory;

use crossway_ring::doorbell::{QUIET, RUNG};
use crossway_ring::layout::least_capacity;
use crossway_ring::shared_rx::ReceiverWords;
use loom::sync::atomic::Ordering;
use loom::thread;
use loom_doorbell_model::{Shared, Waits, produce, receive};
use loom_memory::MAX;

const FOREVER: u32 = u32::MAX;

/// Asserts that nothing remains that would wake a consumer.
fn assert_quiet(shared: &Shared) {
    assert_eq!(shared.bell().load(Ordering::SeqCst), QUIET);
    assert_eq!(shared.look(|queue| queue.bells), 0, "the socket polls readable without a message");
}

/// Removes the stray bells that may remain: the consumer that such a bell wakes removes only this bell.
fn remove_strays(shared: &Shared) {
    if shared.look(|queue| queue.bells) > 0 {
        let shared_too = shared.clone();
        let waiter = thread::spawn(move || receive(&shared_too, Waits::Polls, FOREVER).unwrap());
        shared.poll(|queue| queue.bells == 0);
        shared.queue(|queue| queue.ended = true);
        assert_eq!(waiter.join().unwrap(), None);
    }
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
            assert_eq!(receive(&shared, Waits::Polls, FOREVER).unwrap(), Some(value));
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
            assert_eq!(receive(&shared, Waits::Polls, FOREVER).unwrap(), Some(value));
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
                while let Some(value) = receive(&shared, Waits::Polls, FOREVER).unwrap() {
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
            let first =
                receive(&shared, Waits::Polls, fuse).unwrap_or(None).map_or(0, |value| value + 1);
            for value in first..2 {
                assert_eq!(receive(&shared, Waits::Polls, FOREVER).unwrap(), Some(value));
            }
            tipcd.join().unwrap();
            remove_strays(&shared);
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
            let first =
                receive(&shared, Waits::Polls, fuse).unwrap_or(None).map_or(0, |value| value + 1);
            for value in first..4 {
                assert_eq!(receive(&shared, Waits::Polls, FOREVER).unwrap(), Some(value));
            }
            tipcd.join().unwrap();
        });
    }
}

/// The ways of waiting by receiving bells: for a message of any length, spinning first, and for less than a message.
const WAYS: [Waits; 3] = [Waits::Receives(MAX), Waits::Spins, Waits::Receives(1)];

#[test]
fn a_consumer_may_wait_by_receiving_the_bell_and_none_is_left() {
    for waits in WAYS {
        model(2, move || {
            let shared = Shared::with_socket(256);
            let tipcd = {
                let shared = shared.clone();
                thread::spawn(move || produce(&shared, &[1, 2, 1]))
            };
            for value in 0..4 {
                assert_eq!(receive(&shared, waits, FOREVER).unwrap(), Some(value));
            }
            tipcd.join().unwrap();
            if waits != Waits::Receives(1) {
                return assert_quiet(&shared);
            }
            // The second bell may have come after the message was taken under the first.
            let waiter = {
                let shared = shared.clone();
                thread::spawn(move || receive(&shared, waits, FOREVER).unwrap())
            };
            shared.poll(|queue| queue.bells == 0);
            shared.queue(|queue| queue.ended = true);
            assert_eq!(waiter.join().unwrap(), None);
            assert_quiet(&shared);
        });
    }
}

/// A consumer that waited by receiving a bell takes one message; all other messages are announced to all, in batches
/// and one by one.
#[test]
fn what_a_waiting_consumer_leaves_is_announced_to_all() {
    let cases = [&[2][..], &[1, 1], &[1, 2]];
    for (batches, waits) in cases.into_iter().flat_map(|b| [(b, WAYS[0]), (b, WAYS[1])]) {
        model(3, move || {
            let shared = Shared::with_socket(256);
            let tipcd = {
                let shared = shared.clone();
                thread::spawn(move || produce(&shared, batches))
            };
            assert_eq!(receive(&shared, waits, FOREVER).unwrap(), Some(0));
            for value in 1..batches.iter().sum() {
                shared.poll(|queue| queue.bells > 0);
                assert_eq!(receive(&shared, Waits::Polls, FOREVER).unwrap(), Some(value));
            }
            tipcd.join().unwrap();
        });
    }
}

#[test]
fn a_consumer_may_stop_waiting_at_any_time() {
    for batches in [&[1, 1][..], &[2, 1], &[1, 2]] {
        model(3, move || {
            let shared = Shared::with_socket(256);
            let tipcd = {
                let shared = shared.clone();
                thread::spawn(move || produce(&shared, batches))
            };
            for value in 0..batches.iter().sum() {
                assert_eq!(receive(&shared, Waits::GivesUp, FOREVER).unwrap(), Some(value));
            }
            tipcd.join().unwrap();
            // The last bell may have come after its message was taken under an earlier one, but no bell is a stray.
            let is_rung = shared.bell().load(Ordering::SeqCst) == RUNG;
            assert_eq!(shared.look(|queue| queue.bells), u32::from(is_rung));
            remove_strays(&shared);
            assert_quiet(&shared);
        });
    }
}

#[test]
fn a_consumer_that_polls_and_one_that_receives_bells_share_what_comes() {
    WAYS.into_iter().for_each(share);
}

fn share(waits: Waits) {
    model(2, move || {
        let shared = Shared::with_socket(256);
        let tipcd = {
            let shared = shared.clone();
            thread::spawn(move || {
                produce(&shared, &[1, 1]);
                shared.queue(|queue| queue.ended = true);
            })
        };
        let consume = |shared: Shared, waits| {
            move || {
                let mut got = Vec::new();
                while let Some(value) = receive(&shared, waits, FOREVER).unwrap() {
                    got.push(value);
                }
                got
            }
        };
        let other = thread::spawn(consume(shared.clone(), waits));
        let mut got = consume(shared.clone(), Waits::Polls)();
        assert!(got.is_sorted());
        got.extend(other.join().unwrap());
        got.sort_unstable();
        assert_eq!(got, [0, 1]);
        tipcd.join().unwrap();
    });
}

#[test]
fn a_waiting_consumer_killed_anywhere_leaves_everything_to_the_next() {
    for fuse in 0..9 {
        model(3, move || {
            let shared = Shared::with_socket(256);
            let tipcd = {
                let shared = shared.clone();
                thread::spawn(move || produce(&shared, &[1, 1]))
            };
            let first = receive(&shared, Waits::Receives(MAX), fuse);
            let first = first.unwrap_or(None).map_or(0, |value| value + 1);
            for value in first..2 {
                assert_eq!(receive(&shared, Waits::Polls, FOREVER).unwrap(), Some(value));
            }
            tipcd.join().unwrap();
            remove_strays(&shared);
        });
    }
}

/// A consumer that does not wait either takes the message, or leaves it to the one that waits for the bell.
#[test]
fn a_consumer_that_looks_in_does_not_take_the_bell_of_one_that_waits() {
    WAYS.into_iter().for_each(look_in);
}

fn look_in(waits: Waits) {
    model(3, move || {
        let shared = Shared::with_socket(256);
        let tipcd = {
            let shared = shared.clone();
            thread::spawn(move || produce(&shared, &[1]))
        };
        let waiter = {
            let shared = shared.clone();
            thread::spawn(move || receive(&shared, waits, FOREVER).unwrap())
        };
        let took = receive(&shared, Waits::Never, FOREVER).unwrap();
        if took.is_some() {
            tipcd.join().unwrap();
            shared.queue(|queue| queue.ended = true);
            assert_eq!((took, waiter.join().unwrap()), (Some(0), None));
        } else {
            assert_eq!(waiter.join().unwrap(), Some(0));
        }
    });
}
