//! Tests of clusters with more nodes than the monitor's threshold: they send little when idle, no contact is lost
//! without a reason, and all other nodes notice in time that a node has failed.

use core::time::Duration;
use std::collections::BTreeSet;

use crossway_tipc_proto::addr::{BearerId, NodeAddr};
use crossway_tipc_proto::link::LinkState;
use crossway_tipc_proto::node::Event;
use crossway_tipc_sim::{HostId, Network};

const TOLERANCE: Duration = Duration::from_millis(1_500);
/// A threshold that disables the monitor.
const NEVER: usize = 4_095;

fn cluster(seed: u64, size: usize, threshold: impl Fn(usize) -> usize) -> Network {
    let mut net = Network::new(seed, size, 1500, TOLERANCE);
    net.conditions.delay_max = Duration::from_millis(1);
    for host in 0..size {
        net.start(HostId(host), false);
        net.with(HostId(host), |node, _| node.set_monitor_threshold(threshold(host)))
            .unwrap()
            .unwrap();
        net.run(Duration::from_micros(500_000 / size as u64));
    }
    net.run(Duration::from_secs(4));
    for host in (0..size).map(HostId) {
        let up = net.with(host, |node, _| {
            node.peers().filter(|p| p.links[0].state == LinkState::Established).count()
        });
        assert_eq!(up, Some(size - 1), "{host:?}");
    }
    net.take_events();
    net
}

/// Number of frames that a node sends in a second while the cluster is idle.
fn frames_at_rest(net: &mut Network) -> f64 {
    let before = net.frames;
    net.run(Duration::from_secs(3));
    (net.frames - before) as f64 / 3.0 / net.hosts().len() as f64
}

fn losses(net: &mut Network) -> Vec<(HostId, NodeAddr)> {
    let lost = |(host, event)| match event {
        Event::PeerDown { peer } => Some((host, peer)),
        _ => None,
    };
    net.take_events().into_iter().filter_map(lost).collect()
}

/// Waits until all nodes that are up have lost contact with the nodes in `gone`, and returns the time that this took.
fn await_losses(net: &mut Network, gone: &BTreeSet<usize>) -> Duration {
    let began = net.now();
    let missing: BTreeSet<NodeAddr> = gone.iter().map(|n| net.addr(HostId(*n))).collect();
    let mut left: BTreeSet<(HostId, NodeAddr)> = (0..net.hosts().len())
        .filter(|n| !gone.contains(n))
        .flat_map(|n| missing.iter().map(move |m| (HostId(n), *m)))
        .collect();
    while !left.is_empty() {
        net.run(Duration::from_millis(25));
        for loss in losses(net) {
            assert!(missing.contains(&loss.1), "contact was lost without a reason: {loss:?}");
            left.remove(&loss);
        }
        assert!(net.now().since(began) < TOLERANCE * 20, "not noticed as lost: {left:?}");
    }
    net.now().since(began)
}

#[test]
fn at_rest_a_node_sends_as_the_root_of_the_cluster_and_not_as_its_size() {
    let full = frames_at_rest(&mut cluster(1, 64, |_| NEVER));
    let ring = frames_at_rest(&mut cluster(1, 64, |_| 32));
    // Seven followers and about nine heads are probed; each probe is answered, and a few more answers cross them.
    let ticks = 1000.0 / 375.0;
    assert!(ring <= 2.0 * 17.0 * ticks + 2.0, "a node sends {ring} frames per second");
    assert!(
        ring * 2.0 < full,
        "a node sends {ring} frames per second with the monitor and {full} without it"
    );
    let larger = frames_at_rest(&mut cluster(1, 144, |_| 32));
    assert!(
        larger < ring * 1.8,
        "a node sends {larger} frames per second in a cluster of 144 nodes, but {ring} in one of 64"
    );
}

#[test]
fn a_node_that_is_gone_is_lost_by_all_within_two_and_a_half_tolerances() {
    for (seed, size, loss) in [(1, 33, 0), (2, 40, 0), (3, 64, 0), (4, 40, 100), (5, 100, 20)] {
        let mut net = cluster(seed, size, |_| 32);
        net.conditions.loss_per_mille = loss;
        for gone in [0, size / 2, size - 1] {
            net.crash(HostId(gone));
            let took = await_losses(&mut net, &[gone].into());
            let bound = if loss == 0 { TOLERANCE * 5 / 2 } else { TOLERANCE * 4 };
            assert!(
                took <= bound,
                "in a cluster of {size} nodes, with {loss} per mille lost, the crash was noticed after {took:?}"
            );
            net.start(HostId(gone), false);
            net.run(Duration::from_secs(15));
            let up = net.with(HostId(gone), |n, _| n.peers().filter(|p| p.up).count());
            assert_eq!(up, Some(size - 1));
            net.take_events();
        }
    }
}

#[test]
fn neighbours_in_the_ring_that_go_together_are_lost_by_all() {
    for (seed, from, count) in [(1, 5, 20), (2, 30, 14), (3, 0, 40)] {
        let mut net = cluster(seed, 48, |_| 32);
        let gone: BTreeSet<usize> = (from..from + count).map(|n| n % 48).collect();
        for host in &gone {
            net.crash(HostId(*host));
        }
        let took = await_losses(&mut net, &gone);
        assert!(
            took <= TOLERANCE * 4,
            "the crash of {count} of 48 nodes, from node {from} on, was noticed after {took:?}"
        );
    }
}

#[test]
fn a_fifth_of_all_frames_lost_loses_nobody_whom_full_mesh_would_keep() {
    let mut downs = [0, 0];
    for (n, threshold) in [NEVER, 32].into_iter().enumerate() {
        let mut net = cluster(1, 36, |_| threshold);
        net.conditions.loss_per_mille = 200;
        net.run(Duration::from_secs(45));
        downs[n] = losses(&mut net).len();
    }
    assert!(
        downs[1] <= downs[0],
        "{} contacts were lost with the monitor, {} without it",
        downs[1],
        downs[0]
    );
}

#[test]
fn halves_of_a_cluster_lose_each_other_and_meet_again() {
    let mut net = cluster(7, 40, |_| 32);
    net.conditions.groups = (0..40).map(|n| (n * 7 % 2) as u8).collect();
    net.run(TOLERANCE * 4);
    let lost: BTreeSet<_> = losses(&mut net).into_iter().collect();
    assert_eq!(
        lost.len(),
        2 * 20 * 20,
        "each node must lose all nodes of the other half, and no others"
    );
    net.conditions.groups.clear();
    net.run(Duration::from_secs(70));
    for host in (0..40).map(HostId) {
        let up = net.with(host, |n, _| n.peers().filter(|p| p.up).count());
        assert_eq!(up, Some(39), "{host:?}");
    }
    losses(&mut net);
    net.crash(HostId(11));
    assert!(await_losses(&mut net, &[11].into()) <= TOLERANCE * 5 / 2);
}

#[test]
fn nodes_that_do_not_monitor_are_watched_and_lost_all_the_same() {
    let mut net = cluster(9, 40, |host| if host % 4 == 1 { NEVER } else { 32 });
    for gone in [1, 2] {
        net.crash(HostId(gone));
        let took = await_losses(&mut net, &[gone].into());
        assert!(took <= TOLERANCE * 5 / 2, "{took:?}");
        net.start(HostId(gone), false);
        net.run(Duration::from_secs(3));
        net.take_events();
    }
}

#[test]
fn an_operator_sees_the_ring() {
    let mut net = cluster(10, 36, |_| 32);
    net.crash(HostId(4));
    net.run(TOLERANCE * 3);
    net.with(HostId(0), |node, _| {
        let summary: Vec<_> = node.monitors().collect();
        assert_eq!(summary.len(), 1);
        assert!(summary[0].active && summary[0].table_generation > 0);
        assert_eq!((summary[0].cluster_size, summary[0].domain), (36, 5));
        let list = node.monitored(BearerId(0));
        assert_eq!(list.len(), 36);
        let addrs: Vec<_> = list.iter().map(|m| m.addr.0).collect();
        assert_eq!(
            addrs,
            (0x1000..0x1024).collect::<Vec<_>>(),
            "the report must begin with this node"
        );
        assert_eq!(
            list[0].applied,
            [true, true, true, false, true],
            "the crashed node must be reported as down"
        );
        assert!(!list[4].up && list.iter().filter(|m| m.up).count() == 35);
        assert!(list.iter().filter(|m| m.direct).count() < 16);
        for member in list.iter().filter(|m| m.up) {
            assert_eq!(member.applied.len(), 5, "{member:?}");
            assert!(member.generation > 0 && member.unapplied.is_empty(), "{member:?}");
        }
        assert!(node.set_monitor_threshold(5_000).is_err());
        assert_eq!(node.monitor_threshold(), 32);
    });
}
