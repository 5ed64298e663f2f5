//! A running network: everything that a program needs to run something on its hosts.

use std::path::PathBuf;
use std::process::Command;

use crossway_sys::program;
use serde::{Deserialize, Serialize};

use crate::registry::Process;
use crate::{HostKind, Link, NetError};

/// The folder in which `ip netns` keeps its namespaces.
const NETNS_DIR: &str = "/run/netns";

/// The name of the interface in a namespace host.
pub(crate) const INTERFACE: &str = "eth0";

/// A network that is up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// The network's name.
    pub name: String,
    /// The network's hosts, in the order of their addresses.
    pub hosts: Vec<Host>,
    /// The properties of every host's link.
    pub link: Link,
    /// The namespace of the switch, if there is one.
    pub switch: Option<String>,
    /// What loses, delays and duplicates frames.
    pub impaired_by: ImpairedBy,
    /// Whether there are fewer CPUs than hosts, or the requested CPUs overlap, so that a host's CPU time includes that
    /// of other hosts.
    pub cpus_shared: bool,
    /// Whether packets that arrive at a host are processed on the host's CPUs. This is not possible in a user
    /// namespace, where the soft interrupts for receiving run on the sender's CPUs.
    pub steered: bool,
    /// CPUs of the user-space switch; empty: any, or there is no such switch.
    pub switch_cpus: Vec<u32>,
    /// The process whose end also ends the network; `None`: it stays until it is removed.
    pub owner: Option<Process>,
    /// The process that runs the switch, if Crossway itself impairs the frames and the network outlives the process
    /// that created it.
    pub switch_process: Option<Process>,
}

/// What impairs the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImpairedBy {
    /// No impairment was requested.
    Nobody,
    /// The kernel's netem.
    Netem,
    /// Crossway's own switch in user space.
    Crossway,
}

/// One host of a network that is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The host's name.
    pub name: String,
    /// Whether the host is a namespace or a place for a guest.
    pub kind: HostKind,
    /// The namespace in which the host's processes run (for a guest, its kernel); `ip netns` knows it.
    pub namespace: String,
    /// The host's interface in that namespace (for a guest, its tap).
    pub interface: String,
    /// IPv4 address; the network is a /24.
    pub ipv4: std::net::Ipv4Addr,
    /// IPv6 address; the network is a /64.
    pub ipv6: std::net::Ipv6Addr,
    /// Ethernet address.
    pub mac: String,
    /// Logical CPUs of the host's processes and soft interrupts.
    pub cpus: Vec<u32>,
}

impl Network {
    /// Finds a host by name.
    ///
    /// # Errors
    /// [`NetError::Unknown`], listing the hosts of the network.
    pub fn host(&self, name: &str) -> Result<&Host, NetError> {
        self.hosts.iter().find(|h| h.name == name).ok_or_else(|| NetError::Unknown {
            kind: "host",
            name: format!("{}/{name}", self.name),
            known: format!(
                "network '{}' has these hosts: {}",
                self.name,
                self.hosts.iter().map(|h| h.name.as_str()).collect::<Vec<_>>().join(", ")
            ),
        })
    }

    /// The namespaces of the hosts that are namespaces.
    pub(crate) fn host_namespaces(&self) -> impl Iterator<Item = &str> {
        let hosts = self.hosts.iter().filter(|h| h.kind == HostKind::Namespace);
        hosts.map(|h| h.namespace.as_str())
    }

    /// Every namespace of this network.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.host_namespaces().chain(self.switch.as_deref())
    }

    /// Whether the process that holds the network still runs. Always true for a network that no process holds.
    pub(crate) fn is_held(&self) -> bool {
        self.owner.is_none_or(|owner| owner.is_alive())
    }
}

impl Host {
    /// The arguments that, put before a command, run it on this host: in its network namespace (with a `/sys` that
    /// shows the host's interfaces) and on its CPUs. For a guest this is the place of its kernel; commands inside it
    /// are run by `crossway guest exec`.
    pub fn prefix(&self) -> Vec<String> {
        let cpus = self.cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        ["ip", "netns", "exec", &self.namespace, "taskset", "-c", &cpus].map(str::to_owned).to_vec()
    }

    /// [`Host::prefix`] and a program, as a command to which arguments can be added.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let prefix = self.prefix();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).arg(program).env("PATH", program::search_path());
        command
    }

    /// The path of the namespace's file.
    pub fn namespace_path(&self) -> PathBuf {
        namespace_path(&self.namespace)
    }
}

/// The path of the file of an `ip netns` namespace.
pub(crate) fn namespace_path(namespace: &str) -> PathBuf {
    PathBuf::from(NETNS_DIR).join(namespace)
}
