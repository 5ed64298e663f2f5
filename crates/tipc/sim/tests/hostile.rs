//! Tests of a peer that sends arbitrary frames: they cause no panic and no unbounded growth, and the link of a healthy
//! peer stays up.

use core::time::Duration;

use crossway_tipc_proto::addr::{
    BearerId, MediaAddr, NodeAddr, Port, Scope, ServiceRange, SocketAddr,
};
use crossway_tipc_proto::link::LinkState;
use crossway_tipc_proto::node::{BearerConfig, Config, Node};
use crossway_tipc_proto::socket::{Address, SocketKind};
use crossway_tipc_proto::time::Nanos;
use crossway_tipc_sim::{HostId, Network};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const OWN: MediaAddr = MediaAddr::Ethernet([2, 0, 0, 0, 0, 9]);
const ADDR: u32 = 0x1009;

/// The frames of a correct exchange, from which false frames are made.
fn honest_frames() -> Vec<Vec<u8>> {
    let mut net = Network::new(9, 10, 1500, Duration::from_millis(1500));
    net.record = Some(Vec::new());
    let (a, b) = (HostId(8), HostId(9));
    net.start(a, false);
    net.start(b, false);
    net.run(Duration::from_secs(2));
    let port = net.with(b, |node, _| {
        let port = node.open(SocketKind::Rdm).unwrap();
        node.bind(port, ServiceRange { service: 1000, lower: 0, upper: 9 }, Scope::Cluster)
            .unwrap();
        port
    });
    net.run(Duration::from_millis(100));
    net.with(a, |node, now| {
        let client = node.open(SocketKind::Rdm).unwrap();
        let to = SocketAddr { port: port.unwrap(), node: NodeAddr(ADDR) };
        for len in [10, 3_000] {
            let _ = node.send(now, client, Some(Address::Socket(to)), &vec![1; len]);
        }
        let range = ServiceRange { service: 1000, lower: 3, upper: 3 };
        let _ = node.send(now, client, Some(Address::Range(range)), b"all");
        let stream = node.open(SocketKind::Stream).unwrap();
        let dest = Address::Service { service: 1000, instance: 1, domain: NodeAddr(0) };
        let _ = node.connect(now, stream, Some(dest), b"hello");
        let _ = node.bind(client, ServiceRange::single(2000, 1), Scope::Cluster);
    });
    net.run(Duration::from_secs(3));
    net.record.take().unwrap()
}

/// Makes a false frame: a correct one with a few changes, mostly in the header.
fn lie(rng: &mut Pcg64Mcg, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut frame = frames[rng.random_range(0..frames.len())].clone();
    for _ in 0..rng.random_range(0..6) {
        let len = if rng.random_bool(0.8) { frame.len().min(44) } else { frame.len() };
        let at = rng.random_range(0..len);
        frame[at] = match rng.random_range(0..4) {
            0 => 0,
            1 => 0xff,
            2 => frame[at] ^ 1 << rng.random_range(0..8),
            _ => rng.random(),
        };
    }
    match rng.random_range(0..20) {
        0 => frame.truncate(rng.random_range(0..frame.len())),
        1 => frame.extend((0..rng.random_range(0..2_000)).map(|_| 7)),
        _ => {}
    }
    frame
}

#[test]
fn lies_cause_no_panic_and_no_growth() {
    let frames = honest_frames();
    assert!(frames.len() > 20, "the exchange gave only {} frames", frames.len());
    for seed in 0..20 {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let addr = Some(NodeAddr(ADDR));
        let mut node = Node::new(Config { addr, seed, ..Config::default() });
        node.enable_bearer(Nanos(0), BearerConfig::new("lies", OWN, 1500)).unwrap();
        for (kind, instance) in
            [(SocketKind::Rdm, 1), (SocketKind::Stream, 2), (SocketKind::Seqpacket, 3)]
        {
            let port: Port = node.open(kind).unwrap();
            let _ = node.listen(port);
            node.bind(port, ServiceRange::single(1000, instance), Scope::Cluster).unwrap();
        }
        let (mut now, mut out) = (Nanos(0), Vec::new());
        for round in 0..5_000u32 {
            node.handle_frame(now, BearerId(0), None, &lie(&mut rng, &frames));
            let mut sent = 0;
            while node.poll_transmit(now, &mut out).is_some() {
                sent += 1;
                assert!(sent < 10_000, "seed {seed}: a single frame makes the node send endlessly");
            }
            while node.poll_event().is_some() {}
            if round.is_multiple_of(16) {
                now = now + Duration::from_millis(rng.random_range(0..400));
                node.handle_timeout(now);
                let due = node.poll_timeout().expect("discovery always has a next timer");
                assert!(due > now, "seed {seed}: a timer is still due after it was handled");
            }
        }
        assert!(
            node.held_bytes() < 64 << 20,
            "seed {seed}: {} bytes are queued",
            node.held_bytes()
        );
        assert!(
            node.peers().count() < 2_000,
            "seed {seed}: the node stores {} peers",
            node.peers().count()
        );
        assert!(
            node.drops().iter().map(|(_, n)| n).sum::<u64>() > 1_000,
            "the node accepted almost all false frames"
        );
    }
}

#[test]
fn noise_on_the_medium_leaves_a_healthy_link_up() {
    let mut net = Network::new(4, 2, 1500, Duration::from_millis(500));
    net.start(HostId(0), false);
    net.start(HostId(1), false);
    net.run(Duration::from_secs(2));
    let mut rng = Pcg64Mcg::seed_from_u64(4);
    for _ in 0..2_000 {
        let noise: Vec<u8> = (0..rng.random_range(0..200)).map(|_| rng.random()).collect();
        net.with(HostId(0), |node, now| node.handle_frame(now, BearerId(0), None, &noise));
        net.run(Duration::from_millis(2));
    }
    let state = net.with(HostId(0), |node, _| {
        node.peers().next().map(|p| (p.links[0].state, p.links[0].stats.ups))
    });
    assert_eq!(state, Some(Some((LinkState::Established, 1))));
}
