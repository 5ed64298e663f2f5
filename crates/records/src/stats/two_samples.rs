//! Whether one sample tends to be larger than another, and by how much.

use serde::{Deserialize, Serialize};

use super::{median, sorted};

/// The p-value is exact if both samples together have at most this many values, and otherwise approximate.
const EXACT_AT_MOST: usize = 50;

/// Result of Mann-Whitney's U test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MannWhitney {
    /// Number of pairs in which the first sample's figure is larger; ties count one half.
    pub u: f64,
    /// Two-sided p-value: the probability that U is at least this far from its mean if both samples come from one
    /// distribution.
    pub p: f64,
    /// Whether `p` is exact, also in the presence of ties; otherwise it is the normal approximation with corrections
    /// for ties and continuity.
    pub exact: bool,
}

/// Ranks from 1, doubled so that the mean ranks of ties are integers: first those of `a`, then those of `b`.
fn doubled_ranks(a: &[f64], b: &[f64]) -> Vec<u32> {
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_unstable_by(|&i, &j| all[i].total_cmp(&all[j]));
    let mut ranks = vec![0; all.len()];
    let mut at = 0;
    while at < order.len() {
        let mut end = at + 1;
        while end < order.len() && all[order[end]] == all[order[at]] {
            end += 1;
        }
        for &i in &order[at..end] {
            ranks[i] = (at + 1 + end) as u32;
        }
        at = end;
    }
    ranks
}

/// Tests whether `a` tends to be larger or smaller than `b`; `None` if one of them is empty or contains a NaN.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Option<MannWhitney> {
    sorted(a)?;
    sorted(b)?;
    let (n, m) = (a.len(), b.len());
    let ranks = doubled_ranks(a, b);
    let sum: u32 = ranks[..n].iter().sum();
    let doubled_u = f64::from(sum) - (n * (n + 1)) as f64;
    let u = doubled_u / 2.0;
    let mean = (n * m) as f64 / 2.0;
    if n + m <= EXACT_AT_MOST {
        return Some(MannWhitney { u, p: exact_p(&ranks, n, sum), exact: true });
    }
    let total = (n + m) as f64;
    let mut sorted_ranks = ranks.clone();
    sorted_ranks.sort_unstable();
    let ties: f64 = sorted_ranks
        .chunk_by(|x, y| x == y)
        .map(|tie| (tie.len() as f64).powi(3) - tie.len() as f64)
        .sum();
    let variance = (n * m) as f64 / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    if variance <= 0.0 {
        return Some(MannWhitney { u, p: 1.0, exact: false });
    }
    let z = ((u - mean).abs() - 0.5).max(0.0) / variance.sqrt();
    Some(MannWhitney { u, p: libm::erfc(z / std::f64::consts::SQRT_2), exact: false })
}

/// The fraction of all ways to choose `n` of the ranks in which the sum is at least as far from the mean as `seen`.
fn exact_p(ranks: &[u32], n: usize, seen: u32) -> f64 {
    let total: u32 = ranks.iter().sum();
    let width = total as usize + 1;
    // ways[k * width + s]: choices of k ranks with sum s. Counts exceed 2^53 only far from the tails.
    let mut ways = vec![0.0f64; (n + 1) * width];
    ways[0] = 1.0;
    for (taken, &rank) in ranks.iter().enumerate() {
        for k in (1..=n.min(taken + 1)).rev() {
            for s in (rank as usize..width).rev() {
                ways[k * width + s] += ways[(k - 1) * width + s - rank as usize];
            }
        }
    }
    let mean = f64::from(total) * n as f64 / ranks.len() as f64;
    let far = (f64::from(seen) - mean).abs() - 1e-9;
    let last = &ways[n * width..];
    let all: f64 = last.iter().sum();
    let beyond: f64 = last
        .iter()
        .enumerate()
        .filter(|(s, _)| (*s as f64 - mean).abs() >= far)
        .map(|(_, w)| w)
        .sum();
    (beyond / all).min(1.0)
}

/// Hodges-Lehmann estimate of the shift: the median of all differences `a - b`; `None` if one of them is empty or
/// contains a NaN.
pub fn hodges_lehmann(a: &[f64], b: &[f64]) -> Option<f64> {
    let differences: Vec<f64> = a.iter().flat_map(|x| b.iter().map(move |y| x - y)).collect();
    median(&differences)
}

/// Cliff's delta, -1..=1: the fraction of pairs in which `a` is larger minus the fraction in which it is smaller. The
/// usual thresholds of a small, medium and large effect are 0.147, 0.33 and 0.474 (Romano and others, 2006). `None` if
/// one of them is empty.
pub fn cliffs_delta(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let mut score = 0i64;
    for x in a {
        for y in b {
            score += i64::from(x > y) - i64::from(x < y);
        }
    }
    Some(score as f64 / (a.len() * b.len()) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: f64, want: f64, error: f64) {
        assert!((got - want).abs() <= error, "{got} against {want}");
    }

    #[test]
    fn hollander_and_wolfe_permeability() {
        // Hollander and Wolfe, "Nonparametric Statistical Methods" (1973), p. 69, as in R's wilcox.test: W = 35, one-sided
        // p = 0.1272, so twice that for two sides.
        let a = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        let b = [1.15, 0.88, 0.90, 0.74, 1.21];
        let test = mann_whitney(&a, &b).expect("figures");
        assert_eq!((test.u, test.exact), (35.0, true));
        near(test.p, 0.2544, 1e-4);
        // U = 35 of 50 pairs.
        near(cliffs_delta(&a, &b).expect("figures"), 0.4, 1e-12);
    }

    #[test]
    fn age_at_diagnosis() {
        // The example of SciPy's mannwhitneyu: U = 17, exact p = 1/9.
        let test = mann_whitney(&[19.0, 22.0, 16.0, 29.0, 24.0], &[20.0, 11.0, 17.0, 12.0]);
        let test = test.expect("figures");
        assert_eq!(test.u, 17.0);
        near(test.p, 1.0 / 9.0, 1e-12);
    }

    #[test]
    fn five_against_five_apart_is_two_of_252() {
        let test = mann_whitney(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]);
        near(test.expect("figures").p, 2.0 / 252.0, 1e-12);
    }

    #[test]
    fn ties_are_counted_exactly() {
        // Ranks of (1, 2 | 2, 3): 1, 2.5, 2.5, 4. Sums of two: 3.5, 3.5, 5, 5, 6.5, 6.5; 3.5 is observed, so 4 of 6.
        let test = mann_whitney(&[1.0, 2.0], &[2.0, 3.0]).expect("figures");
        assert_eq!(test.u, 0.5);
        near(test.p, 4.0 / 6.0, 1e-12);
        near(mann_whitney(&[5.0; 4], &[5.0; 4]).expect("figures").p, 1.0, 1e-12);
        near(mann_whitney(&[5.0; 40], &[5.0; 40]).expect("figures").p, 1.0, 1e-12);
    }

    #[test]
    fn the_approximation_meets_the_exact_value() {
        let a: Vec<f64> = (0..25).map(|i| f64::from(i) * 1.03).collect();
        let b: Vec<f64> = (0..25).map(|i| f64::from(i) + 4.5).collect();
        let exact = mann_whitney(&a, &b).expect("figures");
        assert!(exact.exact);
        let more: Vec<f64> = b.iter().copied().chain([12.0]).collect();
        let approximate = mann_whitney(&a, &more).expect("figures");
        assert!(!approximate.exact);
        near(approximate.p, exact.p, 0.02);
    }

    #[test]
    fn hodges_lehmann_is_the_median_difference() {
        // Differences: 3-1, 3-2, 5-1, 5-2, 10-1, 10-2 = 2, 1, 4, 3, 9, 8; median (3+4)/2.
        assert_eq!(hodges_lehmann(&[3.0, 5.0, 10.0], &[1.0, 2.0]), Some(3.5));
        assert_eq!(hodges_lehmann(&[], &[1.0]), None);
    }

    #[test]
    fn cliffs_delta_goes_from_minus_one_to_one() {
        assert_eq!(cliffs_delta(&[1.0, 2.0], &[3.0, 4.0]), Some(-1.0));
        assert_eq!(cliffs_delta(&[3.0, 4.0], &[1.0, 2.0]), Some(1.0));
        assert_eq!(cliffs_delta(&[1.0], &[1.0]), Some(0.0));
        assert_eq!(cliffs_delta(&[], &[1.0]), None);
    }
}
