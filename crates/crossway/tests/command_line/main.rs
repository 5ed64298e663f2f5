//! The command line: runs found by name, filters, sort orders, widths, completions.

mod reference;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

const RECORD: &str = include_str!("../data/record-schema-1.json");

fn crossway(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("crossway"));
    command.args(args).current_dir(dir).env("NO_COLOR", "1").env_remove("COLUMNS");
    command.output().expect("it runs")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn error(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// Returns five trials of a mechanism: with message rates around `by` million per second if `rate` is set, otherwise
/// with round trips around `by` times 10 µs.
fn trials(mechanism: &str, size: u64, rate: bool, by: f64) -> Vec<Value> {
    let base: Value = serde_json::from_str(RECORD).expect("JSON");
    (0..5u32)
        .map(|trial| {
            let mut record = base.clone();
            let factor = by * (1.0 + f64::from(trial) * 0.001);
            record["mechanism"] = json!(mechanism);
            record["inputs"]["trial"] = json!(trial);
            record["inputs"]["size_bytes"] = json!(size);
            let workload = if rate { "throughput" } else { "ping-pong" };
            record["inputs"]["workload"] = json!(workload);
            record["case"] = json!(format!("{mechanism}/{workload}/{size}/block/other-core"));
            if rate {
                record["throughput"]["msgs_per_s"] = json!(1e6 * factor);
                record["latency_ns"] = json!([]);
            } else {
                record["latency_ns"][0]["p50"] = json!((10_000.0 * factor) as u64);
            }
            record
        })
        .collect()
}

/// Creates the folder of a run below `out`, as `measure --name` would.
fn write_run(
    dir: &Path,
    folder: &str,
    name: Option<&str>,
    begun: u64,
    records: &[Value],
) -> PathBuf {
    let run = dir.join("out").join(folder);
    fs::create_dir_all(&run).expect("a folder");
    let lines: String = records.iter().map(|r| format!("{r}\n")).collect();
    fs::write(run.join("results.jsonl"), lines).expect("a file");
    let info = json!({
        "run": folder, "name": name, "plan": "quick", "filters": [], "started_unix_ms": begun,
    });
    fs::write(run.join("run.json"), info.to_string()).expect("a file");
    run
}

#[test]
fn runs_are_found_by_latest_and_by_name_by_every_command() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path();
    write_run(at, "x1", Some("main"), 1, &trials("pipe", 64, true, 1.0));
    write_run(at, "x2", None, 2, &trials("pipe", 64, true, 0.376));
    assert!(text(&crossway(at, &["export", "main"])).contains("1000000"));
    assert!(text(&crossway(at, &["export", "latest"])).contains("376000"));
    let question = ["advise", "--size", "64", "--no-measure"];
    for run in ["main", "latest"] {
        for args in [
            &["rank", run][..],
            &["report", run, "--terminal"],
            &["report", run, "--json"],
            &["compare", run, run],
        ] {
            text(&crossway(at, args));
        }
        // These need more than a run with a pipe's throughput; they find the run nevertheless.
        for (args, says) in [
            (&[&question[..], &["--records", run]].concat()[..], "Question: "),
            (&["rerun", &format!("{run}:99")], "results.jsonl"),
            (&["profile", &format!("{run}:99")], "results.jsonl"),
            (&["measure", "--resume", run], "out/x"),
            (&["channel", "profile", run], "out/x"),
        ] {
            let output = crossway(at, args);
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8(said).expect("UTF-8");
            assert!(said.contains(says) && !said.contains("no run"), "{args:?}: {said}");
        }
    }
    // A single run is compared with the latest one.
    let compared = text(&crossway(at, &["compare", "main"]));
    assert!(compared.contains("slower"), "{compared}");
    assert_eq!(compared, text(&crossway(at, &["compare", "main", "latest"])));
    let refused = error(&crossway(at, &["compare", "latest"]));
    assert!(refused.contains("there is no run later than"), "{refused}");
    let unknown = error(&crossway(at, &["rank", "mian"]));
    assert!(unknown.contains("no run 'mian'") && unknown.contains("a name: main"), "{unknown}");
    let elsewhere = tempfile::tempdir().expect("a folder");
    assert!(error(&crossway(elsewhere.path(), &["rank", "latest"])).contains("no run in out"));
}

#[test]
fn a_change_is_stated_as_the_figures_own() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path();
    write_run(at, "a", Some("main"), 1, &trials("pipe", 64, true, 1.0));
    write_run(at, "b", None, 2, &trials("pipe", 64, true, 0.376));
    let out = text(&crossway(at, &["compare", "main"]));
    assert!(out.contains("-62.4 %") && out.contains("377 k msg/s"), "{out}");
    assert!(!out.contains("165.9") && !out.contains("0.376"), "{out}");
    let gate = crossway(at, &["compare", "main", "--fail-on", "slower:5%"]);
    // Lines are wrapped to fit.
    let out = String::from_utf8_lossy(&gate.stdout);
    let out = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(gate.status.code(), Some(1));
    assert!(out.contains("messages/s: -62.4 %, which is slower"), "{out}");
}

#[test]
fn cases_are_filtered_sorted_and_fit_eighty_columns() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path();
    let run = |speed: f64| {
        let mut records = Vec::new();
        for size in [65_536, 64, 4096] {
            for (mechanism, by) in
                [("tipc-node-seqpacket", 1.0), ("pipe", 2.0), ("uring-pipe", 3.0)]
            {
                records.extend(trials(mechanism, size, true, by * speed));
                records.extend(trials(mechanism, size, false, by * speed));
            }
        }
        records
    };
    write_run(at, "slow", None, 0, &run(0.5));
    write_run(at, "a", None, 1, &run(1.0));
    write_run(at, "b", None, 2, &run(1.0));
    for args in
        [&["rank", "latest"][..], &["compare", "out/a"], &["report", "latest", "--terminal"]]
    {
        let out = text(&crossway(at, args));
        let widest = out.lines().max_by_key(|line| line.chars().count()).expect("lines");
        assert!(widest.chars().count() <= 80, "{args:?}: {widest}");
    }
    let ranked = text(&crossway(at, &["rank", "latest"]));
    let places: Vec<_> =
        ["ping-pong 64 B", "ping-pong 4 KiB", "ping-pong 64 KiB", "throughput 64 B"]
            .map(|setting| ranked.find(setting).expect("a ranking"))
            .to_vec();
    assert!(places.is_sorted(), "{ranked}");
    assert!(ranked.contains(" M ") && ranked.contains("µs"), "{ranked}");
    // A filter matches anywhere in the name, not only at its beginning.
    let piped = text(&crossway(at, &["rank", "latest", "-f", "pipe/throughput/64/"]));
    assert!(piped.contains("uring-pipe") && !piped.contains("tipc-node"), "{piped}");
    assert!(!piped.contains("4096"), "{piped}");
    let none = error(&crossway(at, &["rank", "latest", "-f", "no-such"]));
    assert!(none.contains("no case of") && none.contains("no-such"), "{none}");
    let by_name =
        text(&crossway(at, &["rank", "latest", "-f", "throughput/64/", "--sort", "name"]));
    assert!(by_name.find(" pipe") < by_name.find("tipc-node"), "{by_name}");
    let by_speed = text(&crossway(at, &["rank", "latest", "-f", "throughput/64/"]));
    assert!(by_speed.find("uring-pipe") < by_speed.find(" pipe"), "{by_speed}");
    let markdown = text(&crossway(at, &["rank", "latest", "--markdown"]));
    assert!(markdown.contains("| ---: |") && markdown.contains("### ping-pong 64 B"), "{markdown}");
    // An interval stays in one line, and the gate lists what fails in the order of the table.
    let compared = text(&crossway(at, &["compare", "out/a"]));
    let figures: Vec<&str> = compared.lines().filter(|line| line.contains("..")).collect();
    assert!(!figures.is_empty() && figures.iter().all(|line| line.contains(" % ")), "{compared}");
    let gate = crossway(at, &["compare", "out/a", "out/slow", "--fail-on", "slower:5%"]);
    let gate = String::from_utf8_lossy(&gate.stdout).into_owned();
    let failing: Vec<_> = ["FAIL pipe throughput 64 B", "FAIL pipe throughput 64 KiB"]
        .map(|case| gate.find(case).unwrap_or_else(|| panic!("{case}: {gate}")))
        .to_vec();
    assert!(failing.is_sorted(), "{gate}");
    let markdown = text(&crossway(at, &["compare", "out/a", "--markdown", "-f", "/64/"]));
    assert!(markdown.contains("| case |") && !markdown.contains("4096"), "{markdown}");
}

#[test]
fn shells_are_offered_plans_mechanisms_and_runs() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path();
    write_run(at, "x1", Some("main"), 1, &trials("pipe", 64, true, 1.0));
    let offered = |words: &[&str]| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("crossway"));
        command.current_dir(at).env("CROSSWAY_COMPLETE", "bash").env("_CLAP_IFS", "\n");
        command.env("_CLAP_COMPLETE_INDEX", (words.len() + 1).to_string());
        command.env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_COMPLETE_SPACE", "false");
        command.args(["--", "crossway"]).args(words).arg("");
        let output = command.output().expect("it runs");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let has = |offers: &str, one: &str| offers.lines().any(|line| line == one);
    let plans = offered(&["measure"]);
    assert!(has(&plans, "quick") && has(&plans, "toshiba"), "{plans}");
    for command in [&["measure", "-f"][..], &["faults"], &["profile"]] {
        let mechanisms = offered(command);
        assert!(has(&mechanisms, "uds-stream"), "{command:?}: {mechanisms}");
        assert!(has(&mechanisms, "zeromq-ipc"), "{command:?}: {mechanisms}");
    }
    let contenders = offered(&["contender", "build"]);
    assert!(has(&contenders, "zeromq-ipc") && !has(&contenders, "pipe"), "{contenders}");
    let questions = offered(&["advise"]);
    assert!(has(&questions, "camera"), "{questions}");
    let runs = offered(&["compare"]);
    assert!(has(&runs, "latest") && has(&runs, "main") && has(&runs, "out/x1"), "{runs}");
    let commands = offered(&["tipc", "bearer"]);
    assert!(has(&commands, "enable"), "{commands}");
}

#[test]
fn a_command_that_only_probes_leaves_nothing_in_the_runtime_directory() {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_crossway"))
        .arg("list")
        .env("XDG_RUNTIME_DIR", dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", error(&output));
    let left: Vec<_> = fs::read_dir(dir.path().join("crossway")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_help_of_measure_names_every_preset() {
    let dir = tempfile::tempdir().expect("a folder");
    let help = text(&crossway(dir.path(), &["measure", "--help"]));
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let presets = help.split_once("or a preset: ").expect("presets").1;
    let presets = presets.split(" [").next().expect("text");
    for (name, _) in crossway_lab::plan::PRESETS {
        assert!(presets.split(", ").any(|preset| preset == *name), "{name}: {presets}");
    }
}

#[test]
fn shares_on_the_command_line_need_their_unit() {
    let dir = tempfile::tempdir().expect("a folder");
    for option in ["--loss", "--duplicate", "--reorder"] {
        let refused = error(&crossway(dir.path(), &["net", "up", option, "1"]));
        assert!(refused.contains("with the percent sign, such as 0.5%"), "{refused}");
    }
}

#[test]
fn sizes_on_the_command_line_may_have_a_unit() {
    let dir = tempfile::tempdir().expect("a folder");
    let refused = error(&crossway(dir.path(), &["limits", "--sizes", "4KiB", "--pair", "0-60000"]));
    assert!(refused.contains("CPU 60000"), "{refused}");
    assert!(error(&crossway(dir.path(), &["limits", "--sizes", "65MiB"])).contains("64 MiB"));
}

/// Checks that each command rejects each of the values in `wrong`, and that the error message contains the option and
/// `example`.
fn rejects(commands: &[&str], wrong: &[&str], example: &str) {
    let dir = tempfile::tempdir().unwrap();
    for command in commands {
        for wrong in wrong {
            let args: Vec<&str> = command.split(' ').chain([*wrong]).collect();
            let output = crossway(dir.path(), &args);
            let said = error(&output);
            assert_eq!(output.status.code(), Some(2), "{command} {wrong}: {said}");
            let option = args[args.len() - 2];
            assert!(said.contains(option) && said.contains(example), "{command} {wrong}: {said}");
        }
    }
}

#[test]
fn values_that_are_no_numbers_are_answered_with_an_example() {
    let numbers = [
        "advise --rate",
        "advise --p50-us",
        "advise --max-us",
        "advise --cpu-percent",
        "channel check camera --cpu-budget",
        "channel top --interval-s",
        "channel check camera --seconds",
        "linx hunt camera --timeout",
        "linx send camera --timeout",
    ];
    rejects(&numbers, &["abc", "nan", "inf", "1e999", "20k", ""], "1000 or 0.5");
    rejects(&numbers, &["-3"], "-3");
    let beyond = ["abc", "1.5", "20k", "-3", "0", "1001"];
    rejects(&["measure --trials"], &beyond, "whole number from 1 to 1000");
    let whole = [
        "measure --measure-ms",
        "measure --warmup-ms",
        "profile --measure-ms",
        "linx bench --size",
        "linx node --link-timeout",
        "channel check camera --wait-s",
        "tipc top --count",
        "tipc wait --peers",
        "guest up g --memory",
        "advise --peers",
    ];
    rejects(&whole, &["abc", "1.5", "20k"], "whole number such as 1000");
    // A count that may be negative for the parser is checked with the rest of the question.
    rejects(&whole[..whole.len() - 1], &["-3"], "-3");
}
