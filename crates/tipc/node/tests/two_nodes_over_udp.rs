//! Tests two nodes in this process over real UDP sockets: they discover each other, set up a link, exchange their names
//! and disconnect in an orderly way.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crossway_tipc_node::{BearerSpec, Runner};
use crossway_tipc_proto::addr::{
    BearerId, NetworkId, NodeAddr, NodeId, Scope, ServiceRange, SocketAddr,
};
use crossway_tipc_proto::link::LinkDownReason;
use crossway_tipc_proto::node::{Config, Event};
use crossway_tipc_proto::socket::{Address, SocketKind};
use crossway_tipc_proto::time::Nanos;

/// Time limit for a step, long enough for a busy machine. It is only reached if something is wrong.
const WATCHDOG: Duration = Duration::from_secs(120);

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
    })
    .unwrap();
    let spec: BearerSpec = format!("udp:127.0.0.1:{own},127.0.0.1:{other}").parse().unwrap();
    runner.enable(&spec, "udp0").unwrap();
    runner
}

/// Runs both nodes until `first` reports an event that matches.
fn run_until(first: &mut Runner, second: &mut Runner, what: &str, wanted: impl Fn(&Event) -> bool) {
    let start = Instant::now();
    loop {
        for runner in [&mut *second, &mut *first] {
            runner.turn(Duration::from_millis(1)).unwrap();
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
    assert_eq!(
        two.node().names().count_of(NodeAddr(1)),
        0,
        "the bindings of a lost node are removed"
    );
}

#[test]
fn two_links_carry_on_one_after_the_other() {
    let ports = [(); 4].map(|()| free_port());
    let (mut one, mut two) = (runner(11, ports[0], ports[1]), runner(12, ports[1], ports[0]));
    for (runner, own, other) in [(&mut one, ports[2], ports[3]), (&mut two, ports[3], ports[2])] {
        let spec: BearerSpec = format!("udp:127.0.0.1:{own},127.0.0.1:{other}").parse().unwrap();
        runner.enable(&spec, "udp1").unwrap();
    }
    let second = |e: &Event| matches!(e, Event::LinkUp { bearer, .. } if bearer.0 == 1);
    run_until(&mut two, &mut one, "the second link", second);
    assert_eq!(two.node().peers().next().map(|p| p.links.len()), Some(2));
    let now = Nanos(crossway_sys::clock::monotonic_ns());
    one.node().disable_bearer(now, BearerId(0)).unwrap();
    let contact = NodeAddr(11);
    run_until(&mut two, &mut one, "the loss of the first link", |e| {
        assert!(!matches!(e, Event::PeerDown { .. }), "contact was lost");
        matches!(e, Event::LinkDown { peer, bearer, .. } if *peer == contact && bearer.0 == 0)
    });
    let range = ServiceRange::single(1003, 0);
    let port = one.node().open(SocketKind::Rdm).unwrap();
    one.node().bind(port, range, Scope::Cluster).unwrap();
    run_until(
        &mut two,
        &mut one,
        "a binding over the other link",
        |e| matches!(e, Event::Published(b) if b.range == range),
    );
}

#[test]
fn many_frames_cost_few_system_calls() {
    let (a, b) = (free_port(), free_port());
    let (mut one, mut two) = (runner(3, a, b), runner(4, b, a));
    let range = ServiceRange::single(1000, 5);
    let receiver = two.node().open(SocketKind::Rdm).unwrap();
    two.node().bind(receiver, range, Scope::Cluster).unwrap();
    run_until(
        &mut one,
        &mut two,
        "the receiver's binding",
        |e| matches!(e, Event::Published(b) if b.range == range),
    );
    // Packets left over from link setup must not be counted.
    for _ in 0..10 {
        one.turn(Duration::from_millis(1)).unwrap();
        two.turn(Duration::from_millis(1)).unwrap();
    }
    let sender = one.node().open(SocketKind::Rdm).unwrap();
    let to = Address::Socket(SocketAddr { port: receiver, node: NodeAddr(4) });
    let now = Nanos(crossway_sys::clock::monotonic_ns());
    // Less than the smallest window, so all are sent at the same time. No two fit into a packet.
    for n in 0..40_u8 {
        one.node().send(now, sender, Some(to), &[n; 8_000]).unwrap();
    }
    let (out, into) = (one.traffic(BearerId(0)).unwrap(), two.traffic(BearerId(0)).unwrap());
    one.turn(Duration::ZERO).unwrap();
    two.turn(Duration::from_secs(10)).unwrap();
    let (out_after, into_after) =
        (one.traffic(BearerId(0)).unwrap(), two.traffic(BearerId(0)).unwrap());
    let frames = out_after.frames_sent - out.frames_sent;
    assert!((40..44).contains(&frames), "{out_after:?}");
    assert!(out_after.send_calls - out.send_calls <= 3, "{out:?} {out_after:?}");
    assert!(into_after.frames_received - into.frames_received >= 40, "{into_after:?}");
    assert!(into_after.receive_calls - into.receive_calls <= 2, "{into:?} {into_after:?}");
    assert_eq!((out_after.refused_calls, out_after.frames_unsent), (0, 0));
    for n in 0..40_u8 {
        assert_eq!(two.node().recv(now, receiver, 8_000).unwrap().payload, [n; 8_000]);
    }
    // Small messages share a packet.
    for n in 0..40_u8 {
        one.node().send(now, sender, Some(to), &[n; 64]).unwrap();
    }
    one.turn(Duration::ZERO).unwrap();
    two.turn(Duration::from_secs(10)).unwrap();
    let frames = one.traffic(BearerId(0)).unwrap().frames_sent - out_after.frames_sent;
    assert!((1..4).contains(&frames), "{frames}");
    for n in 0..40_u8 {
        assert_eq!(two.node().recv(now, receiver, 100).unwrap().payload, [n; 64]);
    }
}
