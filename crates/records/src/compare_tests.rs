//! Tests of comparisons with a known outcome.

use super::*;
use crate::inputs::{Per, Workload};
use crate::record::Status;
use crate::samples;

pub(super) const A: [u64; 7] = [1000, 1010, 1005, 995, 1002, 998, 1008];

pub(super) fn scaled(by: f64) -> Vec<u64> {
    A.iter().map(|x| (*x as f64 * by) as u64).collect()
}

pub(super) fn against(b: &[Record]) -> ComparisonReport {
    let a = samples::trials("pipe", 64, &A, 500.0);
    compare(&a.iter().collect::<Vec<_>>(), &b.iter().collect::<Vec<_>>(), &[], &Terms::default())
}

pub(super) fn p50(report: &ComparisonReport) -> &Comparison {
    let figure = Figure::Latency(Span::RoundTrip, Percentile::P50);
    report.comparisons.iter().find(|c| c.figure == figure).expect("a round trip")
}

#[test]
fn twice_the_time_is_slower_and_half_is_faster() {
    let slower = against(&samples::trials("pipe", 64, &scaled(2.0), 500.0));
    let c = p50(&slower);
    assert_eq!(c.verdict, Verdict::Slower);
    assert!(
        (c.ratio - 2.0).abs() < 0.01 && c.slowdown_interval.is_some_and(|i| i.contains(2.0)),
        "{c:?}"
    );
    assert_eq!(c.cliffs_delta, 1.0);
    assert!((c.shift - 1002.0).abs() < 15.0, "{c:?}");
    let faster = against(&samples::trials("pipe", 64, &scaled(0.5), 500.0));
    assert_eq!(p50(&faster).verdict, Verdict::Faster);
    // The rate of a closed loop is not compared, because its round trips say the same; p99 and CPU time are.
    assert_eq!(faster.comparisons.len(), 3);
    assert_eq!(faster.comparisons[2].figure, Figure::Cpu(Per::RoundTrip));
    assert_eq!(faster.comparisons[2].verdict, Verdict::Same);
}

#[test]
fn a_warning_says_if_p99_is_not_compared() {
    let mut b = samples::trials("pipe", 64, &A, 500.0);
    assert!(against(&b).without_p99.is_empty());
    b.iter_mut().for_each(|r| r.latency_ns[0].p99 = None);
    let report = against(&b);
    assert_eq!(report.without_p99, ["pipe ping-pong 64 B block shared-cache"]);
    assert!(report.warnings[0].starts_with("p99 is not compared for 1 case: "), "{report:?}");
}

#[test]
fn more_messages_per_second_is_faster() {
    let mut a = samples::trials("pipe", 64, &A, 500.0);
    let mut b = samples::trials("pipe", 64, &scaled(0.5), 500.0);
    for r in a.iter_mut().chain(&mut b) {
        r.inputs.workload = Workload::Throughput;
        r.latency_ns.clear();
    }
    let report = compare(
        &a.iter().collect::<Vec<_>>(),
        &b.iter().collect::<Vec<_>>(),
        &[],
        &Terms::default(),
    );
    let c = &report.comparisons[0];
    assert_eq!((c.figure, c.verdict), (Figure::MessageRate, Verdict::Faster));
    assert!(
        c.ratio > 1.9 && c.slowdown < 0.53 && c.slowdown_interval.is_some_and(|i| i.high < 1.0),
        "{c:?}"
    );
}

#[test]
fn equal_sets_are_the_same_and_small_differences_too() {
    let again = repeated(samples::trials("pipe", 64, &A, 500.0));
    let c = p50(&against(&again)).clone();
    assert_eq!(c.verdict, Verdict::Same);
    assert!(c.same_within.is_some_and(|x| x > 0.0 && x < 0.03), "{c:?}");
    assert_eq!(
        p50(&against(&samples::trials("pipe", 64, &scaled(1.012), 5.0))).verdict,
        Verdict::Same
    );
}

#[test]
fn a_run_and_its_copy_are_the_same_however_noisy() {
    let wild = samples::trials("pipe", 64, &[400, 3000, 900, 1500, 700, 2500, 1000], 500.0);
    let sides = wild.iter().collect::<Vec<_>>();
    let report = compare(&sides, &sides, &[], &Terms::default());
    assert!(report.count(Verdict::Same) == report.comparisons.len() && !sides.is_empty());
    let c = p50(&report);
    assert_eq!(c.same_within, Some(0.0));
    assert!(c.note.as_deref().expect("a note").contains("the same trials"));
    assert!(c.same_trials);
    assert!(report.warnings.iter().any(|w| w.contains("the same trials")), "{:?}", report.warnings);
    // The same figures in another run are not a copy.
    let again = repeated(wild.clone());
    let report = compare(&sides, &again.iter().collect::<Vec<_>>(), &[], &Terms::default());
    assert_eq!(p50(&report).verdict, Verdict::Unclear);
}

#[test]
fn only_figures_that_can_differ_are_said_to_differ_by_chance() {
    let sizes = 1..=8;
    let one: Vec<Record> = sizes.flat_map(|n| samples::trials("pipe", 64 * n, &A, 500.0)).collect();
    let sides: Vec<&Record> = one.iter().collect();
    let by_chance = |b: &[&Record]| {
        let report = compare(&sides, b, &[], &Terms::default());
        assert!(report.comparisons.len() >= 20, "{}", report.comparisons.len());
        report.warnings.iter().any(|warning| warning.contains("by chance"))
    };
    assert!(!by_chance(&sides));
    assert!(by_chance(&repeated(one.clone()).iter().collect::<Vec<_>>()));
}

#[test]
fn noise_that_leaves_no_room_for_a_large_difference_is_the_same_within_what_it_leaves() {
    let noisy = [1000, 1080, 930, 1050, 960, 1020, 990];
    let a = samples::trials("pipe", 64, &noisy, 500.0);
    let b = repeated(samples::trials("pipe", 64, &[1010, 940, 1070, 980, 1040, 1000, 950], 500.0));
    let between = |terms: &Terms| {
        let (a, b) = (a.iter().collect::<Vec<_>>(), b.iter().collect::<Vec<_>>());
        p50(&compare(&a, &b, &[], terms)).clone()
    };
    let c = between(&Terms::default());
    assert_eq!(c.verdict, Verdict::Same);
    assert!(c.same_within.is_some_and(|x| x > 0.05 && x < 0.25), "{c:?}");
    // With a stricter bound, the same trials are not enough.
    let c = between(&Terms { same_within: 0.03, unclear_beyond: 0.03 });
    assert_eq!(c.verdict, Verdict::Unclear);
    assert!(c.note.as_deref().expect("a note").contains("permit a difference of up to"), "{c:?}");
}

/// The same records, as if from another run.
pub(super) fn repeated(mut records: Vec<Record>) -> Vec<Record> {
    for record in &mut records {
        record.run = "2026-01-02T00:00:00Z-again".to_owned();
    }
    records
}

#[test]
fn wide_scatter_is_unclear() {
    let wild = [400, 3000, 900, 1500, 700, 2500, 1000];
    assert_eq!(p50(&against(&samples::trials("pipe", 64, &wild, 500.0))).verdict, Verdict::Unclear);
}

#[test]
fn too_few_trials_are_unclear_and_say_so() {
    let report = against(&samples::trials("pipe", 64, &scaled(3.0)[..4], 500.0));
    let c = p50(&report);
    assert_eq!(c.verdict, Verdict::Unclear);
    assert!(c.note.as_deref().expect("a note").contains("4 trials are too few"));
    assert_eq!((c.ratio_interval, c.slowdown_interval, c.same_within), (None, None, None));
    assert_eq!(c.b.estimate.interval(), None);
}

#[test]
fn a_move_of_the_cores_in_between_is_no_verdict() {
    let mut b = samples::trials("pipe", 64, &scaled(3.0), 500.0);
    for r in &mut b {
        r.calibration.cache_line_before_ns = Some(480.0);
        r.calibration.cache_line_after_ns = Some(500.0);
    }
    let report = against(&b);
    assert_eq!(p50(&report).verdict, Verdict::Unclear);
    assert!(p50(&report).note.as_deref().expect("a note").contains("moved to other cores"));
}

#[test]
fn cases_of_one_side_and_failed_ones_are_listed() {
    let mut b = samples::trials("pipe", 64, &A, 500.0);
    for r in &mut b {
        r.status = Status::Failed;
        r.reason = Some("the receiver stalled".to_owned());
    }
    b.extend(samples::trials("fifo", 64, &A, 500.0));
    let report = against(&b);
    assert!(report.comparisons.is_empty());
    assert_eq!(report.only_in_b, ["fifo ping-pong 64 B block shared-cache"]);
    assert!(report.failed_in_b[0].ends_with("7 of 7 trials failed: the receiver stalled"));
    assert!(report.only_in_a.is_empty() && report.degraded_in_b.is_empty());
    assert_eq!(FailOn { slower_by: 0.5, allow_unclear: false }.failures(&report).len(), 1);
}

/// The gate with undecided figures allowed.
pub(super) const LENIENT: FailOn = FailOn { slower_by: 0.5, allow_unclear: true };

#[test]
fn a_case_whose_trials_are_all_degraded_is_named_with_its_reason() {
    let missed = |mut records: Vec<Record>| {
        for r in &mut records {
            r.status = Status::Degraded;
            r.reason = Some("the rate was not achieved".to_owned());
        }
        records
    };
    let b = missed(repeated(samples::trials("pipe", 64, &A, 500.0)));
    let report = against(&b);
    assert!(report.only_in_a.is_empty(), "{report:?}");
    let why = "7 of 7 trials degraded: the rate was not achieved";
    assert!(report.degraded_in_b[0].ends_with(why), "{report:?}");
    assert!(LENIENT.failures(&report)[0].contains(why));
    // Without figures in A, nothing has become worse, but nothing is decided either.
    let a = missed(samples::trials("pipe", 64, &A, 500.0));
    let sides = (a.iter().collect::<Vec<_>>(), b.iter().collect::<Vec<_>>());
    let good = repeated(samples::trials("pipe", 64, &A, 500.0));
    let report = compare(&sides.0, &good.iter().collect::<Vec<_>>(), &[], &Terms::default());
    assert!(report.only_in_b.is_empty() && report.degraded_in_a[0].ends_with(why), "{report:?}");
    assert!(LENIENT.failures(&report).is_empty());
    assert_eq!(FailOn { allow_unclear: false, ..LENIENT }.failures(&report).len(), 1);
    let report = compare(&sides.0, &sides.1, &[], &Terms::default());
    assert!(report.without_figures[0].ends_with(why), "{report:?}");
    assert!(LENIENT.failures(&report).is_empty());
    assert_eq!(FailOn { allow_unclear: false, ..LENIENT }.failures(&report).len(), 1);
    // The same holds if no trial runs in B.
    let skipped = |mut record: Record| {
        record.status = Status::Skipped;
        record
    };
    let b: Vec<Record> = b.iter().take(1).cloned().map(skipped).collect();
    let report = compare(&sides.0, &b.iter().collect::<Vec<_>>(), &[], &Terms::default());
    assert!(report.without_figures[0].contains(why), "{report:?}");
    assert_eq!(FailOn { allow_unclear: false, ..LENIENT }.failures(&report).len(), 1);
}

#[test]
fn a_case_of_which_no_trial_ran_is_no_baseline() {
    let mut a = samples::trials("pipe", 64, &A, 500.0);
    let mut skipped = samples::trials("sctp", 64, &[1], 500.0);
    skipped[0].status = Status::Skipped;
    a.extend(skipped);
    let mut failed = samples::trials("fifo", 64, &[1], 500.0);
    failed[0].status = Status::Failed;
    a.extend(failed);
    let b = repeated(samples::trials("pipe", 64, &A, 500.0));
    let sides = (a.iter().collect::<Vec<_>>(), b.iter().collect::<Vec<_>>());
    let report = compare(&sides.0, &sides.1, &[], &Terms::default());
    assert_eq!(report.only_in_a, ["fifo ping-pong 64 B block shared-cache"]);
    let strict = FailOn { slower_by: 5.0, allow_unclear: false };
    let failures = strict.failures(&report);
    assert!(failures.len() == 1 && failures[0].contains("fifo"), "{failures:?}");
    assert_eq!(compare(&sides.1, &sides.0, &[], &Terms::default()).only_in_b, report.only_in_a);
}

#[test]
fn trials_that_are_new_in_b_are_counted() {
    let a = samples::trials("pipe", 64, &A, 500.0);
    let new = |b: &[Record]| against(b).new_in_b;
    assert_eq!((new(&a), new(&a[..3])), (0, 0));
    assert_eq!(new(&repeated(a.clone())), a.len());
    let mut b = a.clone();
    b[2].status = Status::Failed;
    assert_eq!(new(&b), 1);
}

#[test]
fn round_trips_and_messages_have_no_cpu_time_in_common() {
    let a = samples::trials("pipe", 64, &A, 500.0);
    let mut b = a.clone();
    for r in &mut b {
        r.inputs.workload = Workload::Throughput;
        r.latency_ns.clear();
    }
    let sides = (a.iter().collect::<Vec<_>>(), b.iter().collect::<Vec<_>>());
    let report = compare(&sides.0, &sides.1, &["workload"], &Terms::default());
    assert_eq!(report.comparisons, []);
    assert_eq!(LENIENT.failures(&report), Vec::<String>::new());
    let why = "A counts round trips and B counts one-way messages";
    assert!(report.not_compared[0].contains(why), "{:?}", report.not_compared);
}

#[test]
fn two_mechanisms_of_one_run_are_matched_by_the_rest() {
    let a = samples::trials("pipe", 64, &A, 500.0);
    let b = samples::trials("fifo", 64, &scaled(1.5), 500.0);
    let report = compare(
        &a.iter().collect::<Vec<_>>(),
        &b.iter().collect::<Vec<_>>(),
        &["mechanism"],
        &Terms::default(),
    );
    assert_eq!(p50(&report).verdict, Verdict::Slower);
    assert!(p50(&report).case.ends_with(": pipe -> fifo"), "{}", p50(&report).case);
    assert!(report.only_in_a.is_empty() && report.only_in_b.is_empty());
}

#[test]
fn tests_that_disagree_are_the_reason_for_an_unclear_verdict() {
    let why = |low: f64, high: f64, p| {
        let room = (high - 1.0).max(1.0 - low);
        let (verdict, note) = judge(Interval { low, high }, room, p, &Terms::default());
        assert_eq!(verdict, Verdict::Unclear);
        note.expect("a reason")
    };
    assert!(why(1.005, 1.12, 0.09).contains("the interval excludes equality"));
    assert!(why(0.99, 1.12, 0.03).contains("the Mann-Whitney test excludes equality"));
    assert_eq!(why(0.6, 1.5, 0.4), "the trials permit a difference of up to 50.0 %");
    assert_eq!(why(0.05, 14.5, 0.4), "the trials permit a difference of up to a factor of 14.5");
}

#[test]
fn each_end_of_an_interval_is_a_change_that_can_be_read() {
    assert_eq!(change_range(0.94, 1.064), "-6.0..+6.4 %");
    assert_eq!(change_range(1.098, 12.3), "+9.8 % to 12.3 times");
    assert_eq!(change_range(0.001, 46.0), "-99.9 % to 46.0 times");
    assert_eq!(change_range(12.0, 46.0), "12.0..46.0 times");
    assert_eq!(change_range(0.052, 14.5), "-94.8 % to 14.5 times");
    assert_eq!(change_range(0.9, f64::INFINITY), "-10.0 % to –");
}

/// Records of throughput trials with these rates, in messages per second, and without any other figure.
fn streams(rates: &[f64]) -> Vec<Record> {
    let mut records = samples::trials("pipe", 64, &vec![1000; rates.len()], 500.0);
    for (r, rate) in records.iter_mut().zip(rates) {
        r.inputs.workload = Workload::Throughput;
        r.latency_ns.clear();
        r.cost = None;
        r.throughput.as_mut().expect("a rate").msgs_per_s = *rate;
    }
    records
}

pub(super) fn rates(a: &[f64], b: &[f64]) -> ComparisonReport {
    let (a, b) = (streams(a), repeated(streams(b)));
    compare(
        &a.iter().collect::<Vec<_>>(),
        &b.iter().collect::<Vec<_>>(),
        &[],
        &Terms { same_within: 0.03, unclear_beyond: 0.25 },
    )
}

#[test]
fn a_p99_that_many_trials_lack_is_not_compared() {
    // Of 21 trials, the fastest six have enough samples: enough trials, but not a fair choice of them.
    for (trials, with) in [(7, 4), (21, 6)] {
        let one = samples::trials("pipe", 64, &scaled(1.5), 500.0);
        let mut b: Vec<Record> = one.iter().cycle().take(trials).cloned().collect();
        for (i, r) in b.iter_mut().enumerate() {
            r.inputs.trial = i as u32;
            if i >= with {
                r.latency_ns[0].p99 = None;
            }
        }
        let report = against(&b);
        let figure = Figure::Latency(Span::RoundTrip, Percentile::P99);
        let c = report.comparisons.iter().find(|c| c.figure == figure).expect("a p99");
        assert_eq!((c.verdict, c.ratio_interval), (Verdict::Unclear, None));
        let note = c.note.as_deref().expect("a note");
        let counts = format!("7 of 7 trials of A and {with} of {trials} of B have the 1,000");
        assert!(note.starts_with(&counts), "{note}");
        assert!(note.contains("--measure-ms") && !note.contains("run 5"), "{note}");
    }
}

#[test]
fn trials_of_other_durations_are_named() {
    let mut b = repeated(samples::trials("pipe", 64, &A, 500.0));
    assert_eq!(against(&b).warnings, Vec::<String>::new());
    b.iter_mut().for_each(|r| r.inputs.measure_ms = 40);
    let warnings = against(&b).warnings;
    assert!(warnings[0].contains("in 1 of 1 cases (A: 100 ms after"), "{warnings:?}");
    assert!(warnings[0].contains("B: 40 ms after"), "{warnings:?}");
    // With a fixed number of messages, the duration is not planned.
    let mut a = samples::trials("pipe", 64, &A, 500.0);
    a.iter_mut().chain(&mut b).for_each(|r| r.inputs.messages = Some(1000));
    let (a, b) = (a.iter().collect::<Vec<_>>(), b.iter().collect::<Vec<_>>());
    assert_eq!(compare(&a, &b, &[], &Terms::default()).warnings, Vec::<String>::new());
}

#[test]
fn trials_that_missed_their_rate_are_compared_unless_most_did() {
    let a = samples::paced(&[1.0; 10]);
    let with = |missed: usize| {
        let shares: Vec<f64> = (0..10).map(|i| if i < missed { 0.7 } else { 1.0 }).collect();
        let mut b = repeated(samples::paced(&shares));
        for r in &mut b[..missed] {
            (r.latency_ns[0].p50, r.latency_ns[0].p99) = (90_000, Some(90_000));
        }
        let (a, b): (Vec<&Record>, Vec<&Record>) = (a.iter().collect(), b.iter().collect());
        compare(&a, &b, &[], &Terms::default())
    };
    let gate = FailOn { slower_by: 0.05, allow_unclear: false };
    assert_eq!(gate.failures(&with(0)), Vec::<String>::new());
    let some = with(4);
    assert!(!gate.failures(&some).is_empty(), "four slow trials of ten leave it undecided");
    assert!(some.degraded_in_b.is_empty());
    let most = with(6);
    assert_eq!(most.degraded_in_b.len(), 1, "{most:?}");
    assert!(most.degraded_in_b[0].contains("6 of 10 trials degraded"), "{most:?}");
}
