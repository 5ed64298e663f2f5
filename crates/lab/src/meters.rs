//! What a role and its host use during a window. Snapshots are taken just outside the timed loop.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crossway_sys::perf;
use crossway_sys::procfs::{HostCpu, InterfaceCounters, interfaces};
use crossway_sys::usage::Usage;

use crate::control::{Counters, Outcome};
use crate::record::{HostMeters, IfaceMeters, LOCAL};

/// The hardware counters of this process. They count threads that start after them, so a role opens them first of all.
static COUNTERS: OnceLock<Result<perf::Counters, String>> = OnceLock::new();

/// Opens the hardware counters, where there are any.
pub(crate) fn open_counters() {
    COUNTERS.get_or_init(|| perf::Counters::start().map_err(|e| format!("{e}; {}", e.remedy())));
}

fn count() -> Result<perf::Counted, String> {
    match COUNTERS.get() {
        Some(Ok(counters)) => counters.read().map_err(|e| e.to_string()),
        Some(Err(why)) => Err(why.clone()),
        None => Err("the counters were not opened".to_owned()),
    }
}

/// A role's meters, running.
pub(crate) struct RoleMeter {
    usage: Usage,
    counted: Result<perf::Counted, String>,
}

impl RoleMeter {
    /// Reads them; the first instant of the window should come right after.
    pub(crate) fn start() -> Self {
        RoleMeter { counted: count(), usage: Usage::now() }
    }

    /// Reads them again and enters the difference.
    pub(crate) fn stop(self, outcome: &mut Outcome) {
        let used = Usage::now().since(&self.usage);
        outcome.counters = match (self.counted, count()) {
            (Ok(before), Ok(after)) => Counters {
                cycles: Some(after.cycles.saturating_sub(before.cycles)),
                instructions: Some(after.instructions.saturating_sub(before.instructions)),
                cache_misses: Some(after.cache_misses.saturating_sub(before.cache_misses)),
                missing: None,
            },
            (Err(why), _) | (_, Err(why)) => Counters { missing: Some(why), ..Default::default() },
        };
        outcome.user_ns = used.user_ns();
        outcome.system_ns = used.system_ns;
        outcome.switches_voluntary = used.switches_voluntary;
        outcome.switches_involuntary = used.switches_involuntary;
        outcome.faults_minor = used.faults_minor;
        outcome.faults_major = used.faults_major;
    }
}

/// The host's meters, running; read by the controller around the window.
pub(crate) struct HostMeter {
    cpu: Result<HostCpu, String>,
    interfaces: Result<BTreeMap<String, InterfaceCounters>, String>,
}

impl HostMeter {
    /// Reads them; interfaces only where the mechanism may use one.
    pub(crate) fn start(with_interfaces: bool) -> Self {
        let interfaces = if with_interfaces {
            interfaces().map_err(|e| e.to_string())
        } else {
            Ok(BTreeMap::new())
        };
        HostMeter { cpu: HostCpu::now().map_err(|e| e.to_string()), interfaces }
    }

    /// The host's CPU time since, or why it is unknown.
    pub(crate) fn cpu(&self) -> Result<HostMeters, String> {
        let before = self.cpu.as_ref().map_err(Clone::clone)?;
        let used = HostCpu::now().map_err(|e| e.to_string())?.since(before);
        Ok(HostMeters {
            host: LOCAL.to_owned(),
            busy_ns: used.total.busy_ns(),
            softirq_ns: used.total.softirq_ns,
            irq_ns: used.total.irq_ns,
            steal_ns: used.total.steal_ns,
            cpus: used.per_cpu.len() as u32,
        })
    }

    /// The traffic since, of interfaces that had any, or why it is unknown.
    pub(crate) fn traffic(&self) -> Result<Vec<IfaceMeters>, String> {
        let before = self.interfaces.as_ref().map_err(Clone::clone)?;
        if before.is_empty() {
            return Ok(Vec::new());
        }
        let now = interfaces().map_err(|e| e.to_string())?;
        Ok(now
            .iter()
            .filter_map(|(name, now)| {
                let used = now.since(before.get(name)?);
                (used.tx_packets + used.rx_packets > 0).then(|| IfaceMeters {
                    host: LOCAL.to_owned(),
                    name: name.clone(),
                    tx_packets: used.tx_packets,
                    rx_packets: used.rx_packets,
                    tx_bytes: used.tx_bytes,
                    rx_bytes: used.rx_bytes,
                })
            })
            .collect())
    }
}
