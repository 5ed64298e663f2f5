//! Which processes to observe: numbers, names, or all.

use std::collections::BTreeSet;

use crate::snapshot::{Process, Snapshot};

/// A target that is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// No process has this number.
    #[error("there is no process {0}: it has ended or never existed; `ps -e` lists those that run")]
    NoProcess(u32),
    /// The process has ended and waits for its parent.
    #[error(
        "process {pid} ({name}) has ended; only its entry is left, until its parent collects it"
    )]
    Zombie {
        /// Its number.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// No process has this name.
    #[error("no process is named '{0}'; `ps -e` lists the names, and --all observes all processes")]
    NoName(String),
}

/// The processes that `words` name (each a number or a name), with their descendants.
///
/// # Errors
/// A word names no running process.
pub fn select(snapshot: &Snapshot, words: &[String]) -> Result<BTreeSet<u32>, TargetError> {
    let mut chosen = BTreeSet::new();
    for word in words {
        match word.parse::<u32>() {
            Ok(pid) => {
                let process = snapshot.processes.get(&pid).ok_or(TargetError::NoProcess(pid))?;
                if process.zombie {
                    return Err(TargetError::Zombie { pid, name: process.name.clone() });
                }
                chosen.insert(pid);
            }
            Err(_) => {
                let before = chosen.len();
                let named = |p: &&Process| !p.zombie && is_named(p, word);
                chosen.extend(snapshot.processes.values().filter(named).map(|p| p.pid));
                if chosen.len() == before {
                    return Err(TargetError::NoName(word.clone()));
                }
            }
        }
    }
    Ok(with_descendants(snapshot, chosen))
}

/// `comm` has at most 15 bytes, so a longer name matches its beginning.
fn is_named(process: &Process, word: &str) -> bool {
    /// TASK_COMM_LEN without the final zero.
    const LONGEST: usize = 15;
    process.name == word
        || (process.name.len() == LONGEST && word.starts_with(process.name.as_str()))
}

/// Adds all processes that the chosen ones started, directly or not.
pub fn with_descendants(snapshot: &Snapshot, mut chosen: BTreeSet<u32>) -> BTreeSet<u32> {
    loop {
        let more: Vec<u32> = snapshot
            .processes
            .values()
            .filter(|p| chosen.contains(&p.parent) && !chosen.contains(&p.pid))
            .map(|p| p.pid)
            .collect();
        if more.is_empty() {
            return chosen;
        }
        chosen.extend(more);
    }
}
