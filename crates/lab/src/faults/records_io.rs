//! Reading `faults.jsonl`.

use std::fs;
use std::io;
use std::path::Path;

use super::{FaultRecord, SCHEMA};
use crossway_records::records_io::ReadError;

/// File name of fault records, as saved by `crossway faults` and in a run's folder.
pub const FAULTS: &str = "faults.jsonl";

/// Reads the fault records of a file, or of `faults.jsonl` in a folder.
///
/// # Errors
/// The file cannot be read, a line is not a fault record, or its schema is newer than this program's. An incomplete
/// last line, as left by a kill, is skipped without an error.
pub fn read_faults(path: &Path) -> Result<Vec<FaultRecord>, ReadError> {
    let file = if path.is_dir() { path.join(FAULTS) } else { path.to_owned() };
    let bytes = fs::read(&file).map_err(|cause| {
        let hint = match cause.kind() {
            io::ErrorKind::NotFound => "; `crossway faults --save FILE` writes such a file",
            _ => "",
        };
        ReadError::Io { path: file.clone(), cause, hint: hint.to_owned() }
    })?;
    let torn = bytes.last().is_some_and(|last| *last != b'\n');
    let lines = bytes.split(|b| *b == b'\n').enumerate();
    let lines: Vec<_> = lines.filter(|(_, line)| !line.trim_ascii().is_empty()).collect();
    let mut records = Vec::new();
    for (nth, (at, line)) in lines.iter().enumerate() {
        match serde_json::from_slice::<FaultRecord>(line) {
            Ok(record) if record.schema > SCHEMA => {
                return Err(ReadError::Bad {
                    path: file,
                    line: at + 1,
                    why: format!(
                        "fault record schema {} is newer than this program's ({SCHEMA}); update crossway to read it",
                        record.schema
                    ),
                });
            }
            Ok(record) => records.push(record),
            Err(_) if torn && nth + 1 == lines.len() => {}
            Err(error) => {
                let why = format!("not a fault record: {error}");
                return Err(ReadError::Bad { path: file, line: at + 1, why });
            }
        }
    }
    Ok(records)
}

/// Reads the fault records next to a run's records; empty if there are none.
///
/// # Errors
/// Returns the errors of [`read_faults`], except that a missing file is not an error.
pub fn read_faults_beside(records: &Path) -> Result<Vec<FaultRecord>, ReadError> {
    let dir = if records.is_dir() { records } else { records.parent().unwrap_or(Path::new("")) };
    if !dir.join(FAULTS).exists() {
        return Ok(Vec::new());
    }
    read_faults(dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::{Fault, Outcome, Side, State};
    use crossway_records::record::Status;

    fn record() -> FaultRecord {
        FaultRecord {
            schema: SCHEMA,
            run: "r".to_owned(),
            started_unix_ms: 1,
            environment: "e".to_owned(),
            mechanism: "pipe".to_owned(),
            mechanism_version: None,
            wait: crossway_mech::Wait::Block,
            size_bytes: 64,
            fault: Fault::Kill,
            state: State::Idle,
            affected: Side::Listener,
            survivor: Side::Connector,
            trial: 0,
            status: Status::Ok,
            reason: None,
            remedy: None,
            outcome: Some(Outcome::Detected),
            detected_by: None,
            detected_after_ns: Some(5),
            hung: false,
            watched_ns: 10,
            sent: None,
            received: None,
            received_not_sent: None,
            sent_lost: None,
            left_behind: None,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn records_are_read_back_and_a_torn_last_line_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read_faults_beside(dir.path()).unwrap().is_empty());
        let line = serde_json::to_string(&record()).unwrap();
        let text = format!("{line}\n{line}\n{}", &line[..40]);
        fs::write(dir.path().join(FAULTS), text).unwrap();
        assert_eq!(read_faults(dir.path()).unwrap(), [record(), record()]);
        assert_eq!(read_faults_beside(&dir.path().join("results.jsonl")).unwrap().len(), 2);
    }

    #[test]
    fn a_bad_line_and_a_newer_schema_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f.jsonl");
        let line = serde_json::to_string(&record()).unwrap();
        fs::write(&file, format!("{line}\n{{}}\n")).unwrap();
        assert!(read_faults(&file).unwrap_err().to_string().contains(":2:"));
        let newer = FaultRecord { schema: 9, ..record() };
        fs::write(&file, serde_json::to_string(&newer).unwrap() + "\n").unwrap();
        assert!(read_faults(&file).unwrap_err().to_string().contains("newer"));
        let missing = read_faults(&dir.path().join("none")).unwrap_err().to_string();
        assert!(missing.contains("crossway faults --save"), "{missing}");
    }
}
