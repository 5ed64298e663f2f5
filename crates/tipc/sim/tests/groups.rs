//! Tests of groups between nodes and within one node: membership events, reachability and flow control.

use core::time::Duration;

use crossway_tipc_proto::addr::{Scope, ServiceRange, SocketAddr};
use crossway_tipc_proto::drops::DropReason;
use crossway_tipc_proto::socket::{
    Address, GroupRequest, MembershipEvent, SocketError, SocketKind,
};
use crossway_tipc_sim::{HostId, Network};

// Each of the group tests needs a part of it.
#[allow(dead_code, unreachable_pub)]
mod members;

use members::{
    GROUP, any_of, cluster, join, news, recv, request, send, texts, to_instance, try_send,
};

#[test]
fn members_on_one_node_and_on_others_learn_of_each_other() {
    let mut net = cluster(1, 3);
    let a = join(&mut net, 0, request(1));
    let b = join(&mut net, 0, request(2));
    let c = join(&mut net, 1, request(2));
    let quiet = join(&mut net, 2, GroupRequest { events: false, ..request(3) });
    for m in [a, b, c] {
        let mut expected: Vec<_> = [a, b, c, quiet]
            .iter()
            .filter(|other| **other != m)
            .map(|other| (other.addr(&net), other.instance, MembershipEvent::Joined))
            .collect();
        expected.sort();
        assert_eq!(news(&mut net, m), expected);
    }
    assert!(recv(&mut net, quiet).is_none());
    net.with(b.host, |node, now| node.leave(now, b.port)).unwrap().unwrap();
    net.run(Duration::from_millis(50));
    net.with(c.host, |node, now| node.close(now, c.port)).unwrap().unwrap();
    net.run(Duration::from_millis(50));
    net.crash(HostId(2));
    net.run(Duration::from_secs(5));
    let mut gone: Vec<_> =
        [b, c, quiet].iter().map(|m| (m.addr(&net), m.instance, MembershipEvent::Left)).collect();
    gone.sort();
    assert_eq!(news(&mut net, a), gone);
    assert_eq!(send(&mut net, a, None, b"alone"), Err(SocketError::Unreachable));
    // The socket that left is an ordinary one again, and may rejoin.
    assert_eq!(send(&mut net, b, None, b"x"), Err(SocketError::NoDestination));
    net.with(b.host, |node, now| node.join(now, b.port, request(9))).unwrap().unwrap();
    net.run(Duration::from_millis(50));
    assert_eq!(news(&mut net, a), [(b.addr(&net), 9, MembershipEvent::Joined)]);
}

#[test]
fn the_four_ways_to_address_a_group() {
    let mut net = cluster(2, 3);
    let a = join(&mut net, 0, GroupRequest { loopback: true, ..request(1) });
    let b = join(&mut net, 0, request(2));
    let c = join(&mut net, 1, request(2));
    let d = join(&mut net, 2, request(3));
    let all = [a, b, c, d];
    all.iter().for_each(|m| drop(news(&mut net, *m)));
    let counts = |net: &mut Network| all.map(|m| texts(net, m).len());
    assert_eq!(send(&mut net, a, None, b"all"), Ok(3));
    assert_eq!(counts(&mut net), [1, 1, 1, 1], "member a receives its own broadcast");
    assert_eq!(send(&mut net, b, None, b"all"), Ok(3));
    assert_eq!(counts(&mut net), [1, 0, 1, 1]);
    assert_eq!(send(&mut net, d, to_instance(2), b"two"), Ok(3));
    assert_eq!(counts(&mut net), [0, 1, 1, 0]);
    assert_eq!(send(&mut net, c, to_instance(2), b"one"), Ok(3));
    assert_eq!(
        counts(&mut net),
        [0, 1, 0, 0],
        "only the other member with this instance receives the message"
    );
    let b_itself = Some(Address::Socket(b.addr(&net)));
    assert_eq!(send(&mut net, d, b_itself, b"you"), Ok(3));
    assert_eq!(counts(&mut net), [0, 1, 0, 0]);
    for _ in 0..3 {
        for expected in [[0, 1, 0, 0], [0, 0, 1, 0]] {
            assert_eq!(send(&mut net, d, any_of(2), b"any"), Ok(3));
            assert_eq!(counts(&mut net), expected, "the members with this instance take turns");
        }
    }
    for nobody in [to_instance(77), any_of(77), Some(Address::Socket(SocketAddr::default()))] {
        assert_eq!(send(&mut net, a, nobody, b"x"), Err(SocketError::Unreachable));
    }
    assert_eq!(send(&mut net, a, None, &[0; 66_001]), Err(SocketError::MessageTooLong));
    assert_eq!(send(&mut net, a, None, &[7; 66_000]), Ok(66_000));
    assert_eq!(counts(&mut net), [1, 1, 1, 1]);
    let r = {
        send(&mut net, d, None, b"who").unwrap();
        recv(&mut net, c).unwrap()
    };
    let source = r.group.unwrap();
    assert_eq!((r.from, source.instance, source.event), (d.addr(&net), 3, None));
}

#[test]
fn groups_of_a_node_and_misuse() {
    let mut net = cluster(3, 2);
    let node_scope = |instance| GroupRequest { scope: Scope::Node, ..request(instance) };
    let a = join(&mut net, 0, node_scope(1));
    let b = join(&mut net, 0, node_scope(2));
    let elsewhere = join(&mut net, 1, node_scope(3));
    let cluster = join(&mut net, 0, request(4));
    assert_eq!(news(&mut net, a), [(b.addr(&net), 2, MembershipEvent::Joined)]);
    assert_eq!(send(&mut net, a, None, b"here"), Ok(4));
    assert_eq!(texts(&mut net, b).len(), 1);
    assert_eq!(texts(&mut net, elsewhere).len() + texts(&mut net, cluster).len(), 0);
    net.with(HostId(0), |node, now| {
        let range = ServiceRange::single(GROUP, 1);
        assert_eq!(node.join(now, a.port, request(1)), Err(SocketError::Access));
        assert_eq!(node.bind(a.port, range, Scope::Cluster), Err(SocketError::Access));
        assert_eq!(node.connect(now, a.port, any_of(1), &[]), Err(SocketError::Invalid));
        let fresh = node.open(SocketKind::Rdm).unwrap();
        let reserved = GroupRequest { group: 63, ..request(1) };
        assert_eq!(node.join(now, fresh, reserved), Err(SocketError::Access));
        assert_eq!(node.leave(now, fresh), Err(SocketError::Invalid));
        assert_eq!(node.socket_report(a.port).unwrap().group, Some(node_scope(1)));
        assert_eq!(node.readiness(a.port).map(|r| r.writable), Ok(true));
        node.join(now, fresh, GroupRequest { group: GROUP + 1, ..request(1) }).unwrap();
        assert_eq!(
            node.readiness(fresh).map(|r| r.writable),
            Ok(false),
            "the group has no other member, so its socket is not writable"
        );
    });
}

#[test]
fn a_slow_reader_stops_its_senders_without_a_loss() {
    let mut net = cluster(4, 3);
    let a = join(&mut net, 0, request(1));
    let b = join(&mut net, 1, request(2));
    let c = join(&mut net, 2, request(2));
    [a, b, c].iter().for_each(|m| drop(news(&mut net, *m)));
    let (mut sent, mut got) = ([0_u32; 2], Vec::new());
    for round in 0..200 {
        for (n, m) in [(0, a), (1, b)] {
            let text = [sent[n].to_be_bytes().to_vec(), vec![0; 30_000]].concat();
            match send(&mut net, m, None, &text) {
                Ok(_) => sent[n] += 1,
                Err(error) => assert_eq!(error, SocketError::WouldBlock),
            }
            // The other members keep up.
            texts(&mut net, [b, a][n]);
        }
        if round > 100 {
            got.extend(recv(&mut net, c).filter(|r| r.group.unwrap().event.is_none()));
        } else if round == 100 {
            let blocked = [a, b].map(|m| try_send(&mut net, m, None, &[0; 30_000]));
            assert_eq!(blocked, [Err(SocketError::WouldBlock); 2], "{sent:?}");
        }
    }
    net.run(Duration::from_secs(1));
    while let Some(r) = recv(&mut net, c) {
        got.push(r);
        net.run(Duration::from_millis(1));
    }
    for (n, m) in [(0, a), (1, b)] {
        let from = m.addr(&net);
        let numbers: Vec<u32> = got
            .iter()
            .filter(|r| r.from == from)
            .map(|r| u32::from_be_bytes(r.payload[..4].try_into().unwrap()))
            .collect();
        assert_eq!(numbers, (0..sent[n]).collect::<Vec<_>>());
        assert!(sent[n] > 40, "{sent:?}");
    }
    let overload = net.with(c.host, |node, _| node.drops().get(DropReason::Overload));
    assert_eq!(overload, Some(0));
}

#[test]
fn a_member_with_limited_patience_is_stalled_by_nobody_for_long() {
    let mut net = cluster(5, 3);
    let a = join(&mut net, 0, request(1));
    let b = join(&mut net, 1, request(2));
    let slow = join(&mut net, 2, request(3));
    // A plain binding with the group's type looks like a member that never sends JOIN.
    net.with(HostId(1), |node, _| {
        let port = node.open(SocketKind::Rdm).unwrap();
        node.bind(port, ServiceRange::single(GROUP, 7), Scope::Cluster).unwrap();
    });
    net.run(Duration::from_millis(50));
    [a, b].iter().for_each(|m| drop(news(&mut net, *m)));
    net.with(a.host, |node, _| {
        let mut options = node.socket_report(a.port).unwrap().options;
        options.group_patience = Some(Duration::from_secs(2));
        node.set_options(a.port, options).unwrap();
    });
    let (mut sent, mut got, mut waited) = (0, 0, Duration::ZERO);
    while sent < 200 {
        match send(&mut net, a, None, &[7; 20_000]) {
            Ok(_) => sent += 1,
            Err(error) => {
                assert_eq!(error, SocketError::WouldBlock);
                waited += Duration::from_millis(50);
            }
        }
        got += texts(&mut net, b).len();
        assert!(
            waited < Duration::from_secs(5),
            "the sender had waited for {waited:?} after {sent} messages"
        );
    }
    net.run(Duration::from_millis(100));
    got += texts(&mut net, b).len();
    assert_eq!(got, 200, "a member that keeps up must receive all messages");
    assert!(waited > Duration::from_secs(2), "the slow member never blocked the sender");
    assert_eq!(news(&mut net, a), [(slow.addr(&net), 3, MembershipEvent::Left)]);
    // The slow member reads what it was sent, then that the sender has left it; it rejoins and can be reached
    // again.
    let mut last = None;
    let from = a.addr(&net);
    while let Some(r) = recv(&mut net, slow) {
        if r.from == from {
            last = r.group;
        }
    }
    assert_eq!(last.unwrap().event, Some(MembershipEvent::Left));
    net.with(slow.host, |node, now| {
        node.leave(now, slow.port).unwrap();
        node.join(now, slow.port, request(3)).unwrap();
    });
    net.run(Duration::from_millis(50));
    assert_eq!(news(&mut net, a), [(slow.addr(&net), 3, MembershipEvent::Joined)]);
    assert_eq!(send(&mut net, a, None, b"welcome back"), Ok(12));
    assert_eq!(texts(&mut net, slow), [b"welcome back"]);
}
