//! Detects cases whose trials fall into two groups, far apart: the mechanism works in one of two ways, and chance decides
//! in which. A median of such trials only says which group has more of them, so the case has no single figure and no
//! rank.

use serde::Serialize;

use crate::awake::sleeps_per_msg;
use crate::figure::Figure;
use crate::percentile::Percentile;
use crate::record::Record;
use crate::sorting::SortSmall;
use crate::stats;

/// The two groups are at least this factor apart: the smallest figure of one is this many times the largest of the
/// other.
const APART: f64 = 2.0;

/// Each group has at least this many trials. A single trial far from the others is an outlier.
const TRIALS: usize = 2;

/// What differs between the groups is named if it differs by at least this factor.
const DIFFERENT: f64 = 1.5;

/// A group of trials with similar figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Regime {
    /// Number of trials.
    pub trials: usize,
    /// Smallest figure of these trials.
    pub min: f64,
    /// Largest figure.
    pub max: f64,
    /// Median number of times that the ends slept per message; null if it was not counted.
    pub sleeps_per_msg: Option<f64>,
    /// Median CPU time of all roles per message, nanoseconds; null if it was not measured.
    pub cpu_ns_per_msg: Option<f64>,
}

/// A case whose trials fall into two groups.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Regimes {
    /// The figure by which the trials were divided.
    pub speed: Figure,
    /// The group with the smaller figures.
    pub low: Regime,
    /// The group with the larger figures.
    pub high: Regime,
}

impl Regimes {
    /// Divides these trials of one case, which all count; `None` if they do not fall into two groups. They do if the
    /// interval of their median reaches across a gap between two groups ([`gap`]): the median of the next trials may then
    /// lie in either of them.
    pub fn of(trials: &[&Record]) -> Option<Regimes> {
        let measure = trials.first()?.inputs.workload.facts().measure;
        let speed = Figure::speed(measure, Percentile::P50);
        let mut by_figure: Vec<(f64, &Record)> = trials
            .iter()
            .filter_map(|r| Some((speed.of(r).filter(|x| x.is_finite() && *x > 0.0)?, *r)))
            .collect();
        by_figure.sort_small_by(|a, b| a.0.total_cmp(&b.0));
        let figures: Vec<f64> = by_figure.iter().map(|(figure, _)| *figure).collect();
        let (low, high) = by_figure.split_at(gap(&figures)?);
        Some(Regimes { speed, low: Regime::of(low)?, high: Regime::of(high)? })
    }

    /// What differs between the groups, in words: `its ends slept 2.0 and 0.010 times per message`.
    pub fn difference(&self) -> String {
        let differ = |get: fn(&Regime) -> Option<f64>| {
            let (low, high) = (get(&self.low)?, get(&self.high)?);
            (low.max(high) > DIFFERENT * low.min(high)).then_some((low, high))
        };
        let sleeps = differ(|r| r.sleeps_per_msg).map(|(low, high)| {
            format!("its ends slept {} and {} times per message", two_digits(low), two_digits(high))
        });
        let cpu = || {
            let (low, high) = differ(|r| r.cpu_ns_per_msg)?;
            Some(format!(
                "it took {} and {} ns of CPU time per message",
                two_digits(low),
                two_digits(high)
            ))
        };
        sleeps
            .or_else(cpu)
            .unwrap_or_else(|| "neither sleeps nor CPU time per message tell them apart".to_owned())
    }
}

/// Where trials fall into two groups: the number of trials in the lower one; `None` if they do not. `figures` are one
/// positive figure per trial, in ascending order.
pub fn gap(figures: &[f64]) -> Option<usize> {
    if !stats::enough(figures) {
        return None;
    }
    let interval = stats::median_interval(figures, 0.95)?;
    let factor = |at: usize| figures[at] / figures[at - 1];
    (TRIALS..=figures.len() - TRIALS)
        .filter(|at| interval.contains(figures[at - 1]) && interval.contains(figures[*at]))
        .max_by(|a, b| factor(*a).total_cmp(&factor(*b)))
        .filter(|at| factor(*at) >= APART)
}

impl Regime {
    /// Summarises trials in ascending order of their figures.
    fn of(trials: &[(f64, &Record)]) -> Option<Regime> {
        let median = |get: fn(&Record) -> Option<f64>| {
            stats::median(&trials.iter().filter_map(|(_, r)| get(r)).collect::<Vec<_>>())
        };
        Some(Regime {
            trials: trials.len(),
            min: trials.first()?.0,
            max: trials.last()?.0,
            sleeps_per_msg: median(sleeps_per_msg),
            cpu_ns_per_msg: median(|r| Some(r.cost?.cpu_ns_per_msg)),
        })
    }
}

/// A number with two significant digits, without an exponent.
fn two_digits(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return "0".to_owned();
    }
    let digits = 1 - number.abs().log10().floor() as i32;
    let step = 10f64.powi(digits);
    format!("{:.*}", digits.max(0) as usize, (number * step).round() / step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn regimes(p50s_ns: &[u64]) -> Option<(usize, usize)> {
        let records = samples::trials("uring-tcp", 64, p50s_ns, 1.0);
        let found = Regimes::of(&records.iter().collect::<Vec<_>>())?;
        Some((found.low.trials, found.high.trials))
    }

    #[test]
    fn trials_far_apart_on_both_sides_of_the_median_have_no_single_figure() {
        // uring-tcp one way in kB/s, once five trials by number and five by time.
        assert_eq!(regimes(&[180, 5_300, 9_300, 38_000, 73_700]), Some((3, 2)));
        assert_eq!(regimes(&[1000, 1010, 4000, 4100, 4200]), Some((2, 3)));
        assert_eq!(regimes(&[1000, 1010, 1020, 1900, 1950]), None, "less than a factor of two");
        assert_eq!(regimes(&[1000, 1010, 1020, 1030, 9000]), None, "an outlier");
        assert_eq!(regimes(&[1000, 1010, 4000, 4100]), None, "too few trials");
        // Beyond the interval of the median, two slow trials of many change nothing.
        let mut many = [1000; 25];
        many[23..].fill(9000);
        assert_eq!(regimes(&many), None);
        many[14..].fill(9000);
        assert_eq!(regimes(&many), Some((14, 11)));
    }

    #[test]
    fn what_differs_is_named() {
        let mut records = samples::trials("shm", 64, &[1000, 1010, 1020, 4000, 4100], 700.0);
        for record in &mut records[3..] {
            record.roles.iter_mut().for_each(|role| role.switches_voluntary = 11);
        }
        let words = |records: &[Record]| {
            Regimes::of(&records.iter().collect::<Vec<_>>()).expect("two").difference()
        };
        assert_eq!(words(&records), "its ends slept 2.0 and 0.022 times per message");
        records.iter_mut().for_each(|r| r.roles.clear());
        assert!(words(&records).starts_with("neither"), "{}", words(&records));
        records[3..].iter_mut().flat_map(|r| &mut r.cost).for_each(|c| c.cpu_ns_per_msg = 1500.0);
        assert_eq!(words(&records), "it took 700 and 1500 ns of CPU time per message");
    }
}
