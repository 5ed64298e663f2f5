//! Tests of messages without a connection: addresses, scopes, multicasts, and returned messages.

use core::time::Duration;

use crossway_tipc_proto::addr::{NodeAddr, Port, Scope, ServiceRange, SocketAddr};
use crossway_tipc_proto::socket::{Address, SocketError, SocketKind};
use crossway_tipc_proto::wire::ErrorCode;
use crossway_tipc_sim::HostId;

use super::{A, B, SERVICE, bind, open, pair, recv, send};

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
        "an empty message must not be delivered"
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
        assert!(sent < 100, "the receiver's buffer is never full");
    };
    assert_eq!((back.error, back.payload.len()), (ErrorCode::Overload, 1024));
    assert_eq!(sent, 36, "the 36th message of 60,000 bytes does not fit into 2 MiB");
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
            assert_eq!(
                first,
                Err(SocketError::WouldBlock),
                "the range 0 to 4 does not overlap the range 6 to 30"
            );
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
