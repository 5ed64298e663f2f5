//! The interleaved order of trials: every round contains each case once, in a seeded random order, so that drift
//! affects all cases alike.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

use crate::case::Case;

/// One trial in the order of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Index of the case in the list of cases.
    pub case: usize,
    /// Number of the trial within its case, from 0.
    pub trial: u32,
    /// The trial's position in the order of the run, from 0.
    pub order: u32,
}

/// Returns the order of all trials. Within a round, the cases with the same background load stay together, since
/// starting a load takes longer than a trial; the order of the loads is random, too.
pub(super) fn interleave(cases: &[Case], seed: u64) -> Vec<Slot> {
    let mut random = Pcg64::seed_from_u64(seed);
    let rounds = cases.iter().map(|c| c.inputs.trials).max().unwrap_or(0);
    let mut slots = Vec::new();
    for trial in 0..rounds {
        let mut loads = Vec::new();
        for case in cases {
            if !loads.contains(&case.inputs.load) {
                loads.push(case.inputs.load);
            }
        }
        loads.shuffle(&mut random);
        for load in loads {
            let mut round: Vec<usize> = (0..cases.len())
                .filter(|&at| cases[at].inputs.load == load && trial < cases[at].inputs.trials)
                .collect();
            round.shuffle(&mut random);
            slots.extend(round.into_iter().map(|case| Slot { case, trial, order: 0 }));
        }
    }
    for (order, slot) in slots.iter_mut().enumerate() {
        slot.order = order as u32;
    }
    slots
}

/// Returns one additional trial for each entry of `again`. An entry is the index of a case, and an index may occur
/// several times. These trials come after all others, and their numbers continue after the last one of the plan.
pub(super) fn repeats(cases: &[Case], again: &[usize], first_order: u32) -> Vec<Slot> {
    let slot = |(at, &case): (usize, &usize)| {
        let before = again[..at].iter().filter(|earlier| **earlier == case).count();
        Slot {
            case,
            trial: cases[case].inputs.trials + before as u32,
            order: first_order + at as u32,
        }
    };
    again.iter().enumerate().map(slot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_trials_are_numbered_after_those_of_the_plan() {
        let plan = crate::plan::Plan::parse(
            "test",
            "test.toml",
            "[group.g]\nmechanisms = [\"pipe\", \"fifo\"]\nworkload = \"ping-pong\"\nsize_bytes = 64\ntrials = 5\n",
        )
        .unwrap();
        let topology = crossway_sys::topology::Topology::read().unwrap();
        let cases = crate::case::expand(&plan, &topology, &[]);
        let all = interleave(&cases, 1);
        let further = repeats(&cases, &[1, 0, 1], all.len() as u32);
        let of = |slot: &Slot| (slot.case, slot.trial, slot.order);
        assert_eq!(
            further.iter().map(of).collect::<Vec<_>>(),
            [(1, 5, 10), (0, 5, 11), (1, 6, 12)]
        );
        assert!(further.iter().all(|slot| !all.contains(slot)));
    }
}
