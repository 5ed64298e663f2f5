//! Logical CPUs and the resources they share, as `/sys/devices/system` describes them.
//!
//! Virtual machines and containers lack some of the files. Missing information is listed in [`Topology::gaps`] and
//! returned as `None`, never guessed. Facts are from the kernel's `Documentation/admin-guide/cputopology.rst` and
//! `Documentation/ABI/testing/sysfs-devices-system-cpu`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::OsError;

/// The content of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheKind {
    /// The cache holds data only (usually level 1).
    Data,
    /// The cache holds instructions only (usually level 1).
    Instruction,
    /// The cache holds both data and instructions (usually level 2 and above).
    Unified,
}

/// One cache, listed once regardless of how many CPUs share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cache {
    /// The cache's level; 1 is nearest to the core.
    pub level: u8,
    /// What the cache holds.
    pub kind: CacheKind,
    /// The cache's size in bytes; `None` if unknown.
    pub size_bytes: Option<u64>,
    /// The size of a cache line in bytes; `None` if unknown.
    pub line_bytes: Option<u32>,
    /// The logical CPUs that share the cache, ascending.
    pub cpus: Vec<u32>,
}

/// One logical CPU that is online.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// The CPU's number in the kernel.
    pub id: u32,
    /// Whether this process may run on the CPU (affinity and cgroup cpuset).
    pub allowed: bool,
    /// The number of the CPU's socket (`physical_package_id`); `None` if unknown.
    pub socket: Option<u32>,
    /// The number of the CPU's core, unique within the socket only; `None` if unknown.
    pub core: Option<u32>,
    /// The hardware threads of the CPU's core, including this CPU; only this CPU if the system does not list them.
    pub siblings: Vec<u32>,
    /// The number of the CPU's NUMA node; `None` if unknown.
    pub node: Option<u32>,
}

/// How close two logical CPUs are. `None` means unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relation {
    /// Whether the two are the same CPU.
    pub same_cpu: bool,
    /// Whether the two are the same CPU or hardware threads of one core.
    pub same_core: Option<bool>,
    /// The level of the nearest data cache that the two CPUs share; `Some(0)` if they share none.
    pub shared_cache_level: Option<u8>,
    /// Whether the two CPUs share the last-level cache.
    pub shares_last_level: Option<bool>,
    /// Whether the two CPUs are in the same socket.
    pub same_socket: Option<bool>,
    /// Whether the two CPUs are in the same NUMA node.
    pub same_node: Option<bool>,
}

/// The machine's CPUs as this process sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// The CPUs that are online, by ascending number.
    pub cpus: Vec<Cpu>,
    /// All caches, ordered by level, kind and first CPU; empty if the system lists none.
    pub caches: Vec<Cache>,
    /// The NUMA nodes that are online.
    pub nodes: Vec<u32>,
    /// One sentence for each piece of information that the system does not provide.
    pub gaps: Vec<String>,
}

/// Parses the kernel's list format, e.g. `0-3,8,10-11`. An empty text is an empty list.
///
/// # Errors
/// Names the part that cannot be parsed.
pub fn parse_cpu_list(text: &str) -> Result<Vec<u32>, String> {
    /// The limit for CPU numbers, far above what any kernel supports (`CONFIG_NR_CPUS` is at most 8192 on x86). A
    /// larger number is an error.
    const CPUS_MAX: u32 = 1 << 16;
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |t: &str| {
            t.trim().parse::<u32>().ok().filter(|n| *n < CPUS_MAX).ok_or_else(|| {
                format!("'{part}' in the CPU list '{}' is neither a CPU nor a range", text.trim())
            })
        };
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("the range '{part}' runs backwards"));
        }
        cpus.extend(first..=last);
    }
    Ok(cpus.into_iter().collect())
}

/// Formats a list of CPUs in the kernel's list format.
pub fn format_cpu_list(cpus: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => parts.push((cpu, cpu)),
        }
    }
    let text = |(a, b): &(u32, u32)| if a == b { format!("{a}") } else { format!("{a}-{b}") };
    parts.iter().map(text).collect::<Vec<_>>().join(",")
}

/// Parses a cache size as in sysfs: `32K`, `8M`, or plain bytes.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        b'G' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|t| t.trim().to_owned())
}

fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    text(path)?.parse().ok()
}

/// Reads an id; some hypervisors write -1 for "unknown", which yields `None`.
fn id(path: &Path) -> Option<u32> {
    number::<i64>(path).and_then(|n| u32::try_from(n).ok())
}

fn list(path: &Path) -> Option<Vec<u32>> {
    parse_cpu_list(&text(path)?).ok().filter(|l| !l.is_empty())
}

fn numbered_entries(dir: &Path, prefix: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut found: Vec<u32> = entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.strip_prefix(prefix)?.parse().ok())
        .collect();
    found.sort_unstable();
    found
}

impl Topology {
    /// Reads the topology of this machine, with the CPUs that the calling thread may use.
    ///
    /// # Errors
    /// `/proc/thread-self/status` cannot be read, or neither it nor `/sys` lists any CPU.
    pub fn read() -> Result<Topology, OsError> {
        let status = fs::read_to_string("/proc/thread-self/status")
            .map_err(|e| OsError::new("read", "/proc/thread-self/status", e))?;
        let allowed = status
            .lines()
            .find_map(|l| l.strip_prefix("Cpus_allowed_list:"))
            .and_then(|l| parse_cpu_list(l).ok());
        let topology =
            Self::read_at(Path::new("/sys/devices/system"), allowed.as_deref().unwrap_or(&[]));
        if topology.cpus.is_empty() {
            let why = std::io::Error::other(
                "neither /proc/thread-self/status nor /sys/devices/system lists a CPU; is /sys mounted?",
            );
            return Err(OsError::new("read", "/proc/thread-self/status", why));
        }
        Ok(topology)
    }

    /// Reads the tree below `root`, which has the layout of `/sys/devices/system`; `allowed` lists the CPUs this
    /// process may use. If `allowed` is empty (unknown), all online CPUs count as allowed.
    pub fn read_at(root: &Path, allowed: &[u32]) -> Topology {
        let mut gaps = Vec::new();
        let cpu_root = root.join("cpu");
        let mut online = list(&cpu_root.join("online")).unwrap_or_default();
        if online.is_empty() {
            online = numbered_entries(&cpu_root, "cpu");
            gaps.push(
                "cpu/online is missing, so the CPUs are taken from the names of the directories"
                    .to_owned(),
            );
        }
        if online.is_empty() {
            online = allowed.to_vec();
            gaps.push(
                "the directory cpu lists no CPU, so the CPUs are taken from the affinity mask"
                    .to_owned(),
            );
        }
        let mut nodes = list(&root.join("node/online")).unwrap_or_default();
        if nodes.is_empty() {
            nodes = numbered_entries(&root.join("node"), "node");
        }
        let node_cpus: Vec<(u32, Vec<u32>)> = nodes
            .iter()
            .map(|n| (*n, list(&root.join(format!("node/node{n}/cpulist"))).unwrap_or_default()))
            .collect();
        let node_of = |cpu| node_cpus.iter().find(|(_, cpus)| cpus.contains(&cpu)).map(|(n, _)| *n);

        let mut caches = BTreeSet::new();
        let mut cpus = Vec::with_capacity(online.len());
        for &cpu in &online {
            let dir = cpu_root.join(format!("cpu{cpu}"));
            let topology = dir.join("topology");
            // Since Linux 5.3 the name is `core_cpus_list`; the other one is for older kernels.
            let siblings = list(&topology.join("core_cpus_list"))
                .or_else(|| list(&topology.join("thread_siblings_list")));
            if siblings.is_none() {
                gaps.push(format!("cpu{cpu}: hardware threads of its core are not listed"));
            }
            let siblings = siblings.unwrap_or_else(|| vec![cpu]);
            let socket = id(&topology.join("physical_package_id"));
            if socket.is_none() {
                gaps.push(format!("cpu{cpu}: its socket is not listed"));
            }
            let before = caches.len();
            let indexes = numbered_entries(&dir.join("cache"), "index");
            for index in &indexes {
                caches.extend(read_cache(&dir.join(format!("cache/index{index}"))));
            }
            if indexes.is_empty() && before == caches.len() {
                gaps.push(format!("cpu{cpu}: its caches are not listed"));
            }
            cpus.push(Cpu {
                id: cpu,
                allowed: allowed.is_empty() || allowed.contains(&cpu),
                socket,
                core: id(&topology.join("core_id")),
                siblings,
                node: node_of(cpu),
            });
        }
        if nodes.is_empty() {
            gaps.push("NUMA nodes are not listed".to_owned());
        }
        Topology { cpus, caches: caches.into_iter().collect(), nodes, gaps }
    }

    /// The CPUs this process may run on, in ascending order.
    pub fn allowed(&self) -> Vec<u32> {
        self.cpus.iter().filter(|c| c.allowed).map(|c| c.id).collect()
    }

    /// The CPU with this number, if it is online.
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        self.cpus.iter().find(|c| c.id == id)
    }

    /// The number of sockets; `None` if unknown.
    pub fn sockets(&self) -> Option<usize> {
        self.cpus.iter().map(|c| c.socket).collect::<Option<BTreeSet<_>>>().map(|s| s.len())
    }

    /// The number of cores; the hardware threads of a core count once.
    pub fn cores(&self) -> usize {
        self.cpus.iter().map(|c| c.siblings.first().copied()).collect::<BTreeSet<_>>().len()
    }

    /// Whether any core has more than one hardware thread online.
    pub fn has_smt(&self) -> bool {
        self.cpus.iter().any(|c| c.siblings.iter().filter(|s| self.cpu(**s).is_some()).count() > 1)
    }

    /// The data or unified caches of a CPU, nearest first.
    pub fn data_caches(&self, cpu: u32) -> impl Iterator<Item = &Cache> {
        self.caches
            .iter()
            .filter(move |c| c.kind != CacheKind::Instruction && c.cpus.contains(&cpu))
    }

    /// The size in bytes of the largest data cache that no other core shares; `None` if none is known.
    pub fn private_cache_bytes(&self, cpu: u32) -> Option<u64> {
        let siblings = &self.cpu(cpu)?.siblings;
        self.data_caches(cpu)
            .filter(|c| c.cpus.iter().all(|other| siblings.contains(other)))
            .filter_map(|c| c.size_bytes)
            .max()
    }

    /// How close two CPUs are; `None` if one of them is offline.
    pub fn relation(&self, a: u32, b: u32) -> Option<Relation> {
        let (cpu_a, cpu_b) = (self.cpu(a)?, self.cpu(b)?);
        let known = |gap: &str| !self.gaps.iter().any(|g| g.contains(gap));
        let both = |x: Option<u32>, y: Option<u32>| Some(x? == y?);
        let listed = self.data_caches(a).next().is_some() && self.data_caches(b).next().is_some();
        let nearest = self.data_caches(a).filter(|c| c.cpus.contains(&b)).map(|c| c.level).min();
        let last = self.data_caches(a).max_by_key(|c| c.level);
        Some(Relation {
            same_cpu: a == b,
            same_core: if a == b || cpu_a.siblings.contains(&b) {
                Some(true)
            } else {
                known("hardware threads").then_some(false)
            },
            shared_cache_level: listed.then(|| nearest.unwrap_or(0)),
            shares_last_level: if listed { last.map(|c| c.cpus.contains(&b)) } else { None },
            same_socket: both(cpu_a.socket, cpu_b.socket),
            same_node: both(cpu_a.node, cpu_b.node),
        })
    }

    /// Every pair of CPUs this process may run on, lower number first.
    pub fn pairs(&self) -> Vec<(u32, u32)> {
        let allowed = self.allowed();
        let mut pairs = Vec::with_capacity(allowed.len() * allowed.len().saturating_sub(1) / 2);
        for (at, &a) in allowed.iter().enumerate() {
            pairs.extend(allowed[at + 1..].iter().map(|&b| (a, b)));
        }
        pairs
    }

    /// The first pair of different CPUs this process may run on for whose relation `wanted` returns true.
    pub fn find_pair(&self, wanted: impl Fn(&Relation) -> bool) -> Option<(u32, u32)> {
        self.pairs().into_iter().find(|(a, b)| self.relation(*a, *b).is_some_and(|r| wanted(&r)))
    }
}

fn read_cache(dir: &Path) -> Option<Cache> {
    let kind = match text(&dir.join("type"))?.as_str() {
        "Data" => CacheKind::Data,
        "Instruction" => CacheKind::Instruction,
        "Unified" => CacheKind::Unified,
        _ => return None,
    };
    Some(Cache {
        level: number(&dir.join("level"))?,
        kind,
        size_bytes: text(&dir.join("size")).and_then(|t| parse_size(&t)),
        line_bytes: number(&dir.join("coherency_line_size")),
        cpus: list(&dir.join("shared_cpu_list"))?,
    })
}

#[cfg(test)]
#[path = "topology_tests.rs"]
mod tests;
