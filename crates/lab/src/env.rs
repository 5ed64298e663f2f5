//! The fingerprint of the environment: everything that could explain a figure, apart from the mechanism.
//!
//! The fingerprint is taken once per run and saved as `env.json`. It contains nothing that identifies a person, a
//! machine or its components: no host name, no serial number and no address. Of the kernel's command line, it contains
//! only the parameters that affect timing.

mod machine;
mod processor;
mod system;

use std::collections::BTreeMap;

use crossway_records::sorting::CollectTree;
use crossway_sys::cgroup::{self, CgroupLimits};
use crossway_sys::procfs::{self, LoadAverage};
use crossway_sys::topology::{CacheKind, Topology};
use serde::{Deserialize, Serialize};

pub use machine::{difference, machine_id};
pub use processor::{Clock, Frequency, Processor};
pub(crate) use system::sysctl;
pub use system::{Kernel, Memory, Power, Virtualisation};

use crate::tools::{self, Found};

/// How this program was built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// Crossway's version.
    pub version: String,
    /// Git revision, with the suffix `-dirty` if files had been modified; `unknown` in development builds and outside a
    /// git repository.
    pub revision: String,
    /// The compiler.
    pub rustc: String,
    /// `release` or `debug`.
    pub profile: String,
    /// The compilation target.
    pub target: String,
}

impl Build {
    /// The build of the running program.
    pub fn this() -> Build {
        Build {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: env!("CROSSWAY_BUILD_REVISION").to_owned(),
            rustc: env!("CROSSWAY_BUILD_RUSTC").to_owned(),
            profile: env!("CROSSWAY_BUILD_PROFILE").to_owned(),
            target: env!("CROSSWAY_BUILD_TARGET").to_owned(),
        }
    }
}

impl std::fmt::Display for Build {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let linked = if cfg!(target_feature = "crt-static") { "static" } else { "dynamic" };
        let Build { version, revision, rustc, profile, target } = self;
        write!(
            f,
            "{version}\ncommit:   {revision}\ntarget:   {target}, {linked}\nbuilt by: {rustc}, {profile}"
        )
    }
}

/// The fingerprint. `None` and missing entries mean that the system does not provide the information.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of the schema.
    pub schema: u32,
    /// Hash of [`Environment::machine_facts`]. Figures may be compared if their machine ids are equal.
    pub machine_id: String,
    /// The facts about hardware and kernel from which the id is computed.
    pub machine_facts: BTreeMap<String, String>,
    /// The host name, included only at the user's request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// When the fingerprint was taken, milliseconds since 1970 UTC.
    pub taken_unix_ms: u64,
    /// How this program was built.
    pub build: Build,
    /// The kernel.
    pub kernel: Kernel,
    /// The processor.
    pub processor: Processor,
    /// CPUs, and the caches that they share.
    pub topology: Topology,
    /// Frequency control of the processor.
    pub frequency: Frequency,
    /// Mitigations by vulnerability, as reported by the kernel.
    pub mitigations: BTreeMap<String, String>,
    /// Hypervisor and container.
    pub virtualisation: Virtualisation,
    /// Clock sources.
    pub clock: Clock,
    /// Limits set by cgroups.
    pub cgroup: CgroupLimits,
    /// Load average when the fingerprint was taken.
    pub load: Option<LoadAverage>,
    /// Size and availability of the memory.
    pub memory: Memory,
    /// Power supply: mains or battery.
    pub power: Power,
    /// Kernel settings that affect mechanisms, by sysctl name.
    pub sysctls: BTreeMap<String, String>,
    /// Versions of tools that are used in measurements, by command.
    pub tools: BTreeMap<String, String>,
}

/// The contents of a run's `env.json`: the fingerprints of this machine and of the hosts of its testbeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEnvironment {
    /// Fingerprint of this machine.
    #[serde(flatten)]
    pub here: Environment,
    /// Fingerprints of the hosts by machine id, which records refer to.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<String, Environment>,
}

/// Current value of [`Environment::schema`].
pub const SCHEMA: u32 = 1;

impl Environment {
    /// Sizes of the first CPU's data caches in bytes, innermost first.
    pub fn data_cache_bytes(&self) -> Vec<u64> {
        let Some(first) = self.topology.cpus.first() else { return Vec::new() };
        let mut caches: Vec<(u8, u64)> = self
            .topology
            .caches
            .iter()
            .filter(|c| c.kind != CacheKind::Instruction && c.cpus.contains(&first.id))
            .filter_map(|c| Some((c.level, c.size_bytes?)))
            .collect();
        caches.sort_unstable();
        caches.into_iter().map(|(_, bytes)| bytes).collect()
    }

    /// Takes the fingerprint. This takes a few tens of milliseconds, because stress-ng is run to find out its version.
    ///
    /// # Errors
    /// Returns the errors of [`Topology::read`].
    pub fn take() -> Result<Environment, crossway_sys::OsError> {
        let topology = Topology::read()?;
        let kernel = Kernel::read();
        let processor = Processor::read();
        let virtualisation = Virtualisation::read(&processor);
        let memory = Memory::read();
        let mitigations = system::mitigations();
        let machine_facts =
            machine::facts(&kernel, &processor, &topology, &virtualisation, &memory, &mitigations);
        Ok(Environment {
            schema: SCHEMA,
            machine_id: machine_id(&machine_facts),
            machine_facts,
            hostname: None,
            taken_unix_ms: crossway_sys::clock::unix_ms(),
            build: Build::this(),
            frequency: Frequency::read(&topology),
            clock: Clock::read(&processor),
            cgroup: cgroup::limits(),
            load: procfs::load_average().ok(),
            power: Power::read(),
            sysctls: system::sysctls(),
            tools: tool_versions(),
            kernel,
            processor,
            topology,
            mitigations,
            virtualisation,
            memory,
        })
    }

    /// Adds the host name.
    pub fn with_hostname(mut self) -> Environment {
        self.hostname = system::text("/proc/sys/kernel/hostname");
        self
    }
}

fn tool_versions() -> BTreeMap<String, String> {
    ["stress-ng"]
        .iter()
        .filter_map(|name| match tools::tool_named(name)?.find() {
            Found::Ready { version, .. } => Some(((*name).to_owned(), version)),
            Found::Missing(_) => None,
        })
        .collect_tree()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_the_same_id_every_time_and_contains_no_name() {
        let first = Environment::take().expect("/proc");
        let second = Environment::take().expect("/proc");
        assert_eq!(first.machine_id, second.machine_id);
        assert_eq!(first.machine_id.len(), 16);
        assert!(!first.kernel.release.is_empty());
        let text = serde_json::to_string(&first).expect("JSON");
        assert_eq!(
            serde_json::from_str::<Environment>(&text).expect("read back").kernel,
            first.kernel
        );
        assert!(!text.contains("\"hostname\""));
        assert!(first.with_hostname().hostname.is_some());
    }

    #[test]
    fn the_build_is_known() {
        let build = Build::this();
        assert!(build.rustc.starts_with("rustc "), "{build:?}");
        assert!(["debug", "release"].contains(&build.profile.as_str()), "{build:?}");
    }
}
