//! Measurements between hosts: agents that are started by command prefixes of every kind, and their failures.

mod jobs;
mod kills;
mod lost;
mod net_exec;
#[path = "../place/mod.rs"]
mod place;
mod plain;
mod push;
mod ssh;
mod testbeds;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crossway_records::inputs::Ends;
use crossway_records::record::{Record, Span, Status};
use place::{Place, await_that, signal};

pub(crate) const CROSSWAY: &str = env!("CARGO_BIN_EXE_crossway");

/// A plan with mechanisms that work between hosts, and some that do not.
pub(crate) const PLAN: &str = r#"
[testbed.pair]
kind = "hosts"
[defaults]
size_bytes = [64, 4096]
trials = 1
warmup_ms = 5
measure_ms = 10
[group.between]
testbed = "pair"
mechanisms = ["tcp", "udp"]
workload = ["throughput", "ping-pong", { paced = { burst_bytes = 4096, period_us = 1000 } }]
[group.within]
testbed = "pair"
ends = "within"
mechanisms = ["pipe", "shm-futex", "tcp"]
workload = ["throughput", "ping-pong", { fan-in = { senders = 2 } }]
"#;

pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the records of a run, and checks that it was completed and that all records are verified.
pub(crate) fn measured(place: &Place, output: &Output) -> Vec<Record> {
    assert!(output.status.success(), "{:?}: {}", output.status, errors(output));
    let records = place.records();
    for record in &records {
        let spoiled = record.status == Status::Degraded;
        assert!(record.status == Status::Ok || spoiled, "{}: {:?}", record.case, record.reason);
        let counts = record.counts.expect("counts");
        assert!(counts.received > 0 && counts.corrupt == 0, "{}: {counts:?}", record.case);
        assert!(record.throughput.expect("a speed").wall_ns > 0);
    }
    records
}

/// Checks that hosts, roles and meters of each record are consistent.
pub(crate) fn check_hosts(records: &[Record], first: &str, last: &str) {
    for record in records {
        let names: Vec<&str> = record.hosts.iter().map(|host| host.name.as_str()).collect();
        let (roles, meters) = (&record.roles, &record.host_cpu);
        assert_eq!(roles[0].host, first, "{}", record.case);
        let metered: Vec<&str> = meters.iter().map(|cpu| cpu.host.as_str()).collect();
        assert_eq!(metered, names);
        match record.inputs.ends {
            Ends::Between => {
                assert_eq!(names, [first, last]);
                assert_eq!(record.host, format!("{first} to {last}"));
                assert_eq!(roles[roles.len() - 1].host, last);
            }
            Ends::Within => {
                assert_eq!(names, [first]);
                assert!(roles.iter().all(|role| role.host == first));
            }
        }
    }
}

pub(crate) fn await_nothing_left(place: &Place) {
    await_that("the end of everything", || place.leftovers().is_empty());
}

/// Returns whether this machine can create networks; otherwise prints why not.
pub(crate) fn can_make_networks(test: &str) -> bool {
    let up = Command::new(CROSSWAY).args(["net", "up", "--hosts", "a", "--json"]).output().unwrap();
    if !up.status.success() {
        eprintln!("SKIP {test}: {}", errors(&up));
        return false;
    }
    let network: serde_json::Value = serde_json::from_slice(&up.stdout).unwrap();
    let name = network["name"].as_str().unwrap();
    Command::new(CROSSWAY).args(["net", "down", name]).status().unwrap().success()
}

/// A plan with trials that are long enough to kill something while they run.
pub(crate) const LONG: &str = r#"
[testbed.pair]
kind = "hosts"
[group.x]
testbed = "pair"
mechanisms = "tcp"
workload = "ping-pong"
size_bytes = [64, 65, 66]
trials = 3
warmup_ms = 5
measure_ms = 300
"#;
