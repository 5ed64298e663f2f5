//! Identifies the process that runs this code: the owner of this memory, a copy made by fork, or a child of vfork,
//! which borrows the memory.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crossway_sys::fork_mark;
use crossway_sys::futex::{self, Locked};

static WORDS: OnceLock<Option<&'static [AtomicU32; fork_mark::WORDS]>> = OnceLock::new();

/// Variables that are 0 in every new copy of the process.
pub(crate) struct Own {
    alive: &'static AtomicU32,
    pid: &'static AtomicU32,
    lock: &'static AtomicU32,
    /// Descriptor of the connection to tipcd, plus 1; 0 if there is none.
    pub(crate) control: &'static AtomicU32,
    /// Index of the region with the slots of sockets that this process opens, plus 1; 0 if there is none.
    pub(crate) region: &'static AtomicU32,
}

/// Returns the variables of this process; `None` if their memory could not be allocated.
pub(crate) fn own() -> Option<Own> {
    let words = (*WORDS.get_or_init(|| fork_mark::words().ok()))?;
    let [alive, pid, lock, control, region, ..] = words;
    Some(Own { alive, pid, lock, control, region })
}

impl Own {
    /// Whether the caller is a child of vfork: it borrows the process's memory, but has its own descriptors, and
    /// changes to these do not affect the process.
    pub(crate) fn is_borrowed(&self) -> bool {
        let pid = std::process::id();
        if self.alive.load(Ordering::Acquire) == 0 {
            self.pid.store(pid, Ordering::Relaxed);
            self.alive.store(1, Ordering::Release);
            return false;
        }
        self.pid.load(Ordering::Relaxed) != pid
    }

    /// Acquires the process's lock, until what is returned is dropped. Signals must be blocked.
    pub(crate) fn lock(&self) -> Locked<'static> {
        futex::lock(self.lock)
    }
}

/// Whether the caller is a child of vfork.
pub(crate) fn is_borrowed() -> bool {
    own().is_some_and(|own| own.is_borrowed())
}
