//! Tests nodes next to stations on the medium that belong to a different cluster, use an address that is already in
//! use, or send frames that are not TIPC. Each is counted or reported, and contact between the proper nodes continues.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crossway_tipc_node::{BearerSpec, Runner};
use crossway_tipc_proto::addr::{
    NetworkId, NodeAddr, NodeId, Port, Scope, ServiceRange, SocketAddr,
};
use crossway_tipc_proto::drops::DropReason;
use crossway_tipc_proto::node::{Config, Event};
use crossway_tipc_proto::socket::{Address, SocketKind};
use crossway_tipc_proto::time::Nanos;

const WATCHDOG: Duration = Duration::from_secs(120);

fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A node with a UDP bearer at port `own`, whose remotes are at the ports `others`.
fn runner(id: &str, number: u32, network: u32, own: u16, others: &[u16]) -> Runner {
    let mut runner = Runner::new(Config {
        id: NodeId::from_text(id),
        addr: Some(NodeAddr(number)),
        network: NetworkId(network),
        seed: own.into(),
        ..Config::default()
    })
    .unwrap();
    let remotes: String = others.iter().map(|other| format!(",127.0.0.1:{other}")).collect();
    let spec: BearerSpec = format!("udp:127.0.0.1:{own}{remotes}").parse().unwrap();
    runner.enable(&spec, "udp0").unwrap();
    runner
}

/// Two nodes in contact, with a receiver on the second.
struct Pair {
    one: Runner,
    two: Runner,
    sink: Port,
    /// Events of the first node.
    events: Vec<Event>,
    /// The first node's port.
    port: u16,
    /// The port of another remote of the first node.
    third: u16,
}

impl Pair {
    fn new() -> Self {
        let [a, b, third] = [free_port(), free_port(), free_port()];
        let (one, mut two) = (runner("one", 1, 1, a, &[b, third]), runner("two", 2, 1, b, &[a]));
        let sink = two.node().open(SocketKind::Rdm).unwrap();
        two.node().bind(sink, ServiceRange::single(1000, 1), Scope::Cluster).unwrap();
        let mut pair = Self { one, two, sink, events: Vec::new(), port: a, third };
        pair.run("contact", &mut [], |pair| {
            pair.events.iter().any(|e| matches!(e, Event::Published(b) if b.range.service == 1000))
        });
        pair
    }

    /// Runs both nodes, and the others with them, until a condition holds.
    fn run(&mut self, what: &str, others: &mut [Runner], holds: impl Fn(&mut Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            for runner in [&mut self.one, &mut self.two].into_iter().chain(others.iter_mut()) {
                runner.turn(Duration::from_millis(1)).unwrap();
            }
            while let Some(event) = self.one.poll_event() {
                self.events.push(event);
            }
            while self.two.poll_event().is_some() {}
            for other in others.iter_mut() {
                while other.poll_event().is_some() {}
            }
            assert!(
                start.elapsed() < WATCHDOG,
                "timed out while waiting for: {what}; events: {:?}",
                self.events
            );
        }
    }

    fn dropped(&mut self, reason: DropReason) -> u64 {
        self.one.node().drops().iter().filter(|(r, _)| *r == reason).map(|(_, count)| count).sum()
    }

    /// Checks that contact was never lost and that a message still arrives.
    fn is_well(&mut self, others: &mut [Runner]) {
        let lost = |e: &&Event| matches!(e, Event::LinkDown { .. } | Event::PeerDown { .. });
        assert_eq!(self.events.iter().find(lost), None);
        let source = self.one.node().open(SocketKind::Rdm).unwrap();
        let to = Address::Socket(SocketAddr { port: self.sink, node: NodeAddr(2) });
        self.one.node().send(Nanos(0), source, Some(to), b"still here").unwrap();
        let sink = self.sink;
        self.run("the message", others, |pair| {
            pair.two
                .node()
                .recv(Nanos(0), sink, 100)
                .is_ok_and(|m| m.payload == b"still here" && m.from.node == NodeAddr(1))
        });
    }
}

#[test]
fn a_node_of_another_cluster_is_counted_and_not_met() {
    let mut pair = Pair::new();
    let mut others = [runner("stranger", 3, 2, pair.third, &[pair.port])];
    pair.run("a count", &mut others, |pair| pair.dropped(DropReason::WrongNetwork) > 0);
    pair.is_well(&mut others);
    assert!(pair.one.node().peers().all(|peer| peer.addr == NodeAddr(2)));
    assert_eq!(others[0].node().peers().count(), 0);
}

#[test]
fn a_node_with_a_peer_s_address_gets_an_objection_and_is_ignored() {
    let mut pair = Pair::new();
    let mut others = [runner("impostor", 2, 1, pair.third, &[pair.port])];
    pair.run("the news", &mut others, |pair| {
        let id = NodeId::from_text("impostor");
        pair.events
            .iter()
            .any(|e| matches!(e, Event::DuplicateAddress { addr: NodeAddr(2), id: i, .. } if Some(*i) == id))
    });
    pair.is_well(&mut others);
}

#[test]
fn a_node_with_our_own_address_gets_an_objection_and_is_ignored() {
    let mut pair = Pair::new();
    let mut others = [runner("double", 1, 1, pair.third, &[pair.port])];
    pair.run("the news", &mut others, |pair| {
        let ours = |e: &Event| matches!(e, Event::DuplicateAddress { addr: NodeAddr(1), .. });
        pair.events.iter().any(ours)
    });
    pair.is_well(&mut others);
}

#[test]
fn a_node_that_is_not_a_remote_is_counted_and_not_met() {
    let mut pair = Pair::new();
    let mut others = [runner("stranger", 3, 1, free_port(), &[pair.port])];
    pair.run("counts", &mut others, |pair| pair.dropped(DropReason::UnlistedSource) > 2);
    pair.is_well(&mut others);
    let told =
        |e: &&Event| matches!(e, Event::FramesRefused { reason: DropReason::UnlistedSource, .. });
    assert_eq!(pair.events.iter().filter(told).count(), 1);
    assert!(pair.one.node().peers().all(|peer| peer.addr == NodeAddr(2)));
    assert_eq!(others[0].node().peers().filter(|peer| peer.up).count(), 0);
}

#[test]
fn frames_in_a_peer_s_name_from_another_port_of_its_host_are_dropped() {
    let mut pair = Pair::new();
    // A RESET that a peer could send: 56 bytes, from node 2 to node 1, with a session.
    let reset = |session: u32| {
        let mut words = [0_u32; 14];
        words[0] = 2 << 29 | 7 << 25 | 10 << 21 | 56;
        words[1] = 1 << 29;
        (words[3], words[6], words[7]) = (2, 2, 1);
        (words[5], words[9]) = (session << 16 | 1 << 13, 3_500 << 16);
        words[10] = u32::from_be_bytes(*b"udp0");
        words.map(u32::to_be_bytes).concat()
    };
    let forger = UdpSocket::bind(("127.0.0.1", pair.third)).unwrap();
    for session in 0..64 {
        forger.send_to(&reset(session * 1_024), ("127.0.0.1", pair.port)).unwrap();
    }
    pair.run("64 counts", &mut [], |pair| pair.dropped(DropReason::WrongSource) == 64);
    pair.is_well(&mut []);
}

#[test]
fn packets_that_are_no_frames_are_counted() {
    let mut pair = Pair::new();
    // From a remote and from a station that is none, in turn.
    let hostile = UdpSocket::bind(("127.0.0.1", pair.third)).unwrap();
    let unlisted = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut state = 1_u32;
    let mut byte = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    for n in 0..2_000 {
        let packet: Vec<u8> = (0..n % 1_400).map(|_| byte()).collect();
        for from in [&hostile, &unlisted] {
            from.send_to(&packet, ("127.0.0.1", pair.port)).unwrap();
        }
        if n % 50 == 0 {
            pair.one.turn(Duration::ZERO).unwrap();
        }
    }
    assert!(pair.dropped(DropReason::UnlistedSource) > 1_000);
    assert!(pair.dropped(DropReason::Malformed) > 500);
    pair.is_well(&mut []);
    assert_eq!(pair.one.node().peers().count(), 1);
}
