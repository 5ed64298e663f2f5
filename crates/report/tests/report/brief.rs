//! The short summary after a measurement: one screen, in every case.

use super::synthetic::{self, Ask, MADE};
use super::{FAST, SLOW, Wait, round_trips, run_of};
use crossway_records::inputs::Workload;
use crossway_records::record::Status;
use crossway_report::Run;
use crossway_report::terminal::{self, Told};
use std::path::Path;

fn brief(run: &Run, width: u16) -> String {
    terminal::brief(run, false, width, Told::NotYet)
}

#[test]
fn a_large_run_fits_one_screen() {
    let asks = [Workload::PingPong, Workload::Throughput]
        .iter()
        .flat_map(|workload| [64, 65_536].map(|size| Ask::idle(*workload, size)))
        .collect::<Vec<_>>();
    let mut records = synthetic::run(&MADE, &asks, 5, 22);
    // Forty mechanisms more, most of which cannot be had.
    for number in 0..20 {
        let name = format!("made-{number}");
        records.extend(round_trips(&name, Wait::Block, &SLOW));
        let why = format!("there is no device {number} of kind {}", ["a", "b"][number % 2]);
        records.push(synthetic::skipped(&format!("absent-{number}"), &why, "load a module"));
    }
    let run = Run::of_records(Path::new("run"), records);
    for width in [60, 80, 120] {
        let text = brief(&run, width);
        assert!(text.lines().count() <= 40, "{}: {text}", text.lines().count());
        for line in text.lines() {
            assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
        }
    }
    let text = brief(&run, 80);
    let rows = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    for known in ["pipe ", "uds-stream ", "tcp ", "shm-spin "] {
        assert_eq!(rows(known), 1, "{known}: {text}");
    }
    assert!(text.contains("more rows"), "{text}");
    // Two reasons, whatever the numbers in them.
    assert_eq!(text.matches("there is no device").count(), 2, "{text}");
    assert!(text.contains("20 cases skipped, including all of absent-0 and 19 more;"), "{text}");
    // Two digits.
    let (_, row) = text.split_once("\nshm-futex ").expect("the best");
    assert_eq!(row.split_whitespace().take(2).collect::<Vec<_>>(), ["9.4", "µs"], "{text}");
}

#[test]
fn a_case_with_two_regimes_has_words_instead_of_a_figure() {
    let mut two = round_trips("linx-shm", Wait::Block, &[4_000, 4_100, 4_200, 40_000, 41_000]);
    for role in two[3..].iter_mut().flat_map(|record| &mut record.roles) {
        role.switches_voluntary *= 10;
    }
    let text = brief(&run_of(vec![round_trips("pipe", Wait::Block, &SLOW), two]), 80);
    let row = text.lines().find(|line| line.starts_with("linx-shm")).expect("its row");
    assert!(row.contains("two regimes") && !row.contains('*') && !row.contains("µs"), "{row}");
}

#[test]
fn a_run_of_other_workloads_shows_its_first_table() {
    let asks = [Ask::idle(Workload::Exchange, 64)];
    let run = Run::of_records(Path::new("run"), synthetic::run(&MADE, &asks, 5, 21));
    let text = brief(&run, 80);
    assert!(
        text.contains("exchange") && text.lines().any(|line| line.starts_with("pipe ")),
        "{text}"
    );
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn warnings_are_told_once() {
    let mut run = run_of(vec![round_trips("pipe", Wait::Block, &FAST)]);
    run.before.push("Before the run: it was busy (next step: wait).".to_owned());
    run.notices.push("In this run it was busy.".to_owned());
    let count = |told| terminal::brief(&run, false, 80, told).matches("it was busy").count();
    assert_eq!([count(Told::NotYet), count(Told::Before)], [2, 1]);
}

#[test]
fn trials_that_failed_or_are_degraded_are_counted_with_their_reasons() {
    let mut records = round_trips("pipe", Wait::Block, &FAST);
    for record in round_trips("fifo", Wait::Block, &SLOW) {
        records.push(crossway_records::record::Record {
            status: Status::Failed,
            reason: Some("the sender died".to_owned()),
            ..record
        });
    }
    let run = Run::of_records(Path::new("run"), records);
    assert!(
        brief(&run, 80).contains("5 trials failed:\n- fifo: the sender died"),
        "{}",
        brief(&run, 80)
    );
}
