//! A run in progress: runs the trials, writes their records, and skips the remaining trials of cases that fail
//! repeatedly.

use std::collections::{BTreeMap, BTreeSet};

use crossway_mech::{Bind, Caps, Probe};
use crossway_sys::topology::Topology;
use crossway_sys::{Obstacle, clock, lease};

use super::RunEvent;
use super::cores;
use super::done::Done;
use super::error::RunError;
use super::folder::Folder;
use super::limits;
use super::order::{self, Slot};
use super::pauses::{self, Pauses};
use super::testbeds::{self, LiveTestbeds};
use crate::case::Case;
use crate::launcher::{LaunchError, Launcher, RoleSite};
use crate::load::{LoadError, RunningLoad};
use crate::plan::Plan;
use crate::preflight::Finding;
use crate::trial::{self, Setting};
use crate::{assemble, catalogue, shutdown};
use crossway_loops::calibrate::{self, Instruments};
use crossway_loops::payload::working_set_bytes;
use crossway_records::inputs::{Access, Inputs, Load};
use crossway_records::record::{HarnessCost, LOCAL, Record, Status};
use crossway_records::stats;

/// Number of consecutive failures after which the remaining trials of a case are skipped.
const FAILURES_ENOUGH: u32 = 2;
/// Disturbed trials are repeated only if they are at most a quarter of all trials.
const REPEATED_AT_MOST: usize = 4;

/// A run in progress.
pub(super) struct Running<'a> {
    pub(super) plan: &'a Plan,
    pub(super) launcher: &'a Launcher,
    pub(super) leases: &'a lease::Run,
    pub(super) instruments: Instruments,
    pub(super) topology: &'a Topology,
    pub(super) cases: &'a [Case],
    pub(super) ready: BTreeMap<&'static str, Probe>,
    pub(super) testbeds: LiveTestbeds,
    pub(super) folder: Folder,
    pub(super) verified: BTreeSet<usize>,
    pub(super) failures: BTreeMap<usize, u32>,
    /// Cases that turned out to be impossible, each of which gets a single record with the reason.
    pub(super) unsupported: BTreeSet<usize>,
    pub(super) load: Option<(Load, RunningLoad)>,
    pub(super) cores: cores::Cores,
    pub(super) limits: limits::LimitsBetween,
    /// The harness's cost, by message size in bytes, whether the access is in place, and working set in bytes.
    pub(super) harness: BTreeMap<(u64, bool, u64), HarnessCost>,
    pub(super) loads_failed: BTreeMap<String, Obstacle>,
    pub(super) by_status: BTreeMap<Status, usize>,
    /// The index of the case of each trial of the plan that the machine disturbed.
    pub(super) disturbed: Vec<usize>,
    /// Conditions that were found before the trials and could distort the figures; `None` once they are stored.
    pub(super) findings: Option<Vec<Finding>>,
}

/// Whether a trial of the plan should be repeated because the machine made its figures unreliable. Cases with too few
/// trials for an interval are not repeated.
pub(super) fn is_to_be_repeated(record: &Record) -> bool {
    record.status == Status::Degraded
        && !record.inputs.is_repetition()
        && record.inputs.trials as usize >= stats::TRIALS_AT_LEAST
        && (record.calibration.cores_moved()
            || crossway_records::cases::stolen(record).is_some()
            || pauses::were_in(record))
}

impl Running<'_> {
    /// Why a case cannot run here; `None` if it can.
    fn obstacle(&self, case: &Case) -> Option<Obstacle> {
        if case.inputs.testbed.is_some() {
            return case.excluded.clone().or_else(|| self.testbeds.obstacle(case));
        }
        if let Some(Probe::Missing(obstacle)) = self.ready.get(case.mechanism) {
            return Some(obstacle.clone());
        }
        case.excluded.clone()
    }

    pub(super) fn is_open(&self, slot: &Slot, done: &Done) -> bool {
        let case = &self.cases[slot.case];
        self.obstacle(case).is_none()
            && !self.unsupported.contains(&slot.case)
            && !done.contains(slot.case, slot.trial)
    }

    /// Writes one record for each case that cannot run here.
    pub(super) fn write_impossible(
        &mut self,
        done: &Done,
        tell: &mut impl FnMut(RunEvent<'_>),
    ) -> Result<(), RunError> {
        for at in 0..self.cases.len() {
            let case = &self.cases[at];
            let Some(obstacle) = self.obstacle(case) else { continue };
            if done.contains(at, 0) {
                continue;
            }
            let mut record = self.blank(case, 0, 0);
            record.skip(obstacle);
            self.write(record, tell)?;
        }
        Ok(())
    }

    /// Runs all trials that have no record yet, in order; returns whether the run was interrupted.
    pub(super) fn run_slots(
        &mut self,
        slots: &[Slot],
        done: &Done,
        tell: &mut impl FnMut(RunEvent<'_>),
    ) -> Result<bool, RunError> {
        for slot in slots {
            if !self.is_open(slot, done) {
                continue;
            }
            if shutdown::asked(self.launcher.interrupt.as_ref()) {
                return Ok(true);
            }
            let case = &self.cases[slot.case];
            tell(RunEvent::Trial { case, trial: slot.trial });
            match self.run_one(slot)? {
                Some(record) => {
                    if is_to_be_repeated(&record) {
                        self.disturbed.push(slot.case);
                    }
                    self.write_findings(&record)?;
                    self.write(record, tell)?;
                }
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Repeats each disturbed trial once, because the figures of a case with too few good trials have no interval.
    /// Returns whether the run was interrupted.
    pub(super) fn repeat_disturbed(
        &mut self,
        planned: usize,
        done: &Done,
        tell: &mut impl FnMut(RunEvent<'_>),
    ) -> Result<bool, RunError> {
        let slots = self.repeats(planned);
        let open = slots.iter().filter(|slot| self.is_open(slot, done)).count();
        if open == 0 {
            return Ok(false);
        }
        tell(RunEvent::Repeat { trials: open });
        self.run_slots(&slots, done, tell)
    }

    /// The repetitions of those trials of the plan that have been disturbed so far, including repetitions that already
    /// have a record. Empty if too many trials were disturbed.
    pub(super) fn repeats(&self, planned: usize) -> Vec<Slot> {
        // If the machine is disturbed all the time, further trials are no better.
        if self.disturbed.len() > planned / REPEATED_AT_MOST {
            return Vec::new();
        }
        order::repeats(self.cases, &self.disturbed, planned as u32)
    }

    /// Stores the conditions found before the trials. Does nothing if they are already stored, or if `record` is that
    /// of a skipped trial.
    fn write_findings(&mut self, record: &Record) -> Result<(), RunError> {
        if record.status == Status::Skipped {
            return Ok(());
        }
        match self.findings.take() {
            Some(findings) => self.folder.add_findings(&findings),
            None => Ok(()),
        }
    }

    /// Runs one trial; returns `None` if the run was interrupted.
    fn run_one(&mut self, slot: &Slot) -> Result<Option<Record>, RunError> {
        let case = &self.cases[slot.case];
        let mut record = self.blank(case, slot.trial, slot.order);
        let failed = self.failures.get(&slot.case).copied().unwrap_or(0);
        if failed >= FAILURES_ENOUGH {
            record.status = Status::Skipped;
            record.reason = Some(format!("{failed} trials of this case failed before this one"));
            record.remedy = Some("see the reasons of the failed trials".to_owned());
            return Ok(Some(record));
        }
        if let Some(obstacle) = self.testbeds.given_up(&case.inputs) {
            record.skip(obstacle);
            return Ok(Some(record));
        }
        if let Err(error) = self.set_load(case.inputs.load) {
            record.skip(match error {
                LoadError::Missing(obstacle) => obstacle,
                failed => Obstacle::new(failed.to_string(), "run stress-ng manually to see why"),
            });
            return Ok(Some(record));
        }
        let Some(entry) = catalogue::find(case.mechanism) else { return Ok(None) };
        self.limits.enter(&mut record, self.topology);
        self.cores.before(&mut record);
        let caps: Caps = entry.caps();
        let inputs = record.inputs.clone();
        let topology = self.testbeds.topology(&inputs).unwrap_or(self.topology);
        let working_set_bytes = working_set(topology, &inputs.cpus);
        record.calibration.harness = Some(self.harness_cost(&inputs, working_set_bytes));
        let mut setting = Setting {
            mechanism: case.mechanism,
            contender: entry.contender().map(|c| c.launch(lease::random_number())),
            caps,
            inputs: &inputs,
            replay: case.replay.as_deref(),
            ticker: self.instruments.ticker,
            clock_step_ns: record.calibration.clock_step_ns,
            working_set_bytes,
            verify: !self.verified.contains(&slot.case),
            bind: Bind::default(),
            onlooker: None,
            contained: false,
        };
        let site = if inputs.testbed.is_none() {
            Ok(RoleSite::Local { launcher: self.launcher, run: self.leases, containers: None })
        } else if let Some(containers) = self.testbeds.containers(&inputs) {
            setting.bind = containers.bind();
            setting.contained = true;
            Ok(RoleSite::Local {
                launcher: self.launcher,
                run: self.leases,
                containers: Some(containers),
            })
        } else {
            self.testbeds.site(&inputs, self.launcher.interrupt()).map(|(site, address)| {
                setting.bind = Bind { address, unix_path: false };
                site
            })
        };
        let pauses = Pauses::watch();
        match site.and_then(|site| trial::run(&setting, site)) {
            Ok(brought) => {
                let name = format!("{:06}", slot.order);
                assemble::enter(&mut record, brought, &caps, self.folder.dir(), &name).map_err(
                    |cause| {
                        let path = self.folder.dir().join("h").join(format!("{name}.hlog"));
                        self.folder.unwritten(path, cause)
                    },
                )?;
                self.verified.insert(slot.case);
                self.testbeds.note_success(&inputs);
            }
            Err(LaunchError::Interrupted) => return Ok(None),
            Err(LaunchError::Unsupported(why)) => {
                self.unsupported.insert(slot.case);
                record.skip(Obstacle::said(&why, "choose values that the mechanism supports"));
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
            record.remedy = Some(
                "find out what ends stress-ng, such as a lack of memory (see dmesg), and measure again"
                    .to_owned(),
            );
            self.load = None;
        }
        if record.status != Status::Failed {
            pauses.enter(&mut record);
        }
        self.cores.after(&mut record);
        Ok(Some(record))
    }

    /// The harness's cost for a case with these inputs; measured at most once per run for each size, access and working
    /// set.
    fn harness_cost(&mut self, inputs: &Inputs, working_set_bytes: u64) -> HarnessCost {
        let ticker = self.instruments.ticker;
        let key = (inputs.size_bytes, inputs.access == Access::InPlace, working_set_bytes);
        *self.harness.entry(key).or_insert_with(|| {
            let (size, working_set) = (inputs.size_bytes as usize, working_set_bytes as usize);
            calibrate::harness(&ticker, size, inputs.access, working_set)
        })
    }

    /// Starts and stops background load so that the wanted load is running and nothing else.
    fn set_load(&mut self, wanted: Load) -> Result<(), LoadError> {
        if self.load.as_ref().map_or(Load::default(), |(load, _)| *load) == wanted {
            return Ok(());
        }
        self.load = None;
        let key = format!("{wanted:?}");
        if let Some(missing) = self.loads_failed.get(&key) {
            return Err(LoadError::Missing(missing.clone()));
        }
        match RunningLoad::start(&wanted, &[]) {
            Ok(Some(running)) => self.load = Some((wanted, running)),
            Ok(None) => {}
            Err(LoadError::Missing(missing)) => {
                self.loads_failed.insert(key, missing.clone());
                return Err(LoadError::Missing(missing));
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
        let host = testbeds::host_label(&inputs).unwrap_or_else(|| LOCAL.to_owned());
        let mut record = Record {
            run: self.folder.run().to_owned(),
            plan: self.plan.name.clone(),
            group: case.group.clone(),
            case: case.id.clone(),
            mechanism_version: version,
            contender: catalogue::find(case.mechanism)
                .and_then(|entry| entry.contender())
                .map(|contender| contender.note()),
            host,
            started_unix_ms: clock::unix_ms(),
            calibration: self.instruments.calibration,
            ..Record::of(case.mechanism, inputs)
        };
        record.warnings.extend(case.replay.iter().flat_map(|replay| replay.remarks.clone()));
        self.testbeds.enter(&mut record);
        record
    }

    fn write(
        &mut self,
        record: Record,
        tell: &mut impl FnMut(RunEvent<'_>),
    ) -> Result<(), RunError> {
        self.folder.append(&record)?;
        *self.by_status.entry(record.status).or_default() += 1;
        tell(RunEvent::Written { record: &record });
        Ok(())
    }
}

/// The working set of the payload in bytes, by the sender's CPU or, for unpinned roles, the first that is allowed.
fn working_set(topology: &Topology, cpus: &[u32]) -> u64 {
    let cpu = cpus.first().copied().or_else(|| topology.allowed().first().copied());
    working_set_bytes(topology, cpu.unwrap_or(0))
}
