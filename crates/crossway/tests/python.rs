//! The Python module: its own tests with this build's program and C library.

mod built;

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Runs a file of Python's tests. Returns what it printed, or `None` if there is no Python that can run it.
fn python(file: &str) -> Option<String> {
    let recent = "import sys; sys.exit(sys.version_info < (3, 9))";
    if !Command::new("python3").args(["-c", recent]).status().is_ok_and(|status| status.success()) {
        eprintln!("SKIP {file}: Python 3.9 or later is missing; install python3");
        return None;
    }
    let program = assert_cmd::cargo::cargo_bin!("crossway");
    let output = Command::new("python3")
        // Nothing is written into the repository.
        .arg("-B")
        .arg(root().join("python/tests").join(file))
        .arg("-v")
        .env("PYTHONPATH", root().join("python/src"))
        .env("CROSSWAY_PROGRAM", program)
        .env("CROSSWAY_TIPC_LIBRARY", program.with_file_name("libcrossway_tipc.so"))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}");
    Some(printed)
}

#[test]
fn the_module_measures_compares_and_advises() {
    let Some(printed) = python("test_crossway.py") else { return };
    if printed.contains("skipped") {
        eprintln!("SKIP tables in Python: polars and pyarrow are missing; pip install polars");
    }
}

#[test]
fn sockets_in_python_talk_through_a_tipcd() {
    built::build(&["crossway-tipc-capi"]);
    let Some(printed) = python("test_tipc.py") else { return };
    assert!(!printed.contains("skipped"), "{printed}");
}
