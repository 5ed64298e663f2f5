//! Tests with complete, truncated, damaged and newer files of records.

use super::*;
use crate::samples;

fn parse(bytes: &[u8]) -> Result<Loaded, ReadError> {
    parse_records(Path::new("run/results.jsonl"), bytes)
}

fn two() -> Vec<u8> {
    samples::lines(&samples::trials("pipe", 64, &[1000, 1100], 500.0))
}

#[test]
fn what_was_written_is_read_back() {
    let records = samples::trials("pipe", 64, &[1000, 1100], 500.0);
    let loaded = parse(&samples::lines(&records)).expect("whole lines");
    assert_eq!(loaded.records, records);
    assert_eq!(loaded.warnings, Vec::<String>::new());
}

#[test]
fn many_records_keep_their_order() {
    let line = samples::ping_pong("pipe", 64, 0, 1000, 1.0);
    let records: Vec<Record> = (0..9000u32)
        .map(|order| {
            let mut record = line.clone();
            (record.inputs.trial, record.inputs.order) = (order, order);
            record
        })
        .collect();
    let loaded = parse(&samples::lines(&records)).expect("whole lines");
    assert!(loaded.records.iter().map(|r| r.inputs.order).eq(0..9000));
}

#[test]
fn a_torn_last_line_is_left_out_wherever_it_was_cut() {
    let whole = two();
    let second = whole.iter().position(|b| *b == b'\n').expect("two lines") + 1;
    for cut in second + 1..whole.len() - 1 {
        let loaded = parse(&whole[..cut]).expect("a torn line is no error");
        assert_eq!(loaded.records.len(), 1, "cut at {cut}");
        assert!(loaded.warnings[0].contains("run/results.jsonl:2"), "{:?}", loaded.warnings);
    }
    // Only the newline is missing: the record is complete.
    assert_eq!(parse(&whole[..whole.len() - 1]).expect("whole").records.len(), 2);
}

#[test]
fn a_damaged_line_is_left_out_with_the_command_that_removes_it() {
    let mut bytes = two();
    bytes[0] = b'[';
    let loaded = parse(&bytes).expect("one line is whole");
    assert_eq!(loaded.records.len(), 1);
    let warning = &loaded.warnings[0];
    assert!(
        warning.starts_with("run/results.jsonl:1: skipped a line that is not a record"),
        "{warning}"
    );
    assert!(warning.ends_with("sed -i '1d' 'run/results.jsonl'"), "{warning}");
    let mut bytes = two();
    bytes.extend_from_slice(b"{\"schema\":1}\n");
    let warning = parse(&bytes).expect("two are whole").warnings.remove(0);
    assert!(
        warning.starts_with("run/results.jsonl:3: skipped a line that is not a record"),
        "{warning}"
    );
    assert!(warning.contains("missing field"), "{warning}");
}

#[test]
fn a_line_with_impossible_figures_is_left_out() {
    let whole = samples::ping_pong("pipe", 64, 1, 1000, 500.0);
    let impossible = [
        ("/throughput/msgs_per_s", serde_json::json!(-5.0)),
        ("/throughput/bytes_per_s", serde_json::json!(-1)),
        ("/latency_ns/0/mean", serde_json::json!(-0.5)),
        ("/latency_ns/0/p50", serde_json::json!(-3)),
        ("/cost/cpu_ns_per_msg", serde_json::json!(-1e9)),
        ("/counts/received", serde_json::json!(-1)),
        ("/counts", serde_json::Value::Null),
    ];
    for (field, value) in impossible {
        let mut damaged = serde_json::to_value(&whole).expect("a record");
        *damaged.pointer_mut(field).unwrap_or_else(|| panic!("{field}")) = value;
        let first = samples::lines(&samples::trials("pipe", 64, &[1000], 500.0));
        let bytes = [first, format!("{damaged}\n").into_bytes()].concat();
        let loaded = parse(&bytes).expect("one line is whole");
        assert_eq!(loaded.records.len(), 1, "{field}");
        let warning = &loaded.warnings[0];
        assert!(
            warning.starts_with("run/results.jsonl:2: skipped a line that is not a record"),
            "{field}: {warning}"
        );
        assert!(warning.ends_with("sed -i '2d' 'run/results.jsonl'"), "{field}: {warning}");
    }
}

#[test]
fn one_command_removes_all_damaged_lines() {
    let records = samples::trials("pipe", 64, &[1000; 9], 500.0);
    let text = String::from_utf8(samples::lines(&records)).expect("JSON");
    let bad = [2, 4, 5, 6, 7, 9];
    let damaged = |(at, line)| if bad.contains(&(at + 1)) { "[" } else { line };
    let lines: Vec<&str> = text.lines().enumerate().map(damaged).collect();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join(RESULTS);
    std::fs::write(&file, lines.join("\n") + "\n").expect("a file");
    let loaded = read_records(dir.path()).expect("some lines are whole");
    let commands = loaded.warnings.iter().filter(|w| w.contains("sed -i")).collect::<Vec<_>>();
    let [command] = commands[..] else { panic!("{:?}", loaded.warnings) };
    let (_, command) = command.split_once(" records, run: ").expect("the command comes last");
    assert!(command.starts_with("sed -i '2d;4,7d;9d' '"), "{command}");
    let done = std::process::Command::new("sh").args(["-c", command]).status().expect("sh");
    assert!(done.success());
    let repaired = read_records(dir.path()).expect("records");
    assert_eq!(repaired.records, loaded.records);
    assert_eq!(repaired.warnings, Vec::<String>::new());
}

#[test]
fn a_file_without_any_record_is_an_error_with_its_place() {
    let error = parse(b"\xff\xfe\n{}\n").expect_err("no text").to_string();
    assert!(error.starts_with("run/results.jsonl:1: cannot read this line: "), "{error}");
    assert!(error.ends_with("name the folder of a run, or the results.jsonl in it"), "{error}");
}

#[test]
fn a_trial_counts_once_however_often_its_line_is_there() {
    let mut bytes = two();
    for _ in 0..4 {
        bytes.extend(two());
    }
    let loaded = parse(&bytes).expect("whole lines");
    assert_eq!(loaded.records.len(), 2);
    assert!(
        loaded.warnings[0].contains(":3: skipped, because line 1 is a record of the same trial"),
        "{:?}",
        loaded.warnings
    );
    let last = loaded.warnings.last().expect("a warning");
    assert!(last.contains("further lines skipped because they repeat a trial: 3"), "{last}");
    // The same case in another run is another trial.
    let mut other = samples::trials("pipe", 64, &[1000], 500.0);
    other[0].run.push_str("-again");
    let bytes = [two(), samples::lines(&other)].concat();
    assert_eq!(parse(&bytes).expect("whole lines").records.len(), 3);
}

#[test]
fn a_newer_schema_is_refused_by_name() {
    for text in ["{\"schema\":99}", "{\"schema\":99,\"figures\":[1,2]}"] {
        let error = parse(format!("{text}\n").as_bytes()).expect_err("newer").to_string();
        assert!(error.contains("schema 99 is newer"), "{error}");
        assert!(error.contains("update crossway"), "{error}");
    }
    let mut record = samples::ping_pong("pipe", 64, 0, 1000, 1.0);
    record.schema = SCHEMA + 1;
    assert!(matches!(parse(&samples::lines(&[record])), Err(ReadError::NewerSchema { .. })));
    // Even without a newline: it is newer, not incomplete.
    assert!(matches!(parse(b"{\"schema\":99}"), Err(ReadError::NewerSchema { .. })));
}

#[test]
fn a_folder_means_its_results_and_a_folder_without_says_so() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let error = read_records(dir.path()).expect_err("no results").to_string();
    assert!(error.contains("is not a run"), "{error}");
    std::fs::write(dir.path().join(RESULTS), two()).expect("a file");
    assert_eq!(read_records(dir.path()).expect("a run").records.len(), 2);
    assert_eq!(read_records(&dir.path().join(RESULTS)).expect("a file").records.len(), 2);
    assert_eq!(read_beside::<serde_json::Value>(dir.path(), LIMITS).expect("none"), None);
    std::fs::write(dir.path().join(LIMITS), "{\n!").expect("a file");
    let error = read_beside::<serde_json::Value>(dir.path(), LIMITS).expect_err("bad").to_string();
    assert!(error.contains("limits.json:2"), "{error}");
}

#[test]
fn records_of_schema_1_are_read() {
    let mut record = samples::ping_pong("tcp", 64, 0, 1000, 1.0);
    record.schema = 1;
    let mut old = serde_json::to_value(&record).unwrap();
    let cpu = serde_json::json!({
        "busy_ns": 7, "softirq_ns": 1, "irq_ns": 0, "steal_ns": 0, "cpus": 2
    });
    old["host_cpu"] = cpu;
    old["net"] = serde_json::json!([
        {"name": "lo", "tx_packets": 1, "rx_packets": 1, "tx_bytes": 2, "rx_bytes": 2}
    ]);
    old.as_object_mut().unwrap().remove("hosts");
    for gone in ["testbed", "ends"] {
        old["inputs"].as_object_mut().unwrap().remove(gone);
    }
    for role in old["roles"].as_array_mut().unwrap() {
        role.as_object_mut().unwrap().remove("host");
    }
    let read = |old: &serde_json::Value| {
        let line = format!("{old}\n");
        parse(line.as_bytes()).expect("schema 1").records.remove(0)
    };
    let new = read(&old);
    assert_eq!((new.host_cpu[0].host.as_str(), new.host_cpu[0].busy_ns), ("local", 7));
    assert_eq!(new.net[0].host, "local");
    assert_eq!(new.roles[0].host, "local");
    assert_eq!(new.inputs, record.inputs);
    old["host_cpu"] = serde_json::Value::Null;
    assert!(read(&old).host_cpu.is_empty());
}

#[test]
fn a_line_that_is_not_a_record_is_named_with_its_file() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join(RESULTS);
    std::fs::write(&file, [two(), b"{}\n".to_vec()].concat()).expect("a file");
    assert_eq!(read_line(dir.path(), 2).expect("a record").inputs.trial, 1);
    for (line, wanted) in [(3, "missing field"), (4, "ends at line 3"), (0, "ends at line 3")] {
        let error = read_line(dir.path(), line).expect_err("no record").to_string();
        assert!(
            error.starts_with(&format!("{}:{line}: cannot read this line: ", file.display())),
            "{error}"
        );
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn a_device_without_end_is_no_file_of_records() {
    for error in
        [read_records(Path::new("/dev/zero")).err(), read_line(Path::new("/dev/zero"), 1).err()]
    {
        let error = error.expect("no records").to_string();
        assert!(error.contains("/dev/zero") && error.contains("longer than 16 MiB"), "{error}");
    }
    assert!(matches!(read_records(Path::new("/dev/null")), Err(ReadError::Empty { .. })));
}

#[test]
fn a_file_without_a_record_is_an_error_unless_the_run_may_have_none_yet() {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |bytes: &[u8]| std::fs::write(dir.path().join(RESULTS), bytes).expect("room");
    let says = || read_records(dir.path()).expect_err("no record").to_string();
    write(b"\n");
    assert!(says().contains("results.jsonl contains no records; name a run that"), "{}", says());
    let line = read_line(dir.path(), 1).expect_err("no record").to_string();
    assert!(line.contains("contains no records; name another run"), "{line}");
    write(b"{\"schema\":");
    assert!(says().contains("no records: ") && says().contains("was interrupted"), "{}", says());
    assert!(records_so_far(dir.path()).expect("an interrupted run").records.is_empty());
}
