//! Runs this suite again on a kernel's TIPC, in a guest whose kernel has TIPC.

use crate::in_guest;
use crate::site::{KERNEL_VARIABLE, on_kernel};

/// Time limit for the suite in the guest, in seconds; when it runs alone it takes a few seconds.
const WATCHDOG: &str = "900";

#[test]
fn a_kernel_s_sockets_pass_the_same_suite() {
    if on_kernel() {
        return;
    }
    let program = std::env::current_exe().unwrap();
    let there = format!("{KERNEL_VARIABLE}=1");
    // All tests use one node, so they run one after the other.
    let words = ["env", &there, "timeout", WATCHDOG, program.to_str().unwrap(), "--test-threads=1"];
    let Some((text, _)) = in_guest::run("cs", "the sockets of a kernel", words) else { return };
    for subject in ["connections", "ends", "groups", "messages", "topology"] {
        let passed =
            |line: &str| line.starts_with(&format!("test {subject}::")) && line.ends_with("... ok");
        assert!(text.lines().any(passed), "nothing of {subject} was run: {text}");
    }
}
