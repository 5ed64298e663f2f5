//! Tests connections on which a program sends more data than fits into a window, and then immediately shuts the
//! connection down and closes the socket, with and without lanes. The other end reads all data, and then the end.
//! `CROSSWAY_ORDERLY_ENDS=10000` makes this number of connections of each kind in each configuration; by default, there
//! are only a few.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crossway_netlab::{Impairment, Lab, Link, NetError, Topology};
use crossway_tipc_client::{
    Address, Backend, Errno, ErrorCode, Event, Patience, Scope, ServiceRange, Socket, SocketKind,
};

use crate::on_lanes;
use crate::site::{Site, soon};
use crate::two_nodes::sites_with;

/// Number of connections of each kind.
const ENDS: u32 = 20;
/// Number of connections that exist at the same time.
const AT_ONCE: u32 = 4;
/// Number of messages sent on each connection: more than a connection's window, in which each of them counts twice.
const MESSAGES: usize = 400;
const MESSAGE: usize = 1_000;

/// Counts a connection. Returns whether the connection is one of the first `ends`, and so must still be tested.
fn one_more(count: &AtomicU32, ends: u32) -> bool {
    count.fetch_add(1, Ordering::Relaxed) < ends
}

fn connected(backend: &Backend, kind: SocketKind, name: Address) -> Socket {
    loop {
        let socket = Socket::open_on(backend, kind).unwrap();
        match socket.connect(Some(name), soon()) {
            Ok(()) => return socket,
            // The name may not have reached this node yet.
            Err(Errno::HOSTUNREACH) => std::thread::sleep(Duration::from_millis(1)),
            Err(errno) => panic!("connect: {errno}"),
        }
    }
}

fn send_and_end(socket: &Socket) {
    for _ in 0..MESSAGES {
        assert_eq!(socket.send(&[5; MESSAGE], None, soon()), Ok(MESSAGE));
    }
    socket.shutdown().unwrap();
}

/// Reads to the end. Returns the number of bytes, and how the connection ended.
fn read_all(socket: &Socket) -> (usize, ErrorCode) {
    // Time for an end to come too early.
    std::thread::sleep(Duration::from_millis(5));
    let (mut buf, mut got) = (vec![0; 66_000], 0);
    loop {
        let message = socket.recv_message(&mut buf, soon()).unwrap();
        match message.event {
            Event::Data => got += message.len,
            Event::End(code) => return (got, code),
            other => panic!("{other:?}"),
        }
    }
}

fn end_in_good_order(from: &Site, to: &Site, with_lanes: bool, place: &str) {
    let ends = std::env::var("CROSSWAY_ORDERLY_ENDS").map_or(ENDS, |n| n.parse().unwrap());
    for kind in [SocketKind::Seqpacket, SocketKind::Stream] {
        let listener = to.socket(kind);
        listener.listen().unwrap();
        let service = 1002 + kind as u32;
        listener.bind(ServiceRange::single(service, 1), Scope::Cluster).unwrap();
        let backend = Backend::Node(from.path().to_owned());
        let (made, accepted, begin) = (AtomicU32::new(0), AtomicU32::new(0), Instant::now());
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while one_more(&made, ends) {
                        let socket = connected(&backend, kind, Address::service(service, 1));
                        if with_lanes {
                            on_lanes::begin(&socket, true);
                        }
                        send_and_end(&socket);
                    }
                });
                scope.spawn(|| {
                    while one_more(&accepted, ends) {
                        let (socket, _) = listener.accept(soon()).unwrap();
                        if with_lanes {
                            on_lanes::begin(&socket, false);
                        }
                        let whole = (MESSAGES * MESSAGE, ErrorCode::Shutdown);
                        assert_eq!(read_all(&socket), whole, "{place}, {kind:?}");
                        assert_eq!(socket.send(b"x", None, Patience::Now), Err(Errno::PIPE));
                    }
                });
            }
        });
        let lanes = if with_lanes { "with" } else { "without" };
        let took = begin.elapsed();
        eprintln!("{place}, {lanes} lanes, {kind:?}: {ends} orderly ends, no reset, in {took:?}");
    }
}

/// Returns the options of a `tipcd` whose sockets have lanes from their first message on, or never.
fn options(with_lanes: bool) -> [&'static str; 2] {
    ["--lane-after", if with_lanes { "1" } else { "0" }]
}

fn between_two_nodes(with_lanes: bool, netid: &str) {
    let (here, there) = sites_with(netid, &options(with_lanes));
    end_in_good_order(&here, &there, with_lanes, "two nodes");
}

/// Tests two nodes linked by a network that loses 2 % of all frames. IP sends a packet as ten fragments, so a sixth of
/// the packets are lost.
fn over_a_lossy_link(with_lanes: bool, name: &str) {
    let impairment = Impairment { loss: 0.02, duplicate: 0.01, ..Impairment::default() };
    let mut topology = Topology::of(&["one", "two"], Link { impairment, ..Link::default() });
    // Two runs of this test on one machine must not collide.
    topology.name = Some(format!("{name}{:x}", std::process::id() % 0x1_0000));
    let lab = match Lab::up(&topology) {
        Ok(lab) => lab,
        Err(why @ (NetError::NoPrivilege | NetError::MissingTool { .. })) => {
            eprintln!("SKIP ends over a lossy link: {why}");
            return;
        }
        Err(why) => panic!("{why}"),
    };
    let [here, there] = ["one", "two"].map(|host| {
        let host = lab.host(host).unwrap();
        let mut command = host.command(env!("CARGO_BIN_EXE_tipcd"));
        command.args(options(with_lanes)).arg(format!("udp:{}", host.ipv4));
        Site::start(command)
    });
    end_in_good_order(&here, &there, with_lanes, "over a lossy link");
}

fn within_a_node(with_lanes: bool) {
    let site = Site::with(&options(with_lanes));
    end_in_good_order(&site, &site, with_lanes, "one node");
}

#[test]
fn connections_end_in_good_order_between_two_nodes() {
    between_two_nodes(false, "94");
}

#[test]
fn connections_with_lanes_end_in_good_order_between_two_nodes() {
    between_two_nodes(true, "95");
}

#[test]
fn connections_end_in_good_order_over_a_lossy_link() {
    over_a_lossy_link(false, "elo");
}

#[test]
fn connections_with_lanes_end_in_good_order_over_a_lossy_link() {
    over_a_lossy_link(true, "ell");
}

#[test]
fn connections_end_in_good_order_within_a_node() {
    within_a_node(false);
}

#[test]
fn connections_with_lanes_end_in_good_order_within_a_node() {
    within_a_node(true);
}
