//! Tests of sockets as an application sees them: messages, connections, ends and refusals, between two nodes and within
//! one node.

mod connections;
mod messages;

use core::time::Duration;

use crossway_tipc_proto::addr::{Importance, NodeAddr, Port, Scope, ServiceRange};
use crossway_tipc_proto::socket::{Address, Readiness, Received, SocketError, SocketKind};
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
    assert_eq!(
        report.options.importance,
        Importance::High,
        "an accepted socket inherits the listener's importance"
    );
}
