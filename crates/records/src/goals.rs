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
        (None, Some((low, high))) if holds(low) && holds(high) && !lacks_slow => GoalVerdict::Met,
        (None, Some((low, high))) if !holds(low) && !holds(high) => GoalVerdict::Missed,
        _ => GoalVerdict::Undecided,
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
mod tests {
    use super::*;
    use crate::record::Status;
    use crate::samples;

    fn judged(p50s_ns: &[u64], require: &[(GoalFigure, f64)]) -> Vec<GoalCall> {
        let mut records = samples::trials("pipe", 64, p50s_ns, 1000.0);
        for record in &mut records {
            record.inputs.require = Goals(require.iter().copied().collect());
        }
        judge(&records)
    }

    fn verdict(p50s_ns: &[u64], figure: GoalFigure, bound: f64) -> GoalVerdict {
        judged(p50s_ns, &[(figure, bound)])[0].verdict
    }

    const FIVE: [u64; 5] = [10_000, 11_000, 12_000, 13_000, 14_000];

    #[test]
    fn a_percentile_of_the_fast_trials_alone_meets_no_goal() {
        let judged = |lacking: usize, bound| {
            let mut records = samples::trials("pipe", 64, &[10_000; 13], 1000.0);
            for (i, record) in records.iter_mut().enumerate() {
                record.inputs.require =
                    Goals([(GoalFigure::Latency(Percentile::P99), bound)].into());
                record.latency_ns[0].p99 = (i >= lacking).then_some(80_000);
            }
            let call = judge(&records).remove(0);
            (call.verdict, call.value, call.reason.unwrap_or_default())
        };
        assert_eq!(judged(1, 130.0), (GoalVerdict::Met, Some(80.0), String::new()));
        let (verdict, value, why) = judged(7, 130.0);
        assert_eq!((verdict, value), (GoalVerdict::Undecided, None));
        assert!(why.starts_with("7 of 13 trials have too few samples"), "{why}");
        // The slow trials would only confirm that it is missed.
        let (verdict, _, why) = judged(7, 70.0);
        assert_eq!(verdict, GoalVerdict::Missed);
        assert_eq!(why, "also by the 6 of 13 trials that have enough samples");
    }

    #[test]
    fn the_whole_interval_decides() {
        use GoalVerdict::{Met, Missed, Undecided};
        for (bound, wanted) in [(14.0, Met), (13.9, Undecided), (10.0, Undecided), (9.9, Missed)] {
            assert_eq!(
                verdict(&FIVE, GoalFigure::Latency(Percentile::P50), bound),
                wanted,
                "{bound}"
            );
        }
        // The samples' rates are the reciprocals of their round trips: 71,429 to 100,000 a second.
        for (bound, wanted) in [(71_000.0, Met), (90_000.0, Undecided), (101_000.0, Missed)] {
            assert_eq!(verdict(&FIVE, GoalFigure::MsgsPerS, bound), wanted, "{bound}");
        }
        assert_eq!(verdict(&FIVE, GoalFigure::CpuUsPerMsg, 1.0), Met);
        assert_eq!(verdict(&FIVE, GoalFigure::BytesPerS, 1e12), Missed);
    }

    #[test]
    fn one_trial_above_misses_the_largest_and_fewer_than_five_decide_nothing_else() {
        // The largest of the samples is ten times their median.
        assert_eq!(verdict(&FIVE, GoalFigure::Latency(Percentile::Max), 140.0), GoalVerdict::Met);
        assert_eq!(
            verdict(&FIVE, GoalFigure::Latency(Percentile::Max), 139.0),
            GoalVerdict::Missed
        );
        assert_eq!(
            verdict(&FIVE[..1], GoalFigure::Latency(Percentile::Max), 99.0),
            GoalVerdict::Missed
        );
        let call = &judged(&FIVE[..4], &[(GoalFigure::Latency(Percentile::Max), 1e6)])[0];
        assert_eq!((call.verdict, call.trials), (GoalVerdict::Undecided, 4));
        let call = &judged(&FIVE[..4], &[(GoalFigure::Latency(Percentile::P50), 1e6)])[0];
        assert_eq!((call.verdict, call.interval), (GoalVerdict::Undecided, None));
        assert!(
            call.reason.as_ref().unwrap().contains("only 4 of the 5 required good trials"),
            "{call:?}"
        );
    }

    #[test]
    fn what_no_trial_has_is_undecided_and_says_what_to_do() {
        let call = &judged(&FIVE, &[(GoalFigure::Latency(Percentile::P999), 100.0)])[0];
        assert_eq!((call.verdict, call.value), (GoalVerdict::Undecided, None));
        let reason = call.reason.as_ref().unwrap();
        assert!(reason.contains("each needs 10000; raise measure_ms"), "{reason}");
        let mut skipped = samples::ping_pong("pipe", 64, 0, 1, 1.0);
        skipped.inputs.require = Goals([(GoalFigure::Latency(Percentile::P50), 1.0)].into());
        (skipped.status, skipped.reason) = (Status::Skipped, Some("no pipes here".to_owned()));
        let call = &judge(&[skipped])[0];
        assert_eq!(call.reason.as_deref(), Some("no good trial (no pipes here)"));
    }

    #[test]
    fn a_goal_bounds_an_exchange_with_connecting_and_closing() {
        let verdict = |bound_us: f64| {
            let mut records = samples::exchanges("tcp", &FIVE);
            let require = Goals([(GoalFigure::Latency(Percentile::P50), bound_us)].into());
            records.iter_mut().for_each(|record| record.inputs.require = require.clone());
            judge(&records)[0].verdict
        };
        let largest_us = FIVE.into_iter().max().unwrap_or(0) as f64 / 1e3;
        assert_eq!(verdict(6.0 * largest_us), GoalVerdict::Met);
        assert_eq!(verdict(largest_us), GoalVerdict::Missed);
    }

    #[test]
    fn no_longer_trial_is_advised_where_messages_are_not_timed() {
        let mut records = samples::trials("pipe", 64, &FIVE, 1000.0);
        for record in &mut records {
            record.inputs.workload = Workload::Pairs { pairs: 2 };
            record.inputs.require = Goals([(GoalFigure::Latency(Percentile::P99), 100.0)].into());
            record.latency_ns.clear();
        }
        let reason = judge(&records)[0].reason.clone().unwrap();
        assert!(reason.starts_with("the workload pairs-2 records no latencies"), "{reason}");
        assert_eq!(reason, without_latencies(&Workload::Pairs { pairs: 2 }));
        for record in &mut records {
            let clocks = "the hosts have different clocks, so their time stamps cannot be compared";
            record.nulls.insert("latency_ns".to_owned(), clocks.to_owned());
        }
        let reason = judge(&records)[0].reason.clone().unwrap();
        assert!(reason.starts_with("the hosts have different clocks"), "{reason}");
    }

    #[test]
    fn degraded_and_failed_trials_decide_nothing() {
        for status in [Status::Degraded, Status::Failed] {
            let mut records = samples::trials("pipe", 64, &FIVE, 1000.0);
            for record in &mut records {
                record.inputs.require = Goals([(GoalFigure::Latency(Percentile::P50), 1e6)].into());
                (record.status, record.reason) = (status, Some("half the rate".to_owned()));
            }
            let call = &judge(&records)[0];
            assert_eq!((call.verdict, call.trials), (GoalVerdict::Undecided, 0), "{status:?}");
            assert_eq!(call.reason.as_deref(), Some("no good trial (half the rate)"));
        }
    }

    #[test]
    fn trials_that_missed_their_rate_count_against_a_goal() {
        let judged = |shares: &[f64], slow_us: u64, figure, bound| {
            let mut records = samples::paced(shares);
            for record in &mut records {
                record.inputs.require = Goals([(figure, bound)].into());
                if record.status != Status::Ok {
                    let latency = &mut record.latency_ns[0];
                    (latency.p50, latency.max) = (slow_us * 1000, slow_us * 1000);
                }
            }
            let call = judge(&records).remove(0);
            (call.verdict, call.reason)
        };
        let (some, most) = ([1.0, 1.0, 1.0, 0.5, 0.5], [1.0, 1.0, 0.5, 0.5, 0.5]);
        // The trials at the rate take 1 us, with a maximum of 10 us.
        assert_eq!(
            judged(&some, 90, GoalFigure::Latency(Percentile::Max), 50.0),
            (GoalVerdict::Missed, None)
        );
        assert_eq!(
            judged(&some, 90, GoalFigure::Latency(Percentile::P50), 99.0),
            (GoalVerdict::Met, None)
        );
        let (verdict, reason) = judged(&some, 90, GoalFigure::Latency(Percentile::P50), 50.0);
        assert_eq!(verdict, GoalVerdict::Undecided, "{reason:?}");
        let few = judged(&most[1..], 2, GoalFigure::Latency(Percentile::P50), 50.0).0;
        assert_eq!(few, GoalVerdict::Missed, "three of four");
        let (verdict, reason) = judged(&most, 2, GoalFigure::Latency(Percentile::P50), 50.0);
        assert_eq!(verdict, GoalVerdict::Missed);
        assert_eq!(reason.as_deref(), Some("3 of 5 trials did not achieve the rate"));
    }

    #[test]
    fn keys_are_those_of_the_records() {
        for figure in GoalFigure::ALL {
            let written = serde_json::to_string(&figure).unwrap();
            assert_eq!(written, format!("\"{}\"", figure.key()));
        }
        let goals = Goals([(GoalFigure::Latency(Percentile::P999), 100.0)].into());
        let text = serde_json::to_string(&goals).unwrap();
        assert_eq!(text, r#"{"p999_us":100.0}"#);
        assert_eq!(serde_json::from_str::<Goals>(&text).unwrap(), goals);
    }
}
