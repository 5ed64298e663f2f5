//! The same suite on a kernel's TIPC, in a guest that has it.

use crate::in_guest::run_self;
use crate::site::{KERNEL_VARIABLE, on_kernel};

/// In the guest, seconds.
const WATCHDOG: &str = "200";

#[test]
fn a_kernel_s_sockets_pass_the_same_suite() {
    if on_kernel() {
        return;
    }
    let before = ["env", &format!("{KERNEL_VARIABLE}=1"), "timeout", WATCHDOG];
    // All tests use one node, so one after the other.
    let args = ["--test-threads=1".to_owned()];
    let Some(text) = run_self("cs", "the sockets of a kernel", &before, args) else { return };
    for subject in ["connections", "ends", "groups", "messages", "topology"] {
        let passed =
            |line: &str| line.starts_with(&format!("test {subject}::")) && line.ends_with("... ok");
        assert!(text.lines().any(passed), "nothing of {subject} was run: {text}");
    }
}
