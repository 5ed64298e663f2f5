//! What the page contains, and what it must not contain.

use crossway_lab::plan::PRESETS;

use super::*;

pub(super) fn page(run: &Run) -> String {
    let mut out = Vec::new();
    html::write(run, &mut out).expect("the page can be made");
    String::from_utf8(out).expect("the page is text")
}

#[test]
fn hostile_text_stays_text() {
    const NAME: &str = "</script><script>alert(1)</script>";
    const REASON: &str = "\"><img src=x onerror=alert(2)>\x1b[2J| `x`";
    let mut records = round_trips(NAME, Wait::Block, &FAST);
    records[0].warnings.push(REASON.to_owned());
    records.push(synthetic::skipped(NAME, REASON, "</style><base href=//evil>"));
    let mut run = run_of(vec![records]);
    run.notices.push(REASON.to_owned());
    run.plan = Some("</pre></script>".to_owned());
    let page = page(&run);
    for raw in ["<script>alert", "<img", "<base", "</pre></script>"] {
        assert!(!page.contains(raw), "{raw} reached the page");
    }
    // The page has three scripts of its own: the data, plotly and page.js.
    assert_eq!(page.matches("</script>").count(), 3);
    assert!(page.contains("default-src &#x27;none&#x27;; script-src &#x27;sha256-"));
    assert!(!terminal::terminal(&run, false, 100).contains('\x1b'));
    assert!(!terminal::markdown(&run).contains("<script>"));
    let mut three = Vec::new();
    for size in [64, 128] {
        for mut record in round_trips(NAME, Wait::Block, &FAST) {
            record.inputs.size_bytes = size;
            three.push(record);
        }
    }
    let chart = svg::chart(&run_of(vec![three]), "round-trip").expect("there are round trips");
    assert!(chart.contains("&lt;script&gt;") && !chart.contains("<script"));
}

#[test]
fn latency_curves_come_from_the_histograms_of_all_trials() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut records = round_trips("pipe", Wait::Block, &FAST[..2]);
    for (at, record) in records.iter_mut().enumerate() {
        let mut histogram = crossway_records::histogram::empty();
        for ns in 1..=1000u64 {
            histogram.record(ns * 100 * (at as u64 + 1)).expect("within an hour");
        }
        let name = format!("{at}.hlog");
        let mut file = std::fs::File::create(dir.path().join(&name)).expect("room");
        crossway_records::histogram::write_log(&mut file, 1, 1, &[(Span::RoundTrip, histogram)])
            .expect("room");
        record.latency_ns[0].histogram = Some(name);
    }
    let files: Vec<String> =
        records.iter().filter_map(|r| r.latency_ns[0].histogram.clone()).collect();
    let histograms = Histograms::of_run(dir.path(), files.len());
    let curve = histograms.curve(Span::RoundTrip, &files).expect("both files are there");
    let (last, _) = curve[curve.len() - 1];
    assert!(2000.0 * (1.0 - last) >= 9.9, "ten of 2000 samples lie beyond {last}");
    let at_90 = curve.iter().find(|(q, _)| (q - 0.9).abs() < 1e-9).expect("90 % is a point").1;
    // In both trials together a tenth of the samples lies above 160 µs: the upper fifth of the slower trial.
    assert!((at_90 - 160_000.0).abs() < 1_000.0, "{at_90}");
    for outside in ["/etc/hostname", "../x.hlog"] {
        assert_eq!(histograms.curve(Span::RoundTrip, &[outside.to_owned()]), None);
    }
}

#[test]
fn trials_too_short_for_a_p99_show_that_of_all_their_samples() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut records = round_trips("pipe", Wait::Block, &FAST);
    for (at, record) in records.iter_mut().enumerate() {
        let mut histogram = crossway_records::histogram::empty();
        (1..=300u64).for_each(|us| histogram.record(us * 1_000).expect("within an hour"));
        let name = format!("{at}.hlog");
        let mut file = std::fs::File::create(dir.path().join(&name)).expect("room");
        crossway_records::histogram::write_log(&mut file, 1, 1, &[(Span::RoundTrip, histogram)])
            .expect("room");
        let latency = &mut record.latency_ns[0];
        (latency.p99, latency.max, latency.histogram) = (None, 300_000, Some(name));
    }
    synthetic::write(dir.path(), &records);
    let text = terminal::terminal(&Run::read(dir.path()).expect("written above"), false, 100);
    // 1500 samples of 1 to 300 us: the 99th percentile is 297 us, the largest 300.
    assert!(text.contains("297 µs °") && text.contains("300 µs"), "{text}");
    assert!(text.contains("° computed from the samples of all trials, each"), "{text}");
}

#[test]
fn trials_with_a_p99_show_the_p999_of_all_their_samples() {
    let dir = tempfile::tempdir().expect("a directory");
    let workload = Workload::Paced { burst_bytes: 64, period_us: 1_000 };
    let mut records = synthetic::run(&MADE[..1], &[Ask::idle(workload, 64)], 5, 3);
    for (at, record) in records.iter_mut().enumerate() {
        let mut histogram = crossway_records::histogram::empty();
        (1..=2_000u64).for_each(|us| histogram.record(us * 1_000).expect("within an hour"));
        let name = format!("{at}.hlog");
        let mut file = std::fs::File::create(dir.path().join(&name)).expect("room");
        let latency = &mut record.latency_ns[0];
        crossway_records::histogram::write_log(&mut file, 1, 1, &[(latency.span, histogram)])
            .expect("room");
        (latency.p99, latency.p999) = (Some(1_980_000), None);
        latency.histogram = Some(name);
    }
    synthetic::write(dir.path(), &records);
    let text = terminal::terminal(&Run::read(dir.path()).expect("written above"), false, 140);
    // 10,000 samples of 1 to 2,000 us: the 99.9th percentile is 1,998 us.
    assert!(text.contains("2.00 ms °") && text.contains("1.98 ms "), "{text}");
}

#[test]
fn a_case_with_too_few_samples_for_a_curve_leaves_the_charts_intact() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut records = round_trips("pipe", Wait::Block, &FAST);
    for size in [64, 4096] {
        for (at, mut record) in round_trips("tcp", Wait::Block, &FAST).into_iter().enumerate() {
            record.inputs.size_bytes = size;
            record.case = format!("tcp/ping-pong/{size}/block");
            // One message in each trial.
            let mut histogram = crossway_records::histogram::empty();
            histogram.record(50_000).expect("within an hour");
            let name = format!("{size}-{at}.hlog");
            let mut file = std::fs::File::create(dir.path().join(&name)).expect("room");
            crossway_records::histogram::write_log(
                &mut file,
                1,
                1,
                &[(Span::RoundTrip, histogram)],
            )
            .expect("room");
            record.latency_ns[0].histogram = Some(name);
            records.push(record);
        }
    }
    synthetic::write(dir.path(), &records);
    let page = page(&Run::read(dir.path()).expect("written above"));
    let (_, data) =
        page.split_once("<script type=\"application/json\" id=\"data\">").expect("the data");
    let (data, _) = data.split_once("</script>").expect("the data's end");
    let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
    let charts = data["charts"].as_array().expect("charts");
    let distribution = charts.iter().find(|c| c["id"] == "distribution").expect("pipe has curves");
    let views = distribution["views"].as_array().expect("views");
    assert_eq!(views.len(), 1, "a view without a point is left out: {views:?}");
    for view in charts.iter().flat_map(|c| c["views"].as_array().expect("views")) {
        for series in view["series"].as_array().into_iter().flatten() {
            assert!(!series["y"].as_array().expect("values").is_empty(), "{view}");
        }
    }
}

#[test]
fn the_page_names_no_other_host_outside_the_vendored_library() {
    let run = run_of(vec![round_trips("pipe", Wait::Block, &FAST)]);
    let page = page(&run);
    let plotly = include_str!("../../vendor/plotly-cartesian.min.js");
    let own = page.replace(plotly, "");
    assert!(own.len() < page.len(), "plotly is embedded unchanged");
    let addresses: Vec<&str> = own
        .match_indices("http")
        .map(|(at, _)| &own[at..own.len().min(at + 40)])
        .filter(|a| a.starts_with("http://") || a.starts_with("https://"))
        .filter(|a| !a.starts_with("http://www.w3.org/2000/svg"))
        .collect();
    assert_eq!(addresses, [""; 0]);
}

#[test]
fn a_large_run_embeds_one_row_per_case_and_stays_small() {
    let asks: Vec<Ask> = (1..=30).map(|n| Ask::idle(Workload::Throughput, n * 512)).collect();
    let records = synthetic::run(&MADE, &asks, 20, 9);
    assert!(records.len() > TRIALS_MAX);
    let run = Run::of_records(Path::new("run"), records);
    let raw = Raw::of(&run);
    assert_eq!(raw.rows.len(), MADE.len() * asks.len());
    let bytes = serde_json::to_string(&raw).expect("JSON").len();
    assert!(bytes / raw.rows.len() < 250, "{} bytes per row", bytes / raw.rows.len());
    let document = json::document(&run);
    assert_eq!(document["cases"].as_array().map(Vec::len), Some(raw.rows.len()));
}

#[test]
fn a_reason_that_is_also_a_warning_is_shown_once() {
    let mut records = round_trips("pipe", Wait::Block, &FAST);
    records[0].status = Status::Degraded;
    records[0].reason = Some("the cores moved".to_owned());
    records[0].warnings = vec!["the cores moved".to_owned(), "a lost message".to_owned()];
    let raw = Raw::of(&run_of(vec![records]));
    assert!(raw.words.contains(&"the cores moved; a lost message".to_owned()), "{:?}", raw.words);
}

#[test]
fn the_command_of_a_chart_selects_the_requests_that_it_shows() {
    let mut records = round_trips("pipe", Wait::Block, &FAST);
    for record in &mut records {
        record.inputs.workload = Workload::Requests { period_ns: 1_000_000 };
    }
    let run = run_of(vec![records]);
    let charts = charts::all(&run.summary, &run.limits, &run.histograms);
    let chart = charts.iter().find(|c| c.id == "distribution").expect("the requests are timed");
    let command = run.command(chart.workloads);
    assert!(command.contains("|*/requests*'"), "{command}");
}

#[test]
fn the_command_repeats_what_was_measured() {
    let (preset, text) = PRESETS[0];
    let mut run = run_of(vec![round_trips("pipe", Wait::Block, &FAST)]);
    run.records.iter_mut().for_each(|record| record.plan = preset.to_owned());
    run.plan = Some(text.to_owned());
    assert_eq!(run.command(&[]), format!("crossway measure {preset}"));
    let of_workloads = format!("crossway measure {preset} -f '*/paced*|*/exchange*'");
    assert_eq!(run.command(&["paced", "exchange"]), of_workloads);
    run.plan = Some(format!("trials = 3\nmeasure_ms = 50\n{text}"));
    run.filters = ["*/pipe/*", "it's"].map(str::to_owned).to_vec();
    let chosen =
        format!("crossway measure {preset} --trials 3 --measure-ms 50 -f '*/pipe/*' -f \"it's\"");
    assert_eq!(run.command(&[]), chosen);
    assert_eq!(run.command(&["paced"]), chosen, "no pattern selects what two patterns do");
    // Another plan is stored with its values beside the records, also one whose file has the name of a preset.
    run.plan = Some("trials = 3\nabout = \"own\"\n".to_owned());
    assert!(
        run.command(&[]).starts_with("crossway measure ./plan.toml -f "),
        "{}",
        run.command(&[])
    );
    run.records.iter_mut().for_each(|record| record.plan = "own".to_owned());
    run.filters.clear();
    assert_eq!(run.command(&[]), "crossway measure ./plan.toml");
}

#[test]
fn the_comparisons_name_their_setting_and_no_option_is_broken() {
    let loaded = round_trips("pipe", Wait::Block, &SLOW).into_iter().map(|mut record| {
        record.inputs.load = Load { cpu: 1, memory: 0, io: 0 };
        record
    });
    let mut run = run_of(vec![round_trips("pipe", Wait::Block, &FAST), loaded.collect()]);
    run.notices.push("Run `crossway measure --trials 9`.".to_owned());
    let page = page(&run);
    let setting = run.verdict().setting.expect("several settings");
    assert!(page.contains(&format!("All comparisons here are of the setting “{setting}”.")));
    assert!(page.contains("measure <span class=\"opt\">--trials </span>9</code>"));
}
