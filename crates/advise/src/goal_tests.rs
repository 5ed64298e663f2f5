//! Tests of how goals and the stated rate decide an answer, and of what the answer says about them.

use super::candidate::Known;
use super::figure::JudgedGoal;
use super::question::Question;
use super::tests::UNPINNED;
use super::*;
use crossway_records::inputs::Placement;
use crossway_records::record::{Record, Status};
use crossway_records::samples;
use crossway_records::stats::Estimate;

fn question(text: &str) -> Question {
    Question::parse("test", "test.toml", text).expect("a question")
}

/// Records of round trips of a mechanism, one for each of these largest latencies in microseconds.
pub(super) fn with_maxima(mechanism: &str, cpu_ns: f64, maxima_us: &[u64]) -> Vec<Record> {
    let p50s: Vec<u64> = (0..maxima_us.len() as u64).map(|n| 5_000 + n).collect();
    let mut records = samples::trials(mechanism, 64, &p50s, cpu_ns);
    for (record, us) in records.iter_mut().zip(maxima_us) {
        record.inputs.placement = Placement::Unpinned;
        record.latency_ns.iter_mut().for_each(|l| l.max = us * 1_000);
    }
    records
}

fn answered(text: &str, records: &[Record], foreign: bool) -> Advice {
    let trials: Vec<Trial> = records.iter().map(Trial::of).collect();
    let (own, foreign) = if foreign { (Vec::new(), trials) } else { (trials, Vec::new()) };
    let library = Library { own, foreign, ..Library::default() };
    let folder = std::path::Path::new("out");
    let known = Known { probes: &[], faults: &[] };
    let sources = Sources { known, library: &library, folder, budget: None };
    advise(&question(text), &sources, &mut NoBench, &mut |_| {}).expect("an answer")
}

fn answer(text: &str, records: &[Record]) -> Advice {
    answered(text, records, false)
}

fn goal<'a>(advice: &'a Advice, candidate: &str) -> &'a JudgedGoal {
    &advice.compared.iter().find(|c| c.candidate == candidate).expect("compared").goals[0]
}

#[test]
fn one_good_trial_beyond_a_maximum_misses_it() {
    let asked = format!("{UNPINNED}[goal]\nmax_us = 1000");
    let mut records = with_maxima("pipe", 900.0, &[100, 110, 120, 130, 3_180, 105, 107]);
    records.extend(with_maxima("fifo", 900.0, &[100, 104, 125, 101, 102]));
    records.extend(with_maxima("tcp", 900.0, &[1_500]));
    let advice = answer(&asked, &records);
    assert_eq!(advice.choice.as_deref(), Some("fifo"), "{:?}", advice.abstained);
    assert_eq!(goal(&advice, "pipe").words(), "missed (3180 us)");
    assert_eq!(goal(&advice, "fifo").words(), "met (125 us)");
    assert_eq!(goal(&advice, "tcp").met, Some(false));
    // A trial that only missed its rate counts.
    let mut below = records.clone();
    let text = format!("{UNPINNED}rate_per_s = 2000\n[goal]\nmax_us = 1000");
    for record in &mut below {
        record.inputs.workload =
            crossway_records::inputs::Workload::Requests { period_ns: 500_000 };
        let missed = record.latency_ns[0].max == 3_180_000;
        let share = if missed { 0.9 } else { 1.0 };
        record.pacing = Some(samples::pacing(1e6, share));
        record.status = if missed { Status::Degraded } else { Status::Ok };
    }
    assert_eq!(goal(&answer(&text, &below), "pipe").words(), "missed (3180 us)");
    for record in below.iter_mut().filter(|r| r.status == Status::Degraded) {
        let lines = &mut record.calibration;
        (lines.cache_line_before_ns, lines.cache_line_after_ns) = (Some(100.0), Some(400.0));
    }
    let words = goal(&answer(&text, &below), "pipe").words();
    assert_eq!(words, "met (130 us)", "the machine may be the cause");
    // A trial that the machine disturbed does not count.
    records.iter_mut().filter(|r| r.latency_ns[0].max == 3_180_000).for_each(|r| {
        r.status = Status::Degraded;
    });
    assert_eq!(goal(&answer(&asked, &records), "pipe").words(), "met (130 us)");
    let none_good = answer(&asked, &records[4..5]);
    assert_eq!(goal(&none_good, "pipe").met, None);
    assert!(goal(&none_good, "pipe").words().contains("disturbed all trials"));
}

#[test]
fn in_a_mix_exact_percentiles_are_combined_with_each_other() {
    let asked = "size_bytes = [{ bytes = 64, share = 0.9 }, { bytes = 4096, share = 0.1 }]\n\
                 placement = \"unpinned\"\noptimise = \"latency\"\n[goal]\np99_us = 30";
    // Of the small messages, the first two trials have too few samples, of the large ones the last two. Their maxima
    // exceed the goal, and their medians do not.
    let mut records = Vec::new();
    for (size, short) in [(64, [0, 1]), (4096, [5, 6])] {
        let mut some = samples::trials("pipe", size, &[5_000; 7], 900.0);
        for (k, record) in some.iter_mut().enumerate() {
            record.inputs.placement = Placement::Unpinned;
            let lacks = short.contains(&k);
            for l in &mut record.latency_ns {
                (l.p99, l.max) = ((!lacks).then_some(20_000), 90_000);
            }
        }
        records.extend(some);
    }
    let advice = answer(asked, &records);
    let goal = goal(&advice, "pipe");
    let lacking = goal.lacking.as_ref().expect("short trials");
    assert_eq!((lacking.trials, lacking.of), (2, 7));
    assert!(!goal.of_maxima && goal.met == Some(true), "{}", goal.words());
    // The latency that is compared and shown is that of the exact trials, too.
    let latency = advice.compared[0].latency_ns.expect("latencies");
    assert_eq!((latency.n, latency.high), (5, 20_000.0));
    assert_eq!(advice.compared[0].cost_ns.value, 20_000.0);
}

#[test]
fn of_equals_one_that_meets_the_goals_precedes_a_simpler_one_that_may_miss_them() {
    let mut records = with_maxima("pipe", 900.0, &[100; 7]);
    records.extend(with_maxima("shm-futex", 900.0, &[100; 7]));
    let asked = format!("{UNPINNED}[goal]\np90_us = 100");
    assert_eq!(answer(&asked, &records).choice.as_deref(), Some("pipe"));
    let p90s = [60_000, 70_000, 80_000, 100_000, 200_000, 300_000, 400_000];
    for (record, p90) in records.iter_mut().zip(p90s) {
        record.latency_ns.iter_mut().for_each(|l| l.p90 = p90);
    }
    let advice = answer(&asked, &records);
    assert_eq!(goal(&advice, "pipe").met, None);
    assert_eq!(advice.choice.as_deref(), Some("shm-futex"));
    assert_eq!(advice.equal, ["pipe"]);
}

#[test]
fn figures_of_records_that_do_not_decide_are_not_cured_by_time() {
    let few = with_maxima("pipe", 900.0, &[100; 2]);
    for foreign in [false, true] {
        let why = answered(UNPINNED, &few, foreign).abstained.unwrap_or_default();
        assert!(why.contains("without --no-measure") && !why.contains("--time"), "{why}");
        assert_eq!(why.contains("the one that the records are from"), foreign, "{why}");
    }
}

#[test]
fn an_answer_without_a_choice_has_no_chosen_row() {
    let mut few = with_maxima("pipe", 900.0, &[100; 3]);
    few.extend(with_maxima("fifo", 900.0, &[100; 3]));
    let advice = answer(UNPINNED, &few);
    assert_eq!(advice.choice, None);
    assert!(advice.compared.iter().all(|c| c.verdict == "admissible"), "{:?}", advice.compared);
    assert!(advice.equal.is_empty());
}

#[test]
fn the_cpu_time_of_a_rate_that_was_not_reached_is_that_of_the_rate_that_was() {
    // Round trips of 5 us that take 9 us of CPU time: 180 % of a CPU at the 200,000 per second that are possible.
    let asked = format!("{UNPINNED}rate_per_s = 1000000\n[goal]\ncpu_percent = 190");
    let mut records = samples::trials("pipe", 64, &[5_000; 7], 9_000.0);
    let workload = question(&asked).workload(64);
    for record in &mut records {
        record.inputs.placement = Placement::Unpinned;
        record.inputs.workload = workload;
        record.roles.iter_mut().for_each(|role| role.switches_voluntary = 1_000_000);
    }
    let cpu = goal(&answer(&asked, &records), "pipe").clone();
    assert!(cpu.measured.is_some_and(|f| f.high <= 200.0), "{}", cpu.words());
}

#[test]
fn a_rate_just_missed_is_not_rounded_to_the_share_that_counts_as_reached() {
    let mut judged = samples_judged();
    let share =
        |low: f64, median: f64, high: f64| Some(Estimate { n: 7, value: median, low, high });
    let told = |judged: &judge::Judged| -> Vec<String> {
        judged.failures().iter().map(ToString::to_string).collect()
    };
    judged.share_of_rate = share(0.98, 0.9896, 0.9899);
    assert_eq!(told(&judged), ["achieves 98.9 % of the stated rate"]);
    judged.share_of_rate = share(0.2, 0.2, 0.2);
    assert_eq!(judged.failures(), [Objection::MissedRate { share: 0.2 }]);
    assert_eq!(told(&judged), ["achieves 20 % of the stated rate"]);
    // As in reports and rankings, most trials must have reached it.
    judged.share_of_rate = share(0.958, 0.9896, 1.0);
    assert_eq!(told(&judged), ["achieves 98.9 % of the stated rate"]);
    // An interval that contains the bound decides nothing if the median has reached it.
    let before = judged.undecided_goals();
    judged.share_of_rate = share(0.958, 0.9901, 1.0);
    assert!(judged.admissible() && judged.violation() == 1.0);
    assert_eq!(judged.undecided_goals(), before + 1);
    assert_eq!(
        judged.open_rate().as_deref(),
        Some(
            "undecided: the interval of 7 trials contains 99 % of the stated rate (95.8 to 100 %)"
        )
    );
    judged.share_of_rate = share(0.2, 0.2, 0.2);
    // Three trials do not rule a candidate out.
    judged.cost.n = 3;
    assert!(judged.failures().is_empty() && !judged.admissible());
}

fn samples_judged() -> judge::Judged {
    let asked = question(UNPINNED);
    let known = Known { probes: &[], faults: &[] };
    let field = candidate::field(&asked, &known, catalogue::all());
    let pipe = field.candidates.iter().find(|c| c.mechanism == "pipe").expect("pipe");
    let trials: Vec<Trial> = with_maxima("pipe", 900.0, &[100; 7]).iter().map(Trial::of).collect();
    judge::judge(&asked, pipe, trials.iter()).expect("judged")
}

#[test]
fn a_stream_that_is_sent_in_bursts_is_called_that() {
    let sentence = |rate: &str| {
        question(&format!("size_bytes = 64\npattern = \"stream\"\nrate_per_s = {rate}")).sentence()
    };
    let fast = sentence("50000");
    assert!(
        fast.contains("50000 per second (sent as bursts of 10 messages every 200 us"),
        "{fast}"
    );
    assert!(!sentence("1000").contains("bursts"));
}

/// Records of `trials` trials in the run `run`, with this p99 and this maximum; `p99_us` is `None` if the trials have
/// too few samples for a p99.
fn with_p99(trials: usize, run: &str, p99_us: Option<u64>, max_us: u64) -> Vec<Record> {
    let mut records = with_maxima("pipe", 900.0, &vec![max_us; trials]);
    for record in &mut records {
        record.run = run.to_owned();
        record.latency_ns.iter_mut().for_each(|l| l.p99 = p99_us.map(|us| us * 1_000));
    }
    records
}

#[test]
fn trials_with_enough_samples_decide_a_percentile_beside_many_that_lack_them() {
    let asked = format!("{UNPINNED}[goal]\np99_us = 400");
    let mut records = with_p99(34, "first", None, 4_000);
    let open = answer(&asked, &records);
    assert_eq!(goal(&open, "pipe").met, None);
    assert!(goal(&open, "pipe").words().contains("each of the 34 trials has fewer than the 1000"));
    records.extend(with_p99(12, "second", Some(9_000), 13_000));
    records.iter_mut().skip(34).for_each(|r| r.inputs.measure_ms = 400);
    let missed = answer(&asked, &records);
    assert_eq!(goal(&missed, "pipe").met, Some(false));
    let told = "the trials have different durations (100 ms after a warm-up of 10 ms, or 400 ms";
    assert!(missed.warnings.iter().any(|w| w.starts_with(told)), "{:?}", missed.warnings);
    assert_eq!(missed.choice, None);
    // The trials that do not count are not counted beside the figure.
    let why = &missed.ruled_out.iter().find(|out| out.candidate == "pipe").expect("ruled out").why;
    assert!(why.ends_with("us in the 12 trials that have enough samples"), "{why}");
}

#[test]
fn a_candidate_of_which_no_trial_shows_that_a_percentile_is_met_is_not_pursued() {
    let asked = format!("{UNPINNED}[goal]\np99_us = 400");
    let mut records = with_p99(8, "first", None, 4_000);
    records.extend(with_p99(4, "second", Some(5_000), 6_000));
    let advice = answer(&asked, &records);
    assert_eq!(advice.choice, None);
    assert_eq!((goal(&advice, "pipe").met, advice.compared[0].verdict), (None, "not pursued"));
    let why = advice.compared[0].why.join("; ");
    assert!(
        why.contains("the smallest figure of the 4 trials with enough samples is 5000 us"),
        "{why}"
    );
    // One trial whose largest sample is within the goal leaves it open.
    records[0].latency_ns.iter_mut().for_each(|l| l.max = 300_000);
    assert_eq!(answer(&asked, &records).choice.as_deref(), Some("pipe"));
}

#[test]
fn a_latency_that_contains_maxima_is_called_that() {
    let asked = format!("{UNPINNED}optimise = \"latency\"\n[goal]\np99_us = 9000");
    let words = |records: &[Record]| answer(&asked, records).objective_words;
    assert_eq!(words(&with_p99(7, "first", Some(5_000), 6_000)), "round trip p99");
    assert_eq!(words(&with_p99(7, "first", None, 6_000)), "round trip p99 or maximum");
    let exchanges = |goal: &str| {
        let text = "size_bytes = 64\npattern = \"connect-per-exchange\"\noptimise = \"latency\"";
        answer::objective_words(&question(&format!("{text}{goal}")))
    };
    assert_eq!(exchanges(""), "median time to connect, exchange and close");
    let by_p99 = exchanges("\n[goal]\np99_us = 9000");
    assert_eq!(by_p99, "p99 time to connect, exchange and close");
}

#[test]
fn a_rate_is_judged_by_its_interval() {
    let text = format!("{UNPINNED}rate_per_s = 2000");
    let reached = |shares: &[f64]| {
        let mut records = with_maxima("pipe", 900.0, &vec![100; shares.len()]);
        for (record, share) in records.iter_mut().zip(shares) {
            record.inputs.workload =
                crossway_records::inputs::Workload::Requests { period_ns: 500_000 };
            record.pacing = Some(samples::pacing(1e6, *share));
        }
        answer(&text, &records)
    };
    let open = reached(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.958, 0.96, 0.965, 0.97, 0.979]);
    assert_eq!(open.choice.as_deref(), Some("pipe"), "{:?}", open.abstained);
    assert!(open.compared[0].open_rate.as_ref().is_some_and(|why| why.contains("contains 99 %")));
    assert!(open.notes.iter().any(|n| n.starts_with("rate: undecided")), "{:?}", open.notes);
    assert_eq!(reached(&[0.958, 0.96, 0.965, 0.97, 0.979, 0.98]).choice, None);
}

#[test]
fn a_goal_that_only_the_runner_up_surely_meets_is_a_reason_to_prefer_it() {
    let asked = format!("{UNPINNED}[goal]\np50_us = 20");
    let mut records = samples::trials("pipe", 64, &[9_000, 12_000, 15_000, 26_000, 31_000], 800.0);
    records.extend(samples::trials("fifo", 64, &[9_000, 9_100, 9_200, 9_300, 9_400], 1_600.0));
    records.iter_mut().for_each(|r| r.inputs.placement = Placement::Unpinned);
    let advice = answer(&asked, &records);
    assert_eq!(advice.choice.as_deref(), Some("pipe"), "{:?}", advice.abstained);
    let reasons = advice.prefer_runner_up_if.join("; ");
    assert!(
        reasons.starts_with("“p50 at most 20 us” must be certain: its trials meet it"),
        "{reasons}"
    );
}

#[test]
fn a_variation_names_all_that_are_better_and_an_open_rate() {
    let figure = |ns: f64| Estimate::of(&[ns; 5]).expect("five trials");
    let flip = |equal: &[&str], open_rate: Option<&str>, differs| Flip {
        variation: "messages of 32 B".to_owned(),
        choice: Some("shm-futex".to_owned()),
        equal: equal.iter().map(|e| (*e).to_owned()).collect(),
        differs,
        against: None,
        open_rate: open_rate.map(str::to_owned),
        costs_ns: vec![("pipe".to_owned(), figure(900.0))],
    };
    let said = |flip: &Flip| flip.outcome(Some("pipe"));
    assert_eq!(said(&flip(&[], None, true)), "shm-futex is better");
    assert_eq!(said(&flip(&["posix-shm"], None, true)), "shm-futex, posix-shm are better");
    let open = Some("undecided: the interval of 5 trials contains 99 %");
    let told = "pipe: rate undecided: the interval of 5 trials contains 99 %";
    assert_eq!(said(&flip(&[], open, true)), format!("shm-futex is better [{told}]"));
    assert_eq!(said(&flip(&[], open, false)), told);
    assert_eq!(said(&flip(&[], None, false)), "no clear change");
}
