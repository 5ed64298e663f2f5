//! Keeps CPUs from sleeping for a while.
//!
//! A CPU without work sleeps, and wakes up slowly and with cold caches. A thread of the lowest class (SCHED_IDLE) on it gives
//! way to any other at once, and keeps it awake.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use crate::OsError;
use crate::affinity::pin;
use crate::clock::monotonic_ns;

/// Keeps CPUs awake until it is dropped, or for as long as it was told.
#[derive(Debug)]
pub struct Awake {
    done: Arc<AtomicBool>,
}

impl Awake {
    /// Keeps these CPUs awake for at most a time.
    ///
    /// # Errors
    /// This thread may not run on one of them, or no thread can be started. None is kept awake then.
    pub fn keep(cpus: &[u32], most: Duration) -> Result<Awake, OsError> {
        let awake = Awake { done: Arc::default() };
        let until = monotonic_ns().saturating_add(most.as_nanos() as u64);
        let (begun, beginnings) = channel();
        for cpu in cpus.iter().copied() {
            let (done, begun) = (Arc::clone(&awake.done), begun.clone());
            std::thread::Builder::new()
                .name(format!("awake-{cpu}"))
                .spawn(move || stay(cpu, &done, until, &begun))
                .map_err(|e| OsError::new("clone", "a thread", e))?;
        }
        beginnings.iter().take(cpus.len()).collect::<Result<(), OsError>>()?;
        Ok(awake)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        // They are not waited for: one whose CPU is busy sees this only when it gets the CPU again.
        self.done.store(true, Ordering::Relaxed);
    }
}

fn stay(cpu: u32, done: &AtomicBool, until: u64, begun: &Sender<Result<(), OsError>>) {
    let ready = pin(cpu).and_then(|()| yield_to_all());
    let is_ready = ready.is_ok();
    let _ = begun.send(ready);
    // No pause instruction: a hypervisor may take the CPU away from a thread that pauses again and again.
    while is_ready && !done.load(Ordering::Relaxed) && monotonic_ns() < until {}
}

/// Gives the calling thread the lowest class.
fn yield_to_all() -> Result<(), OsError> {
    // SAFETY: all zeros is a valid value; 0 is the calling thread.
    let failed = unsafe {
        let parameters: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters)
    };
    if failed == 0 {
        return Ok(());
    }
    Err(OsError::new("sched_setscheduler", "SCHED_IDLE", std::io::Error::last_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::allowed;

    /// The threads that keep CPUs awake, and whether each has the lowest class.
    fn threads() -> Vec<bool> {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
        let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let those = tasks.filter(|task| read(task.path().join("comm")).starts_with("awake-"));
        // The policy is the 41st field, and the name, the second one, has no space.
        let policy = |text: String| text.split(' ').nth(40).map(str::to_owned);
        those.map(|task| policy(read(task.path().join("stat"))).as_deref() == Some("5")).collect()
    }

    #[test]
    fn a_thread_of_the_lowest_class_runs_on_each_cpu_until_it_is_dropped() {
        let cpus = allowed().unwrap();
        // A container may forbid to change the class.
        let awake = match Awake::keep(&cpus, Duration::from_secs(600)) {
            Ok(awake) => awake,
            Err(why) => return eprintln!("SKIP awake: {why}; allow sched_setscheduler"),
        };
        assert_eq!(threads(), vec![true; cpus.len()]);
        drop(awake);
        while !threads().is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        // No such CPU: those that began end.
        let none = Awake::keep(&[cpus[0], 1 << 20], Duration::from_secs(600)).unwrap_err();
        assert!(none.to_string().contains("sched_setaffinity"), "{none}");
        while !threads().is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
