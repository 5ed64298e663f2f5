//! Where the time of a case goes: both roles, and what serves them, sampled by perf while the window that counts runs.
//!
//! A [`Profile`] holds each role's samples by [`Part`], its hottest places and its stacks. Sampling tells where a processor was, not
//! why: what a role slept through is not in it, and shows as the difference between its wall time and its CPU time. Without perf, or
//! without the right to it, a profile still has what `/proc` and `getrusage` tell, and says why it has no more.

mod elf;
mod lines;
mod part;
mod sampler;
mod script;

use std::collections::BTreeMap;

use crossway_mech::Probe;
use crossway_sys::lease;
use crossway_sys::topology::Topology;
use serde::{Deserialize, Serialize};

pub use part::Part;

use crate::calibrate;
use crate::case::{self, Case};
use crate::catalogue;
use crate::control::Outcome;
use crate::launcher::{LaunchError, Launcher, RoleSite};
use crate::plan::Plan;
use crate::trial::{self, Setting};
use sampler::{Sampled, Sampler};

/// Working set of the payload, bytes.
const WORKING_SET_BYTES: u64 = 4 << 20;
/// How many of a role's hottest places are kept.
const HOT_SPOTS: usize = 15;

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The person or the system asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// The plan gives no case, or more than one.
    #[error("'{0}' gives {1} cases; a profile is of one")]
    NotOne(String, usize),
    /// The case cannot run here.
    #[error("{case}: {why}; {remedy}")]
    Missing {
        /// The case.
        case: String,
        /// Why.
        why: String,
        /// What helps.
        remedy: String,
    },
    /// The case needs other hosts, or a load beside it.
    #[error("{0}: only cases of this machine without a load are profiled")]
    Elsewhere(String),
    /// The trial failed.
    #[error("{case}: {why}")]
    Failed {
        /// The case.
        case: String,
        /// Why.
        why: String,
    },
    /// The machine could not be read, or nothing leased.
    #[error("{0}")]
    Os(#[from] crossway_sys::OsError),
}

/// How the samples were taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// perf's event, such as `cycles` or `cpu-clock`; null without samples.
    pub event: Option<String>,
    /// Samples a second of CPU time that were asked for.
    pub rate_hz: u32,
    /// Samples of the kernel came with names.
    pub kernel_names: bool,
    /// Samples of programs came with lines and inlined functions.
    pub lines: bool,
    /// What to know before reading the figures.
    pub notes: Vec<String>,
    /// Why there are no samples; null with them.
    pub missing: Option<String>,
    /// What would bring them.
    pub remedy: Option<String>,
}

/// A place in a program or in the kernel where samples fell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HotSpot {
    /// The function, inlined ones by themselves.
    pub function: String,
    /// `kernel`, or the program's or library's file name.
    pub of: String,
    /// The line where most of its samples fell, `file:line`; null where unknown.
    pub line: Option<String>,
    /// What it counts as.
    pub part: Part,
    /// Samples.
    pub samples: u64,
}

/// One role, or the process that serves both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleProfile {
    /// `sender`, `receiver`, `client`, `server`, or `broker` for a process between them.
    pub name: String,
    /// The window's wall time, nanoseconds.
    pub wall_ns: u64,
    /// User CPU time, nanoseconds; null where only the whole is known.
    pub user_ns: Option<u64>,
    /// System CPU time, nanoseconds.
    pub system_ns: Option<u64>,
    /// All CPU time, nanoseconds.
    pub cpu_ns: u64,
    /// Voluntary context switches.
    pub switches_voluntary: u64,
    /// Involuntary context switches.
    pub switches_involuntary: u64,
    /// Page faults, minor and major.
    pub faults: u64,
    /// Samples in all.
    pub samples: u64,
    /// Samples by part.
    pub parts: BTreeMap<Part, u64>,
    /// The hottest places, most samples first.
    pub hot: Vec<HotSpot>,
    /// Stacks from the outermost frame, separated by `;`, and their samples.
    pub stacks: Vec<(String, u64)>,
}

impl RoleProfile {
    /// CPU time of a part, nanoseconds: its share of the samples, of the CPU time that the kernel counted.
    pub fn part_ns(&self, part: Part) -> Option<f64> {
        let of_it = self.parts.get(&part).copied().unwrap_or(0);
        (self.samples > 0).then(|| self.cpu_ns as f64 * of_it as f64 / self.samples as f64)
    }
}

/// Where the time of one case went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The case.
    pub case: String,
    /// The mechanism.
    pub mechanism: String,
    /// Its version.
    pub version: String,
    /// The workload's name.
    pub workload: String,
    /// Bytes of a message.
    pub size_bytes: u64,
    /// Messages, or round trips, in the window.
    pub messages: u64,
    /// How the samples were taken.
    pub sampling: Sampling,
    /// The roles.
    pub roles: Vec<RoleProfile>,
}

impl Profile {
    /// CPU time of a part over all roles, nanoseconds per message; null without samples.
    pub fn part_ns_per_message(&self, part: Part) -> Option<f64> {
        let mut sum = None;
        for role in &self.roles {
            if let Some(ns) = role.part_ns(part) {
                sum = Some(sum.unwrap_or(0.0) + ns);
            }
        }
        sum.map(|ns: f64| ns / self.messages.max(1) as f64)
    }

    /// CPU time over all roles, nanoseconds per message.
    pub fn cpu_ns_per_message(&self) -> f64 {
        let sum: u64 = self.roles.iter().map(|r| r.cpu_ns).sum();
        sum as f64 / self.messages.max(1) as f64
    }
}

/// Plays the plan's only case once and says where its time went.
///
/// # Errors
/// The plan has not exactly one case, the case cannot run here, or it failed. That perf is missing is no error.
pub fn profile(
    plan: &Plan,
    launcher: &Launcher,
    run: &lease::Run,
) -> Result<Profile, ProfileError> {
    let topology = Topology::read()?;
    let cases = case::expand(plan, &topology, &[]);
    let [case] = &cases[..] else {
        return Err(ProfileError::NotOne(plan.name.clone(), cases.len()));
    };
    let version = ready(case)?;
    let Some(entry) = catalogue::find(case.mechanism) else {
        return Err(ProfileError::NotOne(plan.name.clone(), 0));
    };
    let sampler = Sampler::new(launcher.interrupt());
    let instruments = calibrate::calibrate();
    let setting = Setting {
        mechanism: case.mechanism,
        contender: entry.contender().map(|c| c.launch(lease::random_number())),
        caps: entry.caps(),
        inputs: &case.inputs,
        ticker: instruments.ticker,
        clock_step_ns: instruments.calibration.clock_step_ns,
        working_set_bytes: WORKING_SET_BYTES,
        verify: true,
        bind_address: None,
        onlooker: Some(&sampler),
        contained: false,
    };
    let failed = |why: String| ProfileError::Failed { case: case.full_id(), why };
    let brought = trial::run(&setting, RoleSite::Local { launcher, run, containers: None })
        .map_err(|e| match e {
            LaunchError::Interrupted => ProfileError::Interrupted,
            other => failed(other.to_string()),
        })?;
    if let Some(wrong) = brought.outcomes.iter().find(|o| o.corrupt + o.out_of_order > 0) {
        return Err(failed(format!(
            "{} messages were damaged and {} came out of order",
            wrong.corrupt, wrong.out_of_order
        )));
    }
    let (sampling, mut sampled) = sampler.finish();
    let names = (0..brought.layout.roles.len()).map(|at| brought.layout.name(at));
    let mut roles: Vec<RoleProfile> = names
        .zip(&brought.outcomes)
        .map(|(name, outcome)| role(&name, outcome, sampled.remove(&name)))
        .collect();
    if let Some(broker) = broker(&brought.outcomes, sampled.remove(sampler::BROKER)) {
        roles.push(broker);
    }
    Ok(Profile {
        case: case.full_id(),
        mechanism: case.mechanism.to_owned(),
        version,
        workload: case.inputs.workload.word().to_owned(),
        size_bytes: case.inputs.size_bytes,
        messages: brought.window.messages,
        sampling,
        roles,
    })
}

/// The mechanism's version, if the case can run here.
fn ready(case: &Case) -> Result<String, ProfileError> {
    let missing =
        |why: String, remedy: String| ProfileError::Missing { case: case.full_id(), why, remedy };
    if let Some(excluded) = &case.excluded {
        return Err(missing(excluded.why.clone(), excluded.remedy.clone()));
    }
    if case.inputs.testbed.is_some() || case.inputs.load != crate::inputs::Load::default() {
        return Err(ProfileError::Elsewhere(case.full_id()));
    }
    match catalogue::find(case.mechanism).map(|entry| entry.probe()) {
        Some(Probe::Ready { version }) => Ok(version),
        Some(Probe::Missing { why, remedy }) => Err(missing(why, remedy)),
        None => Err(missing("there is no such mechanism".to_owned(), "crossway list".to_owned())),
    }
}

fn role(name: &str, outcome: &Outcome, sampled: Option<Sampled>) -> RoleProfile {
    let sampled = sampled.unwrap_or_default();
    RoleProfile {
        name: name.to_owned(),
        wall_ns: outcome.end_ns.saturating_sub(outcome.start_ns),
        user_ns: Some(outcome.user_ns),
        system_ns: Some(outcome.system_ns),
        cpu_ns: outcome.user_ns + outcome.system_ns,
        switches_voluntary: outcome.switches_voluntary,
        switches_involuntary: outcome.switches_involuntary,
        faults: outcome.faults_minor + outcome.faults_major,
        samples: sampled.samples,
        hot: sampled.hottest(HOT_SPOTS),
        parts: sampled.parts,
        stacks: sampled.stacks.into_iter().collect(),
    }
}

/// The process between the roles, where there is one.
fn broker(outcomes: &[Outcome], sampled: Option<Sampled>) -> Option<RoleProfile> {
    let used = outcomes.iter().filter_map(|o| o.server.and_then(|s| s.cpu_ns)).max();
    if used.is_none() && sampled.is_none() {
        return None;
    }
    let sampled = sampled.unwrap_or_default();
    let wall_ns = outcomes.iter().map(|o| o.end_ns.saturating_sub(o.start_ns)).max();
    Some(RoleProfile {
        name: sampler::BROKER.to_owned(),
        wall_ns: wall_ns.unwrap_or(0),
        user_ns: None,
        system_ns: None,
        cpu_ns: used.unwrap_or(0),
        switches_voluntary: 0,
        switches_involuntary: 0,
        faults: 0,
        samples: sampled.samples,
        hot: sampled.hottest(HOT_SPOTS),
        parts: sampled.parts,
        stacks: sampled.stacks.into_iter().collect(),
    })
}
