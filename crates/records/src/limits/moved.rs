//! Whether the hypervisor moved virtual CPUs to other cores, as judged by cache-line round trips.

use crate::stats;

/// Largest factor by which the cache-line round trip may differ between the readings before and after a trial, in
/// either direction. If it differs by more, the hypervisor must have moved the CPUs to other cores.
pub const MOVED_FACTOR: f64 = 1.5;

/// Whether the two readings around a trial differ by more than [`MOVED_FACTOR`], which shows that the hypervisor moved
/// the trial's CPUs to other cores. A reading of 0 shows nothing.
pub fn cores_moved(before_ns: f64, after_ns: f64) -> bool {
    before_ns > 0.0 && after_ns > 0.0 && {
        let ratio = after_ns / before_ns;
        !(1.0 / MOVED_FACTOR..=MOVED_FACTOR).contains(&ratio)
    }
}

/// Whether the readings before and after each trial of a case show that the hypervisor moved the CPUs between these
/// trials: both readings of a trial differ by more than [`MOVED_FACTOR`] from the median of all. A single odd reading
/// shows nothing.
pub fn cores_moved_between(readings_ns: &[(f64, f64)]) -> bool {
    let all: Vec<f64> = readings_ns.iter().flat_map(|(before, after)| [*before, *after]).collect();
    stats::median(&all).is_some_and(|usual| {
        let apart = |reading| cores_moved(usual, reading);
        readings_ns.iter().any(|(before, after)| apart(*before) && apart(*after))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moved_cores_are_reported_in_both_directions() {
        assert!(cores_moved(37.0, 184.0) && cores_moved(184.0, 37.0));
        assert!(!cores_moved(100.0, 120.0) && !cores_moved(0.0, 100.0));
    }
}
