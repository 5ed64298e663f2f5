//! The testbeds of a run. Those needed by cases without records are set up before the first trial and removed at the
//! end of the run.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use crossway_records::sorting::CollectTree;
use crossway_sys::Obstacle;

use super::{Options, RunError, RunEvent};
use crate::agent::HostError;
use crate::case::Case;
use crate::env::Environment;
use crate::launcher::{LaunchError, Launcher, RoleSite};
use crate::live_testbed::{Containers, LiveTestbed, TestbedError, TestbedSetup};
use crate::plan::Plan;
use crossway_records::inputs::{Ends, Inputs};
use crossway_records::record::{Calibration, HostRef, Record};
use crossway_records::testbed::TestbedKind;

/// The testbeds by name; for those that could not be set up, the reason.
#[derive(Debug, Default)]
pub(super) struct LiveTestbeds(BTreeMap<String, Result<LiveTestbed, TestbedError>>);

impl LiveTestbeds {
    /// Sets up the testbeds that these cases need. If a testbed on this machine cannot be set up, its cases are
    /// skipped. If a host named on the command line cannot be used, the run does not start.
    pub(super) fn set_up(
        plan: &Plan,
        cases: &[Case],
        options: &Options,
        launcher: &Launcher,
        tell: &mut impl FnMut(RunEvent<'_>),
    ) -> Result<LiveTestbeds, RunError> {
        let mut testbeds = LiveTestbeds::default();
        for testbed in &plan.testbeds {
            // A TIPC node waits for a link to another one.
            let (mut mechanisms, mut within) = (BTreeSet::new(), testbed.tipc.is_empty());
            for case in cases.iter().filter(|case| case.excluded.is_none()) {
                if case.inputs.testbed.as_deref() == Some(&testbed.name) {
                    mechanisms.insert(case.mechanism.to_owned());
                    within &= case.inputs.ends == Ends::Within;
                }
            }
            if mechanisms.is_empty() {
                continue;
            }
            let mechanisms: Vec<String> = mechanisms.into_iter().collect();
            tell(RunEvent::Testbed { testbed });
            let made = LiveTestbed::make(
                testbed,
                TestbedSetup {
                    program: &launcher.program,
                    agent_program: &options.agent_program,
                    mechanisms: &mechanisms,
                    within,
                    interrupt: launcher.interrupt(),
                },
            );
            match &made {
                Ok(live) => tell(RunEvent::Hosts {
                    testbed,
                    hosts: live.refs(),
                    one_clock: live.one_clock(),
                }),
                Err(TestbedError::Host(HostError::Interrupted)) => {
                    return Err(RunError::Interrupted);
                }
                Err(TestbedError::Host(error)) if testbed.kind == TestbedKind::Hosts => {
                    return Err(RunError::Host(error.clone()));
                }
                Err(error) => tell(RunEvent::NoTestbed { testbed, why: &error.to_string() }),
            }
            testbeds.0.insert(testbed.name.clone(), made);
        }
        Ok(testbeds)
    }

    /// The fingerprints of all hosts by machine id.
    pub(super) fn environments(&self) -> BTreeMap<String, Environment> {
        self.0.values().flatten().flat_map(LiveTestbed::environments).collect_tree()
    }

    fn testbed(&self, inputs: &Inputs) -> Option<&Result<LiveTestbed, TestbedError>> {
        self.0.get(inputs.testbed.as_ref()?)
    }

    fn up(&self, inputs: &Inputs) -> Option<(&LiveTestbed, Vec<usize>)> {
        let testbed = self.testbed(inputs)?.as_ref().ok()?;
        Some((testbed, testbed.hosts_of(inputs)))
    }

    /// Why a case cannot run on its testbed, determined before the case's first trial; `None` if it can.
    pub(super) fn obstacle(&self, case: &Case) -> Option<Obstacle> {
        match self.testbed(&case.inputs)? {
            Err(error) => Some(error.obstacle()),
            Ok(testbed) => {
                let on = testbed.hosts_of(&case.inputs);
                let ready = testbed.probe(case.mechanism, &on);
                ready.and_then(|_| testbed.place(&case.inputs, &on)).err()
            }
        }
    }

    /// Why no more trials are started on a case's hosts; `None` if they are in use.
    pub(super) fn given_up(&self, inputs: &Inputs) -> Option<Obstacle> {
        let (testbed, on) = self.up(inputs)?;
        testbed.given_up(&on)
    }

    /// Adds the known facts about a case's hosts to a record, before the trial.
    pub(super) fn enter(&self, record: &mut Record) {
        let Some((testbed, on)) = self.up(&record.inputs) else { return };
        record.hosts = on.iter().map(|&at| testbed.refs()[at].clone()).collect::<Vec<HostRef>>();
        record.host = label(&record.hosts);
        record.warnings.extend(testbed.warnings.iter().cloned());
        record.mechanism_version = testbed.probe(&record.mechanism, &on).ok().flatten();
        record.inputs.cpus = testbed.place(&record.inputs, &on).unwrap_or_default();
        let about = on.first().and_then(|&at| testbed.host(at).about());
        record.calibration = about.map_or_else(Calibration::default, |about| about.calibration);
        let why = "measured only without a testbed".to_owned();
        for when in ["before", "after"] {
            record.nulls.insert(format!("calibration.cache_line_{when}_ns"), why.clone());
        }
    }

    /// The CPU topology of the first host of a case, on which the role that sends first runs.
    pub(super) fn topology(&self, inputs: &Inputs) -> Option<&crossway_sys::topology::Topology> {
        let (testbed, on) = self.up(inputs)?;
        Some(&testbed.host(*on.first()?).about()?.topology)
    }

    /// Returns the site of a case, with running agents, and the address of the listening end.
    pub(super) fn site<'a>(
        &'a mut self,
        inputs: &Inputs,
        interrupt: Option<BorrowedFd<'a>>,
    ) -> Result<(RoleSite<'a>, Option<IpAddr>), LaunchError> {
        let name = inputs.testbed.as_deref().unwrap_or_default();
        let Some(Ok(testbed)) = self.0.get_mut(name) else {
            return Err(LaunchError::Role(format!("the testbed '{name}' is not running")));
        };
        let on = testbed.hosts_of(inputs);
        testbed.ready(&on, interrupt)?;
        let address = testbed.address(&on, interrupt)?;
        Ok((RoleSite::Remote { hosts: testbed.hosts_mut(&on), interrupt }, address))
    }

    /// The containers of a case, if it has any.
    pub(super) fn containers(&self, inputs: &Inputs) -> Option<&Containers> {
        self.testbed(inputs)?.as_ref().ok()?.containers()
    }

    /// Notes that a trial on a case's hosts was completed.
    pub(super) fn note_success(&mut self, inputs: &Inputs) {
        let Some(Ok(testbed)) = inputs.testbed.as_ref().and_then(|name| self.0.get_mut(name))
        else {
            return;
        };
        let on = testbed.hosts_of(inputs);
        testbed.hosts_mut(&on).into_iter().for_each(|host| host.note_success());
    }
}

/// Names the hosts as `A to B`, or the single host.
fn label(hosts: &[HostRef]) -> String {
    hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>().join(" to ")
}

/// The label of the hosts on which a case will run, known before the testbed is up; `None` without a testbed.
pub(super) fn host_label(inputs: &Inputs) -> Option<String> {
    let testbed = inputs.testbed_spec.as_ref()?;
    Some(match (testbed.kind, inputs.ends) {
        (TestbedKind::Hosts, _) => testbed.label(),
        (_, Ends::Between) => "a to b".to_owned(),
        (_, Ends::Within) => "a".to_owned(),
    })
}
