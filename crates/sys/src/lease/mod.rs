//! Leases on kernel objects that have a name and so outlive the process that made them: paths, POSIX shared memory and
//! message queues, System V ids, child processes.
//!
//! A lease is a small file in the run's directory, written *before* the object is made. It is removed with the object:
//! by [`Lease`]'s `Drop` as a rule; by the run's owner when a role was killed; by the run's reaper process
//! ([`Reaper`]) when the owner itself was killed; by the end of another run or the start of the next ([`Run::begin`]) when
//! even the reaper was. So nothing stays behind, whichever process dies first.
//!
//! A mechanism uses it like this: `let lease = hold(Resource::PosixShm { name })?`, then make the object (if that fails
//! because it exists already: [`Lease::cancel`]), keep the lease beside it; dropping the lease removes the object.

mod directory;
mod resource;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

pub use resource::Resource;

use crate::{OsError, proc};

/// The directory of leases that this process writes to. A role joins its controller's; any other process makes its own
/// at the first [`hold`].
static DIRECTORY: Mutex<Option<Directory>> = Mutex::new(None);

#[derive(Clone)]
enum Directory {
    Own(PathBuf),
    Joined(PathBuf),
}
static COUNTER: AtomicU64 = AtomicU64::new(0);

/// A held name. Dropping it removes the object and the lease.
#[derive(Debug)]
pub struct Lease {
    resource: Resource,
    file: PathBuf,
    holder: u32,
    armed: bool,
}

/// Writes a lease; call it before the object is made.
///
/// # Errors
/// When the directory of leases cannot be written; the object must then not be made.
pub fn hold(resource: Resource) -> Result<Lease, OsError> {
    let dir = current_directory()?;
    let holder = std::process::id();
    let file = dir.join(format!("{holder}-{}.lease", COUNTER.fetch_add(1, Ordering::Relaxed)));
    let text = serde_json::to_vec(&resource)
        .map_err(|e| OsError::new("encode lease", file.display(), std::io::Error::other(e)))?;
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&file)
        .and_then(|mut f| f.write_all(&text))
        .map_err(|e| OsError::new("write lease", file.display(), e))?;
    Ok(Lease { resource, file, holder, armed: true })
}

impl Lease {
    /// What is held.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Removes the object now, as soon as its name is of no more use (e.g. both ends have it open).
    pub fn release(self) {}

    /// Gives the lease up without touching the object: it was never made, or belongs to somebody else.
    pub fn cancel(mut self) {
        self.armed = false;
        let _ = fs::remove_file(&self.file);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // A forked child holds a copy of its parent's leases; only the parent may act on them.
        if self.armed && self.holder == std::process::id() {
            self.resource.remove();
            let _ = fs::remove_file(&self.file);
        }
    }
}

/// A name that nothing on this host has: `crossway-KIND-PID-RANDOM`.
pub fn fresh_name(kind: &str) -> String {
    format!("crossway-{kind}-{}-{:08x}", std::process::id(), random_number() as u32)
}

/// A positive System V key by chance; make the object with `IPC_CREAT | IPC_EXCL` and take another on `EEXIST`.
pub fn fresh_key() -> i32 {
    ((random_number() as u32) >> 1).max(1) as i32
}

/// A path that nothing has, in this run's directory; short enough for a socket address.
pub fn fresh_path(kind: &str) -> Result<PathBuf, OsError> {
    Ok(current_directory()?.join(format!("{kind}-{:08x}", random_number() as u32)))
}

/// A random number from the kernel, for names.
pub fn random_number() -> u64 {
    let mut bytes = [0; 8];
    if rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()) != Ok(8) {
        // The names are made exclusively, so chance only saves retries: time and counter do as well.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        return (now.tv_nsec as u64) << 20 ^ COUNTER.fetch_add(1, Ordering::Relaxed);
    }
    u64::from_ne_bytes(bytes)
}

/// Makes this process write its leases to a run's directory; roles call it with what their controller tells them.
pub fn join(dir: &Path) {
    *lock() = Some(Directory::Joined(dir.to_owned()));
}

fn current_directory() -> Result<PathBuf, OsError> {
    let mut current = lock();
    match &*current {
        // Once the run is over its directory is missing, and leases are refused: nothing would remove what is made then.
        Some(Directory::Joined(dir)) => return Ok(dir.clone()),
        Some(Directory::Own(dir)) if dir.exists() => return Ok(dir.clone()),
        _ => {}
    }
    let dir = directory::make_own()?;
    *current = Some(Directory::Own(dir.clone()));
    Ok(dir)
}

fn lock() -> std::sync::MutexGuard<'static, Option<Directory>> {
    DIRECTORY.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The command that runs a reaper: `program args.. DIR` must end in [`reap_after_owner`].
#[derive(Clone, Copy, Debug)]
pub struct Reaper<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its arguments before the directory.
    pub args: &'a [&'a str],
}

impl Reaper<'_> {
    /// Starts the reaper of `dir`. It notices this process's end, `kill -9` included, because its standard input closes
    /// then. A process group of its own keeps it alive through Ctrl-C. It shares this process's standard error, so that a
    /// process that waits for the end of that pipe also waits for the reaper.
    fn start(&self, dir: &Path) -> Result<Child, OsError> {
        Command::new(self.program)
            .args(self.args)
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|e| OsError::new("start reaper", self.program.display(), e))
    }
}

/// What an owner writes to its reaper when it has cleaned up itself.
const CLEANED_UP: &[u8] = b"clean\n";

/// One run's directory of leases, owned by the controller. Dropping it removes whatever is left.
#[derive(Debug)]
pub struct Run {
    dir: PathBuf,
    owner: u32,
    reaper: Option<Child>,
}

impl Run {
    /// Removes what dead runs of this user left, then makes this process's own directory. Without a reaper a killed owner
    /// leaves its leases to the next run.
    ///
    /// # Errors
    /// The runtime directory cannot be used, or the reaper cannot be started.
    pub fn begin(reaper: Option<Reaper<'_>>) -> Result<Run, OsError> {
        sweep_dead_runs()?;
        // The reaper is started first: at whatever instant this process is killed, a directory that exists has a reaper.
        let dir = directory::own_path()?;
        let reaper = reaper.map(|reaper| reaper.start(&dir)).transpose()?;
        Ok(Run { dir: current_directory()?, owner: std::process::id(), reaper })
    }

    /// Where the leases are; roles [`join`] it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Removes what the process `pid` of this run left; call it after that process was waited for.
    pub fn remove_leases_of(&self, pid: u32) {
        let prefix = format!("{pid}-");
        directory::remove_leases(&self.dir, |name| name.starts_with(&prefix));
    }

    /// A directory of the run's for leases of a process that has name spaces of its own, where its number says nothing.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn room(&self, name: &str) -> Result<PathBuf, OsError> {
        let room = self.dir.join(name);
        match fs::create_dir(&room) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(OsError::new("mkdir", room.display(), e))
            }
            _ => Ok(room),
        }
    }

    /// Removes what is leased in such a directory, and the directory.
    pub fn clear_room(&self, room: &Path) {
        directory::remove_leases(room, |_| true);
        let _ = fs::remove_dir_all(room);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.owner != std::process::id() {
            return;
        }
        directory::reap(&self.dir);
        if let Some(mut reaper) = self.reaper.take() {
            if let Some(mut stdin) = reaper.stdin.take() {
                let _ = stdin.write_all(CLEANED_UP);
            }
            let _ = reaper.wait();
        }
        *lock() = None;
        // Agents of this run that were killed, and their reapers with them, have left directories of their own.
        let _ = sweep_dead_runs();
    }
}

/// Runs as the reaper of `dir`: waits for the end of its owner, kills the processes that are left of the run and removes its
/// objects. Returns whether there was anything to do: an owner that ended in order has cleaned up itself.
pub fn reap_after_owner(dir: &Path) -> bool {
    let mut word = Vec::new();
    let _ = std::io::stdin().lock().read_to_end(&mut word);
    if word == CLEANED_UP {
        return false;
    }
    // A process that is killed closes its files first and is dead only later. Until then its children live, and other
    // programs take it for alive.
    if let Some((pid, started)) = directory::owner(dir) {
        proc::await_end(pid, started);
    }
    directory::reap(dir);
    true
}

/// Removes what runs whose owner is dead have left; returns how many runs there were.
pub fn sweep_dead_runs() -> Result<usize, OsError> {
    let dead = directory::dead_runs()?;
    dead.iter().for_each(|dir| directory::reap(dir));
    Ok(dead.len())
}

#[cfg(test)]
mod tests;
