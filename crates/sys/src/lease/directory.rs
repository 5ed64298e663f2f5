//! The place where leases are stored: one directory per run below `$XDG_RUNTIME_DIR/crossway` or `/tmp/crossway-UID`.
//! That folder stays when it is empty: it is checked once and then used, and if it could vanish in between, somebody else
//! could put his own in its place.
//! The directory of a run is named after its owner's pid and start time, so that a dead owner is recognised even if its
//! pid was reused; and after the PID namespace, because a container or a guest may share the folder, where the pid is
//! nobody's.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::Resource;
use crate::{OsError, kernel, proc, trust};

/// Maximum length in bytes of the root directory's path: a socket address has room for 108 bytes, and the names of the
/// run and the object need about 50 of them.
const LONGEST_ROOT: usize = 50;

/// The path of this process's own directory, whether it exists or not.
pub(super) fn own_path() -> Result<PathBuf, OsError> {
    let root = root()?;
    let pid = std::process::id();
    let started = proc::started_ticks(pid)
        .ok_or_else(|| OsError::new("read start time", "/proc/self/stat", no_proc()))?;
    Ok(root.join(format!("{pid}-{started}-{:08x}", pid_namespace())))
}

/// This process's PID namespace: a number that those of other boots and of other kernels, such as guests, hardly have, too.
fn pid_namespace() -> u32 {
    let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |file| file.ino());
    let boot = kernel::boot_id();
    let boot = boot.get(..8).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    boot.unwrap_or(0) ^ namespace as u32
}

pub(super) fn make_own() -> Result<PathBuf, OsError> {
    let dir = own_path()?;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&dir)
        .map_err(|e| elsewhere(OsError::new("mkdir", dir.display(), e), "set"))?;
    Ok(dir)
}

/// Adds to an error what helps if the folder cannot be used, for example on a read-only file
/// system; `set` begins it.
fn elsewhere(error: OsError, set: &str) -> OsError {
    let why = format!("{}; {set} XDG_RUNTIME_DIR to a directory of your own", error.source);
    OsError { source: std::io::Error::new(error.source.kind(), why), ..error }
}

fn no_proc() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::NotFound, "no such file; mount /proc")
}

/// The user's directory, which is private ([`trust`]).
pub(super) fn root() -> Result<PathBuf, OsError> {
    let in_runtime = trust::runtime_dir().map(|dir| dir.join("crossway"));
    if let Some(root) = in_runtime.filter(|root| root.as_os_str().len() <= LONGEST_ROOT)
        && trust::private_dir(&root).is_ok()
    {
        return Ok(root);
    }
    let root = PathBuf::from(format!("/tmp/crossway-{}", proc::effective_user()));
    trust::private_dir(&root).map_err(|error| elsewhere(error, "or set"))?;
    Ok(root)
}

fn entries(is_wanted: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>, OsError> {
    let root = root()?;
    let entries = fs::read_dir(&root).map_err(|e| OsError::new("list", root.display(), e))?;
    Ok(entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|p| is_wanted(p)).collect())
}

/// The directories whose owners were processes of this PID namespace and are dead. Of other owners nothing is known here.
pub(super) fn dead_runs() -> Result<Vec<PathBuf>, OsError> {
    entries(|dir| {
        owner(dir).is_some_and(|(pid, started)| proc::started_ticks(pid) != Some(started))
    })
}

/// The files of words that programs share ([`crate::words::SharedWords::in_file`]).
pub(super) fn shared_files() -> Result<Vec<PathBuf>, OsError> {
    entries(|path| path.extension().is_some_and(|extension| extension == "table"))
}

/// The pid and start time (in clock ticks) of the process that owns a directory, from its name; `None` for a process of
/// another PID namespace.
pub(super) fn owner(dir: &Path) -> Option<(u32, u64)> {
    let mut parts = dir.file_name()?.to_str()?.split('-');
    let (pid, started, namespace) = (parts.next()?, parts.next()?, parts.next()?);
    let is_ours = u32::from_str_radix(namespace, 16) == Ok(pid_namespace());
    (is_ours && parts.next().is_none()).then_some((pid.parse().ok()?, started.parse().ok()?))
}

/// Kills the run's processes, then removes its objects, then its directory. The order matters, because a living role
/// might create more objects.
pub(super) fn reap(dir: &Path) {
    for (_, resource) in leases(dir) {
        if matches!(resource, Some(Resource::Process { .. } | Resource::Family { .. })) {
            resource.iter().for_each(Resource::remove);
        }
    }
    for room in rooms(dir) {
        remove_leases(&room, |_| true);
    }
    remove_leases(dir, |_| true);
    let _ = fs::remove_dir_all(dir);
}

/// The subdirectories of a run's directory; they contain the leases of roles in containers.
fn rooms(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
}

pub(super) fn remove_leases(dir: &Path, chosen: impl Fn(&str) -> bool) {
    for (file, resource) in leases(dir) {
        let name = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if chosen(&name) {
            resource.iter().for_each(Resource::remove);
            let _ = fs::remove_file(&file);
        }
    }
}

/// The leases in a directory. A file that cannot be read (`None`) was being written when its writer died; the object
/// was not created in that case.
fn leases(dir: &Path) -> Vec<(PathBuf, Option<Resource>)> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "lease"))
        .map(|path| {
            let resource = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
            (path, resource)
        })
        .collect()
}
