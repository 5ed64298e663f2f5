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
    /// Its events, without those of [`Recording::awake`].
    pub events: Vec<Event>,
    /// What followed them, while the CPUs of the observed threads were kept from sleeping: programs answer and compute
    /// faster then. Empty if that was not done.
    pub awake: Vec<Event>,
    /// What is wrong with it, e.g. that it was cut short. The events before it are good.
    pub defects: Vec<String>,
}

impl Recording {
    /// A recording without events.
    pub fn new(head: Head) -> Recording {
        Recording { head, events: Vec::new(), awake: Vec::new(), defects: Vec::new() }
    }

    /// What was recorded while CPUs were kept from sleeping, as a recording of its own; `None` if nothing was.
    pub fn awake_part(&self) -> Option<Recording> {
        if self.awake.is_empty() {
            return None;
        }
        let head = Head { awake_from_ns: None, ..self.head.clone() };
        Some(Recording { events: self.awake.clone(), ..Recording::new(head) })
    }

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
        let mut recording = Recording::new(head);
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
        recording.divide();
        Ok(recording)
    }

    /// Moves what was recorded while CPUs were kept awake. Events are in the order of their returns, so what a thread had
    /// begun before may be among it.
    fn divide(&mut self) {
        let Some(from_ns) = self.head.awake_from_ns else { return };
        let first = self.events.iter().position(|event| event.at_ns >= from_ns);
        self.awake = self.events.split_off(first.unwrap_or(self.events.len()));
        for (row, event) in self.awake.iter_mut().enumerate() {
            // What it waited for may be in the other part.
            event.after = event.after.filter(|back| *back as usize <= row);
        }
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
            off_cpu_ns: None,
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
                "off_cpu_ns" => event.off_cpu_ns = Some(unsigned()?),
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
        "off_cpu_ns",
        "after",
        "awake",
    ])?;
    let some = |value: Option<u64>| value.map_or(String::new(), |v| v.to_string());
    let events = recording.events.iter().map(|event| (event, false));
    for (event, awake) in events.chain(recording.awake.iter().map(|event| (event, true))) {
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
            some(event.off_cpu_ns),
            some(event.after.map(u64::from)),
            u8::from(awake).to_string(),
        ])?;
    }
    writer.flush().map_err(csv::Error::from)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::data_type::{Int32Type, Int64Type};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    /// The columns of version 1, and an event.
    const FIRST: [(&str, i64); 10] = [
        ("REQUIRED INT64 at_ns", 5),
        ("REQUIRED INT32 thread", 0),
        ("REQUIRED INT32 operation", 1),
        ("OPTIONAL INT32 channel", 0),
        ("REQUIRED INT32 direction", 1),
        ("REQUIRED INT64 size_bytes", 64),
        ("REQUIRED INT64 call_ns", 70),
        ("OPTIONAL INT64 queued_bytes", 0),
        ("OPTIONAL INT32 cpu", 3),
        ("OPTIONAL INT32 after", 0),
    ];

    #[test]
    fn a_recording_of_the_first_version_is_read_and_does_not_know_cpu_times() {
        let dir = tempfile::tempdir().unwrap();
        let head = "version = 1\nwritten_by = 'test'\nbegan_unix_ms = 1\nanonymous = false\nthreads = [0]\n\
                    [method]\nname = 'ebpf'\ncost_note = ''\nblind_to = ''\n\
                    [totals]\nevents = 1\nspan_ns = 70\n[totals.lost]\noverrun = 0\nnot_a_channel = 0\n\
                    not_understood = 0\nclock_backwards = 0\n[[processes]]\npid = 1\nname = 'a'\n\
                    [[channels]]\ncarrier = 'pipe'\nname = ''\nfrom = []\nto = [0]\n";
        std::fs::write(dir.path().join(HEAD), head).unwrap();
        let columns = FIRST.map(|(column, _)| format!("{column};")).concat();
        let schema = parse_message_type(&format!("message event {{ {columns} }}")).unwrap();
        let file = File::create(dir.path().join(events_file(1))).unwrap();
        let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        for (column, value) in FIRST {
            let mut out = group.next_column().unwrap().unwrap();
            let levels = column.starts_with("OPTIONAL").then_some(&[1_i16][..]);
            if column.contains("INT64") {
                out.typed::<Int64Type>().write_batch(&[value], levels, None).unwrap();
            } else {
                out.typed::<Int32Type>().write_batch(&[value as i32], levels, None).unwrap();
            }
            out.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
        let recording = Recording::read(dir.path()).unwrap();
        assert!(recording.defects.is_empty(), "{:?}", recording.defects);
        let [event] = &recording.events[..] else { panic!("{recording:?}") };
        assert_eq!((event.size_bytes, event.cpu, event.off_cpu_ns), (64, Some(3), None));
        assert_eq!(recording.head.process_cpu_ns(), [None]);
    }

    #[test]
    fn what_was_recorded_awake_is_a_part_of_its_own() {
        let mut recording = crate::tape::exchanges(4, "pipe", None).recording;
        recording.events.iter_mut().for_each(|event| event.after = Some(1));
        // The third exchange begins at 200 us, with a receive that began before.
        recording.head.awake_from_ns = Some(200_000);
        let all = recording.events.clone();
        recording.divide();
        assert_eq!((recording.events.as_slice(), recording.awake.len()), (&all[..9], 7));
        assert_eq!(recording.awake[0].after, None, "it refers to the other part");
        assert_eq!(recording.awake[1].after, Some(1));
        let part = recording.awake_part().unwrap();
        assert_eq!((part.events.as_slice(), part.head.awake_from_ns), (&*recording.awake, None));
        assert!(part.awake_part().is_none());
        let mut csv = Vec::new();
        write_csv(&recording, &mut csv).unwrap();
        let csv = String::from_utf8(csv).unwrap();
        let awake = csv.lines().filter(|line| line.ends_with(",1")).count();
        assert_eq!((csv.lines().count(), awake), (17, 7), "{csv}");
        recording.head.awake_from_ns = None;
        recording.awake.clear();
        recording.divide();
        assert!(recording.awake_part().is_none());
    }
}
