//! One trial from the first process to the last: open, verify, warm up, measure, close.

mod opening;
mod wall;
mod windows;

use std::net::IpAddr;
use std::time::Duration;

use crossway_mech::{Caps, Facts};
use crossway_sys::clock::Ticker;

use crate::cast::Cast;
use crate::control::{Answer, OfferText, Outcome, Window};
use crate::inputs::Inputs;
use crate::launcher::{Held, LaunchError, Stage, Troupe};
use crate::meters::HostReading;

use windows::Measured;

pub(crate) use wall::{sender_wall_ns, timed, wall_ns};

/// The watchdog for whatever should be quick: opening, verifying, preparing. Longer than a guest that keeps silent is left alive, on a
/// machine of whatever speed: that it has died is the better reason.
const STEP_LIMIT: Duration = Duration::from_secs(35);

/// What a trial is given besides its inputs.
#[derive(Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) mechanism: &'a str,
    pub(crate) caps: Caps,
    pub(crate) inputs: &'a Inputs,
    pub(crate) ticker: Ticker,
    pub(crate) clock_step_ns: f64,
    pub(crate) working_set_bytes: u64,
    /// Whether the case must still pass verification in this run.
    pub(crate) verify: bool,
    /// Where the listening end can be reached by the other one; null: loopback.
    pub(crate) bind_address: Option<IpAddr>,
}

/// What a trial brought.
#[derive(Debug)]
pub(crate) struct Brought {
    pub(crate) cast: Cast,
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
}

/// Runs one trial.
pub(crate) fn run(setting: &Setting<'_>, stage: Stage<'_>) -> Result<Brought, LaunchError> {
    let cast = Cast::of(setting.inputs, &setting.caps);
    let listens = |role: usize| cast.roles[role].listeners > 0;
    let roles: Vec<_> = (0..cast.roles.len()).map(|at| (cast.name(at), listens(at))).collect();
    let troupe = Troupe::start(stage, &roles)?;
    let mut play = Play { setting, cast, troupe, window: 0 };
    let (facts, warnings) = play.open()?;
    if setting.verify {
        play.verify()?;
    }
    let (warmup, rate) = play.warm_up()?;
    let Measured { window, outcomes, hosts, discarded } = play.measure(rate)?;
    let warmup = warmup + discarded;
    play.close()?;
    let Play { cast, troupe, .. } = play;
    let role_hosts = (0..cast.roles.len()).map(|role| troupe.host_of(role).to_owned()).collect();
    let one_clock = troupe.one_clock();
    troupe.finish()?;
    Ok(Brought { cast, outcomes, window, warmup, facts, warnings, hosts, role_hosts, one_clock })
}

struct Play<'a> {
    setting: &'a Setting<'a>,
    cast: Cast,
    troupe: Troupe<'a>,
    window: u32,
}

impl Play<'_> {
    fn all(&self) -> Vec<usize> {
        (0..self.cast.roles.len()).collect()
    }
}

fn unexpected(answer: &Answer) -> LaunchError {
    LaunchError::Role(format!("a role answered out of turn: {answer:?}"))
}

type HeldOffer = (OfferText, Vec<Held>);
