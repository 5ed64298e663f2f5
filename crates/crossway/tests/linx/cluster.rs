//! `crossway linx node --cluster`: nodes that find each other through TIPC's topology service.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crossway_linx::signal::ATTACH;
use crossway_linx::{Endpoint, EndpointKind, Filter, Signal};
use crossway_tipc_client::{LoneTipcd, SOCKET_VARIABLE};

use super::{Node, linx, output};

const WATCHDOG: Duration = Duration::from_secs(120);
const SERVICE: &str = "4711";

/// A loopback address that only this process uses.
fn address(n: u32) -> String {
    let pid = std::process::id();
    format!("127.{}.{}.{n}", 128 + pid / 250 % 64, 1 + pid % 250)
}

fn tipcd(dir: &Path, own: u32, other: u32, id: &str) -> LoneTipcd {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("crossway"));
    let bearer = format!("udp:{},{}", address(own), address(other));
    command.args(["tipcd", &bearer, "--id", id]);
    LoneTipcd::start(command, &dir.join(format!("{id}.sock"))).unwrap()
}

/// Starts a node of the cluster on a host with this tipcd.
fn node(dir: &Path, name: &str, host: &LoneTipcd) -> Node {
    let words = ["node", "--name", name, "--cluster", SERVICE];
    let mut command = linx(&dir.join(name));
    command.args(words).env(SOCKET_VARIABLE, host.path());
    // Where it serves, and the address under which it is published.
    Node::start(command, 2)
}

fn any(endpoint: &mut Endpoint) -> Signal {
    let until = Some(Instant::now() + WATCHDOG);
    endpoint.receive(&Filter::ANY, until).unwrap().expect("a signal comes")
}

/// Waits until a node has links with exactly these names.
fn linked(dir: &Path, name: &str, names: &[&str]) {
    let begin = Instant::now();
    loop {
        let all = crossway_linx::list(&dir.join(name)).unwrap();
        let links = all.iter().filter(|row| row.kind == EndpointKind::Link);
        let mut found: Vec<&str> = links.map(|row| &row.name[..]).collect();
        found.sort_unstable();
        if found == names {
            return;
        }
        assert!(begin.elapsed() < WATCHDOG, "{name} has the links {found:?}, not {names:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nodes_of_a_cluster_find_each_other_without_addresses() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let (alpha, beta) = (tipcd(dir, 1, 2, "alpha"), tipcd(dir, 2, 1, "beta"));
    let _one = node(dir, "one", &alpha);
    let mut client = Endpoint::open(&dir.join("one"), "client").unwrap();
    // The hunt is older than the nodes of which the path consists.
    client.hunt("two/server", None).unwrap();
    let mut two = node(dir, "two", &beta);
    let mut server = Endpoint::open(&dir.join("two"), "server").unwrap();
    let there = any(&mut client).sender().unwrap();
    client.attach(there, None).unwrap();
    client.send(Signal::with_payload(7, b"hello").unwrap(), there).unwrap();
    assert_eq!(any(&mut server).payload(), b"hello");

    let _three = node(dir, "three", &beta);
    for (name, others) in
        [("one", ["three", "two"]), ("two", ["one", "three"]), ("three", ["one", "two"])]
    {
        linked(dir, name, &others);
    }
    // A node that is killed is missed, and its successor found.
    two.child.kill().unwrap();
    two.child.wait().unwrap();
    let gone = any(&mut client);
    assert_eq!((gone.number(), gone.sender()), (ATTACH, Some(there)));
    linked(dir, "one", &["three"]);
    client.hunt("two/server", None).unwrap();
    let _successor = node(dir, "two", &alpha);
    let _server = Endpoint::open(&dir.join("two"), "server").unwrap();
    assert_ne!(any(&mut client).sender(), Some(there));
}

#[test]
fn a_cluster_survives_the_restart_of_a_tipcd() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let host = tipcd(dir, 3, 4, "gamma");
    let nodes = [node(dir, "one", &host), node(dir, "two", &host)];
    linked(dir, "one", &["two"]);
    linked(dir, "two", &["one"]);
    drop(host);
    linked(dir, "one", &[]);
    linked(dir, "two", &[]);
    let host = tipcd(dir, 3, 4, "gamma");
    linked(dir, "one", &["two"]);
    linked(dir, "two", &["one"]);
    let _third = node(dir, "three", &host);
    linked(dir, "two", &["one", "three"]);
    drop(nodes);
}

#[test]
fn a_cluster_needs_a_name_and_tipc() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("n");
    let (ok, _, err) = output(linx(&at).args(["node", "--cluster", SERVICE]));
    assert!(!ok && err.contains("--name"), "{err}");
    let words = ["node", "--cluster", SERVICE, "--name", "a"];
    let none = dir.path().join("none.sock");
    let (ok, _, err) = output(linx(&at).args(words).env(SOCKET_VARIABLE, none));
    assert!(!ok && err.contains("tipcd"), "{err}");
    assert!(!at.exists(), "nothing is left behind");
}
