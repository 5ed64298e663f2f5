//! A run: all trials of a plan in a seeded random order, each written down as soon as it is over.

mod beds;
mod cores;
mod folder;
mod order;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use crossway_mech::{Caps, Probe, registry};
use crossway_sys::topology::Topology;
use crossway_sys::{OsError, clock, lease};

use beds::Beds;
pub use folder::{Folder, RunError, RunInfo};
pub use order::Slot;

use crate::calibrate::{self, Instruments};
use crate::case::{self, Case};
use crate::env::{Environment, RunEnvironment};
use crate::inputs::Load;
use crate::launcher::{LaunchError, Launcher, Stage};
use crate::limits::{Ask, Limits};
use crate::load::{LoadError, RunningLoad};
use crate::plan::Plan;
use crate::preflight::{self, Activity, Finding, Need};
use crate::record::{HostRef, LOCAL, Record, SCHEMA, Status};
use crate::records_io;
use crate::testbed::Testbed;
use crate::trial::{self, Setting};
use crate::{assemble, shutdown};

/// After so many failures in a row the rest of a case's trials is left out.
const FAILURES_ENOUGH: u32 = 2;
/// Working set of the payload where the caches' sizes are unknown.
const USUAL_WORKING_SET: u64 = 4 << 20;
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

struct Running<'a> {
    plan: &'a Plan,
    launcher: &'a Launcher,
    leases: &'a lease::Run,
    instruments: Instruments,
    topology: &'a Topology,
    cases: &'a [Case],
    ready: BTreeMap<&'static str, Probe>,
    beds: Beds,
    folder: Folder,
    verified: BTreeSet<usize>,
    failures: BTreeMap<usize, u32>,
    /// Cases that turned out to be impossible; one record says so.
    unsupported: BTreeSet<usize>,
    load: Option<(Load, RunningLoad)>,
    cores: cores::Cores,
    loads_failed: BTreeMap<String, LoadError>,
    by_status: BTreeMap<Status, usize>,
}

/// Group, case and trial of what is written already.
type Done = BTreeSet<(String, String, u32)>;

impl Running<'_> {
    /// Why a case cannot run here, and what mends it.
    fn obstacle(&self, case: &Case) -> Option<(String, String)> {
        if case.inputs.testbed.is_some() {
            let excluded = case.excluded.as_ref().map(|e| (e.why.clone(), e.remedy.clone()));
            return excluded.or_else(|| self.beds.obstacle(case));
        }
        if let Some(Probe::Missing { why, remedy }) = self.ready.get(case.mechanism) {
            return Some((why.clone(), remedy.clone()));
        }
        case.excluded.as_ref().map(|e| (e.why.clone(), e.remedy.clone()))
    }

    fn is_open(&self, slot: &Slot, done: &Done) -> bool {
        let case = &self.cases[slot.case];
        self.obstacle(case).is_none()
            && !self.unsupported.contains(&slot.case)
            && !done.contains(&(case.group.clone(), case.id.clone(), slot.trial))
    }

    /// One record per case that cannot run here.
    fn write_impossible(
        &mut self,
        done: &Done,
        tell: &mut impl FnMut(Event<'_>),
    ) -> Result<(), RunError> {
        for at in 0..self.cases.len() {
            let case = &self.cases[at];
            let Some((why, remedy)) = self.obstacle(case) else { continue };
            if done.contains(&(case.group.clone(), case.id.clone(), 0)) {
                continue;
            }
            let mut record = self.blank(case, 0, 0);
            (record.status, record.reason) = (Status::Skipped, Some(why));
            record.remedy = Some(remedy);
            self.write(record, tell)?;
        }
        Ok(())
    }

    /// All open trials in their order; tells whether it was interrupted.
    fn run_slots(
        &mut self,
        slots: &[Slot],
        done: &Done,
        tell: &mut impl FnMut(Event<'_>),
    ) -> Result<bool, RunError> {
        for slot in slots {
            if !self.is_open(slot, done) {
                continue;
            }
            if shutdown::asked(self.launcher.interrupt.as_ref()) {
                return Ok(true);
            }
            let case = &self.cases[slot.case];
            tell(Event::Trial { case, trial: slot.trial });
            match self.run_one(slot)? {
                Some(record) => self.write(record, tell)?,
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Runs one trial; `None` when it was interrupted.
    fn run_one(&mut self, slot: &Slot) -> Result<Option<Record>, RunError> {
        let case = &self.cases[slot.case];
        let mut record = self.blank(case, slot.trial, slot.order);
        let failed = self.failures.get(&slot.case).copied().unwrap_or(0);
        if failed >= FAILURES_ENOUGH {
            record.status = Status::Skipped;
            record.reason = Some(format!("{failed} trials of this case failed before this one"));
            record.remedy = Some("see the reason of the failed trials".to_owned());
            return Ok(Some(record));
        }
        if let Some((why, remedy)) = self.beds.given_up(&case.inputs) {
            record.status = Status::Skipped;
            (record.reason, record.remedy) = (Some(why), Some(remedy));
            return Ok(Some(record));
        }
        if let Err(error) = self.set_load(case.inputs.load) {
            record.status = Status::Skipped;
            let (why, remedy) = match error {
                LoadError::Missing { why, remedy } => (why, remedy),
                LoadError::Failed(why) => (why, "run stress-ng by hand to see why".to_owned()),
            };
            (record.reason, record.remedy) = (Some(why), Some(remedy));
            return Ok(Some(record));
        }
        let Some(entry) = registry::find(case.mechanism) else { return Ok(None) };
        self.cores.before(&mut record);
        let caps: Caps = (entry.caps)();
        let inputs = record.inputs.clone();
        let topology = self.beds.topology(&inputs).unwrap_or(self.topology);
        let mut setting = Setting {
            mechanism: case.mechanism,
            caps,
            inputs: &inputs,
            ticker: self.instruments.ticker,
            clock_step_ns: record.calibration.clock_step_ns,
            working_set_bytes: working_set(topology, &inputs.cpus),
            verify: !self.verified.contains(&slot.case),
            bind_address: None,
        };
        let stage = if inputs.testbed.is_none() {
            Ok(Stage::Here { launcher: self.launcher, run: self.leases })
        } else {
            self.beds.stage(&inputs, self.launcher.interrupt()).map(|(stage, address)| {
                setting.bind_address = address;
                stage
            })
        };
        match stage.and_then(|stage| trial::run(&setting, stage)) {
            Ok(brought) => {
                let name = format!("{:06}", slot.order);
                assemble::enter(&mut record, brought, &caps, self.folder.dir(), &name)
                    .map_err(|e| OsError::new("write histogram", self.folder.dir().display(), e))?;
                self.verified.insert(slot.case);
                self.beds.note_success(&inputs);
            }
            Err(LaunchError::Interrupted) => return Ok(None),
            Err(LaunchError::Unsupported(why)) => {
                self.unsupported.insert(slot.case);
                record.status = Status::Skipped;
                let (why, remedy) = split_remedy(&why);
                (record.reason, record.remedy) = (Some(why), Some(remedy));
                return Ok(Some(record));
            }
            Err(LaunchError::Host(error)) => {
                record.status = Status::Failed;
                record.reason = Some(error.to_string());
                record.remedy = Some(error.remedy());
            }
            Err(error) => {
                record.status = Status::Failed;
                record.reason = Some(error.to_string());
            }
        }
        if record.status == Status::Failed {
            *self.failures.entry(slot.case).or_default() += 1;
        } else {
            self.failures.remove(&slot.case);
        }
        if let Some((_, load)) = &mut self.load
            && !load.is_running()
            && record.status == Status::Ok
        {
            record.status = Status::Degraded;
            record.reason = Some("the background load ended during the trial".to_owned());
            self.load = None;
        }
        self.cores.after(&mut record);
        Ok(Some(record))
    }

    /// Starts and stops background work so that this load, and no other, runs.
    fn set_load(&mut self, wanted: Load) -> Result<(), LoadError> {
        if self.load.as_ref().map_or(Load::default(), |(load, _)| *load) == wanted {
            return Ok(());
        }
        self.load = None;
        let key = format!("{wanted:?}");
        if let Some(LoadError::Missing { why, remedy }) = self.loads_failed.get(&key) {
            return Err(LoadError::Missing { why: why.clone(), remedy: remedy.clone() });
        }
        match RunningLoad::start(&wanted, &[]) {
            Ok(Some(running)) => self.load = Some((wanted, running)),
            Ok(None) => {}
            Err(LoadError::Missing { why, remedy }) => {
                let again = LoadError::Missing { why: why.clone(), remedy: remedy.clone() };
                self.loads_failed.insert(key, again);
                return Err(LoadError::Missing { why, remedy });
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A record with everything that is known before the trial.
    fn blank(&self, case: &Case, trial: u32, order: u32) -> Record {
        let mut inputs = case.inputs.clone();
        (inputs.trial, inputs.order) = (trial, order);
        let version = match self.ready.get(case.mechanism) {
            Some(Probe::Ready { version }) => Some(version.clone()),
            _ => None,
        };
        let host = beds::host_label(&inputs).unwrap_or_else(|| LOCAL.to_owned());
        let mut record = Record {
            schema: SCHEMA,
            run: self.folder.run().to_owned(),
            plan: self.plan.name.clone(),
            group: case.group.clone(),
            case: case.id.clone(),
            mechanism: case.mechanism.to_owned(),
            mechanism_version: version,
            host,
            hosts: Vec::new(),
            inputs,
            status: Status::Ok,
            reason: None,
            remedy: None,
            started_unix_ms: clock::unix_ms(),
            counts: None,
            throughput: None,
            latency_ns: Vec::new(),
            pacing: None,
            roles: Vec::new(),
            servers: Vec::new(),
            host_cpu: Vec::new(),
            cost: None,
            net: Vec::new(),
            packets: None,
            packet_series: Vec::new(),
            retransmissions: Vec::new(),
            fairness: None,
            calibration: self.instruments.calibration,
            facts: BTreeMap::new(),
            nulls: BTreeMap::new(),
            warnings: Vec::new(),
        };
        self.beds.enter(&mut record);
        record
    }

    fn write(&mut self, record: Record, tell: &mut impl FnMut(Event<'_>)) -> Result<(), RunError> {
        self.folder.append(&record)?;
        *self.by_status.entry(record.status).or_default() += 1;
        tell(Event::Written { record: &record });
        Ok(())
    }
}

/// An error's cause and, behind the semicolon, what mends it.
fn split_remedy(why: &str) -> (String, String) {
    match why.split_once("; ") {
        Some((why, remedy)) => (why.to_owned(), remedy.to_owned()),
        None => (why.to_owned(), "ask for what the mechanism can do".to_owned()),
    }
}

/// Twice the sender's private caches.
fn working_set(topology: &Topology, cpus: &[u32]) -> u64 {
    let cpu = cpus.first().copied().or_else(|| topology.allowed().first().copied());
    cpu.and_then(|cpu| topology.private_cache_bytes(cpu)).map_or(USUAL_WORKING_SET, |b| 2 * b)
}
