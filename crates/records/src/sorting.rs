//! Stable sorting of short lists, and collecting into trees, in little code.
//!
//! What the standard library compiles for each type and each comparison has 5 kB, and a run is evaluated in a hundred
//! orders. Here it sorts places, once for all of them.

use std::cmp::Ordering;

/// Sorting like that of slices, by one sort for all types. For lists with as many values as there are messages, use the
/// slice's own.
pub trait SortSmall<T> {
    /// Like `sort_by`.
    fn sort_small_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering);

    /// Like `sort_by_key`.
    fn sort_small_by_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K);
}

impl<T> SortSmall<T> for [T] {
    fn sort_small_by(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        let from = sorted(self.len(), &mut |a, b| compare(&self[a], &self[b]));
        arrange(from, &mut |a, b| self.swap(a, b));
    }

    fn sort_small_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.sort_small_by(|a, b| key(a).cmp(&key(b)));
    }
}

/// Collecting like [`Iterator::collect`] into a tree of the standard library, which would sort first, and for each type of
/// values in 5 kB of code. Here they are inserted one by one.
pub trait CollectTree: Iterator + Sized {
    /// Collects all values; of two with the same key, the later one stays.
    fn collect_tree<T: Default + Extend<Self::Item>>(self) -> T {
        let mut tree = T::default();
        tree.extend(self);
        tree
    }
}

impl<I: Iterator> CollectTree for I {}

/// The places of `len` values in their order.
fn sorted(len: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..len).collect();
    places.sort_by(|a, b| compare(*a, *b));
    places
}

/// Puts into each place the value that is at `from[place]`, cycle by cycle.
fn arrange(mut from: Vec<usize>, swap: &mut dyn FnMut(usize, usize)) {
    for begin in 0..from.len() {
        let mut place = begin;
        while from[place] != begin {
            let next = from[place];
            swap(place, next);
            from[place] = place;
            place = next;
        }
        from[place] = place;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_tree_is_that_of_the_standard_library() {
        let pairs = [(3, 'a'), (1, 'b'), (3, 'c'), (2, 'd')];
        let tree: BTreeMap<u32, char> = pairs.into_iter().collect_tree();
        assert_eq!(tree, pairs.into_iter().collect());
        assert_eq!(tree[&3], 'c');
    }

    #[test]
    fn the_order_is_that_of_the_standard_library() {
        let mut state = 7_u64;
        for len in [0, 1, 2, 3, 5, 20, 21, 100, 1000] {
            let mut values: Vec<(u64, usize)> = (0..len)
                .map(|at| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    // Many are equal, so that it matters that the sort is stable.
                    ((state >> 33) % (len as u64 / 3 + 1), at)
                })
                .collect();
            let mut wanted = values.clone();
            wanted.sort_by_key(|(key, _)| *key);
            values.sort_small_by_key(|(key, _)| *key);
            assert_eq!(values, wanted);
            wanted.sort_by(|a, b| b.cmp(a));
            values.sort_small_by(|a, b| b.cmp(a));
            assert_eq!(values, wanted);
        }
    }
}
