//! Reads `results.jsonl` and the other files of a run.
//!
//! A run that was killed can leave an incomplete last line, which is skipped with a warning. Other lines that are not
//! records are also skipped, with warnings and the one command that removes all of them; so are records with impossible
//! figures. A trial that occurs in the file a second time is skipped, because counting it twice would make intervals
//! too narrow. A record newer than this program is an error, and so is a file that has complete lines but no record.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::record::{Record, SCHEMA, Status};
use crate::run_info::{RUN, RunInfo};
use crate::shell;

/// File name of the records in a run's folder.
pub const RESULTS: &str = "results.jsonl";
/// File name of the fingerprints of the environment.
pub const ENVIRONMENT: &str = "env.json";
/// File name of the conditions that could distort the figures, found before the run started and each time the run was
/// continued.
pub const PREFLIGHT: &str = "preflight.json";
/// File name of the machine's limits.
pub const LIMITS: &str = "limits.json";

/// Limit of a line, in bytes: far more than the longest record has.
const LONGEST_LINE: u64 = 16 << 20;

/// Why records could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file does not exist or cannot be read.
    #[error("cannot read {path}: {cause}{hint}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause. It is part of the message and not a `source`, because a printed error chain would repeat the
        /// cause.
        cause: io::Error,
        /// What to do, if that is known; begins with a separator.
        hint: String,
    },
    /// A line is not a record.
    #[error("{path}:{line}: cannot read this line: {why}")]
    Bad {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// What is wrong with the line.
        why: String,
    },
    /// There is no record.
    #[error("{path} contains no records{why}")]
    Empty {
        /// The file.
        path: PathBuf,
        /// Why, or what to do; begins with a separator.
        why: String,
    },
    /// The record was written by a newer version of Crossway.
    #[error(
        "{path}:{line}: record schema {found} is newer than this program's ({SCHEMA}); update crossway to read it"
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The record's schema.
        found: u64,
    },
}

/// Records read from a file, and warnings about them.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The file from which the records were read.
    pub path: PathBuf,
    /// The records, in the order in which they were written.
    pub records: Vec<Record>,
    /// Warnings, e.g. that the last line is incomplete.
    pub warnings: Vec<String>,
}

/// Resolves `path` to a file of records: the path itself, or `results.jsonl` in it if it is a folder.
pub fn results_file(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(RESULTS) } else { path.to_owned() }
}

/// Reads the records of a run's folder or of a single file.
///
/// # Errors
/// The file does not exist, cannot be read, has no record, or is newer than this program.
pub fn read_records(path: &Path) -> Result<Loaded, ReadError> {
    let loaded = records_so_far(path)?;
    if !loaded.records.is_empty() {
        return Ok(loaded);
    }
    let why = match &loaded.warnings[..] {
        [] => {
            "; name a run that measured something, or start one, such as `crossway measure quick`"
                .to_owned()
        }
        warnings => format!(": {}", warnings.join("; ")),
    };
    Err(ReadError::Empty { path: loaded.path, why })
}

/// The same of a run that may not have any record yet.
///
/// # Errors
/// The file does not exist, cannot be read, or is newer than this program.
pub fn records_so_far(path: &Path) -> Result<Loaded, ReadError> {
    let file = results_file(path);
    let bytes = read_lines(&file).map_err(|cause| {
        let hint = match cause.kind() {
            io::ErrorKind::NotFound if path.is_dir() => {
                "; this folder is not a run; name a folder that `crossway measure` wrote"
            }
            io::ErrorKind::NotFound => "; `crossway measure` prints the folder of the run",
            _ => "",
        };
        let hint = hint.to_owned();
        ReadError::Io { path: file.clone(), cause, hint }
    })?;
    let mut loaded = parse_records(&file, &bytes)?;
    // Ignore a run.json that cannot be read: the records do not depend on it.
    if let Ok(Some(info)) = read_beside::<RunInfo>(path, RUN) {
        let (missing, all) = info.missing_trials(&loaded.records);
        if missing > 0 {
            let dir = file.parent().unwrap_or(Path::new("."));
            let what = match is_being_measured(&file) {
                true => "it is still being measured".to_owned(),
                false => format!("continue with: crossway measure --resume {}", shell::word(dir)),
            };
            loaded
                .warnings
                .push(format!("the run is incomplete ({missing} of {all} trials missing); {what}"));
        }
    }
    Ok(loaded)
}

/// Reads a file of records. A device such as `/dev/zero` has no end, so a line of more than [`LONGEST_LINE`] is an error.
fn read_lines(file: &Path) -> io::Result<Vec<u8>> {
    let mut file = io::BufReader::new(fs::File::open(file)?);
    let mut bytes = Vec::new();
    loop {
        match file.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes)? {
            0 => return Ok(bytes),
            read if read as u64 == LONGEST_LINE && bytes.last() != Some(&b'\n') => {
                let why = "a line is longer than 16 MiB, so these are no records";
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
            }
            _ => {}
        }
    }
}

/// Whether a process is adding records to this file: for as long as it does so, it holds a lock on the file.
pub fn is_being_measured(file: &Path) -> bool {
    let Ok(file) = fs::File::open(file) else { return false };
    matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock))
}

/// Maximum number of skipped lines per reason that are reported individually. Of the others, only the number is
/// reported.
const NAMED_AT_MOST: usize = 5;

/// Parses the text of a `results.jsonl`; `path` is used in messages only.
///
/// # Errors
/// A record's schema is newer than this program's, or there are complete lines and none of them is a record.
pub fn parse_records(path: &Path, bytes: &[u8]) -> Result<Loaded, ReadError> {
    let lines: Vec<(usize, &[u8])> = bytes
        .split(|b| *b == b'\n')
        .enumerate()
        .map(|(at, line)| (at + 1, line.trim_ascii()))
        .filter(|(_, line)| !line.is_empty())
        .collect();
    let mut loaded = Loaded { path: path.to_owned(), ..Loaded::default() };
    let torn_at = (bytes.last() != Some(&b'\n')).then(|| lines.last().map(|(n, _)| *n)).flatten();
    let mut left_out = LeftOut { path, bad: Vec::new(), repeated: Vec::new() };
    let mut first_bad = None;
    let mut seen: HashMap<Identity, usize> = HashMap::new();
    loaded.records.reserve_exact(lines.len());
    for (line, parsed) in parse_lines(path, &lines).into_iter().flatten() {
        match parsed {
            Ok(record) => {
                if let Some(first) = seen.insert(identity(&record), line) {
                    seen.insert(identity(&record), first);
                    left_out.repeated.push((line, first));
                } else {
                    loaded.records.push(record);
                }
            }
            Err(ReadError::Bad { .. }) if Some(line) == torn_at => {
                loaded.warnings.push(format!(
                    "{}:{line}: skipped the last line, which is incomplete: the run was interrupted while writing it",
                    path.display()
                ));
            }
            Err(ReadError::Bad { path, line, why }) => {
                left_out.bad.push((line, why.clone()));
                let why = format!(
                    "{why}; the file contains no records; name the folder of a run, or the results.jsonl in it"
                );
                first_bad.get_or_insert(ReadError::Bad { path, line, why });
            }
            Err(error) => return Err(error),
        }
    }
    if let Some(error) = first_bad.filter(|_| loaded.records.is_empty()) {
        return Err(error);
    }
    loaded.warnings.extend(left_out.warnings());
    Ok(loaded)
}

/// Reads the record in one line of a file of records; lines count from 1.
///
/// # Errors
/// The file cannot be read, there is no such line, or it is not a record that this program can read.
pub fn read_line(path: &Path, line: usize) -> Result<Record, ReadError> {
    let file = results_file(path);
    let bytes = read_lines(&file).map_err(|cause| ReadError::Io {
        path: file.clone(),
        cause,
        hint: String::new(),
    })?;
    if bytes.trim_ascii_end().is_empty() {
        return Err(ReadError::Empty { path: file, why: "; name another run".to_owned() });
    }
    let lines: Vec<&[u8]> = bytes.trim_ascii_end().split(|b| *b == b'\n').collect();
    match line.checked_sub(1).and_then(|at| lines.get(at)) {
        Some(text) => parse_line(&file, line, text.trim_ascii()),
        None => {
            let why = format!("there is no line {line}; the file ends at line {}", lines.len());
            Err(ReadError::Bad { path: file, line, why })
        }
    }
}

/// What identifies a trial: run, group, case, and the number of the trial.
pub type Identity = (String, String, String, u32);

/// What identifies the trial of a record within all runs.
pub fn identity(record: &Record) -> Identity {
    (record.run.clone(), record.group.clone(), record.case.clone(), record.inputs.trial)
}

/// The lines of a file that were skipped.
struct LeftOut<'a> {
    path: &'a Path,
    /// Line numbers of lines that are not records, each with the reason.
    bad: Vec<(usize, String)>,
    /// Line numbers of repeated trials, each with the line number of the first record of the trial.
    repeated: Vec<(usize, usize)>,
}

impl LeftOut<'_> {
    fn warnings(&self) -> Vec<String> {
        let path = self.path.display();
        let mut warnings = Vec::new();
        for (line, why) in self.bad.iter().take(NAMED_AT_MOST) {
            let remedy = match self.bad.len() {
                1 => format!("; remove it with: {}", self.removal()),
                _ => String::new(),
            };
            warnings
                .push(format!("{path}:{line}: skipped a line that is not a record: {why}{remedy}"));
        }
        for (line, first) in self.repeated.iter().take(NAMED_AT_MOST) {
            warnings.push(format!(
                "{path}:{line}: skipped, because line {first} is a record of the same trial"
            ));
        }
        for (n, what) in
            [(self.bad.len(), "are not records"), (self.repeated.len(), "repeat a trial")]
        {
            if let Some(more) = n.checked_sub(NAMED_AT_MOST).filter(|more| *more > 0) {
                warnings.push(format!("{path}: further lines skipped because they {what}: {more}"));
            }
        }
        if self.bad.len() > 1 {
            let n = self.bad.len();
            warnings.push(format!(
                "{path}: to remove all {n} lines that are not records, run: {}",
                self.removal()
            ));
        }
        warnings
    }

    /// The command that removes all lines that are not records. It is one command, because each removal changes the
    /// numbers of the lines below.
    fn removal(&self) -> String {
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for &(line, _) in &self.bad {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == line => *last = line,
                _ => ranges.push((line, line)),
            }
        }
        let one = |(first, last): &(usize, usize)| match last - first {
            0 => format!("{first}d"),
            _ => format!("{first},{last}d"),
        };
        let commands: Vec<String> = ranges.iter().map(one).collect();
        format!("sed -i '{}' '{}'", commands.join(";"), self.path.display())
    }
}

type Parsed = Vec<(usize, Result<Record, ReadError>)>;

/// Parses many lines with several threads, because a reference run has 100,000 records or more.
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
        Ok(record) if record.counts.is_none() && record.status == Status::Ok => {
            let why = "a trial with status ok has counts, but this one has none".to_owned();
            Err(ReadError::Bad { path: path.to_owned(), line, why })
        }
        Ok(record) => Ok(record),
        // A newer record may lack a field that this program requires: then report its schema, not the missing field.
        Err(error) => Err(match serde_json::from_slice::<SchemaOnly>(text) {
            Ok(only) if only.schema > u64::from(SCHEMA) => newer(only.schema),
            _ => ReadError::Bad { path: path.to_owned(), line, why: without_place(&error) },
        }),
    }
}

/// serde_json's message with the column but without its line number, because Crossway's messages state the line number
/// in the file.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((what, _)) => format!("{what} (column {})", error.column()),
        None => text,
    }
}

/// Reads another JSON file of the run, e.g. [`ENVIRONMENT`]; `Ok(None)` if it does not exist.
///
/// # Errors
/// The file exists but cannot be read or parsed.
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
