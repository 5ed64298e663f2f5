//! Tests of connections: requests, data in both directions, windows, ends and refusals.

use core::time::Duration;

use crossway_tipc_proto::addr::{Port, ServiceRange, SocketAddr};
use crossway_tipc_proto::drops::DropReason;
use crossway_tipc_proto::node::Event;
use crossway_tipc_proto::socket::{Address, SocketError, SocketKind};
use crossway_tipc_proto::wire::ErrorCode;
use crossway_tipc_sim::{HostId, Network};

use super::{A, B, SERVICE, bind, open, pair, readiness, recv, send};

/// Makes a connection from a socket of `from` to a socket of `to`. Returns their ports.
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
                "data sent before the end must still be readable"
            );
            let end = recv(&mut net, to, server).unwrap();
            assert_eq!((end.error, end.payload.len()), (ErrorCode::ConnShutdown, 0));
            assert_eq!(
                recv(&mut net, to, server),
                Err(SocketError::WouldBlock),
                "the end must be reported only once"
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
fn a_request_waits_while_the_node_has_no_room_for_another_socket() {
    let mut net = pair();
    let listener = open(&mut net, B, SocketKind::Seqpacket);
    net.with(B, |node, _| node.listen(listener)).unwrap().unwrap();
    bind(&mut net, B, listener, 7, 7);
    let client = open(&mut net, A, SocketKind::Seqpacket);
    assert_eq!(send(&mut net, A, client, Some(SERVICE), b"first"), Ok(5));
    net.run(Duration::from_millis(50));
    let last = net.with(B, |node, _| {
        let mut last = None;
        while let Ok(port) = node.open(SocketKind::Rdm) {
            last = Some(port);
        }
        last.expect("room for a socket")
    });
    let accept = |net: &mut Network| net.with(B, |node, now| node.accept(now, listener)).unwrap();
    for _ in 0..2 {
        assert_eq!(accept(&mut net).unwrap_err(), SocketError::TooMany);
    }
    net.with(B, |node, now| node.close(now, last.unwrap())).unwrap().unwrap();
    let (server, _) = accept(&mut net).expect("the request is still there");
    assert_eq!(recv(&mut net, B, server).unwrap().payload, b"first");
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
fn a_sender_stops_at_the_window_and_goes_on_when_the_reader_reads() {
    let mut net = pair();
    let (client, server) = connection(&mut net, A, B, SocketKind::Seqpacket);
    let mut sent = 0;
    while send(&mut net, A, client, None, &[7; 1000]).is_ok() {
        sent += 1;
        assert!(sent < 1000, "the window never closes");
    }
    assert_eq!(
        sent, 65,
        "128 blocks are enough for 64 messages of two blocks, and one more message may exceed them"
    );
    assert!(!readiness(&mut net, A, client).writable);
    for _ in 0..16 {
        assert_eq!(recv(&mut net, B, server).unwrap().payload.len(), 1000);
    }
    assert!(
        readiness(&mut net, A, client).writable,
        "the window must open again after 32 blocks were read"
    );
    // From now on, the window is 512 blocks.
    while send(&mut net, A, client, None, &[7; 1000]).is_ok() {
        sent += 1;
        assert!(sent < 1000, "the window never closes");
    }
    assert_eq!(sent, 65 + 16 + (512 - 128) / 2);
}

#[test]
fn closing_notifies_the_peer_and_a_lost_node_ends_its_connections() {
    let mut net = pair();
    let (client, server) = connection(&mut net, A, B, SocketKind::Stream);
    net.with(A, |node, now| node.close(now, client)).unwrap().unwrap();
    net.run(Duration::from_millis(50));
    for _ in 0..2 {
        assert_eq!(
            recv(&mut net, B, server),
            Err(SocketError::ConnectionReset),
            "the reset must be reported by every call"
        );
    }
    let (client, _server) = connection(&mut net, A, B, SocketKind::Seqpacket);
    net.crash(B);
    net.run(Duration::from_secs(4));
    assert_eq!(recv(&mut net, A, client), Err(SocketError::ConnectionReset));
    assert_eq!(send(&mut net, A, client, None, b"x"), Err(SocketError::Pipe));
}
