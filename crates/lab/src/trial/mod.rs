//! One trial, from starting the processes until they have exited: open, verify, warm up, measure, close.

mod beside;
mod opening;
mod schedule;
mod wall;
mod warmup;
mod windows;

use std::time::Duration;

use crossway_mech::{Bind, Caps, Facts};
use crossway_sys::clock::Ticker;

use crate::contender::Launch;
use crate::control::{Answer, OfferText, Outcome, Window};
use crate::launcher::{HeldDescriptor, LaunchError, RoleGroup, RoleSite};
use crate::meters::HostReading;
use crate::replay::{Replay, fidelity};
use crate::role_layout::RoleLayout;
use crossway_records::inputs::Inputs;
use crossway_records::record::ReplayFigures;
use crossway_records::testbed::APART;

use windows::Measured;

pub(crate) use wall::{sender_wall_ns, wall_ns};

/// Time limit for steps that should be quick: opening, verifying, preparing. The limit is longer than the time after
/// which an unresponsive guest is declared dead, because the guest's death is the better explanation.
const STEP_LIMIT: Duration = Duration::from_secs(35);

/// The parameters of a trial in addition to its inputs.
#[derive(Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) mechanism: &'a str,
    /// How the program is started, if the mechanism is a contender.
    pub(crate) contender: Option<Launch>,
    pub(crate) caps: Caps,
    pub(crate) inputs: &'a Inputs,
    /// The recording, if the workload replays one.
    pub(crate) replay: Option<&'a Replay>,
    pub(crate) ticker: Ticker,
    pub(crate) clock_step_ns: f64,
    pub(crate) working_set_bytes: u64,
    /// Whether the case still has to be verified in this run.
    pub(crate) verify: bool,
    /// Where the listening end can be found.
    pub(crate) bind: Bind,
    /// Whether the ends are in separate containers. In that case, an inability to communicate is a result and not a
    /// failure.
    pub(crate) contained: bool,
    /// Observes the roles during the measured window; `None` for no observer.
    pub(crate) onlooker: Option<&'a dyn Onlooker>,
}

/// Observes the processes from outside during the measured window.
pub(crate) trait Onlooker: std::fmt::Debug {
    /// Called immediately before the window begins, with the roles' names and process ids, and the ids of processes
    /// that work for both ends. If a window was too short and is repeated, this is called again, and earlier
    /// observations must be discarded.
    fn begin(&self, roles: &[(String, u32)], servers: &[u32]) -> Result<(), LaunchError>;

    /// Called when the window has ended.
    fn end(&self) -> Result<(), LaunchError>;
}

/// Results of a trial.
#[derive(Debug)]
pub(crate) struct Brought {
    pub(crate) layout: RoleLayout,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) window: Window,
    pub(crate) warmup: u64,
    pub(crate) facts: Facts,
    pub(crate) warnings: Vec<String>,
    /// The readings of each host's meters, with the hosts' names.
    pub(crate) hosts: Vec<HostReading>,
    /// The name of each role's host.
    pub(crate) role_hosts: Vec<String>,
    /// Whether time stamps of all roles can be compared.
    pub(crate) one_clock: bool,
    /// Results of the concurrent workloads, in the order of the inputs.
    pub(crate) beside: Vec<BroughtBeside>,
    /// How far a replay was from its recording.
    pub(crate) replay: Option<ReplayFigures>,
}

/// Results of a concurrent workload.
#[derive(Debug)]
pub(crate) struct BroughtBeside {
    pub(crate) layout: RoleLayout,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) caps: Caps,
}

/// Runs one trial.
pub(crate) fn run(setting: &Setting<'_>, site: RoleSite<'_>) -> Result<Brought, LaunchError> {
    let layout = RoleLayout::of(setting.inputs, &setting.caps, setting.replay);
    let here = site.here();
    let beside_inputs: Vec<Inputs> =
        setting.inputs.beside.iter().map(|beside| beside.inputs(setting.inputs)).collect();
    let beside_settings = beside::settings(setting, &beside_inputs);
    let mut trial = TrialRun::start(setting, layout, site)?;
    let opened = trial.open();
    let (facts, warnings) = match opened {
        Err(LaunchError::Role(why) | LaunchError::Unsupported(why)) if setting.contained => {
            let why = why.replace("; ", ", ");
            return Err(LaunchError::Unsupported(format!(
                "{APART}: {why}; let the containers share the volume or namespace that contains the channel's names"
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
    let replay = setting.replay.and_then(|replay| {
        let has_replies = setting.inputs.workload.facts().has_replies;
        let wall_ns = wall_ns(&layout, &outcomes, has_replies, one_clock);
        fidelity::figures(replay, setting.mechanism, &outcomes, wall_ns)
    });
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
        replay,
    })
}

struct TrialRun<'a> {
    setting: &'a Setting<'a>,
    layout: RoleLayout,
    group: RoleGroup<'a>,
    window: u32,
    /// Ids of the processes that work for both ends, as reported after the last window.
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
    LaunchError::Role(format!("unexpected answer from a role: {answer:?}"))
}

type HeldOffer = (OfferText, Vec<HeldDescriptor>);
