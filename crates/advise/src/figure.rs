//! The figures of a candidate, and the verdicts on goals that follow from them.

use serde::Serialize;

use super::question::goal;
use crossway_records::goals;
use crossway_records::stats::{self, Estimate, TRIALS_AT_LEAST};

/// A candidate is not pursued if all of its first trials exceed a goal's limit by this factor, even though fewer than
/// [`TRIALS_AT_LEAST`] trials leave the goal itself undecided.
const FAR_BEYOND: f64 = 3.0;
/// The text before a range or figure that contains maxima in place of percentiles.
const MAXIMA: &str = "trials with too few samples count with their largest sample: ";

/// A number with three significant digits.
pub(super) struct Short(pub(super) f64);

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = (2 - self.0.abs().max(1e-9).log10().floor() as i32).clamp(0, 6) as usize;
        write!(f, "{:.digits$}", self.0)
    }
}

/// A goal as judged for a candidate, and from what: `met` is what `crossway_records::goals` says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JudgedGoal {
    /// The goal in words.
    pub goal: String,
    /// The figure, in the goal's unit.
    pub measured: Option<Estimate>,
    /// The unit: `us`, `%` or `bytes`.
    pub unit: &'static str,
    /// The maximum allowed, in the goal's unit.
    pub most: f64,
    /// Whether `measured` contains the maxima of trials with too few samples for the percentile. Maxima can show that
    /// the goal is met, but not that it is missed. False if enough trials have enough samples: `measured` then
    /// summarises only these trials.
    pub of_maxima: bool,
    /// The trials with too few samples for the percentile; `None` if there are none.
    pub lacking: Option<Lacking>,
    /// For a goal on the maximum: the largest value in all good trials, which alone decides. `None` for other goals, or
    /// without good trials.
    pub largest: Option<f64>,
    /// The median latencies of the trials if `of_maxima`, otherwise `None`.
    pub medians: Option<Estimate>,
    /// Whether the goal is met; `None` if the trials do not decide that, for the reason in `open`. Buffers need only
    /// one trial, since their size does not vary.
    pub met: Option<bool>,
    /// Whether there are fewer than [`TRIALS_AT_LEAST`] trials and all of them exceed 3 times the limit: the goal is
    /// undecided, but the candidate is not pursued.
    pub far_beyond: bool,
    /// The smallest percentile in microseconds of the trials that have enough samples, if at least three of them do, and
    /// none of at least [`TRIALS_AT_LEAST`] trials, with or without enough samples, shows that the goal is met. The goal
    /// is undecided, but the candidate is not pursued.
    pub none_meets_from: Option<f64>,
    /// Whether the goal is missed by a percentile alone: the median latencies are within the limit, so that trials with too
    /// few samples would have left the goal undecided.
    pub by_samples: bool,
    /// Why `met` is `None`.
    pub open: Option<Open>,
}

/// Minimum number of trials with enough samples from which [`JudgedGoal::none_meets_from`] is concluded.
const SHOWN_BY: usize = 3;

/// The trials with too few samples for a percentile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lacking {
    /// Number of these trials.
    pub trials: usize,
    /// Number of all trials.
    pub of: usize,
    /// The smallest and the largest percentile of the other trials, in the goal's unit; `None` if there are none.
    pub others: Option<(f64, f64)>,
    /// Number of these trials whose largest sample exceeds the limit.
    pub beyond: usize,
    /// Largest number of samples of these trials.
    pub samples: u64,
    /// Largest share of these trials whose largest sample would exceed the limit if the percentile were within it: with
    /// 80 samples, 55 % for a p99.
    pub expected: f64,
    /// Number of samples that a trial needs for the percentile.
    pub needed: u64,
    /// A length of the measured part of trials, milliseconds, with which they very probably have enough samples;
    /// `None` if their length is a number of messages.
    pub measure_ms: Option<u64>,
}

/// A percentile within the limit is excluded if it would give as many largest samples beyond the limit with a
/// probability below this.
const IMPROBABLE: f64 = 0.01;

impl Lacking {
    /// Whether more largest samples exceed the limit than chance allows if the percentile were within it. Samples that
    /// resemble their neighbours exceed it in fewer trials than independent ones, so this errs towards false.
    fn excludes(&self) -> bool {
        self.trials >= TRIALS_AT_LEAST
            && stats::binomial_tail(self.trials, self.beyond, self.expected) < IMPROBABLE
    }
}

/// The latencies from which a goal on a percentile is judged, in the goal's unit.
#[derive(Clone, Debug, Default)]
pub(super) struct Percentiles {
    /// The percentiles of all trials that have enough samples.
    pub(super) exact: Vec<f64>,
    /// The largest samples of the trials that have too few.
    pub(super) maxima: Vec<f64>,
    /// The median latencies of all trials.
    pub(super) medians: Vec<f64>,
    /// The largest number of samples of the trials that have too few.
    pub(super) samples: u64,
    /// Number of samples that a trial needs for the percentile.
    pub(super) needed: u64,
    /// See [`Lacking::measure_ms`].
    pub(super) measure_ms: Option<u64>,
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
    /// Too many trials have too few samples for the percentile, and largest samples exceed the limit.
    FewSamples,
}

impl JudgedGoal {
    pub(super) fn of(
        what: &str,
        most: f64,
        unit: &'static str,
        measured: Option<Estimate>,
    ) -> JudgedGoal {
        let goal = goal(what, most, unit);
        // The size of buffers does not vary between trials.
        let few = |f: &Estimate| f.n < TRIALS_AT_LEAST && unit != "bytes";
        let met = measured.and_then(|f| match f {
            f if few(&f) => None,
            f => goals::of_interval((f.low, f.high), |value| value <= most).met(),
        });
        let open = match (met, measured) {
            (Some(_), _) => None,
            (None, None) => Some(Open::NotMeasured),
            (None, Some(f)) if f.n < TRIALS_AT_LEAST => Some(Open::FewTrials),
            (None, Some(_)) => Some(Open::Straddles),
        };
        let far_beyond = measured.is_some_and(|f| few(&f) && f.low > most * FAR_BEYOND);
        let (of_maxima, lacking, largest, medians) = (false, None, None, None);
        JudgedGoal {
            goal,
            measured,
            unit,
            most,
            of_maxima,
            lacking,
            largest,
            medians,
            met,
            far_beyond,
            none_meets_from: None,
            by_samples: false,
            open,
        }
    }

    /// Judges a goal on the maximum. `measured` summarises the maxima of the trials, and `good` contains the maximum of
    /// each good trial. As in plans, the goal is missed if a single maximum in `good` exceeds the limit.
    pub(super) fn of_largest(
        what: &str,
        most: f64,
        unit: &'static str,
        measured: Option<Estimate>,
        good: &[f64],
    ) -> JudgedGoal {
        let verdict = JudgedGoal { far_beyond: false, ..Self::of(what, most, unit, measured) };
        let Some(largest) = good.iter().copied().reduce(f64::max) else {
            let open = measured.map_or(Open::NotMeasured, |_| Open::NoGoodTrial);
            return JudgedGoal { met: None, open: Some(open), ..verdict };
        };
        let trials = measured.map_or(0, |f| f.n).min(good.len());
        let met = goals::of_maximum(largest, trials, most).met();
        let open = met.is_none().then_some(Open::FewTrials);
        JudgedGoal { largest: Some(largest), met, open, ..verdict }
    }

    /// The verdict in words.
    pub fn words(&self) -> String {
        let Some(f) = self.measured else { return "undecided: not measured".to_owned() };
        // Trials that do not count.
        let left_out = match self.lacking.filter(|_| !self.of_maxima) {
            Some(l) => {
                format!("; {} of {} trials have too few samples and do not count", l.trials, l.of)
            }
            None => String::new(),
        };
        let largest = if self.of_maxima { MAXIMA } else { "" };
        let trials = format!("{} {}", f.n, if f.n == 1 { "trial" } else { "trials" });
        let range = format!("{} to {} {}", Short(f.low), Short(f.high), self.unit);
        match (self.met, self.open) {
            (Some(true), _) => format!("met ({}{left_out})", self.shown()),
            (Some(false), _) => format!("missed ({}{left_out})", self.shown()),
            (None, Some(Open::NoGoodTrial)) => {
                format!("undecided: the machine disturbed all trials ({range})")
            }
            (None, Some(Open::FewSamples)) => self.few_samples(),
            (None, Some(Open::FewTrials)) => format!("undecided: only {trials} ({largest}{range})"),
            (None, _) => {
                format!(
                    "undecided: the interval of {trials} contains the goal ({largest}{range}{left_out})"
                )
            }
        }
    }

    /// Says in words that the trials have too few samples, and what would decide the goal.
    fn few_samples(&self) -> String {
        let Some(l) = self.lacking else { return "undecided: too few samples".to_owned() };
        let how_many = match l.of - l.trials {
            0 => format!("each of the {} trials has", l.of),
            _ if l.trials == 1 => format!("1 of {} trials has", l.of),
            _ => format!("{} of {} trials have", l.trials, l.of),
        };
        let beyond = match l.beyond {
            1 => "in 1 of these, the largest sample exceeds the goal".to_owned(),
            n => format!("in {n} of these, the largest sample exceeds the goal"),
        };
        let unit = self.unit;
        let others = match l.others {
            Some((low, high)) if low == high => format!("; the other has {} {unit}", Short(low)),
            Some((low, high)) => {
                format!("; the others have {} to {} {unit}", Short(low), Short(high))
            }
            None => String::new(),
        };
        let length = match l.measure_ms {
            Some(ms) => format!("--measure-ms {ms}"),
            None => "a larger --measure-ms".to_owned(),
        };
        format!(
            "undecided: {how_many} fewer than the {} samples that this percentile needs, and {beyond}{others}; \
             ask again with more --time, or repeat the commands below with {length} and then ask \
             with --no-measure",
            l.needed
        )
    }

    /// Whether only trials with more samples can decide the goal.
    pub(super) fn lacks_samples(&self) -> bool {
        self.open == Some(Open::FewSamples)
    }

    /// The length of trials, milliseconds, that would decide the goal; `None` if longer trials would not.
    pub(super) fn longer_ms(&self) -> Option<u64> {
        self.lacking.filter(|_| self.lacks_samples())?.measure_ms
    }

    /// The figure that decides the goal, in words. For a goal on the maximum, it is the largest value. If the goal is
    /// missed and maxima replace percentiles, it is the median latency, since maxima cannot show a miss. Otherwise, it
    /// is the median of the trials.
    pub(super) fn shown(&self) -> String {
        let unit = self.unit;
        match (self.measured, self.largest, self.medians) {
            (None, ..) => "not measured".to_owned(),
            (_, Some(largest), _) => format!("{} {unit}", Short(largest)),
            (_, _, Some(medians)) if self.met == Some(false) => match self.lacking {
                Some(l) if medians.low <= self.most => format!(
                    "the largest sample exceeds it in {} of {} trials of at most {} samples; with a percentile within \
                     it, at most {:.0} % would",
                    l.beyond,
                    l.trials,
                    l.samples,
                    l.expected * 100.0
                ),
                _ => format!("even the median is {} {unit}", Short(medians.value)),
            },
            (Some(f), ..) if self.of_maxima => {
                format!("{MAXIMA}{} {unit}", Short(f.value))
            }
            (Some(f), ..) => format!("{} {unit}", Short(f.value)),
        }
    }

    /// Judges a goal on a percentile. If at least [`TRIALS_AT_LEAST`] trials have enough samples for the percentile,
    /// these alone count. Otherwise, the largest samples take the place of the missing percentiles. These maxima can
    /// show that the goal is met; the goal is missed only if even the median latencies exceed the limit, or if more
    /// maxima exceed it than chance allows.
    pub(super) fn of_percentiles(
        what: &str,
        most: f64,
        unit: &'static str,
        latencies: &Percentiles,
    ) -> JudgedGoal {
        let Percentiles { exact, maxima, medians, samples, needed, measure_ms } = latencies;
        let lacking = (!maxima.is_empty()).then(|| Lacking {
            trials: maxima.len(),
            of: exact.len() + maxima.len(),
            others: stats::sorted(exact).and_then(|e| Some((*e.first()?, *e.last()?))),
            beyond: maxima.iter().filter(|largest| **largest > most).count(),
            samples: *samples,
            // A percentile needs ten samples beyond it.
            expected: 1.0 - (1.0 - 10.0 / *needed as f64).powf(*samples as f64),
            needed: *needed,
            measure_ms: *measure_ms,
        });
        let medians = Estimate::of(medians);
        if lacking.is_none() || stats::enough(exact) {
            let verdict = Self::of(what, most, unit, Estimate::of(exact));
            let within = medians.is_some_and(|f| f.low <= most);
            let by_samples = verdict.met == Some(false) && *needed > 1 && within;
            return JudgedGoal { lacking, by_samples, ..verdict };
        }
        let all: Vec<f64> = exact.iter().chain(maxima).copied().collect();
        let mut verdict = Self::of(what, most, unit, Estimate::of(&all));
        if medians.is_none_or(|f| f.low <= most) {
            verdict.far_beyond = false;
            verdict.met = verdict.met.filter(|met| *met);
            if lacking.is_some_and(|l| l.excludes()) {
                verdict.met = Some(false);
            }
        }
        verdict.open = match (verdict.met, verdict.open) {
            (Some(_), _) => None,
            (None, Some(few)) if all.len() < TRIALS_AT_LEAST => Some(few),
            (None, _) => Some(Open::FewSamples),
        };
        let least = exact.iter().copied().fold(f64::INFINITY, f64::min);
        let enough = exact.len() >= SHOWN_BY && all.len() >= TRIALS_AT_LEAST;
        let none_meets = enough && verdict.met.is_none() && all.iter().all(|us| *us > most);
        let none_meets_from = none_meets.then_some(least);
        JudgedGoal { of_maxima: true, lacking, medians, none_meets_from, ..verdict }
    }

    /// The figure that decides the goal, as a multiple of the limit; 1 if nothing was measured.
    pub fn excess(&self) -> f64 {
        let medians = self.medians.filter(|_| self.met == Some(false)).map(|f| f.value);
        let figure = self.largest.or(medians).or(self.measured.map(|f| f.value));
        figure.map_or(1.0, |figure| figure / self.most)
    }
}

#[cfg(test)]
mod tests;
