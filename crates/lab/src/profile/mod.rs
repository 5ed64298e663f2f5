//! Where the time of a case goes: perf samples both roles, and a broker between them if there is one, during the
//! measured window.
//!
//! A [`Profile`] contains each role's samples by [`Part`], its hottest places and its stacks. Sampling shows where a
//! processor was, not why. Time during which a role slept is not in the samples; it is the difference between wall time
//! and CPU time. If perf is missing or not permitted, a profile still contains the data from `/proc` and `getrusage`,
//! and the reason why there are no samples.

mod elf;
mod lines;
mod part;
mod sampler;
mod samples;
mod script;

use std::collections::BTreeMap;

use crossway_mech::{Bind, Probe};
use crossway_sys::topology::Topology;
use crossway_sys::{Obstacle, lease};
use serde::{Deserialize, Serialize};

pub use part::Part;

use crate::case::{self, Case};
use crate::catalogue;
use crate::control::Outcome;
use crate::launcher::{LaunchError, Launcher, RoleSite};
use crate::plan::Plan;
use crate::trial::{self, Setting};
use crossway_loops::calibrate;
use sampler::Sampler;
use samples::Sampled;

/// Working set of the payload, bytes.
const WORKING_SET_BYTES: u64 = 4 << 20;
/// Maximum number of hot spots in the profile of a role.
const HOT_SPOTS: usize = 15;

/// The reason why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The user or the system requested a stop.
    #[error("interrupted")]
    Interrupted,
    /// The plan has no case, or more than one.
    #[error("the plan '{0}' has {1} cases; a profile needs exactly one")]
    NotOne(String, usize),
    /// The case cannot run here.
    #[error("{case}: {obstacle}")]
    Missing {
        /// The case.
        case: String,
        /// Why, and what helps.
        obstacle: Obstacle,
    },
    /// The case needs other hosts or background load, which profiles do not support.
    #[error("{0}: only cases on this machine without background load can be profiled")]
    Elsewhere(String),
    /// The trial failed.
    #[error("{case}: {why}")]
    Failed {
        /// The case.
        case: String,
        /// The reason.
        why: String,
    },
    /// The machine's facts could not be read, or leases could not be created.
    #[error("{0}")]
    Os(#[from] crossway_sys::OsError),
}

/// How the samples were taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// The event that perf sampled, such as `cycles` or `cpu-clock`; null without samples.
    pub event: Option<String>,
    /// Requested number of samples per second of CPU time.
    pub rate_hz: u32,
    /// Whether samples in the kernel have function names.
    pub kernel_names: bool,
    /// Whether samples in programs have source lines and inlined functions.
    pub lines: bool,
    /// Remarks on the figures.
    pub notes: Vec<String>,
    /// Why there are no samples; null if there are.
    pub missing: Option<String>,
    /// What would make sampling possible; null if there are samples.
    pub remedy: Option<String>,
}

/// A function, in a program or in the kernel, with its samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HotSpot {
    /// The function; inlined functions are separate.
    pub function: String,
    /// `kernel`, or the program's or library's file name.
    pub of: String,
    /// The source line that has the most of these samples, `file:line`; null if unknown.
    pub line: Option<String>,
    /// The kind of work that the function is counted as.
    pub part: Part,
    /// Number of samples.
    pub samples: u64,
}

/// The profile of one role, or of a process that serves both roles. The context switches and page faults of such a
/// process are not counted and are 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleProfile {
    /// `sender`, `receiver`, `client` or `server`, or `broker` for a process that serves both roles.
    pub name: String,
    /// The window's wall time, nanoseconds.
    pub wall_ns: u64,
    /// User CPU time, nanoseconds; null if only the total is known.
    pub user_ns: Option<u64>,
    /// System CPU time, nanoseconds; null if only the total is known.
    pub system_ns: Option<u64>,
    /// Total CPU time, nanoseconds.
    pub cpu_ns: u64,
    /// Voluntary context switches.
    pub switches_voluntary: u64,
    /// Involuntary context switches.
    pub switches_involuntary: u64,
    /// Page faults, minor and major.
    pub faults: u64,
    /// Total number of samples.
    pub samples: u64,
    /// Number of samples by kind of work.
    pub parts: BTreeMap<Part, u64>,
    /// The hottest places, most samples first.
    pub hot: Vec<HotSpot>,
    /// Stacks and their numbers of samples. The frames of a stack are separated by `;`, the outermost first.
    pub stacks: Vec<(String, u64)>,
}

impl RoleProfile {
    /// CPU time of a kind of work, nanoseconds: its fraction of the samples multiplied by the CPU time that the kernel
    /// counted; `None` without samples.
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
    /// Version of what provides the mechanism.
    pub version: String,
    /// The workload's name.
    pub workload: String,
    /// Message size in bytes.
    pub size_bytes: u64,
    /// Number of messages in the measured window, or of round trips or exchanges: see `unit`.
    pub messages: u64,
    /// What is counted, and what the figures refer to: `message`, `round trip` or `exchange`.
    pub unit: String,
    /// How the samples were taken.
    pub sampling: Sampling,
    /// The roles.
    pub roles: Vec<RoleProfile>,
}

impl Profile {
    /// CPU time of a kind of work summed over all roles, nanoseconds per message; `None` without samples.
    pub fn part_ns_per_message(&self, part: Part) -> Option<f64> {
        let mut sum = None;
        for role in &self.roles {
            if let Some(ns) = role.part_ns(part) {
                sum = Some(sum.unwrap_or(0.0) + ns);
            }
        }
        sum.map(|ns: f64| ns / self.messages.max(1) as f64)
    }

    /// CPU time of all roles, nanoseconds per message.
    pub fn cpu_ns_per_message(&self) -> f64 {
        let sum: u64 = self.roles.iter().map(|r| r.cpu_ns).sum();
        sum as f64 / self.messages.max(1) as f64
    }
}

/// Runs the plan's only case once and profiles it.
///
/// # Errors
/// See [`ProfileError`]. If perf is missing, that is not an error.
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
        replay: case.replay.as_deref(),
        ticker: instruments.ticker,
        clock_step_ns: instruments.calibration.clock_step_ns,
        working_set_bytes: WORKING_SET_BYTES,
        verify: true,
        bind: Bind::default(),
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
            "of {} messages, {} had wrong content, and {} arrived out of order",
            wrong.received, wrong.corrupt, wrong.out_of_order
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
        unit: case.inputs.workload.facts().measure.per().name().to_owned(),
        sampling,
        roles,
    })
}

/// The mechanism's version, if the case can run here.
fn ready(case: &Case) -> Result<String, ProfileError> {
    let missing = |obstacle| ProfileError::Missing { case: case.full_id(), obstacle };
    if let Some(excluded) = &case.excluded {
        return Err(missing(excluded.clone()));
    }
    if case.inputs.testbed.is_some()
        || case.inputs.load != crossway_records::inputs::Load::default()
    {
        return Err(ProfileError::Elsewhere(case.full_id()));
    }
    match catalogue::find(case.mechanism).map(|entry| entry.probe()) {
        Some(Probe::Ready { version }) => Ok(version),
        Some(Probe::Missing(obstacle)) => Err(missing(obstacle)),
        None => Err(missing(Obstacle::new("there is no such mechanism", "crossway list"))),
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

/// The profile of the broker between the roles; `None` if there is none.
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
