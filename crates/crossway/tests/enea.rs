//! A small version of Enea's study, with its fault matrix, measured by a single command.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crossway_lab::faults::{Fault, read_faults};
use serde_json::Value;

/// A plan with the study's name, so that the report judges all of its findings.
const PLAN: &str = r#"
faults = true
[defaults]
mechanisms = "pipe"
trials = 1
warmup_ms = 5
measure_ms = 10
[group.figure-4]
workload = "throughput"
size_bytes = 8192
messages = { study = 100000, scale = 0.002 }
[group.pairs]
workload = "ping-pong"
size_bytes = 64
placement = "every-pair-and-self"
"#;

fn crossway(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crossway"));
    command.args(words).current_dir(dir).stdin(Stdio::null()).output().expect("crossway runs")
}

#[test]
fn a_small_enea_is_measured_broken_and_judged_by_one_command() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("enea.toml"), PLAN).expect("room");
    let output = crossway(dir.path(), &["measure", "./enea.toml", "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let run = told["dir"].as_str().map(|run| dir.path().join(run));
    let run = run.unwrap_or_else(|| panic!("no run: {output:?}"));
    let faults = read_faults(&run).expect("the fault matrix lies beside the records");
    assert!(faults.iter().any(|r| r.fault == Fault::Kill && r.mechanism == "pipe"));
    let path = run.display().to_string();
    assert!(crossway(dir.path(), &["report", &path]).status.success());
    let page = fs::read_to_string(run.join("report.html")).expect("the page was written");
    for part in
        ["id=\"study-enea\"", "id=\"faults\"", "Table 3, computed", "study 3-2, two threads"]
    {
        assert!(page.contains(part), "'{part}' is not on the page");
    }
}

#[test]
fn the_preset_has_cases_for_every_figure() {
    let output = crossway(Path::new("/"), &["measure", "enea", "--list"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for group in ["figure-4/", "figure-7/", "figure-9/", "pipe-size/", "pairs/", "layers/"] {
        assert!(text.contains(group), "{group} has no case: {output:?}");
    }
}
