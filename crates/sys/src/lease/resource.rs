//! The kinds of objects that can be leased, and how each is removed.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{family, proc};

/// The directory in which the C library keeps the objects of `shm_open`.
const SHARED_MEMORY: &str = "/dev/shm";

/// A kernel object that outlives the process that created it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Resource {
    /// A file, fifo or socket.
    Path {
        /// The absolute path.
        path: PathBuf,
    },
    /// A directory with everything in it.
    Directory {
        /// The absolute path.
        path: PathBuf,
    },
    /// Every file and directory in `/dev/shm` whose name has a prefix: objects that libraries create there under their
    /// own names.
    SharedMemory {
        /// The prefix; not empty, without a slash.
        prefix: String,
    },
    /// Processes whose environment has a mark ([`crate::family::MARK`]), whichever process started them; removal kills
    /// them.
    Family {
        /// The value of the mark.
        mark: String,
    },
    /// Shared memory made by `shm_open`.
    PosixShm {
        /// Its name, with the leading slash.
        name: String,
    },
    /// A message queue made by `mq_open`.
    PosixMq {
        /// Its name, with the leading slash.
        name: String,
    },
    /// Shared memory made by `shmget`.
    SysvShm {
        /// The key, from [`super::fresh_key`]; the id is known only after creation, which is too late.
        key: i32,
    },
    /// Semaphores made by `semget`.
    SysvSem {
        /// The key, from [`super::fresh_key`].
        key: i32,
    },
    /// A message queue made by `msgget`.
    SysvMsg {
        /// The key, from [`super::fresh_key`].
        key: i32,
    },
    /// A child process; removal kills it.
    Process {
        /// The child's process id.
        pid: u32,
        /// The child's start time in clock ticks after boot (`/proc/PID/stat`), so that a process that reuses the pid
        /// is never killed.
        started_ticks: u64,
    },
}

impl Resource {
    /// Removes the object if it still exists. Errors are ignored.
    pub fn remove(&self) {
        match self {
            Resource::Path { path } => {
                let _ = std::fs::remove_file(path);
            }
            Resource::Directory { path } => {
                let _ = std::fs::remove_dir_all(path);
            }
            Resource::SharedMemory { prefix } => remove_prefixed(Path::new(SHARED_MEMORY), prefix),
            Resource::Family { mark } => {
                family::kill_marked(mark);
            }
            Resource::PosixShm { name } => {
                let _ = rustix::shm::unlink(name.as_str());
            }
            Resource::PosixMq { name } => {
                if let Ok(name) = CString::new(name.as_str()) {
                    // SAFETY: the name is a valid C string for the length of the call.
                    unsafe { libc::mq_unlink(name.as_ptr()) };
                }
            }
            // SAFETY: looking up an id and removing it touches no memory of this process.
            Resource::SysvShm { key } => unsafe {
                let id = libc::shmget(*key, 0, 0);
                if id >= 0 {
                    libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
                }
            },
            // SAFETY: as above; IPC_RMID reads no fourth argument.
            Resource::SysvSem { key } => unsafe {
                let id = libc::semget(*key, 0, 0);
                if id >= 0 {
                    libc::semctl(id, 0, libc::IPC_RMID);
                }
            },
            // SAFETY: as above.
            Resource::SysvMsg { key } => unsafe {
                let id = libc::msgget(*key, 0);
                if id >= 0 {
                    libc::msgctl(id, libc::IPC_RMID, std::ptr::null_mut());
                }
            },
            Resource::Process { pid, started_ticks } => proc::kill_exactly(*pid, *started_ticks),
        }
    }
}

fn remove_prefixed(dir: &Path, prefix: &str) {
    if prefix.is_empty() || prefix.contains('/') {
        return;
    }
    for entry in std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok) {
        if !entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()) {
            continue;
        }
        // A symbolic link is removed, never followed.
        let _ = match entry.file_type() {
            Ok(kind) if kind.is_dir() => std::fs::remove_dir_all(entry.path()),
            _ => std::fs::remove_file(entry.path()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_begins_with_the_prefix_is_removed() {
        let dir = std::env::temp_dir().join(super::super::fresh_name("prefixed"));
        std::fs::create_dir_all(dir.join("mine-1/inner")).unwrap();
        std::fs::create_dir(dir.join("other")).unwrap();
        std::fs::write(dir.join("mine-2"), "x").unwrap();
        std::os::unix::fs::symlink(dir.join("other"), dir.join("mine-3")).unwrap();
        remove_prefixed(&dir, "");
        remove_prefixed(&dir, "mine-");
        let left: Vec<_> =
            std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["other"]);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
