//! The directory of names: one socket per listener, and no daemon.
//!
//! A name such as `camera/left` is a folder `camera%2Fleft`, which contains one socket for each listener of the name.
//! To resolve a name, a process tries the sockets in the folder; a socket that refuses connections belongs to a
//! listener that has ended, and the process removes that socket. The directory belongs to one user. Programs of several
//! users, or in several containers, can share a directory if they all set CROSSWAY_CHANNEL_DIR to it.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossway_sys::socket::{self, SocketType};
use crossway_sys::{Errno, OsError, proc, random, trust};

use crate::error::Error;

/// Longest name in bytes, chosen so that a socket's path stays within its limit of 107 bytes.
const LONGEST_NAME: usize = 40;
/// Number of connections that may wait for a listener to accept them.
const BACKLOG: i32 = 128;

/// If a socket still has its preliminary name after this time, its listener is considered dead.
const ABANDONED: Duration = Duration::from_secs(60);

static COUNTER: AtomicU64 = AtomicU64::new(0);

/// A directory that contains the sockets of listeners, by name.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
    /// Whether the path was named by the user or the program, who may share it with other users. Otherwise it must
    /// belong to this user.
    is_named: bool,
}

/// A socket bound to a name. Dropping it removes the socket's file.
#[derive(Debug)]
pub(crate) struct Entry {
    path: PathBuf,
    holder: u32,
}

impl Entry {
    /// Returns the path of the socket's file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // After a fork, the child has a copy of its parent's entries, but the files still belong to the parent.
        if self.holder == std::process::id() {
            let _ = fs::remove_file(&self.path);
            // This fails unless it was the last file in the folder.
            let _ = self.path.parent().map(fs::remove_dir);
        }
    }
}

impl Directory {
    /// Returns the directory of this user: `$CROSSWAY_CHANNEL_DIR` if that is not empty, else
    /// `$XDG_RUNTIME_DIR/crossway-channel` if `$XDG_RUNTIME_DIR` is a directory, else
    /// `/tmp/crossway-channel-UID`.
    pub fn of_user() -> Directory {
        let named = std::env::var_os("CROSSWAY_CHANNEL_DIR").filter(|dir| !dir.is_empty());
        if let Some(dir) = named {
            return Directory::at(dir);
        }
        let path = trust::runtime_dir().map_or_else(
            || PathBuf::from(format!("/tmp/crossway-channel-{}", proc::effective_user())),
            |dir| dir.join("crossway-channel"),
        );
        Directory { path, is_named: false }
    }

    /// Uses the directory at this path instead of the user's. It is not checked who else may write to it.
    pub fn at(path: impl Into<PathBuf>) -> Directory {
        Directory { path: path.into(), is_named: true }
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.path.join(name.replace('/', "%2F"))
    }

    /// Creates the directory if it does not exist. Refuses the user's directory if others may write to it.
    fn make(&self) -> Result<(), Error> {
        if !self.is_named {
            return Ok(trust::private_dir(&self.path).map_err(with_remedy)?);
        }
        let failed = |e| OsError::new("mkdir", self.path.display(), e);
        Ok(fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path).map_err(failed)?)
    }

    /// Checks a directory in which a name is looked for, as [`Directory::make`] does. It need not exist.
    fn check(&self) -> Result<(), Error> {
        match trust::check(&self.path) {
            Err(error) if !self.is_named && !error.is_missing() => {
                let why = std::io::Error::other(error);
                Err(with_remedy(OsError::new("use", self.path.display(), why)).into())
            }
            _ => Ok(()),
        }
    }

    /// Creates a listening socket for a name.
    pub(crate) fn listen(&self, name: &str) -> Result<(OwnedFd, Entry), Error> {
        check(name)?;
        self.make()?;
        let folder = self.folder(name);
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        loop {
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
            made.map_err(|e| OsError::new("mkdir", folder.display(), e))?;
            // Unique even if several PID namespaces share the directory.
            let file = format!("{}-{count}-{:x}", std::process::id(), random::unguessable()?);
            let (path, early) = (folder.join(&file), folder.join(format!(".{file}")));
            let fd = socket::unix(SocketType::Seqpacket)?;
            match socket::bind(&fd, &address(&early)?, &early.display().to_string()) {
                // The last listener of the name has just removed the folder.
                Err(error) if error.source.kind() == std::io::ErrorKind::NotFound => continue,
                bound => bound?,
            }
            let holder = std::process::id();
            let early = Entry { path: early, holder };
            socket::listen(&fd, BACKLOG)?;
            socket::set_nonblocking(&fd)?;
            // It gets its final name only now, because a socket that refuses connections is taken for dead.
            fs::rename(&early.path, &path)
                .map_err(|e| OsError::new("rename", path.display(), e))?;
            std::mem::forget(early);
            return Ok((fd, Entry { path, holder }));
        }
    }

    /// Connects to a listener of a name, and removes the sockets of ended listeners that it tries first. `None` if no
    /// listener can be connected to. `turn` determines which listener is tried first.
    pub(crate) fn connect(&self, name: &str, turn: usize) -> Result<Option<OwnedFd>, Error> {
        check(name)?;
        self.check()?;
        let mut paths = self.sockets(&self.folder(name));
        paths.sort();
        if !paths.is_empty() {
            let first = turn % paths.len();
            paths.rotate_left(first);
        }
        for path in paths {
            if let Some(fd) = dial(&path)? {
                return Ok(Some(fd));
            }
        }
        Ok(None)
    }

    /// Connects to a listener of a name other than the listener with the socket `own`. `None` if there is no other.
    pub(crate) fn connect_other(&self, name: &str, own: &Path) -> Result<Option<OwnedFd>, Error> {
        for path in self.sockets(&self.folder(name)) {
            if path != own
                && let Some(fd) = dial(&path)?
            {
                return Ok(Some(fd));
            }
        }
        Ok(None)
    }

    /// Connects to every process that listens on a name, or on any name if `name` is `None`.
    pub(crate) fn connect_all(&self, name: Option<&str>) -> Result<Vec<(String, OwnedFd)>, Error> {
        self.check()?;
        let names = name.map_or_else(|| self.names(), |name| vec![name.to_owned()]);
        let mut all = Vec::new();
        for name in names {
            for path in self.sockets(&self.folder(&name)) {
                if let Some(fd) = dial(&path)? {
                    all.push((name.clone(), fd));
                }
            }
        }
        Ok(all)
    }

    /// Returns the names in the directory. Some of their listeners may have ended.
    pub fn names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.path) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .filter_map(Result::ok)
            .filter_map(|entry| entry.file_name().into_string().ok())
            .map(|name| name.replace("%2F", "/"))
            .filter(|name| check(name).is_ok())
            .collect();
        names.sort();
        names
    }

    /// Removes the sockets of a name's listeners that have ended, and the name's folder if it is then empty.
    pub(crate) fn sweep(&self, name: &str) {
        let folder = self.folder(name);
        for path in self.sockets(&folder) {
            // `dial` removes it if it is dead.
            let _ = dial(&path);
        }
        let _ = fs::remove_dir(&folder);
    }

    fn sockets(&self, folder: &Path) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
        let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
        paths.filter(|path| !is_early(path) || is_abandoned(path)).collect()
    }
}

/// Adds how to use another directory.
fn with_remedy(error: OsError) -> OsError {
    let why = format!("{}; or set CROSSWAY_CHANNEL_DIR to another directory", error.source);
    OsError { source: std::io::Error::new(error.source.kind(), why), ..error }
}

/// Whether a socket still has its preliminary name, which begins with a dot. Its listener does not accept connections
/// yet.
fn is_early(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Whether the socket at `path`, which still has its preliminary name, is so old that its listener must have died
/// between bind and rename. Normally these follow each other immediately.
fn is_abandoned(path: &Path) -> bool {
    let age = fs::metadata(path).and_then(|meta| meta.modified()).map(|at| at.elapsed());
    matches!(age, Ok(Ok(age)) if age > ABANDONED)
}

fn address(path: &Path) -> Result<socket::Address, OsError> {
    socket::path_address(path).map_err(|_| {
        let why =
            "a socket's path has at most 107 bytes; set CROSSWAY_CHANNEL_DIR to a shorter path";
        OsError::new("bind", path.display(), std::io::Error::other(why))
    })
}

fn check(name: &str) -> Result<(), Error> {
    let wrong = if name.is_empty() {
        "it is empty"
    } else if name.len() > LONGEST_NAME {
        "it is longer than 40 bytes"
    } else if name.split('/').any(|part| part.is_empty() || part.starts_with('.')) {
        "a part of it is empty or begins with a dot"
    } else if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b)) {
        "it has characters other than letters, digits, / . _ -"
    } else {
        return Ok(());
    };
    Err(Error::Name { name: name.to_owned(), why: wrong })
}

/// Connects to a listener's socket; `None` if that fails. If the listener has ended, also removes the socket's file.
fn dial(path: &Path) -> Result<Option<OwnedFd>, Error> {
    let fd = socket::unix(SocketType::Seqpacket)?;
    socket::set_nonblocking(&fd)?;
    match socket::connect(&fd, &address(path)?) {
        Ok(()) => {
            socket::set_waiting(&fd, true).map_err(|e| OsError::new("fcntl", path.display(), e))?;
            Ok(Some(fd))
        }
        Err(Errno::CONNREFUSED) => {
            let _ = fs::remove_file(path);
            let _ = path.parent().map(fs::remove_dir);
            Ok(None)
        }
        // Busy, just ended, or not a listener's socket: another one may work.
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_to_its_listeners_in_turn_and_dead_ones_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let names = Directory::at(dir.path().join("names"));
        assert!(names.connect("camera/left", 0).unwrap().is_none());
        let (a, entry_a) = names.listen("camera/left").unwrap();
        let (b, entry_b) = names.listen("camera/left").unwrap();
        assert_eq!(names.names(), ["camera/left"]);
        for turn in 0..2 {
            assert!(names.connect("camera/left", turn).unwrap().is_some());
        }
        assert!(socket::try_accept(&a).is_ok() && socket::try_accept(&b).is_ok(), "each once");
        // As after kill -9: the socket is closed, its file is there.
        drop(a);
        std::mem::forget(entry_a);
        for _ in 0..3 {
            assert!(names.connect("camera/left", 0).unwrap().is_some());
        }
        assert_eq!(fs::read_dir(names.folder("camera/left")).unwrap().count(), 1);
        drop((b, entry_b));
        assert_eq!(fs::read_dir(names.path()).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn what_is_no_name_is_refused_with_the_reason() {
        let long = "x".repeat(41);
        for name in ["", "/", "a//b", "../a", "a/.b", "a b", "ä", &long] {
            let error = check(name).unwrap_err().to_string();
            assert!(error.contains(&format!("'{name}'")), "{error}");
        }
        check("camera/left.0_a-B").unwrap();
    }
}
