//! A run: all trials of a plan in a seeded random order; each trial's record is written as soon as it has ended.

mod cores;
mod done;
mod error;
mod folder;
mod limits;
mod order;
mod pauses;
mod running;
mod testbeds;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use crossway_mech::Probe;
use crossway_records::sorting::CollectTree;
use crossway_sys::topology::Topology;
use crossway_sys::{Obstacle, lease};

pub use crossway_records::run_info::RunInfo;
use done::Done;
pub use error::{Asker, RunError};
pub use folder::{Folder, PLAN, new_name};
pub use order::Slot;
use running::Running;
use testbeds::LiveTestbeds;

use crate::agent::AgentProgram;
use crate::case::{self, Case};
use crate::catalogue;
use crate::env::{Environment, RunEnvironment};
use crate::estimate;
use crate::launcher::Launcher;
use crate::limits::Ask;
use crate::live_testbed::LiveTestbed;
use crate::plan::Plan;
use crate::preflight::{self, Activity, Finding, Need};
use crate::registers::RegistersLost;
use crossway_loops::calibrate;
use crossway_records::record::{HostRef, Record, Status};
use crossway_records::records_io;
use crossway_records::testbed::Testbed;

/// How long CPU activity is sampled before the run.
const WATCH: Duration = Duration::from_millis(200);

/// Options of a run.
#[derive(Debug)]
pub struct Options {
    /// Folder in which the folder of the run is created.
    pub out: PathBuf,
    /// Patterns that select cases by group and case; an empty list selects all.
    pub filters: Vec<String>,
    /// Name given to the run by the user, by which other commands find it.
    pub name: Option<String>,
    /// Folder of an interrupted run to continue.
    pub resume: Option<PathBuf>,
    /// Whether to run another trial for each one that the machine disturbed (CPUs moved to other cores, or time taken
    /// away by the hypervisor).
    pub repeat_disturbed: bool,
    /// For whom the run measures.
    pub asker: Asker,
    /// The hosts named on the command line, which have already been entered in the plan; stored for `--resume`.
    pub hosts: Option<String>,
    /// The program on those hosts.
    pub agent_program: AgentProgram,
}

impl Options {
    /// The options of a run of all cases without a name of its own, on the hosts of the plan. Disturbed trials are not
    /// repeated.
    pub fn new(out: PathBuf, asker: Asker) -> Options {
        Options {
            out,
            filters: Vec::new(),
            name: None,
            resume: None,
            repeat_disturbed: false,
            asker,
            hosts: None,
            agent_program: AgentProgram::Usual,
        }
    }
}

/// Progress of a run, for display.
#[derive(Debug)]
pub enum RunEvent<'a> {
    /// The machine's limits are being measured.
    Limits {
        /// Description of the next measurement.
        what: &'a str,
    },
    /// A testbed is being set up.
    Testbed {
        /// The testbed.
        testbed: &'a Testbed,
    },
    /// The testbed is up.
    Hosts {
        /// The testbed.
        testbed: &'a Testbed,
        /// The testbed's hosts.
        hosts: &'a [HostRef],
        /// Whether time stamps of all hosts can be compared.
        one_clock: bool,
    },
    /// The testbed could not be set up; its cases are skipped.
    NoTestbed {
        /// The testbed.
        testbed: &'a Testbed,
        /// Reason and remedy.
        why: &'a str,
    },
    /// Everything is prepared, and the trials begin.
    Begin {
        /// The folder of the run.
        folder: &'a Folder,
        /// Number of trials to run.
        trials: usize,
        /// Estimated duration of all trials, milliseconds.
        expected_ms: u64,
        /// Conditions that would distort the figures.
        findings: &'a [Finding],
    },
    /// All trials of the plan have ended, and those that the machine disturbed will be repeated.
    Repeat {
        /// Number of trials to repeat.
        trials: usize,
    },
    /// A trial begins. Nothing may be drawn on the screen until it ends, since that would disturb the measurement.
    Trial {
        /// The trial's case.
        case: &'a Case,
        /// The trial's number within its case.
        trial: u32,
    },
    /// A record was written.
    Written {
        /// The record.
        record: &'a Record,
    },
}

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The folder of the run.
    pub dir: PathBuf,
    /// Number of records that this call has written, by status.
    pub by_status: BTreeMap<Status, usize>,
    /// Whether the run was interrupted before all trials had ended.
    pub interrupted: bool,
}

/// Runs a plan, or continues an interrupted run. The launcher's program also becomes the reaper.
pub fn measure(
    plan: &Plan,
    options: &Options,
    launcher: &Launcher,
    mut tell: impl FnMut(RunEvent<'_>),
) -> Result<Summary, RunError> {
    RegistersLost::check()?;
    let topology = Topology::read()?;
    let cases = case::expand(plan, &topology, &options.filters);
    if cases.is_empty() {
        return Err(RunError::Nothing {
            filters: options.filters.join(", "),
            hosts: options.hosts.is_some(),
        });
    }
    if let Some(dir) = &options.resume {
        Folder::check_origin(dir, &Environment::take()?)?;
    }
    let leases = lease::Run::begin(Some(launcher.reaper()))?;
    // Before the testbeds, so that a run that another process measures is refused at once.
    let reopened = options.resume.as_deref().map(Folder::reopen).transpose()?;
    let records = match &reopened {
        Some(folder) => folder.records()?,
        None => Vec::new(),
    };
    if let Some(folder) = &reopened {
        folder.check_plan(&cases, &records)?;
    }
    let testbeds = LiveTestbeds::set_up(plan, &cases, options, launcher, &mut tell)?;
    let folder = match reopened {
        Some(folder) => folder,
        None => {
            let trials = cases.iter().map(|c| u64::from(c.inputs.trials)).sum();
            Folder::create(&options.out, plan, options, trials)?
        }
    };
    let ready = probe(&cases);
    let slots = order::interleave(&cases, plan.seed);
    let mut done = Done::of(&records, &cases);
    drop(records);
    let mut run = Running {
        plan,
        launcher,
        leases: &leases,
        instruments: calibrate::calibrate(),
        topology: &topology,
        cases: &cases,
        ready,
        testbeds,
        folder,
        verified: BTreeSet::new(),
        failures: BTreeMap::new(),
        unsupported: BTreeSet::new(),
        load: None,
        cores: cores::Cores::default(),
        limits: limits::LimitsBetween::default(),
        harness: BTreeMap::new(),
        loads_failed: BTreeMap::new(),
        by_status: BTreeMap::new(),
        disturbed: std::mem::take(&mut done.disturbed),
        findings: None,
    };
    let open: Vec<&Slot> = slots.iter().filter(|slot| run.is_open(slot, &done)).collect();
    let repeats = if options.repeat_disturbed { run.repeats(slots.len()) } else { Vec::new() };
    let left = !open.is_empty() || repeats.iter().any(|slot| run.is_open(slot, &done));
    let mut findings = Vec::new();
    // Nothing is stored about the machine if nothing is left to measure on it.
    if left || options.resume.is_none() {
        let hosts = run.testbeds.environments();
        let environment = RunEnvironment { here: Environment::take()?, hosts };
        run.folder.write_beside(records_io::ENVIRONMENT, &environment)?;
        findings = findings_before(&environment.here, &cases);
        findings.iter_mut().for_each(|f| f.continued = options.resume.is_some());
        run.findings = Some(findings.clone());
        limits_beside(&run.folder, &topology, &cases, &mut tell)?;
    }
    let expected_ms = open.iter().map(|slot| estimate::trial_ms(&cases[slot.case].inputs)).sum();
    tell(RunEvent::Begin {
        folder: &run.folder,
        trials: open.len(),
        expected_ms,
        findings: &findings,
    });
    run.write_impossible(&done, &mut tell)?;
    let mut interrupted = run.run_slots(&slots, &done, &mut tell)?;
    if options.repeat_disturbed && !interrupted {
        interrupted = run.repeat_disturbed(slots.len(), &done, &mut tell)?;
    }
    drop(run.load.take());
    drop(std::mem::take(&mut run.testbeds));
    let (dir, by_status) = (run.folder.dir().to_owned(), run.by_status);
    Ok(Summary { dir, by_status, interrupted })
}

/// Estimated duration of a run in milliseconds below which the limits are not measured. Such a short run only tests the
/// plan, and measuring the limits would take seconds.
const WORTH_LIMITS_MS: u64 = 10_000;

/// Writes the machine's limits next to the records, once per run. If the limits cannot be measured, the run continues,
/// since they are only a reference.
fn limits_beside(
    folder: &Folder,
    topology: &Topology,
    cases: &[Case],
    tell: &mut impl FnMut(RunEvent<'_>),
) -> Result<(), RunError> {
    let here = cases.iter().filter(|c| c.inputs.testbed.is_none() && c.excluded.is_none());
    let planned_ms: u64 = here.map(|c| c.inputs.measure_ms * u64::from(c.inputs.trials)).sum();
    if planned_ms < WORTH_LIMITS_MS || folder.dir().join(records_io::LIMITS).exists() {
        return Ok(());
    }
    let sizes = cases.iter().map(|c| c.inputs.size_bytes).collect();
    let ask = Ask::beside_a_run(sizes);
    match crate::limits::measure(topology, &ask, |what| tell(RunEvent::Limits { what })) {
        Ok(limits) => folder.write_beside(records_io::LIMITS, &limits),
        Err(error) => {
            tracing::warn!("the machine's limits could not be measured: {error}");
            Ok(())
        }
    }
}

/// The conditions of this machine that would distort a run of these cases. Watches the machine for a moment.
pub fn findings_before(here: &Environment, cases: &[Case]) -> Vec<Finding> {
    preflight::check(here, &Activity::sample(WATCH), &need(cases))
}

/// What the run needs from the machine.
fn need(cases: &[Case]) -> Need {
    let cpus: BTreeSet<u32> = cases.iter().flat_map(|c| c.inputs.cpus.clone()).collect_tree();
    Need {
        cpus: cpus.into_iter().collect(),
        roles: 2,
        spins: cases.iter().any(|c| c.inputs.wait == crossway_mech::Wait::Spin),
    }
}

/// Determines which of these cases a run would skip, and why; `None` for a case that it would run. Each mechanism is
/// probed on this machine. Testbeds are not set up, so it is known only whether they can be, and not whether their hosts
/// lack something.
pub fn survey(cases: &[Case]) -> Vec<Option<Obstacle>> {
    let ready = probe(cases);
    let mut testbeds: BTreeMap<&str, Option<Obstacle>> = BTreeMap::new();
    for case in cases.iter().filter(|case| case.excluded.is_none()) {
        if let Some(testbed) = &case.inputs.testbed_spec {
            testbeds
                .entry(&testbed.name)
                .or_insert_with(|| Some(LiveTestbed::possible(testbed).err()?.obstacle()));
        }
    }
    let one = |case: &Case| {
        let missing = || match ready.get(case.mechanism)? {
            Probe::Missing(obstacle) if case.inputs.testbed.is_none() => Some(obstacle.clone()),
            _ => None,
        };
        let of_testbed = || testbeds.get(case.inputs.testbed.as_deref()?)?.clone();
        missing().or_else(|| case.excluded.clone()).or_else(of_testbed)
    };
    cases.iter().map(one).collect()
}

/// Probes each mechanism once.
fn probe(cases: &[Case]) -> BTreeMap<&'static str, Probe> {
    let here = cases.iter().filter(|c| c.inputs.testbed.is_none());
    let wanted: BTreeSet<&str> = here.map(|c| c.mechanism).collect_tree();
    catalogue::all().filter(|e| wanted.contains(e.id())).map(|e| (e.id(), e.probe())).collect_tree()
}
