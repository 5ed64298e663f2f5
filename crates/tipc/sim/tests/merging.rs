//! Tests of the number of packets that small messages need. Messages that are queued until the medium accepts them
//! share packets, in order, and no message is delayed to share one.

use core::time::Duration;

use crossway_tipc_proto::addr::{BearerId, Importance, NodeAddr, Port, Scope, ServiceRange};
use crossway_tipc_proto::node::Node;
use crossway_tipc_proto::socket::{Address, SocketKind};
use crossway_tipc_sim::{HostId, Network};

const A: HostId = HostId(0);
const B: HostId = HostId(1);
const TO: Address = Address::Service { service: 700, instance: 0, domain: NodeAddr(0) };

/// Two nodes in contact, with two senders on the first node, and a bound receiver on the second.
fn pair() -> (Network, Port, [Port; 2]) {
    let mut net = Network::new(6, 2, 1500, Duration::from_millis(1500));
    net.start(A, false);
    net.start(B, false);
    net.run(Duration::from_secs(2));
    let open = |net: &mut Network, host| {
        net.with(host, |node, _| node.open(SocketKind::Rdm).unwrap()).unwrap()
    };
    let receiver = open(&mut net, B);
    let senders = [open(&mut net, A), open(&mut net, A)];
    net.with(B, |node, _| {
        node.bind(receiver, ServiceRange::single(700, 0), Scope::Cluster).unwrap();
    });
    net.run(Duration::from_millis(50));
    (net, receiver, senders)
}

/// Number of data packets that a node has sent.
fn packets(node: &mut Node) -> u64 {
    node.peers().flat_map(|peer| peer.links).map(|link| link.stats.packets_sent).sum()
}

/// Runs one turn of the sender and returns the number of packets that it passed to the medium.
fn sent(net: &mut Network, turn: impl FnOnce(&mut Node)) -> u64 {
    let count = net.with(A, |node, now| {
        let (before, mut frame) = (packets(node), Vec::new());
        turn(node);
        assert_eq!(
            packets(node),
            before,
            "a packet must not get its number before it is passed to the medium"
        );
        // A frame that is lost here is retransmitted like any other.
        while node.poll_transmit(now, &mut frame).is_some() {}
        packets(node) - before
    });
    net.run(Duration::from_millis(100));
    count.unwrap()
}

fn received(net: &mut Network, port: Port) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Ok(m) = net.with(B, |node, now| node.recv(now, port, 1 << 17)).unwrap() {
        all.push(m.payload);
    }
    all
}

#[test]
fn messages_of_one_turn_share_packets_and_keep_their_order() {
    let (mut net, receiver, senders) = pair();
    let now = net.with(A, |_, now| now).unwrap();
    let texts: Vec<Vec<u8>> = (0..100_u8).map(|n| vec![n; 64]).collect();
    let count = sent(&mut net, |node| {
        for (n, text) in texts.iter().enumerate() {
            node.send(now, senders[n % 2], Some(TO), text).unwrap();
        }
    });
    // A header of 40 bytes and 14 messages of 40 + 64 bytes each.
    assert_eq!(count, 8);
    assert_eq!(received(&mut net, receiver), texts, "messages of two senders must stay in order");
}

#[test]
fn a_lone_message_goes_as_it_is_and_at_once() {
    let (mut net, receiver, senders) = pair();
    for n in 0..5_u8 {
        let now = net.with(A, |_, now| now).unwrap();
        let count = sent(&mut net, |node| {
            node.send(now, senders[0], Some(TO), &[n; 64]).unwrap();
        });
        assert_eq!(count, 1);
        assert_eq!(received(&mut net, receiver), [[n; 64]]);
    }
}

#[test]
fn large_messages_between_small_ones_and_other_importances_keep_the_order() {
    let (mut net, receiver, senders) = pair();
    let now = net.with(A, |_, now| now).unwrap();
    let sizes = [64, 64, 1_400, 64, 5_000, 64, 64, 30_000, 64, 64, 64];
    let texts: Vec<Vec<u8>> =
        sizes.iter().enumerate().map(|(n, len)| vec![n as u8; *len]).collect();
    let count = sent(&mut net, |node| {
        for text in &texts {
            node.send(now, senders[0], Some(TO), text).unwrap();
        }
    });
    let pieces = |len: usize| (len + 40).div_ceil(1_460);
    // In packets: two small messages, the large one, one small message, its fragments, two, its fragments, three.
    assert_eq!(count, (5 + pieces(5_000) + pieces(30_000)) as u64);
    assert_eq!(received(&mut net, receiver), texts);

    let levels = [Importance::Low, Importance::High, Importance::Low];
    let count = sent(&mut net, |node| {
        for (n, importance) in levels.into_iter().enumerate() {
            let mut options = node.socket_report(senders[0]).unwrap().options;
            options.importance = importance;
            node.set_options(senders[0], options).unwrap();
            for part in 0..3 {
                node.send(now, senders[0], Some(TO), &[n as u8 * 3 + part; 64]).unwrap();
            }
        }
    });
    assert_eq!(count, 3, "all messages of a bundle have the same importance");
    let order: Vec<u8> = received(&mut net, receiver).iter().map(|text| text[0]).collect();
    assert_eq!(order, (0..9).collect::<Vec<u8>>());
}

#[test]
fn bindings_of_one_turn_share_a_broadcast() {
    let (mut net, _, senders) = pair();
    let before = net.with(A, |node, _| node.held_bytes()).unwrap();
    let broadcasts = net.with(A, |node, now| {
        for n in 0..10 {
            node.bind(senders[0], ServiceRange::single(800, n), Scope::Cluster).unwrap();
        }
        let (mut frame, mut count) = (Vec::new(), 0);
        while let Some(transmit) = node.poll_transmit(now, &mut frame) {
            assert_eq!(transmit.bearer, BearerId(0));
            count += 1;
        }
        count
    });
    assert_eq!(broadcasts, Some(1));
    net.run(Duration::from_secs(1));
    let known =
        net.with(B, |node, _| node.names().iter().filter(|b| b.range.service == 800).count());
    assert_eq!(known, Some(10), "all bindings must arrive although the frame was lost");
    assert!(
        net.with(A, |node, _| node.held_bytes()).unwrap() <= before,
        "the broadcasts must be acknowledged and released"
    );
}
