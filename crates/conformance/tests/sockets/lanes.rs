//! Repeats every check twice: with lanes from each socket's first message on, and without any lanes.

use std::process::Command;

use crate::site::{LANE_VARIABLE, on_kernel};

#[test]
fn sockets_behave_the_same_with_lanes_from_the_first_message_and_without_any() {
    if on_kernel() || std::env::var_os(LANE_VARIABLE).is_some() {
        return;
    }
    for after in ["1", "0"] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--skip", "guest::"])
            .env(LANE_VARIABLE, after)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "--lane-after {after}:\n{said}");
        assert!(!said.contains("running 0 tests"), "--lane-after {after}:\n{said}");
    }
}
