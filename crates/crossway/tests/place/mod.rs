//! A folder for one run of the program, and checks for what the run leaves behind.

// Each test program uses only a part of it.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crossway_records::record::Record;
use crossway_records::records_io::{ReadError, read_records};
use tempfile::TempDir;

/// A folder for one run, with a separate runtime directory, so that only leftovers of this test are found.
pub(crate) struct Place {
    pub(crate) dir: TempDir,
}

impl Place {
    pub(crate) fn new(plan: &str) -> Place {
        let dir = tempfile::Builder::new().prefix("cw").tempdir_in("/tmp").unwrap();
        fs::write(dir.path().join("plan.toml"), plan).unwrap();
        fs::create_dir(dir.path().join("rt")).unwrap();
        Place { dir }
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("crossway"));
        command.args(args).current_dir(self.dir.path());
        command.env("XDG_RUNTIME_DIR", self.dir.path().join("rt"));
        command
    }

    pub(crate) fn measure(&self, args: &[&str]) -> Output {
        let mut all = vec!["measure", "plan.toml"];
        all.extend(args);
        self.command(&all).output().unwrap()
    }

    pub(crate) fn start(&self) -> Child {
        let mut command = self.command(&["measure", "plan.toml"]);
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Returns the folder of the only run.
    pub(crate) fn run(&self) -> PathBuf {
        let mut runs = fs::read_dir(self.dir.path().join("out")).unwrap();
        let run = runs.next().unwrap().unwrap().path();
        assert!(runs.next().is_none(), "more than one run");
        run
    }

    /// Returns the records of the trials that the plan asks for. How many of them were repeated depends on the machine.
    pub(crate) fn records(&self) -> Vec<Record> {
        planned_records(&self.run()).unwrap()
    }

    /// Waits until at least this number of records has been written.
    pub(crate) fn await_records(&self, count: usize) {
        await_that("records", || self.count_records() >= count);
    }

    /// Returns the number of records that have been written.
    pub(crate) fn count_records(&self) -> usize {
        let Ok(runs) = fs::read_dir(self.dir.path().join("out")) else { return 0 };
        let counts = runs.filter_map(Result::ok).map(|run| {
            let text = fs::read_to_string(run.path().join("results.jsonl")).unwrap_or_default();
            text.lines().count()
        });
        counts.max().unwrap_or(0)
    }

    /// Returns what runs have left behind: directories of leases, and processes.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut left: Vec<String> = fs::read_dir(self.dir.path().join("rt/crossway"))
            .map(|entries| {
                entries.filter_map(Result::ok).map(|e| e.path().display().to_string()).collect()
            })
            .unwrap_or_default();
        left.extend(self.processes(|_| true).into_iter().map(|pid| format!("process {pid}")));
        left
    }

    /// Returns the processes whose working directory is this folder and whose command line `wanted` accepts.
    pub(crate) fn processes(&self, wanted: impl Fn(&str) -> bool) -> Vec<i32> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        entries
            .filter_map(Result::ok)
            .filter_map(|e| e.file_name().to_string_lossy().parse::<i32>().ok())
            .filter(|pid| {
                let cwd = fs::read_link(format!("/proc/{pid}/cwd"));
                cwd.is_ok_and(|cwd| cwd == self.dir.path())
            })
            .filter(|pid| {
                let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                wanted(&String::from_utf8_lossy(&line).replace('\0', " "))
            })
            .collect()
    }
}

/// Reads the records of a run, without those of trials that were repeated because the machine had disturbed them.
pub(crate) fn planned_records(run: &Path) -> Result<Vec<Record>, ReadError> {
    let mut records = read_records(run)?.records;
    records.retain(|record| !record.inputs.is_repetition());
    Ok(records)
}

pub(crate) fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(240);
    while !holds() {
        assert!(Instant::now() < until, "{what} never came");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the state of a process as the kernel's letter; `None` if it does not exist.
pub(crate) fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

pub(crate) fn signal(pid: i32, signal: &str) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
    assert!(status.success());
}
