//! Tests of round robin, counts and the loss of nodes, and a comparison with a linear search over all bindings.

use super::*;
use crate::addr::Port;
use proptest::prelude::*;

fn binding(lower: u32, upper: u32, port: u32, node: u32) -> Binding {
    let socket = SocketAddr { port: Port(port), node: NodeAddr(node) };
    let range = ServiceRange { service: 100, lower, upper };
    Binding { range, socket, key: port, scope: Scope::Cluster }
}

#[test]
fn equal_bindings_take_turns_and_a_domain_restricts_the_choice() {
    let mut table = NameTable::default();
    for (port, node) in [(1, 1), (2, 2), (3, 1)] {
        table.insert(binding(5, 9, port, node)).unwrap();
    }
    let ports = |table: &mut NameTable, local| -> Vec<u32> {
        (0..4).map(|_| table.lookup(100, 7, local).unwrap().port.0).collect()
    };
    assert_eq!(ports(&mut table, None), [1, 2, 3, 1]);
    assert_eq!(ports(&mut table, Some(NodeAddr(1))), [3, 1, 3, 1]);
    assert_eq!(table.lookup(100, 7, Some(NodeAddr(9))), None);
    assert_eq!(table.lookup(100, 10, None), None);
    assert_eq!(table.lookup(101, 7, None), None);
}

#[test]
fn a_lost_node_takes_its_bindings_along() {
    let mut table = NameTable::default();
    for (port, node) in [(1, 1), (2, 2), (3, 1)] {
        table.insert(binding(0, u32::MAX, port, node)).unwrap();
    }
    assert_eq!(table.insert(binding(0, u32::MAX, 2, 2)), Err(BindingError::Exists));
    assert_eq!(table.insert(binding(2, 1, 2, 2)), Err(BindingError::BadRange));
    assert_eq!(table.remove_node(NodeAddr(1)).len(), 2);
    assert_eq!(table.iter().map(|b| b.socket.port.0).collect::<Vec<_>>(), [2]);
    assert!(
        table.remove(binding(0, u32::MAX, 2, 2).range, binding(0, 0, 2, 2).socket, 2).is_some()
    );
    assert!(
        table.is_empty() && table.ranges.is_empty() && table.by_node.is_empty(),
        "an empty table must contain nothing"
    );
}

#[test]
fn a_name_with_many_sockets_takes_turns_and_lets_any_go() {
    let mut table = NameTable::default();
    let count = 20_000;
    for n in 0..count {
        table.insert(binding(5, 5, n, n % 4)).unwrap();
    }
    let mut ports = (0..count).map(|_| table.lookup(100, 5, None).unwrap().port.0);
    assert!((0..count).eq(ports.by_ref()));
    assert_eq!(table.lookup(100, 5, Some(NodeAddr(3))).map(|s| s.port.0), Some(3));
    assert_eq!(table.lookup(100, 5, Some(NodeAddr(1))).map(|s| s.port.0), Some(5));
    for n in (0..count).rev().filter(|n| *n != 9) {
        let gone = binding(5, 5, n, n % 4);
        assert_eq!(table.remove(gone.range, gone.socket, n), Some(gone));
    }
    assert_eq!(table.lookup(100, 5, Some(NodeAddr(0))), None);
    assert_eq!(table.lookup(100, 5, None).map(|s| s.port.0), Some(9));
    assert_eq!((table.len(), table.count_of_range(binding(5, 5, 0, 0).range)), (1, 1));
}

#[test]
fn after_the_youngest_the_oldest_is_next_even_if_a_younger_one_comes() {
    let mut table = NameTable::default();
    table.insert(binding(5, 5, 1, 1)).unwrap();
    table.insert(binding(5, 5, 2, 1)).unwrap();
    let next = |table: &mut NameTable| table.lookup(100, 5, None).unwrap().port.0;
    assert_eq!([next(&mut table), next(&mut table)], [1, 2]);
    table.insert(binding(5, 5, 3, 1)).unwrap();
    assert_eq!([next(&mut table), next(&mut table)], [1, 2]);
    let gone = binding(5, 5, 3, 1);
    table.remove(gone.range, gone.socket, 3).unwrap();
    assert_eq!(next(&mut table), 1);
}

#[test]
fn the_nodes_of_a_wide_range_are_found_without_a_walk_over_all_bindings() {
    let mut table = NameTable::default();
    for n in 0..3_000 {
        table.insert(binding(n, n, n, n / 1_000)).unwrap();
    }
    let nodes = |lower, upper| table.nodes_of(ServiceRange { service: 100, lower, upper });
    assert_eq!(nodes(0, u32::MAX), [0, 1, 2].map(NodeAddr).into());
    assert_eq!(nodes(999, 1_000), [0, 1].map(NodeAddr).into());
    assert_eq!(nodes(1_500, 2_100), [1, 2].map(NodeAddr).into());
    assert_eq!(nodes(3_000, u32::MAX), BTreeSet::new());
}

proptest! {
    #[test]
    fn lookups_find_what_a_walk_over_all_bindings_finds(
        ranges in prop::collection::vec((0u32..200, 0u32..200), 1..40),
        wide in prop::collection::vec(any::<(u32, u32)>(), 0..5),
        probe in 0u32..220, width in 0u32..50,
    ) {
        let mut table = NameTable::default();
        let mut all = Vec::new();
        for (n, (a, b)) in ranges.iter().chain(&wide).enumerate() {
            let entry = binding(*a.min(b), *a.max(b), n as u32, 1);
            table.insert(entry).unwrap();
            all.push(entry);
        }
        let range = ServiceRange { service: 100, lower: probe, upper: probe + width };
        let mut expected: Vec<_> = all.iter().filter(|b| b.range.overlaps(&range)).copied().collect();
        let mut found: Vec<_> = table.overlapping(range).collect();
        expected.sort();
        found.sort();
        prop_assert_eq!(&found, &expected);
        let best = all.iter().filter(|b| b.range.contains(probe)).map(|b| b.range).min();
        let one: Vec<_> = table.overlapping_of(NodeAddr(1), range).collect();
        prop_assert_eq!(one.len(), expected.len());
        let got = table.lookup(100, probe, None).and_then(|s| all.iter().find(|b| b.socket == s)).map(|b| b.range);
        prop_assert_eq!(got, best);
    }

    /// Looks up ranges, single names, and names within wider ranges that take precedence over them; for one node and
    /// for any.
    #[test]
    fn a_lookup_finds_the_lowest_range_and_all_of_its_sockets_in_turn(
        names in prop::collection::vec((0u32..12, 0u32..2, 0u32..4), 1..60),
        wide in prop::collection::vec((0u32..12, 1u32..12, 0u32..4), 0..4),
        gone in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
    ) {
        let mut table = NameTable::default();
        let mut all = Vec::new();
        let names = names.into_iter().map(|(at, service, node)| (at, 0, service, node));
        let wide = wide.into_iter().map(|(at, width, node)| (at, width, 0, node));
        for (port, (lower, width, service, node)) in names.chain(wide).enumerate() {
            let mut entry = binding(lower, lower + width, port as u32, node);
            entry.range.service = service;
            table.insert(entry).unwrap();
            all.push(entry);
        }
        for at in gone.iter().take(all.len()).collect::<Vec<_>>() {
            let gone = all.swap_remove(at.index(all.len()));
            prop_assert_eq!(table.remove(gone.range, gone.socket, gone.key), Some(gone));
        }
        // The order of insertion, which is that of the ports.
        all.sort_by_key(|b| b.socket.port);
        for (service, instance) in (0..2).flat_map(|service| (0..25).map(move |at| (service, at))) {
            for local in [None, Some(0), Some(1), Some(2), Some(3), Some(9)].map(|n| n.map(NodeAddr)) {
                let fits = |b: &&Binding| {
                    let its = local.is_none_or(|node| b.socket.node == node);
                    its && b.range.service == service && b.range.contains(instance)
                };
                let best = all.iter().filter(fits).map(|b| b.range).min();
                let sockets: Vec<_> = all.iter().filter(fits).filter(|b| Some(b.range) == best).map(|b| b.socket).collect();
                let found: Vec<_> = (0..2 * sockets.len().max(1)).filter_map(|_| table.lookup(service, instance, local)).collect();
                prop_assert_eq!(found.len(), 2 * sockets.len());
                let (once, again) = found.split_at(sockets.len());
                prop_assert_eq!(once, again, "round robin");
                let first = once.first().and_then(|first| sockets.iter().position(|s| s == first)).unwrap_or(0);
                let turns: Vec<_> = sockets[first..].iter().chain(&sockets[..first]).copied().collect();
                prop_assert_eq!(once, turns);
            }
        }
    }
}
