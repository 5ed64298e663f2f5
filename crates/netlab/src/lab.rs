//! Creates, lists and removes networks.

mod processes;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crossway_sys::{affinity, lease};

use crate::network::{INTERFACE, ImpairedBy, namespace_path};
use crate::registry::{Process, Registry};
use crate::share::shares;
use crate::switch::{self, Switch};
use crate::{Host, HostKind, ImpairmentCounts, NetError, Network, Topology, build, guest, tool};

/// Names of the networks this process must remove, for [`remove_all_of_this_process`].
static OWNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// A network that is removed when this value is dropped.
#[derive(Debug)]
pub struct Lab {
    network: Network,
    switch: Option<switch::Running>,
    kept: bool,
}

impl Lab {
    /// Creates the network. It is removed when the `Lab` is dropped, or, if this process is killed first, by the next
    /// process that uses this crate.
    ///
    /// # Errors
    /// Invalid settings ([`NetError::Impossible`]), a name in use, missing privilege or tools, or a tool's failure;
    /// nothing remains after an error.
    pub fn up(topology: &Topology) -> Result<Lab, NetError> {
        let mut lab = Self::make(topology)?;
        if lab.network.impaired_by == ImpairedBy::Crossway {
            let switch = Switch::open(&lab.network)?;
            lab.switch = Some(switch.start(&lab.network.switch_cpus)?);
        }
        Ok(lab)
    }

    /// Creates a network that exists until [`down`] removes it. Where Crossway's own switch impairs the frames, the
    /// running program must be `crossway`, which is started a second time to run as that switch.
    ///
    /// # Errors
    /// As [`Lab::up`].
    pub fn up_to_stay(topology: &Topology) -> Result<Network, NetError> {
        let mut lab = Self::make(topology)?;
        if lab.network.impaired_by == ImpairedBy::Crossway {
            lab.network.switch_process = Some(start_switch(&lab.network.name)?);
        }
        lab.network.owner = None;
        registry().write(&lab.network.name, &lab.network)?;
        lock_owned().remove(&lab.network.name);
        lab.kept = true;
        Ok(lab.network.clone())
    }

    /// Checks for what every network needs, without creating anything.
    ///
    /// # Errors
    /// A tool is not installed, or this process lacks the privilege.
    pub fn check() -> Result<(), NetError> {
        tool::check_all()?;
        check_privilege()
    }

    fn make(topology: &Topology) -> Result<Lab, NetError> {
        topology.check()?;
        Lab::check()?;
        let network = claim(topology)?;
        lock_owned().insert(network.name.clone());
        let mut lab = Lab { network, switch: None, kept: false };
        let making = registry().making(&lab.network.name)?;
        lab.network.steered = build::make(&lab.network, &making)?;
        drop(making);
        if !lab.network.steered && affinity::allowed()?.len() > 1 {
            tracing::warn!(
                "network '{}': packet steering is not possible here (not permitted for root of a user namespace, or the kernel \
                 was built without CONFIG_RPS); a receiver's soft interrupts count as the sender's CPU time",
                lab.network.name
            );
        }
        registry().write(&lab.network.name, &lab.network)?;
        Ok(lab)
    }

    /// The description of the network.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Finds a host by name.
    ///
    /// # Errors
    /// [`NetError::Unknown`], listing the hosts of the network.
    pub fn host(&self, name: &str) -> Result<&Host, NetError> {
        self.network.host(name)
    }

    /// Counts of the frames so far; `None` unless Crossway's own switch impairs them.
    pub fn impairment_counts(&self) -> Option<ImpairmentCounts> {
        self.switch.as_ref().map(switch::Running::counts)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if !self.kept {
            drop(self.switch.take());
            remove(&self.network);
        }
    }
}

/// Lists the existing networks, after removing those whose owner was killed.
///
/// # Errors
/// The list cannot be locked. A network whose file cannot be read is only logged and left out.
pub fn list() -> Result<Vec<Network>, NetError> {
    if registry().names().is_empty() {
        return Ok(Vec::new());
    }
    let _claim = registry().claim()?;
    sweep()
}

/// Removes the networks and guests of killed processes, and the leased objects of this user's dead runs.
///
/// # Errors
/// A list cannot be locked, or the dead runs cannot be looked up.
pub fn remove_abandoned() -> Result<(), NetError> {
    list()?;
    // The keepers of guests on a network were killed together with it.
    guest::remove_abandoned()?;
    // The reapers of its agents were killed, too, before they had finished.
    lease::sweep_dead_runs()?;
    Ok(())
}

/// Finds a network by name.
///
/// # Errors
/// [`NetError::Unknown`], listing the existing networks.
pub fn find(name: &str) -> Result<Network, NetError> {
    let networks = list()?;
    networks.iter().find(|n| n.name == name).cloned().ok_or_else(|| NetError::Unknown {
        kind: "network",
        name: name.to_owned(),
        known: if networks.is_empty() {
            "no network is up; create one with: crossway net up".to_owned()
        } else {
            let names: Vec<_> = networks.iter().map(|n| n.name.as_str()).collect();
            format!("existing networks: {}", names.join(", "))
        },
    })
}

/// Removes a network, whichever process holds it. The processes on its hosts have some time to clean up before they are
/// killed.
///
/// # Errors
/// There is no such network, or privilege is missing.
pub fn down(name: &str) -> Result<(), NetError> {
    check_privilege()?;
    let network = find(name)?;
    processes::ask_to_end(&network);
    remove(&network);
    Ok(())
}

/// Removes every network that this process created and still holds; guests on them end by themselves. For threads that
/// handle signals, when the process is about to end.
pub fn remove_all_of_this_process() {
    let names = std::mem::take(&mut *lock_owned());
    for name in names {
        if let Ok(Some(network)) = registry().read::<Network>(&name) {
            remove(&network);
        }
    }
}

/// Starts the process that acts as the network's switch and waits until it forwards frames.
fn start_switch(name: &str) -> Result<Process, NetError> {
    let failed = |said: String| NetError::Refused {
        doing: format!("starting the switch of network '{name}'"),
        said,
    };
    let program = std::env::current_exe().map_err(|e| failed(e.to_string()))?;
    let mut switch = Command::new(program)
        .args(["net-switch", name])
        // Ctrl-C at a terminal ends the programs there, not the network.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| failed(e.to_string()))?;
    let mut word = String::new();
    if let Some(out) = switch.stdout.take() {
        let _ = BufReader::new(out).read_line(&mut word);
    }
    match Process::of(switch.id()) {
        Some(process) if word.trim() == switch::READY => Ok(process),
        _ => {
            let _ = switch.kill();
            let _ = switch.wait();
            Err(failed("it ended before it was ready".to_owned()))
        }
    }
}

fn lock_owned() -> std::sync::MutexGuard<'static, BTreeSet<String>> {
    OWNED.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn registry() -> Registry {
    Registry::new("net")
}

/// Checks for the capabilities that namespaces need: CAP_SYS_ADMIN and CAP_NET_ADMIN, numbers 21 and 12
/// (capabilities(7)).
pub(crate) fn check_privilege() -> Result<(), NetError> {
    const NEEDED: u64 = 1 << 21 | 1 << 12;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    if effective & NEEDED == NEEDED { Ok(()) } else { Err(NetError::NoPrivilege) }
}

/// Takes the topology's name or generates a free one, resolves the topology, and records the network before anything is
/// created.
fn claim(topology: &Topology) -> Result<Network, NetError> {
    let _claim = registry().claim()?;
    let there: Vec<String> = sweep()?.into_iter().map(|n| n.name).collect();
    let name = match &topology.name {
        Some(name) => name.clone(),
        None => loop {
            let name = made_up_name();
            if !there.contains(&name) {
                break name;
            }
        },
    };
    if let Some(network) = registry().read::<Network>(&name)? {
        let holder = match network.owner {
            Some(owner) => format!("held by process {}", owner.pid),
            None => "it stays up until it is taken down".to_owned(),
        };
        let remedy = format!("net down {name}");
        return Err(NetError::Busy { kind: "network", name, holder, remedy });
    }
    let network = resolve(topology, name)?;
    if let Some(taken) = network.namespaces().find(|ns| namespace_path(ns).exists()) {
        return Err(NetError::Refused {
            doing: format!("creating network '{}'", network.name),
            said: format!(
                "the namespace {taken} exists already but belongs to no network; remove it: ip netns del {taken}"
            ),
        });
    }
    registry().write(&network.name, &network)?;
    Ok(network)
}

fn made_up_name() -> String {
    let mut bits = RandomState::new().build_hasher().finish();
    let mut name = String::from("n");
    for _ in 0..4 {
        name.push(char::from(b"0123456789abcdefghijkmnpqrstuvwxyz"[(bits % 34) as usize]));
        bits /= 34;
    }
    name
}

/// Gives every host its namespace, addresses and CPUs.
fn resolve(topology: &Topology, name: String) -> Result<Network, NetError> {
    let impaired_by = match topology.link.impairment.is_none() {
        true => ImpairedBy::Nobody,
        // The variable forces the use of Crossway's own switch on a kernel with netem.
        false
            if std::env::var_os("CROSSWAY_NO_NETEM").is_none()
                && build::has_netem(registry().folder()) =>
        {
            ImpairedBy::Netem
        }
        false => ImpairedBy::Crossway,
    };
    let given: Vec<Vec<u32>> = topology.hosts.iter().map(|h| h.cpus.clone()).collect();
    let allowed = affinity::allowed()?;
    if let Some(cpu) = given.iter().flatten().find(|cpu| !allowed.contains(cpu)) {
        return Err(NetError::Impossible {
            what: "CPU",
            given: cpu.to_string(),
            why: format!("this process may run only on the CPUs {allowed:?}"),
        });
    }
    let shares = shares(&allowed, &given, impaired_by == ImpairedBy::Crossway);
    let direct = topology.is_direct() && impaired_by != ImpairedBy::Crossway;
    let switch = (!direct).then(|| format!("cw-{name}.sw"));
    let hosts = topology.hosts.iter().zip(shares.hosts).enumerate().map(|(at, (spec, cpus))| {
        let number = at as u8 + 1;
        let (namespace, interface) = match (spec.kind, &switch) {
            (HostKind::Tap, Some(switch)) => (switch.clone(), format!("tap{at}")),
            _ => (format!("cw-{name}-{}", spec.name), INTERFACE.to_owned()),
        };
        Host {
            name: spec.name.clone(),
            kind: spec.kind,
            namespace,
            interface,
            ipv4: Ipv4Addr::new(10, 77, 0, number),
            ipv6: Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, u16::from(number)),
            mac: format!("02:77:00:00:00:{number:02x}"),
            cpus,
        }
    });
    Ok(Network {
        hosts: hosts.collect(),
        link: topology.link.clone(),
        switch,
        impaired_by,
        cpus_shared: shares.shared,
        steered: true,
        switch_cpus: shares.switch,
        owner: Some(Process::own()),
        switch_process: None,
        name,
    })
}

/// Removes the networks whose owner has ended; returns the rest. The caller must hold the claim on the names
/// ([`Registry::claim`]).
fn sweep() -> Result<Vec<Network>, NetError> {
    let mut there = Vec::new();
    registry().remove_drafts();
    for name in registry().names() {
        let Some(network) = registry().read_if_known::<Network>(&name) else { continue };
        if network.is_held() {
            there.push(network);
        } else {
            tracing::info!("removing network '{name}', whose owner was killed");
            remove(&network);
        }
    }
    Ok(there)
}

/// Ends the processes on the hosts and deletes the namespaces (and with them every interface) and the file.
fn remove(network: &Network) {
    // A tool of the killed owner may still be creating a part of it.
    let making = registry().making(&network.name);
    if let Err(error) = &making {
        tracing::warn!("{error}");
    }
    if let Some(switch) = network.switch_process {
        switch.kill();
    }
    processes::kill(network);
    let there: String = network
        .namespaces()
        .filter(|ns| namespace_path(ns).exists())
        .map(|ns| format!("netns del {ns}\n"))
        .collect();
    let doing = format!("removing network '{}'", network.name);
    match tool::run(&doing, &["ip", "-force", "-batch", "-"], &there) {
        Ok(_) => registry().remove(&network.name),
        // Another process was removing it, too.
        Err(_) if !network.namespaces().any(|ns| namespace_path(ns).exists()) => {
            registry().remove(&network.name);
        }
        Err(error) => {
            tracing::warn!("{error}; to try again, run: crossway net down {}", network.name)
        }
    }
    lock_owned().remove(&network.name);
}
