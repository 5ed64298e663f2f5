//! Tests that the programs written by `crossway advise --code` compile, answer, and continue after either end is
//! killed.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crossway_lab::advise::starter::{self, Language, StarterError};

/// A program that is killed at the end of the test.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    fn start(words: &[&str], arguments: &[&str], dir: &Path) -> Running {
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .args(arguments)
            .current_dir(dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("{words:?}: {e}"));
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Running { child, lines }
    }

    /// Reads output until a line begins with this text; panics if the program exits before that.
    fn until(&mut self, beginning: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).expect("a line");
            assert!(read > 0, "it ended without '{beginning}'");
            if line.starts_with(beginning) {
                return line;
            }
        }
    }

    fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("reaped");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn compile(words: &[&str], dir: &Path) {
    let output = Command::new(words[0])
        .args(&words[1..])
        .current_dir(dir)
        .output()
        .unwrap_or_else(|e| panic!("{words:?}: {e}"));
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn address(mechanism: &str, dir: &Path) -> String {
    if mechanism.starts_with("uds") {
        return dir.join("s").display().to_string();
    }
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    free.local_addr().expect("its address").to_string()
}

fn survives_both_deaths(mechanism: &str, language: Language) {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    starter::write(mechanism, mechanism, language, 64, dir).unwrap_or_else(|e| panic!("{e}"));
    let (server, client): (&[&str], &[&str]) = match language {
        Language::C => {
            compile(
                &[
                    "cc",
                    "-Wall",
                    "-Wextra",
                    "-Werror",
                    "-Wno-unused-function",
                    "-pthread",
                    "-o",
                    "server",
                    "server.c",
                ],
                dir,
            );
            compile(
                &[
                    "cc",
                    "-Wall",
                    "-Wextra",
                    "-Werror",
                    "-Wno-unused-function",
                    "-o",
                    "client",
                    "client.c",
                ],
                dir,
            );
            (&["./server"], &["./client"])
        }
        Language::Rust => {
            compile(&["rustc", "--edition", "2024", "-D", "warnings", "server.rs"], dir);
            compile(&["rustc", "--edition", "2024", "-D", "warnings", "client.rs"], dir);
            (&["./server"], &["./client"])
        }
        Language::Python => (&["python3", "server.py"], &["python3", "client.py"]),
    };
    let address = address(mechanism, dir);
    let mut first = Running::start(server, &[&address], dir);
    first.until("ready");
    let mut asking = Running::start(client, &[&address, "1000000000"], dir);
    asking.until("answered 1\n");
    first.kill();
    let mut second = Running::start(server, &[&address], dir);
    second.until("ready");
    asking.until("reconnected");
    asking.until("answered");
    asking.kill();
    Running::start(client, &[&address, "10"], dir).until("done 10, reconnected 0\n");
}

#[test]
fn c_programs_survive_the_death_of_either_end() {
    for mechanism in starter::available(Language::C) {
        survives_both_deaths(mechanism, Language::C);
    }
}

#[test]
fn rust_programs_survive_the_death_of_either_end() {
    for mechanism in starter::available(Language::Rust) {
        survives_both_deaths(mechanism, Language::Rust);
    }
}

#[test]
fn python_programs_survive_the_death_of_either_end() {
    for mechanism in starter::available(Language::Python) {
        survives_both_deaths(mechanism, Language::Python);
    }
}

#[test]
fn what_has_no_starter_is_refused_and_nothing_is_overwritten() {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |mechanism: &str, recommended: &str| {
        starter::write(mechanism, recommended, Language::C, 64, dir.path())
    };
    let error = write("shm-futex", "shm-futex").expect_err("none");
    assert!(
        error.to_string().contains("they are available for uds-stream, uds-seqpacket, tcp"),
        "{error}"
    );
    write("tcp", "shm-pipe").expect("written");
    let again = write("tcp", "tcp").expect_err("refused");
    assert!(matches!(again, StarterError::Exists { .. }), "{again}");
    // What is written is not called recommended if something else was.
    let readme = std::fs::read_to_string(dir.path().join("README.md")).expect("a README");
    assert!(
        readme.contains("recommended shm-pipe") && readme.contains("These are for tcp"),
        "{readme}"
    );
}
