//! The application's view: messages, connections, ends and refusals, between two nodes and within one.

use core::time::Duration;

use crossway_tipc_proto::addr::{Importance, NodeAddr, Port, Scope, ServiceRange, SocketAddr};
use crossway_tipc_proto::drops::DropReason;
use crossway_tipc_proto::node::Event;
use crossway_tipc_proto::socket::{Address, Readiness, Received, SocketError, SocketKind};
use crossway_tipc_proto::wire::ErrorCode;
use crossway_tipc_sim::{HostId, Network};

const A: HostId = HostId(0);
const B: HostId = HostId(1);
const SERVICE: Address = Address::Service { service: 1000, instance: 7, domain: NodeAddr(0) };

/// Two nodes with a link that is up.
fn pair() -> Network {
    let mut net = Network::new(1, 2, 1500, Duration::from_millis(1500));
    net.start(A, false);
    net.start(B, false);
    net.run(Duration::from_secs(2));
    for host in [A, B] {
        assert_eq!(net.with(host, |node, _| node.peers().count()), Some(1));
    }
    net.take_events();
    net
}

fn open(net: &mut Network, host: HostId, kind: SocketKind) -> Port {
    net.with(host, |node, _| node.open(kind)).unwrap().unwrap()
}

fn bind(net: &mut Network, host: HostId, port: Port, lower: u32, upper: u32) {
    let range = ServiceRange { service: 1000, lower, upper };
    net.with(host, |node, _| node.bind(port, range, Scope::Cluster)).unwrap().unwrap();
    net.run(Duration::from_millis(50));
}

fn send(
    net: &mut Network,
    host: HostId,
    port: Port,
    dest: Option<Address>,
    payload: &[u8],
) -> Result<usize, SocketError> {
    let result = net.with(host, |node, now| node.send(now, port, dest, payload)).unwrap();
    net.run(Duration::from_millis(50));
    result
}

fn recv(net: &mut Network, host: HostId, port: Port) -> Result<Received, SocketError> {
    let result = net.with(host, |node, now| node.recv(now, port, 100_000)).unwrap();
    net.run(Duration::from_millis(50));
    result
}

fn readiness(net: &mut Network, host: HostId, port: Port) -> Readiness {
    net.with(host, |node, _| node.readiness(port)).unwrap().unwrap()
}

/// A connection from a socket of `from` to one of `to`.
fn connection(net: &mut Network, from: HostId, to: HostId, kind: SocketKind) -> (Port, Port) {
    let listener = open(net, to, kind);
    net.with(to, |node, _| node.listen(listener)).unwrap().unwrap();
    bind(net, to, listener, 7, 7);
    let client = open(net, from, kind);
    let result = net.with(from, |node, now| node.connect(now, client, Some(SERVICE), &[])).unwrap();
    assert_eq!(result, Err(SocketError::InProgress));
    net.run(Duration::from_millis(50));
    let (server, peer) = net.with(to, |node, now| node.accept(now, listener)).unwrap().unwrap();
    assert_eq!(peer, SocketAddr { port: client, node: net.addr(from) });
    net.run(Duration::from_millis(50));
    assert!(readiness(net, from, client).writable);
    net.with(to, |node, now| node.close(now, listener)).unwrap().unwrap();
    (client, server)
}

#[test]
fn a_message_of_any_legal_size_reaches_a_bound_socket_of_another_node() {
    let mut net = pair();
    let (server, client) = (open(&mut net, B, SocketKind::Rdm), open(&mut net, A, SocketKind::Rdm));
    bind(&mut net, B, server, 5, 9);
    for len in [1, 100, 1460, 1461, 5000, 66_000] {
        let payload: Vec<u8> = (0..len).map(|n| (n * 7) as u8).collect();
        assert_eq!(send(&mut net, A, client, Some(SERVICE), &payload), Ok(len));
        let got = recv(&mut net, B, server).unwrap();
        assert_eq!(got.payload, payload);
        assert_eq!(got.from, SocketAddr { port: client, node: net.addr(A) });
        assert_eq!(got.service, Some(ServiceRange::single(1000, 7)));
    }
    assert_eq!(
        send(&mut net, A, client, Some(SERVICE), &[0; 66_001]),
        Err(SocketError::MessageTooLong)
    );
    assert_eq!(send(&mut net, A, client, None, b"x"), Err(SocketError::NoDestination));
    assert_eq!(send(&mut net, A, client, Some(SERVICE), b""), Ok(0));
    assert_eq!(
        recv(&mut net, B, server),
        Err(SocketError::WouldBlock),
        "empty messages are not delivered"
    );
    let nobody = Address::Service { service: 1000, instance: 99, domain: NodeAddr(0) };
    assert_eq!(send(&mut net, A, client, Some(nobody), b"x"), Err(SocketError::Unreachable));
}

#[test]
fn a_message_to_a_closed_port_is_returned_if_its_sender_wants_it() {
    let mut net = pair();
    let client = open(&mut net, A, SocketKind::Rdm);
    let dead = SocketAddr { port: Port(4242), node: net.addr(B) };
    assert_eq!(send(&mut net, A, client, Some(Address::Socket(dead)), b"lost"), Ok(4));
    assert_eq!(recv(&mut net, A, client), Err(SocketError::WouldBlock));
    net.with(A, |node, _| {
        let mut options = node.socket_report(client).unwrap().options;
        options.dest_droppable = false;
        node.set_options(client, options).unwrap();
    });
    assert_eq!(send(&mut net, A, client, Some(Address::Socket(dead)), b"returned"), Ok(8));
    let back = recv(&mut net, A, client).unwrap();
    assert_eq!(
        (back.error, back.from, &back.payload[..]),
        (ErrorCode::NoPort, dead, &b"returned"[..])
    );
}

#[test]
fn a_full_socket_returns_messages_as_overload() {
    let mut net = pair();
    let (server, client) = (open(&mut net, B, SocketKind::Rdm), open(&mut net, A, SocketKind::Rdm));
    bind(&mut net, B, server, 7, 7);
    net.with(A, |node, _| {
        let mut options = node.socket_report(client).unwrap().options;
        options.dest_droppable = false;
        node.set_options(client, options).unwrap();
    });
    let mut sent = 0;
    let back = loop {
        assert_eq!(send(&mut net, A, client, Some(SERVICE), &[1; 60_000]), Ok(60_000));
        sent += 1;
        match recv(&mut net, A, client) {
            Ok(back) => break back,
            Err(error) => assert_eq!(error, SocketError::WouldBlock),
        }
        assert!(sent < 100, "the receiver never fills");
    };
    assert_eq!((back.error, back.payload.len()), (ErrorCode::Overload, 1024));
    assert_eq!(sent, 36, "2 MiB hold 35 messages of 60,000 bytes");
}

#[test]
fn multicast_reaches_every_matching_socket_once() {
    let mut net = pair();
    let sockets: Vec<(HostId, Port)> = [A, B, B, B]
        .into_iter()
        .map(|host| (host, open(&mut net, host, SocketKind::Rdm)))
        .collect();
    for ((host, port), (lower, upper)) in sockets.iter().zip([(0, 10), (5, 20), (30, 40), (0, 4)]) {
        bind(&mut net, *host, *port, lower, upper);
    }
    // A second matching binding of a socket does not result in a second copy.
    bind(&mut net, B, sockets[1].1, 6, 6);
    let client = open(&mut net, A, SocketKind::Rdm);
    let range = ServiceRange { service: 1000, lower: 6, upper: 30 };
    assert_eq!(send(&mut net, A, client, Some(Address::Range(range)), b"all"), Ok(3));
    for (index, (host, port)) in sockets.iter().enumerate() {
        let first = recv(&mut net, *host, *port);
        if index == 3 {
            assert_eq!(first, Err(SocketError::WouldBlock), "0 to 4 does not overlap 6 to 30");
        } else {
            assert_eq!(first.unwrap().service, Some(range));
        }
        assert_eq!(recv(&mut net, *host, *port), Err(SocketError::WouldBlock));
    }
}

#[test]
fn node_scope_is_seen_on_its_node_only_and_a_domain_asks_that_node() {
    let mut net = pair();
    let (server, client) = (open(&mut net, B, SocketKind::Rdm), open(&mut net, A, SocketKind::Rdm));
    let range = ServiceRange::single(1000, 7);
    net.with(B, |node, _| node.bind(server, range, Scope::Node)).unwrap().unwrap();
    net.run(Duration::from_millis(50));
    assert_eq!(send(&mut net, A, client, Some(SERVICE), b"x"), Err(SocketError::Unreachable));
    let there = Address::Service { service: 1000, instance: 7, domain: net.addr(B) };
    assert_eq!(send(&mut net, A, client, Some(there), b"asked there"), Ok(11));
    assert_eq!(recv(&mut net, B, server).unwrap().payload, b"asked there");
}

#[test]
fn the_cluster_and_the_zone_of_a_given_address_mean_every_node() {
    let mut net = pair();
    let (server, client) = (open(&mut net, A, SocketKind::Rdm), open(&mut net, B, SocketKind::Rdm));
    bind(&mut net, A, server, 7, 7);
    let own = net.addr(B).0;
    for (domain, reaches) in
        [(own & 0xffff_f000, true), (own & 0xff00_0000, true), (0x0200_1000, false)]
    {
        let to = Address::Service { service: 1000, instance: 7, domain: NodeAddr(domain) };
        let known = net.with(B, |node, _| node.check_destination_for(client, Some(to))).unwrap();
        assert_eq!(known.is_ok(), reaches, "{domain:#x}");
        assert_eq!(send(&mut net, B, client, Some(to), b"x").is_ok(), reaches, "{domain:#x}");
        assert_eq!(recv(&mut net, A, server).is_ok(), reaches, "{domain:#x}");
    }
}

#[test]
fn connections_work_both_ways_within_and_between_nodes() {
    for kind in [SocketKind::Seqpacket, SocketKind::Stream] {
        for (from, to) in [(A, B), (B, A), (A, A)] {
            let mut net = pair();
            let (client, server) = connection(&mut net, from, to, kind);
            assert_eq!(send(&mut net, from, client, None, b"one"), Ok(3));
            assert_eq!(send(&mut net, from, client, None, b"two"), Ok(3));
            let first = recv(&mut net, to, server).unwrap();
            if kind == SocketKind::Stream {
                assert_eq!(first.payload, b"onetwo");
            } else {
                assert_eq!(first.payload, b"one");
                assert_eq!(recv(&mut net, to, server).unwrap().payload, b"two");
            }
            assert_eq!(send(&mut net, to, server, None, b"back"), Ok(4));
            assert_eq!(recv(&mut net, from, client).unwrap().payload, b"back");
            assert_eq!(send(&mut net, from, client, None, b"last"), Ok(4));
            net.with(from, |node, now| node.shutdown(now, client)).unwrap().unwrap();
            net.run(Duration::from_millis(50));
            assert_eq!(
                recv(&mut net, to, server).unwrap().payload,
                b"last",
                "what was sent is still read"
            );
            let end = recv(&mut net, to, server).unwrap();
            assert_eq!((end.error, end.payload.len()), (ErrorCode::ConnShutdown, 0));
            assert_eq!(
                recv(&mut net, to, server),
                Err(SocketError::WouldBlock),
                "the end is reported once"
            );
            assert_eq!(send(&mut net, to, server, None, b"x"), Err(SocketError::Pipe));
            assert!(readiness(&mut net, to, server).hangup);
        }
    }
}

#[test]
fn a_request_can_carry_the_first_message() {
    let mut net = pair();
    let listener = open(&mut net, B, SocketKind::Seqpacket);
    net.with(B, |node, _| node.listen(listener)).unwrap().unwrap();
    bind(&mut net, B, listener, 7, 7);
    let client = open(&mut net, A, SocketKind::Seqpacket);
    assert_eq!(send(&mut net, A, client, Some(SERVICE), b"first"), Ok(5));
    let (server, _) = net.with(B, |node, now| node.accept(now, listener)).unwrap().unwrap();
    net.run(Duration::from_millis(50));
    let got = recv(&mut net, B, server).unwrap();
    assert_eq!(
        (&got.payload[..], got.service),
        (&b"first"[..], Some(ServiceRange::single(1000, 7)))
    );
    assert_eq!(send(&mut net, A, client, None, b"second"), Ok(6));
    assert_eq!(recv(&mut net, B, server).unwrap().payload, b"second");
}

#[test]
fn a_request_is_refused_or_times_out() {
    let mut net = pair();
    let client = open(&mut net, A, SocketKind::Stream);
    let dead = Address::Socket(SocketAddr { port: Port(4242), node: net.addr(B) });
    net.with(A, |node, now| node.connect(now, client, Some(dead), &[])).unwrap().unwrap_err();
    net.run(Duration::from_millis(50));
    let failed = |net: &mut Network, port: Port| {
        net.take_events().into_iter().find_map(|(_, event)| match event {
            Event::ConnectFailed { port: p, error } if p == port => Some(error),
            _ => None,
        })
    };
    assert_eq!(failed(&mut net, client), Some(SocketError::Refused));
    // If a listener does not accept, the request times out; so does one to a datagram socket, which discards
    // it.
    let listener = open(&mut net, B, SocketKind::Rdm);
    bind(&mut net, B, listener, 7, 7);
    let client = open(&mut net, A, SocketKind::Stream);
    net.with(A, |node, now| node.connect(now, client, Some(SERVICE), &[])).unwrap().unwrap_err();
    net.run(Duration::from_millis(7_500));
    assert_eq!(failed(&mut net, client), None);
    net.run(Duration::from_millis(1_000));
    assert_eq!(failed(&mut net, client), Some(SocketError::TimedOut));
}

#[test]
fn a_full_listener_is_asked_again_until_it_has_room() {
    let mut net = pair();
    let listener = open(&mut net, B, SocketKind::Seqpacket);
    net.with(B, |node, _| node.listen(listener)).unwrap().unwrap();
    bind(&mut net, B, listener, 7, 7);
    // More requests with a large first message than the queue can hold.
    let clients: Vec<Port> = (0..60).map(|_| open(&mut net, A, SocketKind::Seqpacket)).collect();
    for client in &clients {
        net.with(A, |node, now| node.connect(now, *client, Some(SERVICE), &[7; 60_000]))
            .unwrap()
            .unwrap_err();
        net.run(Duration::from_millis(5));
    }
    let refused = net.with(A, |node, _| node.drops().get(DropReason::Overload)).unwrap()
        + net.with(B, |node, _| node.drops().get(DropReason::Overload)).unwrap();
    let mut accepted = 0;
    for _ in 0..70 {
        while net.with(B, |node, now| node.accept(now, listener)).unwrap().is_ok() {
            accepted += 1;
        }
        net.run(Duration::from_millis(100));
    }
    let events = net.take_events();
    let failed = events.iter().filter(|(_, e)| matches!(e, Event::ConnectFailed { .. })).count();
    assert_eq!((accepted, failed), (60, 0), "{refused} refused");
}

#[test]
fn a_multicast_of_another_node_does_not_reach_bindings_of_node_scope() {
    let mut net = pair();
    let client = open(&mut net, A, SocketKind::Rdm);
    let (near, far) = (open(&mut net, B, SocketKind::Rdm), open(&mut net, B, SocketKind::Rdm));
    let range = ServiceRange::single(1000, 7);
    net.with(B, |node, _| node.bind(near, range, Scope::Node)).unwrap().unwrap();
    bind(&mut net, B, far, 7, 7);
    send(&mut net, A, client, Some(Address::Range(range)), b"all").unwrap();
    assert_eq!(recv(&mut net, B, far).unwrap().payload, b"all");
    assert_eq!(recv(&mut net, B, near).unwrap_err(), SocketError::WouldBlock);
    send(&mut net, B, far, Some(Address::Range(range)), b"ours").unwrap();
    assert_eq!(recv(&mut net, B, near).unwrap().payload, b"ours");
}

#[test]
fn a_sender_stops_at_the_window_and_goes_on_when_the_reader_reads() {
    let mut net = pair();
    let (client, server) = connection(&mut net, A, B, SocketKind::Seqpacket);
    let mut sent = 0;
    while send(&mut net, A, client, None, &[7; 1000]).is_ok() {
        sent += 1;
        assert!(sent < 1000, "the window never closes");
    }
    assert_eq!(sent, 65, "128 blocks, two for each message, and one over");
    assert!(!readiness(&mut net, A, client).writable);
    for _ in 0..16 {
        assert_eq!(recv(&mut net, B, server).unwrap().payload.len(), 1000);
    }
    assert!(readiness(&mut net, A, client).writable, "32 blocks read open the window again");
    // From now on, the window is 512 blocks.
    while send(&mut net, A, client, None, &[7; 1000]).is_ok() {
        sent += 1;
        assert!(sent < 1000, "the window never closes");
    }
    assert_eq!(sent, 65 + 16 + (512 - 128) / 2);
}

#[test]
fn closing_tells_the_peer_and_a_lost_node_ends_its_connections() {
    let mut net = pair();
    let (client, server) = connection(&mut net, A, B, SocketKind::Stream);
    net.with(A, |node, now| node.close(now, client)).unwrap().unwrap();
    net.run(Duration::from_millis(50));
    for _ in 0..2 {
        assert_eq!(
            recv(&mut net, B, server),
            Err(SocketError::ConnectionReset),
            "reported every time"
        );
    }
    let (client, _server) = connection(&mut net, A, B, SocketKind::Seqpacket);
    net.crash(B);
    net.run(Duration::from_secs(4));
    assert_eq!(recv(&mut net, A, client), Err(SocketError::ConnectionReset));
    assert_eq!(send(&mut net, A, client, None, b"x"), Err(SocketError::Pipe));
}

#[test]
fn importance_travels_and_misuse_is_named() {
    let mut net = pair();
    let port = open(&mut net, A, SocketKind::Rdm);
    let with =
        |net: &mut Network,
         f: &dyn Fn(&mut crossway_tipc_proto::node::Node) -> Result<(), SocketError>| {
            net.with(A, |node, _| f(node)).unwrap()
        };
    let reserved = ServiceRange::single(63, 0);
    assert_eq!(
        with(&mut net, &|n| n.bind(port, reserved, Scope::Cluster)),
        Err(SocketError::Access)
    );
    let backwards = ServiceRange { service: 1000, lower: 2, upper: 1 };
    assert_eq!(
        with(&mut net, &|n| n.bind(port, backwards, Scope::Cluster)),
        Err(SocketError::Invalid)
    );
    assert_eq!(with(&mut net, &|n| n.listen(port)), Err(SocketError::NotSupported));
    assert_eq!(with(&mut net, &|n| n.listen(Port(1))), Err(SocketError::BadSocket));
    let fresh = open(&mut net, A, SocketKind::Stream);
    assert_eq!(recv(&mut net, A, fresh), Err(SocketError::NotConnected));
    assert_eq!(send(&mut net, A, fresh, None, b"x"), Err(SocketError::NotConnected));
    net.with(A, |node, _| {
        let mut options = node.socket_report(fresh).unwrap().options;
        options.importance = Importance::High;
        node.set_options(fresh, options).unwrap();
    });
    let listener = open(&mut net, B, SocketKind::Stream);
    net.with(B, |node, _| node.listen(listener)).unwrap().unwrap();
    bind(&mut net, B, listener, 7, 7);
    net.with(A, |node, now| node.connect(now, fresh, Some(SERVICE), &[])).unwrap().unwrap_err();
    net.run(Duration::from_millis(50));
    let (server, _) = net.with(B, |node, now| node.accept(now, listener)).unwrap().unwrap();
    let report = net.with(B, |node, _| node.socket_report(server)).unwrap().unwrap();
    assert_eq!(report.options.importance, Importance::High, "an accepted socket inherits it");
}
