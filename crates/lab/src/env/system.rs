//! The kernel and its environment: settings, memory, power, hypervisor, container.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crossway_netlab::GuestMachine;
use crossway_records::sorting::CollectTree;
use crossway_sys::procfs::HostCpu;
use serde::{Deserialize, Serialize};

use super::Processor;

pub(super) fn text(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|t| t.trim().to_owned()).filter(|t| !t.is_empty())
}

/// Kernel parameters that affect timing. All others are omitted, because they may contain names of disks and hosts.
const PARAMETERS_OF_INTEREST: &[&str] = &[
    "mitigations",
    "isolcpus",
    "nohz",
    "nohz_full",
    "rcu_nocbs",
    "irqaffinity",
    "idle",
    "processor.max_cstate",
    "intel_idle.max_cstate",
    "intel_pstate",
    "amd_pstate",
    "cpuidle.off",
    "cpuidle.governor",
    "cpuidle_haltpoll.force",
    "haltpoll.guest_halt_poll_ns",
    "cpufreq.default_governor",
    "transparent_hugepage",
    "hugepages",
    "hugepagesz",
    "nosmt",
    "maxcpus",
    "nr_cpus",
    "clocksource",
    "tsc",
    "preempt",
    "threadirqs",
    "audit",
    "selinux",
    "apparmor",
    "lsm",
    "security",
    "pti",
    "nopti",
    "spectre_v2",
    "spec_store_bypass_disable",
    "l1tf",
    "mds",
    "swapaccount",
    "psi",
    "numa_balancing",
    "skew_tick",
    "nowatchdog",
    "nmi_watchdog",
    "kvm-intel.ple_gap",
];

/// The kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// Release, e.g. `6.1.0-13-amd64`.
    pub release: String,
    /// Version string of the kernel's build, as in `uname -v`.
    pub version: String,
    /// The machine's architecture.
    pub architecture: String,
    /// Parameters on the kernel's command line that affect timing.
    pub parameters: Vec<String>,
    /// Security modules in use; `None` if the kernel does not report them (securityfs is not mounted).
    pub security_modules: Option<Vec<String>>,
    /// The distribution.
    pub distribution: Option<String>,
}

impl Kernel {
    /// Reads the facts of the running kernel.
    pub fn read() -> Kernel {
        let os_release = text("/etc/os-release").unwrap_or_default();
        Kernel {
            release: text("/proc/sys/kernel/osrelease").unwrap_or_default(),
            version: text("/proc/sys/kernel/version").unwrap_or_default(),
            architecture: std::env::consts::ARCH.to_owned(),
            parameters: parameters(&text("/proc/cmdline").unwrap_or_default()),
            security_modules: text("/sys/kernel/security/lsm")
                .map(|t| t.split(',').map(str::to_owned).collect()),
            distribution: os_release
                .lines()
                .find_map(|l| l.strip_prefix("PRETTY_NAME="))
                .map(|name| name.trim_matches('"').to_owned()),
        }
    }
}

/// The parameters of a kernel command line that affect timing. Those after ` -- ` are for init and are ignored.
fn parameters(command_line: &str) -> Vec<String> {
    command_line
        .split_whitespace()
        .take_while(|word| *word != "--")
        .filter(|word| {
            PARAMETERS_OF_INTEREST.contains(&word.split_once('=').map_or(*word, |(name, _)| name))
        })
        .map(str::to_owned)
        .collect()
}

/// Mitigations in effect, by vulnerability.
pub(super) fn mitigations() -> BTreeMap<String, String> {
    let dir = "/sys/devices/system/cpu/vulnerabilities";
    let Ok(entries) = fs::read_dir(dir) else { return BTreeMap::new() };
    entries
        .flatten()
        .filter_map(|e| {
            let name = e.file_name().into_string().ok()?;
            let value = text(&format!("{dir}/{name}"))?;
            Some((name, value))
        })
        .collect_tree()
}

/// Kernel settings that affect mechanisms.
const SYSCTLS: &[&str] = &[
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.core.netdev_max_backlog",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.somaxconn",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.udp_mem",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_autocorking",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_tw_reuse",
    "net.mptcp.enabled",
    "net.unix.max_dgram_qlen",
    "fs.pipe-max-size",
    "fs.pipe-user-pages-soft",
    "fs.pipe-user-pages-hard",
    "fs.mqueue.msg_default",
    "fs.mqueue.msg_max",
    "fs.mqueue.msgsize_default",
    "fs.mqueue.msgsize_max",
    "fs.mqueue.queues_max",
    "fs.file-max",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shmmax",
    "kernel.shmall",
    "kernel.shmmni",
    "kernel.perf_event_paranoid",
    "kernel.yama.ptrace_scope",
    "kernel.io_uring_disabled",
    "kernel.sched_rt_runtime_us",
    "kernel.sched_autogroup_enabled",
    "kernel.numa_balancing",
    "kernel.timer_migration",
    "vm.swappiness",
];

pub(super) fn sysctls() -> BTreeMap<String, String> {
    SYSCTLS
        .iter()
        .filter_map(|name| {
            Some((
                (*name).to_owned(),
                sysctl(name)?.split_whitespace().collect::<Vec<_>>().join(" "),
            ))
        })
        .collect_tree()
}

/// The value of a kernel setting, named as sysctl(8) does; `None` if it does not exist, cannot be read or is empty.
pub(crate) fn sysctl(name: &str) -> Option<String> {
    text(&format!("/proc/sys/{}", name.replace('.', "/")))
}

/// Memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Total memory, bytes.
    pub total_bytes: Option<u64>,
    /// Memory available without swapping, bytes.
    pub available_bytes: Option<u64>,
    /// Swap in use, bytes.
    pub swap_used_bytes: Option<u64>,
    /// Size of a page in bytes: 4096 or, on some arm64 kernels, 16384 or 65536; `None` in runs of earlier versions.
    #[serde(default)]
    pub page_bytes: Option<u64>,
    /// Mode of transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: Option<String>,
    /// Mode of transparent huge pages for shared memory, from `shmem_enabled`: `always`, `within_size`, `advise`,
    /// `never`, `deny` or `force`.
    pub shmem_huge_pages: Option<String>,
    /// Number of reserved huge pages.
    pub huge_pages: Option<u64>,
}

impl Memory {
    /// Reads `/proc/meminfo` and the huge-page settings.
    pub fn read() -> Memory {
        let meminfo = text("/proc/meminfo").unwrap_or_default();
        let get = |name: &str| {
            let line = meminfo.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        let kib = |name| get(name).map(|k| k * 1024);
        let thp = "/sys/kernel/mm/transparent_hugepage";
        Memory {
            total_bytes: kib("MemTotal"),
            available_bytes: kib("MemAvailable"),
            swap_used_bytes: kib("SwapTotal")
                .zip(kib("SwapFree"))
                .map(|(total, free)| total.saturating_sub(free)),
            page_bytes: Some(crossway_sys::shm::page_len() as u64),
            transparent_huge_pages: text(&format!("{thp}/enabled")).and_then(|t| chosen(&t)),
            shmem_huge_pages: text(&format!("{thp}/shmem_enabled")).and_then(|t| chosen(&t)),
            huge_pages: get("HugePages_Total"),
        }
    }
}

/// The selected word of a sysfs setting, which is in brackets: `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

/// Power supply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Power {
    /// Whether the machine runs on battery; `None` if the machine has no battery or does not report its state.
    pub on_battery: Option<bool>,
}

impl Power {
    /// Reads `/sys/class/power_supply`.
    pub fn read() -> Power {
        Self::read_at(Path::new("/sys/class/power_supply"))
    }

    fn read_at(dir: &Path) -> Power {
        let supplies = fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
        let (mut mains, mut discharging) = (None, None);
        for supply in supplies {
            let get = |name: &str| text(supply.join(name).to_str()?);
            match get("type").as_deref() {
                Some("Mains" | "USB") => {
                    if let Some(online) = get("online") {
                        mains = Some(mains.unwrap_or(false) || online == "1");
                    }
                }
                // Batteries of mice and headsets have the scope "Device".
                Some("Battery") if get("scope").as_deref() != Some("Device") => {
                    discharging = get("status").map(|s| s == "Discharging").or(discharging);
                }
                _ => {}
            }
        }
        Power { on_battery: discharging.map(|d| d && mains != Some(true)) }
    }
}

/// Hypervisor and container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Virtualisation {
    /// The hypervisor's name, `unknown` if only its presence is detected; `None` without a hypervisor.
    pub hypervisor: Option<String>,
    /// What runs this kernel if it is a guest of Crossway; `None` outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestMachine>,
    /// The container runtime; `None` if none is detected.
    pub container: Option<String>,
    /// Fraction of the CPUs' time since boot that the hypervisor gave to other guests (steal), 0..=1.
    pub steal_share: Option<f64>,
}

impl Virtualisation {
    /// Whether an emulator executes this machine's instructions, as in a guest of Crossway without KVM.
    pub fn is_emulated(&self) -> bool {
        self.guest == Some(GuestMachine::Emulated)
    }

    /// Examines the processor's flags, DMI, and files created by container runtimes.
    pub fn read(processor: &Processor) -> Virtualisation {
        let dmi = text("/sys/class/dmi/id/sys_vendor");
        let product = text("/sys/class/dmi/id/product_name");
        let named =
            [dmi, product, text("/sys/hypervisor/type")].into_iter().flatten().find_map(|t| {
                let known = [
                    "QEMU",
                    "KVM",
                    "VMware",
                    "Xen",
                    "xen",
                    "VirtualBox",
                    "Microsoft",
                    "Amazon EC2",
                    "Google",
                    "Parallels",
                    "Firecracker",
                ];
                known.iter().find(|k| t.contains(**k)).map(|k| (*k).to_owned())
            });
        let guest = crossway_netlab::guest_machine();
        let container = if guest.is_some() {
            // Its files are those of this machine, also those that tell of a container.
            None
        } else if Path::new("/.dockerenv").exists() {
            Some("docker".to_owned())
        } else if Path::new("/run/.containerenv").exists() {
            Some("podman".to_owned())
        } else {
            text("/run/systemd/container").or_else(|| {
                text("/proc/1/environ").and_then(|e| {
                    let found = e.split('\0').find_map(|v| v.strip_prefix("container="))?;
                    Some(found.to_owned())
                })
            })
        };
        let steal_share = HostCpu::now()
            .ok()
            .map(|host| host.total.steal_ns as f64 / (host.total.total_ns() as f64).max(1.0));
        let virtual_processor = processor.flags.contains("hypervisor");
        let hypervisor = match guest {
            Some(machine) => Some(machine.about().to_owned()),
            None if virtual_processor || Path::new("/sys/hypervisor/type").exists() => {
                named.or(Some("unknown".to_owned()))
            }
            None => None,
        };
        Virtualisation { hypervisor, guest, container, steal_share }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parameters_that_bear_on_timing_are_kept() {
        let line = "BOOT_IMAGE=/vmlinuz root=UUID=1234 ro mitigations=off nosmt quiet isolcpus=2,3 -- nohz=on";
        assert_eq!(parameters(line), ["mitigations=off", "nosmt", "isolcpus=2,3"]);
    }

    #[test]
    fn the_chosen_word_is_the_bracketed_one() {
        assert_eq!(chosen("always [madvise] never"), Some("madvise".to_owned()));
        assert_eq!(chosen("none"), None);
    }

    #[test]
    fn a_laptop_off_its_mains_runs_from_its_battery() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().expect("below")).expect("directories");
            fs::write(path, text).expect("a file");
        };
        assert_eq!(Power::read_at(dir.path()).on_battery, None);
        write("AC/type", "Mains\n");
        write("AC/online", "0\n");
        write("BAT0/type", "Battery\n");
        write("BAT0/status", "Discharging\n");
        write("mouse/type", "Battery\n");
        write("mouse/scope", "Device\n");
        write("mouse/status", "Full\n");
        assert_eq!(Power::read_at(dir.path()).on_battery, Some(true));
        write("AC/online", "1\n");
        assert_eq!(Power::read_at(dir.path()).on_battery, Some(false));
        assert_eq!(Power::read_at(Path::new("/nonexistent")).on_battery, None);
    }

    #[test]
    fn this_machine_has_memory_and_settings() {
        assert!(Memory::read().total_bytes.expect("MemTotal") > 1 << 20);
        assert!(sysctls().contains_key("fs.pipe-max-size"));
        assert!(!Kernel::read().release.is_empty());
    }
}
