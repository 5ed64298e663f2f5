//! Tests with peers that lack capabilities. A peer without numbered name updates must get each update once and in
//! order; a peer that lacks a required capability must be refused.

use core::time::Duration;
use std::collections::BTreeSet;

use crossway_tipc_proto::addr::{NodeAddr, Port, Scope, ServiceRange};
use crossway_tipc_proto::drops::DropReason;
use crossway_tipc_proto::node::{Event, REQUIRED};
use crossway_tipc_proto::socket::{Address, SocketError, SocketKind};
use crossway_tipc_proto::wire::{Capabilities, Message, NameSeries, User, View};
use crossway_tipc_sim::{HostId, Network, seeds};
use rand::RngExt;

const SERVICE: u32 = 5000;
const TOLERANCE: Duration = Duration::from_millis(500);

fn bind(net: &mut Network, host: HostId, port: Port, instance: u32) {
    let range = ServiceRange::single(SERVICE, instance);
    net.with(host, |node, _| node.bind(port, range, Scope::Cluster)).unwrap().unwrap();
}

fn unbind(net: &mut Network, host: HostId, port: Port, instance: u32) {
    let range = ServiceRange::single(SERVICE, instance);
    net.with(host, |node, now| node.unbind(now, port, Some((range, Scope::Cluster))))
        .unwrap()
        .unwrap();
}

fn open(net: &mut Network, host: HostId) -> Port {
    net.with(host, |node, _| node.open(SocketKind::Rdm).unwrap()).unwrap()
}

/// The instances of [`SERVICE`] in a host's name table.
fn known(net: &mut Network, host: HostId) -> BTreeSet<u32> {
    let all = ServiceRange { service: SERVICE, lower: 0, upper: u32::MAX };
    net.with(host, |node, _| node.names().overlapping(all).map(|b| b.range.lower).collect())
        .unwrap()
}

/// The events for names of [`SERVICE`] on a host, in order: for each, whether the name was published (true) or
/// withdrawn, and its instance. Discards the events of other hosts.
fn news(net: &mut Network, of: HostId) -> Vec<(bool, u32)> {
    let all = net.take_events().into_iter().filter(|(host, _)| *host == of);
    all.filter_map(|(_, event)| match event {
        Event::Published(b) if b.range.service == SERVICE => Some((true, b.range.lower)),
        Event::Withdrawn(b) if b.range.service == SERVICE => Some((false, b.range.lower)),
        _ => None,
    })
    .collect()
}

/// The name updates recorded since the last call: for each, whether it was broadcast, and its series.
fn updates(net: &mut Network) -> Vec<(bool, NameSeries)> {
    let frames = net.record.replace(Vec::new()).unwrap_or_default();
    let mut seen = Vec::new();
    let mut note = |view: &View<'_>, broadcast: bool| {
        if view.user() == Some(User::NameDistributor)
            && let Ok(Message::Names(m)) = Message::decode(view)
        {
            seen.push((broadcast, m.series));
        }
    };
    for frame in &frames {
        let view = View::parse(frame).unwrap();
        if view.user() == Some(User::Bundler)
            && let Ok(Message::Bundle(bundle)) = Message::decode(&view)
        {
            bundle.items().flatten().for_each(|item| note(&item, view.is_non_seq()));
        } else {
            note(&view, view.is_non_seq());
        }
    }
    seen
}

#[test]
fn an_old_node_learns_later_names_at_once_and_broadcasts_come_back_when_it_is_gone() {
    let mut net = Network::new(1, 4, 1500, TOLERANCE);
    let old = HostId(3);
    for host in (0..3).map(HostId) {
        net.start(host, false);
    }
    net.run(Duration::from_secs(2));
    let port = open(&mut net, HostId(0));
    net.record = Some(Vec::new());
    bind(&mut net, HostId(0), port, 1);
    net.run(Duration::from_millis(1));
    assert_eq!(
        updates(&mut net),
        [(true, NameSeries::Update)],
        "a single broadcast reaches all nodes"
    );

    net.withheld = Capabilities::NAMED_BCAST;
    net.start(old, false);
    net.run(Duration::from_secs(2));
    net.take_events();
    net.record = Some(Vec::new());
    bind(&mut net, HostId(0), port, 2);
    unbind(&mut net, HostId(0), port, 1);
    bind(&mut net, HostId(0), port, 3);
    net.run(Duration::from_millis(1));
    assert_eq!(
        updates(&mut net),
        [(false, NameSeries::Update); 9],
        "each of the three updates is sent in three copies"
    );
    assert_eq!(news(&mut net, old), [(true, 2), (false, 1), (true, 3)]);
    // Its own updates are sent to each peer, without a number.
    let its = open(&mut net, old);
    bind(&mut net, old, its, 9);
    net.run(Duration::from_millis(1));
    assert_eq!(updates(&mut net), [(false, NameSeries::Legacy); 3]);
    for host in (0..4).map(HostId) {
        assert_eq!(known(&mut net, host), [2, 3, 9].into(), "{host:?}");
    }

    net.crash(old);
    net.run(Duration::from_secs(2));
    net.record = Some(Vec::new());
    bind(&mut net, HostId(0), port, 4);
    net.run(Duration::from_millis(1));
    assert_eq!(updates(&mut net), [(true, NameSeries::Update)]);
    for host in (0..3).map(HostId) {
        assert_eq!(known(&mut net, host), [2, 3, 4].into(), "{host:?}");
    }
}

#[test]
fn updates_that_wait_to_be_broadcast_reach_everybody_once_when_an_old_node_comes() {
    let mut net = Network::new(2, 4, 1500, TOLERANCE);
    let (talker, deaf, old) = (HostId(0), HostId(1), HostId(3));
    for host in (0..3).map(HostId) {
        net.start(host, false);
    }
    net.run(Duration::from_secs(2));
    net.withheld = Capabilities::NAMED_BCAST;
    net.start(old, false);
    let port = open(&mut net, talker);
    // One peer does not answer, so that broadcasts accumulate behind the window while the new peer comes up.
    net.conditions.dead_paths = vec![(0, talker, deaf)];
    let mut instance = 100;
    while net.with(old, |node, _| node.peers().filter(|p| p.up).count()) != Some(3) {
        for _ in 0..1_000 {
            bind(&mut net, talker, port, instance);
            if instance % 3 == 0 {
                unbind(&mut net, talker, port, instance - 1);
            }
            instance += 1;
        }
        net.run(Duration::from_micros(100));
    }
    net.conditions.dead_paths.clear();
    for withdrawn in (102..instance).filter(|i| i % 3 != 2) {
        unbind(&mut net, talker, port, withdrawn);
    }
    net.run(Duration::from_secs(3));
    let left = known(&mut net, talker);
    assert!(instance > 1500 && !left.is_empty(), "the window was never full with {instance} names");
    for host in (0..4).map(HostId) {
        assert_eq!(known(&mut net, host), left, "{host:?}");
        let twice = net.with(host, |node, _| node.drops().get(DropReason::BadBinding));
        assert_eq!(twice, Some(0), "{host:?}");
    }
}

#[test]
fn names_stay_right_while_old_nodes_come_and_go_under_loss() {
    seeds::each("OLD_NODES_SEEDS", 0..60, |seed| {
        let mut net = Network::new(seed, 5, [300, 1500][seed as usize % 2], TOLERANCE);
        net.conditions.loss_per_mille = [0, 20, 100][seed as usize % 3];
        net.conditions.delay_max = Duration::from_millis(seed % 4 + 1);
        let mut ports = Vec::new();
        for host in (0..5).map(HostId) {
            net.start(host, false);
            ports.push(open(&mut net, host));
        }
        let mut bound: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); 5];
        for _ in 0..200 {
            let time = net.rng().random_range(0..40);
            net.run(Duration::from_millis(time));
            let host = HostId(net.rng().random_range(0..5));
            if net.rng().random_range(0..12) == 0 {
                net.crash(host);
                // Until no node sends to the old incarnation any more: packets carry no session, and the new one would accept them.
                net.run(TOLERANCE * 3);
                net.withheld = [Capabilities::NAMED_BCAST, Capabilities::default()]
                    [usize::from(net.rng().random_bool(0.5))];
                net.start(host, false);
                ports[host.0] = open(&mut net, host);
                bound[host.0].clear();
                continue;
            }
            for _ in 0..net.rng().random_range(0..60) {
                let instance = 1000 * host.0 as u32 + net.rng().random_range(0..40);
                if bound[host.0].remove(&instance) {
                    unbind(&mut net, host, ports[host.0], instance);
                } else {
                    bound[host.0].insert(instance);
                    bind(&mut net, host, ports[host.0], instance);
                }
            }
        }
        net.conditions.loss_per_mille = 0;
        net.run(Duration::from_secs(20));
        let all: BTreeSet<u32> = bound.iter().flatten().copied().collect();
        for host in (0..5).map(HostId) {
            assert_eq!(known(&mut net, host), all, "seed {seed}, {host:?}");
            let twice = net.with(host, |node, _| node.drops().get(DropReason::BadBinding));
            assert_eq!(twice, Some(0), "seed {seed}, {host:?}");
        }
    });
}

#[test]
fn a_node_that_lacks_what_is_needed_is_refused_with_a_reason() {
    for lacking in [0x001, 0x002, 0x004, 0x008, 0x020] {
        let missing = Capabilities::from_bits(lacking);
        assert!(REQUIRED.has(missing));
        let mut net = Network::new(3, 2, 1500, TOLERANCE);
        net.start(HostId(0), false);
        net.withheld = missing;
        net.start(HostId(1), false);
        net.run(Duration::from_secs(3));
        let peer = net.addr(HostId(1));
        let told = net.take_events();
        assert!(told.contains(&(HostId(0), Event::TooOld { peer, missing })), "{told:?}");
        net.with(HostId(0), |node, _| {
            assert_eq!(node.peers().count(), 0);
            assert!(node.drops().get(DropReason::PeerTooOld) > 0);
        });
    }
    // All other capabilities may be absent, one by one and together.
    for lacking in [0x010, 0x040, 0x080, 0x100, 0x200, 0x400, 0x800, 0xfd0] {
        let mut net = Network::new(4, 2, 1500, TOLERANCE);
        net.start(HostId(0), false);
        net.withheld = Capabilities::from_bits(lacking);
        net.start(HostId(1), false);
        net.run(Duration::from_secs(3));
        let up = net.with(HostId(0), |node, _| node.peers().filter(|p| p.up).count());
        assert_eq!(up, Some(1), "{lacking:#x}");
    }
}

#[test]
fn multicasts_and_streams_reach_nodes_without_their_newer_forms() {
    let mut net = Network::new(6, 3, 1500, TOLERANCE);
    net.start(HostId(0), false);
    net.start(HostId(1), false);
    net.withheld = Capabilities::from_bits(0xfd0);
    net.start(HostId(2), false);
    net.run(Duration::from_secs(2));
    let range = ServiceRange::single(SERVICE, 1);
    let sinks = [1, 2].map(|host| {
        let port = open(&mut net, HostId(host));
        bind(&mut net, HostId(host), port, 1);
        port
    });
    let listener = net.with(HostId(2), |node, _| {
        let port = node.open(SocketKind::Stream).unwrap();
        node.listen(port).unwrap();
        node.bind(port, ServiceRange::single(SERVICE, 2), Scope::Cluster).unwrap();
        port
    });
    let source = open(&mut net, HostId(0));
    net.run(Duration::from_millis(10));
    net.record = Some(Vec::new());
    for n in 0..20u8 {
        net.with(HostId(0), |node, now| node.send(now, source, Some(Address::Range(range)), &[n]))
            .unwrap()
            .unwrap();
    }
    net.run(Duration::from_millis(100));
    for (host, sink) in [1, 2].map(HostId).into_iter().zip(sinks) {
        let got: Vec<u8> = core::iter::from_fn(|| {
            net.with(host, |node, now| node.recv(now, sink, 100)).unwrap().ok()
        })
        .map(|m| m.payload[0])
        .collect();
        assert_eq!(got, (0..20).collect::<Vec<_>>(), "{host:?}");
    }
    // Without replicast in the whole cluster, a multicast is sent as one broadcast instead of two copies.
    let frames = net.record.take().unwrap_or_default();
    let casts = frames.iter().filter(|f| {
        View::parse(f).is_ok_and(|v| v.is_non_seq() && v.user() != Some(User::LinkConfig))
    });
    assert!((1..=20).contains(&casts.count()));

    let client = net.with(HostId(0), |node, now| {
        let port = node.open(SocketKind::Stream).unwrap();
        let to = Address::Service { service: SERVICE, instance: 2, domain: NodeAddr(0) };
        assert_eq!(node.connect(now, port, Some(to), &[]), Err(SocketError::InProgress));
        port
    });
    net.run(Duration::from_millis(50));
    let accepted = net.with(HostId(2), |node, now| node.accept(now, listener.unwrap()));
    let (server, _) = accepted.unwrap().unwrap();
    net.run(Duration::from_millis(50));
    net.record = Some(Vec::new());
    for n in 0..40u8 {
        net.with(HostId(0), |node, now| node.send(now, client.unwrap(), None, &[n; 10]))
            .unwrap()
            .unwrap();
        // Each write is acknowledged before the next, so none can share a packet unless it is held back.
        net.run(Duration::from_millis(1));
    }
    let data = net.record.take().unwrap_or_default().len();
    assert!(
        data >= 40,
        "only {data} frames: small writes were merged although the node does not acknowledge on request"
    );
    let mut got = Vec::new();
    while let Some(Ok(m)) = net.with(HostId(2), |node, now| node.recv(now, server, 1000)) {
        got.extend(m.payload);
    }
    assert_eq!(got, (0..40).flat_map(|n| [n; 10]).collect::<Vec<u8>>());
}
