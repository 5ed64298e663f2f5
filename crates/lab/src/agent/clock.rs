//! Identifies hosts that share a clock: CLOCK_MONOTONIC is per kernel, and per time namespace within a kernel.

use std::sync::OnceLock;

/// The name of this process's CLOCK_MONOTONIC, determined once.
pub(crate) fn own() -> &'static str {
    static OWN: OnceLock<String> = OnceLock::new();
    OWN.get_or_init(name)
}

/// Determines the name of this process's CLOCK_MONOTONIC; if that is impossible, returns a name that no other process
/// has.
fn name() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let namespace = std::fs::read_link("/proc/self/ns/time");
    match (kernel, namespace) {
        (Ok(kernel), Ok(namespace)) => format!("{} {}", kernel.trim(), namespace.display()),
        // Kernels before 5.6 have no time namespaces.
        (Ok(kernel), Err(_)) => kernel.trim().to_owned(),
        (Err(_), _) => format!("unknown {:016x}", crossway_sys::lease::random_number()),
    }
}
