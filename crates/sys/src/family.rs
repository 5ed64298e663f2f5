//! Finds and kills *families*: a family is a program with all processes that it has started, directly or indirectly,
//! even if they have detached from it.
//!
//! There are two methods, because neither is sufficient by itself. While the process that started the program lives, it
//! adopts the orphans among its descendants ([`adopt_orphans`]), so that [`descendants`] finds all of them. If that
//! process is killed, a variable in the environment ([`MARK`]), which children inherit, still identifies them.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::set_child_subreaper;

use crate::{OsError, proc};

/// The environment variable that every process of a family has; its value identifies the family.
pub const MARK: &str = "CROSSWAY_FAMILY";

/// How long [`kill_marked`] keeps trying while a family starts new processes.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// Makes this process the parent of its descendants whose own parent ends (PR_SET_CHILD_SUBREAPER).
///
/// # Errors
/// None on Linux 3.4 and later.
pub fn adopt_orphans() -> Result<(), OsError> {
    set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|e| OsError::new("prctl", "PR_SET_CHILD_SUBREAPER", e))
}

/// The ids of all running descendants of process `pid`, without `pid` itself.
pub fn descendants(pid: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> =
        processes().filter_map(|pid| Some((pid, parent_of(pid)?))).collect();
    let mut found = vec![pid];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.remove(0);
    found
}

/// Kills every process of this user that carries the mark, including processes that the family starts meanwhile;
/// returns how many processes it killed.
pub fn kill_marked(mark: &str) -> usize {
    let variable = format!("{MARK}={mark}");
    kill_until_none(|| {
        let carries = |pid: &u32| {
            fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|text| text.split(|byte| *byte == 0).any(|v| v == variable.as_bytes()))
        };
        processes().filter(carries).collect()
    })
}

fn kill_until_none(find: impl Fn() -> Vec<u32>) -> usize {
    let until = Instant::now() + KILL_LIMIT;
    let (mut killed, mut passes_without) = (0, 0);
    loop {
        // A zombie has no start time: it is dead already, even if its parent has not waited for it.
        let alive: Vec<_> =
            find().into_iter().filter_map(|pid| Some((pid, proc::started_ticks(pid)?))).collect();
        // A process that forks and exits may hide its child from a single pass over /proc.
        passes_without = if alive.is_empty() { passes_without + 1 } else { 0 };
        if passes_without == 2 || Instant::now() > until {
            return killed;
        }
        killed += alive.len();
        alive.into_iter().for_each(|(pid, started)| proc::kill_exactly(pid, started));
    }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    (state != "Z" && state != "X").then_some(fields.next()?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn marked_processes_are_killed_wherever_they_went_and_no_others() {
        let mark = format!("test-{}", std::process::id());
        let start = |mark: &str| {
            Command::new("sh")
                .args(["-c", "sleep 600 & setsid sleep 600 & wait"])
                .env(MARK, mark)
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        };
        let (mut family, mut other) = (start(&mark), start("another"));
        let until = Instant::now() + Duration::from_secs(60);
        while descendants(family.id()).len() < 2 || descendants(other.id()).len() < 2 {
            assert!(Instant::now() < until, "the children did not start");
            std::thread::yield_now();
        }
        let children = descendants(family.id());
        kill_marked(&mark);
        assert!(children.iter().all(|pid| proc::started_ticks(*pid).is_none()));
        assert!(!family.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        for pid in descendants(other.id()) {
            proc::kill_exactly(pid, proc::started_ticks(pid).unwrap_or(0));
        }
        other.wait().unwrap();
    }
}
