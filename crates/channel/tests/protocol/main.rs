//! Tests of the switch protocol: every interleaving of small cases, and long random histories.

mod world;

use std::collections::HashSet;

use rand::RngExt;
use world::{Budget, Step, World};

/// Explores every reachable state; returns the number of states, and the number of final ones.
fn explore(budget: Budget) -> (usize, usize) {
    let start = World::new(budget);
    let mut seen = HashSet::from([start.clone()]);
    let (mut open, mut ends) = (vec![start], 0);
    while let Some(world) = open.pop() {
        let steps = world.steps();
        if steps.iter().all(|step| matches!(step, Step::Kill(_))) {
            world.check_end();
            ends += 1;
        }
        for step in steps {
            let mut next = world.clone();
            next.take(step);
            if !seen.contains(&next) {
                seen.insert(next.clone());
                open.push(next);
            }
        }
    }
    (seen.len(), ends)
}

const BUDGET: Budget =
    Budget { messages: [2, 2], switches: 2, refusals: true, kills: false, room: 4 };

#[test]
fn every_interleaving_of_two_switches_delivers_every_message_once_and_in_order() {
    let (states, ends) = explore(BUDGET);
    eprintln!("{states} states, {ends} ends");
    assert!(states > 10_000, "{states} states: the model does not move");
    // Final states: both switches made, one refused, both refused.
    assert!(ends >= 3, "{ends}");
}

#[test]
fn transports_with_room_for_one_item_do_not_block_a_switch() {
    let (states, _) = explore(Budget { messages: [3, 1], room: 1, ..BUDGET });
    eprintln!("{states} states");
}

#[test]
fn an_end_that_is_killed_in_any_state_leaves_a_prefix_to_the_other() {
    let budget = Budget { messages: [2, 1], switches: 2, kills: true, ..BUDGET };
    let (states, ends) = explore(budget);
    eprintln!("{states} states, {ends} ends");
    assert!(ends > 100, "{ends}: kills happen in many states");
}

/// Runs one long random history determined by the seed; returns the number of messages that each end received.
fn history(seed: u64) -> [u64; 2] {
    let mut random = rand_pcg::Pcg32::new(seed, 1);
    let kills = seed.is_multiple_of(2);
    let mut world = World::new(Budget {
        messages: [random.random_range(0..40), random.random_range(0..40)],
        switches: random.random_range(0..12),
        refusals: true,
        kills: false,
        room: random.random_range(1..8),
    });
    let fatal = random.random_range(0..400);
    // Each kind of step has its own speed in this history, so that some ends are slow and some connections delayed.
    let weights: [u32; 16] = std::array::from_fn(|_| 1 << random.random_range(0..8));
    let weight = |step: &Step| {
        let (kind, end) = match *step {
            Step::Send(i) => (0, i),
            Step::Receive(i) => (1, i),
            Step::Mark(i) => (2, i),
            Step::TxMoved(i) => (3, i),
            Step::RxMoved(i) => (4, i),
            Step::Control(i) => (5, i),
            Step::Opened(worked) => (6, usize::from(worked)),
            Step::Offer | Step::Kill(_) => (7, 0),
        };
        weights[2 * kind + end]
    };
    for count in 0.. {
        if kills && count == fatal {
            world.take(Step::Kill(random.random_range(0..2)));
        }
        let steps = world.steps();
        if steps.is_empty() {
            break;
        }
        let mut at = random.random_range(0..steps.iter().map(weight).sum());
        let chosen = steps.iter().find(|step| match at.checked_sub(weight(step)) {
            Some(rest) => {
                at = rest;
                false
            }
            None => true,
        });
        world.take(*chosen.expect("the weights add up"));
    }
    world.check_end()
}

#[test]
fn random_histories_with_delays_refusals_and_deaths_hold_too() {
    let seeds = std::env::var("CROSSWAY_SEEDS").map_or(20_000, |n| n.parse().expect("a number"));
    let mut received = [0; 2];
    for seed in 0..seeds {
        let outcome = std::panic::catch_unwind(|| history(seed));
        let Ok(got) = outcome else { panic!("seed {seed} fails") };
        received[0] += got[0];
        received[1] += got[1];
    }
    eprintln!("{seeds} seeds, {received:?} messages received");
    assert!(received.iter().all(|&n| n > seeds));
}
