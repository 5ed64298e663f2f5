//! Faults that a frame causes.

use core::time::Duration;
use std::cell::RefCell;

use crossway_tipc_proto::addr::{BearerId, NodeAddr, Port, ServiceRange, SocketAddr};
use crossway_tipc_proto::drops::DropReason;
use crossway_tipc_proto::node::CAPABILITIES;
use crossway_tipc_proto::seq::Seq;
use crossway_tipc_proto::socket::{Address, GroupRequest, SocketError, SocketKind};
use crossway_tipc_proto::wire::{
    ConnManager, ConnManagerKind, Fragment, FragmentKind, GroupProtocol, GroupProtocolKind,
};

use crossway_tipc_sim::HostId;

use crate::{A, Attack, B, C, MARK, encoded, message};

/// Passes a frame to A as if it had arrived from anywhere, and checks that it answers with few frames.
fn inject(attack: &mut Attack, frame: &[u8]) {
    let before = attack.net.frames;
    attack.net.with(A, |node, now| node.handle_frame(now, BearerId(0), None, frame));
    assert!(attack.net.frames - before < 10, "{} answers", attack.net.frames - before);
}

/// CVE-2021-43267: a key message whose key is longer than the message; and encrypted frames, which concern CVE-2022-49017,
/// CVE-2024-40983, CVE-2025-38052 and CVE-2026-98805.
#[test]
fn keys_and_encrypted_frames_are_not_looked_at() {
    let mut attack = Attack::new();
    let before = attack.drops(DropReason::NotSpoken);
    let mut sent = 0;
    for key_len in [0_u32, 16, 36, 65_535, 66_000, 0x7fff_ffff, 0xffff_ffff] {
        for given in [0, 1, 16, 68, 4_000] {
            let mut body = b"gcm(aes)".to_vec();
            body.resize(32, 0);
            body.extend_from_slice(&key_len.to_be_bytes());
            body.resize(36 + given, 0xaa);
            let words = [(3, 0x1001), (6, 0x1001), (7, 0x1000)];
            inject(&mut attack, &message((14, 0), 40, &words, &body));
            sent += 1;
        }
    }
    assert_eq!(attack.drops(DropReason::NotSpoken), before + sent);
    let encrypted = attack.drops(DropReason::Encrypted);
    for len in [0, 3, 4, 19, 20, 24, 36, 60, 1_500] {
        let mut frame = vec![0xff; len];
        frame.iter_mut().take(1).for_each(|first| *first = 7 << 5);
        inject(&mut attack, &frame);
    }
    // Those with a whole header; the others are malformed.
    assert!(attack.drops(DropReason::Encrypted) >= encrypted + 4);
    attack.check();
}

thread_local! {
    /// The last message of B to A that was taken from the medium.
    static TAKEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn take(to: HostId, frame: &mut Vec<u8>) {
    if to == A && frame.windows(MARK.len()).any(|bytes| bytes == MARK) {
        TAKEN.set(core::mem::take(frame));
    }
}

/// CVE-2021-43267 once more: the key message arrives encrypted, and next in order.
#[test]
fn key_messages_end_where_their_message_ends() {
    let mut attack = Attack::new();
    attack.net.meddler = Some(take);
    let mut accepted = 0;
    for key_len in [0_u32, 16, 20, 28, 36, 65_535, 66_000, 0x7fff_ffff, 0xffff_ffff] {
        for given in [0, 1, 16, 20, 28, 36, 68, 4_000] {
            let mut body = b"gcm(aes)".to_vec();
            body.resize(32, 0);
            body.extend_from_slice(&key_len.to_be_bytes());
            body.resize(36 + given, 0xaa);
            let words = [(3, 0x1001), (4, 2), (6, 0x1001), (7, 0x1000)];
            attack.deliver(&message((14, 0), 40, &words, &body));
            let mut frame = TAKEN.take();
            let at = frame.windows(MARK.len()).position(|bytes| bytes == MARK).unwrap();
            let mut forged = frame.split_off(at + MARK.len());
            forged[6..16].copy_from_slice(&frame[6..16]);
            let before = attack.drops(DropReason::Malformed);
            let key = attack.net.with(A, |node, now| {
                node.handle_sealed(now, BearerId(0), None, &forged);
                node.poll_key()
            });
            let is_legal = key_len as usize == given && [20, 28, 36].contains(&given);
            assert_eq!(key.unwrap().is_some(), is_legal, "{key_len}, {given}");
            let refused = u64::from(!is_legal);
            assert_eq!(attack.drops(DropReason::Malformed), before + refused, "{key_len}, {given}");
            accepted += u64::from(is_legal);
        }
    }
    assert_eq!(accepted, 3);
    attack.net.meddler = None;
    attack.check();
}

/// CVE-2022-0435 and CVE-2022-48711: domain records with more members than a domain can have.
#[test]
fn records_of_too_many_members_are_dropped() {
    let mut attack = Attack::new();
    for count in [65_u16, 462, 2_000, 65_535] {
        for claimed in [16 + 4 * u32::from(count), 16, 0, 65_535] {
            let given = usize::from(count).min(2_000);
            let mut body = vec![0, 4, 0, 0];
            body.extend_from_slice(&(claimed as u16).to_be_bytes());
            body.extend_from_slice(&[0, 1, 0, 0]);
            body.extend_from_slice(&count.to_be_bytes());
            body.extend_from_slice(&[0xff; 8]);
            body.extend((0..given).flat_map(|n| (0x2000 + n as u32).to_be_bytes()));
            let before = attack.drops(DropReason::BadMonitorRecord);
            attack.supervise(&body, Duration::from_millis(800));
            assert!(attack.drops(DropReason::BadMonitorRecord) > before, "{count}, {claimed}");
        }
    }
    attack.check();
}

/// CVE-2026-64450: a gap-ack record that claims more blocks than the message contains, in the supervision of the unicast
/// link and in a message of the broadcast link's protocol.
#[test]
fn acknowledgements_end_where_their_message_ends() {
    let mut attack = Attack::new();
    for (claimed, unicast, broadcast, given) in [
        (2_044_u16, 255, 255, 0),
        (1_024, 0, 255, 1),
        (4, 255, 255, 8),
        (3, 0, 0, 0),
        (65_535, 1, 1, 9),
    ] {
        let mut body = claimed.to_be_bytes().to_vec();
        body.extend_from_slice(&[unicast, broadcast]);
        body.extend(std::iter::repeat_n([0, 1, 0xff, 0xff], given).flatten());
        attack.supervise(&body, Duration::from_millis(800));
        let words = [(6, 0x1001), (7, 0x1000), (8, 0x3ff)];
        attack.deliver(&message((5, 0), 40, &words, &body));
        attack.deliver(&message((5, 1), 40, &words, &body));
    }
    attack.check();
}

/// CVE-2023-1390 and CVE-2023-53517: two small datagrams, discovery and an ACTIVATE with a tiny packet size.
#[test]
fn a_tiny_packet_size_makes_no_link() {
    let mut attack = Attack::new();
    let mut announced = Vec::new();
    crossway_tipc_proto::wire::Discovery {
        kind: crossway_tipc_proto::wire::DiscoveryKind::Request,
        capabilities: CAPABILITIES,
        signature: 1,
        domain: NodeAddr(0),
        sender: NodeAddr(0x666),
        network: Default::default(),
        media: crossway_tipc_proto::addr::MediaAddr::Ethernet([2, 6, 6, 6, 6, 6]),
        net_hash: 0,
        id: crossway_tipc_proto::addr::NodeId([6; 16]),
    }
    .encode(&mut announced);
    inject(&mut attack, &announced);
    let before = attack.drops(DropReason::MtuTooSmall);
    let mut sent = 0;
    for kind in [1, 2] {
        for size in [0_u32, 1, 4, 40, 60, 124] {
            let words = [(3, 0x666), (5, 77 << 16), (6, 0x666), (7, 0x1000), (9, (size / 4) << 16)];
            inject(&mut attack, &message((7, kind), 40, &words, b"evil\0\0\0\0\0\0\0\0\0\0\0\0"));
            sent += 1;
        }
    }
    assert_eq!(attack.drops(DropReason::MtuTooSmall), before + sent);
    let up = attack.net.with(A, |node, _| node.peers().filter(|peer| peer.up).count());
    assert_eq!(up, Some(2));
    attack.check();
}

/// CVE-2024-36886, CVE-2024-36954 and CVE-2021-47162: fragments without a first one, several first ones, too many, and
/// with a whole message that lies about its length.
#[test]
fn fragments_out_of_order_are_dropped_and_hold_no_memory() {
    let mut attack = Attack::new();
    let inner = |size: u32| {
        let mut whole = message((0, 3), 32, &[(6, 0x1001), (7, 0x1000)], &[7; 4_000]);
        let word = u32::from_be_bytes([whole[0], whole[1], whole[2], whole[3]]);
        whole[..4].copy_from_slice(&(word & !0x1_ffff | size).to_be_bytes());
        whole
    };
    let part = |kind, number, body: &[u8]| {
        let dest = NodeAddr(0x1000);
        encoded(|link, out| Fragment { kind, dest, number, importance: 0, body }.encode(link, out))
    };
    let (first, middle, last) = (FragmentKind::First, FragmentKind::Middle, FragmentKind::Last);
    let sequences: Vec<Vec<Vec<u8>>> = vec![
        vec![part(last, 2, &[1; 100])],
        vec![part(middle, 1, &[1; 100]), part(last, 2, &[1; 100])],
        vec![
            part(first, 1, &inner(66_060)),
            part(first, 1, &inner(66_060)),
            part(last, 2, &[1; 9]),
        ],
        vec![part(first, 1, &inner(131_071)), part(last, 2, &[1; 100])],
        vec![part(first, 1, &inner(10)), part(last, 2, &[1; 100])],
        vec![part(first, 1, &[0]), part(last, 2, &[1; 100])],
        (0..60).map(|n| part(if n == 0 { first } else { middle }, n, &inner(66_060))).collect(),
        (0..500).map(|_| part(first, 1, &inner(66_060))).collect(),
    ];
    for sequence in sequences {
        for fragment in sequence {
            attack.deliver(&fragment);
            let held = attack.net.with(A, |node, _| node.held_bytes()).unwrap();
            assert!(held < 256 << 10, "{held} bytes are held");
        }
    }
    assert!(attack.drops(DropReason::BadFragment) + attack.drops(DropReason::Malformed) > 5);
    attack.check();
}

/// CVE-2024-42284: discovery with a media address that no medium has.
#[test]
fn media_addresses_that_do_not_exist_are_refused() {
    let mut attack = Attack::new();
    let count = |attack: &mut Attack| {
        attack.drops(DropReason::Malformed) + attack.drops(DropReason::BadMediaAddress)
    };
    let before = count(&mut attack);
    let mut sent = 0;
    for medium in [0_u8, 1, 2, 3, 4, 255] {
        for protocol in [0_u16, 0x0800, 0x86dd, 0x1234, 0xffff] {
            let mut block = [0xff; 32];
            (block[..4]).copy_from_slice(&[0, 0, 0, medium]);
            block[4..6].copy_from_slice(&protocol.to_be_bytes());
            let words = [(1, 0xfff << 15), (3, 0x666), (4, 4711)];
            let mut frame = message((13, 0), 60, &words, &[6; 16]);
            frame[1] |= 0x10;
            frame[20..52].copy_from_slice(&block);
            inject(&mut attack, &frame);
            // As an Ethernet address, all of them but those with a group bit are one.
            sent += u64::from(medium != 1 || block[4] & 1 == 1);
        }
    }
    assert_eq!(count(&mut attack), before + sent);
    attack.check();
}

/// CVE-2026-31662 and the later fix of the same counter: acknowledgements of group broadcasts that come twice, too early,
/// or without a broadcast.
#[test]
fn group_acknowledgements_are_counted_once() {
    let mut attack = Attack::new();
    let ports: Vec<Port> = [A, B, C]
        .map(|host| {
            let port = attack.net.with(host, |node, now| {
                let port = node.open(SocketKind::Rdm).unwrap();
                let scope = Default::default();
                let request = GroupRequest {
                    group: 5_000,
                    instance: 1,
                    scope,
                    loopback: false,
                    events: false,
                };
                node.join(now, port, request).unwrap();
                port
            });
            attack.net.run(Duration::from_millis(200));
            port.unwrap()
        })
        .to_vec();
    let (orig, dest) = (
        SocketAddr { port: ports[1], node: NodeAddr(0x1001) },
        SocketAddr { port: ports[0], node: NodeAddr(0x1000) },
    );
    let acks = |attack: &mut Attack| {
        for next in [0, 1, 1, 1, 2, 2, 5, 100, 0x7fff, 0x8000, 0xffff, 0xffff, 3, 0] {
            let kind = GroupProtocolKind::Ack { next: Seq(next) };
            attack.deliver(&encoded(|link, out| {
                GroupProtocol { kind, orig, dest }.encode(link, out)
            }));
        }
    };
    // On a quiet group, and between broadcasts.
    acks(&mut attack);
    for round in 0..40_u8 {
        let mut send = |dest| loop {
            let sent = attack.net.with(A, |node, now| node.send(now, ports[0], dest, &[round]));
            match sent.unwrap() {
                Ok(_) => break,
                Err(SocketError::WouldBlock) => attack.net.run(Duration::from_millis(10)),
                Err(error) => panic!("round {round}: {error}"),
            }
        };
        send(None);
        // A copy to each member asks the next broadcast to be acknowledged.
        send(Some(Address::Service { service: 5_000, instance: 1, domain: NodeAddr(0) }));
        if round % 8 == 3 {
            acks(&mut attack);
        }
        attack.net.run(Duration::from_millis(20));
        for (host, port) in [(B, ports[1]), (C, ports[2])] {
            let mut got = 0;
            while attack.net.with(host, |node, now| node.recv(now, port, 10)).unwrap().is_ok() {
                got += 1;
            }
            assert!(got >= 1, "round {round}: a broadcast is missing at {host:?}");
        }
    }
    attack.check();
}

/// CVE-2026-74282: an acknowledgement of more messages than a connection has sent.
#[test]
fn a_connection_outlives_acknowledgements_of_what_was_never_sent() {
    let mut attack = Attack::new();
    let dest = Address::Service { service: 7_100, instance: 1, domain: NodeAddr(0) };
    let server = attack.net.with(B, |node, _| {
        let port = node.open(SocketKind::Seqpacket).unwrap();
        node.listen(port).unwrap();
        node.bind(port, ServiceRange::single(7_100, 1), Default::default()).unwrap();
        port
    });
    attack.net.run(Duration::from_millis(200));
    let client = attack.net.with(A, |node, now| {
        let port = node.open(SocketKind::Seqpacket).unwrap();
        assert_eq!(node.connect(now, port, Some(dest), &[]), Err(SocketError::InProgress));
        port
    });
    let (server, client) = (server.unwrap(), client.unwrap());
    attack.net.run(Duration::from_millis(50));
    let (accepted, _) = attack.net.with(B, |node, now| node.accept(now, server)).unwrap().unwrap();
    attack.net.run(Duration::from_millis(50));
    let ends = (
        SocketAddr { port: accepted, node: NodeAddr(0x1001) },
        SocketAddr { port: client, node: NodeAddr(0x1000) },
    );
    let mut received = 0;
    for round in 0..20 {
        // The window stays the peer's to choose: with 0 it would only harm its own connection.
        for (blocks, window) in [(0, 0), (1, 1), (200, 512), (65_535, 1), (65_535, 65_535)] {
            let kind = ConnManagerKind::Ack { blocks, window, nagle: round % 2 == 1 };
            let manage = ConnManager { kind, orig: ends.0, dest: ends.1, ..ConnManager::default() };
            attack.deliver(&encoded(|link, out| manage.encode(link, out)));
        }
        for _ in 0..20 {
            let sent = attack.net.with(A, |node, now| node.send(now, client, None, &[1; 1_000]));
            match sent.unwrap() {
                Ok(_) => {}
                Err(SocketError::WouldBlock) => break,
                Err(error) => panic!("{error}"),
            }
        }
        attack.net.run(Duration::from_millis(50));
        let before = received;
        while attack.net.with(B, |node, now| node.recv(now, accepted, 2_000)).unwrap().is_ok() {
            received += 1;
        }
        attack.net.run(Duration::from_millis(50));
        assert!(received > before, "round {round}: nothing can be sent any more");
    }
    attack.check();
}
