//! The search for the first range that contains a point.
//!
//! What it costs is waiting: for memory, and for the processor that guessed wrong where a scan ends. Where the highest bounds below a tree
//! node rise, as they do for ranges that lie one behind the other or are equally long, the place is computed from the pace at which
//! they do and only looked at; that reads one cache line and branches as foreseen. The less evenly the bounds lie, the further it is from
//! there; a node whose bounds do not rise is scanned.

use super::{Bounds, FAN_OUT, Leaf, RangeMap, Tree};
use crate::addr::NodeAddr;
use arrayvec::ArrayVec;

/// A point on the line that ranges lie on.
pub(crate) trait Point: Copy + Ord {
    /// Whether ranges of such points are to be found by their place.
    const SPREADS: bool;

    /// How many of `count` points that lie evenly behind `from` up to `to` come on a step of one.
    fn pace(count: usize, from: Self, to: Self) -> f32;

    /// Which of such points is the first that is not below this one; a guess.
    fn place(self, from: Self, pace: f32) -> usize;
}

impl Point for u64 {
    const SPREADS: bool = true;

    fn pace(count: usize, from: Self, to: Self) -> f32 {
        count as f32 / to.wrapping_sub(from).max(1) as f32
    }

    #[inline]
    fn place(self, from: Self, pace: f32) -> usize {
        // A hundredth less, so that a bound that lies exactly on its place is not missed.
        let place = self.wrapping_sub(from) as i64 as f32 * pace - 0.01;
        (place as i32).clamp(0, FAN_OUT as i32) as usize
    }
}

/// Ranges of a node are asked for rarely, by the others' standards.
impl Point for (NodeAddr, u32, u32) {
    const SPREADS: bool = false;

    fn pace(_: usize, _: Self, _: Self) -> f32 {
        0.0
    }

    fn place(self, _: Self, _: f32) -> usize {
        0
    }
}

/// The first of the highest bounds that is not below a point. They rise behind `from` at this pace; 0: they do not.
#[inline]
fn first_reaching<P: Point>(
    highest: &ArrayVec<P, FAN_OUT>,
    point: P,
    from: P,
    pace: f32,
) -> Option<usize> {
    if pace == 0.0 {
        return highest.iter().position(|bound| *bound >= point);
    }
    let mut at = point.place(from, pace);
    while highest.get(at).is_some_and(|bound| *bound < point) {
        at += 1;
    }
    while at > 0 && highest.get(at - 1).is_none_or(|before| *before >= point) {
        at -= 1;
    }
    (at < highest.len()).then_some(at)
}

impl<P: Point, V> RangeMap<P, V> {
    /// Where the first range stands that contains a point: the one with the lowest bounds.
    #[inline]
    fn search(&self, point: P) -> Option<(&Leaf<P, V>, usize)> {
        let mut tree = self.root.as_deref()?;
        // What lies before the node reaches no further than this, which is below the point.
        let mut from = tree.first().0;
        let mut pace = 0.0;
        loop {
            match tree {
                Tree::Inner(inner) => {
                    let n = first_reaching(&inner.tops, point, from, pace)?;
                    if n > 0 {
                        from = inner.tops[n - 1];
                    }
                    pace = inner.paces[n];
                    tree = &inner.children[n];
                }
                Tree::Leaf(leaf) => {
                    let at = first_reaching(&leaf.uppers, point, from, pace)?;
                    return (leaf.lowers[at] <= point).then_some((leaf, at));
                }
            }
        }
    }

    /// Of the ranges that contain a point, the one with the lowest bounds.
    pub(crate) fn first_containing(&self, point: P) -> Option<Bounds<P>> {
        self.search(point).map(|(leaf, at)| (leaf.lowers[at], leaf.uppers[at]))
    }

    /// As [`RangeMap::first_containing`]: its value.
    #[inline]
    pub(crate) fn first_containing_value(&self, point: P) -> Option<&V> {
        self.search(point).and_then(|(leaf, at)| leaf.values.get(at))
    }
}
