//! Tests that no candidate wins because it was measured less than the others.

use super::candidate::Known;
use super::question::Question;
use super::tests::UNPINNED;
use super::*;
use crossway_records::inputs::{Placement, Workload};
use crossway_records::record::Record;
use crossway_records::samples;

/// Trials in a stage of a survey, by the beginning of its groups' names: round trips of 5 us, with this p99 in
/// microseconds (`None` if they have too few samples for it), this largest sample and this CPU time.
struct Trials {
    mechanism: &'static str,
    stage: &'static str,
    p50_us: u64,
    p99_us: Option<u64>,
    max_us: u64,
    cpu_ns: f64,
}

impl Trials {
    fn records(&self) -> Vec<Record> {
        let p50_ns = self.p50_us * 1_000;
        let p50s: Vec<u64> = (0..8).map(|n| p50_ns + n).collect();
        let mut records = samples::trials(self.mechanism, 64, &p50s, self.cpu_ns);
        for record in &mut records {
            record.inputs.placement = Placement::Unpinned;
            record.run = format!("{}run", self.stage);
            record.group = format!("{}block-64", self.stage);
            for l in &mut record.latency_ns {
                (l.p99, l.max) = (self.p99_us.map(|us| us * 1_000), self.max_us * 1_000);
            }
        }
        records
    }
}

const LONG: Trials = Trials {
    mechanism: "pipe",
    stage: "last-",
    p50_us: 5,
    p99_us: Some(9_000),
    max_us: 13_000,
    cpu_ns: 900.0,
};
const SHORT: Trials = Trials {
    mechanism: "uds-dgram",
    stage: "early-",
    p50_us: 5,
    p99_us: None,
    max_us: 347_000,
    cpu_ns: 1_116.0,
};

fn answer(trials: &[Trials]) -> Advice {
    answer_to("[goal]\np99_us = 400", trials.iter().flat_map(Trials::records))
}

fn answer_to(more: &str, records: impl Iterator<Item = Record>) -> Advice {
    let question = Question::parse("test", "test.toml", &format!("{UNPINNED}{more}"));
    let question = question.expect("a question");
    let own = records.map(|r| Trial::of(&r)).collect();
    let library = Library { own, ..Library::default() };
    let folder = std::path::Path::new("out");
    let known = Known { probes: &[], faults: &[] };
    let sources = Sources { known, library: &library, folder, budget: None };
    advise(&question, &sources, &mut NoBench, &mut |_| {}).expect("an answer")
}

#[test]
fn what_an_early_stage_dropped_does_not_win_over_what_was_measured_to_the_end() {
    let fifo = Trials { mechanism: "fifo", ..LONG };
    let advice = answer(&[LONG, fifo, SHORT]);
    assert_eq!((advice.choice, advice.no_choice), (None, Some(NoChoice::MeasuredLess)));
    let why = advice.abstained.unwrap_or_default();
    assert!(why.contains("uds-dgram") && why.contains("when the machine is idle"), "{why}");
    let verdict = |id: &str| advice.compared.iter().find(|c| c.mechanism == id).map(|c| c.verdict);
    assert_eq!((verdict("pipe"), verdict("uds-dgram")), (Some("fails"), Some("not pursued")));
    // Nor by largest samples within the goal, which were measured at another time.
    let advice = answer(&[LONG, Trials { max_us: 300, ..SHORT }]);
    assert_eq!((advice.choice, advice.no_choice), (None, Some(NoChoice::MeasuredLess)));
    // Beside the others, it wins.
    let beside = Trials { stage: "last-", p99_us: Some(300), ..SHORT };
    assert_eq!(answer(&[LONG, beside]).choice.as_deref(), Some("uds-dgram"));
}

#[test]
fn trials_too_short_for_a_percentile_do_not_win_over_long_ones_that_miss_it() {
    for stage in ["", "last-"] {
        let (long, short) = (Trials { stage, ..LONG }, Trials { stage, ..SHORT });
        let advice = answer(&[long, short]);
        assert_eq!((advice.choice, advice.no_choice), (None, Some(NoChoice::MeasuredLess)));
    }
    // Shorter trials would have shown as well that the other candidate misses the goal.
    let slow = Trials { p50_us: 800, stage: "last-", ..LONG };
    let advice = answer(&[slow, Trials { stage: "last-", ..SHORT }]);
    assert_eq!(advice.choice.as_deref(), Some("uds-dgram"), "{:?}", advice.abstained);
    // One that was measured as long and meets the goal wins, however cheap the short one is.
    let good = Trials { mechanism: "fifo", stage: "last-", p99_us: Some(300), ..LONG };
    let cheap = Trials { stage: "last-", cpu_ns: 100.0, ..SHORT };
    assert_eq!(answer(&[LONG, good, cheap]).choice.as_deref(), Some("fifo"));
}

/// As a ranking gives no rank to a mechanism that works in one of two ways.
#[test]
fn what_chance_makes_fast_or_slow_is_not_chosen() {
    let records = |mechanism: &str, p50s_us: &[u64]| {
        let p50s: Vec<u64> = p50s_us.iter().map(|us| us * 1_000).collect();
        let mut records = samples::trials(mechanism, 64, &p50s, 900.0);
        for record in &mut records {
            record.inputs.placement = Placement::Unpinned;
        }
        records
    };
    let answer = |of_pipe: &[u64]| {
        let fifo = records("fifo", &[8, 8, 8, 8, 8, 9, 9, 9]);
        answer_to("", records("pipe", of_pipe).into_iter().chain(fifo))
    };
    assert_eq!(answer(&[4, 4, 4, 4, 5, 5, 5, 5]).choice.as_deref(), Some("pipe"));
    let advice = answer(&[4, 4, 4, 5, 15, 15, 16, 16]);
    assert_eq!(advice.choice.as_deref(), Some("fifo"));
    let pipe = advice.compared.iter().find(|c| c.mechanism == "pipe").expect("pipe");
    let why = pipe.why.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    assert_eq!(
        why,
        "chance decides how fast it is: 4 trials took 4.00 to 5.00 us per message, 4 took 15.0 to 16.0"
    );
    // So it is if CPU time is minimised, and the rate fixes the time per message of all trials.
    let at_rate = |mechanism: &str, cpu_ns: f64, p50s_us: &[u64]| {
        let mut records = records(mechanism, p50s_us);
        for record in &mut records {
            record.inputs.workload = Workload::Requests { period_ns: 500_000 };
            record.pacing = Some(samples::pacing(1e6, 1.0));
            record.throughput.iter_mut().for_each(|t| t.msgs_per_s = 2000.0);
            record.cost.iter_mut().for_each(|cost| cost.cpu_ns_per_msg = cpu_ns);
        }
        records
    };
    let answer = |of_pipe: &[u64]| {
        let fifo = at_rate("fifo", 1200.0, &[8, 8, 8, 8, 8, 9, 9, 9]);
        let records = at_rate("pipe", 900.0, of_pipe).into_iter().chain(fifo);
        answer_to("rate_per_s = 2000\noptimise = \"cpu\"", records).choice
    };
    assert_eq!(answer(&[4, 4, 4, 4, 5, 5, 5, 5]).as_deref(), Some("pipe"));
    assert_eq!(answer(&[4, 4, 4, 5, 15, 15, 16, 16]).as_deref(), Some("fifo"));
}
