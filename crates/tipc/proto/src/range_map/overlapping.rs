//! Iterates over the entries that overlap a range, skipping subtrees that cannot contain any.

use super::{Bounds, Tree};
use alloc::vec::Vec;

/// Iterator over the ranges that overlap another one.
pub(crate) struct Overlapping<'a, P, V> {
    /// The tree nodes on the path from the root to the current entry, each with the index of its next entry.
    path: Vec<(&'a Tree<P, V>, usize)>,
    lower: P,
    upper: P,
    /// Number of tree nodes entered so far.
    visited: usize,
}

impl<'a, P, V> Overlapping<'a, P, V> {
    pub(super) fn new(root: Option<&'a Tree<P, V>>, lower: P, upper: P) -> Self {
        Self::on(root.map(|root| (root, 0)).into_iter().collect(), lower, upper)
    }

    pub(super) const fn on(path: Vec<(&'a Tree<P, V>, usize)>, lower: P, upper: P) -> Self {
        Self { path, lower, upper, visited: 0 }
    }

    /// Number of tree nodes read so far, which is the cost of a search.
    #[cfg(test)]
    pub(crate) const fn visited(&self) -> usize {
        self.visited
    }
}

impl<'a, P: Copy + Ord, V> Iterator for Overlapping<'a, P, V> {
    type Item = (Bounds<P>, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some((tree, at)) = self.path.last_mut() {
            let n = *at;
            *at += 1;
            match *tree {
                Tree::Inner(inner)
                    if n < inner.children.len() && inner.firsts[n].0 <= self.upper =>
                {
                    if inner.tops[n] >= self.lower {
                        self.visited += 1;
                        self.path.push((&inner.children[n], 0));
                    }
                }
                Tree::Leaf(leaf) if n < leaf.values.len() && leaf.lowers[n] <= self.upper => {
                    if leaf.uppers[n] >= self.lower {
                        return Some(((leaf.lowers[n], leaf.uppers[n]), &leaf.values[n]));
                    }
                }
                // Nothing more in this node: all following entries begin too high.
                Tree::Inner(_) | Tree::Leaf(_) => {
                    self.path.pop();
                }
            }
        }
        None
    }
}
