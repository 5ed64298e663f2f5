//! The worker for one mechanism or contender: makes all attempts and writes their records to standard output.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use crossway_mech::{Probe, Wait, registry};
use crossway_sys::{Obstacle, OsError, clock, lease};
use serde::{Deserialize, Serialize};

use super::bench::{Bench, size_bytes};
use super::cells::{self, Cell};
use super::observation::{NoObservation, Observation};
use super::outside::Outside;
use super::{FaultRecord, Outcome, SCHEMA};
use crate::contender::{Contender, Launch};
use crate::launcher::Launcher;
use crossway_records::record::Status;

/// The task of a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Work {
    pub(super) mechanism: String,
    pub(super) contender: Option<Foreign>,
    pub(super) run: String,
    pub(super) environment: String,
    pub(super) watch_ms: u64,
    /// Why the worker has no private file systems and IPC; `None` if it has them.
    pub(super) not_private: Option<Obstacle>,
    pub(super) role: Vec<String>,
}

/// The data about a contender that a worker needs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Foreign {
    launch: Launch,
    remedy: String,
    /// Why the contender cannot be started at all; `None` if it can.
    missing: Option<String>,
}

impl Foreign {
    pub(super) fn of(contender: &Contender) -> Foreign {
        let built = contender.is_built();
        let remedy = match built {
            true => contender.remedy.clone(),
            false => format!("crossway contender build {}", contender.id),
        };
        let missing = (!built).then(|| "it is not built".to_owned());
        Foreign { launch: contender.launch(0), remedy, missing }
    }

    /// Whether the program is below `/tmp` and so would not be found under a private `/tmp`.
    pub(super) fn lies_in_tmp(&self) -> bool {
        let helpers = self.launch.helpers.to_string_lossy();
        let words = self.launch.run.iter().map(String::as_str).chain([&*helpers]);
        words.into_iter().any(|word| word.starts_with("/tmp/"))
    }
}

/// Runs a worker: all cells of one mechanism, with one record per line on standard output.
///
/// # Errors
/// The task cannot be parsed or names an unknown mechanism, leases cannot be created, or a record cannot be written.
pub fn work(task: &str) -> Result<(), OsError> {
    let bad = |why: String| OsError::new("read", "the worker's task", std::io::Error::other(why));
    let work: Work = serde_json::from_slice(task.as_bytes()).map_err(|e| bad(e.to_string()))?;
    let leases = lease::Run::begin(None)?;
    if let Some(foreign) = &work.contender {
        let watch = Duration::from_millis(work.watch_ms);
        let outside =
            Outside { launch: &foreign.launch, watch, not_private: work.not_private.clone() };
        let probe = match foreign.missing.clone().map_or_else(|| outside.version(), Err) {
            Ok(version) => Probe::Ready { version },
            Err(why) => Probe::Missing(Obstacle::new(why, &foreign.remedy)),
        };
        let wait = if foreign.launch.caps.can_block { Wait::Block } else { Wait::Spin };
        let size = size_bytes(&foreign.launch.caps);
        return matrix_of(&work, &probe, wait, size, |cell, trial| outside.attempt(cell, trial));
    }
    let entry = registry::find(&work.mechanism).ok_or_else(|| bad(work.mechanism.clone()))?;
    let launcher = Launcher {
        // Not by its path, which may be hidden by a mount here, and not as `self`, which may be a different program
        // when the role starts.
        program: PathBuf::from(format!("/proc/{}/exe", std::process::id())),
        args: work.role.clone(),
        interrupt: None,
    };
    let bench = Bench {
        mechanism: entry.id,
        caps: (entry.caps)(),
        launcher: &launcher,
        run: &leases,
        watch: Duration::from_millis(work.watch_ms),
        not_private: work.not_private.clone(),
    };
    let size = size_bytes(&bench.caps);
    matrix_of(&work, &(entry.probe)(), bench.wait(), size, |cell, trial| bench.attempt(cell, trial))
}

/// Tries all cells and writes their records.
fn matrix_of(
    work: &Work,
    probe: &Probe,
    wait: Wait,
    size_bytes: u64,
    attempt: impl Fn(&Cell, u32) -> Result<Observation, NoObservation>,
) -> Result<(), OsError> {
    let mut out = std::io::stdout().lock();
    for cell in cells::all() {
        // Two programs are started for each attempt on a contender, which takes up to a second in some languages.
        let trials = if work.contender.is_some() { 1 } else { cell.trials };
        for trial in 0..trials {
            let mut record = blank(work, &cell, trial, wait, size_bytes);
            match probe {
                Probe::Ready { version } => {
                    record.mechanism_version = Some(version.clone());
                    enter(&mut record, attempt(&cell, trial));
                }
                Probe::Missing(obstacle) => {
                    record.status = Status::Skipped;
                    record.reason = Some(obstacle.why.clone());
                    record.remedy = Some(obstacle.remedy.clone());
                }
            }
            let text = serde_json::to_string(&record)
                .map_err(|e| OsError::new("encode", "a fault record", std::io::Error::other(e)))?;
            writeln!(out, "{text}").map_err(|e| OsError::new("write", "standard output", e))?;
            // Silence does not depend on timing, and what is impossible once stays impossible: do not repeat.
            let silent = matches!(record.outcome, Some(Outcome::Hung | Outcome::Unnoticed));
            if silent || record.status == Status::Skipped {
                break;
            }
        }
    }
    Ok(())
}

fn blank(work: &Work, cell: &Cell, trial: u32, wait: Wait, size_bytes: u64) -> FaultRecord {
    FaultRecord {
        schema: SCHEMA,
        run: work.run.clone(),
        started_unix_ms: clock::unix_ms(),
        environment: work.environment.clone(),
        mechanism: work.mechanism.clone(),
        mechanism_version: None,
        wait,
        size_bytes,
        fault: cell.fault,
        state: cell.state,
        affected: cell.affected,
        survivor: cell.survivor(),
        trial,
        status: Status::Ok,
        reason: None,
        remedy: None,
        outcome: None,
        detected_by: None,
        detected_after_ns: None,
        hung: false,
        watched_ns: work.watch_ms * 1_000_000,
        sent: None,
        received: None,
        received_not_sent: None,
        sent_lost: None,
        left_behind: None,
        warnings: Vec::new(),
    }
}

fn enter(record: &mut FaultRecord, result: Result<Observation, NoObservation>) {
    match result {
        Ok(seen) => {
            record.outcome = seen.outcome;
            record.detected_by = seen.detected_by;
            record.detected_after_ns = seen.detected_after_ns;
            record.hung = seen.hung;
            record.sent = seen.sent;
            record.received = seen.received;
            record.received_not_sent = seen.received_not_sent;
            record.sent_lost = seen.sent_lost;
            record.left_behind = seen.left_behind;
            record.warnings = seen.warnings;
        }
        Err(NoObservation::Skipped { why, remedy }) => {
            record.status = Status::Skipped;
            record.reason = Some(why);
            record.remedy = remedy;
        }
        Err(NoObservation::Failed(why)) => {
            record.status = Status::Failed;
            record.reason = Some(why);
        }
    }
}
