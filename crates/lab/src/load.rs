//! Background load by stress-ng: CPU, memory and I/O workers that start before a trial and end after it.

use std::fs;
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossway_sys::{Obstacle, OsError, family, lease, program};
use serde::{Deserialize, Serialize};

use crate::tools::{self, Found};
use crossway_records::inputs::Load;

/// Total memory of the memory workers, as a stress-ng argument.
const MEMORY_BYTES: &str = "256M";
/// Workers that are not running after this time have failed.
const START_WITHIN: Duration = Duration::from_secs(20);
/// stress-ng exits within some 50 ms; after this time it is killed.
const END_WITHIN: Duration = Duration::from_secs(3);

/// The reason why there is no load.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// stress-ng is missing: the case is skipped.
    #[error(transparent)]
    Missing(Obstacle),
    /// stress-ng is installed but did not start its workers.
    #[error("stress-ng did not start its workers: {0}")]
    Failed(String),
}

impl From<OsError> for LoadError {
    fn from(error: OsError) -> LoadError {
        LoadError::Failed(error.to_string())
    }
}

/// Facts about the load for the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadFacts {
    /// stress-ng's version.
    pub version: String,
    /// stress-ng's arguments.
    pub arguments: Vec<String>,
}

/// Running workers. They are all killed when this value is dropped, or when the thread that started them dies
/// (stress-ng then receives a signal and ends its workers).
#[derive(Debug)]
pub struct RunningLoad {
    child: Child,
    facts: LoadFacts,
    /// The value of the environment variable that marks stress-ng and all its workers.
    mark: String,
    /// Leases on the processes with that mark, and on the folder with the workers' files, which stress-ng leaves behind
    /// when it is killed. Dropped after the workers have ended.
    _leases: [lease::Lease; 2],
}

/// Checks that background load is possible here; returns stress-ng's version.
///
/// # Errors
/// [`LoadError::Missing`] with the remedy.
pub fn probe() -> Result<String, LoadError> {
    let tool = tools::tool_named("stress-ng").map(tools::Tool::find);
    match tool {
        Some(Found::Ready { version, .. }) => Ok(version),
        Some(Found::Missing(obstacle)) => Err(LoadError::Missing(obstacle)),
        None => Err(LoadError::Failed("it is not in the table of tools".to_owned())),
    }
}

/// The arguments for this load, with its files below `folder`. The workers are pinned to `cpus`, or not pinned if
/// `cpus` is empty.
fn arguments(load: &Load, cpus: &[u32], folder: &Path) -> Vec<String> {
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
        // Without `keep`, a worker spends its time mapping and unmapping instead of accessing memory.
        arguments.extend(["--vm-bytes", MEMORY_BYTES, "--vm-keep"].map(str::to_owned));
    }
    if load.io > 0 {
        arguments.extend(["--iomix-bytes", "16M"].map(str::to_owned));
    }
    arguments.extend(["--temp-path".to_owned(), folder.display().to_string()]);
    if !cpus.is_empty() {
        let list = crossway_sys::topology::format_cpu_list(cpus);
        arguments.extend(["--taskset".to_owned(), list]);
    }
    arguments
}

impl RunningLoad {
    /// Starts the workers and returns when all of them are running; `None` if no load is requested.
    ///
    /// # Errors
    /// stress-ng is missing, exited early, or did not start all workers in time, or its folder or leases cannot be
    /// created.
    pub fn start(load: &Load, cpus: &[u32]) -> Result<Option<RunningLoad>, LoadError> {
        if load.is_idle() {
            return Ok(None);
        }
        let version = probe()?;
        // In the folder for temporary files, not next to the leases: I/O workers should reach a disk if that folder is
        // on one.
        let folder = std::env::temp_dir().join(lease::fresh_name("load"));
        let held = lease::hold(lease::Resource::Directory { path: folder.clone() })?;
        let mark = lease::fresh_name("load");
        let relatives = lease::hold(lease::Resource::Family { mark: mark.clone() })?;
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .map_err(|e| OsError::new("mkdir", folder.display(), e))?;
        let arguments = arguments(load, cpus, &folder);
        let path = program::find("stress-ng").unwrap_or_else(|| "stress-ng".into());
        let mut command = Command::new(path);
        // A separate process group, so that its workers can be killed with it.
        command.args(&arguments).env(family::MARK, &mark).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        crossway_sys::proc::terminate_with_parent(&mut command);
        let child = command.spawn().map_err(|e| LoadError::Failed(e.to_string()))?;
        let facts = LoadFacts { version, arguments };
        let mut running = RunningLoad { child, facts, mark, _leases: [relatives, held] };
        running.wait_for_workers((load.cpu + load.memory + load.io) as usize)?;
        Ok(Some(running))
    }

    /// Facts about the running load.
    pub fn facts(&self) -> &LoadFacts {
        &self.facts
    }

    /// Whether the load is still running. A load that ended during a trial makes the trial invalid.
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
                return Err(LoadError::Failed(format!("it ended early ({status}): {why}")));
            }
            if workers_that_ran(self.child.id()) >= wanted {
                return Ok(());
            }
            if Instant::now() > deadline {
                let why = format!(
                    "fewer than {wanted} workers were running after {} s",
                    START_WITHIN.as_secs()
                );
                return Err(LoadError::Failed(why));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for RunningLoad {
    fn drop(&mut self) {
        // Send a signal first, because the I/O workers have files to remove.
        crossway_sys::proc::terminate(self.child.id());
        let deadline = Instant::now() + END_WITHIN;
        while self.is_running() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        if self.is_running() {
            crossway_sys::proc::kill_group(self.child.id());
            let _ = self.child.wait();
        }
        // If stress-ng was killed by somebody else, its workers are still running.
        family::kill_marked(&self.mark);
    }
}

/// Number of children of `parent` that have completed their start. A child is then named after its kind of worker, for
/// example `stress-ng-cpu`.
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
    use std::path::PathBuf;

    use super::*;

    const ONE_EACH: Load = Load { cpu: 1, memory: 1, io: 1 };

    #[test]
    fn arguments_say_what_runs_where() {
        let folder = Path::new("/tmp/x");
        let free = arguments(&Load { cpu: 2, memory: 0, io: 0 }, &[], folder);
        assert_eq!(free, ["--quiet", "--cpu", "2", "--temp-path", "/tmp/x"]);
        let pinned = arguments(&Load { cpu: 1, memory: 1, io: 0 }, &[0, 1, 3], folder).join(" ");
        let wanted =
            "--quiet --cpu 1 --vm 1 --vm-bytes 256M --vm-keep --temp-path /tmp/x --taskset 0-1,3";
        assert_eq!(pinned, wanted);
    }

    #[test]
    fn no_load_starts_nothing() {
        assert!(RunningLoad::start(&Load::default(), &[]).expect("nothing to do").is_none());
    }

    fn started(test: &str) -> Option<RunningLoad> {
        match RunningLoad::start(&ONE_EACH, &[]) {
            Ok(load) => Some(load.expect("a load was asked for")),
            Err(LoadError::Missing(obstacle)) => {
                eprintln!("SKIP {test}: {obstacle}");
                None
            }
            Err(e) => panic!("{e}"),
        }
    }

    fn workers_of(load: &RunningLoad) -> Vec<u32> {
        let workers = family::descendants(load.child.id());
        assert!(workers.len() >= 3, "{workers:?}");
        workers
    }

    /// The folder of the workers' files.
    fn folder_of(load: &RunningLoad) -> PathBuf {
        let at = load.facts.arguments.iter().position(|a| a == "--temp-path").expect("named");
        PathBuf::from(&load.facts.arguments[at + 1])
    }

    fn await_end_of(workers: &[u32]) {
        let deadline = Instant::now() + Duration::from_secs(120);
        // Killed workers disappear only when init or a subreaper has reaped them.
        while workers.iter().any(|w| crossway_sys::proc::started_ticks(*w).is_some()) {
            assert!(Instant::now() < deadline, "workers are left: {workers:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn workers_run_until_dropped_and_none_is_left() {
        let Some(mut load) = started("workers_run_until_dropped_and_none_is_left") else { return };
        assert!(load.is_running());
        assert!(load.facts().version.contains("stress-ng"), "{:?}", load.facts());
        let (workers, folder) = (workers_of(&load), folder_of(&load));
        assert!(folder.is_dir(), "{}", folder.display());
        drop(load);
        assert!(!folder.exists(), "the workers' folder is left: {}", folder.display());
        await_end_of(&workers);
    }

    /// A stress-ng that is killed does not remove its files, and its workers do not notice its death. Dropping the load
    /// removes both.
    #[test]
    fn a_killed_stress_ng_leaves_no_folder_and_no_worker() {
        let Some(mut load) = started("a_killed_stress_ng_leaves_no_folder_and_no_worker") else {
            return;
        };
        let (workers, folder) = (workers_of(&load), folder_of(&load));
        load.child.kill().expect("it runs");
        load.child.wait().expect("it was killed");
        assert!(!load.is_running());
        drop(load);
        assert!(!folder.exists(), "the workers' folder is left: {}", folder.display());
        await_end_of(&workers);
    }
}
