//! A testbed: a named environment, other than this machine alone, in which cases run. docs/PLANS.md explains the keys.

mod hosts;

use crossway_mech::Meeting;
use crossway_netlab::{Link, Offloads, Rate};
use serde::{Deserialize, Serialize};

pub use hosts::{BadHosts, HostWords};

/// The name of this machine in records without a testbed.
pub const LOCAL: &str = "local";

/// The names of the hosts of testbeds that are created on this machine.
pub const NAMES: [&str; 2] = ["a", "b"];

/// How the reason begins if a channel cannot be opened between containers; the cause follows a colon.
pub const APART: &str = "the ends cannot communicate between these containers";

/// Which hosts of a testbed the two ends of a channel are on.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Ends {
    /// On two different hosts.
    Between,
    /// Both on one host; always the case without a testbed.
    #[default]
    Within,
}

impl Ends {
    /// The name in plans and records.
    pub fn name(self) -> &'static str {
        match self {
            Ends::Between => "between",
            Ends::Within => "within",
        }
    }
}

/// An environment in which cases run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Testbed {
    /// The testbed's name in the plan.
    pub name: String,
    /// Kind of the testbed's hosts.
    pub kind: TestbedKind,
    /// Rate of the testbed's links in each direction; null for unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// MTU of the testbed's links: the largest IP packet in bytes.
    pub mtu_bytes: u32,
    /// Segmentation and checksum offloads of the testbed's interfaces.
    pub offloads: Offloads,
    /// The TIPC implementations that are set up on the testbed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tipc: Vec<Tipc>,
    /// The command prefixes of the testbed's hosts; empty except for [`TestbedKind::Hosts`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// What the testbed's containers share; everything else is separate. Only for [`TestbedKind::Containers`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<Share>,
    /// The kernel that the guests boot under QEMU: a version and flavour, such as `6.12-rt`, a release, or a file; null for
    /// user-mode Linux. Only for [`TestbedKind::Guests`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Number of CPUs of each guest that boots [`Testbed::kernel`]; null for 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
}

/// What two containers on one kernel can share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Share {
    /// A directory in which both containers can create and find files, sockets and FIFOs.
    Volume,
    /// `/dev/shm`.
    Shm,
    /// The network namespace: loopback, and abstract socket names.
    Network,
    /// The IPC namespace: System V objects and POSIX message queues.
    Ipc,
    /// The PID namespace: each container sees the processes of the other.
    Pid,
}

impl Share {
    /// Everything that can be shared.
    pub const ALL: [Share; 5] = [Share::Volume, Share::Shm, Share::Network, Share::Ipc, Share::Pid];

    /// The name in plans and records.
    pub fn name(self) -> &'static str {
        match self {
            Share::Volume => "volume",
            Share::Shm => "shm",
            Share::Network => "network",
            Share::Ipc => "ipc",
            Share::Pid => "pid",
        }
    }

    /// Whether two ends in containers that share these things can meet in this way. A network connects all containers. A
    /// UNIX socket that both find, by its path or by its abstract name, passes descriptors.
    pub fn let_meet(shares: &[Share], way: Meeting) -> bool {
        let have = |share| shares.contains(&share);
        match way {
            Meeting::Network | Meeting::Kernel => true,
            Meeting::UnixName | Meeting::Descriptor => have(Share::Volume) || have(Share::Network),
            Meeting::Netns => have(Share::Network),
            Meeting::Path => have(Share::Volume),
            Meeting::DevShm => have(Share::Shm),
            Meeting::Ipc => have(Share::Ipc),
            Meeting::Pid => have(Share::Pid),
        }
    }
}

/// Kind of a testbed's hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TestbedKind {
    /// Two network namespaces of this kernel, joined by a shaped link.
    Netlab,
    /// Two guest kernels on one switch.
    Guests,
    /// Two containers on this kernel, with separate mounts, processes, IPC and network, except for what they share.
    Containers,
    /// The hosts named on the command line.
    Hosts,
}

impl TestbedKind {
    /// The name in plans and records.
    pub fn name(self) -> &'static str {
        match self {
            TestbedKind::Netlab => "netlab",
            TestbedKind::Guests => "guests",
            TestbedKind::Containers => "containers",
            TestbedKind::Hosts => "hosts",
        }
    }
}

/// A TIPC implementation that is set up on a testbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tipc {
    /// The kernel's implementation, with a bearer on each guest's interface. Cases start when the link is up.
    Kernel,
    /// Crossway's implementation, with a `tipcd` on each host's interface. Cases start when the link is up.
    Node,
}

impl Tipc {
    /// The name in plans and records.
    pub fn name(self) -> &'static str {
        match self {
            Tipc::Kernel => "kernel",
            Tipc::Node => "node",
        }
    }
}

impl Testbed {
    /// A testbed of this kind with the usual link, without hosts, TIPC, or anything that is shared.
    pub fn of(name: &str, kind: TestbedKind) -> Testbed {
        let usual = Link::default();
        Testbed {
            name: name.to_owned(),
            kind,
            rate: None,
            mtu_bytes: usual.mtu_bytes,
            offloads: usual.offloads,
            tipc: Vec::new(),
            hosts: Vec::new(),
            shares: Vec::new(),
            kernel: None,
            cpus: None,
        }
    }

    /// The properties of the testbed's network link.
    pub fn link(&self) -> Link {
        Link {
            rate: self.rate,
            mtu_bytes: self.mtu_bytes,
            offloads: self.offloads,
            ..Link::default()
        }
    }

    /// The hosts that take part, in readable form: `A to B`, or the single host that both ends are on.
    pub fn label(&self) -> String {
        let names: Vec<String> = self.hosts.iter().map(|words| HostWords::name_of(words)).collect();
        names.join(" to ")
    }

    /// The sites of the testbed's cases. A testbed with a network of two hosts has a single site; hosts named on the
    /// command line give one for each pair of hosts. If both ends are on one host, the site is the first host.
    pub fn sites(&self, ends: Ends) -> Vec<Site> {
        let on = |hosts: Vec<String>| Site::On { testbed: Testbed { hosts, ..self.clone() }, ends };
        let hosts = &self.hosts;
        match ends {
            Ends::Within => vec![on(hosts.iter().take(1).cloned().collect())],
            Ends::Between if hosts.len() <= 2 => vec![on(hosts.clone())],
            Ends::Between => (0..hosts.len())
                .flat_map(|a| (a + 1..hosts.len()).map(move |b| (a, b)))
                .map(|(a, b)| on(vec![hosts[a].clone(), hosts[b].clone()]))
                .collect(),
        }
    }
}

/// Where a case runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Site {
    /// This machine, without a testbed.
    Here,
    /// The hosts of a testbed.
    On {
        /// The testbed; if its hosts were named on the command line, only with those that take part.
        testbed: Testbed,
        /// Location of the ends.
        ends: Ends,
    },
}

impl Site {
    /// The testbed, if there is one.
    pub fn testbed(&self) -> Option<&Testbed> {
        match self {
            Site::Here => None,
            Site::On { testbed, .. } => Some(testbed),
        }
    }

    /// Location of the ends.
    pub fn ends(&self) -> Ends {
        match self {
            Site::Here => Ends::Within,
            Site::On { ends, .. } => *ends,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_containers_share_decides_how_ends_meet() {
        let ways = |shares: &[Share]| -> Vec<Meeting> {
            Meeting::ALL.into_iter().filter(|way| Share::let_meet(shares, *way)).collect()
        };
        assert_eq!(ways(&[]), [Meeting::Network, Meeting::Kernel]);
        let pod = ways(&[Share::Network, Share::Ipc]);
        assert_eq!(
            pod,
            [
                Meeting::Network,
                Meeting::Kernel,
                Meeting::UnixName,
                Meeting::Netns,
                Meeting::Descriptor,
                Meeting::Ipc
            ]
        );
        assert_eq!(ways(&Share::ALL), Meeting::ALL);
    }

    #[test]
    fn many_hosts_give_all_pairs() {
        let testbed = Testbed {
            hosts: ["srun -w n1", "srun -w n2", "srun -w n3"].map(str::to_owned).to_vec(),
            ..Testbed::of("cluster", TestbedKind::Hosts)
        };
        let labels = |ends| -> Vec<String> {
            testbed.sites(ends).iter().filter_map(|s| Some(s.testbed()?.label())).collect()
        };
        assert_eq!(
            labels(Ends::Between),
            ["srun -w n1 to srun -w n2", "srun -w n1 to srun -w n3", "srun -w n2 to srun -w n3"]
        );
        assert_eq!(labels(Ends::Within), ["srun -w n1"]);
    }
}
