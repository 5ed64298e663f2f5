//! A run: all trials of a plan in a seeded random order, each written down as soon as it is over.

mod beds;
mod cores;
mod folder;
mod order;
mod running;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use crossway_mech::{Probe, registry};
use crossway_sys::lease;
use crossway_sys::topology::Topology;

use beds::Beds;
pub use folder::{Folder, RunError, RunInfo};
pub use order::Slot;
use running::Running;

use crate::calibrate::{self};
use crate::case::{self, Case};
use crate::env::{Environment, RunEnvironment};
use crate::launcher::Launcher;
use crate::limits::{Ask, Limits};
use crate::plan::Plan;
use crate::preflight::{self, Activity, Finding, Need};
use crate::record::{HostRef, Record, Status};
use crate::records_io;
use crate::testbed::Testbed;

/// How long the machine is watched before the run.
const WATCH: Duration = Duration::from_millis(200);

/// What a caller may choose.
#[derive(Debug)]
pub struct Options {
    /// Folder in which the run gets a folder of its own.
    pub out: PathBuf,
    /// Patterns on group and case; empty: all.
    pub filters: Vec<String>,
    /// Folder of an interrupted run to go on with.
    pub resume: Option<PathBuf>,
    /// The hosts of the command line, which the plan has been given already; kept for `--resume`.
    pub hosts: Option<String>,
    /// The program that is the agent on those hosts; `None`: `crossway` behind ssh, else this program's file.
    pub agent_program: Option<String>,
    /// The program and arguments that become the reaper; without it a killed controller leaves its leases to the next
    /// start.
    pub reaper: Option<(PathBuf, Vec<String>)>,
}

/// What happens, for whoever shows it.
#[derive(Debug)]
pub enum Event<'a> {
    /// The machine's limits are being measured; what comes next of them.
    Limits {
        /// In words.
        what: &'a str,
    },
    /// A testbed is being set up.
    Testbed {
        /// Which.
        testbed: &'a Testbed,
    },
    /// It is up.
    Hosts {
        /// Which.
        testbed: &'a Testbed,
        /// Its hosts.
        hosts: &'a [HostRef],
        /// Whether instants of all of them can be compared.
        one_clock: bool,
    },
    /// It cannot be; its cases are skipped.
    NoTestbed {
        /// Which.
        testbed: &'a Testbed,
        /// Why, and what mends it.
        why: &'a str,
    },
    /// All is prepared.
    Begin {
        /// Where it will be written.
        folder: &'a Folder,
        /// Trials to run.
        trials: usize,
        /// What would spoil the figures.
        findings: &'a [Finding],
    },
    /// A trial begins; nothing is drawn until it ends, or drawing would be measured, too.
    Trial {
        /// Its case.
        case: &'a Case,
        /// Its number.
        trial: u32,
    },
    /// A record was written.
    Written {
        /// The record.
        record: &'a Record,
    },
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Where it was written.
    pub dir: PathBuf,
    /// Trials by status.
    pub by_status: BTreeMap<Status, usize>,
    /// It was asked to stop before its end.
    pub interrupted: bool,
}

/// Runs a plan, or goes on with one.
pub fn measure(
    plan: &Plan,
    options: &Options,
    launcher: &Launcher,
    mut tell: impl FnMut(Event<'_>),
) -> Result<Summary, RunError> {
    let topology = Topology::read()?;
    let cases = case::expand(plan, &topology, &options.filters);
    if cases.is_empty() {
        return Err(RunError::Nothing { filters: options.filters.join(", ") });
    }
    if let Some(dir) = &options.resume {
        Folder::check_origin(dir, &Environment::take()?)?;
    }
    let mut leases = lease::Run::begin()?;
    if let Some((program, args)) = &options.reaper {
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        leases.spawn_reaper(program, &args)?;
    }
    let beds = Beds::set_up(plan, &cases, options, launcher, &mut tell)?;
    let folder = match &options.resume {
        Some(dir) => Folder::reopen(dir)?,
        None => Folder::create(&options.out, plan, options)?,
    };
    let environment = RunEnvironment { here: Environment::take()?, hosts: beds.environments() };
    folder.write_beside(records_io::ENVIRONMENT, &environment)?;
    let findings = preflight::check(&environment.here, &Activity::sample(WATCH), &need(&cases));
    folder.write_beside("preflight.json", &findings)?;
    limits_beside(&folder, &topology, &cases, &mut tell)?;
    let ready = probe(&cases);
    let slots = order::interleave(&cases, plan.seed);
    let done = folder.done()?;
    let mut run = Running {
        plan,
        launcher,
        leases: &leases,
        instruments: calibrate::calibrate(),
        topology: &topology,
        cases: &cases,
        ready,
        beds,
        folder,
        verified: BTreeSet::new(),
        failures: BTreeMap::new(),
        unsupported: BTreeSet::new(),
        load: None,
        cores: cores::Cores::default(),
        loads_failed: BTreeMap::new(),
        by_status: BTreeMap::new(),
    };
    let open = slots.iter().filter(|slot| run.is_open(slot, &done)).count();
    tell(Event::Begin { folder: &run.folder, trials: open, findings: &findings });
    run.write_impossible(&done, &mut tell)?;
    let interrupted = run.run_slots(&slots, &done, &mut tell)?;
    drop(run.load.take());
    drop(std::mem::take(&mut run.beds));
    let (dir, by_status) = (run.folder.dir().to_owned(), run.by_status);
    Ok(Summary { dir, by_status, interrupted })
}

/// A run shorter than this is a trial of the plan, not worth the seconds that limits take.
const WORTH_LIMITS_MS: u64 = 10_000;

/// Writes the machine's limits beside the records, once per run. They are yardsticks: a run goes on without them.
fn limits_beside(
    folder: &Folder,
    topology: &Topology,
    cases: &[Case],
    tell: &mut impl FnMut(Event<'_>),
) -> Result<(), RunError> {
    let here = cases.iter().filter(|c| c.inputs.testbed.is_none() && c.excluded.is_none());
    let planned_ms: u64 = here.map(|c| c.inputs.measure_ms * u64::from(c.inputs.trials)).sum();
    if planned_ms < WORTH_LIMITS_MS || folder.dir().join(records_io::LIMITS).exists() {
        return Ok(());
    }
    let sizes = cases.iter().map(|c| c.inputs.size_bytes).collect();
    let ask = Ask::beside_a_run(sizes);
    match Limits::measure(topology, &ask, |what| tell(Event::Limits { what })) {
        Ok(limits) => folder.write_beside(records_io::LIMITS, &limits),
        Err(error) => {
            tracing::warn!("the machine's limits could not be measured: {error}");
            Ok(())
        }
    }
}

/// What the machine should be free for.
fn need(cases: &[Case]) -> Need {
    let cpus: BTreeSet<u32> = cases.iter().flat_map(|c| c.inputs.cpus.clone()).collect();
    Need {
        cpus: cpus.into_iter().collect(),
        roles: 2,
        spins: cases.iter().any(|c| c.inputs.wait == crossway_mech::Wait::Spin),
    }
}

/// Each mechanism once, really tried.
fn probe(cases: &[Case]) -> BTreeMap<&'static str, Probe> {
    let here = cases.iter().filter(|c| c.inputs.testbed.is_none());
    let wanted: BTreeSet<&str> = here.map(|c| c.mechanism).collect();
    registry::ALL.iter().filter(|e| wanted.contains(e.id)).map(|e| (e.id, (e.probe)())).collect()
}
