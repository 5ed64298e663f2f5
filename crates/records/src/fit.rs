//! Fits the cost as a straight line in message size: `time = startup + size / bandwidth` (item C1 of the cluster
//! study).
//!
//! Times over a series of sizes span orders of magnitude, and so do their errors. Therefore the squares of *relative*
//! residuals are minimised, relative to the median time of the size, since a trial that is far too fast would otherwise
//! weigh more than all the others; Tukey's biweight reduces the weight of disturbed trials. The intervals of both parameters
//! come from resampling the trials within each size. [`Fit::worst_relative_residual`] shows if a straight line is the
//! wrong model (because a cache is exceeded, or a buffer fills).

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use crate::stats::{Interval, TRIALS_AT_LEAST, median, quantile};

/// Minimum number of sizes for a fit, since there is always a line through two points.
pub const SIZES_AT_LEAST: usize = 3;
const RESAMPLES: usize = 1000;
const SEED: u64 = 0x0066_6974;

/// One trial: a message size and the time per message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Message size in bytes.
    pub size_bytes: f64,
    /// Time per message or round trip, nanoseconds.
    pub time_ns: f64,
}

/// A fitted line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// Cost of an empty message, nanoseconds. Can be negative if the relation is curved.
    pub startup_ns: f64,
    /// 95 % interval of the start-up cost; null if a size has fewer than [`TRIALS_AT_LEAST`] trials.
    pub startup_interval_ns: Option<Interval>,
    /// Cost of a byte, nanoseconds.
    pub per_byte_ns: f64,
    /// 95 % interval of the cost of a byte; null if a size has fewer than [`TRIALS_AT_LEAST`] trials.
    pub per_byte_interval_ns: Option<Interval>,
    /// Bandwidth without the start-up cost, bytes per second: the reciprocal of the cost of a byte; null if that cost
    /// is not positive.
    pub bandwidth_bytes_per_s: Option<f64>,
    /// 95 % interval of the bandwidth; null if a size has fewer than [`TRIALS_AT_LEAST`] trials, or if the cost of a
    /// byte may be zero.
    pub bandwidth_interval_bytes_per_s: Option<Interval>,
    /// Largest relative distance between a size's median and the line: above about 0.25 a straight line is the wrong
    /// model.
    pub worst_relative_residual: f64,
    /// The size at which `worst_relative_residual` occurs, bytes.
    pub worst_at_bytes: f64,
    /// Number of trials used.
    pub points: usize,
    /// Number of trials of the size that has the fewest.
    pub trials_per_size: usize,
    /// Number of sizes used.
    pub sizes: usize,
}

/// Intercept and slope of the weighted least-squares line; `None` if all sizes are equal.
pub fn weighted_line(points: &[Point], weights: &[f64]) -> Option<(f64, f64)> {
    let total: f64 = weights.iter().sum();
    let mean = |f: fn(&Point) -> f64| {
        points.iter().zip(weights).map(|(p, w)| f(p) * w).sum::<f64>() / total
    };
    let (x, y) = (mean(|p| p.size_bytes), mean(|p| p.time_ns));
    let (mut xx, mut xy) = (0.0, 0.0);
    for (p, w) in points.iter().zip(weights) {
        xx += w * (p.size_bytes - x).powi(2);
        xy += w * (p.size_bytes - x) * (p.time_ns - y);
    }
    let slope = xy / xx;
    let intercept = y - slope * x;
    (xx > 0.0 && slope.is_finite() && intercept.is_finite()).then_some((intercept, slope))
}

/// Fits a line by least squares of relative residuals, reweighted by Tukey's biweight. `typical` has the time to which
/// each point's residual is relative.
fn robust_line(points: &[Point], typical: &[f64]) -> Option<(f64, f64)> {
    const ROUNDS: usize = 20;
    // Tukey's constant for 95 % efficiency with normal errors.
    const REACH: f64 = 4.685;
    let base: Vec<f64> = typical.iter().map(|time_ns| time_ns.powi(-2)).collect();
    let mut line = weighted_line(points, &base)?;
    for _ in 0..ROUNDS {
        let residuals: Vec<f64> = points
            .iter()
            .zip(typical)
            .map(|(p, typical)| (p.time_ns - line.0 - line.1 * p.size_bytes) / typical)
            .collect();
        let sizes = residuals.iter().map(|r| r.abs()).collect::<Vec<_>>();
        let scale = median(&sizes)? / 0.674_489_75;
        if scale <= 1e-12 {
            break;
        }
        let weights: Vec<f64> = base
            .iter()
            .zip(&residuals)
            .map(|(w, r)| {
                let u = r / (REACH * scale);
                // Never 0: a size whose trials are all far from the line must still influence it.
                w * if u.abs() < 1.0 { (1.0 - u * u).powi(2).max(1e-3) } else { 1e-3 }
            })
            .collect();
        let next = weighted_line(points, &weights)?;
        let step = (next.0 - line.0).abs() / (line.0.abs() + 1e-9)
            + (next.1 - line.1).abs() / (line.1.abs() + 1e-12);
        line = next;
        if step < 1e-9 {
            break;
        }
    }
    Some(line)
}

/// Groups points by size; the groups are in ascending order of size.
fn by_size(points: &[Point]) -> Vec<Vec<Point>> {
    let mut sorted = points.to_vec();
    sorted.sort_unstable_by(|a, b| a.size_bytes.total_cmp(&b.size_bytes));
    sorted.chunk_by(|a, b| a.size_bytes == b.size_bytes).map(<[Point]>::to_vec).collect()
}

/// Fits a line through the trials, except those without a positive finite time; `None` if fewer than [`SIZES_AT_LEAST`]
/// sizes remain.
pub fn fit(points: &[Point]) -> Option<Fit> {
    let usable: Vec<Point> = points
        .iter()
        .copied()
        .filter(|p| p.time_ns > 0.0 && p.time_ns.is_finite() && p.size_bytes.is_finite())
        .collect();
    let groups = by_size(&usable);
    if groups.len() < SIZES_AT_LEAST {
        return None;
    }
    let times = |group: &Vec<Point>| -> Vec<f64> { group.iter().map(|p| p.time_ns).collect() };
    let medians: Vec<f64> =
        groups.iter().map(|group| median(&times(group))).collect::<Option<_>>()?;
    let mut typical = Vec::with_capacity(usable.len());
    for (group, median) in groups.iter().zip(&medians) {
        typical.extend(std::iter::repeat_n(*median, group.len()));
    }
    // In the order of `typical`, as the samples below are.
    let usable = groups.concat();
    let (startup_ns, per_byte_ns) = robust_line(&usable, &typical)?;
    let mut worst = (0.0, 0.0);
    for (group, &time) in groups.iter().zip(&medians) {
        let size = group[0].size_bytes;
        let residual = (time - startup_ns - per_byte_ns * size).abs() / time;
        if residual > worst.0 {
            worst = (residual, size);
        }
    }
    let trials_per_size = groups.iter().map(Vec::len).min()?;
    let intervals =
        if trials_per_size < TRIALS_AT_LEAST { None } else { Some(resampled(&groups, &typical)?) };
    let bandwidth = |ns: f64| 1e9 / ns;
    Some(Fit {
        startup_ns,
        startup_interval_ns: intervals.map(|(startup, _)| startup),
        per_byte_ns,
        per_byte_interval_ns: intervals.map(|(_, per_byte)| per_byte),
        bandwidth_bytes_per_s: (per_byte_ns > 0.0).then(|| bandwidth(per_byte_ns)),
        bandwidth_interval_bytes_per_s: intervals.filter(|(_, per_byte)| per_byte.low > 0.0).map(
            |(_, per_byte)| Interval {
                low: bandwidth(per_byte.high),
                high: bandwidth(per_byte.low),
            },
        ),
        worst_relative_residual: worst.0,
        worst_at_bytes: worst.1,
        points: usable.len(),
        trials_per_size,
        sizes: groups.len(),
    })
}

/// Returns the 95 % intervals of the start-up cost and of the cost of a byte, by resampling the trials of each size.
fn resampled(groups: &[Vec<Point>], typical: &[f64]) -> Option<(Interval, Interval)> {
    let (mut startups, mut slopes) = (Vec::new(), Vec::new());
    let mut random = Pcg64Mcg::seed_from_u64(SEED);
    let mut sample = Vec::with_capacity(typical.len());
    for _ in 0..RESAMPLES {
        sample.clear();
        for group in groups {
            sample.extend(group.iter().map(|_| group[random.random_range(0..group.len())]));
        }
        if let Some((startup, slope)) = robust_line(&sample, typical) {
            startups.push(startup);
            slopes.push(slope);
        }
    }
    let interval =
        |v: &[f64]| Some(Interval { low: quantile(v, 0.025)?, high: quantile(v, 0.975)? });
    Some((interval(&startups)?, interval(&slopes)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NIST StRD, linear regression, data set "Norris" (ozone monitors): y, x.
    const NORRIS: [(f64, f64); 36] = [
        (0.1, 0.2),
        (338.8, 337.4),
        (118.1, 118.2),
        (888.0, 884.6),
        (9.2, 10.1),
        (228.1, 226.5),
        (668.5, 666.3),
        (998.5, 996.3),
        (449.1, 448.6),
        (778.9, 777.0),
        (559.2, 558.2),
        (0.3, 0.4),
        (0.1, 0.6),
        (778.1, 775.5),
        (668.8, 666.9),
        (339.3, 338.0),
        (448.9, 447.5),
        (10.8, 11.6),
        (557.7, 556.0),
        (228.3, 228.1),
        (998.0, 995.8),
        (888.8, 887.6),
        (119.6, 120.2),
        (0.3, 0.3),
        (0.6, 0.3),
        (557.6, 556.8),
        (339.3, 339.1),
        (888.0, 887.2),
        (998.5, 999.0),
        (778.9, 779.0),
        (10.2, 11.1),
        (117.6, 118.3),
        (228.9, 229.2),
        (668.4, 669.1),
        (449.2, 448.9),
        (0.2, 0.5),
    ];

    #[test]
    fn the_line_is_the_one_nist_certifies() {
        let points: Vec<Point> =
            NORRIS.iter().map(|&(y, x)| Point { size_bytes: x, time_ns: y }).collect();
        let (intercept, slope) = weighted_line(&points, &[1.0; 36]).expect("a line");
        assert!((intercept + 0.262_323_073_774_029).abs() < 1e-9, "{intercept}");
        assert!((slope - 1.002_116_818_020_45).abs() < 1e-11, "{slope}");
    }

    /// Trials around 3 us + size / (4 bytes per ns), up to 2 % above and below.
    fn trials(sizes: &[f64]) -> Vec<Point> {
        let wobble = [0.99, 1.0, 1.02, 0.985, 1.01];
        sizes
            .iter()
            .flat_map(|s| wobble.map(|w| Point { size_bytes: *s, time_ns: (3000.0 + s / 4.0) * w }))
            .collect()
    }

    #[test]
    fn startup_and_bandwidth_are_found_with_their_error() {
        let fit = fit(&trials(&[64.0, 1024.0, 16384.0, 262_144.0, 1_048_576.0])).expect("a fit");
        assert!((fit.startup_ns / 3000.0 - 1.0).abs() < 0.01, "{fit:?}");
        let bandwidth = fit.bandwidth_bytes_per_s.expect("a positive slope");
        assert!((bandwidth / 4e9 - 1.0).abs() < 0.02, "{fit:?}");
        assert!(fit.startup_interval_ns.expect("five trials").contains(3000.0), "{fit:?}");
        assert!(fit.bandwidth_interval_bytes_per_s.expect("positive").contains(bandwidth));
        assert!(fit.worst_relative_residual < 0.02, "{fit:?}");
        assert_eq!((fit.points, fit.trials_per_size, fit.sizes), (25, 5, 5));
    }

    #[test]
    fn a_size_with_fewer_than_five_trials_leaves_the_line_without_intervals() {
        let mut points = trials(&[64.0, 1024.0, 16384.0, 262_144.0]);
        let whole = fit(&points).expect("a fit");
        points.pop();
        let fit = fit(&points).expect("a fit");
        assert!((fit.startup_ns / whole.startup_ns - 1.0).abs() < 0.02, "{fit:?}");
        assert_eq!((fit.points, fit.trials_per_size), (19, 4));
        assert_eq!((fit.startup_interval_ns, fit.per_byte_interval_ns), (None, None));
        assert!(fit.bandwidth_bytes_per_s.is_some(), "{fit:?}");
        assert_eq!(fit.bandwidth_interval_bytes_per_s, None);
    }

    #[test]
    fn one_wild_trial_does_not_move_the_line() {
        let mut points = trials(&[64.0, 1024.0, 16384.0, 262_144.0]);
        points[7].time_ns *= 40.0;
        let fit = fit(&points).expect("a fit");
        assert!((fit.startup_ns / 3000.0 - 1.0).abs() < 0.03, "{fit:?}");
    }

    #[test]
    fn trials_that_are_far_too_fast_do_not_attract_the_line() {
        let mut points = trials(&[64.0, 1024.0, 16384.0, 262_144.0]);
        points[0].time_ns /= 10.0;
        points[1].time_ns /= 20.0;
        let fit = fit(&points).expect("a fit");
        assert!((fit.startup_ns / 3000.0 - 1.0).abs() < 0.05, "{fit:?}");
    }

    #[test]
    fn a_bend_is_reported() {
        let mut points = trials(&[64.0, 1024.0, 16384.0, 65536.0]);
        for p in points.iter_mut().filter(|p| p.size_bytes > 60_000.0) {
            p.time_ns *= 6.0;
        }
        assert!(fit(&points).expect("a fit").worst_relative_residual > 0.25);
    }

    #[test]
    fn a_flat_series_has_a_startup_and_no_bandwidth_bound() {
        let points: Vec<Point> = [64.0, 128.0, 256.0]
            .iter()
            .flat_map(|s| {
                [100.0, 101.0, 99.0, 102.0, 98.0].map(|t| Point { size_bytes: *s, time_ns: t })
            })
            .collect();
        let fit = fit(&points).expect("a fit");
        assert!((fit.startup_ns - 100.0).abs() < 2.0);
        assert_eq!(fit.bandwidth_interval_bytes_per_s, None);
    }

    #[test]
    fn too_few_sizes_give_no_line() {
        assert_eq!(fit(&trials(&[64.0, 128.0])), None);
        assert_eq!(fit(&[]), None);
        let bad = [0.0, f64::NAN, f64::INFINITY].map(|t| Point { size_bytes: 1.0, time_ns: t });
        assert_eq!(fit(&bad), None);
    }
}
