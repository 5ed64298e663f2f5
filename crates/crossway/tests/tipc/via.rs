//! `crossway run --via tipc`: TCP connections of unmodified programs between two hosts.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crossway_netlab::{Host, Lab, Link, Topology};

use super::{Site, WATCHDOG, built, program};

const PYTHON: &str = "/usr/bin/python3";
/// What `--explain` says of a connection that travels by TIPC.
const CARRIED: &str = "TIPC in place of TCP";

/// Two hosts with a tipcd each.
struct Pair {
    lab: Lab,
    sites: Vec<Site>,
    library: PathBuf,
    explained: PathBuf,
}

impl Pair {
    fn up() -> Option<Self> {
        if !Path::new(PYTHON).exists() {
            eprintln!("SKIP run --via tipc: {PYTHON} is missing; install python3");
            return None;
        }
        let lab = match Lab::up(&Topology::of(&["a", "b"], Link::default())) {
            Ok(lab) => lab,
            Err(why) => {
                eprintln!("SKIP run --via tipc: {why}");
                return None;
            }
        };
        let site = |host: &Host, id: &str| {
            let bearer = format!("eth:{}", host.interface);
            let crossway = host.command(assert_cmd::cargo::cargo_bin!("crossway"));
            Site::started_by(crossway, &["--id", id, &bearer])
        };
        let hosts = &lab.network().hosts;
        let sites = vec![site(&hosts[0], "alpha"), site(&hosts[1], "beta")];
        sites[0].linked_to(&["beta"]);
        let explained = sites[0].dir.path().join("explained");
        Some(Self { sites, library: built::preload(), explained, lab })
    }

    fn host(&self, n: usize) -> &Host {
        &self.lab.network().hosts[n]
    }

    /// Python on a host, by `crossway run --via tipc` or plainly.
    fn python(&self, n: usize, is_run: bool, arguments: &[&str]) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tipc/programs/via.py");
        let host = self.host(n);
        let mut command = if is_run {
            let mut command = host.command(assert_cmd::cargo::cargo_bin!("crossway"));
            command.env("TIPCD_SOCKET", self.sites[n].path());
            command.args(["run", "--via", "tipc", "--library"]).arg(&self.library);
            command.arg(format!("--explain={}", self.explained.display())).args(["--", PYTHON]);
            command
        } else {
            host.command(PYTHON)
        };
        command.arg(script).args(arguments);
        command.env("XDG_RUNTIME_DIR", self.sites[n].dir.path());
        command
    }

    fn server(&self, is_run: bool, port: &str) -> Server {
        Server::start(self.python(1, is_run, &["server", port]), "ready")
    }

    fn client(&self, is_run: bool, port: &str, what: &str) -> String {
        let address = self.host(1).ipv4.to_string();
        let arguments = ["client", &address, port, what];
        text(&self.python(0, is_run, &arguments).output().unwrap())
    }

    /// How many ends travel by TIPC so far, and everything that was explained.
    fn carried(&self) -> (usize, String) {
        let said = std::fs::read_to_string(&self.explained).unwrap_or_default();
        (said.lines().filter(|line| line.contains(CARRIED)).count(), said)
    }
}

fn text(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A program that is killed on drop.
struct Server(Child, BufReader<std::process::ChildStdout>);

impl Server {
    /// Starts a program, and waits until it has said this.
    fn start(mut command: Command, says: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut server = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        server.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), says);
        Self(child, server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The processes that serve the programs of a site, which end some time after the last program.
fn porters(site: &Site) -> usize {
    let socket = site.path().display().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let is_porter = |process: &std::fs::DirEntry| {
        let read = |name| std::fs::read(process.path().join(name)).unwrap_or_default();
        let has = |bytes: Vec<u8>, what: &str| String::from_utf8_lossy(&bytes).contains(what);
        has(read("cmdline"), "--porter\0stay") && has(read("environ"), &socket)
    };
    processes.filter(is_porter).count()
}

#[test]
fn programs_on_two_hosts_observe_the_same_by_tipc() {
    let Some(pair) = Pair::up() else { return };
    let server = pair.server(true, "7000");
    let mut ends = 0;
    for what in ["echo", "nonblocking", "fork", "echo"] {
        assert_eq!(pair.client(true, "7000", what), "right\n", "{what}");
        ends += 2;
        let (carried, said) = pair.carried();
        assert_eq!(carried, ends, "{what}: {said}");
    }
    // While connections come and go, none of them is taken for one that has ended.
    assert_eq!(pair.client(true, "7000", "many"), "right\n");
    ends += 400;
    let (carried, said) = pair.carried();
    assert_eq!(carried, ends, "{said}");
    // Whoever does not run so, at either end, is served by TCP.
    assert_eq!(pair.client(false, "7000", "echo"), "right\n");
    let plain = pair.server(false, "7001");
    assert_eq!(pair.client(true, "7001", "echo"), "right\n");
    assert_eq!(pair.client(true, "7002", "nobody"), "refused\n");
    let (carried, said) = pair.carried();
    assert_eq!(carried, ends, "{said}");
    assert!(said.contains("TCP: no program that runs with crossway run --via tipc"), "{said}");
    // A server that is killed has sent what its calls have accepted.
    assert_eq!(pair.client(true, "7000", "kill"), "right\n");
    assert_eq!(pair.carried().0, ends + 2);
    drop((server, plain));
    let begin = Instant::now();
    while pair.sites.iter().any(|site| porters(site) > 0) {
        assert!(begin.elapsed() < WATCHDOG, "a porter does not end");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_lost_tipcd_is_a_reset_and_not_an_end() {
    let Some(mut pair) = Pair::up() else { return };
    let _server = pair.server(true, "7000");
    let address = pair.host(1).ipv4.to_string();
    let client = pair.python(0, true, &["client", &address, "7000", "lose"]);
    let mut client = Server::start(client, "waiting");
    assert_eq!(pair.carried().0, 2);
    drop(pair.sites.pop());
    let mut line = String::new();
    client.1.read_line(&mut line).unwrap();
    assert_eq!(line, "reset\n");
}

#[test]
fn what_cannot_travel_by_tipc_is_said() {
    let run = |arguments: &[&str]| {
        let mut command = program();
        command.args(["run", "--via", "tipc"]).args(arguments);
        let output = command.env("TIPCD_SOCKET", "/nowhere/tipcd.sock").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let library = format!("--library={}", built::preload().display());
    let said = run(&[&library, "--", "true"]);
    assert!(said.contains("--via tipc needs a tipcd") && said.contains("/nowhere"), "{said}");
    assert!(run(&["--shell"]).contains("--shell"));
    let (dir, cc) = (tempfile::tempdir().unwrap(), "cc");
    let (source, fixed) = (dir.path().join("x.c"), dir.path().join("fixed"));
    std::fs::write(&source, "int main(void) { return 0; }").unwrap();
    let built = Command::new(cc).args(["-static", "-o"]).args([&fixed, &source]).output();
    if built.is_ok_and(|output| output.status.success()) {
        let said = run(&["--", fixed.to_str().unwrap()]);
        assert!(said.contains("linked statically") && said.contains("--via"), "{said}");
    } else {
        eprintln!("SKIP a static program: cc -static does not work; install gcc and libc6-dev");
    }
}
