//! Trials of two ways to carry a flow, compared round by round.
//!
//! Two programs that take turns run on one CPU or on two, as the kernel decides, which stays with
//! that for seconds. With two, each message wakes a CPU, and an exchange takes several times as
//! long. So trials are made with both, and how long the program's own exchange takes says how often
//! it ran on one CPU. What counts for it is the mean: it runs for long, and through both.

use std::collections::{BTreeMap, BTreeSet};

use crossway_records::sorting::CollectTree;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crossway_records::cases::{counts, stolen};
use crossway_records::inputs::{Placement, Wait};
use crossway_records::record::{Record, Status};
use crossway_records::stats::{Interval, quantile};

/// Confidence of the intervals.
const LEVEL: f64 = 0.95;
/// Number of resamples.
const RESAMPLES: usize = 4_000;
/// Seed of the resampling, so that the same trials give the same interval.
const SEED: u64 = 0x7265_706c_6179;

/// How the ends of a channel wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// As the mechanism does by itself, which is asleep if it can.
    Natural,
    /// They look for a moment before they sleep.
    Look,
    /// They never sleep.
    Spin,
}

impl Ends {
    pub(super) fn of(record: &Record) -> Self {
        match record.inputs.wait {
            Wait::Spin => Ends::Spin,
            Wait::Hybrid { .. } => Ends::Look,
            _ => Ends::Natural,
        }
    }
}

/// The trials of a mechanism, by whether the ends were on one CPU, and by round. Trials in the same
/// round are made one after the other.
pub(super) type Rounds<'r> = BTreeMap<(bool, u32), &'r Record>;

/// The trials of a mechanism that can be compared.
pub(super) fn by_round<'r>(records: &'r [Record], id: &str, ends: Ends) -> Rounds<'r> {
    let these = |r: &&Record| r.mechanism == id && compares(r) && Ends::of(r) == ends;
    let key = |r: &Record| (r.inputs.placement == Placement::SameCore, r.inputs.trial);
    records.iter().filter(these).map(|r| (key(r), r)).collect_tree()
}

/// Whether a trial can be compared with others. A replay that differs from its recording can: all
/// mechanisms replay the same, and it may be the recorder that made the recording differ from the
/// program.
fn compares(record: &Record) -> bool {
    let disturbed = record.calibration.cores_moved() || stolen(record).is_some();
    counts(record) || (record.status == Status::Degraded && record.replay.is_some() && !disturbed)
}

/// A figure of two cases, in the rounds in which both have it.
pub(super) fn in_pairs(
    [a, b]: &[Rounds<'_>; 2],
    figure: impl Fn(&Record) -> Option<f64>,
) -> Vec<[f64; 2]> {
    a.iter().filter_map(|(round, record)| Some([figure(record)?, figure(b.get(round)?)?])).collect()
}

/// What an exchange takes in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Times {
    /// Before the change, with the ends on one CPU.
    was_together: f64,
    /// With the ends on two CPUs.
    was_apart: f64,
    /// The same after the change.
    is_together: f64,
    is_apart: f64,
}

impl Times {
    /// Of each round in which both cases have a time. Where a mechanism was measured with one
    /// placement only, its time is the same with both.
    pub(super) fn of([a, b]: &[Rounds<'_>; 2], ns: impl Fn(&Record) -> Option<f64>) -> Vec<Times> {
        let numbers: BTreeSet<u32> = a.keys().map(|(_, number)| *number).collect_tree();
        let both = |rounds: &Rounds<'_>, number| {
            let [together, apart] =
                [true, false].map(|one| rounds.get(&(one, number)).and_then(|record| ns(record)));
            together.or(apart).zip(apart.or(together))
        };
        let of = |number| {
            let (was_together, was_apart) = both(a, number)?;
            let (is_together, is_apart) = both(b, number)?;
            Some(Times { was_together, was_apart, is_together, is_apart })
        };
        numbers.into_iter().filter_map(of).collect()
    }

    /// What an exchange takes before and after the change in a program in which it takes
    /// `exchange_ns`: this says how often its ends are on one CPU, and the change leaves that as it
    /// is.
    fn in_program(self, exchange_ns: f64) -> (f64, f64) {
        let wider = self.was_apart - self.was_together;
        let together = (self.was_apart - exchange_ns) / wider;
        let together = if wider > 0.0 { together.clamp(0.0, 1.0) } else { 0.0 };
        let mean = |one: f64, two: f64| together * one + (1.0 - together) * two;
        (mean(self.was_together, self.was_apart), mean(self.is_together, self.is_apart))
    }
}

/// The interval of what follows from the times before and after a change in a program whose
/// exchange takes `exchange_ns`.
pub(super) fn in_program(
    rounds: &[Times],
    exchange_ns: f64,
    follows: impl Fn(f64, f64) -> f64,
) -> Option<Interval> {
    let rounds: Vec<[f64; 4]> =
        rounds.iter().map(|t| [t.was_together, t.was_apart, t.is_together, t.is_apart]).collect();
    interval(&rounds, |[was_together, was_apart, is_together, is_apart]| {
        let means = Times { was_together, was_apart, is_together, is_apart };
        let (was, is) = means.in_program(exchange_ns);
        follows(was, is)
    })
}

/// The interval of what follows from the means, from resampling the rounds; `None` without rounds.
pub(super) fn interval<const N: usize>(
    rounds: &[[f64; N]],
    follows: impl Fn([f64; N]) -> f64,
) -> Option<Interval> {
    let count = rounds.len();
    if count == 0 {
        return None;
    }
    let mut random = Pcg64Mcg::seed_from_u64(SEED);
    let all: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let mut sums = [0.0; N];
            for _ in 0..count {
                let round = rounds[random.random_range(0..count)];
                sums.iter_mut().zip(round).for_each(|(sum, figure)| *sum += figure);
            }
            follows(sums.map(|sum| sum / count as f64))
        })
        .collect();
    let at = |q: f64| quantile(&all, q);
    Some(Interval { low: at((1.0 - LEVEL) / 2.0)?, high: at((1.0 + LEVEL) / 2.0)? })
}

/// The interval that contains both.
pub(super) fn around(a: Interval, b: Interval) -> Interval {
    Interval { low: a.low.min(b.low), high: a.high.max(b.high) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_means_and_not_of_the_more_frequent_group() {
        // In two rounds of five on one CPU, after the change in three.
        let rounds = [[20.0, 15.0], [100.0, 15.0], [100.0, 75.0], [20.0, 15.0], [100.0, 75.0]];
        let less = interval(&rounds, |[was, is]| 1.0 - is / was).unwrap();
        let of_means = 1.0 - 39.0 / 68.0;
        assert!(less.low < of_means && of_means < less.high, "{less:?}");
        assert!(less.low >= 0.249 && less.high < 0.75, "{less:?}");
        assert_eq!(interval(&rounds, |[was, is]| 1.0 - is / was), Some(less), "always the same");
        let [one, ..] = rounds;
        let single = interval(&[one], |[was, is]| was - is).unwrap();
        assert_eq!(single, Interval { low: 5.0, high: 5.0 });
        assert_eq!(interval::<2>(&[], |[was, is]| was - is), None);
    }

    #[test]
    fn the_time_of_the_programs_exchange_says_how_often_its_ends_were_on_one_cpu() {
        let times =
            Times { was_together: 20.0, was_apart: 100.0, is_together: 10.0, is_apart: 95.0 };
        for (exchange, was, is) in [
            // Always on one CPU, and even faster than in the trials.
            (10.0, 20.0, 10.0),
            (20.0, 20.0, 10.0),
            // In half of the exchanges.
            (60.0, 60.0, 52.5),
            // On two, with more work in between than in the trials.
            (300.0, 100.0, 95.0),
        ] {
            assert_eq!(times.in_program(exchange), (was, is), "{exchange}");
        }
        // A mechanism that spins was only measured on two.
        let same = Times { was_together: 20.0, was_apart: 100.0, is_together: 1.0, is_apart: 1.0 };
        assert_eq!(same.in_program(60.0), (60.0, 1.0));
        let equal =
            Times { was_together: 50.0, was_apart: 50.0, is_together: 40.0, is_apart: 40.0 };
        assert_eq!(equal.in_program(60.0), (50.0, 40.0));
    }
}
