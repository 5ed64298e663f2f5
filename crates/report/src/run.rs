//! A run, read from its directory.

use std::path::{Path, PathBuf};

use crossway_lab::env::RunEnvironment;
use crossway_lab::faults::FaultRecord;
use crossway_lab::moves::MoveRecord;
use crossway_lab::mpi::MpiRecord;
use crossway_lab::other_work;
use crossway_lab::plan::{self, OVERRIDES};
use crossway_lab::preflight::{Finding, Severity};
use crossway_lab::run::RunInfo;
use crossway_records::cases::group;
use crossway_records::compare::durations;
use crossway_records::record::{Record, Status};
use crossway_records::records_io::{self, ReadError};
use crossway_records::shell;
use crossway_records::side_records;

use crate::histograms::Histograms;
use crate::limits::Limits;
use crate::machine::Machine;
use crate::summary::{Summary, moved};
use crate::units::count;
use crate::verdict::Verdict;

/// The file with the options of the command line that started the run.
const RUN: &str = "run.json";

/// A run with everything that its report is made from.
#[derive(Debug, Default)]
pub struct Run {
    /// The path that was given: the run's directory, or a file of records.
    pub dir: PathBuf,
    /// The records of the trials.
    pub records: Vec<Record>,
    /// The records, aggregated by case.
    pub summary: Summary,
    /// The description of the machine.
    pub machine: Machine,
    /// The machine's physical limits.
    pub limits: Limits,
    /// The records of the fault matrix; empty if it was not measured.
    pub faults: Vec<FaultRecord>,
    /// The records of trials in which a process moves between nodes; empty if none were measured.
    pub moves: Vec<MoveRecord>,
    /// The records of MPI over TCP and over TIPC; empty if none were measured.
    pub mpi: Vec<MpiRecord>,
    /// The latency histograms of the run.
    pub histograms: Histograms,
    /// The text of the plan file, if the directory has one.
    pub plan: Option<String>,
    /// The patterns by which cases were selected from the plan; empty if the whole plan was run.
    pub filters: Vec<String>,
    /// Warnings of the check before the run, which the command that measured printed when it began.
    pub before: Vec<String>,
    /// Further problems that a reader must know about before looking at the figures, such as a
    /// truncated line or a missing fingerprint.
    pub notices: Vec<String>,
}

/// The reason why a run cannot be reported.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The records cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// There is no such file or directory.
    #[error("{0} does not exist; `crossway measure` prints the directory that it writes")]
    NoDirectory(PathBuf),
}

/// What was read; nothing and a notice if it cannot be.
fn or_noted<T>(read: Result<Vec<T>, ReadError>, notices: &mut Vec<String>) -> Vec<T> {
    read.unwrap_or_else(|error| {
        notices.push(error.to_string());
        Vec::new()
    })
}

/// What to say of hosts whose processors are emulated.
fn emulated(environment: &RunEnvironment) -> Option<String> {
    let mut kernels: Vec<&str> = [&environment.here]
        .into_iter()
        .chain(environment.hosts.values())
        .filter(|host| host.virtualisation.is_emulated())
        .map(|host| host.kernel.release.as_str())
        .collect();
    kernels.sort_unstable();
    kernels.dedup();
    (!kernels.is_empty()).then(|| {
        format!(
            "The processors of the guests with Linux {} are emulated: compare their times only with each other, not \
             with other hosts.",
            kernels.join(", ")
        )
    })
}

impl Run {
    /// Reads a run's directory, or a single file of records.
    ///
    /// # Errors
    /// See [`RunError`].
    pub fn read(path: &Path) -> Result<Run, RunError> {
        if !path.exists() {
            return Err(RunError::NoDirectory(path.to_owned()));
        }
        let loaded = records_io::read_records(path)?;
        let dir = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
        let mut run = Run::of_records(path, loaded.records);
        run.notices.extend(loaded.warnings);
        match records_io::read_beside::<RunEnvironment>(path, records_io::ENVIRONMENT) {
            Ok(Some(environment)) => {
                run.machine = Machine::of(&environment.here);
                if environment.here.virtualisation.hypervisor.is_some() {
                    run.notices.extend(moved::unchecked(&run.records));
                }
                run.notices.extend(emulated(&environment));
            }
            Ok(None) => run.notices.push(
                "There is no env.json beside the records, so the machine on which they were measured is unknown."
                    .to_owned(),
            ),
            Err(error) => run.notices.push(error.to_string()),
        }
        run.machine.add_hosts(&run.records);
        match records_io::read_beside::<Vec<Finding>>(path, records_io::PREFLIGHT) {
            Ok(findings) => run.before.extend(
                findings.into_iter().flatten().filter(|f| f.severity == Severity::Warning).map(
                    |f| {
                        let continued = if f.continued { " was continued" } else { "" };
                        format!(
                            "Before the run{continued}: {} (next step: {}).",
                            f.what, f.next_step
                        )
                    },
                ),
            ),
            Err(error) => run.notices.push(error.to_string()),
        }
        run.notices
            .extend(other_work::warning(&run.records).map(|told| format!("In this run {told}.")));
        match records_io::read_beside(path, records_io::LIMITS) {
            Ok(limits) => run.limits = Limits(limits),
            Err(error) => run.notices.push(error.to_string()),
        }
        run.faults = or_noted(side_records::read_beside(path), &mut run.notices);
        run.moves = or_noted(side_records::read_beside(path), &mut run.notices);
        run.mpi = or_noted(side_records::read_beside(path), &mut run.notices);
        run.plan = std::fs::read_to_string(dir.join("plan.toml")).ok();
        match records_io::read_beside::<RunInfo>(path, RUN) {
            Ok(info) => run.filters = info.map(|info| info.filters).unwrap_or_default(),
            Err(error) => run.notices.push(error.to_string()),
        }
        run.histograms = Histograms::of_run(
            dir,
            run.records
                .iter()
                .flat_map(|r| &r.latency_ns)
                .filter(|l| l.histogram.is_some())
                .count(),
        );
        run.summary.pool(&run.histograms);
        Ok(run)
    }

    /// Makes a run from records in memory.
    pub fn of_records(path: &Path, records: Vec<Record>) -> Run {
        let summary = Summary::of(&records);
        let notices = durations::pooled(&group(&records)).into_iter().collect();
        Run { dir: path.to_owned(), records, summary, notices, ..Run::default() }
    }

    /// Everything that a reader must know about before looking at the figures.
    pub fn all_notices(&self) -> impl Iterator<Item = &String> {
        self.before.iter().chain(&self.notices)
    }

    /// Draws conclusions from the run.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(&self.summary)
    }

    /// Returns the plan's name, or an empty string without records.
    pub fn plan_name(&self) -> &str {
        self.records.first().map_or("", |r| r.plan.as_str())
    }

    /// Returns the name of the run's plan without the ending `.toml`, which a changed copy of a preset has: `enea` both
    /// for the preset and for a file `enea.toml`.
    pub(crate) fn study_plan(&self) -> &str {
        self.plan_name().trim_end_matches(".toml")
    }

    /// Returns the time at which the first trial began, milliseconds since 1970; `None` if every trial was skipped.
    pub fn started_unix_ms(&self) -> Option<u64> {
        self.records
            .iter()
            .filter(|r| r.status != Status::Skipped)
            .map(|r| r.started_unix_ms)
            .min()
            .filter(|ms| *ms > 0)
    }

    /// Returns the command that repeats the run. If `workloads` are given and the run was not limited to some cases,
    /// the command repeats only the cases with these workloads.
    pub fn command(&self, workloads: &[&str]) -> String {
        let plan = self.plan_name();
        // A plan that is not built into the program is stored beside the records.
        let preset = self.plan.as_ref().is_some_and(|text| plan::is_preset(plan, text));
        let mut command = if preset || self.plan.is_none() {
            format!("crossway measure {plan}")
        } else {
            format!("crossway measure {}", shell::word(self.directory().join("plan.toml")))
        };
        if preset {
            for (key, value) in self.overrides() {
                command.push_str(&format!(" --{} {value}", key.replace('_', "-")));
            }
        }
        let mut patterns = self.filters.clone();
        if patterns.is_empty() && !workloads.is_empty() {
            let of_workloads: Vec<String> = workloads.iter().map(|w| format!("*/{w}*")).collect();
            patterns.push(of_workloads.join("|"));
        }
        for pattern in patterns {
            command.push_str(&format!(" -f {}", shell::word(pattern)));
        }
        command
    }

    /// Returns the preset's settings that were given on the command line, as (key, value); they are stored at the top
    /// of the plan file.
    fn overrides(&self) -> impl Iterator<Item = (&str, &str)> {
        self.plan.iter().flat_map(|text| {
            text.lines().map_while(|line| {
                let (key, value) = line.split_once(" = ")?;
                (OVERRIDES.contains(&key) || key == "scale").then_some((key, value))
            })
        })
    }

    /// Returns the directory of the run, even if a file of records was given.
    pub fn directory(&self) -> &Path {
        if self.dir.is_dir() {
            return &self.dir;
        }
        let beside = self.dir.parent().filter(|folder| !folder.as_os_str().is_empty());
        beside.unwrap_or(Path::new("."))
    }

    /// Returns one line that says what the run was asked to measure.
    pub fn asked(&self) -> String {
        use crate::units::utc_minute;
        let summary = &self.summary;
        let sizes = summary.sizes(|_| true).len();
        // The trials that figures come from, as their n states; a plan's number may differ.
        let cases = group(&self.records);
        let per_case = || cases.iter().map(|case| case.trials()).filter(|trials| *trials > 0);
        let (least, trials) = (per_case().min().unwrap_or(0), per_case().max().unwrap_or(0));
        let least = if least < trials { format!("{least} to ") } else { String::new() };
        let mut parts = vec![
            format!("plan {}", self.plan_name()),
            count(summary.contenders.len(), "contender", "contenders"),
            count(sizes, "size", "sizes"),
            count(summary.settings.len(), "setting", "settings"),
            format!("{least}{} per case", count(trials, "trial", "trials")),
        ];
        parts.extend(self.started_unix_ms().map(utc_minute));
        parts.join(" · ")
    }
}
