//! Commands that read records, run as by a user: their output, their errors, their exit codes.

mod machine;
mod output;
mod readme;

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::{Value, json};

const RECORD: &str = include_str!("../data/record-schema-1.json");
/// Round trips of five trials, nanoseconds.
const TRIALS: [u64; 5] = [1000, 1005, 995, 1002, 998];

fn crossway() -> Command {
    let mut command = Command::cargo_bin("crossway").expect("the program is built");
    command.timeout(std::time::Duration::from_secs(600)).env("NO_COLOR", "1");
    command
}

/// Runs a command; returns its standard output, standard error and exit code.
fn run(args: &[&str]) -> (String, String, i32) {
    let out = crossway().args(args).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (text(out.stdout), text(out.stderr), out.status.code().expect("no signal"))
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Returns five trials of a mechanism, with all times multiplied by a factor.
fn trials(mechanism: &str, by: f64) -> Vec<Value> {
    let base: Value = serde_json::from_str(RECORD).expect("JSON");
    TRIALS
        .iter()
        .enumerate()
        .map(|(trial, p50)| {
            let mut record = base.clone();
            let p50 = (*p50 as f64 * by) as u64;
            record["mechanism"] = json!(mechanism);
            record["case"] = json!(format!("{mechanism} ping-pong 64"));
            record["inputs"]["trial"] = json!(trial);
            record["latency_ns"][0]["p50"] = json!(p50);
            record["latency_ns"][0]["p99"] = json!(p50 * 2);
            record
        })
        .collect()
}

/// Creates the folder of a run with these records and, if given, the fingerprint of a machine.
fn write_run(dir: &Path, name: &str, records: &[Value], machine: Option<&Value>) -> PathBuf {
    let run = dir.join(name);
    fs::create_dir_all(&run).expect("a folder");
    let lines: String = records.iter().map(|r| format!("{r}\n")).collect();
    fs::write(run.join("results.jsonl"), lines).expect("a file");
    if let Some(machine) = machine {
        fs::write(run.join("env.json"), machine.to_string()).expect("a file");
    }
    run
}

/// Returns this machine's fingerprint as printed by `crossway env --json`, without the parts that are not stored.
fn this_machine() -> Value {
    let (out, err, code) = run(&["env", "--json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let mut env: Value = serde_json::from_str(&out).expect("JSON");
    assert!(env["findings"].is_array());
    env.as_object_mut().expect("an object").remove("findings");
    env
}

#[test]
fn a_slower_run_fails_a_gate_and_an_equal_one_passes() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let env = this_machine();
    let a = write_run(dir.path(), "a", &trials("pipe", 1.0), Some(&env));
    let b = write_run(dir.path(), "b", &trials("pipe", 1.2), Some(&env));
    let (out, err, code) = run(&["compare", path(&a), path(&b)]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("slower") && out.contains("round trip p50"), "{out}");
    let gate = ["compare", path(&a), path(&b), "--fail-on", "slower:5%"];
    let (out, _, code) = run(&gate);
    assert_eq!(code, 1);
    let out = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(out.contains("FAIL") && out.contains(": +20.0 %, which is slower"), "{out}");
    assert_eq!(run(&["compare", path(&b), path(&a), "--fail-on", "slower:5%"]).2, 0);
    assert_eq!(run(&["compare", path(&a), path(&b), "--fail-on", "slower:25%"]).2, 0);
    let (out, _, code) = run(&[&gate[..], &["--json"]].concat());
    let answer: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, answer["failed"].as_bool()), (1, Some(true)));
    assert_eq!(answer["comparisons"][0]["verdict"], "slower");
}

#[test]
fn runs_of_different_machines_are_refused_by_what_differs() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let env = this_machine();
    let mut other = env.clone();
    other["machine_id"] = json!("0123456789abcdef");
    other["machine_facts"]["cpus"] = json!("4096");
    let a = write_run(dir.path(), "a", &trials("pipe", 1.0), Some(&env));
    let b = write_run(dir.path(), "b", &trials("pipe", 1.0), Some(&other));
    let (_, err, code) = run(&["compare", path(&a), path(&b)]);
    assert_eq!(code, 2);
    assert!(err.contains("differ in cpus") && err.contains("--across-machines"), "{err}");
    assert!(err.len() < 400, "the values are shown on request: {err}");
    let (out, _, code) = run(&["compare", path(&a), path(&b), "--machines"]);
    assert_eq!((code, out.contains("cpus") && out.contains("B: 4096")), (0, true), "{out}");
    let (out, _, code) = run(&["compare", path(&a), path(&b), "--across-machines"]);
    assert_eq!(code, 0);
    assert!(out.contains("warning") && out.contains("differ in cpus"), "{out}");
    let c = write_run(dir.path(), "c", &trials("pipe", 1.0), None);
    let (out, _, code) = run(&["compare", path(&a), path(&c)]);
    assert_eq!(code, 0);
    assert!(out.contains("no env.json"), "{out}");
}

#[test]
fn two_parts_of_one_run_are_compared() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let records = [trials("pipe", 1.0), trials("fifo", 0.5)].concat();
    let a = write_run(dir.path(), "a", &records, None);
    let (out, _, code) =
        run(&["compare", path(&a), "--a", "mechanism=pipe", "--b", "mechanism=fifo"]);
    assert_eq!(code, 0);
    assert!(out.contains("pipe -> fifo") && out.contains("faster"), "{out}");
    let (_, err, code) = run(&["compare", path(&a)]);
    assert_eq!(code, 2);
    assert!(err.contains("there is no run later than"), "{err}");
    let (_, err, code) = run(&["compare", path(&a), "--a", "colour=red", "--b", "size=64"]);
    assert_eq!(code, 2);
    assert!(err.contains("no input is called 'colour'") && err.contains("mechanism"), "{err}");
}

#[test]
fn a_gate_that_compares_nothing_does_not_pass() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let a = write_run(dir.path(), "a", &trials("pipe", 1.0), None);
    let b = write_run(dir.path(), "b", &trials("fifo", 1.0), None);
    let (_, err, code) = run(&["compare", path(&a), path(&b), "--fail-on", "slower:5%"]);
    assert_eq!(code, 2);
    let alone = "cases only in A: 1, for example pipe";
    assert!(err.contains("nothing to compare") && err.contains(alone), "{err}");
    let (_, err, code) = run(&["compare", path(&a), path(&b)]);
    assert_eq!(code, 2, "{err}");
    // A run and a copy of it have nothing to compare either, although they have figures.
    let copy = write_run(dir.path(), "copy", &trials("pipe", 1.0), None);
    for b in [&a, &copy] {
        let (_, err, code) = run(&["compare", path(&a), path(b), "--fail-on", "slower:5%"]);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains("nothing new to compare"), "{err}");
        let (out, _, code) = run(&["compare", path(&a), path(b)]);
        assert!(code == 0 && out.contains("same trials"), "{out}");
    }
    let (_, err, code) = run(&["compare", path(&a), path(&b), "--fail-on", "larger:5%"]);
    assert_eq!(code, 2);
    assert!(err.contains("slower:5%"), "{err}");
}

#[test]
fn bad_records_are_one_clear_error_for_every_command() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let good = write_run(dir.path(), "good", &trials("pipe", 1.0), None);
    let mut newer = trials("pipe", 1.0);
    newer[2]["schema"] = json!(99);
    let newer = write_run(dir.path(), "newer", &newer, None);
    let damaged = write_run(dir.path(), "damaged", &[json!(17)], None);
    let empty = dir.path().join("empty");
    fs::create_dir_all(&empty).expect("a folder");
    let unmeasured = write_run(dir.path(), "unmeasured", &[], None);
    let nowhere = dir.path().join("nowhere");
    for (bad, says) in [
        (&newer, "results.jsonl:3: record schema 99 is newer"),
        (&damaged, "results.jsonl:1: cannot read this line"),
        (&empty, "is not a run"),
        (&unmeasured, "results.jsonl contains no records; name "),
        (&nowhere, "name a run's folder, its results.jsonl, `latest`"),
    ] {
        for args in [
            vec!["rank", path(bad)],
            vec!["export", path(bad)],
            vec!["compare", path(&good), path(bad)],
            vec!["compare", path(bad), path(&good)],
            vec!["report", path(bad)],
            vec!["report", path(bad), "--json"],
            vec!["report", path(bad), "--bundle"],
            vec!["report", path(bad), "--bundle", "--with-names"],
            vec!["channel", "profile", path(bad)],
            vec!["rerun", &format!("{}:pipe", path(bad))],
        ] {
            let (_, err, code) = run(&args);
            assert_eq!(code, 2, "{args:?}");
            assert!(err.contains(says) && err.lines().count() == 1, "{args:?}: {err}");
        }
        for made in ["report.html", "bundle.tar.gz"] {
            assert!(!bad.join(made).exists(), "{made} of {}", bad.display());
        }
    }
}

#[test]
fn what_is_called_latest_is_never_taken_silently_for_the_last_run() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let out = dir.path();
    let a = write_run(out, "a", &trials("pipe", 1.0), None);
    let b = write_run(out, "b", &trials("pipe", 1.0), None);
    for (at, of) in [&a, &b].into_iter().enumerate() {
        let info = json!({
            "run": path(of), "name": null, "plan": "quick", "filters": [], "hosts": null,
            "started_unix_ms": at + 1, "trials": null,
        });
        fs::write(of.join("run.json"), info.to_string()).expect("a file");
    }
    let latest = out.join("latest");
    let (_, err, code) = run(&["compare", path(&a)]);
    assert!(code == 0 && err.contains(path(&b)), "{err}");
    write_run(out, "latest", &trials("pipe", 2.0), None);
    for args in [vec!["rank", path(&latest)], vec!["compare", path(&a)]] {
        let (_, err, code) = run(&args);
        assert_eq!(code, 2, "{args:?}: {err}");
        let wanted = format!(
            "`latest` means the last run, {}, but there is also {}: name the run's folder, or rename",
            path(&b),
            path(&latest)
        );
        assert!(err.contains(&wanted) && err.lines().count() == 1, "{args:?}: {err}");
    }
}

#[test]
fn a_torn_last_line_is_reported_and_the_rest_used() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let a = write_run(dir.path(), "a", &[trials("pipe", 1.0), trials("fifo", 2.0)].concat(), None);
    let file = a.join("results.jsonl");
    let mut bytes = fs::read(&file).expect("readable");
    bytes.truncate(bytes.len() - 40);
    fs::write(&file, bytes).expect("written");
    let (out, _, code) = run(&["rank", path(&a)]);
    assert_eq!(code, 0);
    assert!(out.contains("incomplete") && out.contains("pipe"), "{out}");
}

#[test]
fn a_run_without_all_of_its_trials_is_called_incomplete() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let whole = write_run(dir.path(), "whole", &trials("pipe", 1.0), None);
    let cut = write_run(dir.path(), "cut", &trials("pipe", 1.0), None);
    let own = trials("pipe", 1.0).len() as u64;
    for (folder, all) in [(&whole, own), (&cut, own + 15)] {
        let info = json!({
            "run": trials("pipe", 1.0)[0]["run"], "plan": "own", "filters": [], "started_unix_ms": 1, "trials": all,
        });
        fs::write(folder.join("run.json"), info.to_string()).expect("written");
    }
    let told = format!("the run is incomplete (15 of {} trials missing)", own + 15);
    for (args, is_reported) in [
        (vec!["rank", path(&cut)], true),
        (vec!["rank", path(&whole)], false),
        (vec!["compare", path(&whole), path(&cut)], true),
        (vec!["compare", path(&whole), path(&whole)], false),
    ] {
        let (out, err, code) = run(&args);
        let said = format!("{out} {err}").split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(code, 0, "{args:?}: {said}");
        assert_eq!(said.contains(&told), is_reported, "{args:?}: {said}");
    }
}

#[test]
fn mechanisms_are_ranked() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let a = write_run(dir.path(), "a", &[trials("pipe", 1.0), trials("fifo", 0.5)].concat(), None);
    let (out, _, code) = run(&["rank", path(&a)]);
    assert_eq!(code, 0);
    let (fifo, pipe) = (out.find("fifo").expect("ranked"), out.find("pipe").expect("ranked"));
    assert!(fifo < pipe && out.contains("blocking"), "{out}");
    let (out, _, _) = run(&["rank", path(&a), "--json"]);
    let answer: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(answer["rankings"][0]["by_speed"][0]["mechanism"], "fifo");
}

#[test]
fn records_are_exported() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let a = write_run(dir.path(), "a", &trials("pipe", 1.0), None);
    let (out, _, code) = run(&["export", path(&a)]);
    assert_eq!((code, out.lines().count()), (0, 6));
    assert!(out.lines().next().expect("a heading").contains("round_trip_p50_ns"));
    let parquet = dir.path().join("out.parquet");
    assert_eq!(run(&["export", path(&a), "--out", path(&parquet)]).2, 0);
    let bytes = fs::read(&parquet).expect("written");
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    let (_, err, code) = run(&["export", path(&a), "--out", path(&dir.path().join("out.xls"))]);
    assert_eq!(code, 2);
    assert!(err.contains("--format"), "{err}");
    let (out, _, code) = run(&["export", "--columns"]);
    assert_eq!(code, 0);
    assert!(out.contains("cpu_ns_per_msg"), "{out}");
}
