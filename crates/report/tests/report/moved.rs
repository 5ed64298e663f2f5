//! Cores that moved during a run: marked and explained, and said once if it is true of nearly all
//! figures.

use super::page::page;
use super::{FAST, SLOW, Wait, round_trips, run_of};
use crossway_report::terminal::{self, Told};

#[test]
fn figures_on_other_cores_than_their_competitors_are_marked_and_explained() {
    let mut fifo = round_trips("fifo", Wait::Block, &SLOW);
    for record in &mut fifo {
        record.calibration.cache_line_before_ns = Some(960.0);
    }
    let pipe = round_trips("pipe", Wait::Block, &SLOW);
    let run = run_of(vec![round_trips("shm-futex", Wait::Block, &FAST), pipe, fifo]);
    let text = terminal::terminal(&run, false, 100);
    let of = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(of("fifo").starts_with("fifo (moved cores)"), "{text}");
    assert!(!of("pipe").contains("moved") && !of("shm-futex").contains("moved"), "{text}");
    assert!(text.contains("\nmoved cores: the cache-line round trip between the cores"), "{text}");
    assert!(terminal::markdown(&run).contains("| blocking, moved cores |"), "{text}");
}

#[test]
fn a_mechanism_alone_in_its_class_is_marked_if_its_cores_moved_between_trials() {
    let mut alone = round_trips("pipe", Wait::Block, &SLOW);
    for (at, record) in alone.iter_mut().enumerate() {
        let lines = Some(if at % 2 == 0 { 90.0 } else { 480.0 });
        record.calibration.cache_line_before_ns = lines;
        record.calibration.cache_line_after_ns = lines;
    }
    let text = terminal::terminal(&run_of(vec![alone]), false, 100);
    let row = text.lines().find(|line| line.starts_with("pipe ")).unwrap_or_default();
    let told = "\nmoved cores: the cache-line round trip";
    assert!(row.contains("(moved cores)") && text.contains(told), "{text}");
}

#[test]
fn the_verdict_and_the_answers_mark_a_winner_on_moved_cores_like_its_figures() {
    // Its cores moved between the readings before and after the trials, whose median equals that of
    // the competitor.
    let mut fast = round_trips("shm-futex", Wait::Block, &FAST);
    for record in &mut fast {
        record.calibration.cache_line_before_ns = Some(80.0);
        record.calibration.cache_line_after_ns = Some(160.0);
    }
    let run = run_of(vec![fast, round_trips("pipe", Wait::Block, &SLOW)]);
    let verdict = run.verdict();
    assert!(verdict.headline.contains("shm-futex has the shortest"), "{}", verdict.headline);
    assert!(verdict.detail.contains("shm-futex (moved cores)"), "{}", verdict.detail);
    let last = verdict.sentences.last().expect("sentences");
    assert!(last.starts_with("In 1 of 2 cases the cores moved, or lay farther apart"), "{last}");
    assert!(page(&run).contains("shm-futex (moved cores)"));
}

#[test]
fn what_is_true_of_nearly_all_rows_is_said_once() {
    let names = ["pipe", "fifo", "tcp", "udp", "posix-mq", "uds-stream", "uds-dgram"];
    let all = names.iter().map(|name| {
        let mut records = round_trips(name, Wait::Block, &SLOW);
        for (at, record) in records.iter_mut().enumerate() {
            // Those of tcp stay where the others are on average.
            let lines = match at % 2 {
                _ if *name == "tcp" => Some(100.0),
                0 => Some(100.0),
                _ => Some(480.0),
            };
            record.calibration.cache_line_before_ns = lines;
            record.calibration.cache_line_after_ns = lines;
        }
        records
    });
    let run = run_of(all.collect());
    let once = "moved cores (all rows except tcp)";
    for text in [
        terminal::terminal(&run, false, 100),
        terminal::brief(&run, false, 100, Told::NotYet),
        terminal::markdown(&run),
    ] {
        assert_eq!(text.matches("moved cores").count(), 1, "{text}");
        assert!(text.contains(once), "{text}");
    }
    let verdict = run.verdict();
    assert!(!verdict.detail.contains("moved cores"), "{verdict:?}");
    let told: Vec<_> = verdict.sentences.iter().filter(|s| s.contains("moved cores")).collect();
    assert_eq!(told.len(), 1, "{verdict:?}");
    assert!(told[0].starts_with("In 6 of 7 cases the cores moved"), "{verdict:?}");
}
