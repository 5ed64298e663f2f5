//! Complete runs of the program: what they write, what they leave behind, and what happens if a process dies.

mod asked;
mod beside;
mod goals;
mod interrupted;
#[path = "../place/mod.rs"]
mod place;
mod several;

use std::fs;
use std::path::Path;
use std::process::Output;

use crossway_records::record::{Record, Span, Status};
use crossway_records::records_io::read_records;
use crossway_sys::topology::Topology;
use place::Place;

fn assert_success(output: &Output) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {stderr}", output.status);
}

const TINY: &str = r#"
seed = 7
[group.tiny]
mechanisms = ["pipe", "uds-seqpacket"]
workload = ["throughput", "ping-pong"]
size_bytes = [1, 64, "4 KiB"]
placement = "unpinned"
trials = 2
messages = 200
warmup_ms = 5
"#;

/// Returns whether a trial was completed as expected. It may be degraded because the hypervisor disturbed it or the
/// rate was not achieved, but for no other reason.
fn is_done(record: &Record) -> bool {
    let why = record.reason.as_deref().unwrap_or_default();
    let machine = [
        "the hypervisor took",
        "the virtual CPUs were moved",
        "this machine or container was stopped",
        "the rate was not achieved",
    ]
    .iter()
    .any(|spoiler| why.starts_with(spoiler));
    record.status == Status::Ok || (record.status == Status::Degraded && machine)
}

#[test]
fn a_tiny_plan_becomes_verified_records_and_nothing_stays_behind() {
    let place = Place::new(TINY);
    assert_success(&place.measure(&[]));
    let records = place.records();
    assert_eq!(records.len(), 2 * 2 * 3 * 2);
    for record in &records {
        assert!(is_done(record), "{}: {:?}", record.case, record.reason);
        let counts = record.counts.as_ref().unwrap();
        assert_eq!((counts.sent, counts.received), (200, 200));
        assert_eq!(counts.bytes, 200 * record.inputs.size_bytes);
        assert_eq!(counts.corrupt + counts.out_of_order, 0);
        assert!(record.throughput.unwrap().msgs_per_s > 0.0);
        assert_eq!(record.roles.len(), 2);
        assert!(record.roles.iter().all(|r| r.user_ns + r.system_ns > 0));
        assert!(record.calibration.harness.is_some(), "{}", record.case);
        if record.case.contains("ping-pong") {
            let latency = &record.latency_ns[0];
            assert_eq!(
                (latency.span, latency.n),
                (Span::RoundTrip, 200 / u64::from(latency.batch))
            );
            assert!(latency.min <= latency.p50 && latency.p50 <= latency.max);
            let log = fs::read(place.run().join(latency.histogram.as_ref().unwrap())).unwrap();
            let histograms = crossway_records::histogram::read_log(&log);
            assert_eq!(histograms[0].0, "round-trip");
            assert_eq!(histograms[0].1.len(), latency.n);
        }
    }
    // The order is a shuffle by rounds, identical for the same seed.
    let rounds: Vec<_> = records.iter().map(|r| r.inputs.trial).collect();
    assert_eq!(rounds, [[0; 12], [1; 12]].concat());
    assert!(records.iter().enumerate().all(|(at, r)| r.inputs.order == at as u32));
    for name in ["plan.toml", "env.json", "run.json", "preflight.json"] {
        assert!(place.run().join(name).exists(), "{name}");
    }
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

#[test]
fn every_workload_brings_its_figures() {
    let place = Place::new(
        r#"
[defaults]
mechanisms = ["uds-stream", "pipe"]
size_bytes = 64
placement = "unpinned"
trials = 1
warmup_ms = 5
measure_ms = 20
[group.paced]
workload = { paced = { burst_bytes = 256, period_us = 1000 } }
[group.requests]
workload = { requests = { period_ns = 1000000 } }
reply_bytes = 128
[group.exchange]
workload = "exchange"
messages = 20
[group.several]
workload = [{ pairs = { pairs = 2 } }, { fan-in = { senders = 3 } }, { fan-out = { receivers = 3 } }]
"#,
    );
    assert_success(&place.measure(&[]));
    let records = place.records();
    let of = |case: &str| {
        let found = records.iter().find(|r| r.case.starts_with(case));
        found.unwrap_or_else(|| panic!("no record of {case}"))
    };
    for record in records.iter().filter(|r| r.status != Status::Skipped) {
        assert!(is_done(record), "{}: {:?}", record.case, record.reason);
    }
    let paced = of("uds-stream/paced");
    let pacing = paced.pacing.unwrap();
    assert_eq!(pacing.bursts, 20);
    assert_eq!(pacing.lateness_ns.unwrap().n, 20);
    assert_eq!(paced.facts["timer_slack_ns"], 1);
    assert_eq!(paced.counts.as_ref().unwrap().received, 20 * 4);
    assert_eq!(paced.latency_ns[0].span, Span::OneWay);
    assert_eq!(paced.latency_ns[0].n, 80);
    let requests = of("uds-stream/requests-1000000ns");
    let pacing = requests.pacing.unwrap();
    assert_eq!((pacing.bursts, pacing.lateness_ns.unwrap().n), (20, 20));
    assert_eq!(pacing.intended_bits_per_s, 1000.0 * 128.0 * 8.0);
    assert_eq!(requests.facts["timer_slack_ns"], 1);
    let latency = &requests.latency_ns[0];
    assert_eq!((requests.latency_ns.len(), latency.span, latency.n), (1, Span::RoundTrip, 20));
    assert!(latency.max >= pacing.lateness_ns.unwrap().max, "it counts from the due instant");
    let exchange = of("uds-stream/exchange");
    let spans: Vec<_> = exchange.latency_ns.iter().map(|l| (l.span, l.n)).collect();
    assert_eq!(spans, [(Span::SetUp, 20), (Span::Exchange, 20), (Span::TearDown, 20)]);
    let refused = of("pipe/exchange");
    assert_eq!(refused.status, Status::Skipped);
    assert!(refused.remedy.is_some());
    for (case, roles, shares) in [("pairs-2", 4, 2), ("fan-in-3", 4, 3), ("fan-out-3", 4, 3)] {
        for mechanism in ["uds-stream", "pipe"] {
            let record = of(&format!("{mechanism}/{case}"));
            assert_eq!(record.roles.len(), roles, "{case}");
            let fairness = record.fairness.as_ref().unwrap();
            assert_eq!(fairness.shares.len(), shares);
            assert!((fairness.shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            assert!(fairness.jain > 0.0 && fairness.jain <= 1.0 + 1e-9);
        }
    }
}

#[test]
fn a_rate_far_beyond_reach_does_not_lengthen_the_trial() {
    // 409.6 million messages a second: 4,096,000 are due in the 10 ms, which would take seconds.
    let place = Place::new(
        "[group.x]\nmechanisms = \"pipe\"\nworkload = { paced = { burst_bytes = 262144, period_us = 10 } }\n\
         size_bytes = 64\nplacement = \"unpinned\"\ntrials = 1\nwarmup_ms = 4\nmeasure_ms = 10\n",
    );
    let output = place.measure(&["--dry-run"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // On a busy machine, "on an idle machine" comes between.
    assert!(said.contains("1 trial, about 3 s "), "{said}");
    assert!(said.ends_with(" if the offered rates are achieved\n"), "{said}");
    place.measure(&[]);
    let record = &place.records()[0];
    assert_eq!(record.status, Status::Degraded, "{:?}", record.reason);
    let sent = record.counts.as_ref().unwrap().sent;
    assert!(sent < 4_096_000 / 2, "{sent}");
}

#[test]
fn listing_prints_the_cases_and_makes_nothing() {
    let place = Place::new(TINY);
    let output = place.measure(&["--list", "-f", "pipe/*/64/"]);
    assert_success(&output);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "tiny/pipe/throughput/64/block/unpinned\ntiny/pipe/ping-pong/64/block/unpinned\n"
    );
    assert!(!place.dir.path().join("out").exists());
}

#[test]
fn bad_plans_and_filters_are_one_clear_error() {
    let place = Place::new("[group.x]\nmechanism = \"pipe\"\n");
    for (args, wanted) in [
        (
            vec!["measure", "plan.toml"],
            "group.x.mechanism: unknown key; allowed: about, mechanisms",
        ),
        (vec!["measure", "quik"], "there is no plan 'quik'"),
        (
            vec!["measure", "missing.toml"],
            "missing.toml: No such file or directory (os error 2); give the path",
        ),
        (vec!["measure", "."], "Is a directory (os error 21); give the path"),
        (vec!["measure", "quick", "-f", "nothing-is-called-so"], "no case matches"),
        (vec!["measure", "quick", "-f", "nothing-is-called-so", "--list"], "no case matches"),
        (vec!["measure", "quick", "--resume", "rt"], "'[PLAN]' cannot be used with '--resume"),
        (vec!["measure", "--resume", "rt"], "name a folder that `crossway measure` wrote"),
        (vec!["measure", "-o", "/proc/none"], "choose another folder with --out"),
    ] {
        let output = place.command(&args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(wanted), "{args:?}: {stderr}");
        assert!(stderr.matches("os error").count() <= 1, "{args:?}: told twice: {stderr}");
    }
}

#[test]
fn a_run_does_not_go_on_elsewhere_or_with_another_build() {
    let place = Place::new(TINY);
    assert_success(&place.measure(&[]));
    let run = place.run();
    let results = fs::read(run.join("results.jsonl")).unwrap();
    let environment = fs::read_to_string(run.join("env.json")).unwrap();
    let begun: serde_json::Value = serde_json::from_str(&environment).unwrap();
    for (change, wanted) in [
        (
            |e: &mut serde_json::Value| e["build"]["rustc"] = "rustc 1.0.0".into(),
            "it was started by crossway",
        ),
        (
            |e: &mut serde_json::Value| {
                e["machine_id"] = "another".into();
                e["machine_facts"]["cpus"] = "1000".into();
            },
            "a machine with a different cpus",
        ),
        (
            |e: &mut serde_json::Value| {
                e["machine_id"] = "another".into();
                e["machine_facts"].as_object_mut().unwrap().remove("cpus");
            },
            "a machine with a different cpus",
        ),
    ] as [(fn(&mut serde_json::Value), &str); 3]
    {
        let mut other = begun.clone();
        change(&mut other);
        fs::write(run.join("env.json"), other.to_string()).unwrap();
        let output =
            place.command(&["measure", "--resume", run.to_str().unwrap()]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(wanted) && stderr.contains("start a new run"), "{stderr}");
        assert_eq!(fs::read_to_string(run.join("env.json")).unwrap(), other.to_string());
    }
    assert_eq!(fs::read(run.join("results.jsonl")).unwrap(), results);
}

#[test]
fn every_mechanism_that_is_ready_passes_a_short_run() {
    // If both ends spin on one CPU, each can only wait for the other's time slice to end.
    let cpus = Topology::read().unwrap().allowed().len();
    let placement = if cpus > 1 { "other-core" } else { "same-core" };
    let place = Place::new(&format!(
        r#"
[group.all]
mechanisms = "all"
workload = ["throughput", "ping-pong"]
size_bytes = [64, "4 KiB"]
placement = "{placement}"
trials = 1
messages = 300
warmup_ms = 5
"#
    ));
    let output = place.measure(&[]);
    let bad: Vec<_> = place
        .records()
        .into_iter()
        .filter(|r| r.status == Status::Failed)
        .map(|r| format!("{}: {}", r.case, r.reason.unwrap_or_default()))
        .collect();
    assert_eq!(bad, Vec::<String>::new());
    assert_success(&output);
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

#[test]
fn the_largest_plan_lists_without_touching_the_machine() {
    let place = Place::new(TINY);
    let output = place.command(&["measure", "full", "--list"]).output().unwrap();
    assert_success(&output);
    assert!(String::from_utf8_lossy(&output.stdout).lines().count() > 1_000);
    assert!(!Path::new(&place.dir.path().join("rt/crossway")).exists());
}

#[test]
fn a_record_is_repeated_from_its_own_inputs() {
    let place = Place::new(
        r#"
seed = 99
[group.g]
mechanisms = "pipe"
workload = [{ paced = { burst_bytes = 128, period_us = 500 } }, "throughput"]
size_bytes = 64
wait = "block"
placement = "unpinned"
capacity_bytes = 65536
messages = 40
trials = 1
warmup_ms = 3
"#,
    );
    assert_success(&place.measure(&[]));
    let run = place.run();
    for which in ["1", "2", "g/pipe/throughput/64/block/unpinned/capacity65536"] {
        let words = format!("{}:{which}", run.display());
        let output = place.command(&["rerun", &words, "-o", "again", "--json"]).output().unwrap();
        assert_success(&output);
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let dir = place.dir.path().join(told["dir"].as_str().unwrap());
        let repeated = read_records(&dir).unwrap().records.remove(0);
        let original = place.records().into_iter().find(|r| r.case == repeated.case).unwrap();
        let mut wanted = original.inputs.clone();
        wanted.order = repeated.inputs.order;
        assert_eq!(repeated.inputs, wanted);
        assert!(is_done(&repeated), "{:?}", repeated.reason);
    }
    for (words, wanted) in [
        ("nowhere:1", "nowhere"),
        ("out", "does not name a record"),
        ("plan.toml:99", "there is no line 99"),
    ] {
        let output = place.command(&["rerun", words]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr.contains(wanted), "{words}: {stderr}");
    }
}

#[test]
fn a_run_of_which_every_case_is_skipped_says_why_and_what_helps() {
    let place = Place::new(
        "about = \"nothing\"\n[group.g]\nmechanisms = [\"pipe\", \"fifo\"]\nworkload = \"ping-pong\"\nsize_bytes = [0]\n",
    );
    let output = place.measure(&[]);
    assert_eq!(output.status.code(), Some(1), "nothing was measured: {output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    for words in
        ["Nothing was measured", "empty messages (skipped: ", "-> use a size of at least 1 byte"]
    {
        assert!(said.contains(words), "{said}");
    }
    assert!(place.records().iter().all(|record| record.status == Status::Skipped));
}
