//! The folder of a run: `results.jsonl`, to which records are only appended, and the files next to it.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossway_sys::{OsError, whole_file};
use serde::Serialize;

use super::Options;
use super::error::{Asker, RunError};
use crate::case::Case;
use crate::env::{self, Build, Environment};
use crate::plan::{Plan, PlanError};
use crate::preflight::Finding;
use crossway_records::inputs::Inputs;
use crossway_records::record::Record;
use crossway_records::records_io::{self, RESULTS};
use crossway_records::run_info::{RUN, RunInfo};

/// Name of the plan in the folder of a run.
pub const PLAN: &str = "plan.toml";

/// Returns the name of the first input that differs between a trial and its case; the inputs that are set for each
/// trial do not count.
fn differs(trial: &Inputs, case: &Inputs) -> Option<String> {
    let planned = |inputs: &Inputs| {
        let inputs = Inputs { trial: 0, order: 0, cpus: Vec::new(), ..inputs.clone() };
        match serde_json::to_value(inputs) {
            Ok(serde_json::Value::Object(fields)) => fields,
            _ => serde_json::Map::new(),
        }
    };
    let (trial, case) = (planned(trial), planned(case));
    trial.keys().chain(case.keys()).find(|key| trial.get(*key) != case.get(*key)).cloned()
}

/// The open folder of a run.
#[derive(Debug)]
pub struct Folder {
    dir: PathBuf,
    asker: Asker,
    info: RunInfo,
    results: File,
}

impl Folder {
    /// Creates the folder of a new run below `out`.
    pub(super) fn create(
        out: &Path,
        plan: &Plan,
        options: &Options,
        trials: u64,
    ) -> Result<Self, RunError> {
        let info = RunInfo {
            run: new_name(),
            name: options.name.clone(),
            plan: plan.name.clone(),
            filters: options.filters.clone(),
            hosts: options.hosts.clone(),
            started_unix_ms: crossway_sys::clock::unix_ms(),
            trials: Some(trials),
        };
        let dir = out.join(&info.run);
        let none = |cause| RunError::NoFolder { dir: dir.clone(), asker: options.asker, cause };
        fs::create_dir_all(&dir).map_err(none)?;
        let fill = || {
            fs::write(dir.join(PLAN), &plan.text)?;
            fs::write(dir.join(RUN), pretty(&info)?)?;
            OpenOptions::new().create_new(true).append(true).open(dir.join(RESULTS))
        };
        let results = fill().map_err(|cause| {
            // Nothing has been measured yet, so the folder would be useless: remove it.
            let _ = fs::remove_dir_all(&dir);
            none(cause)
        })?;
        lock(&results, &dir)?;
        Ok(Folder { dir, asker: options.asker, info, results })
    }

    /// Opens the folder of a run that was interrupted. Removes an incomplete last line, as left by a kill during a
    /// write.
    pub(super) fn reopen(dir: &Path) -> Result<Self, RunError> {
        let info = Self::info(dir)?;
        let path = dir.join(RESULTS);
        if path.is_symlink() {
            // What is behind a link, which may be a stranger's, would be cut and written.
            let why = format!("its {RESULTS} is a symbolic link");
            return Err(RunError::NoRun { dir: dir.to_owned(), why });
        }
        let mut results =
            OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(
                |cause| RunError::Unwritten {
                    path: path.clone(),
                    dir: dir.to_owned(),
                    asker: Asker::Measure,
                    cause,
                },
            )?;
        lock(&results, dir)?;
        let mut bytes = Vec::new();
        results
            .seek(SeekFrom::Start(0))
            .and_then(|_| results.read_to_end(&mut bytes))
            .map_err(|e| OsError::new("read", path.display(), e))?;
        let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        results.set_len(whole as u64).map_err(|e| OsError::new("truncate", path.display(), e))?;
        Ok(Folder { dir: dir.to_owned(), asker: Asker::Measure, info, results })
    }

    /// Reads `run.json`.
    pub fn info(dir: &Path) -> Result<RunInfo, RunError> {
        RunInfo::read(dir).map_err(|why| RunError::NoRun { dir: dir.to_owned(), why })
    }

    /// Checks that a run may be continued here. `env.json` describes all of its records, so they must come from one
    /// machine and one build.
    pub(super) fn check_origin(dir: &Path, here: &Environment) -> Result<(), RunError> {
        let Some(begun) = records_io::read_beside::<Environment>(dir, records_io::ENVIRONMENT)?
        else {
            // Written before the first record.
            let has_records = fs::metadata(dir.join(RESULTS)).is_ok_and(|file| file.len() > 0);
            let why = format!("it has records, but no {}", records_io::ENVIRONMENT);
            return match has_records {
                true => Err(RunError::NoRun { dir: dir.to_owned(), why }),
                false => Ok(()),
            };
        };
        let build = |b: &Build| {
            format!("crossway {} {} ({}, {})", b.version, b.revision, b.profile, b.rustc)
        };
        let why = if begun.machine_id != here.machine_id {
            let other = env::difference(&begun.machine_facts, &here.machine_facts);
            let names: Vec<String> = other.into_iter().map(|(name, ..)| name).collect();
            match names.is_empty() {
                true => "it was started on a different machine".to_owned(),
                false => {
                    format!("it was started on a machine with a different {}", names.join(", "))
                }
            }
        } else if begun.build != here.build {
            format!("it was started by {}, but this is {}", build(&begun.build), build(&here.build))
        } else {
            return Ok(());
        };
        Err(RunError::OtherOrigin { dir: dir.to_owned(), why })
    }

    /// Checks that the records of a run that is to be continued come from these cases.
    pub(super) fn check_plan(&self, cases: &[Case], records: &[Record]) -> Result<(), RunError> {
        let refused = |why| Err(RunError::OtherPlan { dir: self.dir.clone(), why });
        let planned: u64 = cases.iter().map(|case| u64::from(case.inputs.trials)).sum();
        if let Some(begun) = self.info.trials.filter(|begun| *begun != planned) {
            return refused(format!("it began with {begun} trials, but the plan has {planned}"));
        }
        let of_case: HashMap<(&str, &str), &Inputs> = cases
            .iter()
            .map(|case| ((case.group.as_str(), case.id.as_str()), &case.inputs))
            .collect();
        for record in records {
            let name = format!("{}/{}", record.group, record.case);
            let Some(inputs) = of_case.get(&(record.group.as_str(), record.case.as_str())) else {
                return refused(format!("the plan lacks {name}"));
            };
            if let Some(what) = differs(&record.inputs, inputs) {
                return refused(format!(
                    "{name} has trials in which '{what}' differs from the plan"
                ));
            }
        }
        Ok(())
    }

    /// Reads the plan stored in a run's folder.
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

    /// The records that the run has so far.
    pub(super) fn records(&self) -> Result<Vec<Record>, RunError> {
        Ok(records_io::records_so_far(&self.dir.join(RESULTS))?.records)
    }

    /// Appends a record: one line in one write, so that a kill can damage only the last line.
    pub(super) fn append(&mut self, record: &Record) -> Result<(), RunError> {
        let path = self.dir.join(RESULTS);
        let mut line = serde_json::to_vec(record)
            .map_err(|e| OsError::new("encode record", path.display(), std::io::Error::other(e)))?;
        line.push(b'\n');
        self.results.write_all(&line).map_err(|cause| self.unwritten(path, cause))
    }

    /// Writes a JSON file next to the results, either completely or not at all. A run with a file truncated by a full
    /// disk could not be continued.
    pub(super) fn write_beside(&self, name: &str, what: &impl Serialize) -> Result<(), RunError> {
        let path = self.dir.join(name);
        let write = || {
            let text = pretty(what)?;
            whole_file::write(&path, |file| file.write_all(&text))
        };
        write().map_err(|cause| self.unwritten(path.clone(), cause))
    }

    /// Appends findings about the machine's state to those stored earlier, when the run was started or continued. A
    /// finding that is already stored is not repeated.
    pub(super) fn add_findings(&self, findings: &[Finding]) -> Result<(), RunError> {
        let mut all: Vec<Finding> =
            records_io::read_beside(&self.dir, records_io::PREFLIGHT)?.unwrap_or_default();
        for finding in findings {
            let known = |f: &Finding| f.about == finding.about && f.what == finding.what;
            if !all.iter().any(known) {
                all.push(finding.clone());
            }
        }
        self.write_beside(records_io::PREFLIGHT, &all)
    }

    /// The error for a file in the folder that could not be written.
    pub(super) fn unwritten(&self, path: PathBuf, cause: std::io::Error) -> RunError {
        RunError::Unwritten { path, dir: self.dir.clone(), asker: self.asker, cause }
    }
}

/// Maximum number of attempts to lock a file that is locked, and the pause between two attempts. Readers hold the lock
/// only for an instant.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Locks the file of a run's records for as long as it is open, so that a second process cannot measure the same run.
/// The kernel releases the lock when the process ends, however it ends. If the file system does not support locks, logs
/// a warning and succeeds.
fn lock(results: &File, dir: &Path) -> Result<(), RunError> {
    for _ in 0..LOCK_TRIES {
        match results.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(error)) => {
                tracing::warn!(
                    "{}: this run cannot be protected from a second process, because the file system does not support \
                     locks: {error}",
                    dir.display()
                );
                return Ok(());
            }
        }
    }
    Err(RunError::Busy { dir: dir.to_owned() })
}

/// Formats JSON with indentation and a newline at the end.
fn pretty(what: &impl Serialize) -> std::io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(what).map_err(std::io::Error::other)?;
    text.push(b'\n');
    Ok(text)
}

/// A new name, e.g. `2026-11-21T17-40-02Z-a1b2`. Names sort by time and are valid file names everywhere.
pub fn new_name() -> String {
    let now = jiff::Timestamp::now();
    format!(
        "{}-{:04x}",
        now.strftime("%Y-%m-%dT%H-%M-%SZ"),
        crossway_sys::lease::random_number() as u16
    )
}
