//! The lock that favours its owner, in a process whose threads end.
#![cfg(not(loom))]

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, Ordering};

use crossway_ring::biased::biased;
use crossway_sys::affinity;

/// How many threads end on the owner's CPU, and how often a visitor tries to enter after each.
const ENDS: usize = 1000;
const VISITS: usize = 100;
/// The owner's stores to memory that is in no cache. Its next store waits for them; what it loads then does not.
const STORES: usize = 20;
const COLD: usize = 64 << 20;

/// The value is only right if nobody else changes it between the two accesses.
fn count(value: &mut u64, pause: usize) {
    let before = black_box(*value);
    (0..pause).for_each(|_| spin_loop());
    *value = black_box(before + 1);
}

/// When a thread ends, Linux forgets that its CPU takes part in the fences between processes.
#[test]
fn owner_and_visitor_never_meet_on_a_cpu_on_which_a_thread_has_ended() {
    let cpus = affinity::allowed().unwrap();
    let &[visitors, .., owners] = &cpus[..] else {
        return eprintln!("SKIP: there is one CPU; remedy: run this with two");
    };
    let (mut owner, visitor) = biased(0);
    let over = AtomicBool::new(false);
    let (turns, visits) = std::thread::scope(|scope| {
        let turns = scope.spawn(|| {
            affinity::pin(owners).unwrap();
            let mut cold = vec![1_u8; COLD];
            let (mut turns, mut place) = (0, 1_usize);
            while !over.load(Ordering::Relaxed) {
                for _ in 0..STORES {
                    place = place.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    cold[(place >> 20) % COLD] = 2;
                }
                owner.with(|value, _| count(value, 20));
                turns += 1;
            }
            black_box(cold);
            turns
        });
        affinity::pin(visitors).unwrap();
        let mut visits = 0;
        for _ in 0..ENDS {
            scope.spawn(|| affinity::pin(owners).unwrap()).join().unwrap();
            let entered =
                (0..VISITS).filter(|_| visitor.try_visit(|value| count(value, 20)).is_some());
            visits += entered.count() as u64;
        }
        over.store(true, Ordering::Relaxed);
        (turns.join().unwrap(), visits)
    });
    assert!(visits > 0, "the owner was always inside");
    assert_eq!(visitor.try_visit(|value| *value), Some(turns + visits));
}
