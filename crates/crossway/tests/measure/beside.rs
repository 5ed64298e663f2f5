//! Workloads that run concurrently with the measured one (`beside`).

use crossway_records::inputs::Workload;
use crossway_records::record::{Record, Span};

use super::place::{Place, await_that, signal};
use super::{assert_success, is_done};

const REQUESTS: &str = r#"
[group.requests]
mechanisms = "uds-stream"
workload = "ping-pong"
size_bytes = 64
reply_bytes = 200
placement = "unpinned"
trials = 1
messages = 300
warmup_ms = 5
beside = [
    "nothing",
    { workload = "throughput", size_bytes = "4 KiB" },
    [
        { mechanism = "pipe", workload = { paced = { burst_bytes = 128, period_us = 2000 } }, size_bytes = 64 },
        { mechanism = "shm-futex", workload = "ping-pong", size_bytes = 8 },
    ],
]
"#;

fn with(records: &[Record], count: usize) -> &Record {
    records.iter().find(|r| r.inputs.beside.len() == count).expect("such a case")
}

#[test]
fn requests_are_measured_beside_a_stream_and_both_are_verified() {
    let place = Place::new(REQUESTS);
    assert_success(&place.measure(&[]));
    let records = place.records();
    assert_eq!(records.len(), 3);
    for record in &records {
        assert!(is_done(record) || record.reason.as_ref().unwrap().contains("the rate was not"));
        let counts = record.counts.unwrap();
        assert_eq!((counts.received, counts.bytes), (300, 300 * 200), "{}", record.case);
        assert_eq!(record.roles.len(), 2);
        assert_eq!(record.beside.len(), record.inputs.beside.len());
        for beside in &record.beside {
            let counts = beside.counts;
            assert_eq!(counts.received, counts.sent, "{}", record.case);
            assert_eq!(counts.bytes, counts.sent * beside.size_bytes);
            assert_eq!((counts.corrupt, counts.out_of_order), (0, 0));
            assert!(counts.sent > 0 && beside.roles.len() == 2, "{}", record.case);
        }
    }
    assert!(with(&records, 0).beside.is_empty());
    let stream = with(&records, 1);
    assert_eq!(stream.beside[0].mechanism, "uds-stream");
    assert!(stream.case.ends_with("reply200/beside-uds-stream-throughput-4096-unpinned"));
    let two = with(&records, 2);
    let paced = &two.beside[0];
    assert!(matches!(paced.workload, Workload::Paced { .. }));
    let pacing = paced.pacing.unwrap();
    assert_eq!(paced.counts.sent, 2 * pacing.bursts, "whole bursts only");
    assert_eq!(paced.latency_ns[0].span, Span::OneWay);
    assert_eq!(paced.latency_ns[0].n, paced.counts.received);
    let other = &two.beside[1];
    assert_eq!(
        (other.latency_ns[0].span, other.latency_ns[0].n),
        (Span::RoundTrip, other.counts.sent)
    );
    assert_eq!(place.leftovers(), Vec::<String>::new());

    // Commands that read records distinguish them and show both.
    let report = place.command(&["report", "latest", "--terminal"]).output().unwrap();
    let text = String::from_utf8_lossy(&report.stdout);
    assert!(
        text.contains("unpinned, no load added, beside one way by uds-stream, 4 KiB"),
        "{text}"
    );
    assert!(text.contains("background workloads"), "{text}");
    let line = place.command(&["rerun", "latest:2", "--json"]).output().unwrap();
    assert_success(&line);
}

#[test]
fn what_cannot_run_beside_is_skipped_with_the_reason() {
    let place = Place::new(
        "[group.x]\nmechanisms = [\"pipe\"]\nworkload = \"ping-pong\"\nsize_bytes = 64\nplacement = \"unpinned\"\n\
         trials = 1\nmessages = 10\nwarmup_ms = 0\nbeside = [\n\
         { mechanism = \"udp\", workload = \"throughput\", size_bytes = 64 },\n\
         { workload = \"throughput\", size_bytes = 4 },\n\
         { mechanism = \"shm-spin\", workload = \"throughput\", size_bytes = 64, wait = \"block\" }]\n",
    );
    assert_eq!(place.measure(&[]).status.code(), Some(1), "nothing was measured");
    let mut reasons: Vec<_> = place.records().into_iter().filter_map(|r| r.reason).collect();
    reasons.sort();
    assert_eq!(
        reasons,
        [
            "messages in `beside` need room for a sequence number of 8 bytes",
            "shm-spin in `beside` does not support this way of waiting",
            "udp may lose the message that ends the concurrent workload",
        ]
    );
}

#[test]
fn a_killed_controller_leaves_no_role_beside() {
    let place = Place::new(
        "[group.x]\nmechanisms = \"pipe\"\nworkload = { paced = { burst_bytes = 64, period_us = 1000 } }\nsize_bytes = 64\n\
         placement = \"unpinned\"\ntrials = 1\nwarmup_ms = 1\nmeasure_ms = 600000\n\
         beside = { workload = \"throughput\", size_bytes = 64 }\n",
    );
    let roles = || place.processes(|line| line.split_whitespace().nth(1) == Some("role"));
    let mut controller = place.start();
    await_that("four roles", || roles().len() == 4);
    signal(controller.id() as i32, "-KILL");
    controller.wait().unwrap();
    await_that("the end of the roles", || roles().is_empty());
    await_that("the end of the reaper", || place.leftovers().is_empty());
}
