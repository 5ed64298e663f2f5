//! `tipcd` as its user sees it: errors, signals, output and readiness.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const WATCHDOG: Duration = Duration::from_secs(240);

fn program() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("crossway"))
}

/// Returns a loopback address that only this process uses.
fn host(n: u32) -> String {
    let pid = std::process::id();
    format!("127.{}.{}.{n}", 128 + pid / 250 % 64, 1 + pid % 250)
}

/// A tipcd that is killed on drop.
struct Tipcd(Child);

impl Tipcd {
    fn start(socket: &Path, args: &[&str], stdout: Stdio) -> Self {
        // Under nohup, these tests, and with them a tipcd, would ignore SIGHUP.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP").arg(program().get_program());
        command.arg("tipcd").arg("--socket").arg(socket).args(args);
        Self(command.stdin(Stdio::null()).stdout(stdout).spawn().unwrap())
    }

    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Tipcd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn tipc(socket: &Path, args: &[&str]) -> Output {
    program().arg("tipc").arg("--socket").arg(socket).args(args).output().unwrap()
}

fn wait(socket: &Path, args: &[&str]) {
    let output = tipc(socket, &[&["wait", "--timeout", "240"], args].concat());
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn an_error_names_its_object_once_its_cause_and_the_next_step() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (long, plain, none) = (at(&"x".repeat(120)), at("plain"), at("none/tipcd.sock"));
    std::fs::write(&plain, "").unwrap();
    let here = at("tipcd.sock");
    for (args, object, next) in [
        (&["--socket", &long][..], long.as_str(), "at most 107 bytes"),
        (&["--socket", &plain], &plain, "use another path"),
        (&["--socket", &none], &none, "create the directory"),
        (&["--socket", &here, "udp:192.0.2.77"], "udp:192.0.2.77", "an address of this host"),
        (&["--socket", &here, "udp:127.0.0.1%none0"], "none0", "a network device of this host"),
        (&["--socket", &here, "udp:127.0.0.1:0"], "127.0.0.1:0", "a port from 1"),
        (&["--socket", &here, "--id", "ä"], "\"ä\"", "use 1 to 16 of the characters"),
        (&["--socket", &here, "--clients", "0"], "--clients", "0 is not in 1.."),
        (&["--socket", &here, "--until-stdin-ends"], "standard input", "connect it to a pipe"),
    ] {
        let mut command = program();
        command.arg("tipcd").args(args).stdin(Stdio::null());
        let output = command.output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(object) && error.contains(next), "{args:?}: {error}");
        assert!(error.matches("os error").count() <= 1, "{error}");
        assert!(!Path::new(&here).exists(), "{args:?}");
    }
}

#[test]
fn signals_end_it_in_good_order_and_a_killed_one_is_succeeded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tipcd.sock");
    for name in ["TERM", "INT", "HUP"] {
        let mut tipcd = Tipcd::start(&path, &[], Stdio::null());
        wait(&path, &[]);
        tipcd.signal(name);
        assert!(tipcd.0.wait().unwrap().success(), "{name}");
        assert!(!path.exists(), "{name}");
    }
    let mut killed = Tipcd::start(&path, &[], Stdio::null());
    wait(&path, &[]);
    killed.signal("KILL");
    killed.0.wait().unwrap();
    assert!(path.exists());
    let _successor = Tipcd::start(&path, &[], Stdio::null());
    wait(&path, &[]);
    let second = program().arg("tipcd").arg("--socket").arg(&path).output().unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&second.stderr).contains("another tipcd serves at"));
}

#[test]
fn whoever_reads_its_output_may_go_or_sleep_and_the_node_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tipcd.sock");
    let mut tipcd = Tipcd::start(&path, &["--log-rate", "1000", "--names"], Stdio::piped());
    let mut lines = BufReader::new(tipcd.0.stdout.take().unwrap()).lines();
    assert!(
        lines.next().unwrap().unwrap().starts_with("no bearer: this node serves only this host")
    );
    assert!(lines.next().unwrap().unwrap().starts_with("serving programs at"));
    drop(lines);
    // Its next output meets a closed pipe.
    let bearer = format!("udp:{},{}", host(1), host(2));
    assert!(tipc(&path, &["bearer", "enable", &bearer]).status.success());
    wait(&path, &["--address"]);
    assert!(tipcd.is_running());
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let other = dir.path().join("other.sock");
    let mut tipcd = Tipcd::start(&other, &[], full.into());
    wait(&other, &[]);
    assert!(tipcd.is_running());
}

#[test]
fn its_starter_is_notified_when_it_serves_and_when_it_stops() {
    let dir = tempfile::tempdir().unwrap();
    let (path, notify) = (dir.path().join("tipcd.sock"), dir.path().join("notify"));
    let listener = UnixDatagram::bind(&notify).unwrap();
    listener.set_read_timeout(Some(WATCHDOG)).unwrap();
    let mut command = program();
    command.arg("tipcd").arg("--socket").arg(&path).env("NOTIFY_SOCKET", &notify);
    let tipcd = Tipcd(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    let told = || {
        let mut bytes = [0; 64];
        let len = listener.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    assert_eq!(told(), "READY=1");
    assert!(tipc(&path, &["node"]).status.success(), "it serves by then");
    tipcd.signal("TERM");
    assert_eq!(told(), "STOPPING=1");
}

#[test]
fn links_and_nodes_are_reported_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one.sock"), dir.path().join("two.sock"));
    let (a, b) = (host(11), host(12));
    let (to_b, to_a) = (format!("udp:{a},{b}"), format!("udp:{b},{a}"));
    let mut first = Tipcd::start(&one, &[&to_b, "--id", "alpha"], Stdio::piped());
    let second = Tipcd::start(&two, &[&to_a, "--id", "beta"], Stdio::null());
    wait(&one, &["--address", "--peers", "1"]);
    wait(&two, &["--peers", "1"]);
    second.signal("TERM");
    let begin = Instant::now();
    while !String::from_utf8_lossy(&tipc(&one, &["node", "list"]).stdout).contains(" down") {
        assert!(begin.elapsed() < WATCHDOG);
        std::thread::sleep(Duration::from_millis(20));
    }
    first.signal("TERM");
    let mut said = String::new();
    first.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    for line in [
        &format!("bearer udp:udp0: {a}:6118, looks for nodes at {b}:6118"),
        "this is node alpha, address ",
        "link alpha:udp0-beta:udp0 up\n",
        "node beta (",
        "link alpha:udp0-beta:udp0 down: the peer is stopping\n",
        ") down\n",
    ] {
        assert!(said.contains(line), "{line:?} is missing in:\n{said}");
    }
    assert!(!said.contains("published"), "{said}");
}

#[test]
fn waiting_has_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tipcd.sock");
    let why = |args: &[&str]| {
        let output = tipc(&path, &[&["wait", "--timeout", "0"], args].concat());
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(why(&[]).contains("no tipcd accepts this program at"));
    let _tipcd = Tipcd::start(&path, &[], Stdio::null());
    wait(&path, &[]);
    assert!(why(&["--peers", "1"]).contains("links to 0 of 1 required peers"));
    assert!(why(&["--address"]).contains("the node has no address yet"));
    assert!(why(&["--service", "4711:3"]).contains("nothing is bound to service 4711:3"));
}

#[test]
fn limits_of_the_command_line_hold() {
    use crossway_tipc_client::{NodeSocket, SocketKind};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tipcd.sock");
    let args = ["--sockets", "3", "--clients", "1", "--bearer-buffer", "65536"];
    let _tipcd = Tipcd::start(&path, &args, Stdio::null());
    let begin = Instant::now();
    let first = loop {
        match NodeSocket::open(&path, SocketKind::Rdm) {
            Ok(socket) => break socket,
            Err(error) => assert!(begin.elapsed() < WATCHDOG, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let _second = NodeSocket::open(&path, SocketKind::Rdm).unwrap();
    let error = NodeSocket::open(&path, SocketKind::Rdm).unwrap_err().to_string();
    assert!(error.contains("Cannot allocate memory") || error.contains("ENOMEM"), "{error}");
    drop(first);
    // No further program is admitted, but an operator is.
    let output = tipc(&path, &["node"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("Programs:2  turned away:0"), "{text}");
}

#[test]
fn without_places_for_operators_they_are_turned_away_with_the_rest() {
    use crossway_tipc_client::{NodeSocket, SocketKind};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tipcd.sock");
    let _tipcd = Tipcd::start(&path, &["--clients", "1", "--operators", "0"], Stdio::null());
    wait(&path, &[]);
    // The slot of a waiting program may become free a moment later.
    let begin = Instant::now();
    let _only = loop {
        match NodeSocket::open(&path, SocketKind::Rdm) {
            Ok(socket) => break socket,
            Err(error) => assert!(begin.elapsed() < WATCHDOG, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let output = tipc(&path, &["node"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("--clients"), "{error}");
    assert!(error.contains(&path.display().to_string()), "{error}");
}

#[test]
fn a_group_goes_on_without_a_member_that_does_not_read() {
    use crossway_tipc_client::{Group, NodeSocket, Patience, SocketKind};
    const MESSAGES: usize = 300;
    const GROUP: u32 = 4_711;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tipcd.sock");
    // A limit that only a program that does not read at all exceeds.
    let _tipcd = Tipcd::start(&path, &["--group-patience", "3000"], Stdio::null());
    wait(&path, &[]);
    let member = |instance: u32| {
        let socket = NodeSocket::open(&path, SocketKind::Rdm).unwrap();
        socket.join(Group::new(GROUP, instance)).unwrap();
        socket
    };
    let (reader, slow, sender) = (member(1), member(2), member(3));
    let end = Instant::now() + WATCHDOG;
    let read = std::thread::spawn(move || {
        let mut buffer = vec![0; 66_000];
        let all = (0..MESSAGES).map(|_| reader.recv(&mut buffer, Patience::Until(end)));
        all.filter(|len| *len == Ok(20_000)).count()
    });
    for n in 0..MESSAGES {
        assert_eq!(sender.send(&[7; 20_000], None, Patience::Until(end)), Ok(20_000), "{n}");
    }
    assert_eq!(read.join().unwrap(), MESSAGES);
    drop(slow);
}
