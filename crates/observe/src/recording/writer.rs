//! Writes a recording while it is made.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossway_sys::whole_file;
use parquet::basic::{Compression, Encoding, GzipLevel};
use parquet::data_type::{Int32Type, Int64Type};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::{Direction, Event, HEAD, Head, Lost, RecordingError, Totals, events_file};

/// Maximum number of events in a file: limits memory, and what is lost if the recorder is killed.
pub const EVENTS_PER_FILE: usize = 64 * 1024;
/// Maximum age of an event that is not in a complete file yet.
const AGE: Duration = Duration::from_secs(1);

/// The columns of a file of events.
pub(super) const SCHEMA: &str = "message event {
    REQUIRED INT64 at_ns;
    REQUIRED INT32 thread;
    REQUIRED INT32 operation;
    OPTIONAL INT32 channel;
    REQUIRED INT32 direction;
    REQUIRED INT64 size_bytes;
    REQUIRED INT64 call_ns;
    OPTIONAL INT64 queued_bytes;
    OPTIONAL INT32 cpu;
    OPTIONAL INT64 off_cpu_ns;
    OPTIONAL INT32 after;
}";

/// A recording that is being written.
#[derive(Debug)]
pub struct Recorder {
    folder: PathBuf,
    head: Head,
    anonymous: bool,
    pending: Vec<Event>,
    files: usize,
    written: Instant,
    events: u64,
    first_ns: Option<i64>,
    last_ns: i64,
}

impl Recorder {
    /// Creates the folder of a recording. With `anonymous`, nothing that identifies a program is ever written.
    ///
    /// # Errors
    /// The folder exists, or cannot be created.
    pub fn create(folder: &Path, head: Head, anonymous: bool) -> Result<Recorder, RecordingError> {
        fs::create_dir(folder).map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => RecordingError::Exists(folder.to_owned()),
            _ => RecordingError::write(folder, e, false),
        })?;
        let recorder = Recorder {
            folder: folder.to_owned(),
            head,
            anonymous,
            pending: Vec::with_capacity(EVENTS_PER_FILE),
            files: 0,
            written: Instant::now(),
            events: 0,
            first_ns: None,
            last_ns: 0,
        };
        recorder.write_head()?;
        Ok(recorder)
    }

    /// The head, to which processes, threads and channels are added as they appear, before events refer to them.
    pub fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    /// Number of events so far; also the index of the next one.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Adds an event.
    ///
    /// # Errors
    /// A file is due and cannot be written.
    pub fn add(&mut self, event: Event) -> Result<(), RecordingError> {
        self.first_ns.get_or_insert(event.at_ns);
        let end = event.at_ns.saturating_add_unsigned(event.call_ns);
        self.last_ns = self.last_ns.max(end);
        self.pending.push(event);
        self.events += 1;
        if self.pending.len() >= EVENTS_PER_FILE { self.flush() } else { Ok(()) }
    }

    /// Writes events that have waited for a second. To be called regularly while events are rare.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush_if_due(&mut self) -> Result<(), RecordingError> {
        if self.written.elapsed() >= AGE && !self.pending.is_empty() {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Writes all pending events into a file of their own.
    fn flush(&mut self) -> Result<(), RecordingError> {
        self.written = Instant::now();
        if self.pending.is_empty() {
            return Ok(());
        }
        // First the head, so that a file never refers to a channel that the head lacks.
        self.write_head()?;
        let encoded = encode(&self.pending)?;
        self.write_whole(&events_file(self.files + 1), &encoded)?;
        self.files += 1;
        self.pending.clear();
        Ok(())
    }

    /// Writes what is left, and the totals.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn finish(mut self, lost: Lost) -> Result<Totals, RecordingError> {
        self.flush()?;
        let span = self.first_ns.map_or(0, |first| self.last_ns.saturating_sub(first));
        let totals = Totals { events: self.events, span_ns: span.max(0).unsigned_abs(), lost };
        self.head.totals = Some(totals.clone());
        self.write_head()?;
        Ok(totals)
    }

    fn write_head(&self) -> Result<(), RecordingError> {
        let mut head = self.head.clone();
        if self.anonymous {
            head.anonymise();
        }
        let text = toml::to_string(&head).map_err(|e| RecordingError::Head {
            path: self.folder.join(HEAD),
            why: e.to_string(),
        })?;
        self.write_whole(HEAD, text.as_bytes())
    }

    /// Writes a file so that it has its name only when it is complete.
    fn write_whole(&self, name: &str, bytes: &[u8]) -> Result<(), RecordingError> {
        let path = self.folder.join(name);
        let written = whole_file::write(&path, |file| file.write_all(bytes));
        written.map_err(|e| RecordingError::write(&path, e, self.files > 0))
    }
}

/// Encodes events as a Parquet file.
fn encode(events: &[Event]) -> Result<Vec<u8>, RecordingError> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::GZIP(GzipLevel::try_new(4)?))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_created_by(format!("crossway {}", env!("CARGO_PKG_VERSION")));
    // Times rise steadily: their differences are small. Other columns have few different values.
    for column in ["at_ns", "call_ns"] {
        properties = properties
            .set_column_dictionary_enabled(ColumnPath::from(column), false)
            .set_column_encoding(ColumnPath::from(column), Encoding::DELTA_BINARY_PACKED);
    }
    let mut out = Vec::with_capacity(events.len() * 8);
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let mut writer = SerializedFileWriter::new(&mut out, schema, Arc::new(properties.build()))?;
    let mut group = writer.next_row_group()?;
    wide(&mut group, events, |e| Some(e.at_ns))?;
    narrow(&mut group, events, |e| Some(e.thread as i32))?;
    narrow(&mut group, events, |e| Some(e.operation.code()))?;
    optional_narrow(&mut group, events, |e| e.channel.map(|c| c as i32))?;
    narrow(&mut group, events, |e| Some(i32::from(e.direction == Direction::Backward)))?;
    wide(&mut group, events, |e| Some(e.size_bytes as i64))?;
    wide(&mut group, events, |e| Some(e.call_ns as i64))?;
    optional_wide(&mut group, events, |e| e.queued_bytes.map(|q| q as i64))?;
    optional_narrow(&mut group, events, |e| e.cpu.map(|c| c as i32))?;
    optional_wide(&mut group, events, |e| e.off_cpu_ns.map(|ns| ns as i64))?;
    optional_narrow(&mut group, events, |e| e.after.map(|a| a as i32))?;
    group.close()?;
    writer.close()?;
    Ok(out)
}

macro_rules! columns {
    ($required:ident, $optional:ident, $type:ty, $value:ty) => {
        fn $required<W: Write + Send>(
            group: &mut SerializedRowGroupWriter<'_, W>,
            events: &[Event],
            of: impl Fn(&Event) -> Option<$value>,
        ) -> Result<(), RecordingError> {
            let values: Vec<$value> = events.iter().filter_map(of).collect();
            if let Some(mut column) = group.next_column()? {
                column.typed::<$type>().write_batch(&values, None, None)?;
                column.close()?;
            }
            Ok(())
        }

        fn $optional<W: Write + Send>(
            group: &mut SerializedRowGroupWriter<'_, W>,
            events: &[Event],
            of: impl Fn(&Event) -> Option<$value>,
        ) -> Result<(), RecordingError> {
            let values: Vec<$value> = events.iter().filter_map(&of).collect();
            // A definition level of 1 marks a value, 0 a null.
            let levels: Vec<i16> = events.iter().map(|e| i16::from(of(e).is_some())).collect();
            if let Some(mut column) = group.next_column()? {
                column.typed::<$type>().write_batch(&values, Some(&levels), None)?;
                column.close()?;
            }
            Ok(())
        }
    };
}

columns!(narrow, optional_narrow, Int32Type, i32);
columns!(wide, optional_wide, Int64Type, i64);
