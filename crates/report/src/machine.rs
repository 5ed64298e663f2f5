//! The description of the machine on which a run was measured.

use crossway_lab::env::Environment;
use crossway_records::record::Record;

use crate::section::{Block, Section};
use crate::sheet::{Cell, Row, Sheet};
use crate::units;

/// What the page says about the machine; empty if the run has no fingerprint (`env.json`).
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// A summary in one line.
    pub line: String,
    /// Sizes of the first CPU's data caches in bytes, innermost first.
    pub data_cache_bytes: Vec<u64>,
    /// Size of a page in bytes, if the run tells it.
    pub page_bytes: Option<u64>,
    rows: Vec<(&'static str, String)>,
    hosts: Vec<(String, String)>,
    folded: Vec<(&'static str, String)>,
}

impl Machine {
    /// Builds the description from the run's fingerprint.
    pub fn of(environment: &Environment) -> Machine {
        let e = environment;
        let cpus = e.topology.cpus.len();
        let model = e.processor.model_name.clone().unwrap_or_else(|| e.processor.name());
        let guest = e.virtualisation.hypervisor.as_deref().map(|h| match h {
            "unknown" => "virtual machine".to_owned(),
            named => format!("virtual machine ({named})"),
        });
        let place = match (guest, &e.virtualisation.container) {
            (Some(guest), Some(c)) => format!("{c} container on a {guest}"),
            (Some(guest), None) => guest,
            (None, Some(c)) => format!("{c} container"),
            (None, None) => "no hypervisor detected".to_owned(),
        };
        let kernel = format!("Linux {}", e.kernel.release);
        let line =
            format!("{model} · {} · {kernel} · {place}", crate::units::count(cpus, "CPU", "CPUs"));

        let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
        let listed = |items: Vec<String>| {
            if items.is_empty() { "none".to_owned() } else { items.join(", ") }
        };
        let pairs = |map: &std::collections::BTreeMap<String, String>| {
            map.iter().map(|(k, v)| format!("{k}: {v}")).collect::<Vec<_>>().join("\n")
        };
        let mut caches: Vec<String> = Vec::new();
        for cache in &e.topology.caches {
            let size = cache.size_bytes.map_or("?".to_owned(), units::size);
            let cpus = crate::units::count(cache.cpus.len(), "CPU", "CPUs");
            let text = format!("L{} {:?} {size} for {cpus}", cache.level, cache.kind);
            if !caches.contains(&text) {
                caches.push(text);
            }
        }
        let sockets: std::collections::BTreeSet<_> =
            e.topology.cpus.iter().filter_map(|c| c.socket).collect();
        let memory: Vec<String> = [
            e.memory.total_bytes.map(|bytes| {
                format!("{} GiB", units::three_digits(bytes as f64 / f64::from(1 << 30)))
            }),
            e.memory.page_bytes.map(|bytes| format!("pages of {}", units::size(bytes))),
        ]
        .into_iter()
        .flatten()
        .collect();
        let rows = vec![
            ("Processor", e.processor.name()),
            ("Microcode", or_unknown(e.processor.microcode.clone())),
            (
                "Topology",
                format!(
                    "{} in {}, {}",
                    crate::units::count(cpus, "CPU", "CPUs"),
                    crate::units::count(sockets.len().max(1), "socket", "sockets"),
                    crate::units::count(e.topology.nodes.len().max(1), "NUMA node", "NUMA nodes")
                ),
            ),
            ("Caches", listed(caches)),
            ("Governor", listed(e.frequency.governors.iter().cloned().collect())),
            ("Idle driver", or_unknown(e.frequency.idle_driver.clone())),
            ("Virtualisation", place),
            (
                "Steal time since boot",
                e.virtualisation
                    .steal_share
                    .map_or("unknown".to_owned(), |s| units::Quantity::Share.show(s)),
            ),
            ("Kernel", format!("{kernel} {}", e.kernel.version)),
            ("Distribution", or_unknown(e.kernel.distribution.clone())),
            (
                "Security modules",
                e.kernel.security_modules.clone().map_or("unknown".to_owned(), listed),
            ),
            ("Clock source", or_unknown(e.clock.source.clone())),
            ("Memory", or_unknown((!memory.is_empty()).then(|| memory.join(", ")))),
            (
                "Crossway",
                format!(
                    "{} ({}, {}), {}",
                    e.build.version, e.build.revision, e.build.profile, e.build.rustc
                ),
            ),
            ("Machine id", e.machine_id.clone()),
        ];
        let folded = vec![
            ("Kernel parameters", e.kernel.parameters.join(" ")),
            ("Mitigations", pairs(&e.mitigations)),
            ("System settings", pairs(&e.sysctls)),
            ("Tools", pairs(&e.tools)),
        ];
        Machine {
            line,
            data_cache_bytes: e.data_cache_bytes(),
            page_bytes: e.memory.page_bytes,
            rows,
            hosts: Vec::new(),
            folded,
        }
    }

    /// Adds the hosts of testbeds that the records name.
    pub(crate) fn add_hosts(&mut self, records: &[Record]) {
        for record in records {
            let Some(testbed) = &record.inputs.testbed else { continue };
            for host in &record.hosts {
                let name = format!("Host {} of {testbed}", host.name);
                if !self.hosts.iter().any(|(known, _)| *known == name) {
                    let text = format!("Linux {}, reached by {}", host.kernel, host.prefix_kind);
                    self.hosts.push((name, text));
                }
            }
        }
    }

    /// Returns the section of the page, or `None` if the run has no fingerprint.
    pub fn section(&self) -> Option<Section> {
        if self.rows.is_empty() {
            return None;
        }
        let own = self.rows.iter().map(|(name, value)| (*name, value));
        let hosts = self.hosts.iter().map(|(name, value)| (name.as_str(), value));
        let rows = own
            .chain(hosts)
            .map(|(name, value)| Row {
                class: None,
                cells: vec![Cell::text(name), Cell::text(value)],
            })
            .collect();
        Some(Section {
            id: "machine",
            title: "The machine",
            tables: vec![Sheet { rows, ..Sheet::default() }],
            blocks: self
                .folded
                .iter()
                .filter(|(_, text)| !text.is_empty())
                .map(|(title, text)| Block { title: (*title).to_owned(), text: text.clone() })
                .collect(),
            ..Section::default()
        })
    }
}
