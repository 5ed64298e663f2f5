//! Runs the whole matrix: starts one worker process per mechanism, with private file systems and IPC objects, and
//! collects their records.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use crossway_sys::{OsError, proc};

use super::estimate::estimate;
use super::places;
use super::worker::{Foreign, Work};
use super::{FaultRecord, cells};
use crate::catalogue::{self, Entry};
use crate::env::Environment;
use crate::run::new_name;
use crate::shutdown;
use crate::similar::did_you_mean;
use crossway_records::sorting::SortSmall;

/// Options of the matrix.
#[derive(Debug)]
pub struct Options {
    /// Ids of the mechanisms and contenders to test; an empty list stands for all.
    pub mechanisms: Vec<String>,
    /// How long a silent survivor is watched before it counts as hung.
    pub watch: Duration,
    /// Path of this program.
    pub program: PathBuf,
    /// Arguments that make this program run [`work`](super::work); a task in JSON is appended.
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
        /// Approximate upper bound of the duration, reached if all mechanisms and contenders work here.
        at_most: Duration,
    },
    /// Private file systems and IPC namespaces cannot be created, so some faults are skipped.
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
    #[error("there is no mechanism or contender '{0}'; {meant}`crossway list` shows all",
        meant = did_you_mean(.0, catalogue::all().map(|entry| entry.id())))]
    Unknown(String),
    /// A stop was requested; the records are incomplete.
    #[error("interrupted")]
    Interrupted,
    /// A worker died or wrote something other than records; the records of its mechanism are incomplete.
    #[error("the worker process for {mechanism} {how}")]
    Worker {
        /// The mechanism.
        mechanism: String,
        /// How the worker exited, or what was wrong with its output.
        how: String,
    },
    /// A system call failed.
    #[error("{0}")]
    Os(#[from] OsError),
}

/// Runs the matrix. Mechanisms that block while they wait are tested several at a time, the others one by one.
///
/// # Errors
/// An id is unknown, a system call failed, a worker died or wrote something other than records, or a stop was
/// requested.
pub fn run(
    options: &Options,
    mut tell: impl FnMut(FaultEvent<'_>),
) -> Result<Vec<FaultRecord>, MatrixError> {
    let chosen = chosen(&options.mechanisms)?;
    let environment = Environment::take()?;
    let why = places::why_not_private();
    let refused = why.as_ref().map(|_| places::refused());
    if let (Some(why), Some(refused)) = (&why, &refused) {
        tell(FaultEvent::NoPrivatePlaces { why: &format!("{why}; {}", refused.remedy) });
    }
    let run = new_name();
    let work = |entry: Entry| {
        let contender = entry.contender().map(Foreign::of);
        Work {
            mechanism: entry.id().to_owned(),
            run: run.clone(),
            environment: environment.machine_id.clone(),
            watch_ms: options.watch.as_millis() as u64,
            not_private: refused.clone().or_else(|| {
                let hidden = contender.as_ref().is_some_and(Foreign::lies_in_tmp);
                hidden.then(places::program_in_tmp)
            }),
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
    records.sort_small_by_key(|r| (place(r), r.fault, r.state, r.affected, r.trial));
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

/// Runs workers, at most `at_once` of them in parallel.
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
    let mut command = if work.not_private.is_none() {
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
            Ok(line) => match serde_json::from_slice::<FaultRecord>(line.as_bytes()) {
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
        _ => Err(ended(crate::exit_report::exit_report(status, &text))),
    }
}
