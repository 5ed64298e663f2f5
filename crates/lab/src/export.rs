//! Records as flat tables for other programs: CSV and Parquet, one row per record.
//!
//! Both formats share one list of columns, which documents itself (`crossway export --columns`). A value that was not
//! measured is an empty field in CSV and a null in Parquet, never 0.

mod columns;

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, GzipLevel, IntType, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

pub use columns::{COLUMNS, Column, ColumnKind, Value};

use crate::record::Record;

/// Rows per Parquet row group; limits the memory used for writing.
const ROWS_PER_GROUP: usize = 64 * 1024;

/// Why a table could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// An error of the CSV writer.
    #[error("cannot write CSV: {0}")]
    Csv(#[from] csv::Error),
    /// An error of the Parquet writer.
    #[error("cannot write Parquet: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    /// An error of the file.
    #[error("cannot write: {0}")]
    Io(#[from] std::io::Error),
}

/// Writes CSV with a heading line.
///
/// # Errors
/// Writing fails.
pub fn write_csv<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    out: impl Write,
) -> Result<(), ExportError> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(COLUMNS.iter().map(|c| c.name))?;
    for record in records {
        writer.write_record(COLUMNS.iter().map(|c| match (c.value)(record) {
            Value::Text(v) => v.unwrap_or_default(),
            Value::Count(v) => v.map_or(String::new(), |v| v.to_string()),
            Value::Whole(v) => v.map_or(String::new(), |v| v.to_string()),
            Value::Real(v) => v.filter(|v| v.is_finite()).map_or(String::new(), |v| v.to_string()),
            Value::Flag(v) => v.map_or(String::new(), |v| v.to_string()),
        }))?;
    }
    writer.flush()?;
    Ok(())
}

/// The Parquet schema of the columns.
pub fn parquet_schema() -> Result<Type, ExportError> {
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

/// Writes Parquet; every column is optional.
///
/// # Errors
/// Writing fails.
pub fn write_parquet(records: &[&Record], out: impl Write + Send) -> Result<(), ExportError> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::GZIP(GzipLevel::default()))
        .set_created_by(format!("crossway {}", env!("CARGO_PKG_VERSION")))
        .build();
    let schema = Arc::new(parquet_schema()?);
    let mut writer = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
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
#[path = "export_tests.rs"]
mod tests;
