//! Tests of a medium that sends large packets as fragments, as UDP over IPv4 does. Losses must not fill the peer's
//! reassembly memory, and a link must work even if the medium carries no fragments.

use core::time::Duration;

use crossway_tipc_proto::addr::{NodeAddr, Port, Scope, ServiceRange};
use crossway_tipc_proto::link::LinkDownReason;
use crossway_tipc_proto::node::Event;
use crossway_tipc_proto::socket::{Address, MulticastMethod, SocketError, SocketKind};
use crossway_tipc_proto::wire::ErrorCode;
use crossway_tipc_sim::{Conditions, Fragmentation, HostId, Network};

const A: HostId = HostId(0);
const B: HostId = HostId(1);
const KINDS: [SocketKind; 2] = [SocketKind::Seqpacket, SocketKind::Stream];
const MESSAGE: usize = 1_000;

/// Starts `hosts` nodes that are in contact, on a medium that divides packets as `rules` say.
fn cluster(seed: u64, hosts: usize, rules: Fragmentation) -> Network {
    let mut net = Network::new(seed, hosts, 14_000, Duration::from_millis(1_500));
    net.fragmentation = Some(rules);
    (0..hosts).for_each(|host| net.start(HostId(host), false));
    net.run(Duration::from_secs(5));
    net
}

/// The reasons why links went down since the last call.
fn downs(net: &mut Network) -> Vec<LinkDownReason> {
    let down = |(_, event)| match event {
        Event::LinkDown { reason, .. } => Some(reason),
        _ => None,
    };
    net.take_events().into_iter().filter_map(down).collect()
}

/// A connection from A to B.
fn connected(net: &mut Network, kind: SocketKind, instance: u32) -> (Port, Port) {
    let listener = net.with(B, |node, _| {
        let port = node.open(kind).unwrap();
        node.listen(port).unwrap();
        node.bind(port, ServiceRange::single(1000, instance), Scope::Cluster).unwrap();
        port
    });
    net.run(Duration::from_secs(2));
    let dest = Address::Service { service: 1000, instance, domain: NodeAddr(0) };
    let client = net.with(A, |node, now| {
        let port = node.open(kind).unwrap();
        assert_eq!(node.connect(now, port, Some(dest), &[]), Err(SocketError::InProgress));
        port
    });
    net.run(Duration::from_secs(2));
    let (server, _) =
        net.with(B, |node, now| node.accept(now, listener.unwrap())).unwrap().unwrap();
    // The client learns of the acceptance.
    net.run(Duration::from_secs(1));
    (client.unwrap(), server)
}

/// How the connection ended for its receiver, with the number of bytes received until then.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Orderly(usize),
    Reset(usize),
}

/// Sends this number of bytes from A as fast as possible, shuts the connection down and closes the socket, while B
/// reads everything.
fn send_and_end(net: &mut Network, (client, server): (Port, Port), bytes: usize) -> End {
    let (mut sent, mut received, mut closed) = (0, 0, false);
    for _ in 0..600_000 {
        while sent < bytes {
            let payload = &[5; MESSAGE][..MESSAGE.min(bytes - sent)];
            match net.with(A, |node, now| node.send(now, client, None, payload)).unwrap() {
                Ok(taken) => sent += taken,
                Err(SocketError::WouldBlock) => break,
                Err(_) => sent = bytes,
            }
        }
        if sent >= bytes && !closed {
            closed = true;
            net.with(A, |node, now| {
                let _ = node.shutdown(now, client);
                node.close(now, client).unwrap();
            });
        }
        loop {
            match net.with(B, |node, now| node.recv(now, server, 66_000)).unwrap() {
                Ok(m) if m.error == ErrorCode::Ok => received += m.payload.len(),
                Ok(m) => {
                    assert_eq!(m.error, ErrorCode::ConnShutdown);
                    return End::Orderly(received);
                }
                Err(SocketError::ConnectionReset) => return End::Reset(received),
                Err(SocketError::WouldBlock) => break,
                Err(error) => panic!("{error}"),
            }
        }
        net.run(Duration::from_micros(200));
    }
    panic!("the connection did not end after {received} of {bytes} bytes");
}

#[test]
fn connections_on_a_medium_that_loses_fragments_end_in_good_order() {
    for (seed, kind) in (0..10).zip(KINDS.into_iter().cycle()) {
        let mut net = cluster(seed, 2, Fragmentation::LINUX);
        let ends = connected(&mut net, kind, 1);
        net.take_events();
        net.conditions =
            Conditions { loss_per_mille: 20, duplicate_per_mille: 10, ..Conditions::default() };
        // With packets of 14,000 bytes, a sixth of which are lost, the memory would be full after 16 MB.
        let bytes = 24_000 * MESSAGE;
        assert_eq!(send_and_end(&mut net, ends, bytes), End::Orderly(bytes), "{kind:?}");
        assert_eq!(downs(&mut net), [], "{kind:?}");
    }
}

#[test]
fn a_link_whose_fragments_are_dropped_returns_with_packets_that_arrive() {
    let dropped = Fragmentation { memory_bytes: 0, ..Fragmentation::LINUX };
    for kind in KINDS {
        let mut net = cluster(1, 2, dropped);
        let ends = connected(&mut net, kind, 1);
        net.take_events();
        let bytes = 4_000 * MESSAGE;
        assert!(matches!(send_and_end(&mut net, ends, bytes), End::Reset(_)), "{kind:?}");
        net.run(Duration::from_secs(10));
        let reasons = downs(&mut net);
        assert_eq!(reasons.len(), 2, "{reasons:?}");
        assert!(reasons.contains(&LinkDownReason::FragmentsLost), "{reasons:?}");
        for host in [A, B] {
            let mtu = net.with(host, |node, _| node.peers().next().unwrap().links[0].mtu);
            assert_eq!(mtu, Some(Fragmentation::LINUX.whole_max));
        }
        let ends = connected(&mut net, kind, 2);
        assert_eq!(send_and_end(&mut net, ends, bytes), End::Orderly(bytes), "{kind:?}");
        assert_eq!(downs(&mut net), [], "{kind:?}");
    }
}

#[test]
fn broadcasts_whose_fragments_are_dropped_are_followed_by_ones_that_arrive() {
    let mut net = cluster(1, 3, Fragmentation { memory_bytes: 0, ..Fragmentation::LINUX });
    let receivers = [1, 2].map(|host| {
        let port = net.with(HostId(host), |node, _| {
            let port = node.open(SocketKind::Rdm).unwrap();
            node.bind(port, ServiceRange::single(1000, host as u32), Scope::Cluster).unwrap();
            port
        });
        (HostId(host), port.unwrap())
    });
    net.run(Duration::from_secs(1));
    let range = ServiceRange { service: 1000, lower: 0, upper: 9 };
    let sender = net.with(A, |node, _| {
        let port = node.open(SocketKind::Rdm).unwrap();
        let mut options = node.socket_report(port).unwrap().options;
        options.multicast = MulticastMethod::Broadcast;
        node.set_options(port, options).unwrap();
        port
    });
    net.take_events();
    for payload in [[1; 10_000], [2; 10_000]] {
        let sent = net.with(A, |node, now| {
            node.send(now, sender.unwrap(), Some(Address::Range(range)), &payload)
        });
        assert_eq!(sent, Some(Ok(10_000)));
        net.run(Duration::from_secs(60));
    }
    let reasons = downs(&mut net);
    assert!(reasons.contains(&LinkDownReason::FragmentsLost), "{reasons:?}");
    for (host, port) in receivers {
        let mut received = net.with(host, |node, now| {
            core::iter::from_fn(|| node.recv(now, port, 66_000).ok()).collect::<Vec<_>>()
        });
        let last = received.as_mut().and_then(Vec::pop).map(|m| m.payload == [2; 10_000]);
        assert_eq!(last, Some(true), "{host:?}");
        assert_eq!(
            received.map(|m| m.len()),
            Some(0),
            "the first message was lost together with the contact"
        );
    }
}
