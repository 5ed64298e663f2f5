//! The exit status states the outcome even if the output is cut off, and comparisons name what disturbed the machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

const RECORD: &str = include_str!("data/record-schema-1.json");

/// Creates a run of five trials of a pipe, with this status and with median round trips of `p50` to `p50` + 4
/// nanoseconds.
fn write_run(dir: &Path, name: &str, p50: u64, status: &str) -> PathBuf {
    let record = |trial: u64| {
        let mut record: Value = serde_json::from_str(RECORD).expect("JSON");
        record["mechanism"] = json!("pipe");
        record["inputs"]["trial"] = json!(trial);
        record["latency_ns"][0]["p50"] = json!(p50 + trial);
        record["status"] = json!(status);
        record.to_string() + "\n"
    };
    let run = dir.join(name);
    fs::create_dir_all(&run).expect("a folder");
    fs::write(run.join("results.jsonl"), (0..5).map(record).collect::<String>()).expect("a file");
    run
}

fn crossway(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crossway"));
    command.args(arguments).env("NO_COLOR", "1").env("COLUMNS", "200");
    command
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_failed_comparison_fails_even_if_nobody_reads_it_to_the_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let a = write_run(dir.path(), "a", 1_000, "ok");
    let b = write_run(dir.path(), "b", 1_200, "ok");
    for (from, to, code) in [(&a, &b, 1), (&b, &a, 0)] {
        for format in [&[][..], &["--json"]] {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            let gate = ["compare", path(from), path(to), "--fail-on", "slower:5%"];
            let mut command = crossway(&[&gate[..], format].concat());
            let status = command.stdout(writer).stderr(Stdio::null()).status().expect("it runs");
            assert_eq!(status.code(), Some(code), "{format:?}");
        }
    }
}

#[test]
fn a_gate_does_not_pass_a_case_without_figures() {
    let dir = tempfile::tempdir().expect("a folder");
    let a = write_run(dir.path(), "a", 1_000, "ok");
    for status in ["degraded", "failed"] {
        let b = write_run(dir.path(), status, 1_000, status);
        let gate = ["compare", path(&a), path(&b), "--fail-on", "slower:50%", "--allow-unclear"];
        let output = crossway(&gate).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("5 of 5 trials {status}: ")), "{said}");
    }
}

#[test]
fn a_comparison_says_what_disturbed_the_machine_before_a_run() {
    let dir = tempfile::tempdir().expect("a folder");
    let a = write_run(dir.path(), "a", 1_000, "ok");
    let b = write_run(dir.path(), "b", 1_000, "ok");
    let finding = |severity| json!({ "severity": severity, "about": "load", "what": severity, "next_step": "wait" });
    let mut later = finding("warning");
    later["continued"] = json!(true);
    let found = json!([finding("note"), finding("warning"), later]);
    fs::write(b.join("preflight.json"), found.to_string()).expect("a file");
    let output = crossway(&["compare", path(&a), path(&b)]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("before B: warning"), "{said}");
    assert!(said.contains("before B was continued: warning"), "{said}");
    assert!(!said.contains("before A") && !said.contains("before B: note"), "{said}");
}

#[test]
fn rank_counts_settings_with_degraded_trials_only() {
    let dir = tempfile::tempdir().expect("a folder");
    let run = write_run(dir.path(), "a", 1_000, "degraded");
    let output = crossway(&["rank", path(&run)]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("1 setting has no trials that count, because all are degraded"),
        "{said}"
    );
}

#[test]
fn a_number_below_zero_and_a_cpu_that_does_not_exist_are_reported_with_a_remedy() {
    let output = crossway(&["measure", "quick", "--trials", "-1"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("invalid value '-1' for '--trials <N>': write a whole number"), "{said}");
    let dir = tempfile::tempdir().expect("a folder");
    let plan = dir.path().join("plan.toml");
    let text = "[group.x]\nmechanisms = \"pipe\"\nworkload = \"ping-pong\"\nsize_bytes = 64\n\
                placement = { cpus = { a = 0, b = 8000 } }\n";
    fs::write(&plan, text).expect("a file");
    let output = crossway(&["measure", path(&plan), "--dry-run"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let skipped = said.lines().find(|line| line.contains("CPU 8000 does not exist"));
    assert!(skipped.is_some_and(|line| line.contains("; ")), "{said}");
}
