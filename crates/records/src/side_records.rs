//! Records of other kinds than trials, one JSON object per line in a file beside the trials'.

use std::fs;
use std::io;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::records_io::ReadError;

/// A kind of record that has a file of its own in a run's folder.
pub trait SideRecord: DeserializeOwned {
    /// Name of the file.
    const FILE: &'static str;
    /// Current version of the format.
    const SCHEMA: u32;
    /// What one record is, for error messages: "fault record".
    const WHAT: &'static str;
    /// What to do if a file that was named does not exist, for the end of an error message; may be empty.
    const WRITTEN_BY: &'static str = "";

    /// Version of the format of this record.
    fn schema(&self) -> u32;
}

/// Reads the records of a file, or of the file [`SideRecord::FILE`] in a folder.
///
/// # Errors
/// The file cannot be read, a line is not such a record, or its schema is newer than this program's. An incomplete last
/// line, as left by a kill, is skipped without an error.
pub fn read<T: SideRecord>(path: &Path) -> Result<Vec<T>, ReadError> {
    let file = if path.is_dir() { path.join(T::FILE) } else { path.to_owned() };
    let bytes = fs::read(&file).map_err(|cause| {
        let missing = cause.kind() == io::ErrorKind::NotFound;
        let hint = if missing { T::WRITTEN_BY.to_owned() } else { String::new() };
        ReadError::Io { path: file.clone(), cause, hint }
    })?;
    let torn = bytes.last().is_some_and(|last| *last != b'\n');
    let lines = bytes.split(|b| *b == b'\n').enumerate();
    let lines: Vec<_> = lines.filter(|(_, line)| !line.trim_ascii().is_empty()).collect();
    let mut records = Vec::new();
    for (nth, (at, line)) in lines.iter().enumerate() {
        let bad = |why| ReadError::Bad { path: file.clone(), line: at + 1, why };
        match serde_json::from_slice::<T>(line) {
            Ok(record) if record.schema() > T::SCHEMA => {
                return Err(bad(format!(
                    "{} schema {} is newer than this program's ({}); update crossway to read it",
                    T::WHAT,
                    record.schema(),
                    T::SCHEMA
                )));
            }
            Ok(record) => records.push(record),
            Err(_) if torn && nth + 1 == lines.len() => {}
            Err(error) => return Err(bad(format!("not a {}: {error}", T::WHAT))),
        }
    }
    Ok(records)
}

/// Reads the records next to a run's records; empty if there are none.
///
/// # Errors
/// Returns the errors of [`read`], except that a missing file is not an error.
pub fn read_beside<T: SideRecord>(records: &Path) -> Result<Vec<T>, ReadError> {
    let dir = if records.is_dir() { records } else { records.parent().unwrap_or(Path::new("")) };
    let file = dir.join(T::FILE);
    if file.exists() { read(&file) } else { Ok(Vec::new()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Note {
        schema: u32,
        text: String,
    }

    impl SideRecord for Note {
        const FILE: &'static str = "notes.jsonl";
        const SCHEMA: u32 = 2;
        const WHAT: &'static str = "note";
        const WRITTEN_BY: &'static str = "; `note --save` writes it";

        fn schema(&self) -> u32 {
            self.schema
        }
    }

    #[test]
    fn records_are_read_back_torn_ones_are_left_out_and_bad_ones_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let write = |text: &str| fs::write(dir.path().join(Note::FILE), text).unwrap();
        assert!(read_beside::<Note>(dir.path()).unwrap().is_empty());
        let missing = read::<Note>(&dir.path().join("none")).unwrap_err().to_string();
        assert!(missing.contains("`note --save` writes it"), "{missing}");
        let line = r#"{"schema":1,"text":"a"}"#;
        write(&format!("{line}\n{line}\n{}", &line[..9]));
        let note = || Note { schema: 1, text: "a".to_owned() };
        assert_eq!(
            read_beside::<Note>(&dir.path().join("results.jsonl")).unwrap(),
            [note(), note()]
        );
        write(&format!("{line}\n{{}}\n"));
        let bad = read::<Note>(dir.path()).unwrap_err().to_string();
        assert!(bad.contains(":2:") && bad.contains("not a note"), "{bad}");
        write(r#"{"schema":3,"text":"a"}"#);
        assert!(read::<Note>(dir.path()).unwrap_err().to_string().contains("newer"));
    }
}
