//! The list of networks and guests that are up on this machine, shared by all processes. It consists of one JSON file
//! per network or guest, which identifies the owner.
//!
//! A file is written before the object is created and removed after it, so that the remains of a killed owner can be
//! found. An owner is identified by its process ID and its start time; no later process has the same pair.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crossway_sys::proc::started_ticks;
use crossway_sys::trust;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::NetError;

/// Suffix of a file that is still being written.
const DRAFT: &str = ".new";

/// The directory of the files. It is on a `tmpfs` on every Linux, so the files do not survive a reboot, just like the
/// namespaces.
pub(crate) const RUN_DIR: &str = "/run/crossway";

/// A uniquely identified process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The process id.
    pub pid: u32,
    /// The start time in clock ticks after boot.
    pub started_ticks: u64,
}

impl Process {
    /// The calling process.
    pub fn own() -> Process {
        let pid = std::process::id();
        Process { pid, started_ticks: started_ticks(pid).unwrap_or(0) }
    }

    /// A process that was just started; `None` if it has ended already.
    pub fn of(pid: u32) -> Option<Process> {
        started_ticks(pid).map(|started_ticks| Process { pid, started_ticks })
    }

    /// Whether this process still runs.
    pub fn is_alive(&self) -> bool {
        started_ticks(self.pid) == Some(self.started_ticks)
    }

    /// Sends SIGTERM to this process and to no other.
    pub(crate) fn terminate(&self) {
        crossway_sys::proc::terminate_exactly(self.pid, self.started_ticks);
    }

    /// Waits until this process has ended, at most for `limit`.
    pub(crate) fn await_end(&self, limit: Duration) {
        crossway_sys::proc::await_end(self.pid, self.started_ticks, Some(limit));
    }

    /// Kills this process and no other.
    pub(crate) fn kill(&self) {
        crossway_sys::proc::kill_exactly(self.pid, self.started_ticks);
    }
}

/// The files of one kind of object.
pub(crate) struct Registry {
    folder: PathBuf,
}

/// A lock. While it is held, no other process claims or releases names of this kind.
pub(crate) struct Claim {
    _lock: File,
}

/// A lock. While it is held, by this process or by a tool that it started, the object of this name is being created or
/// removed.
pub(crate) struct Making {
    lock: File,
}

impl Making {
    /// Makes a child hold this lock too, until the child and all its descendants have ended.
    pub(crate) fn share_with(&self, child: &mut Command) {
        crossway_sys::proc::inherit(child, &self.lock);
    }
}

impl Registry {
    pub(crate) fn new(kind: &str) -> Registry {
        Registry { folder: Path::new(RUN_DIR).join(kind) }
    }

    #[cfg(test)]
    pub(crate) fn at(folder: &Path) -> Registry {
        Registry { folder: folder.to_owned() }
    }

    /// Waits for the claim. Claims are held while the files are read and written, not while objects are created.
    pub(crate) fn claim(&self) -> Result<Claim, NetError> {
        Ok(Claim { _lock: self.lock("lock")? })
    }

    /// Waits until no other process, and no tool of a killed process, creates or removes the object of this name.
    pub(crate) fn making(&self, name: &str) -> Result<Making, NetError> {
        Ok(Making { lock: self.lock(&format!("{name}.lock"))? })
    }

    fn lock(&self, file: &str) -> Result<File, NetError> {
        let path = self.folder.join(file);
        let failed = |e: std::io::Error| self.state_error(&path, e);
        fs::create_dir_all(&self.folder).map_err(failed)?;
        trust::check(&self.folder).map_err(|e| failed(std::io::Error::other(e)))?;
        let mut options = OpenOptions::new();
        let lock = options.create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        lock.lock().map_err(failed)?;
        Ok(lock)
    }

    /// The directory of the files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }

    /// Writes the file completely or not at all. The name of the draft identifies the process that writes it, see
    /// [`Registry::remove_drafts`].
    pub(crate) fn write(&self, name: &str, value: &impl Serialize) -> Result<(), NetError> {
        let Process { pid, started_ticks } = Process::own();
        let draft = format!("{name}.{pid}-{started_ticks}{DRAFT}");
        let (file, new) = (self.file(name), self.folder.join(draft));
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
        serde_json::from_slice(text.as_bytes()).map(Some).map_err(|e| NetError::State {
            path: file,
            why: format!("{e}; it was probably written by another version of crossway: delete it"),
        })
    }

    /// As [`Registry::read`], for reading all files: a file written by another version of crossway is ignored and does
    /// not block the others.
    pub(crate) fn read_if_known<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        self.read(name).unwrap_or_else(|error| {
            tracing::warn!("{error}");
            None
        })
    }

    pub(crate) fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.file(name));
        let _ = fs::remove_file(self.folder.join(format!("{name}.lock")));
    }

    /// Removes the drafts of processes that were killed before they completed the file.
    pub(crate) fn remove_drafts(&self) {
        for file in self.files() {
            let writer = file.strip_suffix(DRAFT).and_then(|file| file.rsplit('.').next());
            let Some((pid, start)) = writer.and_then(|writer| writer.split_once('-')) else {
                continue;
            };
            let (Ok(pid), Ok(started_ticks)) = (pid.parse(), start.parse()) else { continue };
            if !(Process { pid, started_ticks }).is_alive() {
                let _ = fs::remove_file(self.folder.join(file));
            }
        }
    }

    /// All names, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let files = self.files().into_iter();
        files.filter_map(|file| file.strip_suffix(".json").map(str::to_owned)).collect()
    }

    fn files(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let mut files: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        files.sort();
        files
    }

    fn state_error(&self, path: &Path, why: impl std::fmt::Display) -> NetError {
        NetError::State { path: path.to_owned(), why: why.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_identified_uniquely() {
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
        assert_eq!(registry.read_if_known::<u32>("b"), None);
        registry.remove("a");
        assert_eq!(registry.names(), ["b"]);
    }

    #[test]
    fn drafts_of_dead_writers_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let registry = Registry::at(folder.path());
        let Process { pid, started_ticks } = Process::own();
        let draft = |start: u64| folder.path().join(format!("a.{pid}-{start}.new"));
        fs::write(draft(started_ticks), "").unwrap();
        fs::write(draft(started_ticks + 1), "").unwrap();
        registry.remove_drafts();
        assert!(draft(started_ticks).exists() && !draft(started_ticks + 1).exists());
    }

    #[test]
    fn a_tool_that_outlives_its_starter_holds_what_it_makes() {
        let folder = tempfile::tempdir().unwrap();
        let registry = Registry::at(folder.path());
        let making = registry.making("a").unwrap();
        let mut tool = Command::new("cat");
        tool.stdin(std::process::Stdio::piped());
        making.share_with(&mut tool);
        let mut tool = tool.spawn().unwrap();
        drop(making);
        let file = File::open(folder.path().join("a.lock")).unwrap();
        assert!(file.try_lock().is_err(), "the tool still runs");
        drop(tool.stdin.take());
        tool.wait().unwrap();
        file.try_lock().unwrap();
    }
}
