//! The tables of `rank` and `compare`: marks, rates, intervals in one piece, orders.

use super::*;

/// Makes paced trials out of trials with round trips: a message every millisecond, of which this share is reached.
fn paced(mut records: Vec<Value>, share: f64) -> Vec<Value> {
    for record in &mut records {
        record["inputs"]["workload"] = json!({ "paced": { "burst_bytes": 64, "period_us": 1000 } });
        record["latency_ns"][0]["span"] = json!("one-way");
        record["pacing"] = json!({
            "bursts": 1000,
            "late_bursts": 0,
            "drift_ns": 0,
            "intended_bits_per_s": 1_000.0 * 64.0 * 8.0,
            "reached_bits_per_s": share * 1_000.0 * 64.0 * 8.0,
            "lateness_ns": null,
        });
    }
    records
}

#[test]
fn a_figure_beyond_its_limit_is_marked_in_rank_as_in_the_report() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path();
    let mut records =
        [trials("pipe", 4096, false, 2.1), trials("sysv-shm", 4096, false, 1.65)].concat();
    for record in &mut records {
        record["calibration"]["blocking_exchange_ns"] = json!(20_000.0);
        record["roles"] = json!([{
            "role": "client",
            "cpu": 0,
            "user_ns": 1000,
            "system_ns": 1000,
            "switches_voluntary": 20,
            "switches_involuntary": 0,
            "faults_minor": 0,
            "faults_major": 0,
            "cycles": null,
            "instructions": null,
            "cache_misses": null,
            "messages": 10,
            "longest_wait_ns": null,
        }]);
    }
    write_run(at, "x", None, 1, &records);
    let ranked = text(&crossway(at, &["rank", "latest"]));
    let reported = text(&crossway(at, &["report", "latest", "--terminal"]));
    let beyond = "† beyond the limit that was measured between the trials";
    for (text, marked) in [(&ranked, "sysv-shm†"), (&reported, "16.5 µs†")] {
        let row = |name: &str| {
            let mut rows =
                text.lines().skip_while(|line| !line.to_lowercase().contains("mechanism "));
            rows.find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name}: {text}"))
        };
        assert!(row("sysv-shm").contains(marked), "{text}");
        assert!(!row("pipe").contains('†'), "{text}");
        assert!(text.contains(beyond), "{text}");
    }
    let answer = text(&crossway(at, &["rank", "latest", "--json"]));
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let first = &answer["rankings"][0]["by_speed"][0];
    assert_eq!((&first["mechanism"], &first["beyond_limit"]), (&json!("sysv-shm"), &json!(true)));
}

#[test]
fn rank_and_compare_state_the_rates_of_paced_messages_and_requests() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path();
    let mut records = paced(trials("pipe", 64, false, 1.0), 1.0);
    records.extend(paced(trials("tcp", 64, false, 2.0), 0.992));
    write_run(at, "a", None, 1, &records);
    for record in &mut records {
        let reached = record["pacing"]["reached_bits_per_s"].as_f64().expect("a rate");
        record["pacing"]["reached_bits_per_s"] = json!(reached * 0.999);
    }
    write_run(at, "b", None, 2, &records);
    let ranked = text(&crossway(at, &["rank", "out/a"]));
    let rates = "\noffered 1.00 k msg/s; achieved 99.2 % (tcp) to 100 %\n";
    assert!(ranked.contains(rates), "{ranked}");
    let markdown = text(&crossway(at, &["rank", "out/a", "--markdown"]));
    assert!(markdown.contains(rates), "{markdown}");
    let compared = text(&crossway(at, &["compare", "out/a", "out/b"]));
    let of_pipe =
        "offered 1.00 k msg/s; achieved 1.00 k msg/s (100 %) in A, 999 msg/s (99.9 %) in B";
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(one_line(&compared).contains(of_pipe), "{compared}");
    let markdown = text(&crossway(at, &["compare", "out/a", "out/b", "--markdown"]));
    assert!(markdown.contains(of_pipe), "{markdown}");
    for out in [&ranked, &compared] {
        assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    }
    // Requests have rates, too; other workloads have none.
    for record in &mut records {
        record["inputs"]["workload"] = json!({ "requests": { "period_ns": 1_000_000 } });
        record["latency_ns"][0]["span"] = json!("round-trip");
    }
    write_run(at, "c", None, 3, &records);
    for args in [&["rank", "out/c"][..], &["compare", "out/c", "out/c"]] {
        assert!(text(&crossway(at, args)).contains("offered 1.00 k msg/s; achieved "), "{args:?}");
    }
    let streams = [trials("pipe", 64, true, 1.0), trials("tcp", 64, true, 2.0)].concat();
    write_run(at, "d", None, 4, &streams);
    for args in [&["rank", "out/d"][..], &["compare", "out/d", "out/d"]] {
        assert!(!text(&crossway(at, args)).contains("offered"), "{args:?}");
    }
}

#[test]
fn no_interval_of_a_ranking_is_split() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path();
    let mut records = Vec::new();
    for (mechanism, by) in [("tipc-node-seqpacket", 0.012), ("pipe", 19.0), ("uring-pipe", 25.0)] {
        let mut streams = trials(mechanism, 64, true, by);
        for (trial, record) in streams.iter_mut().enumerate() {
            let rate = record["throughput"]["msgs_per_s"].as_f64().expect("a rate");
            record["throughput"]["msgs_per_s"] = json!(rate * (1.0 + 0.05 * trial as f64));
        }
        let mut round_trips = trials(mechanism, 64, false, by);
        for (trial, record) in round_trips.iter_mut().enumerate() {
            let p50 = record["latency_ns"][0]["p50"].as_f64().expect("a time");
            record["latency_ns"][0]["p50"] = json!((p50 * (1.0 + 0.05 * trial as f64)) as u64);
        }
        records.extend(streams);
        records.extend(round_trips);
    }
    write_run(at, "a", None, 1, &records);
    for columns in ["80", "92", "120"] {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("crossway"));
        command.args(["rank", "latest"]).current_dir(at);
        let output =
            command.env("NO_COLOR", "1").env("COLUMNS", columns).output().expect("it runs");
        let ranked = text(&output);
        let rows: Vec<&str> = ranked
            .lines()
            .filter(|line| line.contains('–') || line.contains("pipe") || line.contains("tipc"))
            .collect();
        assert_eq!(rows.len(), 6, "{columns}: {ranked}");
        for row in rows {
            // An interval is followed by its unit.
            let (_, high) = row.split_once('–').unwrap_or_else(|| panic!("{columns}: {ranked}"));
            let unit = high.split_whitespace().nth(1).unwrap_or_default();
            assert!(["k", "M", "ns", "µs", "ms"].contains(&unit), "{columns}: {ranked}");
        }
        assert!(ranked.contains("msg/s") && ranked.contains("19.0–22.9 M "), "{ranked}");
    }
}

#[test]
fn rankings_are_ordered_by_cpu_time_and_comparisons_by_change_if_asked() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = dir.path();
    let run = |pipe: f64, tcp: f64, fifo: f64| {
        let mut records = Vec::new();
        // The fastest uses the most CPU time.
        for (mechanism, by, bits) in [("pipe", pipe, 2e9), ("tcp", tcp, 1e9), ("fifo", fifo, 3e9)] {
            let mut streams = trials(mechanism, 64, true, by);
            streams.iter_mut().for_each(|r| r["cost"]["bits_per_cpu_s"] = json!(bits));
            records.extend(streams);
        }
        records
    };
    write_run(at, "a", None, 1, &run(2.0, 3.0, 1.0));
    let order = |args: &[&str]| {
        let out = text(&crossway(at, args));
        let mut names = ["pipe", "tcp", "fifo"].map(|name| {
            let found = out.lines().position(|l| l.split_whitespace().any(|w| w == name));
            (found.unwrap_or_else(|| panic!("{name}: {out}")), name)
        });
        names.sort_unstable();
        names.map(|(_, name)| name)
    };
    assert_eq!(order(&["rank", "out/a"]), ["tcp", "pipe", "fifo"]);
    assert_eq!(order(&["rank", "out/a", "--sort", "cpu"]), ["fifo", "pipe", "tcp"]);
    write_run(at, "b", None, 2, &run(1.8, 1.5, 1.2));
    assert_eq!(order(&["compare", "out/a", "out/b"]), ["fifo", "pipe", "tcp"]);
    let by_change = ["compare", "out/a", "out/b", "--sort", "change"];
    assert_eq!(order(&by_change), ["tcp", "pipe", "fifo"]);
}
