//! Background load by stress-ng: processor, memory and input/output workers, running before a trial begins and gone
//! after it.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::inputs::Load;
use crate::tools::{self, Found};

/// Memory that the memory workers share.
const MEMORY_BYTES: &str = "256M";
/// Workers that do not run by then never will.
const START_WITHIN: Duration = Duration::from_secs(20);
/// It takes some 50 ms to end; what takes longer is killed.
const END_WITHIN: Duration = Duration::from_secs(3);

/// Why there is no load.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// stress-ng is missing: the case is skipped.
    #[error("{why}; {remedy}")]
    Missing {
        /// What is missing.
        why: String,
        /// The line that mends it.
        remedy: String,
    },
    /// It is there and did not run.
    #[error("stress-ng did not start its workers: {0}")]
    Failed(String),
}

/// What ran, for the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadFacts {
    /// stress-ng's version.
    pub version: String,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// Running workers. Dropping it kills them all; so does the death of the thread that started them (stress-ng is then
/// asked to end, and its workers follow it).
#[derive(Debug)]
pub struct RunningLoad {
    child: Child,
    facts: LoadFacts,
}

/// Whether loads can be made here.
///
/// # Errors
/// [`LoadError::Missing`] with the remedy.
pub fn probe() -> Result<String, LoadError> {
    let tool = tools::tool_named("stress-ng").map(tools::Tool::find);
    match tool {
        Some(Found::Ready { version, .. }) => Ok(version),
        Some(Found::Missing { why, remedy }) => Err(LoadError::Missing { why, remedy }),
        None => Err(LoadError::Failed("it is not in the table of tools".to_owned())),
    }
}

/// The arguments that make this load; `cpus` pins the workers, empty leaves them free.
fn arguments(load: &Load, cpus: &[u32]) -> Vec<String> {
    let mut arguments = vec!["--quiet".to_owned()];
    let mut workers = |option: &str, n: u32| {
        if n > 0 {
            arguments.extend([format!("--{option}"), n.to_string()]);
        }
    };
    workers("cpu", load.cpu);
    workers("vm", load.memory);
    workers("iomix", load.io);
    if load.memory > 0 {
        // Without `keep` a worker spends its time mapping and unmapping instead of on the memory.
        arguments.extend(["--vm-bytes", MEMORY_BYTES, "--vm-keep"].map(str::to_owned));
    }
    if load.io > 0 {
        arguments.extend(["--iomix-bytes", "16M"].map(str::to_owned));
        arguments.extend(["--temp-path".to_owned(), std::env::temp_dir().display().to_string()]);
    }
    if !cpus.is_empty() {
        let list = crossway_sys::topology::format_cpu_list(cpus);
        arguments.extend(["--taskset".to_owned(), list]);
    }
    arguments
}

impl RunningLoad {
    /// Starts the workers and returns when all of them run. `None` for no load.
    ///
    /// # Errors
    /// stress-ng is missing, or ended early.
    pub fn start(load: &Load, cpus: &[u32]) -> Result<Option<RunningLoad>, LoadError> {
        if load.is_idle() {
            return Ok(None);
        }
        let version = probe()?;
        let arguments = arguments(load, cpus);
        let path = tools::locate("stress-ng").unwrap_or_else(|| "stress-ng".into());
        let mut command = Command::new(path);
        // A process group of its own, so that its workers can be killed with it.
        command.args(&arguments).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        crossway_sys::proc::terminate_with_parent(&mut command);
        let child = command.spawn().map_err(|e| LoadError::Failed(e.to_string()))?;
        let facts = LoadFacts { version, arguments };
        let mut running = RunningLoad { child, facts };
        running.wait_for_workers((load.cpu + load.memory + load.io) as usize)?;
        Ok(Some(running))
    }

    /// What runs.
    pub fn facts(&self) -> &LoadFacts {
        &self.facts
    }

    /// Whether it still runs: a load that ended during a trial spoils it.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn wait_for_workers(&mut self, wanted: usize) -> Result<(), LoadError> {
        let deadline = Instant::now() + START_WITHIN;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                let mut why = String::new();
                if let Some(mut stderr) = self.child.stderr.take() {
                    let _ = stderr.read_to_string(&mut why);
                }
                let why = why.lines().next().unwrap_or("no message").to_owned();
                return Err(LoadError::Failed(format!("it ended with {status}: {why}")));
            }
            if workers_that_ran(self.child.id()) >= wanted {
                return Ok(());
            }
            if Instant::now() > deadline {
                let why = format!("fewer than {wanted} run after {} s", START_WITHIN.as_secs());
                return Err(LoadError::Failed(why));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        // Asked first, because the input/output workers have files to remove.
        crossway_sys::proc::terminate(self.child.id());
        let deadline = Instant::now() + END_WITHIN;
        while self.is_running() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        if self.is_running() {
            crossway_sys::proc::kill_group(self.child.id());
            let _ = self.child.wait();
        }
    }
}

/// Children of `parent` that are past their own start: each then bears its worker's name, `stress-ng-cpu`.
fn workers_that_ran(parent: u32) -> usize {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let children = std::fs::read_to_string(path).unwrap_or_default();
    children
        .split_whitespace()
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok())
        .filter(|name| name.starts_with("stress-ng-"))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_EACH: Load = Load { cpu: 1, memory: 1, io: 1 };

    #[test]
    fn arguments_say_what_runs_where() {
        let free = arguments(&Load { cpu: 2, memory: 0, io: 0 }, &[]);
        assert_eq!(free, ["--quiet", "--cpu", "2"]);
        let pinned = arguments(&Load { cpu: 1, memory: 1, io: 0 }, &[0, 1, 3]).join(" ");
        assert_eq!(pinned, "--quiet --cpu 1 --vm 1 --vm-bytes 256M --vm-keep --taskset 0-1,3");
    }

    #[test]
    fn no_load_starts_nothing() {
        assert!(RunningLoad::start(&Load::default(), &[]).expect("nothing to do").is_none());
    }

    #[test]
    fn workers_run_until_dropped_and_none_is_left() {
        let mut load = match RunningLoad::start(&ONE_EACH, &[0]) {
            Ok(load) => load.expect("a load was asked for"),
            Err(LoadError::Missing { why, remedy }) => {
                eprintln!("SKIP workers_run_until_dropped_and_none_is_left: {why}; {remedy}");
                return;
            }
            Err(e) => panic!("{e}"),
        };
        assert!(load.is_running());
        assert!(load.facts().version.contains("stress-ng"), "{:?}", load.facts());
        let group = load.child.id();
        let children = std::fs::read_to_string(format!("/proc/{group}/task/{group}/children"));
        let workers: Vec<u32> =
            children.expect("it runs").split_whitespace().filter_map(|p| p.parse().ok()).collect();
        assert!(workers.len() >= 3, "{workers:?}");
        drop(load);
        let left = std::fs::read_dir(std::env::temp_dir()).expect("readable").flatten().any(|e| {
            let name = e.file_name().to_string_lossy().into_owned();
            name.starts_with("tmp-stress-ng-")
                && (name.contains(&format!("-{group}-"))
                    || workers.iter().any(|w| name.contains(&format!("-{w}-"))))
        });
        assert!(!left, "a folder of the workers is left");
        let deadline = Instant::now() + Duration::from_secs(120);
        // Killed workers are gone once init or a subreaper has collected them.
        while workers.iter().any(|w| crossway_sys::proc::started_ticks(*w).is_some()) {
            assert!(Instant::now() < deadline, "workers are left: {workers:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
