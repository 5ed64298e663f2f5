//! Reading `results.jsonl` and what lies beside it.
//!
//! A run that was killed leaves a torn last line: it is left out with a warning. Any other line that cannot be read is
//! an error with its place, because a figure that silently went missing would be worse than none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::record::{Record, SCHEMA};

/// The file of records in a run's folder.
pub const RESULTS: &str = "results.jsonl";
/// The file of the environment's fingerprint.
pub const ENVIRONMENT: &str = "env.json";
/// The file of the machine's limits.
pub const LIMITS: &str = "limits.json";

/// Why records could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no such file or it cannot be read.
    #[error("cannot read {path}: {cause}{hint}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause; told in the message, so it is no source of the error: a chain would say it twice.
        cause: io::Error,
        /// What to do, if that is known; begins with a separator.
        hint: String,
    },
    /// A line is no record.
    #[error("{path}:{line}: not a record: {why}")]
    Bad {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// A newer Crossway wrote it.
    #[error(
        "{path}:{line}: record schema {found} is newer than this program's ({SCHEMA}); update crossway to read it"
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Its schema.
        found: u64,
    },
}

/// Records and what to know about them.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The file they were read from.
    pub path: PathBuf,
    /// In the order in which they were written.
    pub records: Vec<Record>,
    /// What to know, e.g. that the last line was torn.
    pub warnings: Vec<String>,
}

/// The file of records that `path` means: itself, or `results.jsonl` in it if it is a folder.
pub fn results_file(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(RESULTS) } else { path.to_owned() }
}

/// Reads the records of a run's folder or of a single file.
///
/// # Errors
/// See [`ReadError`].
pub fn read_records(path: &Path) -> Result<Loaded, ReadError> {
    let file = results_file(path);
    let bytes = fs::read(&file).map_err(|cause| {
        let hint = match cause.kind() {
            io::ErrorKind::NotFound if path.is_dir() => {
                "; this folder holds no run: give one that `crossway measure` wrote"
            }
            io::ErrorKind::NotFound => "; `crossway measure` prints the folder that it wrote",
            _ => "",
        };
        let hint = hint.to_owned();
        ReadError::Io { path: file.clone(), cause, hint }
    })?;
    parse_records(&file, &bytes)
}

/// Reads records from the text of a `results.jsonl`; `path` is for messages only.
///
/// # Errors
/// A line other than a torn last one is no record, or a record's schema is newer than ours.
pub fn parse_records(path: &Path, bytes: &[u8]) -> Result<Loaded, ReadError> {
    let lines: Vec<(usize, &[u8])> = bytes
        .split(|b| *b == b'\n')
        .enumerate()
        .map(|(at, line)| (at + 1, line.trim_ascii()))
        .filter(|(_, line)| !line.is_empty())
        .collect();
    let mut loaded = Loaded { path: path.to_owned(), ..Loaded::default() };
    let torn_at = (bytes.last() != Some(&b'\n')).then(|| lines.last().map(|(n, _)| *n)).flatten();
    loaded.records.reserve_exact(lines.len());
    for part in parse_lines(path, &lines) {
        for (line, parsed) in part {
            match parsed {
                Ok(record) => loaded.records.push(record),
                Err(ReadError::Bad { .. }) if Some(line) == torn_at => {
                    loaded.warnings.push(format!(
                        "{}:{line}: the last line is torn (the run was interrupted while writing it) and left out",
                        path.display()
                    ));
                }
                Err(error) => return Err(error),
            }
        }
    }
    if loaded.records.is_empty() {
        loaded.warnings.push(format!("{} holds no records", path.display()));
    }
    Ok(loaded)
}

type Parsed = Vec<(usize, Result<Record, ReadError>)>;

/// Parses on as many threads as there are CPUs: a reference run has 100,000 records and more.
fn parse_lines(path: &Path, lines: &[(usize, &[u8])]) -> Vec<Parsed> {
    const LINES_PER_THREAD_AT_LEAST: usize = 2000;
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(16);
    let share = lines.len().div_ceil(threads).max(LINES_PER_THREAD_AT_LEAST);
    let parse = |part: &[(usize, &[u8])]| -> Parsed {
        part.iter().map(|(number, line)| (*number, parse_line(path, *number, line))).collect()
    };
    if lines.len() <= share {
        return vec![parse(lines)];
    }
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            lines.chunks(share).map(|part| scope.spawn(move || parse(part))).collect();
        workers
            .into_iter()
            .map(|w| w.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn parse_line(path: &Path, line: usize, text: &[u8]) -> Result<Record, ReadError> {
    #[derive(Deserialize)]
    struct SchemaOnly {
        schema: u64,
    }
    let newer = |found| ReadError::NewerSchema { path: path.to_owned(), line, found };
    match serde_json::from_slice::<Record>(text) {
        Ok(record) if record.schema > SCHEMA => Err(newer(u64::from(record.schema))),
        Ok(record) => Ok(record),
        // A newer record may lack what this one needs: its schema is then the reason to tell.
        Err(error) => Err(match serde_json::from_slice::<SchemaOnly>(text) {
            Ok(only) if only.schema > u64::from(SCHEMA) => newer(only.schema),
            _ => ReadError::Bad { path: path.to_owned(), line, why: without_place(&error) },
        }),
    }
}

/// serde_json's message without its "at line 1 column n": the line is ours, the column is kept.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((what, _)) => format!("{what} (column {})", error.column()),
        None => text,
    }
}

/// Reads a JSON file beside the records, e.g. [`ENVIRONMENT`]; `Ok(None)` where there is none.
///
/// # Errors
/// It is there but cannot be read or understood.
pub fn read_beside<T: serde::de::DeserializeOwned>(
    records: &Path,
    name: &str,
) -> Result<Option<T>, ReadError> {
    let dir = if records.is_dir() { records } else { records.parent().unwrap_or(Path::new("")) };
    let path = dir.join(name);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(ReadError::Io { path, cause, hint: String::new() }),
    };
    match serde_json::from_slice(&bytes) {
        Ok(value) => Ok(Some(value)),
        Err(e) => Err(ReadError::Bad { line: e.line(), why: e.to_string(), path }),
    }
}

#[cfg(test)]
#[path = "records_io_tests.rs"]
mod tests;
