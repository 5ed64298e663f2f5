//! Tests that compare the map with a scan of all entries, and check that no search reads more of the tree than
//! necessary.

use super::*;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use proptest::prelude::*;
use std::vec;

fn filled(ranges: impl IntoIterator<Item = (u64, u64)>) -> RangeMap<u64, u64> {
    let mut map = RangeMap::default();
    for (lower, upper) in ranges {
        map.insert((lower, upper), lower);
    }
    map
}

/// Maximum height of a tree with `count` entries if every node is at least a quarter full.
fn levels(count: usize) -> usize {
    (1..).find(|levels| (FAN_OUT / 4).pow(*levels) >= count).unwrap() as usize
}

proptest! {
    #[test]
    fn finds_what_a_walk_over_all_entries_finds(
        changes in prop::collection::vec((any::<bool>(), 0u64..90, 0u64..40), 0..900),
        probes in prop::collection::vec((0u64..130, 0u64..9), 20),
    ) {
        let mut map = RangeMap::default();
        let mut model = BTreeMap::new();
        for (n, (insert, lower, width)) in changes.into_iter().enumerate() {
            let bounds = (lower, lower + width);
            if insert {
                map.insert(bounds, n);
                model.insert(bounds, n);
            } else {
                prop_assert_eq!(map.remove(bounds), model.remove(&bounds));
            }
            prop_assert_eq!(map.get(bounds), model.get(&bounds));
        }
        for (lower, width) in probes {
            let upper = lower + width;
            let later: Vec<_> = model.iter().filter(|(b, _)| **b > (lower, upper)).map(|(b, v)| (*b, v)).collect();
            prop_assert_eq!(map.behind((lower, upper), (0, u64::MAX)).collect::<Vec<_>>(), later);
            let expected: Vec<_> =
                model.iter().filter(|((l, u), _)| *l <= upper && lower <= *u).map(|(b, v)| (*b, v)).collect();
            prop_assert_eq!(map.overlapping(lower, upper).collect::<Vec<_>>(), expected);
            let first = model.keys().find(|(l, u)| *l <= lower && lower <= *u).copied();
            prop_assert_eq!(map.first_containing(lower), first);
            let value = first.and_then(|bounds| model.get(&bounds)).copied();
            prop_assert_eq!(map.first_containing_value(lower).copied(), value);
        }
        for bounds in model.keys() {
            map.remove(*bounds);
        }
        prop_assert!(map.is_empty(), "the map must be empty after all ranges were removed");
    }
}

proptest! {
    #[test]
    fn finds_points_of_nodes_too(
        ranges in prop::collection::vec((0u32..4, 0u32..3, 0u32..900, 0u32..9), 1..600),
        probes in prop::collection::vec((0u32..5, 0u32..4, 0u32..920), 60),
    ) {
        let mut map = RangeMap::default();
        let mut model = BTreeMap::new();
        for (n, (node, service, lower, width)) in ranges.into_iter().enumerate() {
            let node = crate::addr::NodeAddr(node << 24);
            let bounds = ((node, service << 30, lower), (node, service << 30, lower + width));
            map.insert(bounds, n);
            model.insert(bounds, n);
        }
        for (node, service, instance) in probes {
            let point = (crate::addr::NodeAddr(node << 24), service << 30, instance);
            let first = model.keys().find(|(l, u)| *l <= point && point <= *u).copied();
            prop_assert_eq!(map.first_containing(point), first);
        }
    }
}

#[test]
fn rising_entries_fill_their_nodes() {
    let map = filled((0..100_000).map(|n| (n, n)));
    assert_eq!(map.height(), 4, "a million entries fit into 4 levels of 32 entries");
    assert_eq!(map.overlapping(0, u64::MAX).count(), 100_000);
}

/// Sets of ranges that overlap in different ways: nested, staggered, with a common end.
fn awkward(count: u64) -> Vec<Vec<(u64, u64)>> {
    vec![
        (0..count).map(|n| (n, n)).collect(),
        (0..count).map(|n| (n, 2 * count - n)).collect(),
        (0..count).map(|n| (n, n + count)).collect(),
        (0..count).map(|n| (0, n)).collect(),
        (0..count).map(|n| (n, count)).collect(),
        (0..count).map(|n| (n.wrapping_mul(0x9e37_79b9) % count, count + n)).collect(),
    ]
}

#[test]
fn a_search_reads_the_path_and_what_it_finds() {
    let count = 100_000;
    for ranges in awkward(count) {
        let map = filled(ranges.iter().copied());
        assert!(map.height() <= levels(ranges.len()), "{}", map.height());
        for at in [0, 1, count / 2, count - 1, count, 2 * count, 3 * count] {
            let mut found = map.overlapping(at, at);
            let matches = found.by_ref().count();
            let expected = ranges.iter().filter(|(l, u)| *l <= at && at <= *u).count();
            assert_eq!(matches, expected);
            // Every node on the path may hold a single match, and the last path may hold none.
            let most = (matches + 1) * map.height();
            assert!(
                found.visited() <= most,
                "the search visited {} tree nodes for {matches} matches",
                found.visited()
            );
        }
    }
}

#[test]
fn a_map_that_shrank_is_as_shallow_as_one_that_never_grew() {
    let mut map = filled((0..50_000).map(|n| (n, n + 7)));
    for n in (0..50_000).filter(|n| n % 1_000 != 0) {
        assert_eq!(map.remove((n, n + 7)), Some(n));
    }
    assert_eq!(map.overlapping(0, u64::MAX).count(), 50);
    assert!(map.height() <= 2, "{}", map.height());
}
