//! Two nodes of this process over real UDP sockets: they find each other, link up, share their names and part in good order.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crossway_tipc_node::{BearerSpec, Runner};
use crossway_tipc_proto::addr::{NetworkId, NodeAddr, NodeId, Scope, ServiceRange};
use crossway_tipc_proto::link::LinkDownReason;
use crossway_tipc_proto::node::{Config, Event};
use crossway_tipc_proto::socket::SocketKind;
use crossway_tipc_proto::time::Nanos;

/// Long enough for a busy machine; reached only when something is wrong.
const WATCHDOG: Duration = Duration::from_secs(30);

fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn runner(number: u32, own: u16, other: u16) -> Runner {
    let id = NodeId::from_text(&format!("node-{number}"));
    let addr = Some(NodeAddr(number));
    let mut runner = Runner::new(Config {
        id,
        addr,
        network: NetworkId(1),
        seed: number.into(),
        ..Config::default()
    });
    let spec: BearerSpec = format!("udp:127.0.0.1:{own},127.0.0.1:{other}").parse().unwrap();
    runner.enable(&spec, "udp0").unwrap();
    runner
}

/// Runs both nodes until one of `first` reports an event that is wanted.
fn run_until(first: &mut Runner, second: &mut Runner, what: &str, wanted: impl Fn(&Event) -> bool) {
    let start = Instant::now();
    loop {
        for runner in [&mut *second, &mut *first] {
            runner.turn(&[], Duration::from_millis(1)).unwrap();
        }
        while second.poll_event().is_some() {}
        while let Some(event) = first.poll_event() {
            if wanted(&event) {
                return;
            }
        }
        assert!(start.elapsed() < WATCHDOG, "{what} did not happen: {:?}", first.node());
    }
}

#[test]
fn nodes_link_up_share_names_and_part() {
    let (a, b) = (free_port(), free_port());
    let (mut one, mut two) = (runner(1, a, b), runner(2, b, a));
    let early = ServiceRange { service: 1000, lower: 5, upper: 9 };
    let port = one.node().open(SocketKind::Rdm).unwrap();
    one.node().bind(port, early, Scope::Cluster).unwrap();
    one.node().bind(port, ServiceRange::single(1001, 0), Scope::Node).unwrap();
    run_until(
        &mut two,
        &mut one,
        "a binding from before the link",
        |e| matches!(e, Event::Published(b) if b.range == early && b.socket.node == NodeAddr(1)),
    );
    let late = ServiceRange::single(1002, 3);
    one.node().bind(port, late, Scope::Cluster).unwrap();
    run_until(
        &mut two,
        &mut one,
        "a later binding",
        |e| matches!(e, Event::Published(b) if b.range == late),
    );
    assert!(
        two.node().names().iter().all(|b| b.range.service != 1001),
        "node scope stays on the node"
    );
    one.node().unbind(Nanos(0), port, Some((late, Scope::Cluster))).unwrap();
    run_until(
        &mut two,
        &mut one,
        "a withdrawal",
        |e| matches!(e, Event::Withdrawn(b) if b.range == late),
    );
    one.stop();
    run_until(&mut two, &mut one, "the end of the link", |e| {
        matches!(e, Event::LinkDown { reason: LinkDownReason::PeerStopping, .. })
    });
    assert_eq!(two.node().names().count_of(NodeAddr(1)), 0, "a lost node takes its bindings along");
}
