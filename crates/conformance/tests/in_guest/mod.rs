//! Runs programs in a guest, whose kernel has features that this one may lack.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crossway_netlab::{Guest, GuestSpec, NetError};

/// Runs the command `words` in a guest and asserts that it succeeds; returns its standard output and its standard
/// error. If no guest can be booted here, prints the reason and returns `None`. `name` distinguishes suites that run at
/// the same time; `what` is the subject of the test, for messages.
pub(crate) fn run<W: AsRef<OsStr>>(
    name: &str,
    what: &str,
    words: impl IntoIterator<Item = W>,
) -> Option<(String, String)> {
    // Two runs of one suite on one machine must not collide either.
    let mut spec = GuestSpec::usual(&format!("{name}{:x}", std::process::id())).unwrap();
    spec.memory_mib = spec.memory_mib.max(512);
    spec.program = PathBuf::from(env!("CARGO_BIN_EXE_conformance-guest-part"));
    let guest = match Guest::boot(&spec, None) {
        Ok(guest) => guest,
        Err(why @ (NetError::NoPrivilege | NetError::MissingTool { .. })) => {
            eprintln!("SKIP {what} in a guest: {why}");
            return None;
        }
        Err(why) => panic!("{why}"),
    };
    let prefix = guest.prefix();
    let mut command = Command::new(&prefix[0]);
    command.args(&prefix[1..]).args(words).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (text, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{what}: {}\n{text}{errors}", output.status);
    Some((text, errors))
}
