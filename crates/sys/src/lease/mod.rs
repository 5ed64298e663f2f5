//! Leases on kernel objects that have a name and so outlive the process that created them: paths, POSIX shared memory
//! and message queues, System V ids, child processes.
//!
//! A lease is a small file in the run's directory, written *before* the object is created. It is removed together with
//! the object: normally by `Drop` of [`Lease`]; by the run's owner if a role was killed; by the run's reaper process
//! ([`Reaper`]) if the owner itself was killed; by the end of another run or the start of the next ([`Run::begin`]) if
//! even the reaper was killed. So nothing remains, whichever process dies first.
//!
//! A mechanism first calls `hold(Resource::PosixShm { name })`, then creates the object and stores the lease next to
//! it; dropping the lease removes the object. If the object exists already, the mechanism calls [`Lease::cancel`].

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

use crate::{OsError, proc, words};

/// The directory to which this process writes its leases. A role joins its controller's directory; any other process
/// creates its own at the first [`hold`].
static DIRECTORY: Mutex<Option<Directory>> = Mutex::new(None);

enum Directory {
    /// This process's own directory, which exists only while leases are held.
    Own(PathBuf),
    /// The directory of this process's [`Run`], which exists as long as the run.
    Run(PathBuf),
    Joined(PathBuf),
}
static COUNTER: AtomicU64 = AtomicU64::new(0);

/// A leased name. Dropping it removes the object and the lease.
#[derive(Debug)]
pub struct Lease {
    resource: Resource,
    file: PathBuf,
    holder: u32,
    armed: bool,
}

/// Writes a lease; call it before creating the object.
///
/// # Errors
/// The directory of leases cannot be written; the object must not be created in that case.
pub fn hold(resource: Resource) -> Result<Lease, OsError> {
    // Locked until the file is written, so that another thread that drops its last lease does not remove the directory.
    let mut current = lock();
    let dir = current_directory(&mut current)?;
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
    /// The leased object.
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// Removes the object now. To be called as soon as the object's name is no longer needed, e.g. when both ends have
    /// opened the object.
    pub fn release(self) {}

    /// Removes the lease without touching the object, because the object was never created or belongs to another
    /// process.
    pub fn cancel(mut self) {
        self.armed = false;
        self.forget();
    }

    /// Removes the lease's file and, if it was the last one, this process's own directory.
    fn forget(&self) {
        let current = lock();
        let _ = fs::remove_file(&self.file);
        if let Some(Directory::Own(dir)) = &*current {
            // Fails if anything is in it.
            let _ = fs::remove_dir(dir);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // A forked child has a copy of its parent's leases; only the parent may act on them.
        if self.armed && self.holder == std::process::id() {
            self.resource.remove();
            self.forget();
        }
    }
}

/// A name that is unused on this host: `crossway-KIND-PID-RANDOM`.
pub fn fresh_name(kind: &str) -> String {
    format!("crossway-{kind}-{}-{:08x}", std::process::id(), random_number() as u32)
}

/// A random positive System V key. Create the object with `IPC_CREAT | IPC_EXCL`, and try another key on `EEXIST`.
pub fn fresh_key() -> i32 {
    ((random_number() as u32) >> 1).max(1) as i32
}

/// An unused path in this run's directory, short enough for a socket address. Its last part is `KIND-RANDOM`.
pub fn fresh_path(kind: &str) -> Result<PathBuf, OsError> {
    Ok(current_directory(&mut lock())?.join(format!("{kind}-{:08x}", random_number() as u32)))
}

/// The folder of this user's runs, which is private to the user; it is created if it does not exist.
///
/// # Errors
/// [`OsError`] if it cannot be created, or is not private.
pub fn private_folder() -> Result<PathBuf, OsError> {
    directory::root()
}

/// A random number from the kernel, for names.
pub fn random_number() -> u64 {
    let mut bytes = [0; 8];
    if rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()) != Ok(8) {
        // Names are created exclusively, so randomness only saves retries: time and counter are sufficient.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        return (now.tv_nsec as u64) << 20 ^ COUNTER.fetch_add(1, Ordering::Relaxed);
    }
    u64::from_ne_bytes(bytes)
}

/// Makes this process write its leases to a run's directory; roles call it with the path from their controller.
pub fn join(dir: &Path) {
    *lock() = Some(Directory::Joined(dir.to_owned()));
}

fn current_directory(current: &mut Option<Directory>) -> Result<PathBuf, OsError> {
    match current {
        // Once the run has ended, its directory is missing and leases are refused, because nothing would remove objects
        // created then.
        Some(Directory::Joined(dir)) => return Ok(dir.clone()),
        Some(Directory::Own(dir) | Directory::Run(dir)) if dir.exists() => return Ok(dir.clone()),
        _ => {}
    }
    let dir = directory::make_own()?;
    *current = Some(Directory::Own(dir.clone()));
    Ok(dir)
}

fn lock() -> std::sync::MutexGuard<'static, Option<Directory>> {
    DIRECTORY.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The command that runs a reaper: `program args.. DIR`, which must call [`reap_after_owner`] with that directory.
#[derive(Clone, Copy, Debug)]
pub struct Reaper<'a> {
    /// The program to run.
    pub program: &'a Path,
    /// The program's arguments, to which the directory is added.
    pub args: &'a [&'a str],
}

impl Reaper<'_> {
    /// Starts the reaper of `dir`. It notices the end of this process, `kill -9` included, because its standard input
    /// closes then. Its own process group keeps it alive through Ctrl-C. It shares this process's standard error: if
    /// that is a pipe, a program that reads the pipe to its end also waits for the reaper.
    fn start(&self, dir: &Path) -> Result<Child, OsError> {
        Command::new(self.program)
            .args(self.args)
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(nowhere()?)
            .process_group(0)
            .spawn()
            .map_err(|e| OsError::new("start reaper", self.program.display(), e))
    }
}

/// The output of a process that has nothing to say.
fn nowhere() -> Result<fs::File, OsError> {
    fs::File::options().write(true).open("/dev/null").map_err(|e| {
        let object = "/dev/null, for the output of a process in the background (mount a /dev here, or use `bwrap --dev \
                      /dev`)";
        OsError::new("open", object, e)
    })
}

/// The message by which an owner informs its reaper that it has already cleaned up.
const CLEANED_UP: &[u8] = b"clean\n";

/// One run's directory of leases, owned by the controller. Dropping it removes everything that remains.
#[derive(Debug)]
pub struct Run {
    dir: PathBuf,
    owner: u32,
    reaper: Option<Child>,
}

impl Run {
    /// Removes the remains of this user's dead runs, then creates this process's own directory. Without a reaper, the
    /// leases of a killed owner remain until the next run.
    ///
    /// # Errors
    /// The runtime directory cannot be used, or the reaper cannot be started.
    pub fn begin(reaper: Option<Reaper<'_>>) -> Result<Run, OsError> {
        sweep_dead_runs()?;
        // The reaper is started first, so that a directory never exists without a reaper, whenever this process is
        // killed.
        let dir = directory::own_path()?;
        let reaper = reaper.map(|reaper| reaper.start(&dir)).transpose()?;
        let mut current = lock();
        let dir = current_directory(&mut current)?;
        if matches!(*current, Some(Directory::Own(_))) {
            *current = Some(Directory::Run(dir.clone()));
        }
        Ok(Run { dir, owner: std::process::id(), reaper })
    }

    /// The directory of the leases; roles [`join`] it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Removes the remains of process `pid` of this run; call it after waiting for that process.
    pub fn remove_leases_of(&self, pid: u32) {
        let prefix = format!("{pid}-");
        directory::remove_leases(&self.dir, |name| name.starts_with(&prefix));
    }

    /// Creates a subdirectory for the leases of a process in another PID namespace, because that process's pid has no
    /// meaning here.
    ///
    /// # Errors
    /// The subdirectory cannot be created.
    pub fn room(&self, name: &str) -> Result<PathBuf, OsError> {
        let room = self.dir.join(name);
        match fs::create_dir(&room) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(OsError::new("mkdir", room.display(), e))
            }
            _ => Ok(room),
        }
    }

    /// Removes the objects leased in a subdirectory that [`Run::room`] created, and then the subdirectory itself.
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
        // Agents of this run that were killed together with their reapers have left directories of their own.
        let _ = sweep_dead_runs();
    }
}

/// Runs as the reaper of `dir`: waits for its owner to end, kills the remaining processes of the run and removes its
/// objects. Returns whether there was anything to do: an owner that ended normally has cleaned up itself.
pub fn reap_after_owner(dir: &Path) -> bool {
    let mut word = Vec::new();
    let _ = std::io::stdin().lock().read_to_end(&mut word);
    if word == CLEANED_UP {
        return false;
    }
    // A killed process closes its files first and is dead only later. Until then its children live, and other programs
    // take it to be alive.
    if let Some((pid, started)) = directory::owner(dir) {
        proc::await_end(pid, started, None);
    }
    directory::reap(dir);
    true
}

/// Removes the remains of runs whose owner is dead, and shared files that no process uses ([`words::remove_unused`]);
/// returns the number of such runs.
pub fn sweep_dead_runs() -> Result<usize, OsError> {
    directory::shared_files()?.iter().for_each(|file| words::remove_unused(file));
    let dead = directory::dead_runs()?;
    dead.iter().for_each(|dir| directory::reap(dir));
    Ok(dead.len())
}

#[cfg(test)]
mod tests;
