//! The facts that make two runs comparable, and their hash.

use std::collections::BTreeMap;

use crossway_sys::topology::Topology;

use super::{Kernel, Memory, Processor, Virtualisation};

/// Facts about hardware and kernel as text. They include nothing that changes from minute to minute, and nothing that
/// identifies an individual machine.
pub(super) fn facts(
    kernel: &Kernel,
    processor: &Processor,
    topology: &Topology,
    virtualisation: &Virtualisation,
    memory: &Memory,
    mitigations: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let caches: Vec<String> = topology
        .caches
        .iter()
        .map(|c| {
            let size = c.size_bytes.map_or("?".to_owned(), |s| s.to_string());
            format!("L{} {:?} {size} x{}", c.level, c.kind, c.cpus.len())
        })
        .collect();
    let mitigations: Vec<String> = mitigations.iter().map(|(k, v)| format!("{k}: {v}")).collect();
    // Firmware and crash kernels reserve a little memory, which varies from boot to boot.
    let memory_gib = memory.total_bytes.map(|b| (b as f64 / f64::from(1 << 30)).round());
    [
        ("kernel", format!("{} {}", kernel.release, kernel.architecture)),
        ("processor", processor.name()),
        ("cpus", topology.cpus.len().to_string()),
        ("cores", topology.cores().to_string()),
        ("sockets", topology.sockets().map_or("?".to_owned(), |s| s.to_string())),
        ("numa_nodes", topology.nodes.len().to_string()),
        ("caches", caches.join(", ")),
        ("memory_gib", memory_gib.map_or("?".to_owned(), |g| g.to_string())),
        ("hypervisor", virtualisation.hypervisor.clone().unwrap_or("none".to_owned())),
        ("mitigations", mitigations.join("; ")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// The hash of the facts: 64-bit FNV-1a in hexadecimal. It distinguishes machines and has no security purpose.
pub fn machine_id(facts: &BTreeMap<String, String>) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for (name, value) in facts {
        for byte in name.bytes().chain([0]).chain(value.bytes()).chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

/// The facts in which two machines differ: name, value of the first, value of the second.
pub fn difference(
    a: &BTreeMap<String, String>,
    b: &BTreeMap<String, String>,
) -> Vec<(String, String, String)> {
    let none = || "unknown".to_owned();
    a.keys()
        .chain(b.keys().filter(|k| !a.contains_key(*k)))
        .filter(|k| a.get(*k) != b.get(*k))
        .map(|k| {
            let value = |of: &BTreeMap<String, String>| of.get(k).cloned().unwrap_or_else(none);
            (k.clone(), value(a), value(b))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn ids_follow_the_facts_and_nothing_runs_together() {
        let one = facts(&[("a", "bc"), ("d", "e")]);
        assert_eq!(machine_id(&one), machine_id(&one.clone()));
        assert_ne!(machine_id(&one), machine_id(&facts(&[("ab", "c"), ("d", "e")])));
        assert_ne!(machine_id(&one), machine_id(&facts(&[("a", "bc"), ("d", "f")])));
        // The FNV-1a hash of no data is its published offset basis.
        assert_eq!(machine_id(&BTreeMap::new()), "cbf29ce484222325");
    }

    #[test]
    fn differences_are_named_from_both_sides() {
        let a = facts(&[("cpus", "2"), ("kernel", "6.1"), ("old", "x")]);
        let b = facts(&[("cpus", "4"), ("kernel", "6.1"), ("new", "y")]);
        let found = difference(&a, &b);
        assert_eq!(found.len(), 3);
        assert!(found.contains(&("cpus".into(), "2".into(), "4".into())));
        assert!(found.contains(&("old".into(), "x".into(), "unknown".into())));
        assert!(found.contains(&("new".into(), "unknown".into(), "y".into())));
    }
}
