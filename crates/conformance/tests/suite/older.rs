//! Repeats the suite without features of newer kernels, so that the code paths for older kernels are tested
//! on every kernel.

use std::process::Command;

use crossway_sys::fallback::{Newer, VARIABLE};

use super::peer::this_program;

/// Runs the checks of one mechanism in a process that does not use the kernel feature `newer`; nor do the peers that it
/// starts.
fn passes_without(newer: Newer, checks: &str) {
    if !cfg!(debug_assertions) {
        eprintln!(
            "SKIP checks without {}: a release build always uses this feature; test a debug build",
            newer.name()
        );
        return;
    }
    let output = Command::new(this_program())
        .args([checks, "--test-threads=2"])
        .env(VARIABLE, newer.name())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && !said.contains("running 0 tests"),
        "{checks} without {}: {said}{}",
        newer.name(),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn io_uring_on_pipes_that_do_not_take_nowait() {
    passes_without(Newer::PipeNowait, "UringPipe::");
}
