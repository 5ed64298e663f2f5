//! Runs the test program itself in a guest, whose kernel has what this one may lack.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crossway_netlab::{Guest, GuestSpec, NetError};

/// Runs this test program there with these arguments, behind `before` (a watchdog, an environment), and returns what it printed.
/// `None` where no guest can be booted; that is told with the cause. `name` keeps two suites that run at once apart, and `what`
/// names what is tested.
pub(crate) fn run_self(
    name: &str,
    what: &str,
    before: &[&str],
    args: impl IntoIterator<Item = String>,
) -> Option<String> {
    let spec = GuestSpec {
        // Two runs of one suite on one machine must not meet either.
        name: format!("{name}{:x}", std::process::id()),
        memory_mib: 512,
        program: PathBuf::from(env!("CARGO_BIN_EXE_conformance-guest-part")),
    };
    let guest = match Guest::boot(&spec, None) {
        Ok(guest) => guest,
        Err(why @ (NetError::NoPrivilege | NetError::MissingTool { .. })) => {
            eprintln!("SKIP {what} in a guest: {why}");
            return None;
        }
        Err(why) => panic!("{why}"),
    };
    let prefix = guest.prefix();
    let output = Command::new(&prefix[0])
        .args(&prefix[1..])
        .args(before)
        .arg(std::env::current_exe().unwrap())
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}{errors}");
    Some(text)
}
