//! Sequence and session numbers: 16 bits, compared modulo 2^16.

use core::fmt;

/// A number that wraps at 2^16. Two numbers are ordered by the shorter way round: `a` is not after `b` when `b - a` is
/// below 2^15.
///
/// There is no `Ord`: the order is not transitive over the whole circle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Seq(pub u16);

impl Seq {
    /// The number `n` steps after this one, modulo 2^16.
    #[must_use]
    pub const fn add(self, n: u16) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// The preceding number, modulo 2^16.
    #[must_use]
    pub const fn prev(self) -> Self {
        Self(self.0.wrapping_sub(1))
    }

    /// The following number, modulo 2^16.
    #[must_use]
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// Whether this number is strictly before `other`.
    pub const fn before(self, other: Self) -> bool {
        self.0 != other.0 && other.0.wrapping_sub(self.0) < 0x8000
    }

    /// Whether this number is strictly after `other`.
    pub const fn after(self, other: Self) -> bool {
        other.before(self)
    }

    /// Number of forward steps from `earlier` to `self`, modulo 2^16.
    pub const fn distance_from(self, earlier: Self) -> u16 {
        self.0.wrapping_sub(earlier.0)
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_across_the_wrap() {
        assert!(Seq(65535).before(Seq(0)));
        assert!(Seq(0).after(Seq(65535)));
        assert!(!Seq(7).before(Seq(7)));
        assert!(Seq(0).before(Seq(0x7fff)));
        assert!(!Seq(0).before(Seq(0x8000)));
        assert_eq!(Seq(3).distance_from(Seq(65534)), 5);
        assert_eq!(Seq(0).prev(), Seq(65535));
    }
}
