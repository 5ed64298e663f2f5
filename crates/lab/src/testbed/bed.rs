//! A testbed that is up: its network, its guests, and the agents of its hosts.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::path::Path;

use crossway_mech::Probe;
use crossway_netlab::{Guest, GuestSpec, HostSpec, Lab, NetError, Topology};
use crossway_sys::{OsError, lease};

use super::tipc::{self, Tipcd};
use super::{HostWords, Kind, Testbed, Tipc};
use crate::agent::{Host, HostError, HostPlan, find_address};
use crate::env::Environment;
use crate::inputs::{Ends, Inputs};
use crate::placement::{self, Unplaceable};
use crate::record::{HostRef, LOCAL};

/// The names of the hosts of testbeds on this machine.
const NAMES: [&str; 2] = ["a", "b"];
/// Leads programs to a `tipcd`.
const SOCKET_VARIABLE: &str = "TIPCD_SOCKET";
/// After so many agents lost in a row a host is given up.
const MOST_LOSSES: u32 = 3;

/// Why a testbed cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum BedError {
    /// Its network or its guests cannot be made, or a host cannot be placed: reason and remedy.
    #[error("{0}; {1}")]
    Obstacle(String, String),
    /// A host cannot be used.
    #[error("{0}")]
    Host(#[from] HostError),
}

impl BedError {
    /// Reason and remedy.
    pub(crate) fn split(&self) -> (String, String) {
        match self {
            BedError::Obstacle(why, remedy) => (why.clone(), remedy.clone()),
            BedError::Host(error) => {
                let (remedy, whole) = (error.remedy(), error.to_string());
                let why = whole.strip_suffix(&format!("; {remedy}")).unwrap_or(&whole).to_owned();
                (why, remedy)
            }
        }
    }
}

impl From<NetError> for BedError {
    fn from(error: NetError) -> Self {
        let text = error.to_string();
        match text.split_once("; ") {
            Some((why, remedy)) => BedError::Obstacle(why.to_owned(), remedy.to_owned()),
            None => BedError::Obstacle(text, "try by hand: crossway net up".to_owned()),
        }
    }
}

/// A testbed that is up. Dropping it ends the agents, then the guests, then the network.
#[derive(Debug)]
pub(crate) struct Bed {
    hosts: Vec<Host>,
    refs: Vec<HostRef>,
    /// Where the second of two hosts is reached by the first.
    addresses: BTreeMap<(usize, usize), Result<IpAddr, HostError>>,
    /// What a reader should know of every figure taken here.
    pub(crate) warnings: Vec<String>,
    _tipcds: Vec<Tipcd>,
    _guests: Vec<Guest>,
    _lab: Option<Lab>,
}

/// What a bed is made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Making<'a> {
    /// This program.
    pub(crate) program: &'a Path,
    /// The agent's program on hosts of the command line; `None`: see [`agent_program`].
    pub(crate) agent_program: Option<&'a str>,
    /// Mechanisms that will be measured.
    pub(crate) mechanisms: &'a [String],
    /// Polls readable when the run should stop.
    pub(crate) interrupt: Option<BorrowedFd<'a>>,
}

impl Bed {
    /// Makes it; nothing is left behind if that fails.
    pub(crate) fn make(testbed: &Testbed, with: Making<'_>) -> Result<Bed, BedError> {
        let mut guests = Vec::new();
        let mut lab = None;
        let mut tipcds = Vec::new();
        let mut warnings = Vec::new();
        let own = with.program.display().to_string();
        let host = |words, program, shares_kernel| {
            let mechanisms = with.mechanisms.to_vec();
            Host::new(HostPlan { words, program, shares_kernel, mechanisms })
        };
        let words = |at: usize, prefix, address| HostWords {
            name: NAMES[at].to_owned(),
            prefix,
            address: Some(address),
        };
        let hosts: Vec<Host> = match testbed.kind {
            Kind::Hosts => {
                let parsed = testbed.hosts.iter().map(|text| HostWords::parse(text));
                let parsed: Vec<HostWords> = parsed
                    .collect::<Result<_, _>>()
                    .map_err(|e| BedError::Obstacle(e.to_string(), "correct --hosts".to_owned()))?;
                parsed
                    .into_iter()
                    .map(|words| {
                        let program = agent_program(&words, with.agent_program, &own);
                        host(words, program, false)
                    })
                    .collect()
            }
            Kind::Netlab => {
                let up = Lab::up(&Topology::of(&NAMES, testbed.link()))?;
                if up.network().cpus_shared {
                    warnings.push(SHARED.to_owned());
                }
                let mut prefixes: Vec<_> = up.network().hosts.iter().map(|h| h.prefix()).collect();
                if testbed.tipc.contains(&Tipc::Node) {
                    let socket = || lease::fresh_path("tipcd").map(|p| p.display().to_string());
                    let sockets = [socket(), socket()].into_iter().collect::<Result<Vec<_>, _>>();
                    let sockets = sockets.map_err(|e| unwritable(&e))?;
                    tipcds = join_nodes(&mut prefixes, &own, &sockets)?;
                }
                let there = up.network().hosts.iter().zip(prefixes).enumerate();
                let hosts = there
                    .map(|(at, (h, prefix))| {
                        host(words(at, prefix, h.ipv4.into()), own.clone(), true)
                    })
                    .collect();
                lab = Some(up);
                hosts
            }
            Kind::Guests => {
                let taps = NAMES.map(HostSpec::tap).to_vec();
                let topology = Topology { name: None, hosts: taps, link: testbed.link() };
                let up = Lab::up(&topology)?;
                if up.network().cpus_shared {
                    warnings.push(SHARED.to_owned());
                }
                guests = boot(&up, with.program)?;
                if testbed.tipc.contains(&Tipc::Kernel) {
                    tipc::join_kernels(&guests)?;
                }
                let mut prefixes: Vec<_> = guests.iter().map(Guest::prefix).collect();
                if testbed.tipc.contains(&Tipc::Node) {
                    // Each guest has a /run of its own.
                    let sockets = NAMES.map(|_| "/run/tipcd.sock".to_owned());
                    tipcds = join_nodes(&mut prefixes, &own, &sockets)?;
                }
                let there = up.network().hosts.iter().zip(prefixes).enumerate();
                let hosts = there
                    .map(|(at, (h, prefix))| {
                        host(words(at, prefix, h.ipv4.into()), own.clone(), false)
                    })
                    .collect();
                lab = Some(up);
                hosts
            }
        };
        let mut bed = Bed {
            hosts,
            refs: Vec::new(),
            addresses: BTreeMap::new(),
            warnings,
            _tipcds: tipcds,
            _guests: guests,
            _lab: lab,
        };
        bed.meet(with.interrupt)?;
        Ok(bed)
    }

    /// Starts all agents, at the same time, and hears what they tell.
    fn meet(&mut self, interrupt: Option<BorrowedFd<'_>>) -> Result<(), BedError> {
        for host in &mut self.hosts {
            host.begin()?;
        }
        for host in &mut self.hosts {
            host.greet(interrupt)?;
            let Some(about) = host.about() else { continue };
            self.refs.push(HostRef {
                name: host.name().to_owned(),
                prefix_kind: prefix_kind(host.words()),
                kernel: about.environment.kernel.release.clone(),
                environment: about.environment.machine_id.clone(),
            });
        }
        Ok(())
    }

    /// The hosts, as records name them.
    pub(crate) fn refs(&self) -> &[HostRef] {
        &self.refs
    }

    /// Whether all hosts share one clock.
    pub(crate) fn one_clock(&self) -> bool {
        let clock = |host: &Host| host.about().map(|about| about.clock.clone());
        self.hosts.windows(2).all(|two| clock(&two[0]) == clock(&two[1]))
    }

    /// Fingerprints by their digests.
    pub(crate) fn environments(&self) -> impl Iterator<Item = (String, Environment)> {
        self.hosts
            .iter()
            .zip(&self.refs)
            .filter_map(|(h, r)| Some((r.environment.clone(), h.about()?.environment.clone())))
    }

    /// The numbers of the hosts that a case runs on: where it connects, where it listens.
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

    /// A host by its number.
    pub(crate) fn host(&self, at: usize) -> &Host {
        &self.hosts[at]
    }

    /// Why a mechanism cannot be measured on these hosts, and its version there.
    pub(crate) fn probe(&self, mechanism: &str, on: &[usize]) -> Result<Option<String>, BedError> {
        let mut version = None;
        for &at in on {
            let host = &self.hosts[at];
            let probes = host.about().map(|about| &about.mechanisms[..]).unwrap_or_default();
            match probes.iter().find(|(id, _)| id == mechanism) {
                Some((_, Probe::Ready { version: there })) => {
                    version.get_or_insert_with(|| there.clone());
                }
                Some((_, Probe::Missing { why, remedy })) => {
                    let why = format!("on host '{}': {why}", host.name());
                    return Err(BedError::Obstacle(why, remedy.clone()));
                }
                None => {
                    let why = format!("host '{}' does not know {mechanism}", host.name());
                    return Err(BedError::Obstacle(
                        why,
                        "install the same version there".to_owned(),
                    ));
                }
            }
        }
        Ok(version)
    }

    /// The CPUs of the first and the second role on these hosts; empty when unpinned.
    pub(crate) fn place(&self, inputs: &Inputs, on: &[usize]) -> Result<Vec<u32>, Unplaceable> {
        let topology = |at: usize| self.hosts[at].about().map(|about| &about.topology);
        let (Some(first), Some(last)) =
            (on.first().and_then(|&at| topology(at)), on.last().and_then(|&at| topology(at)))
        else {
            return Ok(Vec::new());
        };
        let cpus = placement::resolve(inputs.placement, inputs.wait, first);
        if on.len() < 2 {
            return cpus;
        }
        // Each role has its own host's CPUs.
        let there = placement::resolve(inputs.placement, inputs.wait, last);
        match (cpus, there) {
            (Ok(a), Ok(b)) => Ok(a.first().into_iter().chain(b.get(1)).copied().collect()),
            (Err(why), _) | (_, Err(why)) => Err(why),
        }
    }

    /// Sees to it that agents run on these hosts.
    pub(crate) fn ready(
        &mut self,
        on: &[usize],
        interrupt: Option<BorrowedFd<'_>>,
    ) -> Result<(), HostError> {
        on.iter().try_for_each(|&at| self.hosts[at].ready(interrupt))
    }

    /// The first of these hosts whose agents were lost too often in a row.
    pub(crate) fn given_up(&self, on: &[usize]) -> Option<(String, String)> {
        let host = on.iter().map(|&at| &self.hosts[at]).find(|h| h.losses() >= MOST_LOSSES)?;
        let last = host.last_loss()?;
        let (why, remedy) = BedError::Host(last.clone()).split();
        Some((format!("{MOST_LOSSES} agents in a row were lost before this trial: {why}"), remedy))
    }

    /// The address at which the listening host is reached; found out once. Both ends on one host: none is needed.
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

    /// The hosts themselves, for a trial.
    pub(crate) fn hosts_mut(&mut self, on: &[usize]) -> Vec<&mut Host> {
        let these = self.hosts.iter_mut().enumerate().filter(|(at, _)| on.contains(at));
        let mut these: Vec<(usize, &mut Host)> = these.collect();
        these.sort_by_key(|(at, _)| on.iter().position(|o| o == at));
        these.into_iter().map(|(_, host)| host).collect()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // All at once, since each may take a moment to end.
        self.hosts.iter_mut().for_each(Host::hang_up);
    }
}

const SHARED: &str = "there are fewer CPUs than hosts: a host's CPU time is not its own alone";

/// Starts a `tipcd` on each host, waits until they have found each other, and lets the prefixes lead programs to them.
fn join_nodes(
    prefixes: &mut [Vec<String>],
    program: &str,
    sockets: &[String],
) -> Result<Vec<Tipcd>, BedError> {
    let there = prefixes.iter().zip(sockets).zip(NAMES);
    let tipcds = there
        .map(|((prefix, socket), name)| Tipcd::start(name, prefix, program, socket))
        .collect::<Result<Vec<_>, _>>()?;
    tipcds.iter().try_for_each(Tipcd::wait_for_link)?;
    for (prefix, socket) in prefixes.iter_mut().zip(sockets) {
        prefix.extend(["env".to_owned(), format!("{SOCKET_VARIABLE}={socket}")]);
    }
    Ok(tipcds)
}

fn unwritable(error: &OsError) -> BedError {
    BedError::Obstacle(error.to_string(), "make XDG_RUNTIME_DIR or /tmp writable".to_owned())
}

/// Two guests at the same time, each in the place of a host of the network, kept by `program`, which need not be the one that
/// runs.
fn boot(lab: &Lab, program: &Path) -> Result<Vec<Guest>, BedError> {
    let network = lab.network();
    let booted: Vec<Result<Guest, NetError>> = std::thread::scope(|scope| {
        let boots: Vec<_> = NAMES
            .iter()
            .map(|name| {
                scope.spawn(move || {
                    let mut spec = GuestSpec::new(&format!("{}-{name}", network.name))?;
                    program.clone_into(&mut spec.program);
                    Guest::boot(&spec, Some((network, name)))
                })
            })
            .collect();
        let failed = || {
            let what = "was lost: starting it failed".to_owned();
            Err(NetError::Guest { name: network.name.clone(), what, said: String::new() })
        };
        boots.into_iter().map(|boot| boot.join().unwrap_or_else(|_| failed())).collect()
    });
    Ok(booted.into_iter().collect::<Result<_, _>>()?)
}

/// The agent's program: as told; behind ssh what the other machine's PATH has; else this program, whose file the prefix can
/// see (namespaces, guests, and clusters with a file system in common).
fn agent_program(words: &HostWords, told: Option<&str>, own: &str) -> String {
    match (told, words.prefix.first()) {
        (Some(told), Some(_)) => told.to_owned(),
        (None, Some(first)) if first == "ssh" || first.ends_with("/ssh") => "crossway".to_owned(),
        _ => own.to_owned(),
    }
}

/// The first word of a prefix, without its path; our own program's second: `guest`, `net`.
fn prefix_kind(words: &HostWords) -> String {
    let Some(first) = words.prefix.first() else { return LOCAL.to_owned() };
    let name = first.rsplit('/').next().unwrap_or(first);
    match words.prefix.get(1).map(String::as_str) {
        Some(second @ ("guest" | "net")) => second.to_owned(),
        Some("netns") => "netns".to_owned(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_is_the_remote_s_own_behind_ssh_only() {
        let program = |text: &str, told| {
            agent_program(&HostWords::parse(text).unwrap(), told, "/here/crossway")
        };
        assert_eq!(program("ssh -p 22 a", None), "crossway");
        assert_eq!(program("/usr/bin/ssh a", Some("/opt/crossway")), "/opt/crossway");
        assert_eq!(program("mpirun -np 1", None), "/here/crossway");
        assert_eq!(program("local", Some("/opt/crossway")), "/here/crossway");
    }

    #[test]
    fn prefixes_have_kinds() {
        let kind = |text: &str| prefix_kind(&HostWords::parse(text).unwrap());
        assert_eq!(kind(""), "local");
        assert_eq!(kind("ip netns exec n"), "netns");
        assert_eq!(kind("/x/crossway guest exec g --"), "guest");
        assert_eq!(kind("/usr/bin/ssh a"), "ssh");
    }
}
