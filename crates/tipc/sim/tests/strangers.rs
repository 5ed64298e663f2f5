//! Tests of floods of discovery messages from nodes that do not exist: they take no place from real nodes, and end no
//! contact.

use std::collections::BTreeSet;
use std::time::Duration;

use crossway_tipc_proto::addr::{BearerId, MediaAddr, NetworkId, NodeAddr, NodeId};
use crossway_tipc_proto::drops::DropReason;
use crossway_tipc_proto::limits::{GREETINGS_AT_ONCE, GREETINGS_PER_SECOND, Limits, STRANGERS_MAX};
use crossway_tipc_proto::link::LinkState;
use crossway_tipc_proto::node::{CAPABILITIES, Event, Node};
use crossway_tipc_proto::wire::{Discovery, DiscoveryKind};
use crossway_tipc_sim::{HostId, Network};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const A: HostId = HostId(0);
const B: HostId = HostId(1);
const C: HostId = HostId(2);

/// Time between two invented nodes: 14,000 per second.
const PACE: Duration = Duration::from_nanos(1_000_000_000 / 14_000);

/// The announcement of a node that does not exist, on a station that does not exist either unless it is given.
fn invented(rng: &mut Pcg64Mcg, kind: DiscoveryKind, station: Option<MediaAddr>) -> Vec<u8> {
    let [.., a, b, c, d, e] = rng.random::<[u8; 8]>();
    let media = station.unwrap_or(MediaAddr::Ethernet([6, a, b, c, d, e]));
    let mut frame = Vec::new();
    Discovery {
        kind,
        capabilities: CAPABILITIES,
        signature: Discovery::legal_signature(rng.random(), CAPABILITIES),
        domain: NodeAddr(0),
        sender: NodeAddr(rng.random_range(1 << 24..=u32::MAX)),
        network: NetworkId::default(),
        media,
        net_hash: 0,
        id: NodeId(rng.random()),
    }
    .encode(&mut frame);
    frame
}

/// Floods host A with announcements at the pace above for a time. Returns their number.
fn flood(
    net: &mut Network,
    time: Duration,
    source: Option<MediaAddr>,
    mut announce: impl FnMut(u64) -> Vec<u8>,
) -> u64 {
    let end = net.now() + time;
    let mut count = 0;
    while net.now() < end {
        let frame = announce(count);
        net.with(A, |node, now| node.handle_frame(now, BearerId(0), source, &frame)).unwrap();
        net.run(PACE);
        count += 1;
    }
    count
}

fn of(net: &mut Network, host: HostId) -> &Node {
    net.with(host, |_, _| ());
    net.hosts()[host.0].node.as_ref().unwrap()
}

/// How often the link from one host to another came up, and whether it is up now.
fn link(net: &mut Network, from: HostId, to: HostId) -> Option<(u64, bool)> {
    let addr = net.addr(to);
    let peer = of(net, from).peers().find(|peer| peer.addr == addr)?;
    let link = peer.links.first()?;
    Some((link.stats.ups, link.state == LinkState::Established))
}

fn drops(net: &mut Network, reason: DropReason) -> u64 {
    of(net, A).drops().get(reason)
}

#[test]
fn a_real_node_gets_its_link_among_14_000_invented_ones_per_second() {
    for (seed, kinds) in [
        (1, &[DiscoveryKind::Request][..]),
        (2, &[DiscoveryKind::Response]),
        (3, &[DiscoveryKind::Request, DiscoveryKind::Response, DiscoveryKind::Trial]),
    ] {
        let mut net = Network::new(seed, 3, 1500, Duration::from_millis(1500));
        net.conditions.delay_max = Duration::from_millis(2);
        net.start(A, false);
        net.start(B, false);
        net.run(Duration::from_secs(2));
        assert_eq!(link(&mut net, A, B), Some((1, true)));
        net.take_events();
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut announce = |n: u64| invented(&mut rng, kinds[n as usize % kinds.len()], None);
        let sent = net.frames;
        let before = flood(&mut net, Duration::from_secs(1), None, &mut announce);
        // Frames to stations that do not exist cost the peers' frames their place in the system's queues.
        let greeted = net.frames - sent;
        let most = 2 * u64::from(GREETINGS_AT_ONCE + 2 * GREETINGS_PER_SECOND);
        assert!((1..most).contains(&greeted), "seed {seed}: {greeted} frames");
        net.start(C, false);
        let after = flood(&mut net, Duration::from_secs(3), None, &mut announce);
        assert_eq!(link(&mut net, A, B), Some((1, true)), "seed {seed}");
        assert_eq!(link(&mut net, A, C), Some((1, true)), "seed {seed}");
        assert_eq!(link(&mut net, C, A), Some((1, true)), "seed {seed}");
        let peers = of(&mut net, A).peers().count();
        assert_eq!(peers, STRANGERS_MAX + 2, "seed {seed}");
        // A trial takes no place.
        let trials = if kinds.len() == 3 { (before + after) / 3 } else { 0 };
        let replaced = drops(&mut net, DropReason::NeverAnswered);
        let expected = before + after - trials - STRANGERS_MAX as u64;
        // The real node was replaced a few times, too.
        assert!(expected.abs_diff(replaced) < 10, "seed {seed}: {replaced} of {expected}");
        let told = net.take_events().into_iter().filter(|(host, event)| {
            *host == A
                && matches!(event, Event::FramesRefused { reason: DropReason::NeverAnswered, .. })
        });
        assert_eq!(told.count(), 1, "seed {seed}: an operator is told once");
        // The flood is forgotten long before lost peers are.
        net.run(Duration::from_secs(45));
        assert_eq!(of(&mut net, A).peers().count(), 2, "seed {seed}");
        assert_eq!(link(&mut net, A, C), Some((1, true)), "seed {seed}");
    }
}

#[test]
fn a_station_has_one_place_whatever_it_claims_to_be() {
    let mut net = Network::new(4, 3, 1500, Duration::from_millis(1500));
    net.start(A, false);
    net.start(B, false);
    net.run(Duration::from_secs(2));
    let mut rng = Pcg64Mcg::seed_from_u64(4);
    let station = MediaAddr::Ethernet([6, 0, 0, 0, 0, 1]);
    let time = Duration::from_secs(2);
    let count = flood(&mut net, time, Some(station), |_| {
        invented(&mut rng, DiscoveryKind::Request, Some(station))
    });
    assert_eq!(of(&mut net, A).peers().count(), 2, "the peer and the last claim");
    assert_eq!(drops(&mut net, DropReason::NeverAnswered), count - 1);
    // With a source that is not the announced one, there is not even that place.
    let forged = Some(MediaAddr::Ethernet([6, 0, 0, 0, 0, 2]));
    let count = flood(&mut net, time, forged, |_| invented(&mut rng, DiscoveryKind::Request, None));
    assert_eq!(of(&mut net, A).peers().count(), 2);
    assert_eq!(drops(&mut net, DropReason::WrongSource), count);
    assert_eq!(link(&mut net, A, B), Some((1, true)));
    // A real node on a station that was used for claims before gets its link.
    net.start(C, false);
    net.run(Duration::from_secs(2));
    assert_eq!(link(&mut net, A, C), Some((1, true)));
}

#[test]
fn a_full_table_forgets_lost_nodes_and_refuses_when_all_are_in_contact() {
    let mut net = Network::new(5, 6, 1500, Duration::from_millis(500));
    net.limits = Limits { peers: 3, ..Limits::default() };
    net.start(A, false);
    net.limits = Limits::default();
    for host in 1..4 {
        net.start(HostId(host), false);
        net.run(Duration::from_secs(2));
    }
    net.take_events();
    let known = |net: &mut Network| {
        let addrs = of(net, A).peers().map(|peer| peer.addr.0 - 0x1000);
        addrs.collect::<BTreeSet<_>>()
    };
    // All three are in contact: there is no place, and one report.
    net.start(HostId(4), false);
    net.run(Duration::from_secs(10));
    assert_eq!(known(&mut net), BTreeSet::from([1, 2, 3]));
    assert!(drops(&mut net, DropReason::TooManyPeers) > 1);
    let refusals: Vec<_> = net
        .take_events()
        .into_iter()
        .filter(|(host, event)| *host == A && matches!(event, Event::FramesRefused { .. }))
        .map(|(_, event)| event)
        .collect();
    let from = Some(MediaAddr::Ethernet([2, 0, 0, 0, 0, 4]));
    let expected =
        Event::FramesRefused { bearer: BearerId(0), from, reason: DropReason::TooManyPeers };
    assert_eq!(refusals, [expected]);
    // Node 2 and then node 1 are lost: first 2 makes room, then 1.
    net.crash(HostId(2));
    net.run(Duration::from_millis(1500));
    net.crash(HostId(1));
    // Nodes that have peers look for others once a minute.
    net.run(Duration::from_secs(65));
    assert_eq!(known(&mut net), BTreeSet::from([1, 3, 4]));
    net.start(HostId(5), false);
    net.run(Duration::from_secs(65));
    assert_eq!(known(&mut net), BTreeSet::from([3, 4, 5]));
    for host in [3, 4, 5] {
        assert_eq!(link(&mut net, A, HostId(host)), Some((1, true)), "host {host}");
    }
}
