//! The findings of Enea's study, and its tables beside the figures measured here.

mod table_3;

use crossway_records::inputs::{Load, Placement};
use serde_json::json;

use super::*;

const LOADED: Load = Load { cpu: 1, memory: 1, io: 1 };

/// Builds trials on this machine from nanoseconds per message or round trip.
struct Local {
    records: Vec<Record>,
    noise: Noise,
}

impl Local {
    fn new() -> Local {
        Local { records: Vec::new(), noise: Noise::new(5) }
    }

    fn add(&mut self, id: &str, ask: &Ask, ns: f64) -> &mut Local {
        for trial in 0..5 {
            let mut r = synthetic::trial(&MADE[0], ask, trial, 5, trial, &mut self.noise);
            let ns = ns * self.noise.around(0.02);
            r.mechanism = id.to_owned();
            r.case = format!("{id}/{:?}", (ask.workload, ask.size_bytes, ask.placement, ask.load));
            r.inputs.wait = if id == "shm-spin" { Wait::Spin } else { Wait::Block };
            (r.status, r.reason, r.remedy) = (Status::Ok, None, None);
            let throughput = r.throughput.as_mut().expect("timed");
            throughput.msgs_per_s = 1e9 / ns;
            throughput.bytes_per_s = 1e9 / ns * ask.size_bytes as f64;
            for latency in &mut r.latency_ns {
                latency.p50 = ns as u64;
            }
            self.records.push(r);
        }
        self
    }

    /// Adds one-way trials between two cores, idle and loaded.
    fn one_way(&mut self, id: &str, bytes: u64, idle_ns: f64, loaded_ns: f64) -> &mut Local {
        let ask = Ask { placement: Placement::OtherCore, ..Ask::idle(Workload::Throughput, bytes) };
        self.add(id, &ask, idle_ns);
        self.add(id, &Ask { load: LOADED, ..ask }, loaded_ns)
    }

    fn trips(&mut self, id: &str, (a, b): (u32, u32), idle_ns: f64, loaded_ns: f64) -> &mut Local {
        let placement = Placement::Cpus { a, b };
        let ask = Ask { placement, ..Ask::idle(Workload::PingPong, 64) };
        self.add(id, &ask, idle_ns);
        self.add(id, &Ask { load: LOADED, ..ask }, loaded_ns)
    }

    fn run(&self) -> Run {
        let mut records = self.records.clone();
        if records.is_empty() {
            records.push(synthetic::skipped("cma", "not asked for", "nothing"));
        }
        records.iter_mut().for_each(|r| r.plan = "enea".to_owned());
        Run::of_records(Path::new("run"), records)
    }
}

fn finding(run: &Run, id: &str) -> Finding {
    let all = studies::all(run, &Shapes::of(run));
    let mut found = all.into_iter().flat_map(|s| s.findings).filter(|f| f.id == id);
    found.next().unwrap_or_else(|| panic!("{id} is listed"))
}

#[test]
fn every_finding_is_listed_and_names_the_plan_that_takes_it() {
    let run = Local::new().run();
    let ids = [
        "E5",
        "E9 load",
        "E9 ranks",
        "E9 pipe",
        "E10 spin",
        "E10 best",
        "E11 shape",
        "E11 order",
        "E11 drop",
        "E11 F_SETPIPE_SZ",
        "E11 100K",
        "E12 drop",
        "E12",
        "E13",
        "E14",
        "E15",
        "E16",
        "E17 shm",
        "E17 tcp",
        "E18",
        "E18 one core",
        "E18 faster",
    ];
    for id in ids {
        let finding = finding(&run, id);
        assert_eq!(finding.verdict, NotMeasurable, "{finding:?}");
        assert!(finding.why.contains("crossway measure enea"), "{finding:?}");
    }
    // There may be no LINX mechanisms, and Table 3 may be empty.
    assert_eq!(finding(&run, "E19").verdict, NotMeasurable);
    assert_eq!(finding(&run, "E23").verdict, NotMeasurable);
}

#[test]
fn trials_that_were_lost_are_not_asked_for_again_by_the_same_number() {
    let mut made = Local::new();
    made.one_way("pipe", 57_344, 10_000.0, 10_000.0).one_way("pipe", 66_560, 20_000.0, 20_000.0);
    made.records.retain(|r| r.inputs.trial < 3);
    let run = made.run();
    assert_eq!(finding(&run, "E11 drop").verdict, Undecided);
    let text = terminal::terminal(&run, false, 500);
    let line = text.lines().find(|line| line.contains("- E11 drop")).expect("it is listed");
    assert!(line.contains("missing or degraded") && line.contains("--trials 10"), "{line}");
    // Three trials do not show that five would decide it.
    assert!(line.contains("At least 5 trials") && !line.contains("would decide"), "{line}");
}

#[test]
fn the_pipes_drop_is_looked_for_on_both_sides_of_its_buffer() {
    let with = |below: f64, above: f64| {
        let mut made = Local::new();
        made.one_way("pipe", 57_344, below, below).one_way("pipe", 66_560, above, above);
        finding(&made.run(), "E11 drop")
    };
    // Times in nanoseconds per message; rates are in bytes.
    assert_eq!(with(10_000.0, 20_000.0).verdict, Confirmed);
    assert_eq!(with(10_000.0, 11_600.0).verdict, NotConfirmed);
    let held = |bytes: Option<i64>| {
        let mut made = Local::new();
        made.one_way("pipe", 57_344, 10_000.0, 10_000.0)
            .one_way("pipe", 66_560, 20_000.0, 20_000.0);
        for record in &mut made.records {
            record.facts = bytes.map(|n| ("pipe_bytes".to_owned(), n)).into_iter().collect();
        }
        finding(&made.run(), "E12 drop").why
    };
    assert_eq!(held(Some(65_536)), "the pipe's buffer held 64 KiB");
    assert_eq!(held(Some(4_096)), "the pipe's buffer held 4 KiB");
    assert!(held(None).contains("do not say"), "{}", held(None));
}

#[test]
fn rates_that_are_too_large_are_marked_and_are_no_figures() {
    let mut run = Local::new().run();
    let mut limits = synthetic::limits::limits();
    let per_s = limits.memcpy[0].bytes_per_s;
    let rate = |threads: u32, window_ms: Option<u32>| {
        serde_json::from_value(json!({
            "object": "sysv-shm", "operation": "stat", "threads": threads, "per_s": per_s, "window_ms": window_ms,
        }))
        .expect("a rate")
    };
    limits.control = vec![rate(1, None), rate(4, None)];
    run.limits.0 = Some(limits.clone());
    let old = finding(&run, "E5");
    assert_eq!(old.figures.len(), 1, "{old:?}");
    assert!(old.why.contains("are left out."), "{old:?}");
    assert!(page(&run).contains("↑ The rates of several threads"));
    limits.control = vec![rate(1, Some(20)), rate(4, Some(20))];
    run.limits.0 = Some(limits);
    assert_eq!(finding(&run, "E5").figures.len(), 2);
    assert!(!page(&run).contains("↑ The rates of several threads"));
}

#[test]
fn an_order_at_one_size_is_not_confirmed_for_all_sizes() {
    let with = |sizes: &[u64], shm_pipe: f64| {
        let mut made = Local::new();
        for bytes in sizes {
            for (id, ns) in [
                ("pipe", 9e3),
                ("tcp", 6e3),
                ("uds-stream", 4e3),
                ("shm-futex", 2e3),
                ("shm-spin", 1e3),
                ("shm-pipe", shm_pipe),
            ] {
                made.one_way(id, *bytes, ns, ns);
            }
        }
        made.run()
    };
    let at = |sizes: &[u64]| with(sizes, 3e3);
    // The study names three mechanisms that use shared memory, and all of them count.
    let slow = finding(&with(&[16_384, 32_768, 65_536], 8e3), "E11 order");
    assert_eq!(slow.verdict, NotConfirmed, "{slow:?}");
    let whole = finding(&at(&[16_384, 32_768, 65_536]), "E11 order");
    assert_eq!(whole.verdict, Confirmed, "{whole:?}");
    assert!(!whole.why.contains("fewer than"), "{whole:?}");
    let run = at(&[65_536]);
    let one = finding(&run, "E11 order");
    assert_eq!(one.verdict, Undecided, "{one:?}");
    assert!(
        one.why.contains("tcp is faster than pipe: yes at 1 size;")
            && one.why.contains("fewer than 3 measured sizes"),
        "{one:?}"
    );
    // More trials would not decide it, and no median lies close to a bound.
    let text = terminal::terminal(&run, false, 500);
    let line = text.lines().find(|line| line.contains("- E11 order")).expect("it is listed");
    assert!(!line.contains("close to the bound") && !line.contains("--trials"), "{line}");
}

/// Spreads the throughputs of a mechanism's trials over a factor of four, so that no interval decides anything.
fn scatter(made: &mut Local, id: &str) {
    for r in made.records.iter_mut().filter(|r| r.mechanism == id) {
        let throughput = r.throughput.as_mut().expect("timed");
        throughput.bytes_per_s *= 2f64.powi(r.inputs.trial as i32 - 2);
    }
}

#[test]
fn undecided_sizes_are_not_counted_as_contradictions() {
    let mut made = Local::new();
    let sizes = [64, 512, 1024, 2048, 4096, 8192, 16_000, 16_384, 32_768, 65_536];
    for bytes in sizes {
        made.one_way("pipe", bytes, 2e3, 2e3).one_way("uds-stream", bytes, 2e3, 2e3);
        made.one_way("tcp", bytes, 2e3, 2e3);
    }
    scatter(&mut made, "uds-stream");
    scatter(&mut made, "tcp");
    let order = finding(&made.run(), "E11 order");
    assert!(
        order.why.starts_with("tcp is faster than pipe: undecided at all 4 sizes;"),
        "{order:?}"
    );
    assert!(!order.why.contains("fewer than"), "four sizes were measured: {order:?}");
    // One decided size among many undecided ones refutes nothing.
    for r in made.records.iter_mut().filter(|r| r.inputs.size_bytes == 64) {
        let throughput = r.throughput.as_mut().expect("timed");
        throughput.bytes_per_s = if r.mechanism == "pipe" { 2e9 } else { 1e9 };
    }
    let alike = finding(&made.run(), "E13");
    assert_eq!(alike.verdict, Undecided, "{alike:?}");
    assert!(alike.why.ends_with("no at 1 of 7 sizes, undecided at 6"), "{alike:?}");
    assert!(alike.trials_needed.is_some() || alike.on_bound, "{alike:?}");
}

#[test]
fn an_undecided_cost_of_the_linx_api_has_a_reason() {
    let mut made = Local::new();
    made.one_way("uds-stream", 4096, 2e3, 2e3).one_way("linx-uds", 4096, 4e3, 4e3);
    let one = finding(&made.run(), "E19");
    assert_eq!((one.verdict, one.on_bound), (Undecided, false), "{one:?}");
    assert_eq!(
        one.why,
        "linx-uds is slower than uds-stream at 4 KiB: yes (no other size was measured); `crossway measure enea` \
         measures more sizes"
    );
    made.one_way("uds-stream", 65_536, 2e4, 2e4).one_way("linx-uds", 65_536, 2e4, 2e4);
    let both = finding(&made.run(), "E19");
    assert_eq!(both.verdict, Confirmed, "{both:?}");
    assert!(both.why.ends_with("its ratio is larger at 64 KiB: yes"), "{both:?}");
}

#[test]
fn ranks_reversed_by_load_are_found_and_reported() {
    let with = |unix_loaded: f64| {
        let mut made = Local::new();
        made.one_way("tcp", 8192, 5_000.0, 6_000.0)
            .one_way("uds-stream", 8192, 3_000.0, unix_loaded)
            .one_way("shm-spin", 8192, 1_000.0, 9_000.0)
            .one_way("shm-pipe", 8192, 2_000.0, 4_000.0);
        made.run()
    };
    let reversed = with(9_000.0);
    let found = finding(&reversed, "E9 ranks");
    assert_eq!(found.verdict, Confirmed, "{found:?}");
    assert!(found.why.contains("uds-stream falls behind tcp"), "{found:?}");
    let kept = finding(&with(4_000.0), "E9 ranks");
    assert_eq!(kept.verdict, NotConfirmed, "{kept:?}");
    let page = page(&reversed);
    assert!(page.contains("put the two in different ranks"), "the table of reversals is missing");
}

#[test]
fn faster_under_load_is_said_without_a_made_up_reason() {
    let mut made = Local::new();
    made.trips("shm-spin", (0, 1), 500.0, 200.0).trips("tcp", (0, 1), 26_000.0, 19_000.0);
    let found = finding(&made.run(), "E18 faster");
    assert_eq!(found.verdict, Confirmed, "{found:?}");
    let words = "faster under load: yes for both mechanisms; the reason is unknown";
    assert!(found.why.starts_with(words), "{found:?}");
    let page = page(&made.run());
    // The study's own figures are shown beside ours.
    assert!(page.contains("study 2-3, two threads of one core"), "Table 2 is missing");
}

#[test]
fn four_trials_decide_nothing_even_over_many_pairs_of_cpus() {
    let mut made = Local::new();
    let ways = [
        ("shm-futex", 1_000.0),
        ("shm-spin", 800.0),
        ("shm-pipe", 900.0),
        ("uds-stream", 2_000.0),
        ("tcp", 4_000.0),
        ("pipe", 6_000.0),
        ("fifo", 2_000.0),
        ("linx-fifo", 4_000.0),
    ];
    let sizes = [
        64, 128, 512, 1024, 2048, 4000, 8192, 16_000, 32_768, 57_344, 65_536, 66_560, 98_304,
        106_496, 262_144,
    ];
    for (id, ns) in ways {
        for bytes in sizes {
            let slower = match id {
                // Beyond its buffer, a pipe is slower.
                "pipe" if bytes > 57_344 => 3.0,
                "linx-fifo" if bytes > 512 => 0.6,
                _ => 1.0,
            };
            let ns = slower * ns * (1.0 + bytes as f64 / 512.0);
            // Load brings uds-stream closer to tcp.
            let loaded = match id {
                "pipe" => 1.2,
                "uds-stream" => 3.0,
                _ => 2.0,
            };
            made.one_way(id, bytes, ns, loaded * ns);
            for (placement, factor) in [(Placement::SmtSibling, 2.0), (Placement::SameCore, 1.5)] {
                let factor = if id == "shm-futex" { 2.0 * factor } else { factor };
                let ask = Ask { placement, ..Ask::idle(Workload::Throughput, bytes) };
                made.add(id, &ask, factor * ns);
            }
        }
        for a in 0..3 {
            for b in a..3 {
                let ns = if a == b { 3.0 * ns } else { ns };
                let loaded = match id {
                    _ if a == b => 1.1,
                    "shm-spin" => 1.5,
                    _ => 3.0,
                };
                made.trips(id, (a, b), ns, loaded * ns);
            }
        }
    }
    for r in made.records.iter_mut().filter(|r| r.mechanism.starts_with("shm")) {
        // Little CPU time per bit.
        let factor = if r.mechanism == "shm-pipe" { 100.0 } else { 50.0 };
        let cost = r.cost.as_mut().expect("measured");
        cost.bits_per_cpu_s *= if r.mechanism == "shm-spin" { 10.0 } else { factor };
    }
    for capacity in [16_384, 262_144] {
        for (bytes, ns) in [(capacity, 10_000.0), (capacity + 4096, 30_000.0)] {
            let from = made.records.len();
            made.one_way("pipe", bytes, ns, ns);
            for r in &mut made.records[from..] {
                r.inputs.capacity_bytes = Some(capacity);
                r.case = format!("{}/{capacity}", r.case);
            }
        }
    }
    // E5 is not judged.
    for trials in [1, 4, 5] {
        let mut few = Local::new();
        few.records = made.records.iter().filter(|r| r.inputs.trial < trials).cloned().collect();
        let run = few.run();
        let all = studies::all(&run, &Shapes::of(&run));
        for found in all.iter().flat_map(|study| &study.findings).filter(|f| f.id != "E5") {
            let id = found.id;
            let decided = matches!(found.verdict, Confirmed | NotConfirmed);
            assert_eq!(decided, trials == 5, "{id} with {trials} trials: {found:?}");
            assert!(decided || found.verdict == Undecided, "{found:?}");
            let most = found.figures.iter().map(|figure| figure.value.n).max();
            assert!(most.is_none_or(|n| n <= trials as usize), "{found:?}");
        }
    }
}
