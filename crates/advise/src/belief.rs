//! Estimates each candidate's cost from the trials of all candidates.
//!
//! Of many candidates with the same cost, the one with the lowest median was lucky, and the others look worse than they
//! are. Each median is therefore shrunk towards the common mean. It is shrunk more strongly if the differences between
//! the candidates are hardly larger than the scatter of their trials. How much the candidates differ (their spread) is
//! itself uncertain. Every spread from zero to the logarithm of [`NEAR`] is therefore weighted by its probability given
//! the medians (the hierarchical normal model of Gelman et al., Bayesian Data Analysis, section 5.4, with a uniform
//! prior of the spread). The most probable spread alone would often be zero, and candidates that differ by 7 % would be
//! declared equal with certainty. Everything is computed in logarithms, since costs are compared by ratios.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crossway_records::stats::median;

/// Candidates whose cost exceeds the lowest by more than this factor do not contribute to the common spread: they are
/// clearly more expensive.
const NEAR: f64 = 1.5;
/// Number of equal steps between zero and the logarithm of [`NEAR`]; the spreads that are weighted lie at the ends of
/// the steps.
const SPREADS: usize = 40;
const RESAMPLES: usize = 200;
const DRAWS: usize = 2_000;
const SEED: u64 = 0x0ad0_15ed;
/// Lower bound of a median's standard deviation. A few trials with nearly equal figures would otherwise suggest
/// certainty.
const LEAST_SD: f64 = 0.005;

/// Estimate of the logarithm of a candidate's cost from its own trials alone.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    mean: f64,
    sd: f64,
}

/// A possible spread between the candidates.
struct Spread {
    /// Standard deviation of the logarithms of the candidates' true costs.
    sd: f64,
    /// Common mean of the logarithms of the candidates' costs, given this spread.
    middle: f64,
    /// Standard deviation of the common mean.
    middle_sd: f64,
    /// Relative probability of this spread, given all medians. Until [`Spread::all`] scales it, this is the logarithm.
    weight: f64,
}

impl Spread {
    fn of(sd: f64, near: &[Seen]) -> Spread {
        let variance = |s: &Seen| s.sd * s.sd + sd * sd;
        let weights: f64 = near.iter().map(|s| 1.0 / variance(s)).sum();
        let middle = near.iter().map(|s| s.mean / variance(s)).sum::<f64>() / weights;
        let log: f64 = near
            .iter()
            .map(|s| -0.5 * (variance(s).ln() + (s.mean - middle).powi(2) / variance(s)))
            .sum();
        Spread { sd, middle, middle_sd: weights.powf(-0.5), weight: log - 0.5 * weights.ln() }
    }

    /// All spreads from zero to the logarithm of [`NEAR`], with weights scaled so that the largest is 1.
    fn all(near: &[Seen]) -> Vec<Spread> {
        let step = NEAR.ln() / SPREADS as f64;
        let mut all: Vec<Spread> =
            (0..=SPREADS).map(|n| Spread::of(n as f64 * step, near)).collect();
        let most = all.iter().map(|s| s.weight).fold(f64::NEG_INFINITY, f64::max);
        all.iter_mut().for_each(|s| s.weight = (s.weight - most).exp());
        all
    }
}

/// The logarithm of the median, and its scatter over resamples of the trials.
fn seen(costs: &[f64], random: &mut Pcg64Mcg) -> Seen {
    let mut draw = || {
        let again: Vec<f64> =
            costs.iter().map(|_| costs[random.random_range(0..costs.len())]).collect();
        median(&again).unwrap_or(f64::NAN).ln()
    };
    let draws: Vec<f64> = (0..RESAMPLES).map(|_| draw()).collect();
    let mean = draws.iter().sum::<f64>() / RESAMPLES as f64;
    let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / RESAMPLES as f64;
    Seen { mean: median(costs).unwrap_or(f64::NAN).ln(), sd: variance.sqrt().max(LEAST_SD) }
}

/// A number from the standard normal distribution (Box-Muller transform).
fn normal(random: &mut Pcg64Mcg) -> f64 {
    let (u, v): (f64, f64) =
        (random.random_range(f64::EPSILON..1.0), random.random_range(0.0..1.0));
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// The estimates of all candidates' costs, based on the trials of all of them.
struct Beliefs {
    seen: Vec<Seen>,
    /// Logarithm of the highest cost that contributes to the common spread.
    near: f64,
    spreads: Vec<Spread>,
}

impl Beliefs {
    fn of(costs: &[&[f64]], random: &mut Pcg64Mcg) -> Beliefs {
        let seen: Vec<Seen> = costs.iter().map(|costs| self::seen(costs, random)).collect();
        let near = seen.iter().map(|s| s.mean).fold(f64::INFINITY, f64::min) + NEAR.ln();
        let together: Vec<Seen> = seen.iter().copied().filter(|s| s.mean <= near).collect();
        Beliefs { seen, near, spreads: Spread::all(&together) }
    }

    /// Draws the logarithms of one combination of true costs from their joint probability distribution.
    fn draw(&self, random: &mut Pcg64Mcg) -> Vec<f64> {
        let all: f64 = self.spreads.iter().map(|s| s.weight).sum();
        let mut rest = random.random_range(0.0..all);
        let spread = self.spreads.iter().find(|s| {
            rest -= s.weight;
            rest < 0.0
        });
        let spread = spread.unwrap_or(&self.spreads[0]);
        let middle = spread.middle + spread.middle_sd * normal(random);
        let mut cost = |s: &Seen| {
            if s.mean > self.near {
                return s.mean + s.sd * normal(random);
            }
            let own = spread.sd.powi(2) / (spread.sd.powi(2) + s.sd.powi(2));
            middle + own * (s.mean - middle) + s.sd * own.sqrt() * normal(random)
        };
        self.seen.iter().map(&mut cost).collect()
    }
}

/// For each candidate, the probability that it costs at most (1 + `share`) times as much as the cheapest, given the
/// trials of all candidates. Every candidate must have at least one trial.
pub(super) fn within(costs: &[&[f64]], share: f64) -> Vec<f64> {
    let mut random = Pcg64Mcg::seed_from_u64(SEED);
    let beliefs = Beliefs::of(costs, &mut random);
    let mut good = vec![0_usize; costs.len()];
    for _ in 0..DRAWS {
        let draws = beliefs.draw(&mut random);
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

    fn scattered(around: f64, by: f64, trials: usize, seed: u64) -> Vec<f64> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        (0..trials).map(|_| around * (1.0 + by * random.random_range(-1.0..1.0))).collect()
    }

    fn of(all: &[Vec<f64>]) -> Vec<f64> {
        within(&all.iter().map(Vec::as_slice).collect::<Vec<_>>(), 0.05)
    }

    #[test]
    fn equals_that_scatter_are_believed_to_be_equal() {
        let equals: Vec<Vec<f64>> = (0..12).map(|seed| scattered(100.0, 0.1, 36, seed)).collect();
        let sure = of(&equals);
        assert!(sure.iter().all(|p| *p > 0.8), "{sure:?}");
    }

    #[test]
    fn what_differs_stays_different() {
        let sure = of(&[
            scattered(100.0, 0.05, 15, 1),
            scattered(130.0, 0.05, 15, 2),
            scattered(900.0, 0.05, 15, 3),
        ]);
        assert!(sure[0] > 0.99 && sure[1] < 0.01 && sure[2] < 0.01, "{sure:?}");
    }

    #[test]
    fn few_scattered_trials_do_not_make_candidates_equal_with_certainty() {
        // The scatter explains the differences, but does not show that there are none.
        let sure = of(&[
            scattered(100.0, 0.2, 10, 1),
            scattered(102.0, 0.2, 10, 2),
            scattered(107.0, 0.2, 10, 3),
        ]);
        assert!(sure[2] < 0.9 && sure.iter().all(|p| *p > 0.1), "{sure:?}");
    }

    /// Tests that claims made with a certain probability come true as often as that probability says. Uses many groups
    /// of eight candidates whose true costs differ by a few per cent.
    #[test]
    fn what_is_believed_at_a_probability_is_true_that_often() {
        let (mut said, mut kept) = (0.0, 0.0);
        for field in 0..200_u64 {
            let mut random = Pcg64Mcg::seed_from_u64(field);
            let truth: Vec<f64> =
                (0..8).map(|_| 100.0 * (0.06 * normal(&mut random)).exp()).collect();
            let trials: Vec<Vec<f64>> = truth
                .iter()
                .zip(0..)
                .map(|(cost, n)| scattered(*cost, 0.2, 10, 1_000 * (field + 1) + n))
                .collect();
            let sure = of(&trials);
            let best = truth.iter().copied().fold(f64::INFINITY, f64::min);
            let most = sure.iter().copied().fold(0.0, f64::max);
            let choice = sure.iter().position(|p| *p == most).expect("a choice");
            said += most;
            kept += f64::from(u8::from(truth[choice] <= best * 1.05));
        }
        assert!((said - kept).abs() <= 20.0, "said {said} of 200, true {kept}");
    }
}
