//! Blocks of tables: one per setting and kind of workload, including paced ones, and none wider than the terminal.

use std::path::Path;

use crossway_records::inputs::{Beside, Load, Placement, ReplayShape, Workload};
use crossway_records::record::{BesideFigures, Record, Status};
use crossway_report::blocks::blocks;
use crossway_report::{Run, sections, steps::Shapes, terminal};

use super::page::page;
use super::synthetic::{self, Ask, MADE};
use super::{SLOW, Wait, round_trips, run_of};

fn run(asks: &[Ask]) -> Run {
    Run::of_records(Path::new("run"), synthetic::run(&MADE[..4], asks, 5, 21))
}

#[test]
fn every_setting_and_workload_has_its_block() {
    let idle = Ask::idle(Workload::PingPong, 64);
    let loaded =
        Ask { load: Load { cpu: 2, memory: 0, io: 0 }, ..Ask::idle(Workload::PingPong, 64) };
    let run = run(&[idle, loaded, Ask::idle(Workload::Exchange, 64)]);
    let (found, left_out) = blocks(&run.summary, 12);
    let titles: Vec<&str> = found.iter().map(|block| block.title.as_str()).collect();
    assert_eq!(left_out, 0);
    assert_eq!(
        titles,
        [
            "two cores, shared cache, no load added",
            "two cores, shared cache, no load added: exchanges",
            "two cores, shared cache, loaded (2 CPU workers)"
        ]
    );
    let text = terminal::terminal(&run, false, 100);
    assert!(titles.iter().all(|title| text.contains(title)), "{text}");
    // With several settings, the verdict names the one it is about.
    assert!(run.verdict().detail.contains("“two cores, shared cache, no load added”"), "{text}");
}

#[test]
fn the_tables_of_replays_show_all_their_columns() {
    let mut records = synthetic::run(&MADE[..2], &[Ask::idle(Workload::PingPong, 64)], 5, 21);
    for record in &mut records {
        let shape = ReplayShape::Exchanges;
        record.inputs.workload =
            Workload::Replay { recording: 1, channel: 0, channels: 1, speed_percent: 100, shape };
    }
    let run = Run::of_records(Path::new("run"), records);
    let (found, _) = blocks(&run.summary, 12);
    let heads = &found[0].sheets[0].heads;
    let full = ["Exchange or latency p50", "p90", "max", "Exchanges or messages", "CPU / each"];
    assert_eq!(heads[1..6], full);
    let text = terminal::terminal(&run, false, 100);
    let line = text.lines().find(|line| line.trim_start().starts_with("Mechanism")).unwrap();
    let shown: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(shown, ["Mechanism", "p50", "p90", "max", "rate", "CPU/each", "noise"], "{text}");
    let told = "| Mechanism | p50 | p90 | max | rate | CPU/each | noise | Waits by |";
    assert!(terminal::markdown(&run).contains(told));
}

#[test]
fn settings_that_differ_in_a_size_are_in_the_order_of_the_sizes() {
    let asks = [256, 2, 32, 16].map(|kib| Ask {
        socket_buffer_bytes: Some(kib << 10),
        ..Ask::idle(Workload::Throughput, 64)
    });
    let (found, _) = blocks(&run(&asks).summary, 12);
    let sizes: Vec<&str> = found
        .iter()
        .filter_map(|block| block.title.split_once("buffer "))
        .map(|(_, s)| s)
        .collect();
    assert_eq!(sizes, ["2 KiB", "16 KiB", "32 KiB", "256 KiB"]);
}

#[test]
fn late_bursts_are_a_share_of_the_bursts_of_all_trials() {
    let workload = Workload::Paced { burst_bytes: 64, period_us: 1_000 };
    let mut records = synthetic::run(&MADE[..1], &[Ask::idle(workload, 64)], 5, 21);
    for (record, late) in records.iter_mut().zip([0, 0, 0, 600, 400]) {
        let pacing = record.pacing.as_mut().expect("it is paced");
        (pacing.bursts, pacing.late_bursts) = (1_000, late);
    }
    let run = Run::of_records(Path::new("run"), records);
    let text = terminal::terminal(&run, false, 200);
    assert!(text.contains("20.0 %"), "{text}");
    assert!(text.contains("\nlate: the share of the bursts of all good trials together"), "{text}");
    assert!(text.contains("\nsender late: the median delay that the sender itself"), "{text}");
    let text = terminal::markdown(&run);
    assert!(text.contains("“late” is the share of the bursts"), "{text}");
    assert!(text.contains("“sender late” is the median delay"), "{text}");
    let html = page(&run);
    assert!(html.contains("“Late bursts” is the share of the bursts of all good trials together"));
    assert!(html.contains("“Sender late” is the median delay that the sender itself added"));
}

/// Paced trials, of which the last ones, as many as `missed`, achieved 80 % of their rate with a tenfold latency.
fn trials_that_missed(missed: usize) -> Vec<Record> {
    let workload = Workload::Paced { burst_bytes: 64, period_us: 1_000 };
    let mut records = synthetic::run(&MADE[..1], &[Ask::idle(workload, 64)], 10, 21);
    for record in records.iter_mut().rev().take(missed) {
        record.status = Status::Degraded;
        record.reason = Some("the rate was not achieved: 800 of 1000 messages/s".to_owned());
        let pacing = record.pacing.as_mut().expect("it is paced");
        pacing.reached_bits_per_s = pacing.intended_bits_per_s * 0.8;
        for latency in &mut record.latency_ns {
            (latency.p50, latency.max) = (latency.p50 * 10, latency.max * 10);
        }
    }
    records
}

#[test]
fn trials_that_missed_their_rate_are_in_the_figures_and_counted() {
    let case = |missed| {
        let run = Run::of_records(Path::new("run"), trials_that_missed(missed));
        (run.summary.cases[0].clone(), terminal::terminal(&run, false, 200))
    };
    let (all_good, text) = case(0);
    assert!(!text.contains("missed rate") && !text.contains("only missed their rate"), "{text}");
    let (some, text) = case(4);
    let max = |case: &crossway_report::summary::Case| case.latencies[0].max;
    assert!(max(&some) > max(&all_good), "the slow trials are included");
    assert!(!some.degraded && some.latencies[0].p50.n == 10);
    assert!(text.contains("missed in 4 of 10 trials"), "{text}");
    assert!(text.contains("except those that only missed their rate"), "{text}");
    // Where the median trial missed it, the case was not measured at that rate.
    let (most, text) = case(6);
    assert!(most.degraded && !text.contains("missed rate"), "{text}");
    let interval = |cell: &crossway_report::sheet::Cell| cell.trials.is_some();
    let run = Run::of_records(Path::new("run"), trials_that_missed(6));
    let (found, _) = blocks(&run.summary, 12);
    let cells = &found[0].sheets[0].rows[0].cells;
    assert!(!cells.iter().any(interval), "no interval from trials that do not count: {cells:?}");
    assert!(text.contains("(degraded)"), "{text}");
}

#[test]
fn a_paced_plan_shows_rates_percentiles_and_late_bursts() {
    let workload = Workload::Paced { burst_bytes: 64, period_us: 1_000 };
    let run = run(&[Ask::idle(workload, 64)]);
    let text = terminal::terminal(&run, false, 100);
    for word in [
        "64 B messages, one message every 1 ms",
        "offered",
        "achieved",
        "p50",
        "p99",
        "max",
        "late",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(text.contains("1.00 k msg/s"), "{text}");
    // What the sender itself added is read before the latency that includes it, and the CPU time is shown, too.
    let (found, _) = blocks(&run.summary, 12);
    let sheet = &found[0].sheets[0];
    assert_eq!(sheet.heads[..5], ["Mechanism", "Offered", "Achieved", "Sender late", "p50"]);
    assert!(sheet.heads.ends_with(&["CPU / message".to_owned(), "Noise".to_owned()]));
    for row in &sheet.rows {
        // The CPU time and the noise of the median latency.
        let [.., cpu, noise] = &row.cells[..] else { panic!("{row:?}") };
        assert!(cpu.sort > Some(0.0) && noise.sort > Some(0.0), "{row:?}");
    }
    let line = text.lines().find(|line| line.starts_with("Mechanism")).expect("the heads");
    let (late, p50) = (line.find("sender late").expect(line), line.find("p50").expect(line));
    assert!(late < p50, "{line}");
    assert_eq!(text.matches("CPU/msg").count(), 1, "{text}");
    // A single rate needs a table, not a chart.
    let charts = crossway_report::charts::all(&run.summary, &run.limits, &run.histograms);
    assert!(charts.iter().all(|chart| chart.id != "pacing"));
}

#[test]
fn figures_of_a_background_workload_with_too_few_trials_are_marked() {
    let beside = Beside {
        mechanism: "tcp".to_owned(),
        workload: Workload::PingPong,
        size_bytes: 64,
        wait: Wait::Block,
        placement: Placement::SharedCache,
        cpus: vec![0, 1],
    };
    let with = |trials: usize| {
        let mut records = round_trips("pipe", Wait::Block, &SLOW[..trials]);
        for r in &mut records {
            r.inputs.beside = vec![beside.clone()];
            r.beside = vec![BesideFigures {
                mechanism: "tcp".to_owned(),
                workload: Workload::PingPong,
                size_bytes: 64,
                counts: r.counts.expect("counted"),
                throughput: r.throughput.expect("timed"),
                latency_ns: r.latency_ns.clone(),
                pacing: None,
                roles: Vec::new(),
            }];
        }
        run_of(vec![records])
    };
    let sheet = |run: &Run| {
        let (found, _) = blocks(&run.summary, 12);
        let block = found.iter().find(|b| b.title.ends_with("background workloads"));
        block.expect("a background workload").sheets[0].clone()
    };
    let few = sheet(&with(4));
    assert_eq!(few.rows[0].cells[0].note.as_deref(), Some("few trials"));
    let told =
        "few trials: fewer than five good trials, and therefore not ranked: 4 good trials of pipe";
    assert!(few.notes.iter().any(|note| note == told), "{:?}", few.notes);
    let enough = sheet(&with(5));
    assert_eq!(enough.rows[0].cells[0].note, None, "{enough:?}");
    assert!(enough.notes.iter().all(|note| !note.contains("few trials")), "{:?}", enough.notes);
}

#[test]
fn a_paced_stream_is_called_by_the_bytes_that_it_sends() {
    let named = |burst_bytes, size| {
        let workload = Workload::Paced { burst_bytes, period_us: 1_000 };
        let run = run(&[Ask::idle(workload, size)]);
        let (found, _) = blocks(&run.summary, 12);
        found.last().expect("a block").sheets[0].title.clone()
    };
    assert_eq!(named(64, 64), "64 B messages, one message every 1 ms");
    // Records of earlier versions may have bursts that are not whole messages.
    assert_eq!(named(100, 64), "64 B messages, one message every 1 ms");
    assert_eq!(named(300, 64), "64 B messages, 256 B every 1 ms");
}

#[test]
fn rates_of_requests_count_round_trips_whatever_the_size_of_the_replies() {
    let workload = Workload::Paced { burst_bytes: 256, period_us: 1_000 };
    let mut records = synthetic::run(&MADE[..4], &[Ask::idle(workload, 256)], 5, 21);
    for record in &mut records {
        record.inputs.workload = Workload::Requests { period_ns: 1_000_000 };
        record.inputs.reply_bytes = Some(2048);
        let pacing = record.pacing.as_mut().expect("paced");
        pacing.intended_bits_per_s = 1_000.0 * 2048.0 * 8.0;
        pacing.reached_bits_per_s = 998.0 * 2048.0 * 8.0;
    }
    let run = Run::of_records(Path::new("run"), records);
    let (found, _) = blocks(&run.summary, 12);
    let sheet = found.iter().flat_map(|b| &b.sheets).find(|s| s.heads[1] == "Offered").unwrap();
    assert_eq!(sheet.heads.last().unwrap(), "CPU / round trip");
    for row in &sheet.rows {
        assert_eq!(row.cells[1].text, "1.00 k msg/s");
        assert_eq!(row.cells[2].text, "998 msg/s");
    }
}

#[test]
fn percentiles_that_no_case_has_are_left_out_with_the_reason() {
    let workload = Workload::Paced { burst_bytes: 64, period_us: 1_000 };
    let mut records = synthetic::run(&MADE[..4], &[Ask::idle(workload, 64)], 5, 21);
    let show = |records: &[_]| {
        let run = Run::of_records(Path::new("run"), records.to_vec());
        terminal::terminal(&run, false, 120)
    };
    let heads = |text: &str| {
        let line = text.lines().find(|line| line.contains("offered")).expect("the table");
        line.split_whitespace().filter(|head| head.starts_with("p9")).collect::<Vec<_>>().join(" ")
    };
    let percentiles = |r: &mut crossway_records::record::Record, p99, p999| {
        r.latency_ns.iter_mut().for_each(|l| (l.p99, l.p999) = (p99, p999));
    };
    records.iter_mut().for_each(|r| percentiles(r, None, None));
    let text = show(&records);
    assert_eq!(heads(&text), "");
    assert!(
        text.contains(
            "p99 and p99.9 are not shown, because no case has enough samples (1,000 and 10,000 needed)"
        ),
        "{text}"
    );
    records.iter_mut().for_each(|r| percentiles(r, Some(900_000), None));
    let text = show(&records);
    assert_eq!(heads(&text), "p99");
    let note = "p99.9 is not shown, because no case has enough samples (10,000 needed)";
    assert!(text.contains(note), "{text}");
    let of_one = records[0].mechanism.clone();
    records
        .iter_mut()
        .filter(|r| r.mechanism == of_one)
        .for_each(|r| percentiles(r, Some(900_000), Some(950_000)));
    assert_eq!(heads(&show(&records)), "p99 p99.9");
}

#[test]
fn a_sweep_of_settings_is_cut_short_and_says_so() {
    let asks: Vec<Ask> = (0..40)
        .map(|b| Ask {
            placement: Placement::Cpus { a: 0, b },
            ..Ask::idle(Workload::PingPong, 64)
        })
        .collect();
    let run = run(&asks);
    assert_eq!(blocks(&run.summary, 12).1, 28);
    assert!(terminal::terminal(&run, false, 100).contains("28 further settings are left out here"));
}

#[test]
fn the_summary_fits_whatever_width_there_is() {
    let asks = [
        Ask::idle(Workload::PingPong, 64),
        Ask::idle(Workload::Throughput, 64),
        Ask::idle(Workload::Paced { burst_bytes: 64, period_us: 1_000 }, 64),
    ];
    let run = Run::of_records(Path::new("run"), synthetic::run(&MADE, &asks, 5, 22));
    for width in [60, 80, 100, 140] {
        for line in terminal::terminal(&run, false, width).lines() {
            assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
        }
    }
    // A wider terminal shows more columns.
    let columns = |width| {
        let text = terminal::terminal(&run, false, width);
        text.lines().find(|line| line.contains("RTT p50")).unwrap().split_whitespace().count()
    };
    assert!(columns(80) < columns(140));
}

#[test]
fn degraded_trials_are_grouped_by_their_reason() {
    let mut records = synthetic::run(&MADE[..4], &[Ask::idle(Workload::PingPong, 64)], 5, 23);
    for (at, record) in records.iter_mut().enumerate().take(8) {
        record.status = Status::Degraded;
        record.reason = Some(format!("the hypervisor took {}.{at} % of the time", at + 2));
    }
    let run = Run::of_records(Path::new("run"), records);
    let sections = sections::all(&run, &Shapes::of(&run));
    let troubles = sections.iter().find(|section| section.id == "troubles").expect("there are");
    let table = &troubles.tables[0];
    assert_eq!(table.rows.len(), 1, "one reason, whatever its numbers");
    let row = &table.rows[0].cells;
    assert!(row[0].text.starts_with("the hypervisor took") && row[0].note.is_some());
    assert_eq!((row[3].text.as_str(), row[4].text.as_str()), ("4", "8"));
}

#[test]
fn a_size_of_buffers_is_called_a_request() {
    let run = |capacity| {
        let mut records = round_trips("pipe", Wait::Block, &SLOW);
        records.iter_mut().for_each(|record| record.inputs.capacity_bytes = capacity);
        terminal::terminal(&run_of(vec![records]), false, 200)
    };
    let told = "“capacity” are requests";
    assert_eq!([None, Some(4096)].map(|bytes| run(bytes).matches(told).count()), [0, 1]);
}

#[test]
fn trials_of_one_case_that_were_skipped_are_one_case() {
    let skipped = || synthetic::skipped("udp", "2 trials of this case failed before", "see those");
    let pipe = round_trips("pipe", Wait::Block, &SLOW);
    let run = run_of(vec![pipe, vec![skipped(), skipped(), skipped()]]);
    let text = terminal::terminal(&run, false, 100);
    assert!(
        text.contains("1 case skipped, including all cases of udp:\n- 1 case: 2 trials"),
        "{text}"
    );
}

#[test]
fn requests_are_round_trips_and_their_few_trials_are_counted() {
    let workload = Workload::Requests { period_ns: 1_000_000 };
    let mut records = synthetic::run(&MADE[..2], &[Ask::idle(workload, 64)], 3, 21);
    records.iter_mut().for_each(|record| record.inputs.trials = 3);
    let run = Run::of_records(Path::new("run"), records);
    let headline = run.verdict().headline;
    assert!(!headline.contains("no round trips"), "{headline}");
    for text in [terminal::terminal(&run, false, 120), terminal::markdown(&run)] {
        assert!(text.contains("few trials: fewer than five good trials"), "{text}");
        assert!(text.contains("3 good trials of pipe"), "{text}");
    }
}
