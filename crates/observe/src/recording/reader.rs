//! Reads a recording, also one whose recorder was killed.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};

use super::{Direction, Event, HEAD, Head, Operation, RecordingError, VERSION, events_file};

/// A recording in memory.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Its head.
    pub head: Head,
    /// Its events.
    pub events: Vec<Event>,
    /// What is wrong with it, e.g. that it was cut short. The events before it are good.
    pub defects: Vec<String>,
}

impl Recording {
    /// Reads the recording in `folder`.
    ///
    /// # Errors
    /// There is no recording, its head is damaged, or it was written by a newer version.
    pub fn read(folder: &Path) -> Result<Recording, RecordingError> {
        let path = folder.join(HEAD);
        let text = fs::read_to_string(&path)
            .map_err(|source| RecordingError::Read { path: path.clone(), source })?;
        // The version first: a newer head may have other fields.
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
            RecordingError::Head { path: path.clone(), why: e.message().to_owned() }
        })?;
        let version = table.get("version").and_then(toml::Value::as_integer).unwrap_or(0);
        if version > i64::from(VERSION) {
            let version = u32::try_from(version).unwrap_or(u32::MAX);
            return Err(RecordingError::Newer { path, version });
        }
        let head: Head = toml::from_str(&text)
            .map_err(|e| RecordingError::Head { path, why: e.message().to_owned() })?;
        let mut recording = Recording { head, events: Vec::new(), defects: Vec::new() };
        for number in 1.. {
            let name = events_file(number);
            let Ok(file) = File::open(folder.join(&name)) else { break };
            if let Err(why) = recording.take(file) {
                recording
                    .defects
                    .push(format!("{name} is damaged ({why}); what follows it is left out"));
                break;
            }
        }
        let read = recording.events.len() as u64;
        match &recording.head.totals {
            None => recording.defects.push(
                "the recorder did not finish: events of its last second may be missing".to_owned(),
            ),
            Some(totals) if totals.events != read && recording.defects.is_empty() => {
                recording.defects.push(format!(
                    "{} of {} events are missing",
                    totals.events.abs_diff(read),
                    totals.events
                ));
            }
            Some(_) => {}
        }
        Ok(recording)
    }

    fn take(&mut self, file: File) -> Result<(), String> {
        let reader = SerializedFileReader::new(file).map_err(|e| e.to_string())?;
        let before = self.events.len();
        for row in reader.get_row_iter(None).map_err(|e| e.to_string())? {
            let event = row.map_err(|e| e.to_string()).and_then(|row| self.event(&row));
            match event {
                Ok(event) => self.events.push(event),
                Err(why) => {
                    self.events.truncate(before);
                    return Err(why);
                }
            }
        }
        Ok(())
    }

    /// Reads a row and checks what it refers to, so that the rest of the program can rely on it.
    fn event(&self, row: &Row) -> Result<Event, String> {
        let mut event = Event {
            at_ns: 0,
            thread: u32::MAX,
            operation: Operation::Wait,
            channel: None,
            direction: Direction::Forward,
            size_bytes: 0,
            call_ns: 0,
            queued_bytes: None,
            cpu: None,
            after: None,
        };
        for (name, field) in row.get_column_iter() {
            let number = match field {
                Field::Int(value) => i64::from(*value),
                Field::Long(value) => *value,
                Field::Null => continue,
                _ => return Err(format!("column {name} is not a number")),
            };
            let unsigned = || u64::try_from(number).map_err(|_| format!("{name} is {number}"));
            let index = || u32::try_from(number).map_err(|_| format!("{name} is {number}"));
            match name.as_str() {
                "at_ns" => event.at_ns = number,
                "thread" => event.thread = index()?,
                "operation" => {
                    event.operation = i32::try_from(number)
                        .ok()
                        .and_then(Operation::of_code)
                        .ok_or_else(|| format!("operation {number} is unknown"))?;
                }
                "channel" => event.channel = Some(index()?),
                "direction" if number == 1 => event.direction = Direction::Backward,
                "size_bytes" => event.size_bytes = unsigned()?,
                "call_ns" => event.call_ns = unsigned()?,
                "queued_bytes" => event.queued_bytes = Some(unsigned()?),
                "cpu" => event.cpu = Some(index()?),
                "after" => event.after = Some(index()?),
                _ => {}
            }
        }
        let known = (event.thread as usize) < self.head.threads.len()
            && event.channel.is_none_or(|c| (c as usize) < self.head.channels.len())
            && event.after.is_none_or(|back| back as usize <= self.events.len());
        if known { Ok(event) } else { Err("an event refers to what does not exist".to_owned()) }
    }

    /// The name and number of a process of the recording.
    pub fn process(&self, index: u32) -> String {
        match self.head.processes.get(index as usize) {
            Some(process) if self.head.anonymous => process.name.clone(),
            Some(process) => format!("{} ({})", process.name, process.pid),
            None => format!("process {index}"),
        }
    }
}

/// Writes the events as CSV, one row per event, with the columns of docs/OBSERVE.md.
///
/// # Errors
/// Writing fails.
pub fn write_csv(recording: &Recording, out: impl Write) -> Result<(), RecordingError> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record([
        "at_ns",
        "thread",
        "process",
        "operation",
        "channel",
        "direction",
        "size_bytes",
        "call_ns",
        "queued_bytes",
        "cpu",
        "after",
    ])?;
    let some = |value: Option<u64>| value.map_or(String::new(), |v| v.to_string());
    for event in &recording.events {
        let process = recording.head.threads.get(event.thread as usize).copied();
        writer.write_record([
            event.at_ns.to_string(),
            event.thread.to_string(),
            some(process.map(u64::from)),
            event.operation.name().to_owned(),
            some(event.channel.map(u64::from)),
            event.channel.map_or("", |_| event.direction.name()).to_owned(),
            event.size_bytes.to_string(),
            event.call_ns.to_string(),
            some(event.queued_bytes),
            some(event.cpu.map(u64::from)),
            some(event.after.map(u64::from)),
        ])?;
    }
    writer.flush().map_err(csv::Error::from)?;
    Ok(())
}
