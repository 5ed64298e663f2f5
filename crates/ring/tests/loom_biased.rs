//! Model checks of the lock that favours its owner: loom tries every interleaving and every
//! permitted reordering.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p crossway-ring --test loom_biased --release`
//!
//! Loom's cell reports when both sides access the value at the same time.
#![cfg(loom)]

use crossway_ring::biased::biased;
use loom::thread;

#[test]
fn owner_and_visitor_never_meet_and_see_what_the_other_did() {
    loom::model(|| {
        let (mut owner, visitor) = biased(0);
        let other = thread::spawn(move || {
            visitor.raise(1);
            visitor.try_visit(|value| *value += 10).is_some()
        });
        for _ in 0..2 {
            owner.with(|value, flags| {
                *value += 1;
                if flags.raised() == 1 {
                    flags.lower(1);
                }
            });
        }
        let visited = other.join().unwrap();
        owner.with(|value, _| assert_eq!(*value, if visited { 12 } else { 2 }));
    });
}

#[test]
fn two_visitors_take_turns() {
    loom::model(|| {
        let (mut owner, visitor) = biased(0);
        let second = visitor.clone();
        let other = thread::spawn(move || second.try_visit(|value| *value += 10).is_some());
        let first = visitor.try_visit(|value| *value += 10).is_some();
        owner.with(|value, _| *value += 1);
        let visits = i32::from(first) + i32::from(other.join().unwrap());
        owner.with(|value, _| assert_eq!(*value, 1 + 10 * visits));
    });
}
