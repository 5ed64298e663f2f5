//! Keeps CPUs from sleeping for a while.
//!
//! A CPU without work sleeps, and wakes up slowly and with cold caches. A thread of the lowest class (SCHED_IDLE) on it gives
//! way to any other at once, and keeps it awake.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::OsError;
use crate::affinity::pin;
use crate::clock::monotonic_ns;

/// Keeps CPUs awake until it is dropped, or for as long as it was told.
#[derive(Debug)]
pub struct Awake {
    done: Arc<AtomicBool>,
    troubles: Receiver<OsError>,
}

impl Awake {
    /// Keeps these CPUs awake for at most a time. Does not wait for its threads: on a CPU that others use fully, one of the
    /// lowest class may begin a second later.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn keep(cpus: &[u32], most: Duration) -> Result<Awake, OsError> {
        let until = monotonic_ns().saturating_add(most.as_nanos() as u64);
        let (say, troubles) = channel();
        let awake = Awake { done: Arc::default(), troubles };
        for cpu in cpus.iter().copied() {
            let (done, say) = (Arc::clone(&awake.done), say.clone());
            std::thread::Builder::new()
                .name(format!("awake-{cpu}"))
                .spawn(move || stay(cpu, &done, until, &say))
                .map_err(|e| OsError::new("clone", "a thread", e))?;
        }
        Ok(awake)
    }

    /// Why a CPU was not kept awake, as far as that is known by now: this process may not run on it, or may not change the
    /// class of a thread.
    pub fn trouble(&self) -> Option<OsError> {
        self.troubles.try_recv().ok()
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        // They are not waited for: one whose CPU is busy sees this only when it gets the CPU again.
        self.done.store(true, Ordering::Relaxed);
    }
}

fn stay(cpu: u32, done: &AtomicBool, until: u64, say: &Sender<OsError>) {
    if let Err(trouble) = pin(cpu).and_then(|()| yield_to_all()) {
        let _ = say.send(trouble);
        return;
    }
    // No pause instruction: a hypervisor may take the CPU away from a thread that pauses again and again.
    while !done.load(Ordering::Relaxed) && monotonic_ns() < until {}
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

    /// Waits until the threads are these.
    fn until_they_are(expected: &[bool]) {
        while threads() != expected {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_thread_of_the_lowest_class_runs_on_each_cpu_until_it_is_dropped() {
        if let Err(why) = std::thread::spawn(yield_to_all).join().unwrap() {
            return eprintln!("SKIP awake: {why}; allow sched_setscheduler");
        }
        let cpus = allowed().unwrap();
        let awake = Awake::keep(&cpus, Duration::from_secs(600)).unwrap();
        until_they_are(&vec![true; cpus.len()]);
        assert!(awake.trouble().is_none());
        drop(awake);
        until_they_are(&[]);
        // There is no such CPU.
        let awake = Awake::keep(&[1 << 20], Duration::from_secs(600)).unwrap();
        let trouble = awake.troubles.recv().unwrap().to_string();
        assert!(trouble.contains("sched_setaffinity"), "{trouble}");
    }
}
