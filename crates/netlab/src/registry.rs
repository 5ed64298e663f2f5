//! What is up on this machine, across processes: one JSON file per network or guest, and who holds it.
//!
//! Whoever makes something writes its file first and removes it last, so that whatever a killed owner leaves can be
//! found. An owner is a pid with its start, which no later process can have.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crossway_sys::proc::started_ticks;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::NetError;

/// Below here lie the files. A `tmpfs` on every Linux: nothing survives a reboot, as no namespace does.
pub(crate) const RUN_DIR: &str = "/run/crossway";

/// A process, named for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its start in clock ticks after boot.
    pub started_ticks: u64,
}

impl Process {
    /// The calling one.
    pub fn own() -> Process {
        let pid = std::process::id();
        Process { pid, started_ticks: started_ticks(pid).unwrap_or(0) }
    }

    /// One that was just started; `None` if it is gone already.
    pub fn of(pid: u32) -> Option<Process> {
        started_ticks(pid).map(|started_ticks| Process { pid, started_ticks })
    }

    /// Whether it still runs.
    pub fn is_alive(&self) -> bool {
        started_ticks(self.pid) == Some(self.started_ticks)
    }

    /// Kills it, and nobody else.
    pub(crate) fn kill(&self) {
        crossway_sys::proc::kill_exactly(self.pid, self.started_ticks);
    }
}

/// The files of one kind of thing.
pub(crate) struct Registry {
    folder: PathBuf,
}

/// While held, no other process makes or removes anything of this kind.
pub(crate) struct Claim {
    _lock: File,
}

impl Registry {
    pub(crate) fn new(kind: &str) -> Registry {
        Registry { folder: Path::new(RUN_DIR).join(kind) }
    }

    #[cfg(test)]
    pub(crate) fn at(folder: &Path) -> Registry {
        Registry { folder: folder.to_owned() }
    }

    /// Waits for its turn. Claims are held for as long as tables are read and written, not while things are made.
    pub(crate) fn claim(&self) -> Result<Claim, NetError> {
        let failed = |e: std::io::Error| self.state_error(&self.folder, e);
        fs::create_dir_all(&self.folder).map_err(failed)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.folder.join("lock"))
            .map_err(failed)?;
        lock.lock().map_err(failed)?;
        Ok(Claim { _lock: lock })
    }

    /// The folder of the files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }

    /// Writes whole or not at all.
    pub(crate) fn write(&self, name: &str, value: &impl Serialize) -> Result<(), NetError> {
        let (file, new) = (self.file(name), self.folder.join(format!("{name}.new")));
        let text = serde_json::to_string_pretty(value).map_err(|e| self.state_error(&file, e))?;
        fs::write(&new, text + "\n").map_err(|e| self.state_error(&new, e))?;
        fs::rename(&new, &file).map_err(|e| self.state_error(&file, e))
    }

    pub(crate) fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, NetError> {
        let file = self.file(name);
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(self.state_error(&file, e)),
        };
        serde_json::from_str(&text).map(Some).map_err(|e| NetError::State {
            path: file,
            why: format!("{e}; it is of another version of crossway: remove it by hand"),
        })
    }

    pub(crate) fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.file(name));
        let _ = fs::remove_file(self.folder.join(format!("{name}.new")));
    }

    /// All names, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter_map(|file| file.strip_suffix(".json").map(str::to_owned))
            .collect();
        names.sort();
        names
    }

    fn state_error(&self, path: &Path, why: impl std::fmt::Display) -> NetError {
        NetError::State { path: path.to_owned(), why: why.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_named_for_good() {
        let own = Process::own();
        assert!(own.is_alive());
        assert!(!Process { started_ticks: own.started_ticks + 1, ..own }.is_alive());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        Process { started_ticks: process.started_ticks + 1, ..process }.kill();
        assert!(process.is_alive(), "a wrong start must protect the process");
        process.kill();
        assert!(!process.is_alive());
        child.wait().unwrap();
    }

    #[test]
    fn files_are_found_by_name_and_a_foreign_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let registry = Registry::at(folder.path());
        let claim = registry.claim().unwrap();
        registry.write("b", &1).unwrap();
        registry.write("a", &2).unwrap();
        drop(claim);
        assert_eq!(registry.names(), ["a", "b"]);
        assert_eq!(registry.read::<u32>("a").unwrap(), Some(2));
        assert_eq!(registry.read::<u32>("c").unwrap(), None);
        fs::write(registry.file("b"), "{").unwrap();
        let error = registry.read::<u32>("b").unwrap_err().to_string();
        assert!(error.contains("b.json") && error.contains("another version"), "{error}");
        registry.remove("a");
        assert_eq!(registry.names(), ["b"]);
    }
}
