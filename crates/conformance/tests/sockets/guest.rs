//! The same suite on a kernel's TIPC, in a guest that has it.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crossway_netlab::{Guest, GuestSpec, NetError};

use crate::site::{KERNEL_VARIABLE, on_kernel};

/// In the guest, seconds.
const WATCHDOG: &str = "200";

#[test]
fn a_kernel_s_sockets_pass_the_same_suite() {
    if on_kernel() {
        return;
    }
    let spec = GuestSpec {
        // Two runs of the suite on one machine must not meet.
        name: format!("cs{:x}", std::process::id()),
        memory_mib: 512,
        program: PathBuf::from(env!("CARGO_BIN_EXE_conformance-guest-part")),
    };
    let guest = match Guest::boot(&spec, None) {
        Ok(guest) => guest,
        Err(why @ (NetError::NoPrivilege | NetError::MissingTool { .. })) => {
            return eprintln!("SKIP the sockets of a kernel in a guest: {why}");
        }
        Err(why) => panic!("{why}"),
    };
    let prefix = guest.prefix();
    let output = Command::new(&prefix[0])
        .args(&prefix[1..])
        .args(["env", &format!("{KERNEL_VARIABLE}=1"), "timeout", WATCHDOG])
        .arg(std::env::current_exe().unwrap())
        // All tests use one node, so one after the other.
        .arg("--test-threads=1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}{errors}");
    for subject in ["connections", "groups", "messages", "topology"] {
        let passed =
            |line: &str| line.starts_with(&format!("test {subject}::")) && line.ends_with("... ok");
        assert!(text.lines().any(passed), "nothing of {subject} was run: {text}");
    }
}
