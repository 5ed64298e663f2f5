//! Goals that a plan sets for its cases (`require = { p999_us = 100 }`), and whether the trials show that they are met.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::cases;
use crate::figure::Figure;
use crate::inputs::Workload;
pub use crate::inputs::{GoalFigure, Goals};
use crate::percentile::Percentile;
use crate::record::Record;
use crate::stats::{self, TRIALS_AT_LEAST};

impl GoalFigure {
    /// The figure of this workload's trials that is bounded. `None` if they do not have it:
    /// latencies exist only if messages are timed one by one.
    pub fn figure(self, workload: &Workload) -> Option<Figure> {
        let measure = workload.facts().measure;
        match self {
            GoalFigure::Latency(percentile) => Figure::latency(measure, percentile),
            GoalFigure::MsgsPerS => Some(Figure::MessageRate),
            GoalFigure::BytesPerS => Some(Figure::ByteRate),
            GoalFigure::CpuUsPerMsg => Some(Figure::cpu(measure)),
        }
    }

    /// The figure of one trial, in the goal's unit; `None` if the trial does not have it.
    pub fn of(self, record: &Record) -> Option<f64> {
        Some(self.figure(&record.inputs.workload)?.of(record)? / self.unit())
    }

    /// The unit of the bound, in the figure's own unit: a microsecond is 1000 ns.
    pub fn unit(self) -> f64 {
        match self {
            GoalFigure::Latency(_) | GoalFigure::CpuUsPerMsg => 1e3,
            GoalFigure::MsgsPerS | GoalFigure::BytesPerS => 1.0,
        }
    }

    /// How many samples a trial needs to have this figure.
    pub fn samples_needed(self) -> u64 {
        match self {
            GoalFigure::Latency(percentile) => percentile.samples_needed(),
            _ => 1,
        }
    }
}

/// Whether a goal is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GoalVerdict {
    /// The trials show that the goal is met.
    Met,
    /// The trials show that the goal is missed.
    Missed,
    /// The trials do not decide the goal, or there are none.
    Undecided,
}

impl GoalVerdict {
    /// Whether the goal is met; `None` if that is undecided.
    pub fn met(self) -> Option<bool> {
        match self {
            GoalVerdict::Met => Some(true),
            GoalVerdict::Missed => Some(false),
            GoalVerdict::Undecided => None,
        }
    }
}

/// The verdict on one goal of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GoalCall {
    /// The case's group.
    pub group: String,
    /// The case's id.
    pub case: String,
    /// The bounded figure.
    pub figure: GoalFigure,
    /// The bound, in the figure's unit.
    pub bound: f64,
    /// Median over the trials that count or, for the largest latency, their maximum; null if no
    /// trial has the figure.
    pub value: Option<f64>,
    /// Interval of the median; null with fewer than five trials, and for a maximum.
    pub interval: Option<(f64, f64)>,
    /// Number of trials that count and have the figure.
    pub trials: usize,
    /// Whether the goal is met.
    pub verdict: GoalVerdict,
    /// Why the goal is undecided, and what would decide it, or that it is missed because the trials did not achieve their
    /// rate; otherwise null.
    pub reason: Option<String>,
}

/// Judges all goals in the records, case by case in the order of the records.
///
/// A goal is met if the whole interval of the median over the trials that count satisfies the bound, missed if the
/// whole interval violates it, and undecided if the interval contains the bound or there are fewer than five trials. A
/// percentile for which more than one in ten trials have too few samples cannot be met, because these are the slow ones. A
/// maximum must hold in every trial that counts: a single one above the bound misses the goal. If the median trial did
/// not achieve the rate of the case, its goals are missed.
pub fn judge(records: &[Record]) -> Vec<GoalCall> {
    let mut calls = Vec::new();
    let mut seen = BTreeSet::new();
    for first in records.iter().filter(|r| !r.inputs.require.is_empty()) {
        if !seen.insert((&first.group, &first.case)) {
            continue;
        }
        let trials: Vec<&Record> =
            records.iter().filter(|r| r.group == first.group && r.case == first.case).collect();
        for (&figure, &bound) in &first.inputs.require.0 {
            calls.push(call(&trials, figure, bound));
        }
    }
    calls
}

/// Judges a goal on the maximum by the largest value of the good trials. The goal is missed if this value is above the
/// bound. It is met if the value is not above the bound and there are at least [`TRIALS_AT_LEAST`] good trials;
/// otherwise it is undecided.
pub fn of_maximum(largest: f64, good_trials: usize, bound: f64) -> GoalVerdict {
    match largest <= bound {
        false => GoalVerdict::Missed,
        true if good_trials >= TRIALS_AT_LEAST => GoalVerdict::Met,
        true => GoalVerdict::Undecided,
    }
}

/// Judges a goal by an interval from `low` to `high`: it is met if all of the interval satisfies
/// the bound, and missed if none of it does. `holds` says whether a value satisfies the bound.
pub fn of_interval((low, high): (f64, f64), holds: impl Fn(f64) -> bool) -> GoalVerdict {
    match [holds(low), holds(high)] {
        [true, true] => GoalVerdict::Met,
        [false, false] => GoalVerdict::Missed,
        _ => GoalVerdict::Undecided,
    }
}

fn call(trials: &[&Record], figure: GoalFigure, bound: f64) -> GoalCall {
    let good: Vec<&Record> = trials.iter().copied().filter(|r| cases::counts(r)).collect();
    let values: Vec<f64> = good.iter().filter_map(|r| figure.of(r)).collect();
    let worst = values
        .iter()
        .copied()
        .reduce(f64::max)
        .filter(|_| figure == GoalFigure::Latency(Percentile::Max));
    // In the same time, a slow trial has fewer samples: those with enough are the fast ones.
    let lacks_slow = figure.samples_needed() > 1 && stats::too_many_lack(values.len(), good.len());
    let interval = (values.len() >= TRIALS_AT_LEAST && worst.is_none())
        .then(|| stats::median_interval(&values, 0.95))
        .flatten()
        .map(|interval| (interval.low, interval.high));
    let holds = |value: f64| if figure.at_most() { value <= bound } else { value >= bound };
    let verdict = match (worst, interval) {
        (Some(worst), _) => of_maximum(worst, values.len(), bound),
        (None, Some(interval)) => match of_interval(interval, holds) {
            GoalVerdict::Met if lacks_slow => GoalVerdict::Undecided,
            verdict => verdict,
        },
        (None, None) => GoalVerdict::Undecided,
    };
    // What a case achieves at a lower rate is not what the goal asks for.
    let (verdict, reason) = match verdict {
        GoalVerdict::Missed if lacks_slow => {
            let why = format!(
                "also by the {} of {} trials that have enough samples",
                values.len(),
                good.len()
            );
            (verdict, Some(why))
        }
        GoalVerdict::Missed => (verdict, None),
        _ if !good.is_empty() && !cases::at_rate(&good) => {
            let missed = good.iter().filter(|r| cases::missed_rate(r)).count();
            let why = format!("{missed} of {} trials did not achieve the rate", good.len());
            (GoalVerdict::Missed, Some(why))
        }
        GoalVerdict::Met => (verdict, None),
        GoalVerdict::Undecided => {
            (verdict, Some(why_undecided(trials, good.len(), values.len(), figure)))
        }
    };
    // Figures of the fast trials would pass for those of all.
    let shown = !(lacks_slow && verdict == GoalVerdict::Undecided);
    GoalCall {
        group: trials[0].group.clone(),
        case: trials[0].case.clone(),
        figure,
        bound,
        value: worst.or_else(|| stats::median(&values)).filter(|_| shown),
        interval: interval.filter(|_| shown),
        trials: values.len(),
        verdict,
        reason,
    }
}

/// The message for a bound on a latency of a workload that records none, with the remedy.
pub fn without_latencies(workload: &Workload) -> String {
    format!(
        "the workload {} records no latencies, because its messages are not timed one by one; set a bound on \
         msgs_per_s, bytes_per_s or cpu_us_per_msg instead, or move this bound to a group with only ping-pong, \
         requests, paced or exchange",
        workload.word()
    )
}

fn why_undecided(trials: &[&Record], good: usize, have: usize, figure: GoalFigure) -> String {
    let needed = figure.samples_needed();
    let timed = |r: &&Record| cases::counts(r) && !r.latency_ns.is_empty();
    if good > have
        && !trials.iter().any(timed)
        && figure.at_most()
        && figure != GoalFigure::CpuUsPerMsg
    {
        let why = trials.iter().find_map(|r| r.nulls.get("latency_ns").cloned());
        return why.unwrap_or_else(|| without_latencies(&trials[0].inputs.workload));
    }
    if good > have && needed > 1 {
        return format!(
            "{} of {good} trials have too few samples: each needs {needed}; raise measure_ms",
            good - have
        );
    }
    if good > have {
        return "the trials do not have this figure".to_owned();
    }
    if have >= TRIALS_AT_LEAST {
        return "the interval contains the bound; more trials narrow it".to_owned();
    }
    let spoiled = trials.iter().find(|r| !cases::counts(r)).and_then(|r| r.reason.clone());
    let because = spoiled.map(|why| format!(" ({why})")).unwrap_or_default();
    match have {
        0 => format!("no good trial{because}"),
        n => format!("only {n} of the {TRIALS_AT_LEAST} required good trials{because}"),
    }
}

#[cfg(test)]
#[path = "goals_tests.rs"]
mod tests;
