//! Tests that the figures shown to an operator match what happened: each is reported for the right end, and in its
//! unit.

use std::net::UdpSocket;

use crossway_sys::{Errno, socket};
use crossway_tipc_client::admin::{
    AdminError, Administration, BearerView, BroadcastView, LinkView, MulticastWay, NodeView, Order,
    Outcome, PeerView, SocketView,
};
use crossway_tipc_client::protocol::VERSION;
use crossway_tipc_client::protocol::control::{Opened, Reader, Request};
use crossway_tipc_client::protocol::record::{HEADER_LEN, Header, RecordKind, SEND_HEADER_LEN};
use crossway_tipc_client::{
    Address, NodeSocket, Patience, Scope, ServiceRange, SocketAddress, SocketKind, SocketOption,
};

use crate::hostile::{ask, raw};
use crate::lane_pair::signal;
use crate::site::{Site, soon, until};
use crate::two_nodes::two_sites;

fn order(site: &Site, order: Order) -> Outcome {
    Administration::at(site.path()).unwrap().order(&order).unwrap()
}

fn node(site: &Site) -> NodeView {
    let Outcome::Node(node) = order(site, Order::Node) else { panic!("no node") };
    *node
}

fn sockets(site: &Site) -> Vec<SocketView> {
    let Outcome::Sockets(sockets) = order(site, Order::Sockets) else { panic!("no sockets") };
    sockets
}

fn links(site: &Site) -> Vec<LinkView> {
    let Outcome::Links(links) = order(site, Order::Links) else { panic!("no links") };
    links
}

fn bearers(site: &Site) -> Vec<BearerView> {
    let Outcome::Bearers(bearers) = order(site, Order::Bearers) else { panic!("no bearers") };
    bearers
}

fn peers(site: &Site) -> Vec<PeerView> {
    let Outcome::Peers(peers) = order(site, Order::Peers) else { panic!("no peers") };
    peers
}

fn broadcast(site: &Site) -> BroadcastView {
    let Outcome::Broadcast(view) = order(site, Order::Broadcast) else { panic!("no broadcasts") };
    *view
}

fn open(site: &Site, kind: SocketKind) -> NodeSocket {
    NodeSocket::open(site.path(), kind).unwrap()
}

fn named(site: &Site, service: u32, scope: Scope) -> (NodeSocket, Address) {
    let socket = open(site, SocketKind::Rdm);
    socket.bind(ServiceRange::single(service, 1), scope).unwrap();
    (socket, Address::service(service, 1))
}

#[test]
fn a_socket_s_figures_are_its_own() {
    let site = Site::lone();
    let (server, to) = named(&site, 7000, Scope::Node);
    server.set_option(SocketOption::Importance, 2).unwrap();
    let client = open(&site, SocketKind::Rdm);
    for _ in 0..3 {
        client.send(b"hello", Some(to), soon()).unwrap();
        assert_eq!(server.recv(&mut [0; 8], soon()), Ok(5));
    }
    let back = client.local_address().unwrap();
    server.send(b"an answer", Some(back.into()), soon()).unwrap();
    assert_eq!(client.recv(&mut [0; 16], soon()), Ok(9));
    // More than its descriptor can hold.
    let (_sleepy, to) = named(&site, 7001, Scope::Cluster);
    for _ in 0..60 {
        client.send(&[1; 10_000], Some(to), soon()).unwrap();
    }
    let views = sockets(&site);
    let of = |service: u32| {
        let bound = |s: &&SocketView| s.bindings.iter().any(|b| b.service == service);
        views.iter().find(bound).unwrap()
    };
    let (server, sleepy) = (of(7000), of(7001));
    assert_eq!((server.importance, sleepy.importance), (2, 0));
    assert_eq!((server.sent.messages, server.sent.bytes), (1, 9));
    assert_eq!((server.received.messages, server.received.bytes), (3, 15));
    let scopes = (&server.bindings[0].scope[..], &sleepy.bindings[0].scope[..]);
    assert_eq!(scopes, ("node", "cluster"));
    assert_eq!((server.queued_messages, server.queued_bytes), (0, 0));
    assert!(sleepy.queued_messages > 0, "{sleepy:?}");
    assert!(sleepy.queued_bytes >= 10_000 * sleepy.queued_messages, "{sleepy:?}");
}

/// Tests a name table of more than one page.
#[test]
fn the_name_table_is_shown_whole_however_long_it_is() {
    const COUNT: u32 = 4_200;
    let site = Site::lone();
    let socket = open(&site, SocketKind::Rdm);
    for instance in 0..COUNT {
        socket.bind(ServiceRange::single(7002, instance), Scope::Cluster).unwrap();
    }
    let names = Administration::at(site.path()).unwrap().names().unwrap();
    let shown: Vec<_> = names.iter().filter(|n| n.service == 7002).map(|n| n.lower).collect();
    assert_eq!(shown, (0..COUNT).collect::<Vec<_>>());
}

#[test]
fn the_figures_of_links_bearers_and_peers_are_of_the_right_end() {
    let (here, there) = two_sites("93");
    let (server, to) = named(&there, 7003, Scope::Cluster);
    let _more = [named(&here, 7004, Scope::Cluster), named(&here, 7005, Scope::Cluster)];
    let client = open(&here, SocketKind::Rdm);
    let mut buf = vec![0; 66_000];
    until("the link", || client.send(b"hello", Some(to), soon()).is_ok());
    assert_eq!(server.recv(&mut buf, soon()), Ok(5));
    let one = |site: &Site| (links(site).remove(0), bearers(site).remove(0));
    let before = (one(&here), one(&there));
    for _ in 0..20 {
        client.send(&[3; 66_000], Some(to), soon()).unwrap();
        assert_eq!(server.recv(&mut buf, soon()), Ok(66_000));
    }
    let after = (one(&here), one(&there));
    let sent = |of: fn(&LinkView) -> u64| {
        (of(&after.0.0) - of(&before.0.0), of(&after.1.0) - of(&before.1.0))
    };
    let bytes = 20 * 66_000;
    let (from, into) = sent(|link| link.counters.sent_bytes);
    assert!(from >= bytes && into < bytes / 2, "sent: {from} here, {into} there");
    let (from, into) = sent(|link| link.counters.received_bytes);
    assert!(from < bytes / 2 && into >= bytes, "received: {from} here, {into} there");
    let frames = |of: fn(&BearerView) -> u64| {
        (of(&after.0.1) - of(&before.0.1), of(&after.1.1) - of(&before.1.1))
    };
    // In packets of 14,000 bytes.
    let (from, into) = frames(|bearer| bearer.sent_frames);
    assert!(from >= 100 && into < 100, "sent: {from} here, {into} there");
    let (from, into) = frames(|bearer| bearer.received_frames);
    assert!(from < 100 && into >= 100, "received: {from} here, {into} there");
    // No round trip takes less than a microsecond.
    until("a round trip", || links(&here)[0].round_trip_us.is_some());
    assert_ne!(links(&here)[0].round_trip_us, Some(0));
    let peer = peers(&here).remove(0);
    let names = Administration::at(here.path()).unwrap().names().unwrap();
    let of_peer = names.iter().filter(|name| name.node == peer.address).count();
    assert!(peer.bindings == of_peer as u64 && of_peer < names.len(), "{peer:?} {names:?}");

    // Bindings made while there is a link are announced over the broadcast link.
    server.bind(ServiceRange::single(7008, 1), Scope::Cluster).unwrap();
    let names = || Administration::at(here.path()).unwrap().names().unwrap();
    until("the binding", || names().iter().any(|name| name.service == 7008));
    assert!(broadcast(&there).counters.sent_packets > 0);
    order(&there, Order::ResetStatistics { name: None });
    assert_eq!(broadcast(&there).counters.sent_packets, 0);
    let steer = |method, replicast_percent| {
        let order = Order::SetMulticasts { method, replicast_percent };
        Administration::at(there.path()).unwrap().order(&order)
    };
    steer(None, Some(101)).unwrap_err();
    steer(Some(MulticastWay::Broadcast), Some(100)).unwrap();
    let view = broadcast(&there);
    assert_eq!((view.method, view.replicast_percent), (MulticastWay::Broadcast, 100));
}

/// Tests frames that a medium refuses: those from a loopback address cannot reach another host.
#[test]
fn frames_that_a_medium_refuses_are_counted() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let site = Site::with(&[&format!("udp:127.0.0.1:{port},192.0.2.1")]);
    until("a frame that is refused", || node(&site).unsent_frames > 0);
    let bearer = bearers(&site).remove(0);
    assert!(bearer.unsent_frames > 0 && bearer.sent_frames == 0, "{bearer:?}");
}

/// Tests that eight requests are passed to a listening program, and that the node keeps the others.
#[test]
fn requests_that_nobody_accepts_take_no_more_than_eight_sockets_each() {
    let site = Site::lone();
    let listener = open(&site, SocketKind::Seqpacket);
    listener.listen().unwrap();
    listener.bind(ServiceRange::single(7006, 1), Scope::Cluster).unwrap();
    let clients: Vec<_> = (0..20).map(|_| open(&site, SocketKind::Seqpacket)).collect();
    for client in &clients {
        let outcome = client.connect(Some(Address::service(7006, 1)), Patience::Now);
        assert_eq!(outcome, Err(Errno::INPROGRESS));
    }
    assert_eq!(node(&site).sockets, 1 + 20 + 8);
    let accepted: Vec<_> = (0..20).map(|_| listener.accept(soon()).unwrap()).collect();
    assert_eq!(accepted.len(), 20);
    until("all connections are accepted", || clients.iter().all(|c| c.peer_address().is_ok()));
    assert_eq!(node(&site).sockets, 1 + 20 + 20);
}

/// Tests messages to a destination that was reachable when the program checked, and no longer is when its tipcd gets
/// the message.
#[test]
fn undeliverable_messages_are_returned_with_their_cause_or_counted() {
    const NO_NAME: u8 = 1;
    const NO_NODE: u8 = 3;
    let site = Site::lone();
    let control = raw(&site);
    ask(&control, &Request::Hello { version: VERSION }.encode());
    let (answer, mut fds) = ask(&control, &Request::Open { kind: SocketKind::Rdm }.encode());
    let token = Opened::decode(&mut Reader::new(&answer[4..])).unwrap().token;
    let data = fds.pop().unwrap();
    let lost = SocketAddress { port: 5, node: 0x0100_1009 };
    let send = |to: Address| {
        let record = [&to.encode()[..SEND_HEADER_LEN], &[7; 3_000]].concat();
        socket::send(&data, &record, false).unwrap();
        // Answered after the message has been handled.
        ask(&control, &Request::Report { token }.encode());
    };
    for to in [Address::service(7007, 1), lost.into()] {
        send(to);
    }
    assert_eq!(node(&site).undelivered_messages, 2);
    ask(
        &control,
        &Request::SetOption { token, name: SocketOption::DestinationDroppable.number(), value: 0 }
            .encode(),
    );
    for (to, cause) in [(Address::service(7007, 1), NO_NAME), (lost.into(), NO_NODE)] {
        send(to);
        let mut record = [0; HEADER_LEN + 3_000];
        let len = socket::recv(&data, &mut record, true).unwrap();
        let header = Header::decode(record.first_chunk().unwrap()).unwrap();
        assert_eq!((header.kind, header.error), (RecordKind::Returned, cause));
        assert_eq!(record[HEADER_LEN..len], [7; 1_024]);
    }
    assert_eq!(node(&site).undelivered_messages, 2);
}

#[test]
fn a_stopped_tipcd_is_late_and_its_answer_is_not_taken_for_the_next_one() {
    let site = Site::lone();
    let operator = Administration::at(site.path()).unwrap();
    signal(&site, "-STOP");
    let late = operator.order(&Order::Sockets);
    signal(&site, "-CONT");
    let error = late.unwrap_err();
    assert!(matches!(error, AdminError::Late { .. }), "{error:?}");
    assert!(error.to_string().contains("has not answered for 10 s"), "{error}");
    assert!(matches!(operator.order(&Order::Node), Ok(Outcome::Node(_))));
}
