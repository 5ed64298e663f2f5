//! Bootstrap percentile intervals of the median and of the ratio of two medians.
//!
//! The bootstrap distribution of a median has a closed form (Efron, "Bootstrap methods: another look at the jackknife",
//! 1979, section 3): the median of a resample is one of the figures or the mean of two, with binomial probabilities.
//! For the few trials of a case, this exact distribution is used: it needs no random numbers and always gives the same
//! result. Larger samples are resampled with a fixed seed.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use super::{binomial_tail, quantile_of_sorted, sorted};

/// The distribution of a sample's median is exact if the sample has at most this many values; otherwise it comes from
/// resampling. The cost of the exact distribution grows with the cube of the number of values.
const EXACT_AT_MOST: usize = 64;
/// Number of resamples if the exact distribution is too expensive. The error of the 2.5 % point is then below 0.2 %.
const RESAMPLES: usize = 10_000;
/// Seed of the resampling: an arbitrary constant, so that the same figures give the same interval in every run.
const SEED: u64 = 0x0063_726f_7373_7761;

/// A confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether `x` lies in the interval.
    pub fn contains(&self, x: f64) -> bool {
        self.low <= x && x <= self.high
    }
}

/// The interval of the median from bootstrap percentiles at this level (e.g. 0.95). With five trials, it is their whole
/// range. [`coverage`] says how often it contains the true median.
pub fn median_interval(figures: &[f64], level: f64) -> Option<Interval> {
    let sorted = sorted(figures)?;
    Some(interval(medians(&sorted, SEED), level))
}

/// The probability with which [`median_interval`] at a level of 0.95 contains the true median of what `n` trials were
/// drawn from. It is not 0.95, because an interval of few figures can only end at a figure, or midway between two: that
/// of five is their whole range. The probability of an interval that ends at figures is exact for every distribution;
/// that of one which ends between two is Hettmansperger and Sheather's interpolation ("Confidence intervals based on
/// interpolated order statistics", 1986). 0 without trials.
pub fn coverage(n: usize) -> f64 {
    if n > EXACT_AT_MOST {
        return 0.95;
    }
    let places: Vec<f64> = (0..n).map(|at| at as f64).collect();
    let Some(interval) = median_interval(&places, 0.95) else { return 0.0 };
    // The interval misses the true median if at most `below` of the figures lie on one side of it.
    let between = |below: f64| 1.0 - 2.0 * (1.0 - binomial_tail(n, below as usize + 1, 0.5));
    let (outer, inner) = (between(interval.low.floor()), between(interval.low.ceil()));
    let depth = interval.low.floor() + 1.0;
    outer - depth / n as f64 * (outer - inner)
}

/// The interval of `median(over) / median(under)`, with both samples resampled independently. `None` if a figure is not
/// positive, because a ratio of rates or times would be meaningless.
pub fn ratio_interval(over: &[f64], under: &[f64], level: f64) -> Option<Interval> {
    let (over, under) = (sorted(over)?, sorted(under)?);
    if over[0] <= 0.0 || under[0] <= 0.0 {
        return None;
    }
    let (over, under) = (medians(&over, SEED), medians(&under, SEED + 1));
    if over.len() * under.len() <= 100_000 {
        let mut ratios = Vec::with_capacity(over.len() * under.len());
        for &(x, p) in &over {
            ratios.extend(under.iter().map(|&(y, q)| (x / y, p * q)));
        }
        return Some(interval(ratios, level));
    }
    let mut random = Pcg64Mcg::seed_from_u64(SEED);
    let over = draw(&over, &mut random);
    let under = draw(&under, &mut random);
    let weight = 1.0 / RESAMPLES as f64;
    Some(interval(over.iter().zip(&under).map(|(x, y)| (x / y, weight)).collect(), level))
}

/// The possible medians of resamples, with their probabilities.
fn medians(sorted: &[f64], seed: u64) -> Vec<(f64, f64)> {
    let n = sorted.len();
    if n > EXACT_AT_MOST {
        return resampled(sorted, seed);
    }
    if n % 2 == 1 { odd(sorted) } else { even(sorted) }
}

/// The probability that at least `k` of `n` draws from `n` figures are among the first `i` figures.
fn tail(n: usize, i: usize, k: usize) -> f64 {
    let p = i as f64 / n as f64;
    (k..=n).map(|j| choose(n, j) * p.powi(j as i32) * (1.0 - p).powi((n - j) as i32)).sum()
}

fn choose(n: usize, k: usize) -> f64 {
    (0..k).fold(1.0, |c, i| c * (n - i) as f64 / (i + 1) as f64)
}

fn odd(sorted: &[f64]) -> Vec<(f64, f64)> {
    let n = sorted.len();
    let middle = n / 2 + 1;
    // Rounding may leave a difference just below 0.
    let p = |i: usize| (tail(n, i + 1, middle) - tail(n, i, middle)).max(0.0);
    (0..n).map(|i| (sorted[i], p(i))).collect()
}

fn even(sorted: &[f64]) -> Vec<(f64, f64)> {
    let n = sorted.len();
    let half = n / 2;
    let power = |i: usize| (i as f64 / n as f64).powi(half as i32);
    let mut out = Vec::with_capacity(n * (n + 1) / 2);
    for i in 0..n {
        // The lower middle figure is figure i ...
        let mut left = tail(n, i + 1, half) - tail(n, i, half);
        for j in i + 1..n {
            // ... and the upper middle figure is figure j: half of the draws have their maximum at i, half their
            // minimum at j.
            let p = choose(n, half) * (power(i + 1) - power(i)) * (power(n - j) - power(n - j - 1));
            left -= p;
            out.push(((sorted[i] + sorted[j]) / 2.0, p));
        }
        out.push((sorted[i], left.max(0.0)));
    }
    out
}

fn resampled(sorted: &[f64], seed: u64) -> Vec<(f64, f64)> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut sample = vec![0.0; sorted.len()];
    let weight = 1.0 / RESAMPLES as f64;
    (0..RESAMPLES)
        .map(|_| {
            sample.fill_with(|| sorted[random.random_range(0..sorted.len())]);
            sample.sort_unstable_by(f64::total_cmp);
            (quantile_of_sorted(&sample, 0.5), weight)
        })
        .collect()
}

fn draw(distribution: &[(f64, f64)], random: &mut Pcg64Mcg) -> Vec<f64> {
    let mut cumulative: Vec<(f64, f64)> = Vec::with_capacity(distribution.len());
    let mut sum = 0.0;
    for &(value, p) in distribution {
        sum += p;
        cumulative.push((sum, value));
    }
    (0..RESAMPLES)
        .map(|_| {
            let at = random.random::<f64>() * sum;
            let i = cumulative.partition_point(|&(c, _)| c < at);
            cumulative[i.min(cumulative.len() - 1)].1
        })
        .collect()
}

/// The interval that contains the central part `level` of a discrete distribution.
fn interval(mut distribution: Vec<(f64, f64)>, level: f64) -> Interval {
    distribution.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let tail = (1.0 - level) / 2.0;
    // Sums of probabilities have rounding errors; this tolerance keeps an exact boundary on its side.
    let hair = 1e-12;
    let first = |wanted: f64| {
        let mut sum = 0.0;
        for &(value, p) in &distribution {
            sum += p;
            if sum > wanted + hair {
                return value;
            }
        }
        distribution[distribution.len() - 1].0
    };
    Interval { low: first(tail), high: first(1.0 - tail - 2.0 * hair) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coverage_of_few_trials_is_below_the_level() {
        // 1 - 2 * 0.5^5: all five on one side of the true median.
        assert_eq!(coverage(5), 0.9375);
        // From the second to the sixth of seven: 1 - 2 * (1 + 7) / 128.
        assert_eq!(coverage(7), 0.875);
        assert_eq!((coverage(0), coverage(65)), (0.0, 0.95));
        assert!((5..=64).map(coverage).all(|c| (0.87..0.98).contains(&c)));
        // An interval that ends midway: between those of the whole range and of the second to the fifth.
        assert!((coverage(6) - 0.9375).abs() < 1e-9, "{}", coverage(6));
    }

    fn check_sums(sorted: &[f64]) {
        let exact = medians(sorted, 1);
        let sum: f64 = exact.iter().map(|(_, p)| p).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        assert!(exact.iter().all(|(_, p)| *p >= 0.0));
    }

    #[test]
    fn probabilities_of_three_and_two_are_those_worked_by_hand() {
        // Of 27 resamples of 3, the median is the smallest figure in 7, the middle one in 13, the largest in 7.
        let three = odd(&[1.0, 2.0, 3.0]);
        for (got, want) in three.iter().zip([7.0, 13.0, 7.0]) {
            assert!((got.1 - want / 27.0).abs() < 1e-12, "{three:?}");
        }
        // Of 4 resamples of 2: (1,1), (1,2) twice, (2,2).
        let mut two = even(&[1.0, 2.0]);
        two.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        assert_eq!(two, [(1.0, 0.25), (1.5, 0.5), (2.0, 0.25)]);
    }

    #[test]
    fn efrons_distribution_for_thirteen_figures() {
        // Published by Efron for n = 13, to four places: the median equals the k-th figure with probabilities .0000
        // .0015 .0142 .0550 .1242 .1936 .2230, and symmetrically.
        let figures: Vec<f64> = (1..=13).map(f64::from).collect();
        let published = [0.0000, 0.0015, 0.0142, 0.0550, 0.1242, 0.1936, 0.2230];
        for (k, want) in published.iter().enumerate() {
            let got = odd(&figures)[k].1;
            assert!((got - want).abs() < 1e-4, "k = {}: {got} against {want}", k + 1);
        }
    }

    #[test]
    fn exact_distributions_sum_to_one() {
        for n in 1..=EXACT_AT_MOST {
            check_sums(&(0..n).map(|i| i as f64).collect::<Vec<_>>());
        }
    }

    #[test]
    fn exact_and_resampled_agree() {
        for n in [6usize, 9, 16, 23, 36, 61] {
            let figures: Vec<f64> = (0..n).map(|i| (i * i) as f64).collect();
            let exact = interval(medians(&figures, 1), 0.9);
            let drawn = interval(resampled(&figures, 7), 0.9);
            let spread = figures[n - 1] * 0.1;
            assert!((exact.low - drawn.low).abs() <= spread, "{n}: {exact:?} {drawn:?}");
            assert!((exact.high - drawn.high).abs() <= spread, "{n}: {exact:?} {drawn:?}");
        }
    }

    #[test]
    fn the_interval_of_equal_figures_is_a_point() {
        for n in [1, 2, 5, 8, 40] {
            assert_eq!(
                median_interval(&vec![7.0; n], 0.95),
                Some(Interval { low: 7.0, high: 7.0 })
            );
        }
    }

    #[test]
    fn a_ratio_is_found_and_refused_where_it_has_no_meaning() {
        let under = [10.0, 10.1, 9.9, 10.05, 9.95];
        let over: Vec<f64> = under.iter().map(|x| x * 2.0).collect();
        let ratio = ratio_interval(&over, &under, 0.95).expect("positive figures");
        assert!(ratio.contains(2.0) && ratio.low > 1.95 && ratio.high < 2.05, "{ratio:?}");
        assert_eq!(ratio_interval(&[0.0, 1.0], &under, 0.95), None);
        assert_eq!(ratio_interval(&over, &[], 0.95), None);
    }

    #[test]
    fn large_samples_give_the_same_interval_every_time() {
        let over: Vec<f64> = (1..=300).map(|i| 100.0 + f64::from(i % 17)).collect();
        let under: Vec<f64> = (1..=300).map(|i| 50.0 + f64::from(i % 13)).collect();
        let first = ratio_interval(&over, &under, 0.95).expect("positive figures");
        assert_eq!(Some(first), ratio_interval(&over, &under, 0.95));
        assert!(first.low <= first.high && first.contains(108.0 / 56.0), "{first:?}");
    }
}
