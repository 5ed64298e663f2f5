//! The figures of a candidate, and the verdicts on goals that follow from them.

use serde::Serialize;

use super::question::goal;
use crate::stats::{Interval, TRIALS_AT_LEAST, median, median_interval};

/// A goal with fewer than [`TRIALS_AT_LEAST`] trials counts as missed only if all of the trials exceed the limit by
/// this factor.
const FAR_BEYOND: f64 = 3.0;

/// A figure of a candidate over its trials.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Number of trials.
    pub n: usize,
    /// Median of the trials.
    pub median: f64,
    /// Lower end of the 95 % interval of the median. With fewer than five trials, it is the smallest trial.
    pub low: f64,
    /// Upper end of the interval; with fewer than five trials, the largest trial.
    pub high: f64,
}

impl Figure {
    pub(super) fn of(figures: &[f64]) -> Option<Figure> {
        let Interval { low, high } = median_interval(figures, 0.95)?;
        Some(Figure { n: figures.len(), median: median(figures)?, low, high })
    }

    /// Whether the two intervals overlap.
    pub fn overlaps(&self, other: &Figure) -> bool {
        self.low <= other.high && other.low <= self.high
    }
}

/// The verdict on a goal for a candidate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GoalVerdict {
    /// The goal in words.
    pub goal: String,
    /// The figure, in the goal's unit.
    pub measured: Option<Figure>,
    /// The unit: `us`, `%` or `bytes`.
    pub unit: &'static str,
    /// The maximum allowed, in the goal's unit.
    pub most: f64,
    /// Whether `measured` contains maxima, from trials with too few samples for the percentile. Such maxima can show
    /// that the goal is met, but not that it is missed.
    pub of_maxima: bool,
    /// Whether the goal is met; `None` if the interval contains the limit, if there is no figure, or if fewer than
    /// [`TRIALS_AT_LEAST`] trials exceed the limit, but by less than a factor of 3.
    pub met: Option<bool>,
}

impl GoalVerdict {
    pub(super) fn of(
        what: &str,
        most: f64,
        unit: &'static str,
        measured: Option<Figure>,
    ) -> GoalVerdict {
        let goal = goal(what, most, unit);
        let met = measured.and_then(|f| match f {
            f if f.high <= most => Some(true),
            // A few first trials may all have met the machine busy; the size of buffers does not vary.
            f if f.n < TRIALS_AT_LEAST && unit != "bytes" && f.low <= most * FAR_BEYOND => None,
            f if f.low > most => Some(false),
            _ => None,
        });
        GoalVerdict { goal, measured, unit, most, of_maxima: false, met }
    }

    /// Judges the same goal for a figure whose trials contain maxima in place of percentiles. `medians` are the medians
    /// of the trials: the goal is missed only if even these exceed the limit.
    pub(super) fn of_maxima(mut self, medians: Option<Figure>) -> GoalVerdict {
        self.of_maxima = true;
        if self.met == Some(false) && medians.is_none_or(|f| f.low <= self.most) {
            self.met = None;
        }
        self
    }

    /// The measured figure as a multiple of the limit; 1 if nothing was measured.
    pub fn excess(&self) -> f64 {
        self.measured.map_or(1.0, |f| f.median / self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maxima_show_that_a_percentile_is_within_a_limit_but_not_that_it_exceeds_it() {
        let figure = |us: f64| Figure::of(&[us, us + 1.0, us + 2.0, us + 3.0, us + 4.0]);
        let met = |maxima: f64, medians: f64| {
            let goal = GoalVerdict::of("p99", 500.0, "us", figure(maxima));
            goal.of_maxima(figure(medians)).met
        };
        assert_eq!(GoalVerdict::of("p99", 500.0, "us", figure(4000.0)).met, Some(false));
        assert_eq!(met(4000.0, 30.0), None);
        assert_eq!(met(400.0, 30.0), Some(true));
        assert_eq!(met(4000.0, 600.0), Some(false));
    }
}
