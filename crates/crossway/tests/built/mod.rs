//! Libraries and programs of this workspace, which Cargo does not build for the tests of another package.

use std::path::PathBuf;
use std::process::Command;

/// Builds packages of this workspace; returns the folder with what was built.
///
/// Each selection of packages has its own features of their dependencies, so that Cargo compiles most of the workspace
/// again for it. `make test` has built all with the features of the tests, and says so by `CROSSWAY_TESTS_BUILT`.
pub(crate) fn build(packages: &[&str]) -> PathBuf {
    if std::env::var_os("CROSSWAY_TESTS_BUILT").is_none() {
        let words = packages.iter().flat_map(|package| ["-p", package]);
        let built = Command::new(env!("CARGO")).args(["build", "--quiet"]).args(words).status();
        assert!(built.expect("cargo runs").success(), "{packages:?} do not build");
    }
    // This program is target/<profile>/deps/NAME-*; what it needs was built with the dev profile.
    let own = std::env::current_exe().expect("the path of this program");
    own.ancestors().nth(3).expect("cargo's folders").join("debug")
}

/// Builds the library of `crossway run`, and returns its path.
#[allow(dead_code)]
pub(crate) fn preload() -> PathBuf {
    build(&["crossway-preload"]).join("libcrossway_preload.so")
}
