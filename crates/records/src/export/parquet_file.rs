//! Parquet files. Compiled with the feature `parquet`, which is enabled by default.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, GzipLevel, IntType, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

use super::{COLUMNS, Column, ColumnKind, ExportError, Value};
use crate::record::Record;

/// Rows per row group; limits the memory used for writing.
const ROWS_PER_GROUP: usize = 64 * 1024;

/// Writes Parquet; every column may contain nulls.
///
/// # Errors
/// Writing fails.
pub fn write_parquet(records: &[&Record], out: impl Write + Send) -> Result<(), ExportError> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::GZIP(GzipLevel::default()))
        .set_created_by(format!("crossway {}", env!("CARGO_PKG_VERSION")))
        .build();
    let mut writer = SerializedFileWriter::new(out, Arc::new(schema()?), Arc::new(properties))?;
    for rows in records.chunks(ROWS_PER_GROUP) {
        let mut group = writer.next_row_group()?;
        for column in COLUMNS {
            write_column(&mut group, column, rows)?;
        }
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

/// The Parquet schema of the columns.
fn schema() -> Result<Type, ExportError> {
    let fields = COLUMNS
        .iter()
        .map(|column| {
            let (physical, logical) = match column.kind {
                ColumnKind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
                ColumnKind::Count => (
                    Physical::INT64,
                    Some(LogicalType::Integer(IntType { bit_width: 64, is_signed: false })),
                ),
                ColumnKind::Whole => (Physical::INT64, None),
                ColumnKind::Real => (Physical::DOUBLE, None),
                ColumnKind::Flag => (Physical::BOOLEAN, None),
            };
            let field = Type::primitive_type_builder(column.name, physical)
                .with_repetition(Repetition::OPTIONAL)
                .with_logical_type(logical)
                .build()?;
            Ok(Arc::new(field))
        })
        .collect::<Result<Vec<_>, ExportError>>()?;
    Ok(Type::group_type_builder("record").with_fields(fields).build()?)
}

fn write_column<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    column: &Column,
    rows: &[&Record],
) -> Result<(), ExportError> {
    let Some(mut writer) = group.next_column()? else { return Ok(()) };
    // A definition level of 1 marks a value, 0 a null; only values are stored.
    let mut levels: Vec<i16> = Vec::with_capacity(rows.len());
    macro_rules! write {
        ($parquet:ty, $variant:ident, $convert:expr) => {{
            let mut values = Vec::with_capacity(rows.len());
            for row in rows {
                let value = match (column.value)(row) {
                    Value::$variant(value) => value.and_then($convert),
                    _ => None,
                };
                levels.push(i16::from(value.is_some()));
                values.extend(value);
            }
            writer.typed::<$parquet>().write_batch(&values, Some(&levels), None)?;
        }};
    }
    match column.kind {
        ColumnKind::Text => {
            write!(ByteArrayType, Text, |v: String| Some(ByteArray::from(v.into_bytes())))
        }
        // Parquet stores an unsigned number as the signed one with the same bits.
        ColumnKind::Count => write!(Int64Type, Count, |v: u64| Some(v as i64)),
        ColumnKind::Whole => write!(Int64Type, Whole, Some),
        ColumnKind::Real => write!(DoubleType, Real, |v: f64| v.is_finite().then_some(v)),
        ColumnKind::Flag => write!(BoolType, Flag, Some),
    }
    writer.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use parquet::basic::ConvertedType;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::super::tests::records;
    use super::*;

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
        write_parquet(&[], &mut out).expect("written");
        assert!(out.ends_with(b"PAR1"));
    }
}
