//! Faults that a call of a program or an operator causes.

use core::time::Duration;
use std::collections::BTreeSet;

use crossway_tipc_proto::addr::{
    BearerId, MediaAddr, NodeAddr, Port, Scope, ServiceRange, SocketAddr,
};
use crossway_tipc_proto::limits::Limits;
use crossway_tipc_proto::node::{BearerConfig, BearerError, Config, Node, option};
use crossway_tipc_proto::socket::{Address, SocketError, SocketKind};
use crossway_tipc_proto::time::Nanos;
use crossway_tipc_proto::wire::Frame;
use crossway_tipc_sim::{HostId, Network};

use crate::{A, Attack, B, C, MTU, kind};

fn open(attack: &mut Attack, host: HostId, kind: SocketKind) -> Port {
    attack.net.with(host, |node, _| node.open(kind)).unwrap().unwrap()
}

/// Checks that every byte of recorded frames follows from what they say: what is decoded is encoded to the same bytes,
/// and nothing follows it. Returns the kinds of frames.
fn contain_nothing_else(frames: &[Vec<u8>]) -> BTreeSet<(u8, u8)> {
    for frame in frames {
        let mut again = Vec::new();
        Frame::decode(frame).unwrap().encode(&mut again);
        assert_eq!(*frame, again);
    }
    frames.iter().map(|frame| kind(frame)).collect()
}

/// CVE-2022-0382: a datagram whose frames contained memory of the sender.
#[test]
fn frames_contain_only_what_was_sent() {
    let mut attack = Attack::new();
    let server = open(&mut attack, B, SocketKind::Rdm);
    let range = ServiceRange { service: 7_000, lower: 1, upper: 9 };
    attack.net.with(B, |node, _| node.bind(server, range, Scope::Cluster)).unwrap().unwrap();
    attack.net.run(Duration::from_millis(200));
    let client = open(&mut attack, A, SocketKind::Rdm);
    let socket = SocketAddr { port: server, node: NodeAddr(0x1001) };
    let service = Address::Service { service: 7_000, instance: 3, domain: NodeAddr(0) };
    for dest in [Address::Socket(socket), service, Address::Range(range)] {
        for len in (0..64).chain([1_000, 60_000]) {
            attack.net.record = Some(Vec::new());
            let sent = attack
                .net
                .with(A, |node, now| node.send(now, client, Some(dest), &vec![0xa5; len]));
            assert_eq!(sent, Some(Ok(len)));
            attack.net.run(Duration::from_millis(5));
            let frames = attack.net.record.take().unwrap();
            assert!(!frames.is_empty());
            contain_nothing_else(&frames);
        }
    }
    attack.check();
}

/// "Dont send random pad bytes in RESET/ACTIVATE messages" (2026): memory of the sender behind the device's name.
#[test]
fn links_are_made_by_frames_without_padding() {
    let mut net = Network::new(3, 3, MTU, Duration::from_millis(500));
    net.record = Some(Vec::new());
    for host in [A, B, C] {
        net.start(host, false);
    }
    net.run(Duration::from_secs(3));
    let kinds = contain_nothing_else(&net.record.take().unwrap());
    // STATE, RESET and ACTIVATE, and discovery.
    for expected in [(7, 0), (7, 1), (7, 2), (13, 0), (13, 1)] {
        assert!(kinds.contains(&expected), "{expected:?} in {kinds:?}");
    }
}

/// CVE-2026-43411: a connect timeout of a few milliseconds, and a listener whose queue is full, so that the request is
/// repeated after a part of the timeout.
#[test]
fn a_short_connect_timeout_divides_nothing_by_zero() {
    let mut attack = Attack::new();
    let server = open(&mut attack, B, SocketKind::Stream);
    attack.net.with(B, |node, _| {
        node.listen(server).unwrap();
        let mut options = node.socket_report(server).unwrap().options;
        options.receive_bytes = 1;
        node.set_options(server, options).unwrap();
        node.bind(server, ServiceRange::single(7_000, 1), Scope::Cluster).unwrap();
    });
    attack.net.run(Duration::from_millis(200));
    let dest = Address::Service { service: 7_000, instance: 1, domain: NodeAddr(0) };
    for timeout in [0, 1, 2, 3, 4, 5, 65_535, 65_536, u32::MAX] {
        for _ in 0..3 {
            let client = open(&mut attack, A, SocketKind::Stream);
            attack.net.with(A, |node, now| {
                node.set_option(client, option::CONN_TIMEOUT, Some(timeout)).unwrap();
                let _ = node.connect(now, client, Some(dest), &[]);
            });
            attack.net.run(Duration::from_millis(500));
            attack.net.with(A, |node, now| node.close(now, client)).unwrap().unwrap();
        }
    }
    attack.check();
}

/// CVE-2026-68117: accept() when no further socket can be made. The request stays in the queue.
#[test]
fn an_accept_without_room_leaves_the_request() {
    let limits = Limits { sockets: 4, ..Limits::default() };
    let mut node = Node::new(Config { limits, ..Config::default() });
    let now = Nanos(0);
    let listener = node.open(SocketKind::Stream).unwrap();
    node.listen(listener).unwrap();
    node.bind(listener, ServiceRange::single(7_000, 1), Scope::Cluster).unwrap();
    let client = node.open(SocketKind::Stream).unwrap();
    let dest = Address::Service { service: 7_000, instance: 1, domain: NodeAddr(0) };
    assert_eq!(node.connect(now, client, Some(dest), &[]), Err(SocketError::InProgress));
    let last = node.open(SocketKind::Rdm).unwrap();
    for _ in 0..1_000 {
        assert_eq!(node.open(SocketKind::Rdm), Err(SocketError::TooMany));
        assert_eq!(node.accept(now, listener).map(drop), Err(SocketError::TooMany));
    }
    node.close(now, last).unwrap();
    let (accepted, _) = node.accept(now, listener).unwrap();
    assert_eq!(node.send(now, accepted, None, b"hello"), Ok(5));
    assert_eq!(node.recv(now, client, 10).map(|m| m.payload), Ok(b"hello".to_vec()));
    for port in [accepted, client, listener] {
        node.close(now, port).unwrap();
        assert_eq!(node.close(now, port), Err(SocketError::BadSocket), "twice");
    }
}

/// CVE-2026-68297: packet sizes beyond 16 bits, which a kernel truncates, down to 0.
#[test]
fn packet_sizes_of_bearers_are_limited_at_both_ends() {
    let mut node = Node::new(Config::default());
    for mtu in [0, 1, 127, 65_536, 65_537, 131_071, 131_072, usize::MAX] {
        let cfg = BearerConfig::new("eth0", MediaAddr::Ethernet([2, 0, 0, 0, 0, 1]), mtu);
        assert_eq!(node.enable_bearer(Nanos(0), cfg), Err(BearerError::BadMtu), "{mtu}");
    }
    for (n, mtu) in [(1, 128), (2, 65_535)] {
        let cfg = BearerConfig::new("eth0", MediaAddr::Ethernet([2, 0, 0, 0, 1, n]), mtu);
        node.enable_bearer(Nanos(0), cfg).unwrap();
    }
}

/// A fault of 2026 without a number known to us: the sum of a message's length and the buffer's overflowed in recvmsg().
#[test]
fn buffers_of_any_size_are_received_into() {
    let mut attack = Attack::new();
    for kind in [SocketKind::Stream, SocketKind::Seqpacket] {
        let server = open(&mut attack, B, kind);
        attack.net.with(B, |node, _| {
            node.listen(server).unwrap();
            node.bind(server, ServiceRange::single(7_000, 1), Scope::Cluster).unwrap();
        });
        attack.net.run(Duration::from_millis(200));
        let client = open(&mut attack, A, kind);
        let dest = Address::Service { service: 7_000, instance: 1, domain: NodeAddr(0) };
        let _ = attack.net.with(A, |node, now| node.connect(now, client, Some(dest), &[]));
        attack.net.run(Duration::from_millis(50));
        let (end, _) = attack.net.with(B, |node, now| node.accept(now, server)).unwrap().unwrap();
        attack.net.run(Duration::from_millis(50));
        for room in [usize::MAX, usize::MAX - 1, i32::MAX as usize, u32::MAX as usize] {
            for payload in [&[1; 5][..], &[2; 60_000]] {
                attack
                    .net
                    .with(A, |node, now| node.send(now, client, None, payload))
                    .unwrap()
                    .unwrap();
                attack.net.run(Duration::from_millis(50));
                let mut got = 0;
                while let Ok(m) = attack.net.with(B, |node, now| node.recv(now, end, room)).unwrap()
                {
                    got += m.payload.len();
                }
                assert_eq!(got, payload.len(), "{kind:?}, room for {room}");
                attack.net.run(Duration::from_millis(50));
            }
        }
        attack.net.with(B, |node, now| node.close(now, server)).unwrap().unwrap();
        attack.net.run(Duration::from_millis(200));
    }
    attack.check();
}

/// CVE-2025-37757: the protocol's own messages to a peer that acknowledges nothing were lost without being freed. Here they
/// are bounded: binding fails while there is no room; what cannot wait costs contact with that peer, and no other's.
#[test]
fn updates_for_a_peer_that_does_not_acknowledge_are_bounded() {
    // Small packets, so that the limit, which counts packets, is soon reached.
    let mut net = Network::new(1, 3, 200, Duration::from_millis(1500));
    for host in [A, B, C] {
        net.start(host, false);
    }
    net.run(Duration::from_secs(3));
    let ports: Vec<_> = (0..100)
        .map(|_| net.with(A, |node, _| node.open(SocketKind::Rdm)).unwrap().unwrap())
        .collect();
    net.conditions.dead_paths.push((0, A, B));
    let (begin, mut most) = (net.now(), 0);
    let range = |n: u32| ServiceRange::single(7_000, n);
    for n in 0..100_000 {
        // Fifty thousand bindings are made, and then withdrawn.
        let port = ports[n as usize / 500 % 100];
        let result = net.with(A, |node, now| match n {
            0..50_000 => node.bind(port, range(n), Scope::Cluster),
            _ => node.unbind(now, port, Some((range(n - 50_000), Scope::Cluster))),
        });
        assert!(matches!(result, Some(Ok(()) | Err(SocketError::WouldBlock))), "{result:?}");
        if n % 100 == 0 {
            net.run(Duration::from_micros(300));
            most = most.max(net.bytes_max());
        }
    }
    assert!(most < 16 << 20, "{most} bytes were held");
    // Long before it would have been given up for its silence.
    assert!(net.now().since(begin) < Duration::from_secs(1));
    let up = net.with(A, |node, _| node.peers().map(|p| p.up).collect::<Vec<_>>());
    assert_eq!(up, Some(vec![false, true]));
    net.run(Duration::from_secs(5));
    let state = |net: &mut Network| {
        net.with(A, |node, _| {
            node.peers().map(|p| (p.up, p.links[0].stats.ups)).collect::<Vec<_>>()
        })
        .unwrap()
    };
    assert_eq!(state(&mut net), [(false, 1), (true, 1)]);
    net.conditions.dead_paths.clear();
    net.run(Duration::from_secs(70));
    assert_eq!(state(&mut net), [(true, 2), (true, 1)]);
    let names = |net: &mut Network, host| {
        net.with(host, |node, _| node.names().count_of(NodeAddr(0x1000))).unwrap()
    };
    let known = [A, B, C].map(|host| names(&mut net, host));
    assert!(known[1] == known[2] && known[1] < 10, "bindings of A that A, B and C know: {known:?}");
}

/// CVE-2026-99053 and CVE-2026-74609: orders that name a link or a node while it is forgotten.
#[test]
fn orders_about_what_no_longer_exists_are_refused() {
    let mut attack = Attack::new();
    let gone = NodeAddr(0x1001);
    attack.net.crash(B);
    for _ in 0..4_000 {
        attack.net.run(Duration::from_millis(100));
        attack.net.with(A, |node, now| {
            let exists = node.peers().any(|peer| peer.addr == gone);
            let set = node.set_link(now, gone, BearerId(0), Default::default());
            let reset = node.reset_statistics(gone, BearerId(0));
            assert_eq!((set.is_ok(), reset.is_ok()), (exists, exists));
        });
    }
    let known = attack.net.with(A, |node, _| node.peers().any(|peer| peer.addr == gone));
    assert_eq!(known, Some(false), "it is forgotten after 300 s");
    attack.net.start(B, false);
    attack.net.run(Duration::from_secs(70));
    let back = attack.net.with(A, |node, _| node.peers().any(|p| p.addr == gone && p.up));
    assert_eq!(back, Some(true), "it is found like any other");
}
