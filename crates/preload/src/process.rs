//! Which process this is, how often it forked, and its lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crossway_sys::fork_mark;
use crossway_sys::futex::{self, Locked};

/// Words that are 0 in every new process: the id of the process that owns this memory, and the lock.
static WORDS: OnceLock<Option<&'static [AtomicU32; fork_mark::WORDS]>> = OnceLock::new();
static FORKS: AtomicU32 = AtomicU32::new(0);

fn words() -> Option<&'static [AtomicU32; fork_mark::WORDS]> {
    *WORDS.get_or_init(|| fork_mark::words().ok())
}

/// Whether the caller is the process that owns this memory. A child of vfork is not: it has its own descriptors, and what it
/// does with them must not change the entries of its parent.
pub(crate) fn owns_memory() -> bool {
    let Some([owner, ..]) = words() else { return false };
    let pid = std::process::id();
    match owner.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => true,
        Err(owner) => owner == pid,
    }
}

/// Notes a fork that is about to happen: the child gets copies of all descriptors.
pub(crate) fn count_fork() {
    FORKS.fetch_add(1, Ordering::AcqRel);
}

/// How often this process has forked.
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Acquire) & 0xff_ffff
}

/// Acquires the process's lock, under which descriptors are replaced, until what is returned is dropped. Signals must be blocked.
/// A child of a fork finds it free.
pub(crate) fn lock() -> Option<Locked<'static>> {
    let [_, lock, ..] = words()?;
    Some(futex::lock(lock))
}
