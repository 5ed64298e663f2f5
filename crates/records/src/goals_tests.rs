//! When a goal is met, missed or undecided, and why.

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
            record.inputs.require = Goals([(GoalFigure::Latency(Percentile::P99), bound)].into());
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
        assert_eq!(verdict(&FIVE, GoalFigure::Latency(Percentile::P50), bound), wanted, "{bound}");
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
    assert_eq!(verdict(&FIVE, GoalFigure::Latency(Percentile::Max), 139.0), GoalVerdict::Missed);
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
