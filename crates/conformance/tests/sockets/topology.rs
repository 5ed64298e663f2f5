//! Tests the topology service as programs use it: through a connection to {1, 1}.

use crossway_tipc_client::{Address, Patience, Scope, ServiceRange, SocketKind};

use crate::site::{Site, soon};

fn subscription(service: u32, timeout_ms: u32, filter: u32) -> Vec<u8> {
    let words = [service, 0, u32::MAX, timeout_ms, filter, 0x0403_0201, 0x0807_0605];
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

fn word(event: &[u8], n: usize) -> u32 {
    u32::from_ne_bytes(event[4 * n..4 * n + 4].try_into().unwrap())
}

#[test]
fn subscribers_hear_of_bindings_that_come_and_go() {
    let site = Site::lone();
    let early = site.socket(SocketKind::Rdm);
    early.bind(ServiceRange::single(1000, 1), Scope::Cluster).unwrap();
    let topology = site.socket(SocketKind::Seqpacket);
    topology.connect(Some(Address::service(1, 1)), Patience::Forever).unwrap();
    topology.send(&subscription(1000, u32::MAX, 1), None, Patience::Forever).unwrap();
    let mut event = [0; 48];
    let mut expect = |what: u32, instance: u32, port: u32| {
        assert_eq!(topology.recv(&mut event, soon()), Ok(48));
        assert_eq!([word(&event, 0), word(&event, 1), word(&event, 3)], [what, instance, port]);
        assert_eq!(event[20..], subscription(1000, u32::MAX, 1)[..]);
    };
    expect(1, 1, early.local_address().unwrap().port);
    let late = site.socket(SocketKind::Rdm);
    late.bind(ServiceRange::single(1000, 2), Scope::Cluster).unwrap();
    let port = late.local_address().unwrap().port;
    expect(1, 2, port);
    late.unbind_all().unwrap();
    expect(2, 2, port);
    let port = early.local_address().unwrap().port;
    drop(early);
    expect(2, 1, port);
}

#[test]
fn a_subscription_ends_with_its_time() {
    let site = Site::lone();
    let topology = site.socket(SocketKind::Seqpacket);
    topology.connect(Some(Address::service(1, 1)), Patience::Forever).unwrap();
    topology.send(&subscription(1000, 20, 2), None, Patience::Forever).unwrap();
    let mut event = [0; 48];
    assert_eq!(topology.recv(&mut event, soon()), Ok(48));
    assert_eq!(word(&event, 0), 3, "TIMEOUT");
    // An invalid request closes the connection properly.
    topology.send(b"nonsense", None, Patience::Forever).unwrap();
    assert_eq!(topology.recv(&mut event, soon()), Ok(0));
}

const PORTS: u32 = 1;
const SERVICES: u32 = 2;
const CANCEL: u32 = 4;
const FOREVER: u32 = u32::MAX;

#[test]
fn requests_that_mean_nothing_end_the_connection() {
    let site = Site::lone();
    let good = subscription(1000, FOREVER, PORTS);
    let mut upside_down = good.clone();
    upside_down[4..8].copy_from_slice(&9_u32.to_ne_bytes());
    upside_down[8..12].copy_from_slice(&8_u32.to_ne_bytes());
    let both = subscription(1000, FOREVER, PORTS | SERVICES);
    for request in [both, upside_down, good[..27].to_vec()] {
        let topology = site.socket(SocketKind::Seqpacket);
        topology.connect(Some(Address::service(1, 1)), Patience::Forever).unwrap();
        topology.send(&request, None, Patience::Forever).unwrap();
        assert_eq!(topology.recv(&mut [0; 48], soon()), Ok(0), "{request:?}");
    }
}

#[test]
fn a_request_in_the_other_byte_order_is_answered_in_it() {
    let site = Site::lone();
    let bound = site.socket(SocketKind::Rdm);
    bound.bind(ServiceRange { service: 1000, lower: 3, upper: 7 }, Scope::Node).unwrap();
    for kind in [SocketKind::Seqpacket, SocketKind::Stream] {
        let topology = site.socket(kind);
        topology.connect(Some(Address::service(1, 1)), Patience::Forever).unwrap();
        let mut request = subscription(1000, FOREVER, PORTS);
        request[..20].chunks_exact_mut(4).for_each(|word| word.reverse());
        topology.send(&request, None, Patience::Forever).unwrap();
        let mut event = [0; 48];
        assert_eq!(topology.recv(&mut event, soon()), Ok(48));
        let swapped: Vec<u32> = (0..4).map(|n| word(&event, n).swap_bytes()).collect();
        assert_eq!(swapped, [1, 3, 7, bound.local_address().unwrap().port], "{kind:?}");
        assert_eq!(event[20..], request[..], "as it was requested");
    }
}

#[test]
fn a_cancelled_subscription_says_nothing_more() {
    let site = Site::lone();
    let topology = site.socket(SocketKind::Seqpacket);
    topology.connect(Some(Address::service(1, 1)), Patience::Forever).unwrap();
    let send = |request: Vec<u8>| topology.send(&request, None, Patience::Forever).unwrap();
    send(subscription(1000, FOREVER, PORTS));
    send(subscription(1000, FOREVER, PORTS | CANCEL));
    // Requests are processed in order, so the end of this one shows that the others were processed.
    send(subscription(1001, 10, PORTS));
    let mut event = [0; 48];
    assert_eq!(topology.recv(&mut event, soon()), Ok(48));
    assert_eq!((word(&event, 0), word(&event, 5)), (3, 1001));
    let bound = site.socket(SocketKind::Rdm);
    bound.bind(ServiceRange::single(1000, 1), Scope::Node).unwrap();
    send(subscription(1001, 10, PORTS));
    assert_eq!(topology.recv(&mut event, soon()), Ok(48));
    assert_eq!(
        (word(&event, 0), word(&event, 5)),
        (3, 1001),
        "no event of the cancelled subscription"
    );
}

#[test]
fn a_service_and_each_of_its_ports_are_reported_once() {
    let site = Site::lone();
    let sockets: Vec<_> = (0..2).map(|_| site.socket(SocketKind::Rdm)).collect();
    let range = ServiceRange { service: 1000, lower: 1, upper: 5 };
    for socket in &sockets {
        socket.bind(range, Scope::Node).unwrap();
    }
    let subscribed = |filter: u32| {
        let topology = site.socket(SocketKind::Seqpacket);
        topology.connect(Some(Address::service(1, 1)), Patience::Forever).unwrap();
        topology.send(&subscription(1000, FOREVER, filter), None, Patience::Forever).unwrap();
        topology
    };
    let (ports, services) = (subscribed(PORTS), subscribed(SERVICES));
    let mut event = [0; 48];
    let mut next = |topology: &crossway_tipc_client::Socket| {
        assert_eq!(topology.recv(&mut event, soon()), Ok(48));
        (word(&event, 0), word(&event, 1), word(&event, 2), word(&event, 3))
    };
    let port = |n: usize| sockets[n].local_address().unwrap().port;
    for n in 0..2 {
        assert_eq!(next(&ports), (1, 1, 5, port(n)), "in the order of binding");
    }
    assert_eq!(next(&services).0, 1);
    sockets[0].unbind_all().unwrap();
    assert_eq!(next(&ports), (2, 1, 5, port(0)));
    sockets[1].unbind_all().unwrap();
    assert_eq!(next(&ports), (2, 1, 5, port(1)));
    // The withdrawal of the first and the publication of the second caused no event.
    assert_eq!(next(&services).0, 2);
}

#[test]
fn a_node_reports_its_own_state() {
    let site = Site::lone();
    let topology = site.socket(SocketKind::Seqpacket);
    topology.connect(Some(Address::service(1, 1)), Patience::Forever).unwrap();
    let own = topology.local_address().unwrap().node;
    topology.send(&subscription(0, 50, PORTS), None, Patience::Forever).unwrap();
    let mut event = [0; 48];
    assert_eq!(topology.recv(&mut event, soon()), Ok(48));
    // A node without an address does not appear, and the subscription ends with its timeout.
    if own != 0 {
        assert_eq!([word(&event, 0), word(&event, 1), word(&event, 3)], [1, own, 0]);
        assert_eq!(topology.recv(&mut event, soon()), Ok(48));
    }
    assert_eq!(word(&event, 0), 3);
}
