//! Tests of figures and verdicts.

use super::*;

fn judged(exact: &[f64], maxima: &[f64], median: f64) -> JudgedGoal {
    let medians = vec![median; exact.len() + maxima.len()];
    let (exact, maxima) = (exact.to_vec(), maxima.to_vec());
    let (samples, needed, measure_ms) = (600, 1_000, Some(1_300));
    let latencies = Percentiles { exact, maxima, medians, samples, needed, measure_ms };
    JudgedGoal::of_percentiles("p99", 500.0, "us", &latencies)
}

#[test]
fn maxima_show_that_a_percentile_is_within_a_limit_but_not_that_it_exceeds_it() {
    let maxima = |us: f64| [us, us + 1.0, us + 2.0, us + 3.0, us + 4.0];
    let met = |us: f64, median: f64| judged(&[], &maxima(us), median).met;
    assert_eq!(judged(&maxima(4000.0), &[], 30.0).met, Some(false));
    assert_eq!(met(4000.0, 30.0), None);
    assert_eq!(met(400.0, 30.0), Some(true));
    assert_eq!(met(4000.0, 600.0), Some(false));
    // What is shown is not the largest sample, which does not show a miss.
    let words = judged(&[], &maxima(4000.0), 602.0).words();
    assert_eq!(words, "missed (even the median is 602 us)");
}

#[test]
fn trials_with_enough_samples_decide_however_many_others_there_are() {
    let short = [4_000.0; 40];
    let goal = judged(&[4_600.0, 5_000.0, 7_000.0, 9_000.0, 13_400.0], &short, 30.0);
    assert_eq!(goal.met, Some(false));
    assert_eq!(
        goal.words(),
        "missed (7000 us; 40 of 45 trials have too few samples and do not count)"
    );
    assert_eq!(judged(&[56.0, 80.0, 145.0, 123.0, 277.0], &short, 30.0).met, Some(true));
    let open = judged(&[56.0, 80.0, 145.0, 723.0, 1277.0], &short, 30.0);
    assert_eq!((open.met, open.open), (None, Some(Open::Straddles)));
    assert!(open.words().contains("the interval of 5 trials contains"), "{}", open.words());
    // Four are not enough to decide, but all trials exceed the goal.
    let four = judged(&[5_000.0; 4], &short, 30.0);
    assert_eq!((four.open, four.none_meets_from), (Some(Open::FewSamples), Some(5_000.0)));
    assert_eq!(judged(&[5_000.0; 2], &short, 30.0).none_meets_from, None);
    let some_meet = judged(&[5_000.0; 4], &[4_000.0, 300.0], 30.0);
    assert_eq!(some_meet.none_meets_from, None);
}

#[test]
fn more_largest_samples_beyond_a_limit_than_chance_allows_miss_it() {
    // Of the trials of 80 samples, 55 % would exceed a limit that is the p99.
    let of = |beyond: usize, trials: usize| {
        let mut maxima = vec![4_000.0; beyond];
        maxima.resize(trials, 400.0);
        let (medians, samples, needed) = (vec![30.0; trials], 80, 1_000);
        let short = Percentiles { maxima, medians, samples, needed, ..Percentiles::default() };
        JudgedGoal::of_percentiles("p99", 500.0, "us", &short)
    };
    assert_eq!(of(12, 19).met, None);
    assert_eq!(of(5, 5).met, None, "too few trials");
    let goal = of(18, 19);
    assert_eq!((goal.met, goal.open), (Some(false), None));
    let words = goal.words();
    assert!(words.contains("exceeds it in 18 of 19 trials of at most 80 samples"), "{words}");
    assert!(words.contains("at most 55 % would"), "{words}");
}

#[test]
fn a_lack_of_samples_is_reported_with_the_trials_that_it_concerns() {
    let goal = judged(&[], &[156.0, 158.0, 4_000.0, 5_000.0, 150.0, 6_000.0], 30.0);
    let words = goal.words();
    assert!(
        words.contains("each of the 6 trials has fewer than the 1000 samples")
            && words.contains("in 3 of these, the largest sample exceeds the goal"),
        "{words}"
    );
    // Largest samples within the limit leave the goal open only for want of trials.
    let few = judged(&[], &[156.0, 158.0], 30.0);
    assert_eq!(few.open, Some(Open::FewTrials));
    assert!(few.words().starts_with("undecided: only 2 trials"), "{}", few.words());
}
