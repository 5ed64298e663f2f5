//! Runs the whole matrix: one worker process per mechanism, with private file systems and IPC, and collects their
//! records.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use crossway_mech::{Probe, Wait, registry};
use crossway_sys::{OsError, clock, lease, proc};
use serde::{Deserialize, Serialize};

use super::bench::{Bench, size_bytes};
use super::cells::{self, Cell};
use super::estimate::estimate;
use super::observation::{NoObservation, Observation};
use super::outside::Outside;
use super::{FaultRecord, Outcome, SCHEMA, places};
use crate::catalogue::{self, Entry};
use crate::contender::{Contender, Launch};
use crate::env::Environment;
use crate::launcher::Launcher;
use crate::record::Status;
use crate::run::new_name;
use crate::shutdown;

/// Options of the matrix.
#[derive(Debug)]
pub struct Options {
    /// Ids of the mechanisms and contenders; empty: all.
    pub mechanisms: Vec<String>,
    /// How long a silent survivor is watched before it counts as hung.
    pub watch: Duration,
    /// Path of this program.
    pub program: PathBuf,
    /// Arguments that make this program run [`work`]; a task in JSON is appended.
    pub worker: Vec<String>,
    /// Arguments that make this program a role.
    pub role: Vec<String>,
    /// Readable when the matrix should stop.
    pub interrupt: Option<OwnedFd>,
}

/// Progress of the matrix, for display.
#[derive(Debug)]
pub enum FaultEvent<'a> {
    /// The matrix begins.
    Begin {
        /// Number of mechanisms and contenders.
        entries: usize,
        /// About how long it takes at most, if all of them work here.
        at_most: Duration,
    },
    /// Private file systems and IPC namespaces cannot be created, so that some faults are skipped.
    NoPrivatePlaces {
        /// Reason and remedy.
        why: &'a str,
    },
    /// A record was written.
    Record {
        /// The record.
        record: &'a FaultRecord,
        /// Number of records so far.
        done: usize,
        /// Approximate number of records in total.
        of: usize,
    },
}

/// The reason why the matrix was not completed.
#[derive(Debug, thiserror::Error)]
pub enum MatrixError {
    /// There is no such mechanism or contender.
    #[error("there is no mechanism or contender '{0}'; `crossway list` shows all")]
    Unknown(String),
    /// A stop was requested; the records are incomplete.
    #[error("interrupted")]
    Interrupted,
    /// A worker died; the records of its mechanism are incomplete.
    #[error("the worker for {mechanism} {how}")]
    Worker {
        /// The mechanism.
        mechanism: String,
        /// How it exited.
        how: String,
    },
    /// A system call failed.
    #[error("{0}")]
    Os(#[from] OsError),
}

/// The task of a worker.
#[derive(Debug, Serialize, Deserialize)]
struct Work {
    mechanism: String,
    contender: Option<Foreign>,
    run: String,
    environment: String,
    watch_ms: u64,
    private: bool,
    role: Vec<String>,
}

/// An external program, as the worker needs it.
#[derive(Debug, Serialize, Deserialize)]
struct Foreign {
    launch: Launch,
    remedy: String,
    /// Why it cannot be started at all.
    missing: Option<String>,
}

impl Foreign {
    fn of(contender: &Contender) -> Foreign {
        let built = contender.is_built();
        let remedy = match built {
            true => contender.remedy.clone(),
            false => format!("crossway contender build {}", contender.id),
        };
        let missing = (!built).then(|| "it is not built".to_owned());
        Foreign { launch: contender.launch(0), remedy, missing }
    }

    /// Whether the program is below `/tmp` and so would not be found under a private `/tmp`.
    fn lies_in_tmp(&self) -> bool {
        let helpers = self.launch.helpers.to_string_lossy();
        let words = self.launch.run.iter().map(String::as_str).chain([&*helpers]);
        words.into_iter().any(|word| word.starts_with("/tmp/"))
    }
}

/// Runs the matrix. Mechanisms that sleep while they wait are tested several at a time, the others one by one.
///
/// # Errors
/// An id is unknown, a worker died, or a stop was requested.
pub fn run(
    options: &Options,
    mut tell: impl FnMut(FaultEvent<'_>),
) -> Result<Vec<FaultRecord>, MatrixError> {
    let chosen = chosen(&options.mechanisms)?;
    let environment = Environment::take()?;
    let why = places::why_not_private();
    if let Some(why) = &why {
        tell(FaultEvent::NoPrivatePlaces { why: &format!("{why}; {}", places::REMEDY) });
    }
    let run = new_name();
    let work = |entry: Entry| {
        let contender = entry.contender().map(Foreign::of);
        Work {
            mechanism: entry.id().to_owned(),
            run: run.clone(),
            environment: environment.machine_id.clone(),
            watch_ms: options.watch.as_millis() as u64,
            private: why.is_none() && !contender.as_ref().is_some_and(Foreign::lies_in_tmp),
            role: options.role.clone(),
            contender,
        }
    };
    let per_mechanism: usize = cells::all().iter().map(|cell| cell.trials as usize).sum();
    let of = per_mechanism * chosen.len();
    let (spinning, sleeping): (Vec<_>, Vec<_>) =
        chosen.into_iter().partition(|entry| !entry.caps().can_block);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let at_once = cpus.clamp(1, 4);
    tell(FaultEvent::Begin {
        entries: sleeping.len() + spinning.len(),
        at_most: estimate(&sleeping, options.watch).div_f64(at_once as f64)
            + estimate(&spinning, options.watch),
    });
    let mut records = Vec::new();
    for (entries, at_once) in [(sleeping, at_once), (spinning, 1)] {
        let works = entries.into_iter().map(work).collect();
        several(options, works, at_once, |record| {
            records.push(record);
            let record = &records[records.len() - 1];
            tell(FaultEvent::Record { record, done: records.len(), of });
        })?;
    }
    let place = |r: &FaultRecord| catalogue::all().position(|e| e.id() == r.mechanism);
    records.sort_by_key(|r| (place(r), r.fault, r.state, r.affected, r.trial));
    Ok(records)
}

fn chosen(ids: &[String]) -> Result<Vec<Entry>, MatrixError> {
    if ids.is_empty() {
        return Ok(catalogue::all().collect());
    }
    ids.iter()
        .map(|id| catalogue::find(id).ok_or_else(|| MatrixError::Unknown(id.clone())))
        .collect()
}

/// Runs workers, up to this number at the same time.
fn several(
    options: &Options,
    works: VecDeque<Work>,
    at_once: usize,
    mut take: impl FnMut(FaultRecord),
) -> Result<(), MatrixError> {
    let queue = Mutex::new(works);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            let (queue, sender) = (&queue, sender.clone());
            scope.spawn(move || {
                loop {
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(work) = next else { return };
                    if let Err(error) = one(options, &work, &sender) {
                        let _ = sender.send(Err(error));
                        return;
                    }
                }
            });
        }
        drop(sender);
        for message in receiver {
            match message {
                Ok(record) => take(record),
                Err(error) => {
                    queue.lock().unwrap_or_else(PoisonError::into_inner).clear();
                    return Err(error);
                }
            }
        }
        Ok(())
    })
}

type Records = mpsc::Sender<Result<FaultRecord, MatrixError>>;

/// Runs one worker until it exits and forwards its records.
fn one(options: &Options, work: &Work, records: &Records) -> Result<(), MatrixError> {
    let task = serde_json::to_string(work).unwrap_or_default();
    let mut command = if work.private {
        places::private_command(&options.program)
    } else {
        Command::new(&options.program)
    };
    command
        .args(&options.worker)
        .arg(task)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C reaches only the controller, which then ends the workers.
        .process_group(0);
    proc::die_with_parent(&mut command);
    let mut child =
        command.spawn().map_err(|e| OsError::new("start worker", options.program.display(), e))?;
    let ended = |how: String| MatrixError::Worker { mechanism: work.mechanism.clone(), how };
    let (Some(stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(ended("has no output".to_owned()));
    };
    // The thread ends when the worker exits and no writer is left.
    let complaints = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = stderr.read_to_string(&mut text);
        text
    });
    let (lines, line) = mpsc::channel();
    std::thread::spawn(move || {
        BufReader::new(stdout).lines().map_while(Result::ok).for_each(|l| drop(lines.send(l)));
    });
    loop {
        match line.recv_timeout(Duration::from_millis(100)) {
            Ok(line) => match serde_json::from_str::<FaultRecord>(&line) {
                Ok(record) => drop(records.send(Ok(record))),
                Err(error) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(ended(format!(
                        "wrote a line that is not a record: {error}: {line}"
                    )));
                }
            },
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if shutdown::asked(options.interrupt.as_ref()) {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(MatrixError::Interrupted);
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.wait();
    let text = complaints.join().unwrap_or_default();
    match &status {
        Ok(status) if status.success() => Ok(()),
        _ => Err(ended(crate::launcher::exit_report(status, &text))),
    }
}

/// The work of a worker: runs all cells of one mechanism and writes one record per line to standard output.
///
/// # Errors
/// The task cannot be parsed, or leases cannot be created.
pub fn work(task: &str) -> Result<(), OsError> {
    let bad = |why: String| OsError::new("read", "the worker's task", std::io::Error::other(why));
    let work: Work = serde_json::from_str(task).map_err(|e| bad(e.to_string()))?;
    let leases = lease::Run::begin(None)?;
    if let Some(foreign) = &work.contender {
        let watch = Duration::from_millis(work.watch_ms);
        let outside = Outside { launch: &foreign.launch, watch, private: work.private };
        let probe = match foreign.missing.clone().map_or_else(|| outside.version(), Err) {
            Ok(version) => Probe::Ready { version },
            Err(why) => Probe::Missing { why, remedy: foreign.remedy.clone() },
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
        private: work.private,
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
                Probe::Missing { why, remedy } => {
                    record.status = Status::Skipped;
                    record.reason = Some(why.clone());
                    record.remedy = Some(remedy.clone());
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
