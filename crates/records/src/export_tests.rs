//! Tests that independent readers can read the written files.

use super::*;
use crate::record::Status;
use crate::samples;

pub(super) fn records() -> Vec<Record> {
    let mut records = samples::trials("pipe", 64, &[1000, 1100], 500.0);
    records[0].inputs.seed = u64::MAX;
    let mut skipped = samples::ping_pong("tipc-kernel-rdm", 64, 0, 1, 1.0);
    skipped.status = Status::Skipped;
    skipped.reason = Some("no \"AF_TIPC\", really;\nnone".to_owned());
    (skipped.counts, skipped.throughput, skipped.cost) = (None, None, None);
    skipped.latency_ns.clear();
    skipped.roles.clear();
    skipped.calibration.cache_line_after_ns = None;
    records.push(skipped);
    records
}

#[test]
fn column_names_are_unique_and_documented() {
    let mut names: Vec<&str> = COLUMNS.iter().map(|c| c.name).collect();
    assert!(COLUMNS.iter().all(|c| !c.about.is_empty()));
    names.sort_unstable();
    let n = names.len();
    names.dedup();
    assert_eq!(names.len(), n);
}

#[test]
fn csv_reads_back_with_empty_fields_for_nulls() {
    let mut out = Vec::new();
    let records = records();
    write_csv(&records, &mut out).expect("written");
    let mut reader = csv::Reader::from_reader(&out[..]);
    let heading = reader.headers().expect("a heading").clone();
    let at = |name: &str| heading.iter().position(|h| h == name).expect(name);
    let rows: Vec<csv::StringRecord> = reader.records().map(|r| r.expect("a row")).collect();
    assert_eq!(rows.len(), 3);
    assert_eq!(&rows[0][at("round_trip_p50_ns")], "1000");
    assert_eq!(&rows[0][at("seed")], u64::MAX.to_string());
    assert_eq!(&rows[0][at("cycles")], "");
    assert_eq!(&rows[2][at("status")], "skipped");
    assert_eq!(&rows[2][at("reason")], "no \"AF_TIPC\", really;\nnone");
    assert_eq!(&rows[2][at("round_trip_p50_ns")], "");
    assert_eq!(&rows[2][at("user_ns")], "");
    assert_eq!(&rows[2][at("cores_moved")], "");
}

#[test]
fn no_records_are_a_heading_without_rows() {
    let mut out = Vec::new();
    write_csv(&[], &mut out).expect("written");
    assert_eq!(out.iter().filter(|b| **b == b'\n').count(), 1);
}
