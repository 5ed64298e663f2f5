//! Contenders that are run by the program: measured like mechanisms, and rejected if they misbehave.

mod bad;
mod declared;
mod libraries;
#[path = "../place/mod.rs"]
mod place;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use place::Place;

/// A folder with its own configuration and builds.
struct Workshop {
    place: Place,
}

impl Workshop {
    fn new(plan: &str) -> Workshop {
        Workshop { place: Place::new(plan) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.command(args);
        command.env("XDG_CONFIG_HOME", self.path("config"));
        command.env("XDG_CACHE_HOME", self.path("cache"));
        // Go would compile its standard library for each place.
        command.env("GOCACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/go-build"));
        // The same applies to the dependencies of iceoryx2.
        command.env("CARGO_TARGET_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/iceoryx2"));
        // Nothing tested here depends on speed, and optimised builds take longer than all tests of this suite.
        command.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns whether a program is installed; prints a message if it is not.
fn have(program: &str, package: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIP: {program} is missing; sudo apt-get install {package}");
    }
    found
}

/// Returns the folder of the contenders that come with Crossway.
fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contenders").canonicalize().unwrap()
}
