//! The fault matrix of mechanisms that every kernel supports.

use std::process::{Command, Output, Stdio};

use crossway_lab::faults::{Fault, FaultRecord, Outcome, Remover, State, read_faults};
use crossway_records::record::Status;

fn crossway(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crossway"));
    command.args(words).stdin(Stdio::null()).output().expect("crossway runs")
}

/// Runs the fault matrix for one mechanism and returns its records.
fn taken(mechanism: &str) -> Vec<FaultRecord> {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("faults.jsonl");
    let path = file.display().to_string();
    let output = crossway(&["faults", mechanism, "--save", &path, "--watch-ms", "4000"]);
    assert!(output.status.success(), "{output:?}");
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains(mechanism) && table.contains("left behind"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert!(table.contains(" outcome ") && table.contains(" wrong length "), "{table}");
    read_faults(&file).expect("fault records")
}

fn measured(records: &[FaultRecord], fault: Fault) -> Vec<&FaultRecord> {
    records.iter().filter(|r| r.fault == fault && r.status == Status::Ok).collect()
}

/// Checks that a death was tried in each of `states`, that every death is noticed, that no message is made up, and that
/// nothing is left behind that must be removed by hand.
fn deaths_are_reported(records: &[FaultRecord], states: &[State]) {
    let kills = measured(records, Fault::Kill);
    for state in states {
        assert!(kills.iter().any(|r| r.state == *state), "{state:?} was not tried");
    }
    for kill in kills {
        assert_eq!(kill.outcome, Some(Outcome::Detected), "{kill:?}");
        assert!(!kill.hung && kill.received_not_sent.unwrap_or(0) == 0, "{kill:?}");
        assert!(kill.detected_by.as_ref().is_some_and(|d| d.peer_closed), "{kill:?}");
        assert!(kill.detected_after_ns.is_some(), "{kill:?}");
        let left = kill.left_behind.iter().flatten();
        assert!(left.clone().all(|l| l.remover != Remover::ByHand), "{kill:?}");
    }
}

#[test]
fn a_pipe_reports_every_death_and_keeps_what_was_sent() {
    let records = taken("pipe");
    let states = [State::Idle, State::Sending, State::Receiving, State::Full, State::NotReceiving];
    deaths_are_reported(&records, &states);
    for stop in measured(&records, Fault::Stop) {
        assert_eq!(stop.outcome, Some(Outcome::Resumed), "{stop:?}");
        assert_eq!(stop.sent_lost, Some(0), "{stop:?}");
    }
    for full in measured(&records, Fault::FullQueue) {
        assert_eq!(full.outcome, Some(Outcome::Resumed), "{full:?}");
        assert!(full.sent.is_some_and(|n| n > 0) && full.sent_lost == Some(0), "{full:?}");
    }
    for garbage in measured(&records, Fault::Garbage) {
        // What was already in the pipe cannot be altered; garbage written after it cannot be distinguished from
        // messages.
        assert_eq!(garbage.sent_lost, Some(0), "{garbage:?}");
        assert_eq!(garbage.outcome, Some(Outcome::Deceived), "{garbage:?}");
    }
    let in_place = |r: &&FaultRecord| r.state == State::WritingInPlace;
    for held in records.iter().filter(in_place) {
        assert!(held.status == Status::Skipped && held.reason.is_some(), "{held:?}");
    }
    let whole = |fault| measured(&records, fault);
    for limited in whole(Fault::FullDescriptorTable).iter().filter(|r| r.state == State::Opening) {
        assert!(!limited.hung, "{limited:?}");
    }
    for locked in whole(Fault::LockedMemory) {
        assert_eq!(locked.outcome, Some(Outcome::Unaffected), "{locked:?}");
    }
}

#[test]
fn a_ring_reports_a_death_inside_it_and_survives_garbage() {
    let records = taken("shm-futex");
    deaths_are_reported(&records, &[State::Idle, State::WritingInPlace, State::ReadingInPlace]);
    let garbage = measured(&records, Fault::Garbage);
    assert!(!garbage.is_empty(), "no shared memory was found to damage");
    for garbage in garbage {
        assert!(garbage.outcome < Some(Outcome::Died), "{garbage:?}");
        // Memory that both ends can write is not protected.
        assert!(garbage.sent_lost.is_some_and(|lost| lost > 0), "{garbage:?}");
    }
}

#[test]
fn a_contender_is_broken_like_a_mechanism() {
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("SKIP: cc is missing; sudo apt-get install gcc libc6-dev");
        return;
    }
    // Not below /tmp, where the worker has a file system of its own.
    let cache = concat!(env!("CARGO_TARGET_TMPDIR"), "/faults");
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("faults.jsonl");
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crossway"));
        command.args(words).env("XDG_CACHE_HOME", cache).stdin(Stdio::null());
        command.output().expect("crossway runs")
    };
    let built = run(&["contender", "build", "pipe-c"]);
    assert!(built.status.success(), "{built:?}");
    let path = file.display().to_string();
    let output = run(&["faults", "pipe-c", "--save", &path, "--watch-ms", "4000"]);
    assert!(output.status.success(), "{output:?}");
    let records = read_faults(&file).expect("fault records");
    for state in [State::Idle, State::Sending, State::Receiving, State::Full, State::NotReceiving] {
        let of_state: Vec<_> =
            measured(&records, Fault::Kill).into_iter().filter(|r| r.state == state).collect();
        assert_eq!(of_state.len(), 2, "{state:?}: one death of each end");
        for kill in of_state {
            assert_eq!(kill.outcome, Some(Outcome::Detected), "{kill:?}");
            assert!(kill.detected_after_ns.is_some() && kill.detected_by.is_some(), "{kill:?}");
            let left = kill.left_behind.iter().flatten();
            assert!(left.clone().all(|l| l.remover != Remover::ByHand), "{kill:?}");
        }
    }
    let whole =
        measured(&records, Fault::Stop).into_iter().chain(measured(&records, Fault::FullQueue));
    for resumed in whole {
        assert_eq!(resumed.outcome, Some(Outcome::Resumed), "{resumed:?}");
        assert_eq!((resumed.sent, resumed.sent_lost), (Some(3000), Some(0)), "{resumed:?}");
    }
    for garbage in measured(&records, Fault::Garbage) {
        assert_eq!(garbage.outcome, Some(Outcome::Deceived), "{garbage:?}");
    }
    for refused in records.iter().filter(|r| r.fault == Fault::WrongLength) {
        assert!(refused.status == Status::Skipped && refused.reason.is_some(), "{refused:?}");
    }
}

#[test]
fn a_file_keeps_the_records_of_mechanisms_that_are_not_tested_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().display().to_string();
    for mechanism in ["pipe", "uds-stream", "pipe"] {
        let output = crossway(&["faults", mechanism, "--save", &folder]);
        assert!(output.status.success(), "{output:?}");
    }
    let records = read_faults(dir.path()).expect("fault records");
    assert!(records.iter().any(|r| r.mechanism == "uds-stream"));
    let pipe: Vec<_> = records.iter().filter(|r| r.mechanism == "pipe").collect();
    assert!(pipe.iter().all(|r| r.run == pipe[0].run), "{pipe:?}");
}

#[test]
fn an_unknown_mechanism_is_refused_before_anything_runs() {
    let output = crossway(&["faults", "piipe"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("'piipe'") && text.contains("crossway list"), "{text}");
}
