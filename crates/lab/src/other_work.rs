//! Detects other programs that used the CPUs during the trials. The check before a run cannot detect what begins later.

use std::path::Path;

use crate::preflight;
use crossway_records::record::{HostMeters, Record, Status};
use crossway_records::records_io::ReadError;

/// Number of CPUs that other programs must keep busy before a warning is given. Even an otherwise idle machine uses up
/// to half of this, for interrupts and for Crossway itself before and after the measured messages.
const CPUS: f64 = 0.4;

/// CPU time during a trial that was used neither by its roles and their servers nor by interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherWork {
    /// That CPU time, nanoseconds.
    pub cpu_ns: u64,
    /// Duration of the trial's measured part, nanoseconds.
    pub span_ns: u64,
    /// Number of CPUs of the host.
    pub cpus: u32,
}

impl OtherWork {
    /// Computes the other CPU time of a trial from the readings of its hosts and the CPU time of its roles and of its
    /// servers, nanoseconds. `servers_ns` is `None` if the CPU time of a server could not be read. Returns `None` if a
    /// reading is missing, or if the trial did not run on exactly one host.
    pub fn of(hosts: &[HostMeters], roles_ns: u64, servers_ns: Option<u64>) -> Option<OtherWork> {
        let [host] = hosts else { return None };
        // Interrupts may be caused by the messages.
        let own_ns = roles_ns + servers_ns? + host.softirq_ns + host.irq_ns;
        Some(OtherWork {
            cpu_ns: host.busy_ns.saturating_sub(own_ns),
            span_ns: host.span_ns?,
            cpus: host.cpus,
        })
    }

    fn of_record(record: &Record) -> Option<OtherWork> {
        let is_measured = matches!(record.status, Status::Ok | Status::Degraded);
        if !is_measured || !record.inputs.load.is_idle() || !record.beside.is_empty() {
            return None;
        }
        let roles_ns = record.roles.iter().map(|role| role.user_ns + role.system_ns).sum();
        let servers_ns = record.servers.iter().map(|server| server.cpu_ns).sum();
        OtherWork::of(&record.host_cpu, roles_ns, servers_ns)
    }
}

/// Number of CPUs that other programs kept busy, the mean over the trials; `None` if there are no trials.
pub fn other_cpus(trials: &[OtherWork]) -> Option<f64> {
    let cpu_ns: u64 = trials.iter().map(|trial| trial.cpu_ns).sum();
    let span_ns: u64 = trials.iter().map(|trial| trial.span_ns).sum();
    (span_ns > 0).then(|| cpu_ns as f64 / span_ns as f64)
}

/// A warning if other programs kept CPUs busy during the records' trials that ran on one host without additional load;
/// `None` otherwise.
pub fn warning(records: &[Record]) -> Option<String> {
    warning_about(&records.iter().filter_map(OtherWork::of_record).collect::<Vec<_>>())
}

/// A warning if other programs kept CPUs busy during these trials; `None` otherwise.
pub fn warning_about(trials: &[OtherWork]) -> Option<String> {
    let cpus = other_cpus(trials).filter(|cpus| *cpus >= CPUS)?;
    let of = trials.first().map_or(1, |trial| trial.cpus);
    Some(format!(
        "other programs kept {cpus:.1} of {of} CPUs busy during these trials, which may have affected these figures; repeat the run while the machine is otherwise idle"
    ))
}

/// Describes what disturbed the machine before and during a run, which may be the reason for differences in its
/// figures. The run has the name `name` and its records are at `path`.
///
/// # Errors
/// The file with the findings of the check before the run cannot be read or parsed.
pub fn disturbances(name: &str, path: &Path, records: &[Record]) -> Result<Vec<String>, ReadError> {
    let before = preflight::warnings_beside(path)?;
    let before = before.into_iter().map(|f| {
        let continued = if f.continued { " was continued" } else { "" };
        format!("before {name}{continued}: {}", f.what)
    });
    let during = warning(records).map(|told| format!("in {name}, {told}"));
    Ok(before.chain(during).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossway_records::inputs::Load;
    use crossway_records::samples::{loaded, trials};

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

    fn cpus(records: &[Record]) -> Option<f64> {
        other_cpus(&records.iter().filter_map(OtherWork::of_record).collect::<Vec<_>>())
    }

    #[test]
    fn only_what_neither_the_roles_nor_interrupts_used_is_other_work() {
        assert_eq!(cpus(&trials("pipe", 64, &[1000], 10.0)), None, "no readings");
        assert_eq!(cpus(&beside(0)), Some(0.0));
        assert_eq!(cpus(&beside(1_500_000)), Some(1.5));
        assert_eq!(warning(&beside(300_000)), None);
        let told = warning(&beside(1_500_000)).expect("a warning");
        assert!(told.starts_with("other programs kept 1.5 of 2 CPUs busy"), "{told}");
        // Load that the plan requests is not a disturbance.
        let load = Load { cpu: 2, ..Load::default() };
        assert_eq!(cpus(&loaded(beside(1_500_000), load)), None);
    }
}
