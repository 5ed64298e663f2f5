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
    /// Fixed number of messages per trial; `None` if trials end by time.
    pub messages: Option<u64>,
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
            // The CPUs chosen for a placement vary between runs, as for the case itself.
            beside: inputs
                .beside
                .iter()
                .map(|beside| Beside { cpus: Vec::new(), ..beside.clone() })
                .collect(),
            reply_bytes: inputs.reply_bytes,
            socket_buffer_bytes: inputs.socket_buffer_bytes,
            capacity_bytes: inputs.capacity_bytes,
            messages: inputs.messages,
        }
    }

    /// Returns the same setting without the background load.
    pub fn idle(&self) -> Setting {
        Setting { load: Load::default(), ..self.clone() }
    }

    /// Returns the key that orders settings by their names, except that sizes in the names are compared as numbers.
    pub(super) fn sort_key(&self) -> (String, [Option<u64>; 4]) {
        let words = Setting {
            reply_bytes: None,
            socket_buffer_bytes: None,
            capacity_bytes: None,
            messages: None,
            ..self.clone()
        };
        let sizes = [self.reply_bytes, self.socket_buffer_bytes, self.capacity_bytes];
        let [reply, buffer, capacity] = sizes;
        (words.label(), [reply, buffer, capacity, self.messages])
    }

    /// Returns the setting's human-readable name.
    pub fn label(&self) -> String {
        let mut parts: Vec<String> = self.place.iter().cloned().collect();
        parts.extend([placement_name(self.placement), load_name(self.load)]);
        parts.extend(self.beside.iter().map(|b| {
            let place = match b.placement {
                same if same == self.placement => String::new(),
                other => format!(" on {}", placement_name(other)),
            };
            format!("beside {}{place}", beside_name(b))
        }));
        if let Some(bytes) = self.reply_bytes {
            parts.push(format!("replies of {}", units::size(bytes)));
        }
        if let Some(bytes) = self.socket_buffer_bytes {
            parts.push(format!("socket buffer {}", units::size(bytes)));
        }
        if let Some(bytes) = self.capacity_bytes {
            parts.push(format!("capacity {}", units::size(bytes)));
        }
        if let Some(messages) = self.messages {
            parts.push(format!(
                "{} per trial",
                units::count(messages as usize, "message", "messages")
            ));
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
        Wait::Block => String::new(),
        Wait::Spin => ", spinning".to_owned(),
        Wait::Hybrid { spin_us } => format!(", hybrid {spin_us} µs"),
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
