//! The figures of a candidate, and the verdicts on goals that follow from them.

use serde::Serialize;

use super::question::goal;
use crate::goals;
use crate::stats::{Interval, TRIALS_AT_LEAST, median, median_interval};

/// A candidate is not pursued if its first trials all exceed the limit of a goal by this factor, although fewer than
/// [`TRIALS_AT_LEAST`] trials leave the goal undecided.
const FAR_BEYOND: f64 = 3.0;
/// The text before a range or figure that contains maxima in place of percentiles.
const MAXIMA: &str = "trials with too few samples count with their largest sample: ";

/// A figure of a candidate: the median of its trials and an interval.
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

/// A number with three significant digits.
pub(super) struct Short(pub(super) f64);

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = (2 - self.0.abs().max(1e-9).log10().floor() as i32).clamp(0, 6) as usize;
        write!(f, "{:.digits$}", self.0)
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
    /// For a goal on the maximum: the largest value in all good trials, which alone decides. `None` for other goals, or
    /// without good trials.
    pub largest: Option<f64>,
    /// The median latencies of the trials, if `of_maxima`.
    pub medians: Option<Figure>,
    /// Whether the goal is met; `None` if the interval contains the limit, if there is no figure, or if there are fewer
    /// than [`TRIALS_AT_LEAST`] trials. Buffers need only one trial, since their size does not vary.
    pub met: Option<bool>,
    /// Whether fewer than [`TRIALS_AT_LEAST`] trials all exceed the limit by a factor of 3: the goal is undecided, but
    /// the candidate is not pursued.
    pub far_beyond: bool,
    /// Why `met` is `None`.
    pub open: Option<Open>,
}

/// Why the trials do not decide whether a goal is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Open {
    /// The figure was not measured.
    NotMeasured,
    /// There are fewer than [`TRIALS_AT_LEAST`] trials.
    FewTrials,
    /// The machine disturbed all trials.
    NoGoodTrial,
    /// The interval of the trials contains the limit.
    Straddles,
    /// Trials have too few samples for the percentile, and their largest samples exceed the limit.
    FewSamples,
}

impl GoalVerdict {
    pub(super) fn of(
        what: &str,
        most: f64,
        unit: &'static str,
        measured: Option<Figure>,
    ) -> GoalVerdict {
        let goal = goal(what, most, unit);
        // The size of buffers does not vary between trials.
        let few = |f: &Figure| f.n < TRIALS_AT_LEAST && unit != "bytes";
        let met = measured.and_then(|f| match f {
            f if few(&f) => None,
            f if f.high <= most => Some(true),
            f if f.low > most => Some(false),
            _ => None,
        });
        let open = match (met, measured) {
            (Some(_), _) => None,
            (None, None) => Some(Open::NotMeasured),
            (None, Some(f)) if f.n < TRIALS_AT_LEAST => Some(Open::FewTrials),
            (None, Some(_)) => Some(Open::Straddles),
        };
        let far_beyond = measured.is_some_and(|f| few(&f) && f.low > most * FAR_BEYOND);
        let (of_maxima, largest, medians) = (false, None, None);
        GoalVerdict {
            goal,
            measured,
            unit,
            most,
            of_maxima,
            largest,
            medians,
            met,
            far_beyond,
            open,
        }
    }

    /// Judges a goal on the maximum. `measured` summarises the maxima of the trials, and `good` contains the maxima of
    /// all good trials: as in plans, the goal is missed if a single one of these exceeds the limit.
    pub(super) fn of_largest(
        what: &str,
        most: f64,
        unit: &'static str,
        measured: Option<Figure>,
        good: &[f64],
    ) -> GoalVerdict {
        let verdict = GoalVerdict { far_beyond: false, ..Self::of(what, most, unit, measured) };
        let Some(largest) = good.iter().copied().reduce(f64::max) else {
            let open = measured.map_or(Open::NotMeasured, |_| Open::NoGoodTrial);
            return GoalVerdict { met: None, open: Some(open), ..verdict };
        };
        let trials = measured.map_or(0, |f| f.n).min(good.len());
        let (met, open) = match goals::of_maximum(largest, trials, most) {
            goals::GoalVerdict::Met => (Some(true), None),
            goals::GoalVerdict::Missed => (Some(false), None),
            goals::GoalVerdict::Undecided => (None, Some(Open::FewTrials)),
        };
        GoalVerdict { largest: Some(largest), met, open, ..verdict }
    }

    /// The verdict in words.
    pub fn words(&self) -> String {
        let Some(f) = self.measured else { return "undecided: not measured".to_owned() };
        let largest = if self.of_maxima { MAXIMA } else { "" };
        let trials = format!("{} {}", f.n, if f.n == 1 { "trial" } else { "trials" });
        let range = format!("{} to {} {}", Short(f.low), Short(f.high), self.unit);
        match (self.met, self.open) {
            (Some(true), _) => format!("met ({})", self.shown()),
            (Some(false), _) => format!("missed ({})", self.shown()),
            (None, Some(Open::NoGoodTrial)) => {
                format!("undecided: the machine disturbed all trials ({range})")
            }
            (None, Some(Open::FewSamples)) => format!(
                "undecided: some trials have too few samples for the percentile, and their largest samples exceed the \
                 goal ({range}); repeat the commands below with a larger --measure-ms"
            ),
            (None, Some(Open::FewTrials)) => format!("undecided: only {trials} ({largest}{range})"),
            (None, _) => {
                format!("undecided: the interval of {trials} contains the goal ({largest}{range})")
            }
        }
    }

    /// The figure that decides, in words: for a goal on the maximum, the largest value; if the goal is missed and
    /// maxima replace percentiles, the median latency, since maxima cannot show a miss; otherwise, the median of the
    /// trials.
    pub(super) fn shown(&self) -> String {
        let unit = self.unit;
        match (self.measured, self.largest, self.medians) {
            (None, ..) => "not measured".to_owned(),
            (_, Some(largest), _) => format!("{} {unit}", Short(largest)),
            (_, _, Some(medians)) if self.met == Some(false) => {
                format!("even the median is {} {unit}", Short(medians.median))
            }
            (Some(f), ..) if self.of_maxima => {
                format!("{MAXIMA}{} {unit}", Short(f.median))
            }
            (Some(f), ..) => format!("{} {unit}", Short(f.median)),
        }
    }

    /// Judges the same goal for a figure whose trials contain maxima in place of percentiles. `exact` summarises the
    /// percentiles of those trials that have enough samples, and `medians` the median latencies of the trials: the goal
    /// is missed only if even the median latencies exceed the limit.
    pub(super) fn of_maxima(
        mut self,
        exact: Option<Figure>,
        medians: Option<Figure>,
    ) -> GoalVerdict {
        self.of_maxima = true;
        self.medians = medians;
        if medians.is_none_or(|f| f.low <= self.most) {
            self.far_beyond = false;
            self.met = self.met.filter(|met| *met);
        }
        // More samples decide nothing where the trials with enough of them lie on both sides of the limit.
        let straddles = exact.is_some_and(|f| f.low <= self.most && f.high > self.most);
        self.open = match (self.met, straddles) {
            (Some(_), _) => None,
            (None, true) => self.open.or(Some(Open::Straddles)),
            (None, false) => Some(Open::FewSamples),
        };
        self
    }

    /// The measured figure as a multiple of the limit; 1 if nothing was measured.
    pub fn excess(&self) -> f64 {
        let medians = self.medians.filter(|_| self.met == Some(false)).map(|f| f.median);
        let figure = self.largest.or(medians).or(self.measured.map(|f| f.median));
        figure.map_or(1.0, |figure| figure / self.most)
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
            goal.of_maxima(None, figure(medians)).met
        };
        assert_eq!(GoalVerdict::of("p99", 500.0, "us", figure(4000.0)).met, Some(false));
        assert_eq!(met(4000.0, 30.0), None);
        assert_eq!(met(400.0, 30.0), Some(true));
        assert_eq!(met(4000.0, 600.0), Some(false));
        // What is shown is not the largest sample, which does not show a miss.
        let goal = GoalVerdict::of("p99", 500.0, "us", figure(4000.0));
        let words = goal.of_maxima(None, figure(600.0)).words();
        assert_eq!(words, "missed (even the median is 602 us)");
    }

    #[test]
    fn trials_on_both_sides_of_a_goal_leave_it_open_and_not_a_lack_of_samples() {
        // Two trials of seven lack samples; the other five lie on both sides of the goal.
        let exact = Figure::of(&[56.0, 80.0, 145.0, 723.0, 1277.0]);
        let all = Figure::of(&[56.0, 80.0, 145.0, 723.0, 1277.0, 900.0, 2000.0]);
        let goal =
            GoalVerdict::of("p99", 500.0, "us", all).of_maxima(exact, Figure::of(&[30.0; 7]));
        assert_eq!((goal.met, goal.open), (None, Some(Open::Straddles)));
        assert!(
            goal.words().contains("the interval of 7 trials contains the goal"),
            "{}",
            goal.words()
        );
        // All that have enough samples meet it.
        let exact = Figure::of(&[56.0, 80.0, 145.0, 123.0, 277.0]);
        let goal =
            GoalVerdict::of("p99", 500.0, "us", all).of_maxima(exact, Figure::of(&[30.0; 7]));
        assert_eq!(goal.open, Some(Open::FewSamples));
    }
}
