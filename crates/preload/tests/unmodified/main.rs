//! Unmodified programs with the preloaded library: they observe the same as without it, whoever dies, and however many there are.

#[path = "../../../crossway/tests/built/mod.rs"]
mod built;
mod namespaces;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{LazyLock, PoisonError, RwLock, RwLockReadGuard};

const PYTHON: &str = "/usr/bin/python3";
/// The variable of `crossway run --cpu-budget`.
const BUDGET: &str = "CROSSWAY_RUN_CPU_BUDGET";
/// What precedes the explanation of a whole program.
const ENDS: &str = " ends: ";

/// Cargo does not build the library for the tests of its package.
static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
    let library = built::preload();
    assert!(library.exists(), "{}", library.display());
    library
});

/// Held by tests whose programs must not be disturbed, and alone by the one that disturbs.
static PEACE: RwLock<()> = RwLock::new(());

/// A folder for one test, whose programs find only each other.
struct Site {
    dir: tempfile::TempDir,
    _peace: Option<RwLockReadGuard<'static, ()>>,
}

impl Site {
    fn new() -> Option<Self> {
        let peace = PEACE.read().unwrap_or_else(PoisonError::into_inner);
        Self::at_war().map(|site| Self { _peace: Some(peace), ..site })
    }

    /// `None` without Python.
    fn at_war() -> Option<Self> {
        if !Path::new(PYTHON).exists() {
            eprintln!("SKIP unmodified programs: {PYTHON} is missing; install python3");
            return None;
        }
        Some(Self { dir: tempfile::tempdir().unwrap(), _peace: None })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, program: &str, with_library: bool) -> Command {
        let mut command = Command::new(program);
        command.env("WORK", self.dir.path()).env("XDG_RUNTIME_DIR", self.dir.path());
        if with_library {
            command.env("LD_PRELOAD", &*LIBRARY);
            command.env("CROSSWAY_RUN_EXPLAIN", self.at("explained"));
            // A loaded machine must not decide which connections are moved.
            command.env("CROSSWAY_RUN_PATIENCE_MS", "20000");
        }
        command
    }

    fn python(&self, script: &str, arguments: &[&str], with_library: bool) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(script);
        let mut command = self.command(PYTHON, with_library);
        // Nothing is written beside the sources.
        command.arg("-B").arg(script).args(arguments);
        command
    }

    /// Runs a script with the library; returns what it prints.
    fn prints(&self, script: &str, arguments: &[&str]) -> String {
        text(self.python(script, arguments, true).output().unwrap())
    }

    /// The explanations of connections that were moved, or not.
    fn explained(&self, moved: bool) -> Vec<String> {
        let lines = fs::read_to_string(self.at("explained")).unwrap_or_default();
        let is_moved = |line: &&str| line.contains("a UNIX stream pair") == moved;
        let connections = lines.lines().filter(|line| !line.contains(ENDS));
        connections.filter(is_moved).map(str::to_owned).collect()
    }

    /// How many waits ended before the program slept, over all programs, as they say at their end.
    fn spared(&self) -> u64 {
        let lines = fs::read_to_string(self.at("explained")).unwrap_or_default();
        let ends = lines.lines().filter_map(|line| line.split_once(ENDS));
        ends.map(|(_, said)| said.split(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }
}

fn text(output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{}: {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

fn is_root(what: &str) -> bool {
    let root = crossway_sys::proc::is_root();
    if !root {
        eprintln!(
            "SKIP {what}: only root can start programs of another user; run the test as root"
        );
    }
    root
}

#[test]
fn programs_observe_the_same_with_and_without_the_library() {
    let Some(site) = Site::new() else { return };
    let plain = text(site.python("scenarios.py", &[], false).output().unwrap());
    let moved = site.prints("scenarios.py", &[]);
    let different: Vec<_> =
        plain.lines().zip(moved.lines()).filter(|(one, other)| one != other).collect();
    assert!(different.is_empty(), "without and with: {different:#?}");
    assert_eq!(plain.lines().count(), moved.lines().count());
    assert!(plain.lines().count() > 150, "{plain}");
    // Each scenario moves two connections, which both ends report.
    assert_eq!(site.explained(false), Vec::<String>::new());
    assert_eq!(site.explained(true).len(), 180);
}

#[test]
fn signals_that_come_while_programs_connect_do_the_same() {
    let Some(site) = Site::new() else { return };
    let name = ["signals_during_a_connect"];
    let plain = text(site.python("scenarios.py", &name, false).output().unwrap());
    let mut command = site.python("scenarios.py", &name, true);
    // The listener is slow on purpose.
    command.env("CROSSWAY_RUN_PATIENCE_MS", "100");
    assert_eq!(text(command.output().unwrap()), plain);
    assert_eq!(plain.lines().count(), 18, "{plain}");
    assert!(!site.explained(true).is_empty(), "{:?}", site.explained(false));
}

#[test]
fn messages_do_not_cost_a_check_of_their_memory() {
    let Some(site) = Site::new() else { return };
    let checks = ["-e", "trace=process_vm_readv,process_vm_writev"];
    let Some(calls) = strace(&site, &checks) else { return };
    let messages = site.python("reliability.py", &["messages", "1000"], true);
    let said = text(traced(calls, &messages).output().unwrap());
    assert_eq!(said, "1000 messages\n");
    assert_eq!(site.explained(true).len(), 2, "{:?}", site.explained(false));
    let calls = fs::read_to_string(site.at("calls")).unwrap().lines().count();
    assert!(calls < 200, "{calls} checks of 4,000 structures");
}

#[test]
fn every_byte_of_a_killed_sender_arrives() {
    for budget in ["0", "100%"] {
        let Some(site) = Site::new() else { return };
        let mut command = site.python("reliability.py", &["kills", "60"], true);
        // The accepting program waits for one that is killed while it connects.
        command.env("CROSSWAY_RUN_PATIENCE_MS", "200");
        command.env(BUDGET, budget);
        assert_eq!(text(command.output().unwrap()), "60 kills True\n");
        assert!(!site.explained(true).is_empty(), "{:?}", site.explained(false));
    }
}

#[test]
fn waits_within_a_cpu_budget_end_as_they_do_without() {
    for family in ["tcp", "plain tcp", "unix", "socketpair"] {
        let Some(site) = Site::new() else { return };
        let arguments = [family, "300"];
        let plain = text(site.python("waiting.py", &arguments, false).output().unwrap());
        assert_eq!(plain.lines().count(), 14 + 6 + 7 + 3 + 6, "{plain}");
        assert!(plain.lines().take(14).all(|line| line.ends_with("300 answers, 0 wrong")));
        let mut awaited = site.python("waiting.py", &arguments, true);
        awaited.env(BUDGET, "100%");
        assert_eq!(text(awaited.output().unwrap()), plain, "{family}");
        assert_eq!(site.explained(true).is_empty(), family != "tcp", "{:?}", site.explained(false));
        let most = site.spared();
        assert!(most > 0, "{family}: nothing was awaited actively");
        // Without a budget, or for other families, every wait sleeps.
        let mut other = site.python("waiting.py", &arguments, true);
        other
            .env(BUDGET, "100%")
            .env("CROSSWAY_RUN_ONLY", if family.ends_with("tcp") { "unix" } else { "tcp" });
        assert_eq!(text(other.output().unwrap()), plain, "{family}");
        assert_eq!(site.spared(), most, "{family}");
        let mut sleeping = site.python("waiting.py", &arguments, true);
        assert_eq!(text(sleeping.env(BUDGET, "0").output().unwrap()), plain, "{family}");
        assert_eq!(site.spared(), most, "{family}");
    }
}

#[test]
fn programs_that_look_before_they_sleep_observe_the_same() {
    let Some(site) = Site::new() else { return };
    let within = |budget| {
        let mut command = site.python("scenarios.py", &[], true);
        text(command.env(BUDGET, budget).output().unwrap())
    };
    let (plain, awaited) = (within("0"), within("100%"));
    for (one, other) in plain.lines().zip(awaited.lines()) {
        assert_eq!(one, other);
    }
    assert_eq!(plain.lines().count(), awaited.lines().count());
}

#[test]
fn many_connections_have_names_of_their_own() {
    let Some(site) = Site::new() else { return };
    let mut command = site.python("reliability.py", &["many", "400"], true);
    crossway_sys::proc::raise_descriptor_limit();
    assert_eq!(text(command.output().unwrap()), "400 of 400 400 0\n");
    if crossway_sys::proc::descriptor_limit() >= 16_384 {
        assert_eq!(site.explained(true).len(), 800, "{:?}", site.explained(false));
    }
}

/// A command that writes the system calls of a program to the site's file `calls`; `None` without strace.
fn strace(site: &Site, options: &[&str]) -> Option<Command> {
    if !Command::new("strace").args(["-f", "true"]).output().is_ok_and(|o| o.status.success()) {
        eprintln!("SKIP system calls: needs strace; sudo apt-get install strace");
        return None;
    }
    let mut command = Command::new("strace");
    command.args(["-f", "-qq"]).args(options).arg("-o").arg(site.at("calls"));
    Some(command)
}

/// Lets strace run a command.
fn traced(mut strace: Command, command: &Command) -> Command {
    strace.arg(command.get_program()).args(command.get_args());
    strace.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    strace
}

#[test]
fn calls_on_a_connection_that_stays_cost_nothing() {
    let Some(site) = Site::new() else { return };
    if strace(&site, &[]).is_none() {
        return;
    }
    // Listens without the library, so the connection cannot be moved.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let calls = |with_library| {
        let changes = site.python("reliability.py", &["changes", &port, "1000"], with_library);
        let mut command = traced(strace(&site, &[]).unwrap(), &changes);
        assert_eq!(text(command.output().unwrap()), "1000 changes\n");
        fs::read_to_string(site.at("calls")).unwrap().lines().count()
    };
    let (without, with) = (calls(false), calls(true));
    assert!(with < without + 900, "{without} calls without the library, {with} with it");
}

#[test]
fn a_program_may_use_all_of_its_few_descriptors() {
    let Some(site) = Site::new() else { return };
    let plain = text(site.python("reliability.py", &["poor"], false).output().unwrap());
    assert_eq!(site.prints("reliability.py", &["poor"]), plain);
    assert!(site.explained(true).is_empty());
}

#[test]
fn nobody_waits_for_a_server_with_few_descriptors() {
    let Some(site) = Site::new() else { return };
    let mut command = site.python("reliability.py", &["poor_server", "5"], true);
    // Else, one connection would take as long as the test may.
    command.env("CROSSWAY_RUN_PATIENCE_MS", "100");
    assert_eq!(text(command.output().unwrap()), "5 of 5\n");
    let said = site.explained(false);
    let at_once = said.iter().filter(|line| line.contains("no program that runs with")).count();
    assert_eq!(at_once, 5, "{said:?}");
}

#[test]
fn a_connection_survives_threads_that_take_every_free_descriptor() {
    let Some(site) = Site::new() else { return };
    assert_eq!(site.prints("reliability.py", &["crowded", "2500"]), "2500 connections, 0 wrong\n");
    assert!(!site.explained(true).is_empty(), "{:?}", site.explained(false));
}

#[test]
fn nothing_remains_of_connections_that_are_closed_past_the_library() {
    let Some(site) = Site::new() else { return };
    let plain = text(site.python("reliability.py", &["unseen", "50"], false).output().unwrap());
    assert_eq!(site.prints("reliability.py", &["unseen", "50"]), plain);
    assert_eq!(site.explained(true).len(), 2 * 50, "{:?}", site.explained(false));
}

#[test]
fn a_program_that_inherits_connections_asks_for_the_names_of_each_once() {
    let Some(site) = Site::new() else { return };
    let number = 100;
    let Some(calls) = strace(&site, &["-e", "trace=getpeername"]) else { return };
    let inherits = site.python("reliability.py", &["inherited", &number.to_string()], true);
    let said = text(traced(calls, &inherits).output().unwrap());
    assert_eq!(said, format!("started\n{number} connections\n"));
    assert_eq!(site.explained(true).len(), 2 * number);
    let calls = fs::read_to_string(site.at("calls")).unwrap().lines().count();
    assert!(calls < 20 * number, "{calls} calls");
}

#[test]
fn forks_at_any_time_disturb_nothing() {
    let Some(site) = Site::new() else { return };
    let zeros = "[0, 0, 0, 0, 0, 0, 0, 0]\n";
    assert_eq!(site.prints("reliability.py", &["storm"]), zeros);
    assert_eq!(site.explained(true).len(), 2 * 8 * 20, "{:?}", site.explained(false));
}

#[test]
fn a_connection_that_is_copied_while_it_is_closed_remains_one_of_tcp() {
    let Some(site) = Site::new() else { return };
    assert_eq!(site.prints("reliability.py", &["rivals", "1400"]), "1400 times, 0 wrong\n");
    assert_eq!(site.explained(true).len(), 2 * 2 * 1400, "{:?}", site.explained(false));
}

#[test]
fn a_program_without_the_library_is_served_by_tcp() {
    let Some(site) = Site::new() else { return };
    for (server, client) in [(true, false), (false, true), (true, true)] {
        let port = site.at(&format!("port-{server}-{client}"));
        let port = port.to_str().unwrap();
        let mut server = site.python("reliability.py", &["serve", port], server).spawn().unwrap();
        let client = site.python("reliability.py", &["ask", port], client).output().unwrap();
        assert_eq!(text(client), "b'HELLO'\n");
        assert!(server.wait().unwrap().success());
    }
    assert_eq!(site.explained(true).len(), 2, "{:?}", site.explained(true));
}

#[test]
fn programs_of_different_users_use_tcp_and_others_cannot_interfere() {
    let _alone = PEACE.write().unwrap_or_else(PoisonError::into_inner);
    let Some(site) = Site::at_war() else { return };
    if !is_root("programs of different users") {
        return;
    }
    assert_eq!(site.prints("reliability.py", &["users"]), "b'from another user'\n");
    assert!(site.explained(true).is_empty(), "{:?}", site.explained(true));
    assert_eq!(site.prints("reliability.py", &["hostile"]), "100 of 100 0\n");
}

/// Ends a server when the test ends.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn redis_and_its_client_are_moved() {
    let Some(site) = Site::new() else { return };
    let missing = |program: &str| {
        Command::new(program).arg("--version").output().is_err().then(|| {
            eprintln!("SKIP Redis: {program} is missing; install redis-server and redis-tools");
        })
    };
    if missing("redis-server").or_else(|| missing("redis-benchmark")).is_some() {
        return;
    }
    // A port that is free now.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let port = port.to_string();
    let mut server = site.command("redis-server", true);
    server.args(["--port", &port, "--save", "", "--dir"]).arg(site.dir.path());
    let _server = Server(server.stdout(Stdio::null()).spawn().unwrap());
    let cli = |words: &[&str]| {
        let mut command = site.command("redis-cli", true);
        command.args(["-p", &port]).args(words).output().unwrap()
    };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !cli(&["ping"]).stdout.starts_with(b"PONG") {
        assert!(std::time::Instant::now() < until, "redis-server does not answer");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let before = site.explained(true).len();
    let list = text(cli(&["client", "list"]));
    // Redis names its client by the TCP connection's addresses.
    assert!(list.contains("addr=127.0.0.1:") && list.contains(&format!("laddr=127.0.0.1:{port}")));
    assert_eq!(site.explained(true).len(), before + 2);
    let mut load = site.command("redis-benchmark", true);
    load.args(["-p", &port, "-n", "2000", "-c", "20", "-P", "4", "-t", "set,get,lrange_100", "-q"]);
    let said = load.output().unwrap();
    assert!(said.status.success());
    assert_eq!(String::from_utf8_lossy(&said.stderr), "");
    assert!(site.explained(true).len() >= before + 2 + 4 * 20, "{:?}", site.explained(false));
}
