//! One trial from the first process to the last: open, verify, warm up, measure, close.

mod beside;
mod opening;
mod wall;
mod windows;

use std::net::IpAddr;
use std::time::Duration;

use crossway_mech::{Caps, Facts};
use crossway_sys::clock::Ticker;

use crate::contender::Launch;
use crate::control::{Answer, OfferText, Outcome, Window};
use crate::inputs::Inputs;
use crate::launcher::{HeldDescriptor, LaunchError, RoleGroup, RoleSite};
use crate::meters::HostReading;
use crate::role_layout::RoleLayout;

use windows::Measured;

pub(crate) use wall::{sender_wall_ns, timed, wall_ns};

/// The watchdog for whatever should be quick: opening, verifying, preparing. Longer than a guest that keeps silent is left alive, on a
/// machine of whatever speed: that it has died is the better reason.
const STEP_LIMIT: Duration = Duration::from_secs(35);

/// What a trial is given besides its inputs.
#[derive(Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) mechanism: &'a str,
    /// How its program is started, where it is a contender.
    pub(crate) contender: Option<Launch>,
    pub(crate) caps: Caps,
    pub(crate) inputs: &'a Inputs,
    pub(crate) ticker: Ticker,
    pub(crate) clock_step_ns: f64,
    pub(crate) working_set_bytes: u64,
    /// Whether the case must still pass verification in this run.
    pub(crate) verify: bool,
    /// Where the listening end can be reached by the other one; null: loopback.
    pub(crate) bind_address: Option<IpAddr>,
    /// The ends are in containers of their own; that nothing passes between them is an answer, no failure.
    pub(crate) contained: bool,
    /// Samples the roles while the window that counts runs; null: nothing does.
    pub(crate) onlooker: Option<&'a dyn Onlooker>,
}

/// Looks on from outside while the window that counts runs.
pub(crate) trait Onlooker: std::fmt::Debug {
    /// The window is about to begin: the roles' processes with the roles' names, and processes that work for both ends. Called
    /// once more where a window is repeated because it was too short; what was seen before is then void.
    fn begin(&self, roles: &[(String, u32)], servers: &[u32]) -> Result<(), LaunchError>;

    /// It is over.
    fn end(&self) -> Result<(), LaunchError>;
}

/// What a trial brought.
#[derive(Debug)]
pub(crate) struct Brought {
    pub(crate) layout: RoleLayout,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) window: Window,
    pub(crate) warmup: u64,
    pub(crate) facts: Facts,
    pub(crate) warnings: Vec<String>,
    /// What each host's meters read, with the hosts' names.
    pub(crate) hosts: Vec<HostReading>,
    /// Each role's host.
    pub(crate) role_hosts: Vec<String>,
    /// Whether instants of all roles can be compared.
    pub(crate) one_clock: bool,
    /// What the workloads beside brought, in the order of the inputs.
    pub(crate) beside: Vec<BroughtBeside>,
}

/// What a workload beside the measured one brought.
#[derive(Debug)]
pub(crate) struct BroughtBeside {
    pub(crate) layout: RoleLayout,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) caps: Caps,
}

/// Runs one trial.
pub(crate) fn run(setting: &Setting<'_>, site: RoleSite<'_>) -> Result<Brought, LaunchError> {
    let layout = RoleLayout::of(setting.inputs, &setting.caps);
    let here = site.here();
    let beside_inputs: Vec<Inputs> =
        setting.inputs.beside.iter().map(|beside| beside.inputs(setting.inputs)).collect();
    let beside_settings = beside::settings(setting, &beside_inputs);
    let mut trial = TrialRun::start(setting, layout, site)?;
    let opened = trial.open();
    let (facts, warnings) = match opened {
        Err(LaunchError::Role(why)) if setting.contained => {
            let why = why.replace("; ", ", ");
            return Err(LaunchError::Unsupported(format!(
                "it does not pass between these containers: {why}; let them share what its names need"
            )));
        }
        opened => opened?,
    };
    if setting.verify {
        trial.verify()?;
    }
    let beside = beside::start(&beside_settings, here)?;
    let (warmup, rate) = trial.warm_up()?;
    let Measured { window, outcomes, hosts, discarded } = trial.measure(rate)?;
    let warmup = warmup + discarded;
    let beside = beside::end(beside)?;
    trial.close()?;
    let TrialRun { layout, group, .. } = trial;
    let role_hosts = (0..layout.roles.len()).map(|role| group.host_of(role).to_owned()).collect();
    let one_clock = group.one_clock();
    group.finish()?;
    Ok(Brought {
        layout,
        outcomes,
        window,
        warmup,
        facts,
        warnings,
        hosts,
        role_hosts,
        one_clock,
        beside,
    })
}

struct TrialRun<'a> {
    setting: &'a Setting<'a>,
    layout: RoleLayout,
    group: RoleGroup<'a>,
    window: u32,
    /// Processes that work for both ends, as the last window named them.
    servers: Vec<u32>,
}

impl<'a> TrialRun<'a> {
    /// Starts a process for each role.
    fn start(
        setting: &'a Setting<'a>,
        layout: RoleLayout,
        site: RoleSite<'a>,
    ) -> Result<TrialRun<'a>, LaunchError> {
        let listens = |role: usize| layout.roles[role].listeners > 0;
        let roles: Vec<_> =
            (0..layout.roles.len()).map(|at| (layout.name(at), listens(at))).collect();
        let group = RoleGroup::start(site, &roles)?;
        Ok(TrialRun { setting, layout, group, window: 0, servers: Vec::new() })
    }

    fn all(&self) -> Vec<usize> {
        (0..self.layout.roles.len()).collect()
    }
}

fn unexpected(answer: &Answer) -> LaunchError {
    LaunchError::Role(format!("a role answered out of turn: {answer:?}"))
}

type HeldOffer = (OfferText, Vec<HeldDescriptor>);
