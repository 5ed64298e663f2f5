//! The interleaved order: every round contains each case once, in a seeded random order, so that drift affects all
//! cases alike.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

use crate::case::Case;

/// The position of one trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Index of the case.
    pub case: usize,
    /// Number of the trial.
    pub trial: u32,
    /// Its position in the run.
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
