//! Tests, in a guest, the mechanisms that this machine's kernel lacks and the guest's kernel has.

use std::collections::BTreeMap;

use crossway_mech::Probe;
use crossway_mech::registry;

use crate::in_guest;

/// Prefixes of the ids of the mechanisms that the guest's kernel supports and that other kernels may lack.
const KERNELS_OWN: [&str; 3] = ["tipc-kernel-", "sctp", "udp-lite"];
/// The same, for those that user-mode Linux lacks, too.
const OWN_UNDER_QEMU: [&str; 2] = ["vsock", "binder"];

/// Time limit in the guest in seconds; when it runs alone it takes about one minute.
const WATCHDOG: &str = "900";

/// The type name of a mechanism, which is the module name of its tests.
fn type_name(id: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    id.split('-').map(capital).collect()
}

#[test]
fn what_only_another_kernel_has_passes_in_a_guest() {
    let qemu = std::env::var("CROSSWAY_GUEST_KERNEL").is_ok_and(|kernel| !kernel.is_empty());
    let more = OWN_UNDER_QEMU.iter().filter(|_| qemu);
    let begins: Vec<&str> = KERNELS_OWN.iter().chain(more).copied().collect();
    let missing: Vec<&str> = registry::ALL
        .iter()
        .filter(|entry| begins.iter().any(|begin| entry.id.starts_with(begin)))
        .filter(|entry| matches!((entry.probe)(), Probe::Missing(_)))
        .map(|entry| entry.id)
        .collect();
    if missing.is_empty() {
        return;
    }
    // Most checks spend most of their time waiting.
    let program = std::env::current_exe().unwrap();
    let words =
        ["timeout", WATCHDOG, program.to_str().unwrap(), "--show-output", "--test-threads=8"];
    let words = words.into_iter().map(str::to_owned);
    let words = words.chain(missing.iter().map(|id| type_name(id) + "::"));
    let Some((text, _)) = in_guest::run("cf", &format!("{missing:?}"), words) else { return };
    let mut passed = BTreeMap::new();
    for line in text.lines().filter(|line| line.ends_with("... ok")) {
        let of = line.trim_start_matches("test ").split("::").next().unwrap();
        *passed.entry(of.to_owned()).or_insert(0) += 1;
    }
    let checks = *passed.values().next().expect("checks that passed");
    for id in missing {
        assert!(checks > 20 && passed.get(&type_name(id)) == Some(&checks), "{id}: {passed:?}");
        // A skipped check counts as passed, too.
        assert!(!text.contains(&format!("SKIP {id}: ")), "{id} is missing in the guest: {text}");
    }
}
