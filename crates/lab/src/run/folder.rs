//! A run's folder: `results.jsonl` that only grows, and what lies beside it.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crossway_sys::OsError;
use serde::{Deserialize, Serialize};

use super::Options;
use crate::plan::{Plan, PlanError};
use crate::record::Record;
use crate::records_io::{self, RESULTS, ReadError};

/// Group, case and trial of what is written already.
pub(super) type Done = BTreeSet<(String, String, u32)>;

const PLAN: &str = "plan.toml";
const RUN: &str = "run.json";

/// Why a run could not be made or gone on with.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No case is left.
    #[error("no case matches the filter {filters}; `--list` shows all cases")]
    Nothing {
        /// The filters.
        filters: String,
    },
    /// The folder holds no run.
    #[error("{}: cannot go on with this run: {why}", dir.display())]
    NoRun {
        /// The folder.
        dir: PathBuf,
        /// Why.
        why: String,
    },
    /// A host of the command line cannot be used.
    #[error("{0}")]
    Host(crate::agent::HostError),
    /// The hosts that a run was begun with cannot be used for its plan.
    #[error("{0}")]
    Hosts(#[from] crate::plan::HostsError),
    /// Asked to stop before the first trial.
    #[error("interrupted before the first trial")]
    Interrupted,
    /// Its records cannot be read.
    #[error("{0}")]
    Records(#[from] ReadError),
    /// Its plan cannot be read.
    #[error("{0}")]
    Plan(#[from] PlanError),
    /// A system call failed.
    #[error("{0}")]
    Os(#[from] OsError),
}

/// What identifies a run, in `run.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Start in UTC and a random suffix; the folder's name.
    pub run: String,
    /// The plan's name.
    pub plan: String,
    /// Patterns on group and case.
    pub filters: Vec<String>,
    /// The hosts of the command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<String>,
    /// Start, milliseconds since 1970 UTC.
    pub started_unix_ms: u64,
}

/// An open run's folder.
#[derive(Debug)]
pub struct Folder {
    dir: PathBuf,
    info: RunInfo,
    results: File,
}

impl Folder {
    /// Makes the folder of a new run below `out`.
    pub(super) fn create(out: &Path, plan: &Plan, options: &Options) -> Result<Self, RunError> {
        let info = RunInfo {
            run: new_name(),
            plan: plan.name.clone(),
            filters: options.filters.clone(),
            hosts: options.hosts.clone(),
            started_unix_ms: crossway_sys::clock::unix_ms(),
        };
        let dir = out.join(&info.run);
        fs::create_dir_all(&dir).map_err(|e| OsError::new("mkdir", dir.display(), e))?;
        let text = |name: &str, text: &str| {
            let path = dir.join(name);
            fs::write(&path, text).map_err(|e| OsError::new("write", path.display(), e))
        };
        text(PLAN, &plan.text)?;
        let path = dir.join(RESULTS);
        let results = OpenOptions::new()
            .create_new(true)
            .append(true)
            .open(&path)
            .map_err(|e| OsError::new("create", path.display(), e))?;
        let folder = Folder { dir, info, results };
        folder.write_beside(RUN, &folder.info)?;
        Ok(folder)
    }

    /// Opens the folder of a run that was interrupted. A torn last line, left by a kill in mid-write, is cut off.
    pub(super) fn reopen(dir: &Path) -> Result<Self, RunError> {
        let info = Self::info(dir)?;
        let path = dir.join(RESULTS);
        let mut results = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(&path)
            .map_err(|e| OsError::new("open", path.display(), e))?;
        let mut bytes = Vec::new();
        results
            .seek(SeekFrom::Start(0))
            .and_then(|_| results.read_to_end(&mut bytes))
            .map_err(|e| OsError::new("read", path.display(), e))?;
        let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        results.set_len(whole as u64).map_err(|e| OsError::new("truncate", path.display(), e))?;
        Ok(Folder { dir: dir.to_owned(), info, results })
    }

    /// What `run.json` says.
    pub fn info(dir: &Path) -> Result<RunInfo, RunError> {
        let bad = |why: String| RunError::NoRun { dir: dir.to_owned(), why };
        let text = fs::read(dir.join(RUN)).map_err(|e| bad(format!("{RUN}: {e}")))?;
        serde_json::from_slice(&text).map_err(|e| bad(format!("{RUN}: {e}")))
    }

    /// The plan that a run's folder keeps.
    pub fn plan(dir: &Path) -> Result<Plan, RunError> {
        let info = Self::info(dir)?;
        let path = dir.join(PLAN);
        let text = fs::read_to_string(&path)
            .map_err(|cause| PlanError::Unreadable { path: path.clone(), cause })?;
        let mut plan = Plan::parse(&info.plan, &path.display().to_string(), &text)?;
        if let Some(hosts) = &info.hosts {
            plan.set_hosts(hosts)?;
        }
        Ok(plan)
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The run's name.
    pub fn run(&self) -> &str {
        &self.info.run
    }

    /// What is written already.
    pub(super) fn done(&self) -> Result<Done, RunError> {
        let path = self.dir.join(RESULTS);
        if fs::metadata(&path).is_ok_and(|m| m.len() == 0) {
            return Ok(BTreeSet::new());
        }
        let loaded = records_io::read_records(&path)?;
        Ok(loaded.records.into_iter().map(|r| (r.group, r.case, r.inputs.trial)).collect())
    }

    /// Appends a record: one line, one write, so that a kill tears at most the last line.
    pub(super) fn append(&mut self, record: &Record) -> Result<(), RunError> {
        let path = self.dir.join(RESULTS);
        let mut line = serde_json::to_vec(record)
            .map_err(|e| OsError::new("encode record", path.display(), std::io::Error::other(e)))?;
        line.push(b'\n');
        self.results.write_all(&line).map_err(|e| OsError::new("append", path.display(), e))?;
        Ok(())
    }

    /// Writes a JSON file beside the results.
    pub(super) fn write_beside(&self, name: &str, what: &impl Serialize) -> Result<(), RunError> {
        let path = self.dir.join(name);
        let mut text = serde_json::to_vec_pretty(what)
            .map_err(|e| OsError::new("encode", path.display(), std::io::Error::other(e)))?;
        text.push(b'\n');
        fs::write(&path, text).map_err(|e| OsError::new("write", path.display(), e))?;
        Ok(())
    }
}

/// E.g. `2026-11-21T17-40-02Z-a1b2`: sorts by time, and is a file name everywhere.
fn new_name() -> String {
    let now = jiff::Timestamp::now();
    format!("{}-{:04x}", now.strftime("%Y-%m-%dT%H-%M-%SZ"), crossway_sys::lease::chance() as u16)
}
