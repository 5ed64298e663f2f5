//! Runs the program as from a terminal of 120 columns, without an input.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs the program in a folder.
pub(crate) fn crossway(dir: &Path, args: &[&str]) -> Output {
    Command::new(assert_cmd::cargo::cargo_bin!("crossway"))
        .args(args)
        .current_dir(dir)
        .env("COLUMNS", "120")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Returns what the program has printed, which must have succeeded.
pub(crate) fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
