//! Table 3 of Enea's study: the colours of mechanisms, and the thresholds by which they are given.

use crossway_lab::faults::FaultRecord;

use super::*;

fn fault(id: &str, fault: &str, outcome: &str, not_sent: u64, lost: u64) -> FaultRecord {
    serde_json::from_value(json!({
        "schema": 1, "run": "r", "started_unix_ms": 1, "environment": "e", "mechanism": id, "wait": "block", "size_bytes": 6000,
        "fault": fault, "state": "idle", "affected": "listener", "survivor": "connector", "trial": 0, "status": "ok",
        "outcome": outcome, "detected_after_ns": 500_000, "hung": outcome == "hung", "watched_ns": 1_000_000_000,
        "received_not_sent": not_sent, "sent_lost": lost,
    }))
    .expect("a fault record")
}

#[test]
fn table_3_is_computed_and_its_thresholds_can_be_changed() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut made = Local::new();
    for (id, ns) in
        [("shm-futex", 400.0), ("pipe", 900.0), ("uds-stream", 1_000.0), ("tcp", 1_100.0)]
    {
        made.one_way(id, 64, ns, 1.2 * ns).one_way(id, 65_536, 20.0 * ns, 100.0 * ns);
        made.trips(id, (0, 0), 10.0 * ns, 10.0 * ns).trips(id, (0, 1), 12.0 * ns, 80.0 * ns);
    }
    made.trips("shm-spin", (0, 1), 300.0, 310.0);
    // A contender that always spins, ten times slower than the best at one size.
    made.one_way("mpi", 64, 4_000.0, 4_000.0);
    for record in made.records.iter_mut().filter(|r| r.mechanism == "mpi") {
        record.inputs.wait = Wait::Spin;
    }
    let mut run = made.run();
    run.dir = dir.path().to_owned();
    run.faults = vec![
        fault("shm-futex", "kill", "detected", 0, 0),
        fault("shm-futex", "garbage", "detected", 0, 4),
        fault("pipe", "kill", "told", 0, 0),
        fault("pipe", "garbage", "deceived", 1, 0),
        fault("uds-stream", "kill", "hung", 0, 0),
        fault("tcp", "garbage", "unaffected", 0, 0),
        FaultRecord { detected_after_ns: None, ..fault("tcp", "kill", "detected", 0, 0) },
        fault("mpi", "garbage", "died", 0, 0),
    ];
    let usual = page(&run);
    for cell in [
        "stray writes destroyed 4 messages sent before",
        "1 message received that was never sent",
        "no message was altered or invented",
        "the survivor got no error in 1 of 1 trial in which its peer was killed",
        "the survivor got an error in 1 of 1 trial in which its peer was killed; no time was recorded",
        "faults.jsonl lines 1 to 2",
        "yellow (study: yellow)",
    ] {
        assert!(usual.contains(cell), "'{cell}' is not in Table 3");
    }
    assert_ne!(finding(&run, "E23").verdict, NotMeasurable);
    let others = usual.rsplit("Table 3 for the other mechanisms").next().expect("it is shown");
    let row = others.split("<tr").find(|row| row.contains(">mpi<")).expect("the contender's row");
    assert!(
        row.contains("red") && row.contains("ratio of the best throughput to this one: "),
        "{row}"
    );
    assert!(row.contains("the other process died"), "{row}");
    assert_eq!(row.matches("ratio of").count(), 1, "only what was measured has a colour: {row}");
    let said = |page: &str| page.contains("green if it got one within 0.1 ms");
    assert!(!said(&usual));
    std::fs::write(dir.path().join("thresholds.json"), r#"{"told_green_ms": 0.1}"#).expect("room");
    let strict = page(&run);
    assert!(said(&strict), "the changed threshold is not printed");
    assert!(strict.matches("yellow (study").count() > usual.matches("yellow (study").count());
}
