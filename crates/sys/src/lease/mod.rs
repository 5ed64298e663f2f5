//! Leases on kernel objects that have a name and so outlive the process that made them: paths, POSIX shared memory and
//! message queues, System V ids, child processes.
//!
//! A lease is a small file in the run's directory, written *before* the object is made. It is removed with the object:
//! by [`Lease`]'s `Drop` as a rule; by the run's owner when a role was killed; by the reaper process
//! ([`Run::spawn_reaper`]) when the owner itself was killed; by the next start ([`Run::begin`]) when even the reaper
//! was. So nothing stays behind, whoever dies in whatever order.
//!
//! A mechanism uses it like this: `let lease = hold(Resource::PosixShm { name })?`, then make the object (if that fails
//! because it exists already: [`Lease::cancel`]), keep the lease beside it; dropping the lease removes the object.

mod directory;
mod resource;

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

pub use resource::Resource;

use crate::OsError;

/// The directory of leases that this process writes to. A role joins its controller's; any other process makes its own
/// at the first [`hold`].
static DIRECTORY: Mutex<Option<PathBuf>> = Mutex::new(None);
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
    format!("crossway-{kind}-{}-{:08x}", std::process::id(), chance() as u32)
}

/// A positive System V key by chance; make the object with `IPC_CREAT | IPC_EXCL` and take another on `EEXIST`.
pub fn fresh_key() -> i32 {
    ((chance() as u32) >> 1).max(1) as i32
}

/// A path that nothing has, in this run's directory; short enough for a socket address.
pub fn fresh_path(kind: &str) -> Result<PathBuf, OsError> {
    Ok(current_directory()?.join(format!("{kind}-{:08x}", chance() as u32)))
}

/// A random number from the kernel, for names.
pub fn chance() -> u64 {
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
    *lock() = Some(dir.to_owned());
}

fn current_directory() -> Result<PathBuf, OsError> {
    let mut current = lock();
    if let Some(dir) = current.as_ref().filter(|d| d.exists()) {
        return Ok(dir.clone());
    }
    let dir = directory::make_own()?;
    *current = Some(dir.clone());
    Ok(dir)
}

fn lock() -> std::sync::MutexGuard<'static, Option<PathBuf>> {
    DIRECTORY.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// One run's directory of leases, owned by the controller. Dropping it removes whatever is left.
#[derive(Debug)]
pub struct Run {
    dir: PathBuf,
    owner: u32,
    reaper: Option<std::process::Child>,
}

impl Run {
    /// Removes what dead runs of this user left, then makes this process's own directory.
    pub fn begin() -> Result<Run, OsError> {
        sweep_dead_runs()?;
        Ok(Run { dir: current_directory()?, owner: std::process::id(), reaper: None })
    }

    /// Where the leases are; roles [`join`] it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts the reaper: `program args.. DIR` must end in [`reap_after_owner`]. It notices this process's end, `kill -9`
    /// included, because its standard input closes then.
    ///
    /// A process group of its own keeps it alive through Ctrl-C.
    pub fn spawn_reaper(&mut self, program: &Path, args: &[&str]) -> Result<(), OsError> {
        use std::os::unix::process::CommandExt;
        let child = Command::new(program)
            .args(args)
            .arg(&self.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|e| OsError::new("start reaper", program.display(), e))?;
        self.reaper = Some(child);
        Ok(())
    }

    /// Removes what the process `pid` of this run left; call it after that process was waited for.
    pub fn remove_leases_of(&self, pid: u32) {
        let prefix = format!("{pid}-");
        directory::remove_leases(&self.dir, |name| name.starts_with(&prefix));
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.owner != std::process::id() {
            return;
        }
        directory::reap(&self.dir);
        if let Some(mut reaper) = self.reaper.take() {
            drop(reaper.stdin.take());
            let _ = reaper.wait();
        }
        *lock() = None;
    }
}

/// The reaper's life: waits until standard input closes, kills what is left of the run and removes its objects.
pub fn reap_after_owner(dir: &Path) {
    let mut sink = [0; 64];
    let mut stdin = std::io::stdin().lock();
    while stdin.read(&mut sink).is_ok_and(|n| n > 0) {}
    directory::reap(dir);
}

/// Removes what runs whose owner is dead have left; returns how many runs there were.
pub fn sweep_dead_runs() -> Result<usize, OsError> {
    let dead = directory::dead_runs()?;
    dead.iter().for_each(|dir| directory::reap(dir));
    Ok(dead.len())
}

#[cfg(test)]
mod tests;
