//! What advice takes from a record.

use crossway_records::cases::counts;
use crossway_records::record::{BesideFigures, Counts};
use crossway_records::samples;

use super::*;

/// A late trial, or one that kept its rate, under these circumstances.
fn trial(status: Status, share: f64, [beside, moved, stolen]: [bool; 3]) -> Record {
    let mut record = samples::paced(&[share]).remove(0);
    record.status = status;
    let wall_ns = record.throughput.as_ref().map_or(0, |t| t.wall_ns.max(1_000_000_000));
    record.throughput = record.throughput.map(|t| Throughput { wall_ns, ..t });
    record.beside = vec![BesideFigures {
        mechanism: "pipe".to_owned(),
        workload: Workload::PingPong,
        size_bytes: 64,
        counts: Counts::default(),
        throughput: record.throughput.expect("a rate"),
        latency_ns: Vec::new(),
        pacing: beside.then(|| samples::pacing(1000.0, 0.5)),
        roles: Vec::new(),
    }];
    if moved {
        record.calibration.cache_line_before_ns = Some(100.0);
        record.calibration.cache_line_after_ns = Some(400.0);
    }
    record.host_cpu = vec![HostMeters {
        host: "local".to_owned(),
        busy_ns: 0,
        softirq_ns: 0,
        irq_ns: 0,
        steal_ns: if stolen { wall_ns / 10 } else { 0 },
        cpus: 2,
        span_ns: Some(wall_ns),
    }];
    record
}

#[test]
fn the_trials_that_count_are_those_that_count_everywhere() {
    let mut seen = [0, 0];
    for status in [Status::Ok, Status::Degraded, Status::Failed, Status::Skipped] {
        for share in [1.0, 0.8] {
            for bits in 0..8 {
                let circumstances = [bits & 1 > 0, bits & 2 > 0, bits & 4 > 0];
                let record = trial(status, share, circumstances);
                let expected = counts(&record);
                let told = format!("{status:?} {share} {circumstances:?}");
                assert_eq!(Trial::of(&record).counts(), expected, "{told}");
                let line = serde_json::to_vec(&record).expect("JSON");
                let read: Trial = serde_json::from_slice(&line).expect("a trial");
                assert_eq!(read.counts(), expected, "{told}, from a file");
                seen[usize::from(expected)] += 1;
            }
        }
    }
    // Every `ok` trial, and the one that only missed its rate.
    assert_eq!(seen, [47, 17]);
}
