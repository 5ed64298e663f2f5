//! Finds where a rising curve reaches its plateau.

use super::Place;
use crate::sorting::SortSmall;
use crate::stats::median;

/// The knee of a curve that rises and flattens.
#[derive(Clone, Debug, PartialEq)]
pub struct Knee {
    /// The smallest x from which on the median stays at or above `share` of the plateau.
    pub x: f64,
    /// x of the point before `x`; the knee lies between the two.
    pub before_x: f64,
    /// Level of the plateau.
    pub plateau: f64,
    /// Fraction of the plateau that counts as reached.
    pub share: f64,
    /// Level at the first point as a fraction of the plateau; the rest is what larger values of x gain.
    pub start: f64,
}

/// Finds where `places` reach 90 % of their plateau (item C3 of the cluster study: the ratio W / L at which full
/// throughput is reached).
///
/// The plateau is the median of the last third of the levels, which must all lie within a tenth of it. Returns `None`
/// if there are fewer than five points, if there is no plateau, or if the curve does not rise (none of its points is
/// below that level).
pub fn find_knee(places: &[Place]) -> Option<Knee> {
    let mut points: Vec<(f64, f64)> =
        places.iter().filter_map(|p| Some((p.x, median(&p.figures)?))).collect();
    points.sort_small_by(|a, b| a.0.total_cmp(&b.0));
    if points.len() < 5 {
        return None;
    }
    let share = 0.9;
    let tail: Vec<f64> =
        points[points.len() - points.len().div_ceil(3).max(2)..].iter().map(|p| p.1).collect();
    let plateau = median(&tail)?;
    if tail.iter().any(|level| (level / plateau - 1.0).abs() > 1.0 - share) {
        return None;
    }
    let below = points.iter().rposition(|&(_, level)| level < share * plateau)?;
    let &(x, _) = points.get(below + 1)?;
    Some(Knee { x, before_x: points[below].0, plateau, share, start: points[0].1 / plateau })
}

#[cfg(test)]
mod tests {
    use super::super::tests_support::{Noise, series};
    use super::*;

    #[test]
    fn the_knee_is_where_the_buffer_holds_a_message() {
        let mut noise = Noise::new(3);
        let message = 16_384.0;
        let places = series((11..22).map(|k| f64::from(1 << k)), 5, |w| {
            900.0 * (w / message).min(1.0) * noise.around_one(0.02)
        });
        let knee = find_knee(&places).unwrap();
        assert_eq!((knee.before_x, knee.x), (8192.0, 16_384.0));
        assert!((knee.plateau - 900.0).abs() < 30.0);
    }

    #[test]
    fn flat_and_ever_rising_curves_have_none() {
        let flat = series((11..22).map(|k| f64::from(1 << k)), 5, |_| 900.0);
        assert_eq!(find_knee(&flat), None);
        let rising = series((1..12).map(f64::from), 5, |x| 100.0 * x);
        assert_eq!(find_knee(&rising), None);
    }
}
