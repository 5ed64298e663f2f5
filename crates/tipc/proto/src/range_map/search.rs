//! The search for the first range that contains a point.
//!
//! A search spends most of its time waiting for memory, and for branches that are mispredicted at the end of a scan. If
//! the highest bounds in a tree node increase, as they do for ranges that are disjoint or equally long, the position is
//! interpolated from the density of the bounds and then only verified, which reads one cache line and has predictable
//! branches. The less evenly the bounds are spaced, the further the entry is from the interpolated position. A node
//! whose bounds do not increase is scanned.

use super::{Bounds, FAN_OUT, Leaf, RangeMap, Tree};
use crate::addr::NodeAddr;
use arrayvec::ArrayVec;

/// A point on the axis of the ranges.
pub(crate) trait Point: Copy + Ord {
    /// Whether positions may be interpolated for points of this type.
    const SPREADS: bool;

    /// Density, in entries per unit of distance, of `count` points spaced evenly after `from` up to `to`.
    fn pace(count: usize, from: Self, to: Self) -> f32;

    /// Estimated index of the first point that is not below this one, among points that begin at `from` and have
    /// density `pace`.
    fn place(self, from: Self, pace: f32) -> usize;
}

impl Point for u64 {
    const SPREADS: bool = true;

    fn pace(count: usize, from: Self, to: Self) -> f32 {
        count as f32 / to.wrapping_sub(from).max(1) as f32
    }

    #[inline]
    fn place(self, from: Self, pace: f32) -> usize {
        // Subtract a hundredth, so that a bound exactly at its expected position is not missed.
        let place = self.wrapping_sub(from) as i64 as f32 * pace - 0.01;
        (place as i32).clamp(0, FAN_OUT as i32) as usize
    }
}

/// Ranges that are ordered by node are searched rarely, so their positions are not interpolated.
impl Point for (NodeAddr, u32, u32) {
    const SPREADS: bool = false;

    fn pace(_: usize, _: Self, _: Self) -> f32 {
        0.0
    }

    fn place(self, _: Self, _: f32) -> usize {
        0
    }
}

/// Index of the first bound in `highest` that is not below `point`. The bounds increase, beginning at `from`, with
/// density `pace`; a `pace` of 0 means that they do not increase.
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
    /// Finds the range with the lowest bounds that contains the point. Returns its leaf and its index there.
    #[inline]
    fn search(&self, point: P) -> Option<(&Leaf<P, V>, usize)> {
        let mut tree = self.root.as_deref()?;
        // No range before this tree node reaches beyond this bound, which is below the point.
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

    /// The range with the lowest bounds among those that contain the point.
    pub(crate) fn first_containing(&self, point: P) -> Option<Bounds<P>> {
        self.search(point).map(|(leaf, at)| (leaf.lowers[at], leaf.uppers[at]))
    }

    /// Like [`RangeMap::first_containing`], but returns the value.
    #[inline]
    pub(crate) fn first_containing_value(&self, point: P) -> Option<&V> {
        self.search(point).and_then(|(leaf, at)| leaf.values.get(at))
    }
}
