//! Written files can be read back by other readers than our own.

use parquet::basic::ConvertedType;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use super::*;
use crate::record::Status;
use crate::samples;

fn records() -> Vec<Record> {
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
fn parquet_reads_back_with_types_and_nulls() {
    let records = records();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("records.parquet");
    let file = std::fs::File::create(&path).expect("a file");
    write_parquet(&records.iter().collect::<Vec<_>>(), file).expect("written");
    let reader = SerializedFileReader::new(std::fs::File::open(&path).expect("a file"));
    let reader = reader.expect("Parquet");
    let schema = reader.metadata().file_metadata().schema_descr();
    assert_eq!(schema.num_columns(), COLUMNS.len());
    for (column, described) in COLUMNS.iter().zip(schema.columns()) {
        assert_eq!(described.name(), column.name);
        let converted = match column.kind {
            ColumnKind::Text => ConvertedType::UTF8,
            ColumnKind::Count => ConvertedType::UINT_64,
            _ => ConvertedType::NONE,
        };
        assert_eq!(described.converted_type(), converted, "{}", column.name);
    }
    let rows: Vec<_> =
        reader.get_row_iter(None).expect("rows").map(|r| r.expect("a row")).collect();
    assert_eq!(rows.len(), 3);
    let field = |row: usize, name: &str| {
        let found = rows[row].get_column_iter().find(|(n, _)| *n == name);
        found.expect(name).1.clone()
    };
    assert_eq!(field(0, "mechanism"), Field::Str("pipe".to_owned()));
    assert_eq!(field(1, "round_trip_p50_ns"), Field::ULong(1100));
    assert_eq!(field(0, "seed"), Field::ULong(u64::MAX));
    assert_eq!(field(0, "cpu_ns_per_msg"), Field::Double(500.0));
    assert_eq!(field(0, "cores_moved"), Field::Bool(false));
    assert_eq!(field(0, "cycles"), Field::Null);
    for name in ["round_trip_p50_ns", "cpu_ns_per_msg", "user_ns", "cores_moved", "sent_msgs"] {
        assert_eq!(field(2, name), Field::Null, "{name}");
    }
}

#[test]
fn no_records_are_a_table_without_rows() {
    let mut out = Vec::new();
    write_csv(&[], &mut out).expect("written");
    assert_eq!(out.iter().filter(|b| **b == b'\n').count(), 1);
    let mut out = Vec::new();
    write_parquet(&[], &mut out).expect("written");
    assert!(out.ends_with(b"PAR1"));
}
