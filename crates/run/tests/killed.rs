//! Supervised programs whose supervisor or peer is killed at any instant: every byte is accounted for, and nothing hangs or remains.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossway_run::supervisor;
use crossway_sys::proc;

/// Contains the program that a process of this test's file supervises, and its arguments.
const PROGRAM: &str = "CROSSWAY_TEST_SUPERVISES";
/// How long a program may take, on a loaded machine, to find out that its peer is gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// Not a test of its own: supervises a program for the others.
#[test]
fn supervises_what_it_is_told() {
    let Ok(words) = std::env::var(PROGRAM) else { return };
    let mut words = words.split('\n');
    let mut command = Command::new(words.next().unwrap());
    command.args(words).env_remove(PROGRAM);
    let supervised = supervisor::start(command).unwrap();
    // The program's own output is all that this process prints.
    fs::write(std::env::var("PID_FILE").unwrap(), supervised.pid().to_string()).unwrap();
    let _ = supervised.attend();
    std::process::exit(0);
}

/// A supervised program, both of whose processes end with it.
struct Supervised {
    supervisor: Child,
    program: u32,
    notes: PathBuf,
}

/// What a program notes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Notes {
    bytes: u64,
    started: u64,
    ended: u64,
    wrong: u64,
}

impl Supervised {
    fn start(flood: &Path, dir: &Path, arguments: &[&str]) -> Self {
        let at = |what: &str| dir.join(format!("{}-{what}", arguments[0]));
        let (notes, pid) = (at("notes"), at("pid"));
        let _ = fs::remove_file(&pid);
        let words = [flood.to_str().unwrap(), arguments[0], notes.to_str().unwrap()];
        let words = [&words[..], &arguments[1..]].concat().join("\n");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "supervises_what_it_is_told", "--nocapture"]);
        command.env(PROGRAM, words).env("PID_FILE", &pid).env("XDG_RUNTIME_DIR", dir);
        command.env("CROSSWAY_RUN_EXPLAIN", dir.join("explained"));
        // A loaded machine must not decide that none is moved.
        command.env("CROSSWAY_RUN_PATIENCE_MS", "200");
        let supervisor = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut started = Self { supervisor, program: 0, notes };
        wait("the program does not start", || {
            let said = fs::read_to_string(&pid).unwrap_or_default();
            started.program = said.parse().unwrap_or(0);
            started.program != 0
        });
        started
    }

    /// The port that a server prints after the lines of the test's own harness.
    fn port(&mut self) -> String {
        let lines = BufReader::new(self.supervisor.stdout.take().unwrap()).lines();
        let mut lines = lines.map(|line| line.unwrap());
        // libtest writes the name of the test on the same line.
        let line = lines.find(|line| line.ends_with(|c: char| c.is_ascii_digit()));
        line.unwrap().rsplit(' ').next().unwrap().to_owned()
    }

    fn notes(&self) -> Notes {
        let raw = fs::read(&self.notes).unwrap_or_default();
        let word = |n: usize| {
            raw.get(n * 8..n * 8 + 8).map_or(0, |word| u64::from_ne_bytes(word.try_into().unwrap()))
        };
        Notes { bytes: word(0), started: word(1), ended: word(2), wrong: word(3) }
    }

    fn runs(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.program)).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        if self.runs() {
            proc::signal(self.program, KILL);
        }
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
    }
}

/// SIGKILL, on every processor.
const KILL: i32 = 9;

fn wait(why: &str, mut until: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !until() {
        assert!(begin.elapsed() < PATIENCE, "{why}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn whoever_is_killed_every_byte_is_accounted_for() {
    let dir = tempfile::tempdir().unwrap();
    let flood = dir.path().join("flood");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/flood.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-static", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&flood).arg(source);
    match compiler.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("cannot find -lc"), "{said}");
            eprintln!(
                "SKIP killed programs: no static C library; install libc6-dev or glibc-static"
            );
            return;
        }
        Err(_) => {
            eprintln!("SKIP killed programs: no compiler; install gcc");
            return;
        }
    }
    let mut dice = 1_u64;
    for n in 0..120 {
        let folder = dir.path().join(n.to_string());
        fs::create_dir(&folder).unwrap();
        let mut server = Supervised::start(&flood, &folder, &["serve"]);
        let port = server.port();
        let client = Supervised::start(&flood, &folder, &["flood", &port]);
        // On a slow machine, too, some are killed after the connection was made.
        if n % 8 < 4 {
            wait("the client does not send", || client.notes().bytes > 0 || !client.runs());
        }
        // Mostly soon, where connections are made.
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(Duration::from_micros((dice >> 33) % 150 * ((dice >> 41) % 150)));
        let victim = n % 4;
        let pid = [client.supervisor.id(), server.supervisor.id(), client.program, server.program];
        proc::signal(pid[victim], KILL);
        let said = || format!("{n}: {victim}: {:?} {:?}", client.notes(), server.notes());
        wait(&format!("{}: the client hangs", said()), || !client.runs());
        let sent = client.notes();
        // A server whose supervisor is gone cannot accept, and ends.
        let is_served = || server.notes().started > 0;
        if sent.started > 0 && victim != 3 {
            wait("the server does not notice the end", || {
                server.notes().ended == server.notes().started && (is_served() || !server.runs())
            });
        }
        assert_eq!(server.notes().wrong, 0, "{}", said());
        if victim != 3 && is_served() {
            assert!(server.notes().bytes >= sent.bytes, "{}", said());
        }
        drop((client, server));
        // Only the table, as docs/RUN.md says.
        let left = fs::read_dir(folder.join("crossway")).into_iter().flatten().flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        assert!(left.iter().all(|name| name == "run-3.table"), "{left:?}");
    }
    let explained = |n: usize| fs::read_to_string(dir.path().join(n.to_string()).join("explained"));
    let moved = |n: &usize| explained(*n).unwrap_or_default().contains("a UNIX stream pair");
    let moved = (0..120).filter(moved).count();
    assert!(moved > 20, "hardly any connection was moved: {moved}");
}
