//! `mpi = true` in a plan: MPI, unmodified, over TCP and over TIPC in its place.

use std::collections::BTreeSet;
use std::process::Stdio;

use crossway_lab::mpi::{Library, MpiRecord, Way};
use crossway_records::record::Status;
use crossway_records::side_records;

use super::program;

/// A plan with one small case.
const PLAN: &str = r#"
mpi = true
[group.one]
mechanisms = "pipe"
workload = "throughput"
size_bytes = 64
messages = 100
trials = 1
"#;

#[test]
fn two_ranks_compute_the_same_over_tcp_and_over_tipc_and_the_report_compares_them() {
    super::built::preload();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("own.toml"), PLAN).unwrap();
    let mut measure = program();
    measure.args(["measure", "./own.toml", "--json"]).current_dir(dir.path()).stdin(Stdio::null());
    let output = measure.output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let run = dir.path().join(told["dir"].as_str().expect("the run's folder"));
    let records: Vec<MpiRecord> = side_records::read_beside(&run).unwrap();
    if let [MpiRecord { status: Status::Skipped, reason: Some(why), remedy, .. }] = &records[..] {
        assert!(why.contains("root") || why.contains("is installed"), "{why}");
        return eprintln!("SKIP MPI over TIPC: {why}; remedy: {remedy:?}");
    }
    let sums: BTreeSet<u64> = records
        .iter()
        .map(|r| r.result.unwrap_or_else(|| panic!("{r:?}")).halo_sum.to_bits())
        .collect();
    assert_eq!(sums.len(), 1, "{records:?}");
    let ways = |library| records.iter().filter(move |r| r.library == Some(library)).map(|r| r.way);
    for library in Library::ALL {
        let here: BTreeSet<Option<Way>> = ways(library).collect();
        assert!(here.is_empty() || here == Way::ALL.map(Some).into(), "{records:?}");
    }
    let report = program().args(["report", "--markdown"]).arg(&run).output().unwrap();
    let report = String::from_utf8(report.stdout).unwrap();
    let rows = report.lines().filter(|line| line.contains("TIPC, one node")).count();
    assert!(rows > 0 && report.contains("MPI over TCP and over TIPC"), "{report}");
    let brief = program().arg("report").arg(&run).output().unwrap();
    let brief = String::from_utf8(brief.stdout).unwrap();
    assert!(brief.contains("over TIPC: "), "{brief}");
}
