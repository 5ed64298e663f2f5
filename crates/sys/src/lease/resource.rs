//! What can be leased, and how each is removed.

use std::ffi::CString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{family, proc};

/// A kernel object that outlives its maker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Resource {
    /// A file, fifo or socket.
    Path {
        /// Absolute.
        path: PathBuf,
    },
    /// A directory with all that is in it.
    Directory {
        /// Absolute.
        path: PathBuf,
    },
    /// Processes whose environment says so ([`crate::family::MARK`]), whoever started them; removing kills them.
    Family {
        /// The value that marks them.
        mark: String,
    },
    /// `shm_open`'s.
    PosixShm {
        /// With its leading slash.
        name: String,
    },
    /// `mq_open`'s.
    PosixMq {
        /// With its leading slash.
        name: String,
    },
    /// `shmget`'s.
    SysvShm {
        /// The key, from [`super::fresh_key`]; an id is known too late.
        key: i32,
    },
    /// `semget`'s.
    SysvSem {
        /// The key.
        key: i32,
    },
    /// `msgget`'s.
    SysvMsg {
        /// The key.
        key: i32,
    },
    /// A child process; removing it kills it.
    Process {
        /// Its id.
        pid: u32,
        /// Its start in clock ticks after boot (`/proc/PID/stat`), so that a reused id is never killed.
        started_ticks: u64,
    },
}

impl Resource {
    /// Removes the object; that it is gone already is fine.
    pub fn remove(&self) {
        match self {
            Resource::Path { path } => {
                let _ = std::fs::remove_file(path);
            }
            Resource::Directory { path } => {
                let _ = std::fs::remove_dir_all(path);
            }
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
            // SAFETY: looking an id up and removing it touches no memory of this process.
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
