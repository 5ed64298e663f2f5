//! Reads time, traffic and load from `/proc`.
//!
//! `/proc/stat` counts in clock ticks (10 ms on most kernels), so a difference over a few ticks is coarse;
//! `schedstat` counts nanoseconds. Field meanings are from proc(5) and the kernel's
//! `Documentation/scheduler/sched-stats.rst`.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Serialize};

use crate::OsError;

/// Where a CPU's time went, in nanoseconds, since boot or between two snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTimes {
    /// User code, including niced code and guests' time.
    pub user_ns: u64,
    /// Kernel code on behalf of processes.
    pub system_ns: u64,
    /// Nothing to run and no I/O pending.
    pub idle_ns: u64,
    /// Idle with I/O pending.
    pub iowait_ns: u64,
    /// Serving hardware interrupts (`irq`).
    pub irq_ns: u64,
    /// Serving soft interrupts (`softirq`), where the kernel does most of its work for network packets.
    pub softirq_ns: u64,
    /// Runnable, but the hypervisor ran another guest.
    pub steal_ns: u64,
}

impl CpuTimes {
    /// The busy part of `span_ns` (the time that has passed on all CPUs together): what remains after idle time, I/O
    /// wait and steal. The busy times themselves are not summed. In many configurations (CONFIG_TICK_CPU_ACCOUNTING)
    /// the kernel measures idle time, but only samples the other times at timer ticks. It thus misses most busy periods
    /// shorter than a tick on a CPU that is otherwise idle.
    pub fn busy_within(&self, span_ns: u64) -> u64 {
        span_ns.saturating_sub(self.idle_ns + self.iowait_ns + self.steal_ns)
    }

    /// The sum of all times.
    pub fn total_ns(&self) -> u64 {
        let busy_ns = self.user_ns + self.system_ns + self.irq_ns + self.softirq_ns;
        busy_ns + self.idle_ns + self.iowait_ns + self.steal_ns
    }

    /// The difference from `earlier`. The kernel's `iowait` sometimes decreases; its difference is then 0.
    pub fn since(&self, earlier: &CpuTimes) -> CpuTimes {
        CpuTimes {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
            idle_ns: self.idle_ns.saturating_sub(earlier.idle_ns),
            iowait_ns: self.iowait_ns.saturating_sub(earlier.iowait_ns),
            irq_ns: self.irq_ns.saturating_sub(earlier.irq_ns),
            softirq_ns: self.softirq_ns.saturating_sub(earlier.softirq_ns),
            steal_ns: self.steal_ns.saturating_sub(earlier.steal_ns),
        }
    }
}

/// The host's CPU times at one instant, or between two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCpu {
    /// The sum over all CPUs.
    pub total: CpuTimes,
    /// The times of each CPU that is online, by its number.
    pub per_cpu: BTreeMap<u32, CpuTimes>,
}

impl HostCpu {
    /// Reads `/proc/stat`.
    ///
    /// # Errors
    /// The file cannot be read or has no `cpu` line.
    pub fn now() -> Result<HostCpu, OsError> {
        let text = read("/proc/stat")?;
        parse_stat(&text, rustix::param::clock_ticks_per_second()).ok_or_else(|| {
            OsError::new("read", "/proc/stat", std::io::Error::other("no line of CPU times"))
        })
    }

    /// The difference from `earlier`.
    pub fn since(&self, earlier: &HostCpu) -> HostCpu {
        let zero = CpuTimes::default();
        HostCpu {
            total: self.total.since(&earlier.total),
            per_cpu: self
                .per_cpu
                .iter()
                .map(|(cpu, t)| (*cpu, t.since(earlier.per_cpu.get(cpu).unwrap_or(&zero))))
                .collect(),
        }
    }
}

/// Parses the text of `/proc/stat`; `ticks_per_s` is its unit (`sysconf(_SC_CLK_TCK)`).
fn parse_stat(text: &str, ticks_per_s: u64) -> Option<HostCpu> {
    let tick_ns = 1_000_000_000 / ticks_per_s.max(1);
    let mut host = HostCpu::default();
    let mut seen = false;
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("cpu") else { continue };
        let (name, fields) = rest.split_once(' ')?;
        // Kernels before 2.6.11 have no `steal` field; a missing field is 0 by definition of the file.
        let f: Vec<u64> =
            fields.split_whitespace().map(|t| t.parse().unwrap_or(0) * tick_ns).collect();
        let at = |i: usize| f.get(i).copied().unwrap_or(0);
        let times = CpuTimes {
            user_ns: at(0) + at(1),
            system_ns: at(2),
            idle_ns: at(3),
            iowait_ns: at(4),
            irq_ns: at(5),
            softirq_ns: at(6),
            steal_ns: at(7),
        };
        if name.is_empty() {
            host.total = times;
            seen = true;
        } else if let Ok(cpu) = name.parse() {
            host.per_cpu.insert(cpu, times);
        }
    }
    seen.then_some(host)
}

/// One network interface's counters since it was created, or between two snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceCounters {
    /// Bytes received, link-layer header included where the driver counts it.
    pub rx_bytes: u64,
    /// Packets received, as the driver counts them.
    pub rx_packets: u64,
    /// Packets received and dropped.
    pub rx_dropped: u64,
    /// Bytes sent, link-layer header included where the driver counts it.
    pub tx_bytes: u64,
    /// Packets sent; a segmentation-offloaded packet counts as one.
    pub tx_packets: u64,
    /// Packets dropped instead of sent.
    pub tx_dropped: u64,
}

impl InterfaceCounters {
    /// The difference from `earlier`.
    pub fn since(&self, earlier: &InterfaceCounters) -> InterfaceCounters {
        InterfaceCounters {
            rx_bytes: self.rx_bytes.saturating_sub(earlier.rx_bytes),
            rx_packets: self.rx_packets.saturating_sub(earlier.rx_packets),
            rx_dropped: self.rx_dropped.saturating_sub(earlier.rx_dropped),
            tx_bytes: self.tx_bytes.saturating_sub(earlier.tx_bytes),
            tx_packets: self.tx_packets.saturating_sub(earlier.tx_packets),
            tx_dropped: self.tx_dropped.saturating_sub(earlier.tx_dropped),
        }
    }
}

/// The counters of every interface in the calling thread's network namespace.
///
/// # Errors
/// The file cannot be read.
pub fn interfaces() -> Result<BTreeMap<String, InterfaceCounters>, OsError> {
    // `/proc/net` refers to the namespace of the process's first thread; this thread may have entered
    // another one.
    Ok(parse_net_dev(&read("/proc/thread-self/net/dev")?))
}

/// Parses the text of `/proc/net/dev`.
fn parse_net_dev(text: &str) -> BTreeMap<String, InterfaceCounters> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        // The two heading lines contain `|` instead of counters.
        let Some((name, fields)) = line.rsplit_once(':') else { continue };
        let f: Vec<u64> = fields.split_whitespace().map_while(|t| t.parse().ok()).collect();
        if f.len() < 16 {
            continue;
        }
        let counters = InterfaceCounters {
            rx_bytes: f[0],
            rx_packets: f[1],
            rx_dropped: f[3],
            tx_bytes: f[8],
            tx_packets: f[9],
            tx_dropped: f[11],
        };
        found.insert(name.trim().to_owned(), counters);
    }
    found
}

/// Load averages: the average number of runnable and uninterruptible tasks over the last 1, 5 and 15 minutes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadAverage {
    /// The average over the last minute, decaying exponentially.
    pub one_min: f64,
    /// The same over five minutes.
    pub five_min: f64,
    /// The same over fifteen minutes.
    pub fifteen_min: f64,
    /// Tasks runnable now, the reader included.
    pub runnable: u64,
}

/// Reads `/proc/loadavg`.
///
/// # Errors
/// The file cannot be read or parsed.
pub fn load_average() -> Result<LoadAverage, OsError> {
    let text = read("/proc/loadavg")?;
    parse_loadavg(&text).ok_or_else(|| {
        OsError::new("read", "/proc/loadavg", std::io::Error::other("unexpected format"))
    })
}

/// Parses the text of `/proc/loadavg`.
fn parse_loadavg(text: &str) -> Option<LoadAverage> {
    let mut parts = text.split_whitespace();
    let mut next = || parts.next();
    Some(LoadAverage {
        one_min: next()?.parse().ok()?,
        five_min: next()?.parse().ok()?,
        fifteen_min: next()?.parse().ok()?,
        runnable: next()?.split_once('/')?.0.parse().ok()?,
    })
}

/// A task's time on and off the CPU (`schedstat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSchedule {
    /// Time on a CPU, nanoseconds.
    pub run_ns: u64,
    /// Runnable but waiting for a CPU, nanoseconds.
    pub wait_ns: u64,
    /// Number of times the task was given a CPU.
    pub slices: u64,
}

/// Reads `/proc/<pid>/task/<tid>/schedstat` of the task `(pid, tid)`; `None`: of the calling thread.
///
/// # Errors
/// The task has ended, or the kernel was built without `CONFIG_SCHED_INFO`.
pub fn task_schedule(task: Option<(u32, u32)>) -> Result<TaskSchedule, OsError> {
    let path = match task {
        Some((pid, tid)) => format!("/proc/{pid}/task/{tid}/schedstat"),
        None => "/proc/thread-self/schedstat".to_owned(),
    };
    let text = read(&path)?;
    let f: Vec<u64> = text.split_whitespace().map_while(|t| t.parse().ok()).collect();
    match f[..] {
        [run_ns, wait_ns, slices] => Ok(TaskSchedule { run_ns, wait_ns, slices }),
        _ => Err(OsError::new("read", path, std::io::Error::other("not three numbers"))),
    }
}

fn read(path: &str) -> Result<String, OsError> {
    fs::read_to_string(path).map_err(|e| OsError::new("read", path, e))
}

#[cfg(test)]
#[path = "procfs_tests.rs"]
mod tests;
