//! Creates sockets whose messages pass through lanes for tests, and reads the statistics that their `tipcd` reports.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crossway_sys::Errno;
use crossway_sys::poll::{Interest, wait_ready};
use crossway_tipc_client::admin::{Administration, LaneView, Order, Outcome};
use crossway_tipc_client::{Address, NodeSocket, Patience, Scope, ServiceRange, SocketKind};

use crate::site::{Site, WATCHDOG, soon, until};

/// Starts a tipcd through which all messages pass, and whose sockets get lanes with their first message.
pub(crate) fn site() -> Site {
    Site::with(&["--lane-after", "1", "--no-direct-lanes"])
}

pub(crate) fn node_socket(site: &Site, kind: SocketKind) -> NodeSocket {
    NodeSocket::open(site.path(), kind).unwrap()
}

/// Returns a bound socket and its name, which is unique: a closed socket stays bound while a process that another test
/// has just forked holds it.
pub(crate) fn bound(site: &Site, kind: SocketKind) -> (NodeSocket, Address) {
    static INSTANCE: AtomicU32 = AtomicU32::new(0);
    let instance = INSTANCE.fetch_add(1, Ordering::Relaxed);
    let server = node_socket(site, kind);
    if kind.is_connected_kind() {
        server.listen().unwrap();
    }
    server.bind(ServiceRange::single(5000, instance), Scope::Cluster).unwrap();
    (server, Address::service(5000, instance))
}

/// Returns a client that sends through its lane, and its server.
pub(crate) fn pair_with_lane(site: &Site, kind: SocketKind) -> (NodeSocket, NodeSocket) {
    let (bound, name) = bound(site, kind);
    let client = node_socket(site, kind);
    let server = if kind.is_connected_kind() {
        assert_eq!(client.connect(Some(name), Patience::Now), Err(Errno::INPROGRESS));
        let server = bound.accept(soon()).unwrap().0;
        let writable = wait_ready(&client, Interest::Writable, Some(Instant::now() + WATCHDOG));
        assert_eq!(writable, Ok(true));
        server
    } else {
        client.connect(Some(name), soon()).unwrap();
        bound
    };
    // The request for lanes is sent with the first message, and its answer is checked for with each.
    let mut begun = 0;
    until("the lane", || {
        begun += client.send(b"x", None, soon()).unwrap();
        client.lane_sleeps_and_wakes().is_some()
    });
    while begun > 0 {
        begun -= server.recv(&mut [0; 64][..begun.min(64)], soon()).unwrap();
    }
    (client, server)
}

/// Returns the statistics of the lanes of each socket that has any.
pub(crate) fn counts(site: &Site) -> Vec<LaneView> {
    let outcome = Administration::at(site.path()).unwrap().order(&Order::Sockets).unwrap();
    let Outcome::Sockets(sockets) = outcome else { panic!("{outcome:?}") };
    sockets.iter().filter_map(|socket| socket.lanes).collect()
}

pub(crate) fn sent_by_lane(site: &Site) -> u64 {
    counts(site).iter().map(|lanes| lanes.sent).sum()
}

pub(crate) fn signal(site: &Site, name: &str) {
    let pid = site.tipcd().pid();
    let done = Command::new("kill").args([name, &pid.to_string()]).status().unwrap();
    assert!(done.success());
    if name == "-STOP" {
        until("the stop", || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.rsplit(") ").next().unwrap().starts_with('T')
        });
    }
}

/// Returns the resident memory of a process in bytes.
pub(crate) fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}
