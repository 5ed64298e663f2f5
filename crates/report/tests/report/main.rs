//! The sentences, the tables and the page that the report makes from records.

mod apart;
mod blocks;
mod brief;
mod hosts;
mod moved;
mod paced;
mod page;
#[path = "../synthetic/mod.rs"]
mod synthetic;
mod verdicts;

use std::path::Path;

use crossway_records::inputs::{Load, Wait, Workload};
use crossway_records::record::{Record, Span, Status};
use crossway_report::histograms::Histograms;
use crossway_report::raw::{Raw, TRIALS_MAX};
use crossway_report::steps::Shapes;
use crossway_report::terminal::Told;
use crossway_report::{Run, RunError, charts, html, json, sections, svg, terminal};
use page::page;
use synthetic::{Ask, MADE, Noise};

/// Returns trials of a mechanism with these round trips in nanoseconds.
fn round_trips(mechanism: &str, wait: Wait, p50s_ns: &[u64]) -> Vec<Record> {
    let ask = Ask::idle(Workload::PingPong, 64);
    let trial = |(at, p50): (usize, &u64)| {
        let mut record =
            synthetic::trial(&MADE[0], &ask, at as u32, 5, at as u32, &mut Noise::new(3));
        record.mechanism = mechanism.to_owned();
        record.case = format!("synthetic/{mechanism}");
        record.inputs.wait = wait;
        record.status = Status::Ok;
        record.reason = None;
        record.remedy = None;
        record.latency_ns.retain(|l| l.span == Span::RoundTrip);
        record.latency_ns[0].p50 = *p50;
        record
    };
    p50s_ns.iter().enumerate().map(trial).collect()
}

fn run_of(parts: Vec<Vec<Record>>) -> Run {
    Run::of_records(Path::new("run"), parts.into_iter().flatten().collect())
}

const FAST: [u64; 5] = [10_000, 10_050, 10_020, 10_100, 10_040];
const SLOW: [u64; 5] = [20_000, 20_200, 20_400, 20_100, 20_300];

#[test]
fn a_run_that_only_skipped_says_so() {
    let run = run_of(vec![vec![synthetic::skipped("vsock", "no transport", "modprobe vsock")]]);
    assert_eq!(run.verdict().headline, "Nothing was measured: every case was skipped.");
    assert_eq!(run.summary.skipped_mechanisms(), ["vsock"]);
    assert!(
        terminal::terminal(&run, false, 100)
            .contains("1 case skipped, including all cases of vsock:")
    );
}

#[test]
fn lost_messages_are_counted_beside_the_figures() {
    let mut udp = round_trips("udp", Wait::Block, &FAST);
    for (trial, record) in udp.iter_mut().enumerate() {
        let counts = record.counts.as_mut().expect("counts");
        (counts.sent, counts.received) = (1_000, if trial < 2 { 900 } else { 1_000 });
    }
    // The figures come from trials that are not degraded, if there are any; so does the share.
    let mut spoiled = udp[0].clone();
    spoiled.status = Status::Degraded;
    udp.push(spoiled);
    // A case without losses does not change the share in the others.
    let mut complete = round_trips("udp", Wait::Block, &FAST);
    complete.iter_mut().for_each(|record| record.inputs.size_bytes = 4096);
    udp.extend(complete);
    let udp_again = udp.clone();
    let run = run_of(vec![udp, round_trips("pipe", Wait::Block, &SLOW)]);
    let line = "- udp: 200 of 5000 (4.00 %), in 2 of 5 trials";
    for text in [terminal::terminal(&run, false, 100), terminal::markdown(&run)] {
        assert!(
            text.contains("Lost messages, in the cases with losses; throughput counts only"),
            "{text}"
        );
        assert!(text.contains(line) && !text.contains("- pipe:"), "{text}");
    }
    let brief = |run| terminal::brief(run, false, 80, terminal::Told::NotYet);
    assert!(brief(&run).contains("\n- udp: 4.0 %\n"), "{}", brief(&run));
    // The share of two cases together is that of neither.
    let mut worse = round_trips("udp", Wait::Block, &FAST);
    for record in &mut worse {
        let counts = record.counts.as_mut().expect("counts");
        (counts.sent, counts.received) = (1_000, 700);
        record.inputs.size_bytes = 1024;
    }
    let run = run_of(vec![udp_again, worse, round_trips("pipe", Wait::Block, &SLOW)]);
    assert!(brief(&run).contains("\n- udp: 4.0 % to 30 %, by case\n"), "{}", brief(&run));
}

#[test]
fn a_run_of_degraded_trials_or_of_other_workloads_says_what_its_figures_are_for() {
    let mut records = round_trips("pipe", Wait::Block, &FAST);
    records.iter_mut().for_each(|record| record.status = Status::Degraded);
    let run = run_of(vec![records]);
    assert!(run.verdict().headline.contains("every trial was degraded"));
    let pairs = |mechanism, trials| {
        let mut records = round_trips(mechanism, Wait::Block, &FAST[..trials]);
        for record in &mut records {
            record.inputs.workload = Workload::Pairs { pairs: 2 };
        }
        records
    };
    let detail = run_of(vec![pairs("pipe", 5), pairs("fifo", 5)]).verdict().detail;
    assert!(detail.ends_with("the other workloads, and `crossway rank` ranks them."), "{detail}");
    // The command has no ranking of a single mechanism, nor of too few trials.
    for parts in [vec![pairs("pipe", 5)], vec![pairs("pipe", 4), pairs("fifo", 4)]] {
        let detail = run_of(parts).verdict().detail;
        assert!(detail.ends_with("show the figures of the other workloads."), "{detail}");
    }
}

#[test]
fn degraded_trials_are_kept_but_not_averaged_in() {
    let mut trials = round_trips("pipe", Wait::Block, &FAST);
    let mut spoiled = round_trips("pipe", Wait::Block, &[90_000]);
    spoiled[0].status = Status::Degraded;
    trials.extend(spoiled.clone());
    let run = run_of(vec![trials, round_trips("fifo", Wait::Block, &SLOW)]);
    let pipe = run.summary.cases.iter().find(|c| c.name.contains("pipe") && !c.degraded);
    let p50 = pipe.expect("the case is there").latency(Span::RoundTrip).expect("timed").p50;
    assert_eq!((p50.n, p50.high), (5, 10_100.0));
    assert_eq!(run.summary.trials(Status::Degraded), 1);
    // A mechanism with degraded trials only is shown and marked, but never wins.
    spoiled[0].latency_ns[0].p50 = 1;
    let run = run_of(vec![spoiled, round_trips("fifo", Wait::Block, &SLOW)]);
    assert!(
        run.verdict().headline.contains("only fifo has enough good trials"),
        "{}",
        run.verdict().headline
    );
}

#[test]
fn reversals_under_load_are_found_and_only_where_clear() {
    let under_load = |mut records: Vec<Record>| {
        for record in &mut records {
            record.inputs.load = Load { cpu: 2, ..Load::default() };
        }
        records
    };
    let run = run_of(vec![
        round_trips("shm-futex", Wait::Block, &FAST),
        round_trips("pipe", Wait::Block, &SLOW),
        round_trips("tcp", Wait::Block, &[26_000, 26_100, 26_200, 26_050, 26_150]),
        under_load(round_trips("tcp", Wait::Block, &[17_000, 17_100, 17_200, 17_050, 17_150])),
        under_load(round_trips(
            "shm-futex",
            Wait::Block,
            &[90_000, 91_000, 92_000, 90_500, 91_500],
        )),
        under_load(round_trips("pipe", Wait::Block, &[30_000, 31_000, 32_000, 30_500, 31_500])),
    ]);
    let all = charts::all(&run.summary, &run.limits, &run.histograms);
    let load = all.iter().find(|c| c.id == "load").expect("there is load to compare");
    assert_eq!(
        load.findings[0],
        "ping-pong 64 B shared-cache, blocking: shm-futex is ahead of pipe and tcp without added load, but behind under load (cpu-2)."
    );
    let last = load.findings.last().expect("there is one");
    assert!(
        last.starts_with("Faster under load than without: tcp (median round trip, 64 B)."),
        "{last}"
    );
}

#[test]
fn sections_without_data_are_left_out() {
    let run = run_of(vec![round_trips("pipe", Wait::Block, &FAST)]);
    let ids: Vec<_> =
        charts::all(&run.summary, &run.limits, &run.histograms).iter().map(|c| c.id).collect();
    assert_eq!(ids, ["distribution"]);
}

#[test]
fn figures_stand_beside_the_limit_that_binds_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let records = [
        round_trips("shm-spin", Wait::Spin, &[192, 192, 192, 192, 192]),
        round_trips("pipe", Wait::Block, &[17_200, 17_200, 17_200, 17_200, 17_200]),
    ];
    let mut records: Vec<Record> = records.into_iter().flatten().collect();
    for record in &mut records {
        record.calibration.cache_line_before_ns = Some(96.0);
        record.calibration.blocking_exchange_ns = Some(8_600.0);
    }
    synthetic::write(dir.path(), &records);
    synthetic::write_surroundings(dir.path());
    let run = Run::read(dir.path()).expect("it was written above");
    let sections = sections::all(&run, &Shapes::of(&run));
    let section = sections.iter().find(|s| s.id == "limits").expect("there are limits");
    let beside = &section.tables[0];
    let ratio = |mechanism: &str| {
        let row = beside.rows.iter().find(|r| r.cells[0].text == mechanism).expect("a row");
        (row.cells[2].text.clone(), row.cells[3].text.clone())
    };
    // A spinning end waits for a cache line in each direction; a blocking one for its own wake-up and the other end's.
    assert_eq!(
        ratio("shm-spin"),
        ("cache-line round trip, 96.0 ns".to_owned(), "2.00 ×".to_owned())
    );
    assert_eq!(ratio("pipe"), ("bare blocking exchange, 8.60 µs".to_owned(), "2.00 ×".to_owned()));
    // The fastest pair in limits.json has 64 ns; the chart shows the reading between the trials, or they would seem to
    // beat the limit.
    let level = &run.limits.round_trip_levels(&run.summary)[0];
    assert_eq!(*level, ("cache-line round trip".to_owned(), 96.0));
    assert!(run.machine.line.starts_with("SYNTHETIC processor"), "{}", run.machine.line);
    assert_eq!(run.notices, [""; 0]);
}

/// Writes these records and a fingerprint of a virtual machine or a physical one, and reads them as a run.
fn run_on(hypervisor: Option<&str>, records: &[Record], findings: &str) -> Run {
    let dir = tempfile::tempdir().expect("a directory");
    synthetic::write(dir.path(), records);
    let mut environment = crossway_lab::env::Environment::take().expect("a fingerprint");
    environment.virtualisation.hypervisor = hypervisor.map(str::to_owned);
    let environment = serde_json::to_vec(&environment).expect("JSON");
    std::fs::write(dir.path().join("env.json"), environment).expect("room");
    std::fs::write(dir.path().join("preflight.json"), findings).expect("room");
    Run::read(dir.path()).expect("it was written above")
}

#[test]
fn cases_in_which_moved_cores_go_unnoticed_are_counted() {
    let unread = |mechanism: &str, cpus: &[u32]| {
        let mut records = round_trips(mechanism, Wait::Block, &FAST);
        for record in &mut records {
            record.inputs.cpus = cpus.to_vec();
            record.calibration.cache_line_before_ns = None;
            record.calibration.cache_line_after_ns = None;
        }
        records
    };
    let checked = round_trips("pipe", Wait::Block, &FAST);
    // Two ends on one CPU have no distance that could change.
    let one_cpu = unread("tcp", &[1, 1]);
    let known = [checked, one_cpu].concat();
    let all = [known.clone(), unread("fifo", &[0, 1])].concat();
    assert_eq!(run_on(Some("KVM"), &known, "[]").notices, [""; 0]);
    assert_eq!(run_on(None, &all, "[]").notices, [""; 0]);
    let notices = run_on(Some("KVM"), &all, "[]").notices;
    assert!(
        notices.len() == 1 && notices[0].starts_with("It is unknown for 1 of 3 cases whether"),
        "{notices:?}"
    );
}

#[test]
fn what_was_found_before_a_continuation_is_told_apart() {
    let found = |what: &str, more: &str| {
        format!(
            r#"{{"severity":"warning","about":"load","what":"{what}","next_step":"wait"{more}}}"#
        )
    };
    let findings = format!("[{},{}]", found("first", ""), found("second", r#","continued":true"#));
    let notices = run_on(None, &round_trips("pipe", Wait::Block, &FAST), &findings).before;
    assert_eq!(
        notices,
        [
            "Before the run: first (next step: wait).",
            "Before the run was continued: second (next step: wait)."
        ]
    );
}

#[test]
fn a_figure_beyond_its_limit_is_marked_where_it_stands() {
    let with_limit = |p50s: &[u64; 5]| {
        let mut records = round_trips("pipe", Wait::Block, p50s);
        for record in &mut records {
            record.calibration.blocking_exchange_ns = Some(17_000.0);
        }
        run_of(vec![records])
    };
    let html = page(&with_limit(&FAST));
    assert!(html.contains(r#"<span class="fig">10.0 µs †</span>"#));
    assert!(html.contains(r#"<p class="small">† beyond the limit"#));
    assert!(!page(&with_limit(&SLOW)).contains('†'));
    let with_limit = |p50s| terminal::terminal(&with_limit(p50s), false, 100);
    let beyond = with_limit(&FAST);
    assert!(beyond.contains("10.0 µs †") && beyond.contains("\n† beyond the limit"), "{beyond}");
    let within = with_limit(&SLOW);
    assert!(!within.contains('†'), "{within}");
}

#[test]
fn the_terminal_summary_fits_a_hundred_columns() {
    let asks: Vec<Ask> = [64, 4096, 65_536]
        .into_iter()
        .flat_map(|s| [Workload::PingPong, Workload::Throughput].map(|w| Ask::idle(w, s)))
        .collect();
    let run = Run::of_records(Path::new("run"), synthetic::run(&MADE, &asks, 5, 4));
    assert!(run.summary.contenders.len() > 25);
    for coloured in [false, true] {
        let text = terminal::terminal(&run, coloured, 100);
        assert_eq!(coloured, text.contains('\x1b'));
        for line in text.lines() {
            let mut width = 0;
            let mut escape = false;
            for letter in line.chars() {
                match letter {
                    '\x1b' => escape = true,
                    'm' if escape => escape = false,
                    _ if escape => {}
                    _ => width += 1,
                }
            }
            assert!(width <= 100, "{width} columns: {line}");
        }
    }
}

#[test]
fn summary_on_the_terminal_and_as_markdown() {
    let few = [&MADE[0], &MADE[5], &MADE[6], &MADE[12], &MADE[22], &MADE[23]];
    let mut noise = Noise::new(21);
    let mut records = Vec::new();
    for trial in 0..5 {
        for workload in [Workload::PingPong, Workload::Throughput] {
            for size in [64, 65_536] {
                for made in few {
                    let ask = Ask::idle(workload, size);
                    records.push(synthetic::trial(made, &ask, trial, 5, 0, &mut noise));
                }
            }
        }
    }
    records.push(synthetic::skipped(
        "vsock",
        "no vsock transport is loaded",
        "modprobe vsock_loopback",
    ));
    let run = Run::of_records(Path::new("run"), records);
    insta::assert_snapshot!("brief", terminal::brief(&run, false, 80, Told::NotYet));
    insta::assert_snapshot!("terminal", terminal::terminal(&run, false, 100));
    insta::assert_snapshot!("markdown", terminal::markdown(&run));
}

#[test]
fn unreadable_runs_give_one_clear_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let missing = dir.path().join("none");
    assert!(matches!(Run::read(&missing), Err(RunError::NoDirectory(_))));
    assert!(Run::read(dir.path()).unwrap_err().to_string().contains("is not a run"));
    std::fs::write(dir.path().join("results.jsonl"), "").expect("room");
    assert!(Run::read(dir.path()).unwrap_err().to_string().contains("contains no records; name"));

    let records = round_trips("pipe", Wait::Block, &FAST);
    synthetic::write(dir.path(), &records);
    let file = dir.path().join("results.jsonl");
    let mut text = std::fs::read_to_string(&file).expect("written above");
    text.push_str("{\"schema\":1,\"run\":\"torn");
    std::fs::write(&file, &text).expect("room");
    let run = Run::read(dir.path()).expect("a torn last line is no reason to stop");
    assert_eq!(run.records.len(), 5);
    assert!(run.notices.iter().any(|n| n.contains("incomplete")), "{:?}", run.notices);

    // A run without all of its trials says so wherever it is shown.
    let info = r#"{"run": "2026-01-02T03:04:05Z-synthetic", "plan": "own", "filters": [], "started_unix_ms": 1, "trials": 20}"#;
    std::fs::write(dir.path().join("run.json"), info).expect("room");
    let run = Run::read(dir.path()).expect("a run");
    let told =
        "the run is incomplete (15 of 20 trials missing); continue with: crossway measure --resume";
    for text in [terminal::terminal(&run, false, 400), terminal::markdown(&run), page(&run)] {
        assert!(text.contains(told), "{text}");
    }
    std::fs::remove_file(dir.path().join("run.json")).expect("written above");

    std::fs::write(
        &file,
        text.replace(&format!("\"schema\":{}", crossway_records::record::SCHEMA), "\"schema\":99"),
    )
    .expect("room");
    let error = Run::read(dir.path()).unwrap_err().to_string();
    assert!(error.contains("schema 99 is newer") && !error.contains('\n'), "{error}");
}
