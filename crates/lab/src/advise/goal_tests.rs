//! Tests of how goals and the stated rate decide an answer, and of what the answer says about them.

use super::candidate::Known;
use super::figure::GoalVerdict;
use super::question::Question;
use super::tests::UNPINNED;
use super::*;
use crate::inputs::Placement;
use crate::record::{Record, Status};
use crate::samples;

fn question(text: &str) -> Question {
    Question::parse("test", "test.toml", text).expect("a question")
}

/// Records of round trips of a mechanism, one for each of these largest latencies in microseconds.
fn with_maxima(mechanism: &str, cpu_ns: f64, maxima_us: &[u64]) -> Vec<Record> {
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

fn goal<'a>(advice: &'a Advice, candidate: &str) -> &'a GoalVerdict {
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
        assert_eq!(why.contains("that of the records"), foreign, "{why}");
    }
}

#[test]
fn a_rate_just_missed_is_not_rounded_to_the_share_that_counts_as_reached() {
    let mut judged = samples_judged();
    judged.share_of_rate = Some(0.9896);
    assert_eq!(judged.failures(), ["achieves 98.9 % of the stated rate"]);
    judged.share_of_rate = Some(0.2);
    assert_eq!(judged.failures(), ["achieves 20 % of the stated rate"]);
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

#[test]
fn commands_name_the_folder_in_which_a_run_lies() {
    let lines: Vec<String> = with_maxima("pipe", 900.0, &[100; 7])
        .iter()
        .map(|r| serde_json::to_string(r).expect("JSON"))
        .collect();
    let dir = tempfile::tempdir().expect("a folder");
    let run = dir.path().join("renamed");
    std::fs::create_dir(&run).expect("a run");
    std::fs::write(run.join(crate::records_io::RESULTS), lines.join("\n")).expect("written");
    let library = Library::read(&[dir.path().to_owned()], "this machine", &question(UNPINNED));
    let known = Known { probes: &[], faults: &[] };
    let sources = Sources { known, library: &library, folder: dir.path(), budget: None };
    let advice = advise(&question(UNPINNED), &sources, &mut NoBench, &mut |_| {}).expect("answer");
    let command = format!("crossway measure {}", run.join("plan.toml").display());
    assert_eq!(advice.commands, [command]);
}
