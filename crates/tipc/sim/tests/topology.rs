//! Tests of the topology service: events about bindings, nodes and links in the kernel's protocol.

use core::time::Duration;

use crossway_tipc_proto::addr::{NodeAddr, Port, Scope, ServiceRange};
use crossway_tipc_proto::socket::{Address, SocketError, SocketKind};
use crossway_tipc_proto::wire::ErrorCode;
use crossway_tipc_sim::{HostId, Network, Plane};

const A: HostId = HostId(0);
const B: HostId = HostId(1);
const PORTS: u32 = 1;
const SERVICE: u32 = 2;
const CANCEL: u32 = 4;
const FOREVER: u32 = u32::MAX;

/// An event: its kind (1 published, 2 withdrawn, 3 timed out), the lower and the upper bound of the range, and the port
/// and the node of the bound socket.
type Told = (u32, u32, u32, u32, NodeAddr);

fn pair() -> Network {
    let mut net = Network::new(1, 2, 1500, Duration::from_millis(1500));
    net.start(A, false);
    net.start(B, false);
    net.run(Duration::from_secs(2));
    net
}

/// Connects a socket of A to the topology service of a node, and returns its port.
fn subscriber(net: &mut Network, at: HostId) -> Port {
    let dest = Address::Service { service: 1, instance: 1, domain: net.addr(at) };
    let port = net.with(A, |node, _| node.open(SocketKind::Seqpacket)).unwrap().unwrap();
    let result = net.with(A, |node, now| node.connect(now, port, Some(dest), &[])).unwrap();
    assert_eq!(result, Err(SocketError::InProgress));
    net.run(Duration::from_millis(50));
    port
}

fn request(words: [u32; 5], little_endian: bool) -> Vec<u8> {
    let encode = |w: u32| if little_endian { w.to_le_bytes() } else { w.to_be_bytes() };
    words.into_iter().flat_map(encode).chain(*b"a handle").collect()
}

fn subscribe(net: &mut Network, port: Port, words: [u32; 5]) {
    let bytes = request(words, true);
    net.with(A, |node, now| node.send(now, port, None, &bytes)).unwrap().unwrap();
    net.run(Duration::from_millis(50));
}

fn told(net: &mut Network, port: Port) -> Vec<Told> {
    let mut told = Vec::new();
    while let Ok(m) = net.with(A, |node, now| node.recv(now, port, 100)).unwrap() {
        assert_eq!((m.error, m.payload.len()), (ErrorCode::Ok, 48));
        assert_eq!(&m.payload[40..], b"a handle", "the event must repeat the subscription");
        let word = |n: usize| u32::from_le_bytes(m.payload[4 * n..4 * n + 4].try_into().unwrap());
        told.push((word(0), word(1), word(2), word(3), NodeAddr(word(4))));
    }
    net.run(Duration::from_millis(50));
    told
}

fn bind(net: &mut Network, host: HostId, lower: u32, upper: u32) -> (Port, NodeAddr) {
    let range = ServiceRange { service: 1000, lower, upper };
    let port = net.with(host, |node, _| {
        let port = node.open(SocketKind::Rdm).unwrap();
        node.bind(port, range, Scope::Cluster).unwrap();
        port
    });
    net.run(Duration::from_millis(50));
    (port.unwrap(), net.addr(host))
}

fn close(net: &mut Network, host: HostId, port: Port) {
    net.with(host, |node, now| node.close(now, port)).unwrap().unwrap();
    net.run(Duration::from_millis(50));
}

#[test]
fn a_port_subscription_reports_each_binding_in_order() {
    for at in [A, B] {
        let mut net = pair();
        let (second, b) = bind(&mut net, B, 50, 60);
        let (first, a) = bind(&mut net, A, 1, 2);
        let port = subscriber(&mut net, at);
        subscribe(&mut net, port, [1000, 0, 100, FOREVER, PORTS]);
        assert_eq!(told(&mut net, port), [(1, 50, 60, second.0, b), (1, 1, 2, first.0, a)]);
        let (third, _) = bind(&mut net, B, 100, 200);
        let (outside, _) = bind(&mut net, B, 101, 200);
        close(&mut net, B, second);
        close(&mut net, B, outside);
        assert_eq!(told(&mut net, port), [(1, 100, 200, third.0, b), (2, 50, 60, second.0, b)]);
    }
}

#[test]
fn a_service_subscription_reports_the_first_and_the_last_binding_of_a_range() {
    let mut net = pair();
    let port = subscriber(&mut net, A);
    let (first, _) = bind(&mut net, A, 5, 5);
    subscribe(&mut net, port, [1000, 0, 100, FOREVER, SERVICE]);
    let (second, b) = bind(&mut net, B, 5, 5);
    close(&mut net, A, first);
    assert_eq!(told(&mut net, port).iter().map(|t| (t.0, t.1)).collect::<Vec<_>>(), [(1, 5)]);
    let (third, _) = bind(&mut net, B, 5, 5);
    // Both are withdrawn together, with their node.
    net.crash(B);
    net.run(Duration::from_secs(4));
    let gone = told(&mut net, port);
    assert_eq!(gone.len(), 1, "{gone:?}");
    assert_eq!((gone[0].0, gone[0].4), (2, b));
    assert!([second.0, third.0].contains(&gone[0].3));
}

#[test]
fn subscriptions_end_by_time_or_by_cancellation() {
    let mut net = pair();
    let port = subscriber(&mut net, A);
    subscribe(&mut net, port, [1000, 3, 4, 500, PORTS]);
    assert_eq!(told(&mut net, port), []);
    net.run(Duration::from_millis(600));
    assert_eq!(told(&mut net, port), [(3, 3, 4, 0, NodeAddr(0))]);
    subscribe(&mut net, port, [1000, 3, 4, FOREVER, PORTS]);
    subscribe(&mut net, port, [1000, 3, 4, FOREVER, PORTS | CANCEL]);
    bind(&mut net, A, 3, 3);
    assert_eq!(told(&mut net, port), []);
}

#[test]
fn the_answer_is_in_the_byte_order_of_the_request() {
    let mut net = pair();
    let (bound, _) = bind(&mut net, A, 7, 7);
    let port = subscriber(&mut net, A);
    let bytes = request([1000, 7, 7, FOREVER, PORTS], false);
    net.with(A, |node, now| node.send(now, port, None, &bytes)).unwrap().unwrap();
    net.run(Duration::from_millis(50));
    let event = net.with(A, |node, now| node.recv(now, port, 100)).unwrap().unwrap().payload;
    assert_eq!(event[..4], 1u32.to_be_bytes());
    assert_eq!(event[12..16], bound.0.to_be_bytes());
    assert_eq!(event[20..], bytes[..]);
}

#[test]
fn a_subscriber_that_breaks_the_rules_is_dismissed() {
    let both = request([1000, 0, 9, FOREVER, PORTS | SERVICE], true);
    let backwards = request([1000, 9, 0, FOREVER, PORTS], true);
    for bytes in [both, backwards, vec![0; 27]] {
        let mut net = pair();
        let port = subscriber(&mut net, A);
        net.with(A, |node, now| node.send(now, port, None, &bytes)).unwrap().unwrap();
        net.run(Duration::from_millis(50));
        let end = net.with(A, |node, now| node.recv(now, port, 100)).unwrap().unwrap();
        assert_eq!((end.error, end.payload.len()), (ErrorCode::ConnShutdown, 0));
    }
}

#[test]
fn nodes_and_links_are_services_too() {
    let mut net = pair();
    let (a, b) = (net.addr(A), net.addr(B));
    let (nodes, links) = (subscriber(&mut net, A), subscriber(&mut net, A));
    subscribe(&mut net, nodes, [0, 0, u32::MAX, FOREVER, PORTS]);
    subscribe(&mut net, links, [2, 0, u32::MAX, FOREVER, PORTS]);
    assert_eq!(told(&mut net, nodes), [(1, a.0, a.0, 0, a), (1, b.0, b.0, 0, b)]);
    assert_eq!(told(&mut net, links), [(1, b.0, b.0, 0, a)]);
    net.crash(B);
    net.run(Duration::from_secs(4));
    assert_eq!(told(&mut net, nodes), [(2, b.0, b.0, 0, b)]);
    assert_eq!(told(&mut net, links), [(2, b.0, b.0, 0, a)]);
    let ports = net.with(A, |node, _| node.ports().collect::<Vec<_>>()).unwrap();
    assert_eq!(ports.len(), 2, "the service's own sockets must not be listed");
}

/// An event for a link contains the numbers of the link's two bearers; an event for a node does not. Both kinds of
/// event are in the byte order of the subscriber.
#[test]
fn events_of_nodes_and_of_two_links_are_sent_in_both_byte_orders() {
    let planes = [Plane { mtu: 1500, priority: 10 }; 2];
    let mut net = Network::with_planes(3, 2, &planes, Duration::from_millis(500));
    net.start(A, false);
    net.start(B, false);
    net.run(Duration::from_secs(3));
    let (a, b) = (net.addr(A), net.addr(B));
    let ask = |net: &mut Network, service: u32, little_endian: bool| {
        let port = subscriber(net, A);
        let bytes = request([service, 0, u32::MAX, FOREVER, PORTS], little_endian);
        net.with(A, |node, now| node.send(now, port, None, &bytes)).unwrap().unwrap();
        net.run(Duration::from_millis(50));
        port
    };
    let heard = |net: &mut Network, port: Port, little_endian: bool| {
        let mut heard = Vec::new();
        while let Ok(m) = net.with(A, |node, now| node.recv(now, port, 100)).unwrap() {
            let (words, _) = m.payload.as_chunks();
            let decode = if little_endian { u32::from_le_bytes } else { u32::from_be_bytes };
            let words: Vec<u32> = words.iter().map(|raw| decode(*raw)).collect();
            heard.push((words[0], words[1], words[3], NodeAddr(words[4])));
        }
        heard.sort_unstable();
        heard
    };
    // The peer's bearer in the upper half, the local one in the lower.
    let second = 1 << 16 | 1;
    let asked = [true, false].map(|le| (le, ask(&mut net, 0, le), ask(&mut net, 2, le)));
    for (le, nodes, links) in asked {
        assert_eq!(heard(&mut net, nodes, le), [(1, a.0, 0, a), (1, b.0, 0, b)]);
        assert_eq!(heard(&mut net, links, le), [(1, b.0, 0, a), (1, b.0, second, a)]);
    }
    net.conditions.dead_paths.push((1, A, B));
    net.run(Duration::from_secs(2));
    for (le, nodes, links) in asked {
        assert_eq!(
            heard(&mut net, nodes, le),
            [],
            "the node has another link and must not be reported as lost"
        );
        assert_eq!(heard(&mut net, links, le), [(2, b.0, second, a)]);
    }
    net.crash(B);
    net.run(Duration::from_secs(2));
    for (le, nodes, links) in asked {
        assert_eq!(heard(&mut net, nodes, le), [(2, b.0, 0, b)]);
        assert_eq!(heard(&mut net, links, le), [(2, b.0, 0, a)]);
    }
}
