//! Tests that no candidate wins because it was measured less than the others.

use super::candidate::Known;
use super::question::Question;
use super::tests::UNPINNED;
use super::*;
use crossway_records::inputs::Placement;
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
    let text = format!("{UNPINNED}[goal]\np99_us = 400");
    let question = Question::parse("test", "test.toml", &text).expect("a question");
    let own = trials.iter().flat_map(Trials::records).map(|r| Trial::of(&r)).collect();
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
