//! Checks that the header declares what the library exports, and that two C processes that use it can talk to each
//! other.

#[path = "../../../crossway/tests/built/mod.rs"]
mod built;

use std::path::{Path, PathBuf};
use std::process::Command;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the name and the number of arguments of a prototype or a signature.
fn function(text: &str) -> (String, usize) {
    let (before, rest) = text.split_once('(').expect("an argument list");
    let name = before.rsplit([' ', '*']).next().expect("a name");
    let arguments = rest.split_once(')').expect("its end").0;
    let arguments = arguments.split(',').map(str::trim).filter(|a| !["", "void"].contains(a));
    (name.to_owned(), arguments.count())
}

/// Returns all functions of the header.
fn prototypes() -> Vec<(String, usize)> {
    let header = std::fs::read_to_string(here("include/crossway_channel.h")).unwrap();
    let prototypes = header.split_once("/* PROTOTYPES */").expect("the mark").1;
    let mut all: Vec<_> =
        prototypes.lines().filter(|line| line.ends_with(");")).map(function).collect();
    all.sort();
    all
}

#[test]
fn the_header_follows_the_source() {
    let source = std::fs::read_to_string(here("src/ffi.rs")).unwrap();
    let mut all: Vec<_> = source.split("#[unsafe(no_mangle)]").skip(1).map(function).collect();
    all.sort();
    assert!(all.len() >= 11, "{all:?}");
    assert_eq!(all, prototypes());
}

#[test]
fn two_c_processes_talk_by_name_and_one_polls_across_switches() {
    for tool in ["cc", "nm"] {
        if let Err(error) = Command::new(tool).arg("--version").output() {
            return eprintln!("SKIP the C interface: {tool}: {error}; install gcc and binutils");
        }
    }
    let target = built::build(&["crossway-channel-capi"]);
    let library = target.join("libcrossway_channel.so");
    let exported = Command::new("nm").args(["-D", "--defined-only", "-P"]).arg(&library).output();
    let exported = String::from_utf8(exported.unwrap().stdout).unwrap();
    let mut exported: Vec<_> = exported.lines().filter_map(|line| line.split(' ').next()).collect();
    exported.sort_unstable();
    let named = prototypes();
    assert_eq!(exported, named.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>());

    let dir = tempfile::tempdir().unwrap();
    for name in ["libcrossway_channel.so", "libcrossway_channel.so.0"] {
        std::os::unix::fs::symlink(&library, dir.path().join(name)).unwrap();
    }
    let program = dir.path().join("hello");
    let compiled = Command::new("cc")
        .args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-std=c11", "-D_POSIX_C_SOURCE=200809L"])
        .arg(here("examples/hello.c"))
        .arg(format!("-I{}", here("include").display()))
        .arg(format!("-L{}", dir.path().display()))
        .arg(format!("-Wl,-rpath,{}", dir.path().display()))
        .args(["-lcrossway_channel", "-o"])
        .arg(&program)
        .status()
        .unwrap();
    assert!(compiled.success(), "the example does not compile");
    let run = |role: &str| {
        let mut command = Command::new(&program);
        command.args([role, "hello/c"]).env("CROSSWAY_CHANNEL_DIR", dir.path().join("names"));
        command
    };
    let mut listening = run("listen").spawn().unwrap();
    let asked = run("connect").output().unwrap();
    let errors = String::from_utf8_lossy(&asked.stderr);
    assert!(asked.status.success(), "{errors}");
    assert_eq!(asked.stdout, b"shm-eventfd\nuds-seqpacket\nshm-eventfd\n");
    assert!(listening.wait().unwrap().success());
}
