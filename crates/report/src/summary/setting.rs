//! The setting of a case: where it ran and what ran at the same time; and its human-readable name.

use crossway_records::inputs::{Beside, Ends, Load, Placement, Wait};
use crossway_records::record::Record;

use super::workload_name;
use crate::units;

/// Where a case ran and what ran at the same time: everything that must be equal when contenders are compared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Setting {
    /// Testbed and hosts, described for people; `None` for this machine.
    pub place: Option<String>,
    /// Placement of the roles on CPUs.
    pub placement: Placement,
    /// Background load.
    pub load: Load,
    /// Background workloads that were measured along with the case.
    pub beside: Vec<Beside>,
    /// Size of the replies in bytes, if it differs from that of the requests.
    pub reply_bytes: Option<u64>,
    /// Socket buffer requested, bytes.
    pub socket_buffer_bytes: Option<u64>,
    /// Capacity requested for the pipe, ring or queue, bytes.
    pub capacity_bytes: Option<u64>,
}

impl Setting {
    pub(super) fn of(record: &Record) -> Self {
        let inputs = &record.inputs;
        Setting {
            place: inputs.testbed.as_ref().map(|testbed| match inputs.ends {
                Ends::Between => format!("{testbed}: {}", record.host),
                Ends::Within => format!("{testbed}: within {}", record.host),
            }),
            placement: inputs.placement,
            load: inputs.load,
            beside: inputs.beside.clone(),
            reply_bytes: inputs.reply_bytes,
            socket_buffer_bytes: inputs.socket_buffer_bytes,
            capacity_bytes: inputs.capacity_bytes,
        }
    }

    /// Returns the same setting without the background load.
    pub fn idle(&self) -> Setting {
        Setting { load: Load::default(), ..self.clone() }
    }

    /// Returns the key that orders settings by their names, except that sizes in the names are compared as numbers.
    pub(super) fn sort_key(&self) -> (String, [Option<u64>; 3]) {
        let words = Setting {
            reply_bytes: None,
            socket_buffer_bytes: None,
            capacity_bytes: None,
            ..self.clone()
        };
        (words.label(), [self.reply_bytes, self.socket_buffer_bytes, self.capacity_bytes])
    }

    /// Returns the setting's human-readable name.
    pub fn label(&self) -> String {
        let mut parts: Vec<String> = self.place.iter().cloned().collect();
        parts.extend([placement_name(self.placement), load_name(self.load)]);
        parts.extend(self.beside.iter().map(|b| format!("beside {}", beside_name(b))));
        if let Some(bytes) = self.reply_bytes {
            parts.push(format!("replies of {}", units::size(bytes)));
        }
        if let Some(bytes) = self.socket_buffer_bytes {
            parts.push(format!("socket buffer {}", units::size(bytes)));
        }
        if let Some(bytes) = self.capacity_bytes {
            parts.push(format!("capacity {}", units::size(bytes)));
        }
        parts.join(", ")
    }
}

/// Returns the human-readable name of a placement.
pub fn placement_name(placement: Placement) -> String {
    match placement {
        Placement::SameCore => "same core".to_owned(),
        Placement::SmtSibling => "two threads of one core".to_owned(),
        Placement::SharedCache => "two cores, shared cache".to_owned(),
        Placement::OtherCore => "two cores".to_owned(),
        Placement::CrossSocket => "two sockets".to_owned(),
        Placement::Cpus { a, b } => format!("CPUs {a} and {b}"),
        Placement::Unpinned => "unpinned".to_owned(),
    }
}

/// Returns the human-readable name of a background workload: `one way by pipe, 64 KiB`.
pub fn beside_name(beside: &Beside) -> String {
    let Beside { mechanism, workload, size_bytes, wait, .. } = beside;
    let wait = match wait {
        Wait::Block => "",
        Wait::Spin => ", spinning",
        Wait::Hybrid { .. } => ", hybrid",
    };
    format!(
        "{} by {mechanism}, {}{wait}",
        workload_name(*workload, *size_bytes),
        units::size(*size_bytes)
    )
}

/// Returns the human-readable name of the background load.
pub fn load_name(load: Load) -> String {
    if load.is_idle() {
        // Not "idle": what else ran on the machine is another matter, on which the preflight reports.
        return "no load added".to_owned();
    }
    let parts: Vec<String> = [(load.cpu, "CPU"), (load.memory, "memory"), (load.io, "I/O")]
        .into_iter()
        .filter(|(workers, _)| *workers > 0)
        .map(|(workers, kind)| format!("{workers} {kind}"))
        .collect();
    let noun = if load.cpu + load.memory + load.io == 1 { "worker" } else { "workers" };
    format!("loaded ({} {noun})", parts.join(", "))
}
