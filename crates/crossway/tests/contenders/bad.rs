//! Programs that break the protocol in every way. For each, there is one error that says what the program did; the run
//! continues, and nothing is left behind.

use std::collections::BTreeMap;

use crossway_records::record::{Record, Status};

use crate::{Workshop, have};

/// For each contender: its id, its mode, the answer at which it misbehaves, and what the error's reason must contain (|
/// separates alternatives).
const MISDEEDS: &[(&str, &str, &str, &str)] = &[
    ("silent-hello", "silent", "hello", "did not send its greeting 'hello' within 1s"),
    ("silent-verified", "silent", "verified", "did not answer 'verify' within 8s"),
    ("dies-hello", "dies", "hello", "ended with code 3"),
    ("dies-offer", "dies", "offer", "ended with code 3"),
    ("dies-opened", "dies", "opened", "ended with code 3"),
    ("dies-verified", "dies", "verified", "ended with code 3"),
    ("dies-ready", "dies", "ready", "ended with code 3"),
    ("dies-done", "dies", "done", "ended with code 3"),
    ("dies-result", "dies", "result", "ended with code 3"),
    ("dies-closed", "dies", "closed", "ended with code 3"),
    ("nonsense-hello", "nonsense", "hello", "began with a line that is not in the protocol"),
    ("nonsense-done", "nonsense", "done", "not in the protocol"),
    ("floods-offer", "floods", "offer", "longer than"),
    ("floods-done", "floods", "done", "longer than"),
    // Noticed before "go" is sent, or instead of its answer.
    ("twice-ready", "twice", "ready", "without being asked|'ready' instead of"),
    ("runs-away", "runs-away", "", "must stay in the foreground"),
    ("leaves-a-child", "leaves-a-child", "", "must stay in the foreground"),
    ("old", "old", "", "speaks version 0 of the protocol"),
    ("reads-nothing", "reads-nothing", "", "did not read every byte"),
    ("repeats-one-message", "repeats-one-message", "", "not written; its figures are refused"),
    ("too-fast", "too-fast", "", "not between 'go'"),
    ("counts-too-many", "counts-too-many", "", "messages sent and"),
    ("short-samples", "short-samples", "", "its figures are refused"),
];

fn declaration(misdeeds: &[(&str, &str, &str, &str)]) -> String {
    let mut text = String::new();
    for (id, mode, at, _) in misdeeds {
        // The contender that should get as far as verification may need a while for that on a busy machine.
        let deadline = match (*mode, *at) {
            ("silent", "hello") => "deadline_s = 1\n",
            ("silent", _) => "deadline_s = 8\n",
            _ => "",
        };
        text.push_str(&format!(
            "[contender.bad-{id}]\nabout = \"bad\"\nrun = [\"python3\", \"{{dir}}/bad.py\", \"{mode}\", \"{at}\"]\n\
             remedy = \"none\"\n{deadline}"
        ));
    }
    text.push_str(
        "[contender.good]\nabout = \"good\"\nrun = [\"python3\", \"{dir}/bad.py\"]\nremedy = \"none\"\n",
    );
    text
}

#[test]
fn whatever_a_program_does_is_one_clear_error_and_the_run_goes_on() {
    if !have("python3", "python3") {
        return;
    }
    let plan = "[group.x]\nmechanisms = [\"bad-*\", \"good\", \"pipe\"]\nworkload = \"ping-pong\"\n\
                size_bytes = 64\nplacement = \"unpinned\"\ntrials = 1\nmessages = 40\nwarmup_ms = 1\n";
    let shop = Workshop::new(plan);
    shop.write("bad.py", include_str!("bad.py"));
    let file = shop.write("bad.toml", &declaration(MISDEEDS));
    let out = shop.run(&["measure", "plan.toml", "--contender", file.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(1), "{}", crate::stderr(&out));
    let records: BTreeMap<String, Record> =
        shop.place.records().into_iter().map(|r| (r.mechanism.clone(), r)).collect();
    let mut wrong = Vec::new();
    for (id, _, _, words) in MISDEEDS {
        let record = &records[&format!("bad-{id}")];
        let reason = record.reason.clone().unwrap_or_default();
        let refused = matches!(record.status, Status::Failed | Status::Skipped);
        if !refused || record.counts.is_some() || !words.split('|').any(|w| reason.contains(w)) {
            wrong.push(format!("{id}: {:?}, {reason}", record.status));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for id in ["good", "pipe"] {
        let counts = records[id].counts.unwrap_or_else(|| panic!("{:?}", records[id].reason));
        assert_eq!((counts.sent, counts.received, counts.corrupt), (40, 40, 0), "{id}");
    }
    assert_eq!(records["good"].mechanism_version.as_deref(), Some("bad 1.0"));
    assert_eq!(records["good"].contender.as_ref().unwrap().file, file);
    assert_eq!(shop.place.leftovers(), Vec::<String>::new());
    assert_eq!(still_running(&file), Vec::<u32>::new());
}

/// Both ends may create objects whose names begin with the listening end's prefix; here the connecting end creates the
/// last one.
#[test]
fn what_the_connecting_end_makes_in_shared_memory_last_is_removed_too() {
    if !have("python3", "python3") {
        return;
    }
    let plan = "[group.x]\nmechanisms = \"bad-late\"\nworkload = \"ping-pong\"\nsize_bytes = 64\n\
                placement = \"unpinned\"\ntrials = 1\nmessages = 40\nwarmup_ms = 1\n";
    let shop = Workshop::new(plan);
    shop.write("bad.py", include_str!("bad.py"));
    let file = shop.write("bad.toml", &declaration(&[("late", "late", "", "")]));
    let out = shop.run(&["measure", "plan.toml", "--contender", file.to_str().unwrap()]);
    assert!(out.status.success(), "{}", crate::stderr(&out));
    let left: Vec<String> = std::fs::read_dir("/dev/shm")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap_or_default())
        .filter(|name| name.starts_with("crossway-") && name.ends_with("-last"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

/// Returns the processes whose command line contains the folder of `file`. They are not found by their working
/// directories, because these no longer exist.
fn still_running(file: &std::path::Path) -> Vec<u32> {
    let folder = file.parent().unwrap().to_str().unwrap().to_owned();
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&folder)
        })
        .collect()
}
