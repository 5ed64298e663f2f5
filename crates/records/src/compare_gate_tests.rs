//! Tests of gates: what makes a comparison fail.

use super::tests::{A, LENIENT, against, p50, rates, repeated, scaled};
use super::*;
use crate::inputs::Workload;
use crate::record::Status;
use crate::samples;

#[test]
fn a_gate_fails_on_what_is_not_decided_unless_that_is_allowed() {
    let report = against(&samples::trials("pipe", 64, &scaled(80.0)[..4], 500.0));
    assert_eq!(p50(&report).verdict, Verdict::Unclear);
    let gate: FailOn = "slower:5%".parse().expect("understood");
    let failures = gate.failures(&report);
    assert_eq!(failures.len(), report.comparisons.len());
    assert!(failures[0].contains("undecided: 4 trials are too few"), "{failures:?}");
    assert!(FailOn { allow_unclear: true, ..gate }.failures(&report).is_empty());
}

#[test]
fn a_gate_states_the_change_of_the_figure_itself() {
    let mut a = samples::trials("pipe", 64, &A, 500.0);
    let mut b = samples::trials("pipe", 64, &scaled(1.0 / 0.376), 500.0);
    for r in a.iter_mut().chain(&mut b) {
        r.inputs.workload = Workload::Throughput;
        r.latency_ns.clear();
        r.cost = None;
    }
    let sides = (a.iter().collect::<Vec<_>>(), b.iter().collect::<Vec<_>>());
    let report = compare(&sides.0, &sides.1, &[], &Terms::default());
    let gate: FailOn = "slower:5%".parse().expect("understood");
    let failures = gate.failures(&report);
    assert!(failures[0].contains("messages/s: -62.4 %, which is slower"), "{failures:?}");
}

#[test]
fn a_single_failed_trial_is_named_and_fails_every_gate() {
    let mut b = repeated(samples::trials("pipe", 64, &A, 500.0));
    b[3].status = Status::Failed;
    b[3].reason = Some("messages with wrong content: 1".to_owned());
    let failed = "1 of 7 trials failed: messages with wrong content: 1";
    let report = against(&b);
    assert_eq!(p50(&report).verdict, Verdict::Same);
    assert!(report.failed_in_b[0].ends_with(failed), "{report:?}");
    assert!(LENIENT.failures(&report)[0].ends_with(failed));
    // Failed trials of the baseline are named, but say nothing against B.
    let a = samples::trials("pipe", 64, &A, 500.0);
    let (b, a) = (b.iter().collect::<Vec<_>>(), a.iter().collect::<Vec<_>>());
    let report = compare(&b, &a, &[], &Terms::default());
    assert!(report.failed_in_a[0].ends_with(failed) && report.failed_in_b.is_empty());
    assert!(LENIENT.failures(&report).is_empty());
}

#[test]
fn a_gate_fails_only_when_the_whole_interval_is_beyond_its_bound() {
    let ten_percent = against(&samples::trials("pipe", 64, &scaled(1.10), 500.0));
    let gate = |text: &str| {
        let gate: FailOn = text.parse().expect("understood");
        FailOn { allow_unclear: true, ..gate }.failures(&ten_percent)
    };
    assert_eq!(gate("slower:5%").len(), 2, "p50 and p99");
    assert_eq!(gate("slower").len(), 2);
    assert!(gate("slower:10%").is_empty());
    assert!(gate("slower:50").is_empty());
    // The interval contains 10 %, which is not a pass.
    let strict: FailOn = "slower:10%".parse().expect("understood");
    assert_eq!(strict.call(p50(&ten_percent)), GateCall::Undecided);
    assert_eq!(strict.failures(&ten_percent).len(), 2);
}

#[test]
fn a_gate_gives_the_bound_as_the_reason_and_not_an_outlying_trial() {
    let mut p50s = scaled(1.10);
    p50s[6] *= 5;
    let report = against(&samples::trials("pipe", 64, &p50s, 500.0));
    assert_eq!(p50(&report).note.as_deref(), Some("includes 1 outlying trial"));
    let gate: FailOn = "slower:10%".parse().expect("understood");
    let failures = gate.failures(&report);
    assert!(failures[0].contains("contains the bound of 10.0 %"), "{failures:?}");
}

#[test]
fn gates_that_are_not_understood_are_refused() {
    for bad in ["", "faster:5%", "slower:", "slower:-3%", "slower:x", "slower:nan", "5%"] {
        let error = bad.parse::<FailOn>().expect_err(bad);
        assert!(error.contains("slower:5%"), "{error}");
    }
}

#[test]
fn a_gate_looks_at_the_interval_and_not_at_the_verdict() {
    let gate: FailOn = "slower:5%".parse().expect("understood");
    let noisy = [100.0, 91.0, 109.0, 95.0, 105.0];
    // "Same", although it may be 15 % slower.
    let report = rates(&noisy, &[99.0, 90.0, 108.0, 96.0, 104.0]);
    let c = &report.comparisons[0];
    assert_eq!(c.verdict, Verdict::Same, "{c:?}");
    assert!(c.slowdown_interval.expect("an interval").high > 1.05);
    assert_eq!(gate.call(c), GateCall::Undecided);
    assert!(gate.failures(&report)[0].contains("contains the bound of 5.0 %"));
    assert!(FailOn { allow_unclear: true, ..gate }.failures(&report).is_empty());
    // "Unclear", although it is certainly not 5 % slower.
    let report = rates(&noisy, &[190.0, 109.5, 130.0, 109.2, 150.0]);
    let c = &report.comparisons[0];
    let c = Comparison { verdict: Verdict::Unclear, ..c.clone() };
    assert!(c.slowdown_interval.expect("an interval").high < 1.05, "{c:?}");
    assert_eq!(gate.call(&c), GateCall::Passes);
    // Wholly beyond the bound.
    assert_eq!(gate.call(&rates(&noisy, &[50.0; 5]).comparisons[0]), GateCall::Slower);
}

#[test]
fn the_bound_beside_an_interval_follows_from_that_interval() {
    for b in [[99.0, 90.0, 108.0, 96.0, 104.0], [20.0, 103.0, 100.0, 99.0, 101.0]] {
        let report = rates(&[100.0, 91.0, 109.0, 95.0, 105.0], &b);
        let c = &report.comparisons[0];
        let interval = c.ratio_interval.expect("an interval");
        let room = (interval.high - 1.0).max(1.0 - interval.low);
        assert_eq!(c.same_within, Some(room));
        if c.verdict == Verdict::Unclear {
            let shown = format!("permit a difference of up to {:.1} %", room * 100.0);
            assert!(c.note.as_deref().is_some_and(|note| note.contains(&shown)), "{c:?}");
        }
    }
}
