//! Tests that the programs written by `crossway advise --code` compile, answer, and continue after either end is
//! killed.

mod built;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use crossway_advise::question::Pattern;
use crossway_advise::starter::{self, Language, Languages, StarterError};
use crossway_sys::proc;
use crossway_tipc_client::LoneTipcd;

const CROSSWAY: &str = env!("CARGO_BIN_EXE_crossway");

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
            // Of the test's own tipcd, if the programs use one.
            .env("TIPCD_SOCKET", dir.join("tipcd"))
            // A listener that is killed leaves its name.
            .env("CROSSWAY_CHANNEL_DIR", dir.join("names"))
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

/// The folder in which cargo builds this program and the libraries.
fn target() -> &'static Path {
    Path::new(CROSSWAY).parent().expect("a folder")
}

/// Builds libraries of this workspace.
fn build_libraries() {
    built::build(&["crossway-tipc-preload", "crossway-channel-capi"]);
}

/// Builds a program of a pair; returns the words that start it.
fn built(program: &str, language: Language, mechanism: &str, dir: &Path) -> Vec<String> {
    let words = |words: &[&str]| -> Vec<String> {
        // Without an installation, what the README says finds the library beside the program.
        let on_tipcd: &[&str] =
            if mechanism.starts_with("tipc-node") { &[CROSSWAY, "tipc", "run"] } else { &[] };
        on_tipcd.iter().chain(words).map(|&word| word.to_owned()).collect()
    };
    match language {
        Language::C => {
            let source = format!("{program}.c");
            let strict = ["cc", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-pthread"];
            let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../channel/capi/include");
            let library = target().join("libcrossway_channel.so");
            let (linked, found) = (library.display().to_string(), "-Wl,-rpath,$ORIGIN");
            let needs_library = mechanism.starts_with("shm-");
            if needs_library {
                // The name under which an installation has it.
                let _ = std::os::unix::fs::symlink(&library, dir.join("libcrossway_channel.so.0"));
            }
            let of_library = [include, &linked, found].into_iter().filter(|_| needs_library);
            let files = ["-o", program, &source].into_iter().chain(of_library);
            compile(&strict.into_iter().chain(files).collect::<Vec<_>>(), dir);
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

/// Programs for a mechanism and a pattern, and what they need.
struct Pair {
    dir: tempfile::TempDir,
    /// The words that start the server or publisher.
    server: Vec<String>,
    /// The words that start the client or subscriber.
    client: Vec<String>,
    address: String,
    _tipcd: Option<LoneTipcd>,
}

impl Pair {
    fn of(mechanism: &str, languages: Languages, pattern: Pattern) -> Pair {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path();
        starter::write(mechanism, mechanism, languages, pattern, 64, dir)
            .unwrap_or_else(|e| panic!("{e}"));
        let names = match pattern {
            Pattern::FanOut => ("publisher", "subscriber"),
            _ => ("server", "client"),
        };
        let server = built(names.0, languages.server, mechanism, dir);
        let client = built(names.1, languages.client, mechanism, dir);
        let tipcd = mechanism.starts_with("tipc-").then(|| {
            let mut command = Command::new(CROSSWAY);
            command.arg("tipcd");
            LoneTipcd::start(command, &dir.join("tipcd")).unwrap_or_else(|e| panic!("{e}"))
        });
        let address = address(mechanism, &server);
        Pair { server, client, address, _tipcd: tipcd, dir: folder }
    }

    /// Starts the server or publisher, and waits until it is ready.
    fn serve(&self) -> Running {
        let mut running = Running::start(&self.server, &[&self.address], self.dir.path());
        running.until_ready();
        running
    }

    /// Starts a client or subscriber that ends after `count` messages.
    fn ask(&self, count: &str) -> Running {
        Running::start(&self.client, &[&self.address, count], self.dir.path())
    }
}

/// An address that nobody else uses; for a pipe, the words that start the server.
fn address(mechanism: &str, server: &[String]) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    match mechanism {
        "pipe" => server.join(" "),
        "fifo" => "f".to_owned(),
        "posix-mq" => format!("/crossway-starter-{}-{number}", std::process::id()),
        "sysv-mq" => format!("{:#x}", 0x5150_0000 + (std::process::id() << 8 | number)),
        unix if unix.starts_with("uds") => "s".to_owned(),
        tipc if tipc.starts_with("tipc") => "18888:17".to_owned(),
        library if library.starts_with("shm-") => {
            format!("starter-{}-{number}", std::process::id())
        }
        _ => free_port(),
    }
}

/// Kills either end in mid-flow: the client continues with the next server, the server with the next client.
fn survives_both_deaths(mechanism: &str, languages: Languages) {
    let pair = Pair::of(mechanism, languages, Pattern::RequestReply);
    // The client over a pipe starts its server.
    let serve = || (mechanism != "pipe").then(|| pair.serve());
    let first = serve();
    let mut asking = pair.ask("1000000000");
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
    pair.ask("10").until("done 10, reconnected 0\n");
    if let Some(mut server) = second {
        // A server that is asked to end removes its name; Rust's standard library cannot be asked.
        signal(server.child.id(), "-TERM");
        server.child.wait().expect("ended");
        let left =
            languages.server != Language::Rust && pair.dir.path().join(&pair.address).exists();
        assert!(!left, "{mechanism} in {languages} left {} behind", pair.address);
    }
}

/// Stops one subscriber: the other one is served meanwhile. Then kills the publisher: both continue with the next one.
fn a_stopped_subscriber_delays_no_other(mechanism: &str, languages: Languages) {
    let pair = Pair::of(mechanism, languages, Pattern::FanOut);
    let first = pair.serve();
    let (mut slow, mut quick) = (pair.ask("1000000000"), pair.ask("1000000000"));
    slow.until("received 1\n");
    quick.until("received 1\n");
    signal(slow.child.id(), "-STOP");
    quick.until("received 1000\n");
    signal(slow.child.id(), "-CONT");
    first.kill();
    let _second = pair.serve();
    for subscriber in [&mut slow, &mut quick] {
        subscriber.until("reconnected");
        subscriber.until("received");
    }
    // How many are lost depends on the machine; one that came twice would count as almost 2^64.
    let line = pair.ask("50").until("done 50, lost ");
    let lost = line["done 50, lost ".len()..].split(',').next().and_then(|n| n.parse().ok());
    assert!(lost.is_some_and(|n: u64| n < 1 << 32), "{mechanism} in {languages}: {line}");
}

fn signal(pid: u32, signal: &str) {
    let pid = pid.to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().expect("kill runs").success());
}

/// One language for both programs, and each as the client of another's server.
const PAIRS: [&str; 6] = ["c", "python", "rust", "python,c", "rust,python", "c,rust"];

fn in_turn(languages: &str, pattern: Pattern, check: fn(&str, Languages)) {
    let languages: Languages = languages.parse().expect("languages");
    for mechanism in starter::available(languages, pattern) {
        // The kernel's TIPC is in guests.
        if mechanism.starts_with("tipc-kernel") {
            continue;
        }
        println!("{mechanism} in {languages}");
        check(mechanism, languages);
    }
}

#[test]
fn programs_survive_the_death_of_either_end() {
    build_libraries();
    std::thread::scope(|scope| {
        for pair in PAIRS {
            scope.spawn(move || in_turn(pair, Pattern::RequestReply, survives_both_deaths));
        }
    });
}

/// The queues of System V that these processes sent to last.
fn queues_of(pids: [u32; 2]) -> Option<Vec<String>> {
    let text = std::fs::read_to_string("/proc/sysvipc/msg").ok()?;
    let of = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Key, number, mode, bytes, messages, the last sender.
        let sender: u32 = fields.get(5)?.parse().ok()?;
        (fields[0] == "0" && pids.contains(&sender)).then(|| fields[1].to_owned())
    };
    Some(text.lines().filter_map(of).collect())
}

#[test]
fn queues_of_killed_programs_are_removed_by_the_next_server() {
    let c: Languages = "c".parse().expect("a language");
    let pair = Pair::of("sysv-mq", c, Pattern::RequestReply);
    let (first, mut asking) = (pair.serve(), pair.ask("1000000000"));
    asking.until("answered 1\n");
    let pids = [first.child.id(), asking.child.id()];
    first.kill();
    asking.kill();
    match queues_of(pids) {
        None => eprintln!("SKIP: this kernel has no /proc/sysvipc/msg; mount /proc to see queues"),
        Some(left) => assert_eq!(left.len(), 2, "one for each direction: {left:?}"),
    }
    let mut next = pair.serve();
    assert_eq!(queues_of(pids).unwrap_or_default(), Vec::<String>::new());
    pair.ask("10").until("done 10, reconnected 0\n");
    signal(next.child.id(), "-TERM");
    next.child.wait().expect("ended");
}

#[test]
fn subscribers_do_not_wait_for_one_another() {
    build_libraries();
    let check = a_stopped_subscriber_delays_no_other;
    std::thread::scope(|scope| {
        for pair in PAIRS {
            scope.spawn(move || in_turn(pair, Pattern::FanOut, check));
        }
    });
}

#[test]
fn programs_for_the_kernels_tipc_are_started_without_a_tipcd() {
    for kind in ["stream", "seqpacket"] {
        let text = |of: &str, file: &str| {
            let dir = tempfile::tempdir().expect("a folder");
            let mechanism = format!("tipc-{of}-{kind}");
            let (c, pattern) = ("c".parse().unwrap(), Pattern::FanIn);
            starter::write(&mechanism, &mechanism, c, pattern, 64, dir.path()).unwrap();
            let text = std::fs::read_to_string(dir.path().join(file)).unwrap();
            text.replace(&mechanism, "").replace("crossway tipc run ", "")
        };
        // tests/guests runs these on a kernel.
        for file in ["channel.h", "server.c", "client.c"] {
            assert_eq!(text("node", file), text("kernel", file), "{kind}: {file}");
        }
        let (node, kernel) = (text("node", "README.md"), text("kernel", "README.md"));
        assert!(
            node.contains("    crossway tipcd &") && !kernel.contains("tipcd"),
            "{node}{kernel}"
        );
    }
}

#[test]
fn what_has_no_starter_is_refused_and_nothing_is_overwritten() {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |mechanism: &str, recommended: &str| {
        let (python, pattern) = ("python".parse().unwrap(), Pattern::RequestReply);
        starter::write(mechanism, recommended, python, pattern, 64, dir.path())
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
    for (pair, pattern) in
        PAIRS.map(|pair| [(pair, Pattern::Stream), (pair, Pattern::FanOut)]).concat()
    {
        let languages: Languages = pair.parse().expect("languages");
        for mechanism in starter::available(languages, pattern) {
            let dir = tempfile::tempdir().expect("a folder");
            let files = starter::write(mechanism, mechanism, languages, pattern, 64, dir.path());
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
