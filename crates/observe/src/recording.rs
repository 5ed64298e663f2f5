//! Recordings: what processes exchanged, call by call, without contents.
//!
//! A recording is a folder: `head.toml` says who talks to whom, how it was recorded and what was lost;
//! `events-000001.parquet` and so on have one row per call. The head is replaced before each file of events that needs
//! it, and each file appears under its name only when it is complete. So a recording whose recorder was killed lacks at
//! most the events of the last second, and says that it was cut short. docs/OBSERVE.md describes the format.

mod event;
mod head;
mod histogram;
mod origin;
mod reader;
mod remarks;
mod summary;
mod writer;

use std::path::{Path, PathBuf};

pub use event::{Direction, Event, Operation};
pub use head::{Head, Lost, Method, RecordedChannel, RecordedProcess, ThreadCpu, Totals};
pub use histogram::{Histograms, Magnitudes};
pub use origin::{Kinship, Namespaces, Origin};
pub use reader::{Recording, write_csv};
pub use summary::{DirectionSummary, Spread, Summary, ThreadShare};
pub use writer::{EVENTS_PER_FILE, Recorder};

/// The version of the format. A reader refuses newer ones; older ones stay readable.
pub const VERSION: u32 = 3;

/// The name of the head in a recording's folder.
const HEAD: &str = "head.toml";

/// The name of the file of events with this number, beginning with 1.
fn events_file(number: usize) -> String {
    format!("events-{number:06}.parquet")
}

/// Why a recording cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The folder exists already.
    #[error("{0} exists already; name another one, or remove it")]
    Exists(PathBuf),
    /// A file cannot be written.
    #[error("cannot write {path}: {source}; {remedy}{}", what_remains(*has_events))]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
        /// What to do.
        remedy: &'static str,
        /// Whether events were written before.
        has_events: bool,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {source}; name the folder of a recording")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The head is not one.
    #[error("{path} is not the head of a recording: {why}")]
    Head {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// It was written by a newer version.
    #[error(
        "{path} has version {version} of the format, and this program reads up to {VERSION}; use a newer crossway"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// Encoding failed.
    #[error("cannot encode events: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    /// Writing CSV failed.
    #[error("cannot write CSV: {0}")]
    Csv(#[from] csv::Error),
}

fn what_remains(has_events: bool) -> &'static str {
    if has_events { "; the events before it are readable" } else { "" }
}

impl RecordingError {
    fn write(path: &Path, source: std::io::Error, has_events: bool) -> Self {
        let remedy = match source.kind() {
            std::io::ErrorKind::StorageFull => "free some space, or record to another disk",
            std::io::ErrorKind::NotFound => "name a folder in a directory that exists",
            std::io::ErrorKind::FileTooLarge => crossway_sys::error::RAISE_FILE_SIZE,
            _ => "name a folder in a directory that you may write to",
        };
        RecordingError::Write { path: path.to_owned(), source, remedy, has_events }
    }
}
