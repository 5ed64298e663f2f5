//! Finds jumps that a smooth curve does not explain.

use super::regression::{Fit, fit, student_p};
use super::{FALSE_ALARM, LEAST_JUMP, Place};
use crate::sorting::SortSmall;
use crate::stats::{mad, median, quantile};

/// A jump between two neighbouring points.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// x of the last point before the jump.
    pub after_x: f64,
    /// x of the first point after the jump.
    pub at_x: f64,
    /// Height as a fraction of the level before the jump; positive is up.
    pub jump: f64,
    /// Standard error of `jump`.
    pub error: f64,
    /// Probability that noise alone produces such a jump anywhere in the series.
    pub p: f64,
}

/// A staircase: steps at a constant distance.
#[derive(Clone, Debug, PartialEq)]
pub struct Staircase {
    /// Distance between two steps in bytes.
    pub period: f64,
    /// Height of one step in the figure's unit.
    pub height: f64,
    /// Standard error of `height`.
    pub error: f64,
    /// Probability that noise alone produces such a staircase.
    pub p: f64,
}

/// Numbers of points on each side of a gap to which a curve is fitted, each with the degree of that curve.
const SCALES: [(usize, usize); 2] = [(3, 1), (6, 2)];

/// Minimum height of a jump in standard errors of the local fit. It prevents curvature that the smooth curve cannot
/// follow from being mistaken for a jump.
const LOCAL_T: f64 = 3.5;

/// Weight of the noise of the whole series relative to that of the local fit, in degrees of freedom.
const POOLED_FREEDOM: f64 = 8.0;

struct Candidate {
    gap: usize,
    jump: f64,
    fit: Fit,
}

/// Finds the steps in a series of positive figures; returns them in the order of x. In fewer than six points, it finds
/// none.
pub fn find_steps(places: &[Place]) -> Vec<Step> {
    let mut places: Vec<&Place> = places.iter().filter(|p| !p.figures.is_empty()).collect();
    places.sort_small_by(|a, b| a.x.total_cmp(&b.x));
    // Logarithms: noise is proportional to the level, and a power law becomes a straight line.
    let levels: Vec<f64> = places.iter().filter_map(|p| median(&p.figures)).map(f64::ln).collect();
    if levels.iter().any(|level| !level.is_finite()) {
        return Vec::new();
    }
    let xs: Vec<f64> = places.iter().map(|p| p.x).collect();
    let positions: Vec<f64> = if xs.first().is_some_and(|x| *x > 0.0) {
        xs.iter().map(|x| x.ln()).collect()
    } else {
        xs.clone()
    };
    let looks = SCALES.len() * xs.len().saturating_sub(1);
    let mut found: Vec<(f64, Step)> = Vec::new();
    for (width, degree) in SCALES {
        let candidates = candidates(&positions, &levels, width, degree);
        let Some(noise) = noise(&places, &candidates) else { continue };
        for candidate in candidates {
            let coefficient = candidate.fit.coefficients.last().expect("the jump's column");
            let local = coefficient.unit_error * candidate.fit.variance.max(noise / 4.0).sqrt();
            // The noise of the whole series is known far better than the local one, which may nevertheless differ.
            let freedom = candidate.fit.freedom as f64;
            let variance = (noise * POOLED_FREEDOM + candidate.fit.variance * freedom)
                / (POOLED_FREEDOM + freedom);
            let error = coefficient.unit_error * variance.sqrt();
            let t = candidate.jump / error;
            let p = (student_p(t, POOLED_FREEDOM + freedom) * looks as f64).min(1.0);
            let jump = candidate.jump.exp_m1();
            if p < FALSE_ALARM
                && jump.abs() >= LEAST_JUMP
                && (candidate.jump / local).abs() >= LOCAL_T
            {
                let step = Step {
                    after_x: xs[candidate.gap],
                    at_x: xs[candidate.gap + 1],
                    jump,
                    error,
                    p,
                };
                found.push((t.abs(), step));
            }
        }
    }
    strongest(found, &xs)
}

/// Tests whether the figures rise by a constant just above every multiple of `period` (at x = k * period + 1), in
/// addition to a smooth curve. The constant is the cost of one more packet. Returns `None` if there are fewer than six
/// points, or fewer than two such rises between the smallest x and the largest.
pub fn test_staircase(places: &[Place], period: f64) -> Option<Staircase> {
    let (xs, levels): (Vec<f64>, Vec<f64>) =
        places.iter().filter_map(|p| Some((p.x, median(&p.figures)?))).unzip();
    let treads = |x: f64| (x / period).ceil();
    let span = xs.iter().fold(f64::NEG_INFINITY, |a, &x| a.max(treads(x)))
        - xs.iter().fold(f64::INFINITY, |a, &x| a.min(treads(x)));
    if xs.len() < 6 || span < 2.0 {
        return None;
    }
    let scale = xs.iter().fold(1.0_f64, |a, &x| a.max(x.abs()));
    let rows: Vec<Vec<f64>> =
        xs.iter().map(|&x| vec![1.0, x / scale, (x / scale).powi(2), treads(x)]).collect();
    let fit = fit(&rows, &levels)?;
    let height = fit.coefficients.last()?;
    let error = height.unit_error * fit.variance.sqrt();
    let p = student_p(height.value / error, fit.freedom as f64);
    Some(Staircase { period, height: height.value, error, p })
}

/// For every gap with enough points on both sides, fits a smooth curve with a jump in the gap to the points around it.
fn candidates(xs: &[f64], levels: &[f64], width: usize, degree: usize) -> Vec<Candidate> {
    let mut all = Vec::new();
    for gap in 0..xs.len().saturating_sub(1) {
        let from = (gap + 1).saturating_sub(width);
        let to = (gap + 1 + width).min(xs.len());
        // With fewer than three points per side, jump and slope cannot be distinguished.
        if gap + 1 - from < 3 || to - gap - 1 < 3 || to - from < degree + 4 {
            continue;
        }
        let middle = (xs[gap] + xs[gap + 1]) / 2.0;
        let half = (xs[to - 1] - xs[from]) / 2.0;
        let rows: Vec<Vec<f64>> = (from..to)
            .map(|i| {
                let u = (xs[i] - middle) / half;
                let mut row: Vec<f64> = (0..=degree).map(|d| u.powi(d as i32)).collect();
                row.push(f64::from(u8::from(i > gap)));
                row
            })
            .collect();
        if let Some(fit) = fit(&rows, &levels[from..to]) {
            let jump = fit.coefficients[degree + 1].value;
            all.push(Candidate { gap, jump, fit });
        }
    }
    all
}

/// Variance of the logarithm of a point's level, the larger of two estimates. One is derived from the scatter of the
/// trials of each point. The other is the variance that the better local fits leave unexplained; it is larger if each
/// point has an offset of its own.
fn noise(places: &[&Place], candidates: &[Candidate]) -> Option<f64> {
    // 1.4826 converts the MAD to a standard deviation, 1.2533 a standard deviation to the error of a median.
    let within: Vec<f64> = places
        .iter()
        .filter(|p| p.figures.len() > 2)
        .filter_map(|p| {
            let spread = mad(&p.figures)? / median(&p.figures)?;
            Some((1.2533 * 1.4826 * spread).powi(2) / p.figures.len() as f64)
        })
        .collect();
    let between: Vec<f64> = candidates.iter().map(|c| c.fit.variance).collect();
    let within = median(&within).unwrap_or(0.0);
    let between = quantile(&between, 0.4)?;
    let noise = within.max(between);
    // Exact figures have no noise except rounding.
    Some(noise.max(1e-18))
}

/// Keeps the strongest of candidates that are closer together than three points, since a jump affects the fits of the
/// neighbouring gaps.
fn strongest(mut found: Vec<(f64, Step)>, xs: &[f64]) -> Vec<Step> {
    found.sort_small_by(|a, b| b.0.total_cmp(&a.0));
    let place = |x: f64| xs.iter().position(|&y| y == x).unwrap_or(0);
    let mut kept: Vec<Step> = Vec::new();
    for (_, step) in found {
        if kept.iter().all(|k| place(k.after_x).abs_diff(place(step.after_x)) > 2) {
            kept.push(step);
        }
    }
    kept.sort_small_by(|a, b| a.at_x.total_cmp(&b.at_x));
    kept
}

#[cfg(test)]
mod tests {
    use super::super::tests_support::{Noise, series};
    use super::*;

    #[test]
    fn one_byte_more_than_two_packets_is_found_where_it_is() {
        let mut noise = Noise::new(1);
        let places = series((2920..2985).map(f64::from), 5, |x| {
            let packets = (x / 1476.0).ceil();
            (800.0 + 0.3 * x + 240.0 * packets) * noise.around_one(0.01)
        });
        let steps = find_steps(&places);
        assert_eq!(steps.len(), 1, "{steps:?}");
        assert_eq!((steps[0].after_x, steps[0].at_x), (2952.0, 2953.0));
        let truth = 240.0 / (800.0 + 0.3 * 2952.0 + 480.0);
        assert!((steps[0].jump - truth).abs() < 4.0 * steps[0].error, "{steps:?}");
    }

    #[test]
    fn smooth_curves_raise_no_alarm() {
        // 1 % false alarms are permitted; 300 series with three kinds of noise must stay within what chance permits.
        let mut alarms = 0;
        for seed in 0..100 {
            let mut noise = Noise::new(1000 + seed);
            let line = series((1..80).map(|n| 512.0 * f64::from(n)), 5, |x| {
                (2000.0 + 0.4 * x) * noise.around_one(0.03)
            });
            let saturating = series((1..60).map(|n| 1024.0 * f64::from(n)), 5, |x| {
                (9000.0 * x / (x + 16_000.0)) * noise.around_one(0.05)
            });
            // Every point has an offset of its own, ten times the scatter of its trials.
            let offsets: Vec<f64> = (0..70).map(|_| noise.around_one(0.02)).collect();
            let jagged = series((0..70).map(f64::from), 7, |x| {
                (500.0 + x) * offsets[x as usize] * noise.around_one(0.002)
            });
            alarms +=
                [line, saturating, jagged].iter().filter(|s| !find_steps(s).is_empty()).count();
        }
        assert!(alarms <= 9, "{alarms} false alarms in 300 smooth series");
    }

    #[test]
    fn outlying_trials_raise_no_alarm() {
        let mut alarms = 0;
        for seed in 0..50 {
            let mut noise = Noise::new(7000 + seed);
            let places = series((1..60).map(|n| 64.0 * f64::from(n)), 5, |x| {
                let stall = if noise.unit() < 0.05 { 3.0 } else { 1.0 };
                (300.0 + 0.1 * x) * noise.around_one(0.02) * stall
            });
            alarms += usize::from(!find_steps(&places).is_empty());
        }
        assert!(alarms <= 3, "{alarms} false alarms in 50 series with stalls");
    }

    #[test]
    fn two_steps_far_apart_are_both_found() {
        let mut noise = Noise::new(5);
        let places = series((0..60).map(|n| 100.0 * f64::from(n)), 5, |x| {
            (1000.0 + 0.1 * x + 150.0 * f64::from(x > 2000.0) - 200.0 * f64::from(x > 4000.0))
                * noise.around_one(0.01)
        });
        let at: Vec<f64> = find_steps(&places).iter().map(|s| s.at_x).collect();
        assert_eq!(at, [2100.0, 4100.0]);
    }

    #[test]
    fn a_dense_staircase_is_recognised_by_its_period_and_not_by_another() {
        let mut noise = Noise::new(9);
        let places = series((1..80).map(|n| 512.0 * f64::from(n)), 5, |x| {
            (1500.0 + 0.2 * x + 300.0 * (x / 1476.0).ceil()) * noise.around_one(0.004)
        });
        let right = test_staircase(&places, 1476.0).unwrap();
        assert!(right.p < 1e-6 && (right.height - 300.0).abs() < 60.0, "{right:?}");
        let wrong = test_staircase(&places, 4096.0).unwrap();
        assert!(wrong.p > 1e-4, "{wrong:?}");
        assert!(test_staircase(&places[..5], 1476.0).is_none());
    }

    #[test]
    fn too_few_places_give_nothing() {
        let places = series((0..5).map(f64::from), 5, |x| if x > 2.0 { 2.0 } else { 1.0 });
        assert!(find_steps(&places).is_empty());
        assert!(find_steps(&[]).is_empty());
    }
}
