//! Concurrent workloads (`beside`): opened and verified like the measured workload, started before its warm-up and
//! ended after its measured part.

use crossway_mech::Bind;

use super::{BroughtBeside, STEP_LIMIT, Setting, TrialRun, unexpected};
use crate::catalogue;
use crate::control::{Answer, Order, Window};
use crate::launcher::{LaunchError, RoleSite};
use crate::role_layout::RoleLayout;
use crossway_records::inputs::Inputs;

/// The settings of a trial for each concurrent workload.
pub(super) fn settings<'a>(of: &Setting<'a>, inputs: &'a [Inputs]) -> Vec<Setting<'a>> {
    let besides = of.inputs.beside.iter().zip(inputs);
    besides
        .filter_map(|(beside, inputs)| {
            Some(Setting {
                mechanism: &beside.mechanism,
                contender: None,
                caps: catalogue::find(&beside.mechanism)?.caps(),
                inputs,
                replay: None,
                ticker: of.ticker,
                clock_step_ns: of.clock_step_ns,
                working_set_bytes: of.working_set_bytes,
                verify: of.verify,
                bind: Bind::default(),
                contained: false,
                onlooker: None,
            })
        })
        .collect()
}

/// Starts all concurrent workloads. They run until [`end`] is called or until they are dropped.
pub(super) fn start<'a>(
    settings: &'a [Setting<'a>],
    here: Option<RoleSite<'a>>,
) -> Result<Vec<TrialRun<'a>>, LaunchError> {
    let mut running = Vec::new();
    for setting in settings {
        let Some(site) = here.as_ref().and_then(RoleSite::here) else {
            let why = "concurrent workloads run on this machine only";
            return Err(LaunchError::Role(why.to_owned()));
        };
        running.push(begin(setting, site).map_err(|e| named(setting, e))?);
    }
    Ok(running)
}

fn begin<'a>(setting: &'a Setting<'a>, site: RoleSite<'a>) -> Result<TrialRun<'a>, LaunchError> {
    let layout = RoleLayout::of(setting.inputs, &setting.caps, None);
    let mut run = TrialRun::start(setting, layout, site)?;
    run.open()?;
    if setting.verify {
        run.verify()?;
    }
    run.group.phase("running the concurrent workload");
    let window = Window { number: 1, messages: 0, batch: 1, measured: true, open: true };
    run.ready(&window)?;
    run.give_go(0)?;
    Ok(run)
}

/// Ends all concurrent workloads and returns their results.
pub(super) fn end(running: Vec<TrialRun<'_>>) -> Result<Vec<BroughtBeside>, LaunchError> {
    // All receive the order before any is waited for, so that they end at the same time.
    let mut stopped = Vec::new();
    for mut run in running {
        let told = run.stop();
        told.map_err(|e| named(run.setting, e))?;
        stopped.push(run);
    }
    stopped
        .into_iter()
        .map(|run| {
            let setting = run.setting;
            run.take().map_err(|e| named(setting, e))
        })
        .collect()
}

impl TrialRun<'_> {
    /// Orders the senders to stop. Receivers do not get this order; they end when their peer's end mark arrives.
    fn stop(&mut self) -> Result<(), LaunchError> {
        for role in self.all() {
            if self.layout.roles[role].listeners == 0 {
                self.group.order(role, &Order::Stop, Vec::new())?;
            }
        }
        Ok(())
    }

    fn take(mut self) -> Result<BroughtBeside, LaunchError> {
        let mut outcomes = Vec::new();
        for (answer, _) in self.group.answers(&self.all(), STEP_LIMIT)? {
            match answer {
                Answer::Done { outcome } => outcomes.push(*outcome),
                other => return Err(unexpected(&other)),
            }
        }
        self.close()?;
        let TrialRun { setting, layout, group, .. } = self;
        group.finish()?;
        Ok(BroughtBeside { layout, outcomes, caps: setting.caps })
    }
}

/// Prefixes the error with the name of the workload in which it occurred.
fn named(setting: &Setting<'_>, error: LaunchError) -> LaunchError {
    let what = format!(
        "concurrent workload {} over {}",
        setting.inputs.workload.word(),
        setting.mechanism
    );
    match error {
        LaunchError::Role(why) => LaunchError::Role(format!("{what}: {why}")),
        LaunchError::Unsupported(why) => LaunchError::Unsupported(format!("{what}: {why}")),
        other => other,
    }
}
