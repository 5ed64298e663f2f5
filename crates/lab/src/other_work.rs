//! Detects other programs that used the CPUs during the trials. The check before a run cannot detect what begins later.

use std::path::Path;

use crate::preflight;
use crate::record::{Record, Status};
use crate::records_io::ReadError;

/// Number of CPUs that other programs must keep busy before a warning is given. Even on an otherwise idle machine,
/// interrupts and the harness before and after the measured messages take up to half of this.
const CPUS: f64 = 0.4;

/// CPU time that neither the roles nor their servers used, in CPUs: the mean over the trials that ran on one host
/// without additional load. `None` if the records do not contain enough information.
pub fn other_cpus(records: &[Record]) -> Option<f64> {
    let (mut other_ns, mut span_ns) = (0, 0);
    for record in records {
        let [host] = &record.host_cpu[..] else { continue };
        let is_measured = matches!(record.status, Status::Ok | Status::Degraded);
        if !is_measured || !record.inputs.load.is_idle() || !record.beside.is_empty() {
            continue;
        }
        let servers: Option<u64> = record.servers.iter().map(|server| server.cpu_ns).sum();
        let (Some(servers_ns), Some(span)) = (servers, host.span_ns) else { continue };
        let roles_ns: u64 = record.roles.iter().map(|role| role.user_ns + role.system_ns).sum();
        // Interrupts may be caused by the messages.
        let own_ns = roles_ns + servers_ns + host.softirq_ns + host.irq_ns;
        other_ns += host.busy_ns.saturating_sub(own_ns);
        span_ns += span;
    }
    (span_ns > 0).then(|| other_ns as f64 / span_ns as f64)
}

/// A warning if other programs kept CPUs busy during the trials; `None` otherwise.
pub fn warning(records: &[Record]) -> Option<String> {
    let cpus = other_cpus(records).filter(|cpus| *cpus >= CPUS)?;
    let of = records.iter().find_map(|r| r.host_cpu.first()).map_or(1, |host| host.cpus);
    Some(format!(
        "other programs kept {cpus:.1} of {of} CPUs busy during the trials, so these are not figures of an otherwise idle machine: repeat the run when it is"
    ))
}

/// Describes what disturbed the machine before and during a run, which may be the reason for differences in its
/// figures. The run has the name `name` and its records are at `path`.
///
/// # Errors
/// The file with the findings of the check before the run is damaged.
pub fn disturbances(name: &str, path: &Path, records: &[Record]) -> Result<Vec<String>, ReadError> {
    let before = preflight::warnings_beside(path)?;
    let before = before.into_iter().map(|f| format!("before {name}: {}", f.what));
    let during = warning(records).map(|told| format!("in {name} {told}"));
    Ok(before.chain(during).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::Load;
    use crate::record::HostMeters;
    use crate::samples::{loaded, trials};

    /// Trials of 1 ms on two CPUs, in which other programs used `other_ns` of CPU time, the roles 6 us, and interrupts
    /// 4 us.
    fn beside(other_ns: u64) -> Vec<Record> {
        let mut records = trials("pipe", 64, &[1000, 1000], 10.0);
        for record in &mut records {
            record.host_cpu = vec![HostMeters {
                host: "local".to_owned(),
                busy_ns: 6_000 + 4_000 + other_ns,
                softirq_ns: 3_000,
                irq_ns: 1_000,
                steal_ns: 0,
                cpus: 2,
                span_ns: Some(1_000_000),
            }];
        }
        records
    }

    #[test]
    fn only_what_neither_the_roles_nor_interrupts_used_is_other_work() {
        assert_eq!(other_cpus(&trials("pipe", 64, &[1000], 10.0)), None, "no readings");
        assert_eq!(other_cpus(&beside(0)), Some(0.0));
        assert_eq!(other_cpus(&beside(1_500_000)), Some(1.5));
        assert_eq!(warning(&beside(300_000)), None);
        let told = warning(&beside(1_500_000)).expect("a warning");
        assert!(told.starts_with("other programs kept 1.5 of 2 CPUs busy"), "{told}");
        // Load that the plan requests is not a disturbance.
        let load = Load { cpu: 2, ..Load::default() };
        assert_eq!(other_cpus(&loaded(beside(1_500_000), load)), None);
    }
}
