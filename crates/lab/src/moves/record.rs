//! The record of one trial with a moving process: a line of `moves.jsonl`, documented in docs/RECORDS.md.

use std::path::Path;

use crossway_channel::check::Checked;
use serde::{Deserialize, Serialize};

use crossway_records::record::Status;
use crossway_records::records_io::ReadError;

/// File name of these records in a run's folder.
pub const MOVES: &str = "moves.jsonl";
/// Current value of [`MoveRecord::schema`].
pub const SCHEMA: u32 = 1;

/// One trial: a move to the other node and one back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveRecord {
    /// Version of this format.
    pub schema: u32,
    /// Name of the set of trials.
    pub run: String,
    /// Start of the trial, milliseconds since 1970 UTC.
    pub started_unix_ms: u64,
    /// Number of the trial, from 0.
    pub trial: u32,
    /// `ok`, `failed` or `skipped`.
    pub status: Status,
    /// The reason if the trial failed or was skipped.
    pub reason: Option<String>,
    /// The step that would make the trial possible; null if there is none.
    pub remedy: Option<String>,
    /// What the client counted; null unless the status is `ok`.
    pub result: Option<Checked>,
}

/// Reads the records of moves next to a run's records; empty if there are none.
///
/// # Errors
/// The file cannot be read, a line is not such a record, or its schema is newer than this program's. An incomplete last
/// line, as left by a kill, is skipped without an error.
pub fn read_moves_beside(records: &Path) -> Result<Vec<MoveRecord>, ReadError> {
    let dir = if records.is_dir() { records } else { records.parent().unwrap_or(Path::new("")) };
    let path = dir.join(MOVES);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(&path).map_err(|cause| ReadError::Io {
        path: path.clone(),
        cause,
        hint: String::new(),
    })?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut all = Vec::new();
    for (at, line) in whole.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let bad = |why: String| ReadError::Bad { path: path.clone(), line: at + 1, why };
        let record: MoveRecord = serde_json::from_str(line)
            .map_err(|error| bad(format!("not a record of a move: {error}")))?;
        if record.schema > SCHEMA {
            return Err(bad(format!(
                "schema {} is newer than this program's ({SCHEMA}); update crossway to read it",
                record.schema
            )));
        }
        all.push(record);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_back_torn_ones_are_left_out_and_bad_ones_are_named() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read_moves_beside(dir.path()).unwrap().is_empty());
        let record = MoveRecord {
            schema: SCHEMA,
            run: "r".to_owned(),
            started_unix_ms: 1,
            trial: 0,
            status: Status::Ok,
            reason: None,
            remedy: None,
            result: Some(Checked { sent: 7, ..Checked::default() }),
        };
        let line = |record: &MoveRecord| serde_json::to_string(record).unwrap();
        let write = |text: String| std::fs::write(dir.path().join(MOVES), text).unwrap();
        write(format!("{0}\n{0}\n{1}", line(&record), &line(&record)[..30]));
        let read = read_moves_beside(&dir.path().join("results.jsonl")).unwrap();
        assert_eq!(read, [record.clone(), record.clone()]);
        write(format!("{}\n{{}}\n", line(&record)));
        assert!(read_moves_beside(dir.path()).unwrap_err().to_string().contains(":2:"));
        write(line(&MoveRecord { schema: SCHEMA + 1, ..record }) + "\n");
        assert!(read_moves_beside(dir.path()).unwrap_err().to_string().contains("newer"));
    }
}
