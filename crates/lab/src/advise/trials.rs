//! What advice needs of a record, read fast: a folder of runs may hold 100,000 of them.

use std::path::{Path, PathBuf};

use crossway_mech::{Access, Wait};
use serde::Deserialize;

use super::question::Percentile;
use crate::env::RunEnvironment;
use crate::inputs::{Beside, Ends, Load, Placement, Workload};
use crate::record::{Record, Span, Status};
use crate::records_io::{self, RESULTS};

/// The inputs that decide whether a trial answers a question.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TrialInputs {
    /// The testbed's name.
    #[serde(default)]
    pub testbed: Option<String>,
    /// Where the roles were on it.
    #[serde(default)]
    pub ends: Ends,
    /// What was done.
    pub workload: Workload,
    /// Message size in bytes.
    pub size_bytes: u64,
    /// Size of the reply where it differs.
    #[serde(default)]
    pub reply_bytes: Option<u64>,
    /// How ends waited.
    pub wait: Wait,
    /// Who wrote where.
    pub access: Access,
    /// Where the roles ran.
    pub placement: Placement,
    /// Background work.
    pub load: Load,
    /// What ran beside it.
    #[serde(default)]
    pub beside: Vec<Beside>,
    /// Socket buffer asked for.
    pub socket_buffer_bytes: Option<u64>,
    /// Capacity asked for.
    pub capacity_bytes: Option<u64>,
}

/// Percentiles of one trial, nanoseconds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TrialLatency {
    span: Span,
    p50: u64,
    p90: u64,
    p99: Option<u64>,
    p999: Option<u64>,
    max: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
struct Rate {
    msgs_per_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
struct Pace {
    intended_bits_per_s: f64,
    reached_bits_per_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
struct Cpu {
    cpu_ns_per_msg: f64,
}

/// One trial, as far as advice goes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Trial {
    /// Its run.
    pub run: String,
    /// Its case, readable.
    pub case: String,
    /// The mechanism's id.
    pub mechanism: String,
    /// What was asked.
    pub inputs: TrialInputs,
    /// How it ended.
    pub status: Status,
    /// Why it did not end well.
    pub reason: Option<String>,
    latency_ns: Vec<TrialLatency>,
    throughput: Option<Rate>,
    pacing: Option<Pace>,
    cost: Option<Cpu>,
    #[serde(default)]
    servers: Vec<serde::de::IgnoredAny>,
}

impl Trial {
    /// Of a whole record.
    pub fn of(record: &Record) -> Trial {
        let i = &record.inputs;
        Trial {
            run: record.run.clone(),
            case: record.case.clone(),
            mechanism: record.mechanism.clone(),
            inputs: TrialInputs {
                testbed: i.testbed.clone(),
                ends: i.ends,
                workload: i.workload,
                size_bytes: i.size_bytes,
                reply_bytes: i.reply_bytes,
                wait: i.wait,
                access: i.access,
                placement: i.placement,
                load: i.load,
                beside: i.beside.clone(),
                socket_buffer_bytes: i.socket_buffer_bytes,
                capacity_bytes: i.capacity_bytes,
            },
            status: record.status,
            reason: record.reason.clone(),
            latency_ns: record
                .latency_ns
                .iter()
                .map(|l| TrialLatency {
                    span: l.span,
                    p50: l.p50,
                    p90: l.p90,
                    p99: l.p99,
                    p999: l.p999,
                    max: l.max,
                })
                .collect(),
            throughput: record.throughput.map(|t| Rate { msgs_per_s: t.msgs_per_s }),
            pacing: record.pacing.map(|p| Pace {
                intended_bits_per_s: p.intended_bits_per_s,
                reached_bits_per_s: p.reached_bits_per_s,
            }),
            cost: record.cost.map(|c| Cpu { cpu_ns_per_msg: c.cpu_ns_per_msg }),
            servers: record.servers.iter().map(|_| serde::de::IgnoredAny).collect(),
        }
    }

    /// Latency at a percentile in nanoseconds: of the round trip, one way from the intended instant, or of a whole exchange. Where
    /// a trial has too few samples for the percentile its largest sample stands for it, which is never smaller.
    pub fn latency_ns(&self, percentile: Percentile) -> Option<f64> {
        let of = |span| self.latency_ns.iter().find(|l| l.span == span).map(|l| l.at(percentile));
        match self.inputs.workload {
            Workload::PingPong => of(Span::RoundTrip),
            Workload::Paced { .. } => of(Span::OneWay),
            Workload::Exchange => {
                Some(of(Span::SetUp)? + of(Span::Exchange)? + of(Span::TearDown)?)
            }
            _ => None,
        }
    }

    /// Nanoseconds per message at full speed.
    pub fn ns_per_message(&self) -> Option<f64> {
        self.throughput.map(|t| 1e9 / t.msgs_per_s).filter(|ns| ns.is_finite())
    }

    /// CPU time of both ends and their servers per message, nanoseconds.
    pub fn cpu_ns_per_message(&self) -> Option<f64> {
        self.cost.map(|c| c.cpu_ns_per_msg)
    }

    /// Share of the offered rate that was carried; `None` where none was offered.
    pub fn share_of_rate(&self) -> Option<f64> {
        self.pacing.map(|p| p.reached_bits_per_s / p.intended_bits_per_s)
    }

    /// Whether a process beside the two ends works for the channel.
    pub fn has_server(&self) -> bool {
        !self.servers.is_empty()
    }
}

impl TrialLatency {
    fn at(&self, percentile: Percentile) -> f64 {
        let ns = match percentile {
            Percentile::P50 => self.p50,
            Percentile::P90 => self.p90,
            Percentile::P99 => self.p99.unwrap_or(self.max),
            Percentile::P999 => self.p999.unwrap_or(self.max),
            Percentile::Max => self.max,
        };
        ns as f64
    }
}

/// The trials that were found in folders of runs.
#[derive(Debug, Default)]
pub struct Library {
    /// Of this machine.
    pub own: Vec<Trial>,
    /// Of other machines, or of one that is not named.
    pub foreign: Vec<Trial>,
    /// Folders of the runs of this machine.
    pub own_runs: Vec<PathBuf>,
    /// What to know, e.g. lines that were left out.
    pub warnings: Vec<String>,
}

impl Library {
    /// Reads all runs below these folders: each is a run, or a folder of runs. What cannot be read is left out with a
    /// warning, for advice rests on whatever else there is.
    pub fn read(folders: &[PathBuf], machine_id: &str) -> Library {
        let mut library = Library::default();
        for folder in folders {
            for run in runs_of(folder) {
                library.read_run(&run, machine_id);
            }
        }
        library
    }

    fn read_run(&mut self, dir: &Path, machine_id: &str) {
        let own = match records_io::read_beside::<RunEnvironment>(dir, records_io::ENVIRONMENT) {
            Ok(environment) => environment.is_some_and(|e| e.here.machine_id == machine_id),
            Err(error) => {
                self.warnings.push(format!("{error}: taken for another machine's"));
                false
            }
        };
        let file = dir.join(RESULTS);
        let bytes = match std::fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.warnings.push(format!("cannot read {}: {error}", file.display()));
                return;
            }
        };
        let (trials, bad) = parse(&bytes);
        if bad > 0 {
            self.warnings
                .push(format!("{}: {bad} lines are no records and were left out", file.display()));
        }
        if own {
            self.own_runs.push(dir.to_owned());
            self.own.extend(trials);
        } else {
            self.foreign.extend(trials);
        }
    }
}

fn runs_of(folder: &Path) -> Vec<PathBuf> {
    if folder.join(RESULTS).is_file() {
        return vec![folder.to_owned()];
    }
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut runs: Vec<PathBuf> = entries
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|path| path.join(RESULTS).is_file())
        .collect();
    runs.sort();
    runs
}

/// Trials that ended, and the number of lines that are none; on as many threads as there are CPUs.
fn parse(bytes: &[u8]) -> (Vec<Trial>, usize) {
    let lines: Vec<&[u8]> =
        bytes.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty()).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(16);
    let share = lines.len().div_ceil(threads).max(1_000);
    let parse = |lines: &[&[u8]]| -> (Vec<Trial>, usize) {
        let parsed: Vec<_> = lines.iter().map(|l| serde_json::from_slice::<Trial>(l)).collect();
        let bad = parsed.iter().filter(|p| p.is_err()).count();
        let ended = |t: &Trial| matches!(t.status, Status::Ok | Status::Degraded | Status::Failed);
        (parsed.into_iter().flatten().filter(ended).collect(), bad)
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            lines.chunks(share).map(|part| scope.spawn(move || parse(part))).collect();
        let mut all = (Vec::new(), 0);
        for worker in workers {
            let (trials, bad) =
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            all.0.extend(trials);
            all.1 += bad;
        }
        all
    })
}
