//! Reads limits, and what they have caused, from the files of this process's cgroups, of version 1, 2 or both.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The limits of this process's cgroups; each is the tightest of all levels up to the root.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CgroupLimits {
    /// CPU time per second of wall-clock time, in CPUs; `None`: no quota.
    pub cpu_quota: Option<f64>,
    /// Bytes of memory; `None`: no limit.
    pub memory_max_bytes: Option<u64>,
    /// Processes and threads; `None`: no limit.
    pub pids_max: Option<u64>,
}

/// Reads the limits of the cgroups (version 1, 2 or both) this process is in.
pub fn limits() -> CgroupLimits {
    let (own, mounts) = own_cgroups();
    limits_at(&own, &mounts)
}

/// How often the CPU quota of a cgroup has stopped its processes since it was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Throttling {
    /// The cgroup's directory.
    pub group: PathBuf,
    /// Periods in which a process wanted to run.
    pub periods: u64,
    /// Periods in which the quota was used up.
    pub throttled: u64,
}

/// Reads how often this process's cgroups, at all levels that have a CPU controller, were throttled. Levels without
/// a quota count no periods.
pub fn throttling() -> Vec<Throttling> {
    let (own, mounts) = own_cgroups();
    let of = |dir: PathBuf| {
        let text = fs::read_to_string(dir.join("cpu.stat")).ok()?;
        let field = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
        };
        Some(Throttling {
            periods: field("nr_periods")?,
            throttled: field("nr_throttled")?,
            group: dir,
        })
    };
    dirs(&own, &mounts).into_iter().filter_map(of).collect()
}

/// The cgroup of this process of which the kernel has ended the most processes for lack of memory, and their number
/// since the cgroup was created; `None` if there are none.
pub fn memory_kills() -> Option<(PathBuf, u64)> {
    let (own, mounts) = own_cgroups();
    let of = |dir: PathBuf| {
        // Version 2, then version 1.
        let files = ["memory.events.local", "memory.oom_control"];
        let text = files.iter().find_map(|file| fs::read_to_string(dir.join(file)).ok())?;
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
        let kills: u64 = line.trim().parse().ok()?;
        (kills > 0).then_some((dir, kills))
    };
    dirs(&own, &mounts).into_iter().filter_map(of).max_by_key(|(_, kills)| *kills)
}

/// The texts of `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn own_cgroups() -> (String, String) {
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    (read("/proc/self/cgroup"), read("/proc/self/mountinfo"))
}

/// The directories of a process's cgroups of all hierarchies, and those above them.
fn dirs(own: &str, mountinfo: &str) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let Some((mount, root)) = mount_of(mountinfo, controllers) else { continue };
        let inner = group.strip_prefix(root.trim_end_matches('/')).unwrap_or(group);
        let leaf = Path::new(&mount).join(inner.trim_start_matches('/'));
        let levels = leaf.ancestors().take_while(|dir| dir.starts_with(&mount));
        dirs.extend(levels.map(Path::to_owned));
    }
    dirs
}

/// As [`limits`], from the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn limits_at(own: &str, mountinfo: &str) -> CgroupLimits {
    let mut limits = CgroupLimits::default();
    let tighten = |slot: &mut Option<u64>, path: PathBuf| {
        // Version 1 writes a huge number, and version 2 `max`, for "no limit".
        if let Some(n) = number(&path).filter(|n| *n < 1 << 60) {
            *slot = Some(slot.map_or(n, |old| old.min(n)));
        }
    };
    for dir in dirs(own, mountinfo) {
        let quota = fs::read_to_string(dir.join("cpu.max"))
            .ok()
            .and_then(|t| parse_cpu_max(&t))
            .or_else(|| {
                let quota = number(&dir.join("cpu.cfs_quota_us"))?;
                Some(quota as f64 / number(&dir.join("cpu.cfs_period_us"))? as f64)
            });
        if let Some(q) = quota {
            limits.cpu_quota = Some(limits.cpu_quota.map_or(q, |old: f64| old.min(q)));
        }
        tighten(&mut limits.memory_max_bytes, dir.join("memory.max"));
        tighten(&mut limits.memory_max_bytes, dir.join("memory.limit_in_bytes"));
        tighten(&mut limits.pids_max, dir.join("pids.max"));
    }
    limits
}

/// Parses the text of `cpu.max`, `max PERIOD` or `QUOTA PERIOD`, e.g. `max 100000`. Returns the quota in CPUs, or
/// `None` for no quota.
fn parse_cpu_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period) = (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?);
    (period > 0.0).then(|| quota / period)
}

/// Mount point and mounted root of the hierarchy that has `controllers` (version 2 if empty).
fn mount_of(mountinfo: &str, controllers: &str) -> Option<(String, String)> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let fields: Vec<&str> = before.split(' ').collect();
        let (root, mount) = (*fields.get(3)?, *fields.get(4)?);
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1)?);
        let matches = match kind {
            "cgroup2" => controllers.is_empty(),
            "cgroup" => {
                !controllers.is_empty()
                    && controllers.split(',').all(|c| options.split(',').any(|o| o == c))
            }
            _ => false,
        };
        matches.then(|| (mount.to_owned(), root.to_owned()))
    })
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_max_reads_as_cpus() {
        assert_eq!(parse_cpu_max("50000 100000\n"), Some(0.5));
        assert_eq!(parse_cpu_max("max 100000\n"), None);
        assert_eq!(parse_cpu_max("1 0"), None);
    }

    #[test]
    fn the_tightest_level_of_both_cgroup_versions_holds() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = |p: &str| dir.path().join(p);
        for d in ["v2/a/b", "cpu/x", "mem/x"] {
            fs::create_dir_all(at(d)).expect("directories");
        }
        fs::write(at("v2/a/cpu.max"), "150000 100000\n").expect("a file");
        fs::write(at("v2/a/b/cpu.max"), "max 100000\n").expect("a file");
        fs::write(at("v2/a/b/pids.max"), "max\n").expect("a file");
        fs::write(at("cpu/x/cpu.cfs_quota_us"), "200000\n").expect("a file");
        fs::write(at("cpu/x/cpu.cfs_period_us"), "100000\n").expect("a file");
        fs::write(at("mem/memory.limit_in_bytes"), "9223372036854771712\n").expect("a file");
        fs::write(at("mem/x/memory.limit_in_bytes"), "1048576\n").expect("a file");
        let root = dir.path().display();
        let mounts = format!(
            "1 0 0:1 / {root}/v2 rw - cgroup2 none rw\n\
             2 0 0:2 / {root}/cpu rw shared:1 - cgroup none rw,cpu,cpuacct\n\
             3 0 0:3 / {root}/mem rw - cgroup none rw,memory\n"
        );
        let limits = limits_at("5:cpu,cpuacct:/x\n4:memory:/x\n0::/a/b\n", &mounts);
        assert_eq!(limits.cpu_quota, Some(1.5));
        assert_eq!(limits.memory_max_bytes, Some(1 << 20));
        assert_eq!(limits.pids_max, None);
    }

    #[test]
    fn this_machine_can_be_read() {
        limits();
    }
}
