//! A map from ranges to values. It finds the ranges that contain a point, or overlap another range, without visiting
//! any other entries, however the ranges overlap.
//!
//! The map is a B+ tree, ordered by lower bound, then upper bound. Every parent stores the highest upper bound in each
//! child's subtree, so the first range that contains a point lies on a single path: it is in the first child whose
//! highest upper bound is not below the point. If the first range there that reaches the point begins after it, so do
//! all later ranges, and no range contains the point. Bounds are stored apart from values, so that a search reads few
//! cache lines.

mod overlapping;
mod search;

use alloc::{boxed::Box, vec::Vec};
use arrayvec::ArrayVec;
pub(crate) use overlapping::Overlapping;
use search::Point;

/// Maximum number of entries of a tree node. The 64-bit bounds of 16 entries fill four cache lines; with 32 entries per
/// node, a million entries fit into four levels.
const FAN_OUT: usize = 32;
/// Two neighbouring nodes are merged if together they have at most this number of entries.
const MERGE_AT: usize = FAN_OUT / 2;

type Bounds<P> = (P, P);
/// A map from ranges of points of type `P` to values.
#[derive(Clone, Debug)]
pub(crate) struct RangeMap<P, V> {
    root: Option<Box<Tree<P, V>>>,
}

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all nodes are leaves")]
enum Tree<P, V> {
    Leaf(Leaf<P, V>),
    Inner(Inner<P, V>),
}

#[derive(Clone, Debug)]
struct Leaf<P, V> {
    /// Upper bounds, stored apart from the lower ones: a search for a point reads only these.
    uppers: ArrayVec<P, FAN_OUT>,
    lowers: ArrayVec<P, FAN_OUT>,
    values: ArrayVec<V, FAN_OUT>,
}

#[derive(Clone, Debug)]
struct Inner<P, V> {
    /// Highest upper bound in each child's subtree.
    tops: ArrayVec<P, FAN_OUT>,
    /// First range in each child's subtree.
    firsts: ArrayVec<Bounds<P>, FAN_OUT>,
    /// For each child, the density of the entries in its node: their number per unit of distance if the highest bounds
    /// increase from entry to entry, otherwise 0.
    paces: ArrayVec<f32, FAN_OUT>,
    children: ArrayVec<Box<Tree<P, V>>, FAN_OUT>,
}

/// Index at which a full node is split if an entry is to be inserted at `at`. A node that grows at its end remains
/// full, because instances are mostly bound in ascending order.
const fn cut(at: usize) -> usize {
    if at == FAN_OUT { FAN_OUT - 1 } else { FAN_OUT / 2 }
}

fn tail<T>(of: &mut ArrayVec<T, FAN_OUT>, from: usize) -> ArrayVec<T, FAN_OUT> {
    of.drain(from..).collect()
}

impl<P: Copy + Ord, V> Leaf<P, V> {
    /// Index of exactly this range, or (as an error) the index at which to insert it.
    fn find(&self, (lower, upper): Bounds<P>) -> Result<usize, usize> {
        let mut at = self.lowers.partition_point(|l| *l < lower);
        while at < self.lowers.len() && self.lowers[at] == lower {
            match self.uppers[at].cmp(&upper) {
                core::cmp::Ordering::Less => at += 1,
                core::cmp::Ordering::Equal => return Ok(at),
                core::cmp::Ordering::Greater => break,
            }
        }
        Err(at)
    }

    fn split(&mut self, from: usize) -> Self {
        Self {
            uppers: tail(&mut self.uppers, from),
            lowers: tail(&mut self.lowers, from),
            values: tail(&mut self.values, from),
        }
    }
}

impl<P: Point, V> Inner<P, V> {
    /// Index of the child whose span includes this range.
    fn route(&self, bounds: Bounds<P>) -> usize {
        self.firsts.partition_point(|first| *first <= bounds).saturating_sub(1)
    }

    fn refresh(&mut self, n: usize) {
        self.tops[n] = self.children[n].top();
        self.firsts[n] = self.children[n].first();
        self.paces[n] = self.pace(n);
    }

    fn pace(&self, n: usize) -> f32 {
        let child = &self.children[n];
        if !P::SPREADS || !child.tops().is_sorted() {
            return 0.0;
        }
        let from = if n > 0 { self.tops[n - 1] } else { self.firsts[0].0 };
        P::pace(child.len(), from, self.tops[n])
    }

    fn enter(&mut self, n: usize, child: Box<Tree<P, V>>) {
        self.tops.insert(n, child.top());
        self.firsts.insert(n, child.first());
        self.children.insert(n, child);
        self.paces.insert(n, self.pace(n));
    }

    fn take(&mut self, n: usize) -> Box<Tree<P, V>> {
        self.tops.remove(n);
        self.firsts.remove(n);
        self.paces.remove(n);
        self.children.remove(n)
    }

    fn split(&mut self, from: usize) -> Self {
        Self {
            tops: tail(&mut self.tops, from),
            firsts: tail(&mut self.firsts, from),
            paces: tail(&mut self.paces, from),
            children: tail(&mut self.children, from),
        }
    }

    /// Tidies up child `n` after the range `gone` was removed from it: removes an empty child, or merges a small one
    /// with a neighbour if both fit into one node.
    fn tidy(&mut self, n: usize, gone: Bounds<P>) {
        let own_len = self.children[n].len();
        if own_len == 0 {
            self.take(n);
            return;
        }
        if gone.1 == self.tops[n] || gone == self.firsts[n] {
            self.refresh(n);
        }
        self.paces[n] = self.pace(n);
        if own_len > MERGE_AT {
            return;
        }
        let len = |n: usize| self.children.get(n).map_or(FAN_OUT, |child| child.len());
        let left = [n.wrapping_sub(1), n]
            .into_iter()
            .find(|&left| len(left).saturating_add(len(left.wrapping_add(1))) <= MERGE_AT);
        if let Some(left) = left {
            let right = self.take(left + 1);
            self.children[left].append(*right);
            self.refresh(left);
        }
    }
}

impl<P: Point, V> Tree<P, V> {
    const fn leaf() -> Self {
        Self::Leaf(Leaf {
            uppers: ArrayVec::new_const(),
            lowers: ArrayVec::new_const(),
            values: ArrayVec::new_const(),
        })
    }

    fn len(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.values.len(),
            Self::Inner(inner) => inner.children.len(),
        }
    }

    fn first(&self) -> Bounds<P> {
        match self {
            Self::Leaf(leaf) => (leaf.lowers[0], leaf.uppers[0]),
            Self::Inner(inner) => inner.firsts[0],
        }
    }

    /// The upper bounds of a leaf's entries, or the highest upper bounds of an inner node's children.
    const fn tops(&self) -> &ArrayVec<P, FAN_OUT> {
        match self {
            Self::Leaf(leaf) => &leaf.uppers,
            Self::Inner(inner) => &inner.tops,
        }
    }

    /// The highest upper bound in the subtree. A node is empty only while it is being removed.
    fn top(&self) -> P {
        let tops = self.tops();
        tops.iter().copied().fold(tops[0], P::max)
    }

    fn append(&mut self, other: Self) {
        match (self, other) {
            (Self::Leaf(leaf), Self::Leaf(more)) => {
                leaf.uppers.extend(more.uppers);
                leaf.lowers.extend(more.lowers);
                leaf.values.extend(more.values);
            }
            (Self::Inner(inner), Self::Inner(more)) => {
                inner.tops.extend(more.tops);
                inner.firsts.extend(more.firsts);
                inner.paces.extend(more.paces);
                inner.children.extend(more.children);
            }
            // All leaves have the same depth, so neighbours are of the same kind.
            (Self::Leaf(_), Self::Inner(_)) | (Self::Inner(_), Self::Leaf(_)) => {}
        }
    }

    /// Inserts a range or replaces its value. If the node had to be split, returns its new right neighbour.
    fn insert(&mut self, bounds: Bounds<P>, value: V) -> Option<Box<Self>> {
        match self {
            Self::Leaf(leaf) => {
                let at = match leaf.find(bounds) {
                    Ok(at) => {
                        leaf.values[at] = value;
                        return None;
                    }
                    Err(at) => at,
                };
                if !leaf.values.is_full() {
                    leaf.lowers.insert(at, bounds.0);
                    leaf.uppers.insert(at, bounds.1);
                    leaf.values.insert(at, value);
                    return None;
                }
                let from = cut(at);
                let mut right = Box::new(Self::Leaf(leaf.split(from)));
                if at > from {
                    right.insert(bounds, value);
                } else {
                    self.insert(bounds, value);
                }
                Some(right)
            }
            Self::Inner(inner) => {
                let n = inner.route(bounds);
                let more = inner.children[n].insert(bounds, value);
                if more.is_none() {
                    inner.tops[n] = inner.tops[n].max(bounds.1);
                    inner.firsts[n] = inner.firsts[n].min(bounds);
                    inner.paces[n] = inner.pace(n);
                    return None;
                }
                inner.refresh(n);
                let more = more?;
                if !inner.children.is_full() {
                    inner.enter(n + 1, more);
                    return None;
                }
                let from = cut(n + 1);
                let mut right = inner.split(from);
                if n + 1 > from {
                    right.enter(n + 1 - from, more);
                } else {
                    inner.enter(n + 1, more);
                }
                Some(Box::new(Self::Inner(right)))
            }
        }
    }

    fn remove(&mut self, bounds: Bounds<P>) -> Option<V> {
        match self {
            Self::Leaf(leaf) => {
                let at = leaf.find(bounds).ok()?;
                leaf.lowers.remove(at);
                leaf.uppers.remove(at);
                Some(leaf.values.remove(at))
            }
            Self::Inner(inner) => {
                let n = inner.route(bounds);
                let value = inner.children[n].remove(bounds)?;
                inner.tidy(n, bounds);
                Some(value)
            }
        }
    }
}

impl<P, V> Default for RangeMap<P, V> {
    fn default() -> Self {
        Self { root: None }
    }
}

impl<P: Point, V> RangeMap<P, V> {
    #[cfg(test)]
    pub(crate) const fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// The value of exactly this range.
    pub(crate) fn get(&self, bounds: Bounds<P>) -> Option<&V> {
        let mut tree = self.root.as_deref()?;
        loop {
            match tree {
                Tree::Inner(inner) => tree = &inner.children[inner.route(bounds)],
                Tree::Leaf(leaf) => return leaf.find(bounds).ok().map(|at| &leaf.values[at]),
            }
        }
    }

    /// Like [`RangeMap::get`], but returns a mutable reference.
    pub(crate) fn get_mut(&mut self, bounds: Bounds<P>) -> Option<&mut V> {
        let mut tree = self.root.as_deref_mut()?;
        loop {
            match tree {
                Tree::Inner(inner) => {
                    let n = inner.route(bounds);
                    tree = &mut inner.children[n];
                }
                Tree::Leaf(leaf) => {
                    return leaf.find(bounds).ok().map(|at| &mut leaf.values[at]);
                }
            }
        }
    }

    /// Inserts a range or replaces its value.
    pub(crate) fn insert(&mut self, bounds: Bounds<P>, value: V) {
        let root = self.root.get_or_insert_with(|| Box::new(Tree::leaf()));
        if let Some(right) = root.insert(bounds, value) {
            let mut inner = Inner {
                tops: ArrayVec::new(),
                firsts: ArrayVec::new(),
                paces: ArrayVec::new(),
                children: ArrayVec::new(),
            };
            let left = core::mem::replace(root, Box::new(Tree::leaf()));
            inner.enter(0, left);
            inner.enter(1, right);
            **root = Tree::Inner(inner);
        }
    }

    /// Removes a range and returns its value.
    pub(crate) fn remove(&mut self, bounds: Bounds<P>) -> Option<V> {
        let root = self.root.as_mut()?;
        let value = root.remove(bounds)?;
        if let Tree::Inner(inner) = &mut **root
            && inner.children.len() == 1
        {
            *root = inner.take(0);
        }
        if root.len() == 0 {
            self.root = None;
        }
        Some(value)
    }

    /// The ranges that share a point with the range from `lower` to `upper`, in the order of their bounds.
    pub(crate) fn overlapping(&self, lower: P, upper: P) -> Overlapping<'_, P, V> {
        Overlapping::new(self.root.as_deref(), lower, upper)
    }

    /// The ranges after this one, in the order of their bounds. `all` must be a range that spans all points.
    pub(crate) fn behind(&self, bounds: Bounds<P>, all: Bounds<P>) -> Overlapping<'_, P, V> {
        let mut path = Vec::new();
        let mut next = self.root.as_deref();
        while let Some(tree) = next {
            let at = match tree {
                Tree::Inner(inner) => {
                    let n = inner.route(bounds);
                    next = Some(&inner.children[n]);
                    n + 1
                }
                Tree::Leaf(leaf) => {
                    next = None;
                    leaf.find(bounds).map_or_else(|at| at, |at| at + 1)
                }
            };
            path.push((tree, at));
        }
        Overlapping::on(path, all.0, all.1)
    }

    /// Height of the tree in levels.
    #[cfg(test)]
    pub(crate) fn height(&self) -> usize {
        let mut tree = self.root.as_deref();
        let mut levels = 0;
        while let Some(node) = tree {
            levels += 1;
            tree = match node {
                Tree::Inner(inner) => inner.children.first().map(|child| &**child),
                Tree::Leaf(_) => None,
            };
        }
        levels
    }
}

#[cfg(test)]
mod tests;
