//! Sets up two hosts with two media between them and a `tipcd` on each host, and cuts a medium in several ways.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use crossway_netlab::{Lab, Link, NetError, Topology};
use crossway_tipc_client::admin::{Administration, Order, Outcome, Settings};

/// Time limit for a single step. It is only reached if something hangs.
const WATCHDOG: Duration = Duration::from_secs(240);

/// How a medium is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    /// The first host's device goes down.
    Device,
    /// The first host's device loses its carrier and stays up.
    Carrier,
    /// Frames are lost in both directions without any notification.
    Silence,
}

/// The two hosts. Each device of the first host is connected to one of the second host through a bridge. A bridge can
/// be taken apart without the devices being notified.
pub(crate) struct Planes {
    pub(crate) nodes: [Tipcd; 2],
    pub(crate) lab: Lab,
    _dir: tempfile::TempDir,
}

/// One of the daemons, with its log lines and their times. It ends when this value is dropped.
pub(crate) struct Tipcd {
    pub(crate) path: PathBuf,
    pub(crate) said: Receiver<(Instant, String)>,
    _lifeline: Option<ChildStdin>,
    child: Child,
}

impl Drop for Tipcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Planes {
    /// Sets up the network, with both links up and this tolerance.
    pub(crate) fn up(tolerance: Duration) -> Result<Self, NetError> {
        let mut lab = Lab::up(&Topology::of(&["a", "b"], Link::default()))?;
        let dir = tempfile::tempdir().expect("a directory");
        let second = lab.host("b")?.namespace.clone();
        for n in 0..2 {
            for line in [
                format!("link add br{n} type bridge"),
                format!("link add p{n} type veth peer name q{n}"),
                format!("link add r{n} type veth peer name p{n} netns {second}"),
                format!("link set q{n} master br{n}"),
                format!("link set r{n} master br{n}"),
                format!("link set br{n} up"),
                format!("link set q{n} up"),
                format!("link set r{n} up"),
                format!("link set p{n} up"),
            ] {
                ip(&mut lab, "a", &line);
            }
            ip(&mut lab, "b", &format!("link set p{n} up"));
        }
        let nodes = [("a", "1001"), ("b", "1002")].map(|(host, address)| {
            let path = dir.path().join(host);
            let mut command =
                lab.host(host).expect("the host").command(env!("CARGO_BIN_EXE_tipcd"));
            command.args(["--until-stdin-ends", "--id", host, "--address", address, "--socket"]);
            Tipcd::start(command.arg(&path), path)
        });
        let settings = Settings {
            tolerance_ms: Some(u32::try_from(tolerance.as_millis()).expect("short")),
            ..Settings::default()
        };
        let planes = Self { nodes, lab, _dir: dir };
        for node in &planes.nodes {
            let path = node.path.clone();
            until("the tipcd", || Administration::at(&path).is_ok());
            for n in 0..2 {
                let bearer = format!("eth:p{n}");
                let settings = Settings::default();
                node.order(&Order::EnableBearer { bearer, name: None, settings });
            }
        }
        planes.await_links(2);
        // Only now: until both ends have the other link, a failure of the first would be a loss of contact.
        let Outcome::Links(links) = planes.nodes[0].order(&Order::Links) else { panic!("links") };
        for link in links {
            planes.nodes[0].order(&Order::SetLink { name: link.name, settings });
        }
        let tolerance_ms = tolerance.as_millis() as u64;
        until("the tolerance at the other end", || {
            let Outcome::Links(links) = planes.nodes[1].order(&Order::Links) else { return false };
            links.iter().all(|link| link.tolerance_ms == tolerance_ms)
        });
        Ok(planes)
    }

    /// Cuts a medium at the first host and returns the time at which that began.
    pub(crate) fn cut(&mut self, n: usize, how: Cut) -> Instant {
        cut_of_first(&mut self.lab, n, how)
    }

    pub(crate) fn restore(&mut self, n: usize, how: Cut) {
        mend_of_first(&mut self.lab, n, how);
        self.await_links(2);
    }

    /// Waits until both nodes have this many links up.
    pub(crate) fn await_links(&self, wanted: usize) {
        self.nodes.iter().for_each(|node| node.await_links(wanted));
    }

    /// Returns the times at which the two nodes logged that their link on a bearer was down. Panics if the nodes have
    /// lost each other by then.
    pub(crate) fn noticed(&self, n: usize) -> [Instant; 2] {
        [&self.nodes[0], &self.nodes[1]].map(|node| node.said_down(&format!(":p{n}-")))
    }
}

/// Cuts a medium at the first host and returns the time at which that began.
pub(crate) fn cut_of_first(lab: &mut Lab, n: usize, how: Cut) -> Instant {
    match how {
        Cut::Device => ip(lab, "a", &format!("link set p{n} down")),
        Cut::Carrier => ip(lab, "a", &format!("link set q{n} down")),
        Cut::Silence => ip(lab, "a", &format!("link set q{n} nomaster")),
    }
}

pub(crate) fn mend_of_first(lab: &mut Lab, n: usize, how: Cut) {
    match how {
        Cut::Device => ip(lab, "a", &format!("link set p{n} up")),
        Cut::Carrier => ip(lab, "a", &format!("link set q{n} up")),
        Cut::Silence => ip(lab, "a", &format!("link set q{n} master br{n}")),
    };
}

impl Tipcd {
    pub(crate) fn start(command: &mut std::process::Command, path: PathBuf) -> Self {
        crossway_sys::proc::die_with_parent(command);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("tipcd starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let (tell, said) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                eprintln!(
                    "{:?} {line}",
                    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap()
                );
                if tell.send((Instant::now(), line)).is_err() {
                    break;
                }
            }
        });
        let _lifeline = child.stdin.take();
        Self { path, said, _lifeline, child }
    }

    pub(crate) fn order(&self, order: &Order) -> Outcome {
        let outcome = Administration::at(&self.path).and_then(|a| a.order(order));
        let outcome = outcome.unwrap_or_else(|error| panic!("{order:?}: {error}"));
        assert!(!matches!(outcome, Outcome::Refused(_)), "{order:?}: {outcome:?}");
        outcome
    }

    /// Waits until the node has this many links up.
    pub(crate) fn await_links(&self, wanted: usize) {
        until("the links", || match self.order(&Order::Links) {
            Outcome::Links(links) => links.iter().filter(|l| l.up).count() == wanted,
            other => panic!("{other:?}"),
        });
    }

    /// Returns the time at which the node logged that the link over this interface was down.
    pub(crate) fn said_down(&self, interface: &str) -> Instant {
        let mut before = Vec::new();
        loop {
            let (at, line) = self
                .said
                .recv_timeout(WATCHDOG)
                .unwrap_or_else(|_| panic!("no link over {interface} goes down: {before:#?}"));
            let lost = line.starts_with("node ") && line.ends_with(" down");
            before.push((at, line));
            assert!(!lost, "contact lost: {before:#?}");
            let down = |line: &str| {
                line.starts_with("link ") && line.contains(interface) && line.contains(" down")
            };
            if before.last().is_some_and(|(_, line)| down(line)) {
                return at;
            }
        }
    }
}

/// Runs `ip` on a host and returns the time at which that began.
pub(crate) fn ip(lab: &mut Lab, host: &str, line: &str) -> Instant {
    let begin = Instant::now();
    let mut command = lab.host(host).expect("the host").command("ip");
    let out = command.args(line.split(' ')).output().expect("ip runs");
    assert!(out.status.success(), "ip {line}: {}", String::from_utf8_lossy(&out.stderr));
    begin
}

pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < WATCHDOG, "{what}: not after {WATCHDOG:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
