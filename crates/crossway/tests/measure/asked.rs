//! Options of `measure`, and what it prints before and while it runs.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crossway_lab::plan::Plan;
use crossway_records::record::{Record, Status};
use serde_json::Value;

use super::place::Place;
use super::{TINY, assert_success};

#[test]
fn trials_and_times_of_the_command_line_hold_for_all_groups_and_are_kept() {
    let place = Place::new(
        "[defaults]\nmechanisms = \"pipe\"\nworkload = \"ping-pong\"\nplacement = \"unpinned\"\nmeasure_ms = 7\n\
         [group.a]\nsize_bytes = 1\ntrials = 4\n[group.b]\nsize_bytes = 2\nwarmup_ms = 60000\n",
    );
    let args = ["--trials", "2", "--warmup-ms", "1", "--measure-ms", "3", "--name", "short"];
    assert_success(&place.measure(&args));
    let records = place.records();
    assert_eq!(records.len(), 4);
    for record in &records {
        let i = &record.inputs;
        assert_eq!((i.trials, i.warmup_ms, i.measure_ms), (2, 1, 3), "{}", record.case);
    }
    // The stored plan includes them, and the run has its name.
    let kept = Plan::load(place.run().join("plan.toml").to_str().unwrap()).unwrap();
    assert!(kept.groups.iter().all(|g| (g.trials, g.measure_ms) == (2, 3)));
    let output = place.command(&["rank", "short"]).output().unwrap();
    assert_success(&output);
    let refused = place.measure(&["--trials", "0"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("trials"));
}

#[test]
fn a_dry_run_knows_what_the_run_will_skip() {
    let plan = "[group.all]\nmechanisms = \"all\"\nworkload = \"throughput\"\nsize_bytes = \"64 KiB\"\n\
                placement = \"unpinned\"\ntrials = 1\nmessages = 3\nwarmup_ms = 0\n";
    let place = Place::new(plan);
    let dry = place.measure(&["--dry-run", "--json"]);
    assert_success(&dry);
    let dry: Value = serde_json::from_slice(&dry.stdout).unwrap();
    assert!(!place.dir.path().join("out").exists());
    place.measure(&[]);
    let tried: Vec<_> = place
        .records()
        .iter()
        .filter(|r| r.inputs.trial == 0 && r.counts.is_some())
        .map(|r| r.case.clone())
        .collect();
    assert!(!tried.is_empty());
    for case in dry["cases"].as_array().unwrap() {
        let ran = tried.iter().any(|t| case["case"] == format!("all/{t}"));
        assert!(!ran || case["skipped"].is_null(), "{case} was measured");
    }
    // The dry run announced what the run skipped before its first trial.
    for record in place.records().iter().filter(|r| r.status == Status::Skipped) {
        let case = dry["cases"]
            .as_array()
            .unwrap()
            .iter()
            .find(|c| c["case"] == format!("all/{}", record.case));
        let announced = case.is_some_and(|c| !c["skipped"].is_null());
        assert!(announced || tried_in_vain(record), "{}", record.case);
    }
}

/// Returns whether a case was skipped because its first trial turned out to be impossible after it had started, which a
/// dry run cannot predict. The cost of the harness is determined when a trial starts.
fn tried_in_vain(record: &Record) -> bool {
    record.calibration.harness.is_some()
}

#[test]
fn a_run_of_hours_is_announced_with_how_to_shorten_it() {
    let place = Place::new(
        "[group.a]\nmechanisms = \"pipe\"\nworkload = \"ping-pong\"\nplacement = \"unpinned\"\nsize_bytes = 1\n",
    );
    let long = ["--trials", "1000", "--measure-ms", "60000"];
    let warned = |output: &std::process::Output| {
        let text = [&output.stdout[..], &output.stderr].concat();
        let text = String::from_utf8_lossy(&text).split_whitespace().collect::<Vec<_>>().join(" ");
        text.contains("warning: the run takes about") && text.contains("--measure-ms")
    };
    assert!(warned(&place.measure(&[&long[..], &["--dry-run"]].concat())));
    assert!(!warned(&place.measure(&["--dry-run"])));
    // The run itself says it before its first trial.
    let args = [&["measure", "plan.toml"], &long[..]].concat();
    let mut running = place.command(&args).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(running.stderr.take().unwrap()).lines().map_while(Result::ok);
    let first = said.find(|line| line.contains("warning") || line.contains("records go to"));
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(first.is_some_and(|line| line.contains("warning: the run takes about")));
}

#[test]
fn a_dry_run_that_would_measure_nothing_says_so() {
    let plan = "[group.all]\nmechanisms = \"signal\"\nworkload = \"throughput\"\nsize_bytes = \"64 KiB\"\n";
    let place = Place::new(plan);
    let said = place.measure(&["--dry-run"]);
    assert_success(&said);
    let said = String::from_utf8_lossy(&said.stdout);
    assert!(said.ends_with("1 case (1 skipped); nothing would be measured\n"), "{said}");
    let json = place.measure(&["--dry-run", "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["trials"], &json["expected_ms"]), (&Value::from(0), &Value::from(0)));
}

#[test]
fn a_dry_run_on_a_busy_machine_estimates_for_an_idle_one() {
    let place = Place::new(&TINY.replace("\"unpinned\"", "\"same-core\""));
    // Busy for as long as the dry run watches, whatever the scheduler does: two loops per CPU.
    let loops = 2 * std::thread::available_parallelism().unwrap().get();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let busy = || {
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    };
    let said = std::thread::scope(|scope| {
        for _ in 0..loops {
            scope.spawn(busy);
        }
        let dry = place.measure(&["--dry-run"]);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        dry
    });
    assert_success(&said);
    let said = String::from_utf8_lossy(&said.stdout);
    assert!(said.ends_with(" s on an idle machine\n"), "{said}");
}

#[test]
fn long_work_says_how_long_it_takes_and_in_detail_what_came_of_each_trial() {
    let place = Place::new(TINY);
    let output = place.measure(&["-v", "-f", "pipe/ping-pong/64/"]);
    assert_success(&output);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("2 trials, about ") && said.contains("records go to out/"), "{said}");
    assert_eq!(said.matches("tiny/pipe/ping-pong/64/block/unpinned, trial ").count(), 2, "{said}");
    assert!(said.contains(": p50 ") && !said.contains("offered"), "{said}");
    let place = Place::new(
        "[group.a]\nmechanisms = \"pipe\"\nworkload = [{ paced = { burst_bytes = 64, period_us = 1000 } }, { requests = { period_ns = \
         1000000 } }]\nsize_bytes = 64\nplacement = \"unpinned\"\ntrials = 1\nwarmup_ms = 1\nmeasure_ms = 20\n",
    );
    let output = place.measure(&["-v"]);
    let said = String::from_utf8_lossy(&output.stderr);
    // A busy machine may slow the trials down; what is offered stays the same.
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(said.matches(", offered 1.00 k msg/s, achieved ").count(), 2, "{said}");
}

#[test]
fn long_work_says_in_a_pipe_how_far_it_is() {
    let place = Place::new(TINY);
    let measured = |every_ms| {
        let mut command = place.command(&["measure", "plan.toml", "-f", "pipe/throughput/"]);
        let output = command.env("CROSSWAY_PROGRESS_MS", every_ms).output().unwrap();
        assert_success(&output);
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    // A line after each of the six trials except the last, after which the result follows.
    let said = measured("0");
    let lines: Vec<&str> = said.lines().filter(|line| line.contains(" of 6 trials")).collect();
    assert_eq!(lines.len(), 5, "{said}");
    assert_eq!(lines[..2], ["1 of 6 trials", "2 of 6 trials"], "{said}");
    assert!(lines[4].starts_with("5 of 6 trials, about ") && lines[4].ends_with(" left"), "{said}");
    assert!(!measured("600000").contains(" of 6 trials"));
}

#[test]
fn what_is_printed_around_a_run_fits_the_terminal() {
    let place = Place::new(TINY);
    let mut command = place.command(&["measure", "plan.toml", "-f", "pipe/ping-pong/64/"]);
    let output = command.env("COLUMNS", "60").output().unwrap();
    assert_success(&output);
    let said = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout);
    // A development build is always reported.
    assert!(
        said.contains("build: this is a development build") || !cfg!(debug_assertions),
        "{said}"
    );
    let (_, counts) = printed.split_once("\n2 ok").expect("the counts");
    for line in said.lines().chain(counts.lines()) {
        assert!(line.chars().count() <= 60, "{line:?} in {said}{printed}");
    }
}

#[test]
fn the_first_example_of_the_plans_manual_is_short_enough_to_try() {
    let manual =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/PLANS.md")).unwrap();
    let example = manual.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let place = Place::new(example);
    let dry = place.measure(&["--dry-run", "--json"]);
    assert_success(&dry);
    let dry: Value = serde_json::from_slice(&dry.stdout).unwrap();
    let expected_ms = dry["expected_ms"].as_u64().unwrap();
    assert!(expected_ms < 10 * 60_000, "{expected_ms} ms");
}

#[test]
fn a_disk_that_was_full_at_the_start_is_no_obstacle_to_resuming() {
    let place = Place::new(TINY);
    let program = assert_cmd::cargo::cargo_bin!("crossway");
    // A limit on the file size has the same effect on a process as a full disk: the fingerprint is larger than the
    // plan.
    let script = format!(
        "trap '' XFSZ; ulimit -f 2; exec {} measure plan.toml -f pipe/throughput/64/",
        program.display()
    );
    let mut command = Command::new("bash");
    command.args(["-c", &script]).current_dir(place.dir.path());
    command.env("XDG_RUNTIME_DIR", place.dir.path().join("rt"));
    let full = command.output().unwrap();
    let said = String::from_utf8_lossy(&full.stderr);
    assert_eq!(full.status.code(), Some(2), "{said}");
    assert!(said.contains("env.json") && said.contains("measure --resume out/"), "{said}");
    assert!(!place.run().join("env.json").exists(), "nothing torn is left");
    let run = place.run();
    let resumed = place.command(&["measure", "--resume", run.to_str().unwrap()]).output().unwrap();
    assert_success(&resumed);
    assert_eq!(place.records().len(), 2);
}
