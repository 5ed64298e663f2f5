//! Tests that the programs written by `crossway advise --code` compile, answer, and continue after either end is
//! killed.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;

use crossway_lab::advise::starter::{self, Language, Languages, StarterError};
use crossway_sys::proc;

/// A program that is killed at the end of the test.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
    /// What a server says; a client's is read by a thread, so that it never waits for a reader.
    errors: mpsc::Receiver<String>,
}

impl Running {
    fn start(words: &[String], arguments: &[&str], dir: &Path) -> Running {
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .args(arguments)
            .current_dir(dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{words:?}: {e}"));
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let (say, errors) = mpsc::channel();
        let errors_of = BufReader::new(child.stderr.take().expect("a pipe"));
        std::thread::spawn(move || {
            errors_of.lines().map_while(Result::ok).for_each(|line| drop(say.send(line)));
        });
        Running { child, lines, errors }
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

    /// Waits until a server says that it accepts clients.
    fn until_ready(&mut self) {
        let said: Vec<String> = self.errors.iter().take_while(|line| line != "ready").collect();
        assert!(said.is_empty(), "instead of being ready: {said:?}");
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

fn free_port() -> String {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    free.local_addr().expect("its address").to_string()
}

/// Builds a program of a pair; returns the words that start it.
fn built(program: &str, language: Language, dir: &Path) -> Vec<String> {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    match language {
        Language::C => {
            let source = format!("{program}.c");
            let strict = ["cc", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-pthread"];
            compile(&[&strict[..], &["-o", program, &source]].concat(), dir);
            words(&[&format!("./{program}")])
        }
        Language::Rust => {
            let source = format!("{program}.rs");
            compile(&["rustc", "--edition", "2024", "-D", "warnings", &source], dir);
            words(&[&format!("./{program}")])
        }
        Language::Python => words(&["python3", &format!("{program}.py")]),
    }
}

/// The only child of a process.
fn child_of(pid: u32) -> u32 {
    let children = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(&children).unwrap_or_else(|e| panic!("{children}: {e}"));
    text.trim().parse().unwrap_or_else(|e| panic!("{children} holds '{text}': {e}"))
}

/// Kills either end in mid-flow: the client continues with the next server, the server with the next client.
fn survives_both_deaths(mechanism: &str, languages: Languages) {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    starter::write(mechanism, mechanism, languages, 64, dir).unwrap_or_else(|e| panic!("{e}"));
    let server = built("server", languages.server, dir);
    let client = built("client", languages.client, dir);
    let is_pipe = mechanism == "pipe";
    let address = match mechanism {
        "pipe" => server.join(" "),
        "fifo" => "f".to_owned(),
        "posix-mq" => format!("/crossway-starter-{}", std::process::id()),
        unix if unix.starts_with("uds") => "s".to_owned(),
        _ => free_port(),
    };
    // The client over a pipe starts its server.
    let serve = || {
        (!is_pipe).then(|| {
            let mut running = Running::start(&server, &[&address], dir);
            running.until_ready();
            running
        })
    };
    let first = serve();
    let mut asking = Running::start(&client, &[&address, "1000000000"], dir);
    asking.until("answered 1\n");
    match first {
        Some(server) => server.kill(),
        None => {
            let server = child_of(asking.child.id());
            proc::kill_exactly(server, proc::started_ticks(server).expect("its start"));
        }
    }
    let second = serve();
    asking.until("reconnected");
    asking.until("answered");
    asking.kill();
    Running::start(&client, &[&address, "10"], dir).until("done 10, reconnected 0\n");
    if let Some(mut server) = second {
        // A server that is asked to end removes its name; Rust's standard library cannot be asked.
        let asked = Command::new("kill").arg(server.child.id().to_string()).status();
        assert!(asked.expect("kill runs").success());
        server.child.wait().expect("ended");
        let left = languages.server != Language::Rust && dir.join(&address).exists();
        assert!(!left, "{mechanism} in {languages} left {address} behind");
    }
}

/// One language for both programs, and each as the client of another's server.
const PAIRS: [&str; 6] = ["c", "python", "rust", "python,c", "rust,python", "c,rust"];

fn in_turn(languages: &str) {
    let languages: Languages = languages.parse().expect("languages");
    for mechanism in starter::available(languages) {
        // The library is not installed where tests run; its C interface has tests of its own.
        let needs_library = mechanism.starts_with("shm-");
        if needs_library {
            println!("SKIP {mechanism}: needs the installed C library; make install");
            continue;
        }
        println!("{mechanism} in {languages}");
        survives_both_deaths(mechanism, languages);
    }
}

#[test]
fn programs_survive_the_death_of_either_end() {
    std::thread::scope(|scope| {
        for pair in PAIRS {
            scope.spawn(move || in_turn(pair));
        }
    });
}

#[test]
fn what_has_no_starter_is_refused_and_nothing_is_overwritten() {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |mechanism: &str, recommended: &str| {
        starter::write(mechanism, recommended, "python".parse().unwrap(), 64, dir.path())
    };
    let error = write("posix-mq", "posix-mq").expect_err("none").to_string();
    assert!(error.contains("for posix-mq in python: they exist for pipe, fifo, uds-"), "{error}");
    write("tcp", "shm-pipe").expect("written");
    let again = write("tcp", "tcp").expect_err("refused");
    assert!(matches!(again, StarterError::Exists { .. }), "{again}");
    // What is written is not called recommended if something else was.
    let readme = std::fs::read_to_string(dir.path().join("README.md")).expect("a README");
    assert!(
        readme.contains("recommended shm-pipe") && readme.contains("These are for tcp"),
        "{readme}"
    );
    assert!("c,cobol".parse::<Languages>().unwrap_err().contains("c, rust and python"));
}

/// No line of a template's own language is left in a program.
#[test]
fn programs_hold_no_marks_of_their_templates() {
    for pair in PAIRS {
        let languages: Languages = pair.parse().expect("languages");
        for mechanism in starter::available(languages) {
            let dir = tempfile::tempdir().expect("a folder");
            let files = starter::write(mechanism, mechanism, languages, 64, dir.path());
            for file in files.expect("written") {
                let text = std::fs::read_to_string(&file).expect("a program");
                let marked = text.lines().find(|line| {
                    line.starts_with("@if")
                        || line.starts_with("@end")
                        || line.matches('@').count() > 1
                });
                // Python's decorators have one.
                assert_eq!(marked, None, "{mechanism} in {pair}: {}", file.display());
            }
        }
    }
}
