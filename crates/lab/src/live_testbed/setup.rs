//! Sets up a testbed: its network, its guests, its TIPC nodes.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::Path;

use crossway_netlab::{
    Guest, GuestKernel, GuestMachine, HostSpec, Lab, NetError, Topology, check_qemu,
};
use crossway_sys::{Obstacle, lease};

use super::Containers;
use super::error::TestbedError;
use super::running::{GuestWish, LiveTestbed, RebootPlan, boot_one};
use super::tipc::{self, GUEST_SOCKET, Tipcd};
use crate::agent::{AgentProgram, Host, HostError, HostPlan, push};
use crossway_records::testbed::{HostWords, LOCAL, NAMES, Testbed, TestbedKind, Tipc};

/// The environment variable with the path of a `tipcd`'s socket, which programs read.
const SOCKET_VARIABLE: &str = "TIPCD_SOCKET";
const SHARED: &str =
    "there are fewer CPUs than hosts, so the CPU time of a host includes that of other hosts";
const EMULATED: &str = "the guests' processors are emulated: compare times only with those of other emulated guests of the \
                        same run";

/// What is needed to set up a testbed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestbedSetup<'a> {
    /// Path of this program.
    pub(crate) program: &'a Path,
    /// The program on hosts named on the command line.
    pub(crate) agent_program: &'a AgentProgram,
    /// Ids of the mechanisms that will be measured.
    pub(crate) mechanisms: &'a [String],
    /// Whether all cases have both ends on the first host, so that the guest of the second is not booted.
    pub(crate) within: bool,
    /// Readable when the run should stop.
    pub(crate) interrupt: Option<BorrowedFd<'a>>,
}

impl LiveTestbed {
    /// Checks whether the testbed can be set up, as far as that is known without creating anything. Hosts named on the
    /// command line are not contacted.
    pub(crate) fn possible(testbed: &Testbed) -> Result<(), TestbedError> {
        match testbed.kind {
            TestbedKind::Containers => Containers::possible(testbed),
            TestbedKind::Netlab => Ok(Lab::check()?),
            TestbedKind::Guests => {
                Lab::check()?;
                if let Some(word) = &testbed.kernel {
                    check_qemu()?;
                    GuestKernel::find(word)?;
                }
                Ok(())
            }
            TestbedKind::Hosts => Ok(()),
        }
    }

    /// Sets up the testbed. If that fails, nothing is left behind.
    pub(crate) fn make(
        testbed: &Testbed,
        with: TestbedSetup<'_>,
    ) -> Result<LiveTestbed, TestbedError> {
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
        let mut containers = None;
        let wish = GuestWish { kernel: testbed.kernel.clone(), cpus: testbed.cpus.unwrap_or(1) };
        let hosts: Vec<Host> = match testbed.kind {
            TestbedKind::Containers => {
                containers = Some(Containers::make(testbed)?);
                // Probes and CPU topology are those of this machine, reported by an agent on it.
                let here = HostWords { name: LOCAL.to_owned(), prefix: Vec::new(), address: None };
                vec![host(here, own.clone(), true)]
            }
            TestbedKind::Hosts => {
                let parsed = testbed.hosts.iter().map(|text| HostWords::parse(text));
                let parsed: Vec<HostWords> = parsed
                    .collect::<Result<_, _>>()
                    .map_err(|e| Obstacle::new(e.to_string(), "correct --hosts"))?;
                parsed
                    .into_iter()
                    .map(|words| {
                        let program = agent_program(&words, &with)?;
                        Ok(host(words, program, false))
                    })
                    .collect::<Result<_, HostError>>()?
            }
            TestbedKind::Netlab => {
                let up = Lab::up(&Topology::of(&NAMES, testbed.link()))?;
                if up.network().cpus_shared {
                    warnings.push(SHARED.to_owned());
                }
                let mut prefixes: Vec<_> = up.network().hosts.iter().map(|h| h.prefix()).collect();
                if testbed.tipc.contains(&Tipc::Node) {
                    let socket = || lease::fresh_path("tipcd").map(|p| p.display().to_string());
                    let sockets = [socket(), socket()].into_iter().collect::<Result<Vec<_>, _>>();
                    let sockets = sockets.map_err(|e| TestbedError::no_socket_path(&e))?;
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
            TestbedKind::Guests => {
                let names = if with.within { &NAMES[..1] } else { &NAMES[..] };
                let taps = names.iter().copied().map(HostSpec::tap).collect();
                let topology = Topology { name: None, hosts: taps, link: testbed.link() };
                let up = Lab::up(&topology)?;
                if up.network().cpus_shared {
                    warnings.push(SHARED.to_owned());
                }
                guests = boot(&up, with.program, &wish, names)?;
                if guests.iter().any(|guest| guest.facts().machine == GuestMachine::Emulated) {
                    warnings.push(EMULATED.to_owned());
                }
                if testbed.tipc.contains(&Tipc::Kernel) {
                    tipc::join_kernels(&guests.iter().collect::<Vec<_>>())?;
                }
                let mut prefixes: Vec<_> = guests.iter().map(Guest::prefix).collect();
                if testbed.tipc.contains(&Tipc::Node) {
                    // Each guest has its own /run.
                    let sockets: Vec<_> = names.iter().map(|_| GUEST_SOCKET.to_owned()).collect();
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
        let mut testbed = LiveTestbed {
            hosts,
            refs: Vec::new(),
            addresses: BTreeMap::new(),
            warnings,
            again: RebootPlan {
                program: with.program.to_owned(),
                kernel: wish,
                tipc: testbed.tipc.clone(),
                boots: [0; 2],
            },
            tipcds: tipcds.into_iter().map(Some).collect(),
            guests: guests.into_iter().map(Some).collect(),
            lab,
            containers,
        };
        testbed.meet(with.interrupt)?;
        Ok(testbed)
    }
}

/// Starts a `tipcd` on each host, waits until they are linked, and adds the paths of their sockets to the command
/// prefixes.
fn join_nodes(
    prefixes: &mut [Vec<String>],
    program: &str,
    sockets: &[String],
) -> Result<Vec<Tipcd>, TestbedError> {
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

/// Boots guests at the same time; each takes the place of a host of the network.
fn boot(
    lab: &Lab,
    program: &Path,
    wish: &GuestWish,
    names: &[&str],
) -> Result<Vec<Guest>, TestbedError> {
    let booted: Vec<Result<Guest, NetError>> = std::thread::scope(|scope| {
        let boots: Vec<_> = names
            .iter()
            .map(|name| scope.spawn(move || boot_one(lab, program, wish, name)))
            .collect();
        let failed = || {
            let what = "was lost: starting it failed".to_owned();
            Err(NetError::Guest { name: lab.network().name.clone(), what, said: String::new() })
        };
        boots.into_iter().map(|boot| boot.join().unwrap_or_else(|_| failed())).collect()
    });
    Ok(booted.into_iter().collect::<Result<_, _>>()?)
}

/// The path of the agent's program on a host, to which it is copied first if the user wants that.
fn agent_program(words: &HostWords, with: &TestbedSetup<'_>) -> Result<String, HostError> {
    let own = || with.program.display().to_string();
    let Some(first) = words.prefix.first() else { return Ok(own()) };
    Ok(match with.agent_program {
        AgentProgram::At(told) => told.clone(),
        AgentProgram::Pushed { folder } => {
            push(words, folder.as_deref(), with.program, with.interrupt)?
        }
        AgentProgram::Usual if first == "ssh" || first.ends_with("/ssh") => "crossway".to_owned(),
        AgentProgram::Usual => own(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_is_the_remote_s_own_behind_ssh_only() {
        let program = |text: &str, agent_program: &AgentProgram| {
            let program = Path::new("/here/crossway");
            let with = TestbedSetup {
                program,
                agent_program,
                mechanisms: &[],
                within: false,
                interrupt: None,
            };
            super::agent_program(&HostWords::parse(text).unwrap(), &with).unwrap()
        };
        let (usual, told) = (AgentProgram::Usual, AgentProgram::At("/opt/crossway".to_owned()));
        assert_eq!(program("ssh -p 22 a", &usual), "crossway");
        assert_eq!(program("/usr/bin/ssh a", &told), "/opt/crossway");
        assert_eq!(program("mpirun -np 1", &usual), "/here/crossway");
        assert_eq!(program("local", &told), "/here/crossway");
        // This machine needs no copy.
        assert_eq!(program("local", &AgentProgram::Pushed { folder: None }), "/here/crossway");
    }
}
