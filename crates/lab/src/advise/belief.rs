//! Estimates of the candidates' costs, each based on the trials of all.
//!
//! Of many candidates with the same cost, the one with the lowest median was lucky, and the others look worse than
//! they are. Each median is therefore shrunk towards the common one, the more so the less the candidates differ
//! beyond the scatter of their trials (empirical Bayes; the spread between candidates is DerSimonian and Laird's
//! estimate). Everything is computed in logarithms, since costs are compared by ratios.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::stats::median;

/// Costs above the lowest cost by more than this factor do not contribute to the common spread: they are simply
/// larger.
const NEAR: f64 = 1.5;
const RESAMPLES: usize = 200;
const SEED: u64 = 0x0ad0_15ed;
/// Lower bound of a median's standard deviation, even if a few equal figures suggest less.
const LEAST_SD: f64 = 0.005;

/// Estimate of the logarithm of a candidate's cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Belief {
    pub(super) mean: f64,
    pub(super) sd: f64,
}

/// Returns one estimate for each candidate's costs, which must not be empty.
pub(super) fn beliefs(costs: &[&[f64]]) -> Vec<Belief> {
    let mut random = Pcg64Mcg::seed_from_u64(SEED);
    let seen: Vec<Belief> = costs.iter().map(|costs| seen(costs, &mut random)).collect();
    let least = seen.iter().map(|b| b.mean).fold(f64::INFINITY, f64::min);
    let is_near = |b: &&Belief| b.mean <= least + NEAR.ln();
    let near: Vec<&Belief> = seen.iter().filter(is_near).collect();
    let weight = |b: &Belief| b.sd.powi(-2);
    let sum = |of: &dyn Fn(&Belief) -> f64| near.iter().map(|b| of(b)).sum::<f64>();
    let weights = sum(&weight);
    let middle = sum(&|b| weight(b) * b.mean) / weights;
    let scatter = sum(&|b| weight(b) * (b.mean - middle).powi(2));
    let by_chance = near.len() as f64 - 1.0;
    let scale = weights - sum(&|b| weight(b).powi(2)) / weights;
    let between = if scale > 0.0 { ((scatter - by_chance) / scale).max(0.0) } else { 0.0 };
    let drawn = |b: &Belief| {
        if !is_near(&b) || near.len() < 2 {
            return *b;
        }
        let own = between / (between + b.sd * b.sd);
        Belief { mean: middle + own * (b.mean - middle), sd: b.sd * own.sqrt() }
    };
    seen.iter().map(drawn).collect()
}

/// The logarithm of the median, and its scatter over resamples of the trials.
fn seen(costs: &[f64], random: &mut Pcg64Mcg) -> Belief {
    let mut draw = || {
        let again: Vec<f64> =
            costs.iter().map(|_| costs[random.random_range(0..costs.len())]).collect();
        median(&again).unwrap_or(f64::NAN).ln()
    };
    let draws: Vec<f64> = (0..RESAMPLES).map(|_| draw()).collect();
    let mean = draws.iter().sum::<f64>() / RESAMPLES as f64;
    let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / RESAMPLES as f64;
    Belief { mean: median(costs).unwrap_or(f64::NAN).ln(), sd: variance.sqrt().max(LEAST_SD) }
}

/// For each candidate, the probability that it costs at most `share` more than the cheapest.
pub(super) fn within(beliefs: &[Belief], share: f64) -> Vec<f64> {
    const DRAWS: usize = 1_000;
    let mut random = Pcg64Mcg::seed_from_u64(SEED);
    let mut normal = |b: &Belief| {
        // Box-Muller transform.
        let (u, v): (f64, f64) =
            (random.random_range(f64::EPSILON..1.0), random.random_range(0.0..1.0));
        b.mean + b.sd * (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    };
    let mut good = vec![0_usize; beliefs.len()];
    for _ in 0..DRAWS {
        let draws: Vec<f64> = beliefs.iter().map(&mut normal).collect();
        let most = draws.iter().copied().fold(f64::INFINITY, f64::min) + (1.0 + share).ln();
        for (good, draw) in good.iter_mut().zip(draws) {
            *good += usize::from(draw <= most);
        }
    }
    good.into_iter().map(|n| n as f64 / DRAWS as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scattered(around: f64, by: f64, seed: u64) -> Vec<f64> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        (0..15).map(|_| around * (1.0 + by * random.random_range(-1.0..1.0))).collect()
    }

    fn of(all: &[Vec<f64>]) -> Vec<Belief> {
        beliefs(&all.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    #[test]
    fn equals_that_scatter_are_believed_to_be_equal() {
        let equals: Vec<Vec<f64>> = (0..12).map(|seed| scattered(100.0, 0.3, seed)).collect();
        let believed = of(&equals);
        let spread = |of: &dyn Fn(usize) -> f64| {
            let all: Vec<f64> = (0..equals.len()).map(of).collect();
            all.iter().copied().fold(0.0, f64::max)
                / all.iter().copied().fold(f64::INFINITY, f64::min)
        };
        let medians = spread(&|n| median(&equals[n]).expect("figures"));
        let means = spread(&|n| believed[n].mean.exp());
        assert!(medians > 1.1 && means < 1.0 + (medians - 1.0) / 2.0, "{medians} {means}");
        let sure = within(&believed, 0.05);
        assert!(sure.iter().all(|p| *p > 0.8), "{sure:?}");
    }

    #[test]
    fn what_differs_stays_different() {
        let all = [scattered(100.0, 0.05, 1), scattered(130.0, 0.05, 2), scattered(900.0, 0.05, 3)];
        let believed = of(&all);
        assert!((believed[0].mean.exp() / 100.0 - 1.0).abs() < 0.05);
        assert!((believed[1].mean.exp() / 130.0 - 1.0).abs() < 0.05);
        let sure = within(&believed, 0.05);
        assert!(sure[0] > 0.99 && sure[1] < 0.01 && sure[2] < 0.01, "{sure:?}");
    }
}
