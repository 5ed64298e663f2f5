//! A testbed that is up: its network, its guests, and the agents of its hosts.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use crossway_mech::Probe;
use crossway_netlab::{Guest, GuestKernel, GuestSpec, Lab, NetError};
use crossway_sys::Obstacle;

use super::Containers;
use super::error::TestbedError;
use super::tipc::Tipcd;
use crate::agent::{Host, HostError, find_address};
use crate::env::Environment;
use crate::placement;
use crossway_records::inputs::{Ends, Inputs};
use crossway_records::record::HostRef;
use crossway_records::sorting::SortSmall;
use crossway_records::testbed::{HostWords, Tipc};

/// Number of agents lost in a row after which a host is no longer used.
const MOST_LOSSES: u32 = 3;

/// What a testbed's guests boot.
#[derive(Clone, Debug)]
pub(super) struct GuestWish {
    /// As [`Testbed::kernel`](crossway_records::testbed::Testbed::kernel).
    pub(super) kernel: Option<String>,
    /// Number of CPUs.
    pub(super) cpus: u32,
}

/// The data for rebooting a guest.
#[derive(Debug)]
pub(super) struct RebootPlan {
    pub(super) program: PathBuf,
    pub(super) kernel: GuestWish,
    pub(super) tipc: Vec<Tipc>,
    /// Number of reboots of each host's guest.
    pub(super) boots: [u32; 2],
}

/// A testbed that is up. Dropping it ends the agents, then the guests, then the network.
#[derive(Debug)]
pub(crate) struct LiveTestbed {
    pub(super) hosts: Vec<Host>,
    pub(super) refs: Vec<HostRef>,
    /// For pairs of hosts, by index: the address at which the first reaches the second, or why it cannot.
    pub(super) addresses: BTreeMap<(usize, usize), Result<IpAddr, HostError>>,
    /// Warnings that apply to all figures measured here.
    pub(crate) warnings: Vec<String>,
    /// The data for rebooting a guest.
    pub(super) again: RebootPlan,
    /// The `tipcd` of each host; `None` for a guest that died and has not been rebooted yet.
    pub(super) tipcds: Vec<Option<Tipcd>>,
    pub(super) guests: Vec<Option<Guest>>,
    pub(super) lab: Option<Lab>,
    /// The containers in which roles run, instead of hosts with agents.
    pub(super) containers: Option<Containers>,
}

impl LiveTestbed {
    /// Starts all agents at the same time and receives the descriptions of their hosts.
    pub(super) fn meet(&mut self, interrupt: Option<BorrowedFd<'_>>) -> Result<(), TestbedError> {
        for host in &mut self.hosts {
            host.begin()?;
        }
        for host in &mut self.hosts {
            host.greet(interrupt)?;
            let Some(about) = host.about() else { continue };
            self.refs.push(HostRef {
                name: host.name().to_owned(),
                prefix_kind: host.words().prefix_kind(),
                kernel: about.environment.kernel.release.clone(),
                environment: about.environment.machine_id.clone(),
            });
        }
        Ok(())
    }

    /// The hosts in the form used in records.
    pub(crate) fn refs(&self) -> &[HostRef] {
        &self.refs
    }

    /// Whether all hosts share one clock.
    pub(crate) fn one_clock(&self) -> bool {
        let clock = |host: &Host| host.about().map(|about| about.clock.clone());
        self.hosts.windows(2).all(|two| clock(&two[0]) == clock(&two[1]))
    }

    /// The fingerprints of the hosts, by machine id.
    pub(crate) fn environments(&self) -> impl Iterator<Item = (String, Environment)> {
        self.hosts
            .iter()
            .zip(&self.refs)
            .filter_map(|(h, r)| Some((r.environment.clone(), h.about()?.environment.clone())))
    }

    /// The indices of the hosts on which a case runs: the connecting one, then the listening one, if that is another
    /// host.
    pub(crate) fn hosts_of(&self, inputs: &Inputs) -> Vec<usize> {
        let named = inputs.testbed_spec.iter().flat_map(|testbed| &testbed.hosts);
        let named = named.filter_map(|text| {
            let words = HostWords::parse(text).ok()?;
            self.hosts.iter().position(|host| *host.words() == words)
        });
        let mut all: Vec<usize> = named.collect();
        if all.is_empty() {
            all = (0..self.hosts.len()).collect();
        }
        all.truncate(match inputs.ends {
            Ends::Between => 2,
            Ends::Within => 1,
        });
        all
    }

    /// The containers in which roles run; `None` if the testbed has hosts with agents.
    pub(crate) fn containers(&self) -> Option<&Containers> {
        self.containers.as_ref()
    }

    /// A host by its index.
    pub(crate) fn host(&self, at: usize) -> &Host {
        &self.hosts[at]
    }

    /// The version of a mechanism on the first of these hosts, or why it cannot be measured on one of them. `None` only
    /// if `on` is empty.
    pub(crate) fn probe(&self, mechanism: &str, on: &[usize]) -> Result<Option<String>, Obstacle> {
        let mut version = None;
        for &at in on {
            let host = &self.hosts[at];
            let probes = host.about().map(|about| &about.mechanisms[..]).unwrap_or_default();
            match probes.iter().find(|(id, _)| id == mechanism) {
                Some((_, Probe::Ready { version: there })) => {
                    version.get_or_insert_with(|| there.clone());
                }
                Some((_, Probe::Missing(Obstacle { why, remedy }))) => {
                    let why = format!("on host '{}': {why}", host.name());
                    return Err(Obstacle::new(why, remedy));
                }
                None => {
                    let why = format!(
                        "crossway on host '{}' has no mechanism or contender {mechanism}",
                        host.name()
                    );
                    let remedy =
                        "install the same version there; a contender must be declared there, too";
                    return Err(Obstacle::new(why, remedy));
                }
            }
        }
        Ok(version)
    }

    /// The CPUs for the first and the second role on these hosts; empty if roles are not pinned.
    pub(crate) fn place(&self, inputs: &Inputs, on: &[usize]) -> Result<Vec<u32>, Obstacle> {
        let topology = |at: usize| self.hosts[at].about().map(|about| &about.topology);
        let (Some(first), Some(last)) =
            (on.first().and_then(|&at| topology(at)), on.last().and_then(|&at| topology(at)))
        else {
            return Ok(Vec::new());
        };
        let cpus = placement::resolve(inputs.placement, inputs.wait, true, first);
        if on.len() < 2 {
            return cpus;
        }
        // The roles are on different hosts, each with its own CPUs.
        let there = placement::resolve(inputs.placement, inputs.wait, true, last);
        match (cpus, there) {
            (Ok(a), Ok(b)) => Ok(a.first().into_iter().chain(b.get(1)).copied().collect()),
            (Err(why), _) | (_, Err(why)) => Err(why),
        }
    }

    /// Why the first of these hosts is no longer used: too many of its agents were lost. `None` if all are in use.
    pub(crate) fn given_up(&self, on: &[usize]) -> Option<Obstacle> {
        let host = on.iter().map(|&at| &self.hosts[at]).find(|h| h.losses() >= MOST_LOSSES)?;
        let last = host.last_loss()?;
        let Obstacle { why, remedy } = last.obstacle();
        if matches!(last, HostError::Gone { .. }) {
            return Some(Obstacle { why, remedy });
        }
        let why = format!("{MOST_LOSSES} agents in a row were lost before this trial: {why}");
        Some(Obstacle { why, remedy })
    }

    /// The address of the listening host, determined once; `None` if both ends are on one host and need no address.
    pub(crate) fn address(
        &mut self,
        on: &[usize],
        interrupt: Option<BorrowedFd<'_>>,
    ) -> Result<Option<IpAddr>, HostError> {
        let &[from, to] = on else { return Ok(None) };
        if let Some(known) = self.addresses.get(&(from, to)) {
            return known.clone().map(Some);
        }
        let Ok([caller, callee]) = self.hosts.get_disjoint_mut([from, to]) else { return Ok(None) };
        let found = find_address(caller, callee, interrupt);
        if matches!(found, Ok(_) | Err(HostError::Unreachable { .. })) {
            self.addresses.insert((from, to), found.clone());
        }
        found.map(Some)
    }

    /// Mutable access to these hosts, in the order of `on`, for a trial.
    pub(crate) fn hosts_mut(&mut self, on: &[usize]) -> Vec<&mut Host> {
        let these = self.hosts.iter_mut().enumerate().filter(|(at, _)| on.contains(at));
        let mut these: Vec<(usize, &mut Host)> = these.collect();
        these.sort_small_by_key(|(at, _)| on.iter().position(|o| o == at));
        these.into_iter().map(|(_, host)| host).collect()
    }
}

/// Boots a guest that takes the place of the host `name` on the network. The guest's keeper process is started from
/// `program`.
pub(super) fn boot_one(
    lab: &Lab,
    program: &Path,
    kernel: &GuestWish,
    name: &str,
) -> Result<Guest, NetError> {
    let network = lab.network();
    let guest = format!("{}-{name}", network.name);
    let mut spec = match &kernel.kernel {
        None => GuestSpec::new(&guest)?,
        Some(word) => GuestSpec::of_kernel(&guest, GuestKernel::find(word)?)?,
    };
    spec.cpu_count = kernel.cpus;
    program.clone_into(&mut spec.program);
    Guest::boot(&spec, Some((network, name)))
}

impl Drop for LiveTestbed {
    fn drop(&mut self) {
        // End all at the same time, since each may take a moment to exit.
        self.hosts.iter_mut().for_each(Host::hang_up);
    }
}
