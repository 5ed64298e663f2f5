//! Tests of the ring's rules, without links: which nodes a node monitors and suspects, and that false records have no
//! other effect.

use super::*;
use std::collections::BTreeSet;

/// A cluster without links in which every node knows all others and all records have been exchanged.
struct Cluster(Vec<Monitor>);

impl Cluster {
    fn new(size: u32) -> Self {
        let mut all: Vec<_> = (1..=size).map(|n| Monitor::new(NodeAddr(n * 10), 2)).collect();
        for monitor in &mut all {
            let own = monitor.own;
            (1..=size)
                .map(|n| NodeAddr(n * 10))
                .filter(|a| *a != own)
                .for_each(|a| monitor.peer_up(a));
        }
        let mut cluster = Self(all);
        cluster.tell();
        cluster
    }

    /// Every node sends its record to every other. Returns a pair for each new suspicion: the node that suspects, and
    /// the suspected node.
    fn tell(&mut self) -> Vec<(NodeAddr, NodeAddr)> {
        let mut suspects = Vec::new();
        for _ in 0..2 {
            for from in 0..self.0.len() {
                for to in 0..self.0.len() {
                    let (sender, receiver) = (self.0[from].own, self.0[to].own);
                    if let Some(record) = self.0[from].record_for(receiver) {
                        let lost = self.0[to].receive(sender, record);
                        suspects.extend(lost.into_iter().map(|l| (receiver, l)));
                    }
                }
            }
        }
        suspects
    }

    fn watched(&mut self, by: usize) -> BTreeSet<NodeAddr> {
        let monitor = &mut self.0[by];
        let others: Vec<_> = monitor.ring.iter().map(|m| m.addr).collect();
        let own = monitor.own;
        let direct =
            |a: &NodeAddr| *a != own && monitor.watch(Nanos(u64::MAX), *a) == Watch::Direct;
        others.into_iter().filter(direct).collect()
    }
}

#[test]
fn a_domain_has_the_kernels_size() {
    let sizes =
        [(1, 0), (2, 1), (3, 1), (4, 1), (5, 2), (9, 2), (10, 3), (33, 5), (400, 19), (1_000, 31)];
    for (cluster, members) in sizes {
        assert_eq!(domain_len(cluster), members, "{cluster}");
    }
    assert_eq!(domain_len(8_193), 63);
}

#[test]
fn a_node_watches_about_two_roots_of_the_cluster_and_everybody_is_watched() {
    for size in [10u32, 33, 100, 400] {
        let mut cluster = Cluster::new(size);
        let root = f64::from(size).sqrt();
        let mut watchers = alloc::vec![0; size as usize];
        for n in 0..size as usize {
            let watched = cluster.watched(n);
            assert!(
                watched.len() as f64 <= 2.0 * root + 2.0,
                "in a cluster of {size} nodes, a node watches {} others",
                watched.len()
            );
            watched.iter().for_each(|a| watchers[(a.0 / 10 - 1) as usize] += 1);
        }
        assert!(watchers.iter().all(|n| *n >= domain_len(size as usize)), "{size}: {watchers:?}");
    }
}

#[test]
fn what_a_head_loses_is_suspected_by_all_others_and_watched_until_it_is_gone() {
    let mut cluster = Cluster::new(49);
    let gone = NodeAddr(250);
    // The nodes that have it in their domain notice the loss and report it.
    for monitor in cluster.0.iter_mut().filter(|m| (190..250).contains(&m.own.0)) {
        monitor.peer_down(gone);
    }
    let suspects: BTreeSet<_> = cluster.tell().into_iter().collect();
    for n in 0..49 {
        let own = cluster.0[n].own;
        if own == gone || (190..250).contains(&own.0) {
            continue;
        }
        assert!(suspects.contains(&(own, gone)), "node {own} does not suspect the lost node");
        assert!(
            cluster.watched(n).contains(&gone),
            "node {own} relies on a head that has lost the node"
        );
    }
}

#[test]
fn the_members_of_a_lost_head_are_suspected_with_it() {
    let mut cluster = Cluster::new(100);
    cluster.watched(0);
    let head = cluster.0[0].ring.iter().find(|m| m.head && m.addr != NodeAddr(10)).unwrap().addr;
    let orphans = cluster.0[0].peer_down(head);
    assert_eq!(orphans, (1..10).map(|n| NodeAddr(head.0 + n * 10)).collect::<Vec<_>>());
}

#[test]
fn lies_only_make_somebody_watched() {
    let mut cluster = Cluster::new(49);
    let before = cluster.watched(0);
    let liar = NodeAddr(300);
    let mut lie = DomainRecord {
        generation: Seq(1_000),
        members: (1..=49).map(|n| NodeAddr(n * 10)).collect(),
        ..DomainRecord::default()
    };
    let suspects = cluster.0[0].receive(liar, lie.clone());
    assert!(!suspects.contains(&NodeAddr(10)), "a node must not probe itself");
    assert_eq!(suspects.len(), 49 - 1 - 6, "all nodes except this one and those in its domain");
    assert!(before.iter().all(|a| cluster.0[0].ring[cluster.0[0].place(*a).unwrap()].up));
    // A repeated report has no effect, and unknown members are ignored.
    lie.generation = Seq(1_001);
    assert_eq!(cluster.0[0].receive(liar, lie.clone()), []);
    lie.generation = Seq(1_002);
    lie.members = (1..=64).map(|n| NodeAddr(n * 7919)).collect();
    assert_eq!(cluster.0[0].receive(liar, lie), []);
    assert!(
        cluster.watched(0).len() <= before.len() + 8,
        "without the head's domain, at most 8 more nodes are watched"
    );
    assert_eq!(cluster.0[0].receive(NodeAddr(5), DomainRecord::default()), [], "an unknown node");
}

#[test]
fn a_small_cluster_sends_no_records_and_watches_everybody() {
    let mut monitor = Monitor::new(NodeAddr(1), 3);
    monitor.peer_up(NodeAddr(2));
    monitor.peer_up(NodeAddr(3));
    assert!(!monitor.is_active());
    assert_eq!(monitor.record_for(NodeAddr(2)), None);
    monitor.peer_up(NodeAddr(4));
    assert!(monitor.is_active());
    assert_eq!(monitor.record_for(NodeAddr(2)).unwrap().members.as_slice(), [NodeAddr(2)]);
    assert_eq!(monitor.watch(Nanos(1), NodeAddr(4)), Watch::Telling);
    monitor.remove(NodeAddr(4));
    assert_eq!(monitor.watch(Nanos(2), NodeAddr(3)), Watch::Direct);
}
