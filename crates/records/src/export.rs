//! Records as flat tables for other programs: CSV and Parquet, one row per record.
//!
//! Both formats have the same columns, which `crossway export --columns` describes. A value that was not measured is an
//! empty field in CSV and a null in Parquet, never 0.

mod columns;
#[cfg(feature = "parquet")]
mod parquet_file;

use std::io::Write;

pub use columns::{COLUMNS, Column, ColumnKind, Value};
#[cfg(feature = "parquet")]
pub use parquet_file::write_parquet;

use crate::record::Record;

/// Why a table could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The CSV writer failed.
    #[error("cannot write CSV: {0}")]
    Csv(#[from] csv::Error),
    /// The Parquet writer failed.
    #[cfg(feature = "parquet")]
    #[error("cannot write Parquet: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    /// Writing the output failed.
    #[error("cannot write the table: {0}")]
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

#[cfg(test)]
#[path = "export_tests.rs"]
mod tests;
