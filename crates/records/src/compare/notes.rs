//! Why a comparison is unclear, in words.

use crate::figure::Figure;
use crate::regimes::Regimes;
use crate::stats::TRIALS_AT_LEAST;

/// Why a figure has no interval. `figures` is the number of trials of A and of B that have this figure.
pub(super) fn too_few(figure: Figure, trials: [usize; 2], figures: [usize; 2]) -> String {
    let fewest = trials[0].min(trials[1]);
    if fewest < TRIALS_AT_LEAST {
        let are = if fewest == 1 { "trial is" } else { "trials are" };
        return format!("{fewest} {are} too few; run {TRIALS_AT_LEAST} or more");
    }
    if figure.percentile().is_some_and(|p| p.samples_needed() > 1) {
        let [a, b] = figures;
        return format!(
            "{a} of {} trials of A and {b} of {} of B have the 1,000 samples for a p99, too few to compare; raise \
             --measure-ms",
            trials[0], trials[1]
        );
    }
    let figures = figures[0].min(figures[1]);
    let have = if figures == 1 { "trial has" } else { "trials have" };
    format!("only {figures} {have} this figure, but {TRIALS_AT_LEAST} are needed")
}

/// The remark on virtual CPUs that moved, with the cache-line round trips of both sides.
pub(super) fn cpus_moved(before: f64, after: f64) -> String {
    format!(
        "the virtual CPUs were moved to other cores, or other programs used them (median cache-line round trip: \
         {before:.0} ns in A, {after:.0} ns in B); measure both again"
    )
}

/// The remark on a case that works in one of two ways, in A or in B.
pub(super) fn two_regimes(regimes: [Option<Regimes>; 2]) -> String {
    let side = |(name, regimes): (&str, Option<Regimes>)| {
        let found = regimes?;
        Some(format!(
            "{name} has two regimes ({} and {} trials, at least a factor of {:.1} apart): {}",
            found.low.trials,
            found.high.trials,
            found.high.min / found.low.max,
            found.difference()
        ))
    };
    let sides: Vec<String> = ["A", "B"].into_iter().zip(regimes).filter_map(side).collect();
    sides.join("; ")
}
