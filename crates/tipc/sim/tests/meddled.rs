//! Tests of guarantees that can be tested only if frames are modified in transit, or selected frames are dropped.

use core::time::Duration;

use crossway_tipc_proto::addr::{BearerId, NodeAddr, Port, Scope, ServiceRange};
use crossway_tipc_proto::drops::DropReason;
use crossway_tipc_proto::limits::HELD_BYTES_MAX;
use crossway_tipc_proto::link::LinkDownReason;
use crossway_tipc_proto::node::Event;
use crossway_tipc_proto::socket::{Address, MulticastMethod, SocketError, SocketKind};
use crossway_tipc_sim::{HostId, Network, Plane};

const A: HostId = HostId(0);
const B: HostId = HostId(1);
const RANGE: ServiceRange = ServiceRange { service: 1000, lower: 0, upper: 9 };
const SERVICE: Address = Address::Service { service: 1000, instance: 7, domain: NodeAddr(0) };

/// Two nodes in contact, each with a socket. The second node's socket is bound.
fn pair(kind: SocketKind) -> (Network, Port, Port) {
    let mut net = Network::new(1, 2, 1500, Duration::from_millis(1500));
    net.start(A, false);
    net.start(B, false);
    net.run(Duration::from_secs(2));
    let client = net.with(A, |node, _| node.open(kind)).unwrap().unwrap();
    let server = net.with(B, |node, _| {
        let port = node.open(kind).unwrap();
        node.bind(port, RANGE, Scope::Cluster).unwrap();
        port
    });
    net.run(Duration::from_millis(100));
    net.take_events();
    (net, client, server.unwrap())
}

fn user(frame: &[u8]) -> u8 {
    frame[0] >> 1 & 15
}

/// Whether the frame is a data message sent by broadcast, which the unicast link does not retransmit.
fn is_broadcast(frame: &[u8]) -> bool {
    frame[1] & 0x10 != 0 && user(frame) < 4
}

fn drops(net: &mut Network, host: HostId, reason: DropReason) -> u64 {
    net.with(host, |node, _| node.drops().get(reason)).unwrap()
}

/// Makes a socket send a multicast over the broadcast link.
fn broadcast(net: &mut Network, port: Port, text: &[u8]) {
    net.with(A, |node, now| {
        let mut options = node.socket_report(port).unwrap().options;
        options.multicast = MulticastMethod::Broadcast;
        node.set_options(port, options).unwrap();
        node.send(now, port, Some(Address::Range(RANGE)), text).unwrap();
    });
}

#[test]
fn a_connection_whose_peer_answers_no_probe_is_ended() {
    let (mut net, client, server) = pair(SocketKind::Stream);
    net.with(B, |node, _| node.listen(server)).unwrap().unwrap();
    net.with(A, |node, now| node.connect(now, client, Some(SERVICE), &[])).unwrap().unwrap_err();
    net.run(Duration::from_millis(50));
    let (accepted, _) = net.with(B, |node, now| node.accept(now, server)).unwrap().unwrap();
    net.run(Duration::from_millis(50));
    assert!(!net.with(A, |node, _| node.readiness(client)).unwrap().unwrap().hangup);
    // No intelligible message about connections arrives.
    net.meddler = Some(|_, frame| {
        if user(frame) == 8 {
            frame[4] |= 5 << 5;
        }
    });
    let hangups = |net: &mut Network| {
        let ours = net.with(A, |node, _| node.readiness(client)).unwrap().unwrap().hangup;
        (ours, net.with(B, |node, _| node.readiness(accepted)).unwrap().unwrap().hangup)
    };
    net.run(Duration::from_secs(2 * 3_600 - 60));
    assert_eq!(hangups(&mut net), (false, false));
    net.run(Duration::from_secs(120));
    assert_eq!(hangups(&mut net), (true, true));
}

#[test]
fn a_broadcast_of_another_network_is_not_heard() {
    let (mut net, client, server) = pair(SocketKind::Rdm);
    net.meddler = Some(|_, frame| {
        if is_broadcast(frame) {
            frame[20..24].copy_from_slice(&4712u32.to_be_bytes());
        }
    });
    let before = drops(&mut net, B, DropReason::WrongNetwork);
    broadcast(&mut net, client, b"x");
    net.run(Duration::from_micros(100));
    assert_eq!(drops(&mut net, B, DropReason::WrongNetwork), before + 1);
    let got = net.with(B, |node, now| node.recv(now, server, 10)).unwrap();
    assert_eq!(got.unwrap_err(), SocketError::WouldBlock);
}

#[test]
fn a_peer_that_never_gets_a_broadcast_is_given_up_and_found_again() {
    let (mut net, client, _) = pair(SocketKind::Rdm);
    net.meddler = Some(|to, frame| {
        if to == B && user(frame) < 4 && frame.ends_with(b"never") {
            frame.clear();
        }
    });
    broadcast(&mut net, client, b"never");
    net.run(Duration::from_secs(14));
    assert!(net.take_events().iter().all(|(_, e)| !matches!(e, Event::PeerDown { .. })));
    net.run(Duration::from_secs(6));
    let events = net.take_events();
    let gave_up = |(at, e): &(HostId, Event)| {
        *at == A && matches!(e, Event::LinkDown { reason: LinkDownReason::ResendFailed, .. })
    };
    assert!(events.iter().any(gave_up), "{events:?}");
    assert!(
        events.iter().any(|(at, e)| *at == A && matches!(e, Event::PeerUp { .. })),
        "{events:?}"
    );
}

#[test]
fn a_message_that_was_sent_on_once_is_not_sent_on_again() {
    for (already, delivered) in [(0, true), (1, false)] {
        let (mut net, client, server) = pair(SocketKind::Rdm);
        // A name that the sender leaves to this node to look up.
        let there = Address::Service { service: 1000, instance: 7, domain: net.addr(B) };
        if already == 1 {
            net.meddler = Some(|_, frame| {
                if user(frame) < 4 && frame.ends_with(b"sent on") {
                    // Bits 21 to 24 of the second word count the reroutes.
                    frame[5] |= 0x20;
                }
            });
        }
        net.with(A, |node, now| node.send(now, client, Some(there), b"sent on")).unwrap().unwrap();
        net.run(Duration::from_millis(50));
        let got = net.with(B, |node, now| node.recv(now, server, 10)).unwrap();
        assert_eq!(got.is_ok(), delivered, "{already}: {got:?}");
    }
}

/// Changes the first message on a new link: it announces one more packet in flight on the old link, as if the sender
/// used the new link without waiting.
fn impatient(to: HostId, frame: &mut [u8]) {
    const TUNNEL: u8 = 10;
    const SYNCH: u8 = 0;
    if to == B && user(frame) == TUNNEL && frame[4] >> 5 == SYNCH {
        let point = u16::from_be_bytes([frame[36], frame[37]]);
        frame[36..38].copy_from_slice(&(point + 1).to_be_bytes());
    }
}

/// Two nodes whose second link has just come up, and whose sender appears not to wait. Also returns two ports of the
/// first node, one for each link, and a bound port of the second node.
fn two_links_of_an_impatient_sender() -> (Network, [Port; 2], Port) {
    let planes = [Plane { mtu: 1500, priority: 10 }; 2];
    let mut net = Network::with_planes(7, 2, &planes, Duration::from_millis(500));
    net.start(A, false);
    net.start(B, false);
    net.conditions.dead_paths = vec![(1, A, B), (1, B, A)];
    net.run(Duration::from_secs(3));
    let server = net.with(B, |node, _| {
        let port = node.open(SocketKind::Rdm).unwrap();
        node.bind(port, RANGE, Scope::Cluster).unwrap();
        port
    });
    // Each half of the ports has a link of its own.
    let mut of_half = |half: u32| {
        let mut open = || net.with(A, |node, _| node.open(SocketKind::Rdm)).unwrap().unwrap();
        std::iter::repeat_with(&mut open).find(|port| port.0 & 1 == half).unwrap()
    };
    let ports = [of_half(0), of_half(1)];
    net.run(Duration::from_secs(1));
    net.conditions.dead_paths.clear();
    net.meddler = Some(|to, frame| impatient(to, frame));
    for host in [A, B] {
        net.with(host, |node, now| node.medium_back(now, BearerId(1)));
    }
    net.run(Duration::from_millis(20));
    let links = net.with(A, |node, _| node.peers().next().unwrap().links).unwrap();
    assert!(links.iter().all(|link| link.active) && links.len() == 2, "{links:?}");
    net.take_events();
    (net, ports, server.unwrap())
}

/// A receiver does not rely on the sender to wait: packets on the new link wait at the receiver for those sent earlier
/// on the old link.
#[test]
fn what_an_impatient_sender_sends_on_a_new_link_waits_at_the_receiver() {
    let (mut net, ports, server) = two_links_of_an_impatient_sender();
    let got = |net: &mut Network| {
        net.with(B, |node, now| node.recv(now, server, 10)).unwrap().map(|m| m.payload)
    };
    for (port, text) in [(ports[1], b"late"), (ports[0], b"soon")] {
        assert_eq!(got(&mut net), Err(SocketError::WouldBlock));
        net.with(A, |node, now| node.send(now, port, Some(SERVICE), text)).unwrap().unwrap();
        net.run(Duration::from_millis(20));
    }
    assert_eq!(got(&mut net), Ok(b"soon".to_vec()));
    assert_eq!(got(&mut net), Ok(b"late".to_vec()));
}

/// The number of packets held back is limited: a peer that does not send what it announced loses contact.
#[test]
fn what_waits_at_the_receiver_for_another_link_is_bounded() {
    let (mut net, ports, _) = two_links_of_an_impatient_sender();
    let (mut down, mut most) = (None, 0);
    for _ in 0..2 * HELD_BYTES_MAX / 60_000 {
        net.with(A, |node, now| node.send(now, ports[1], Some(SERVICE), &[7; 60_000]));
        net.run(Duration::from_millis(2));
        most = most.max(net.with(B, |node, _| node.held_bytes()).unwrap());
        down = net.take_events().into_iter().find_map(|(host, event)| match event {
            Event::LinkDown { reason, .. } if host == B => Some(reason),
            _ => None,
        });
        if down.is_some() {
            break;
        }
    }
    assert_eq!(down, Some(LinkDownReason::Overrun));
    assert!((HELD_BYTES_MAX / 2..HELD_BYTES_MAX + (1 << 20)).contains(&most), "{most}");
}
