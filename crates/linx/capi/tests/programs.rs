//! Tests that C programs written for liblinx compile against the header and run on a node.

#[path = "../../../crossway/tests/built/mod.rs"]
mod built;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crossway_linx::{DIR_VARIABLE, Node, NodeThread, Settings, Transport};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The library built from this workspace, and two nodes. The second node uses shared memory as its transport.
struct Site {
    library: PathBuf,
    dir: tempfile::TempDir,
    _nodes: [NodeThread; 2],
}

impl Site {
    /// Builds the library and starts the nodes; `None` if there is no C compiler.
    fn new() -> Option<Site> {
        if let Err(error) = Command::new("cc").arg("--version").output() {
            eprintln!("SKIP the C interface: cc: {error}; install gcc");
            return None;
        }
        let target = built::build(&["crossway-linx-capi"]);
        let dir = tempfile::tempdir().unwrap();
        let library = target.join("libcrossway_linx.so");
        std::os::unix::fs::symlink(&library, dir.path().join("libcrossway_linx.so.0")).unwrap();
        let node = Node::spawn(&dir.path().join("node"), Settings::default()).unwrap();
        let settings = Settings { transport: Transport::Shm, ..Settings::default() };
        let shared = Node::spawn(&dir.path().join("shared"), settings).unwrap();
        Some(Site { library, dir, _nodes: [node, shared] })
    }

    fn program(&self, source: &str) -> PathBuf {
        let program = self.dir.path().join("program");
        let compiled = Command::new("cc")
            .args(["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Werror"])
            .arg("-Wno-unused-const-variable")
            .arg(here(source))
            .arg(format!("-I{}", here("include").display()))
            .arg(&self.library)
            .arg(format!("-Wl,-rpath,{}", self.dir.path().display()))
            .arg("-o")
            .arg(&program)
            .status()
            .unwrap();
        assert!(compiled.success(), "{source} does not compile");
        program
    }

    fn command(&self, program: &Path, word: &str) -> Command {
        let mut command = Command::new(program);
        let node = if word.starts_with("shared") { "shared" } else { "node" };
        command.arg(word).env(DIR_VARIABLE, self.dir.path().join(node));
        command
    }
}

/// A program that is killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn every_call_does_what_the_header_says() {
    let Some(site) = Site::new() else { return };
    let header = std::fs::read_to_string(here("include/linx.h")).unwrap();
    let source = std::fs::read_to_string(here("tests/every_call.c")).unwrap();
    for line in header.lines().filter(|line| line.ends_with(");") && !line.starts_with('#')) {
        let before = line.split('(').next().unwrap();
        let name = before.rsplit([' ', '*']).next().unwrap();
        assert!(source.contains(&format!("{name}(")), "tests/every_call.c does not call {name}");
    }
    let program = site.program("tests/every_call.c");
    let out = site.command(&program, "all").output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.stdout, b"all calls held\n");
    let out = site.command(&program, "shared").output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.stdout, b"shared signals held\n");
    for (word, said) in [
        ("overrun", "wrote beyond"),
        ("stranger", "does not belong"),
        ("shared-overrun", "wrote beyond"),
        ("shared-stranger", "does not belong"),
    ] {
        let out = site.command(&program, word).output().unwrap();
        assert!(!out.status.success(), "{word}");
        let errors = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(errors.contains(said), "{word}: {errors}");
    }
}

#[test]
fn the_demo_goes_on_with_the_successor_of_a_killed_server() {
    let Some(site) = Site::new() else { return };
    let program = site.program("examples/basic.c");
    // The client starts first and waits for a server.
    let client = site.command(&program, "client").stdout(Stdio::piped()).spawn().unwrap();
    let mut client = Running(client);
    let mut lines = BufReader::new(client.0.stdout.take().unwrap()).lines();
    let mut line = || lines.next().unwrap().unwrap();
    let server = Running(site.command(&program, "server").spawn().unwrap());
    assert_eq!(line(), "the server answers");
    drop(server);
    assert_eq!(line(), "the server is gone");
    let _successor = Running(site.command(&program, "server").spawn().unwrap());
    assert_eq!(line(), "the server answers");
    assert!(client.0.wait().unwrap().success());
}
