//! Statistics on trials. The unit is the trial, never the message: all messages of a trial share its conditions
//! (placement, frequency, neighbours), so a million of them say no more about the next trial than a single one.
//!
//! The statistics are robust (median, MAD, quantiles), because latencies have long tails. Every function accepts
//! figures in any order. A NaN among them indicates a bug in the caller; most functions then return `None`.

pub mod bootstrap;
mod estimate;
pub mod two_samples;

pub use bootstrap::{Interval, coverage, median_interval, ratio_interval};
pub use estimate::{Estimate, Summary};
pub use two_samples::{MannWhitney, cliffs_delta, hodges_lehmann, mann_whitney};

/// Minimum number of trials for an interval of the median. With fewer trials, even their whole range contains the true
/// median with a probability of less than 90 % (1 - 2 * 0.5^n).
pub const TRIALS_AT_LEAST: usize = 5;

/// Whether there are enough trials for an interval, a noise figure and a place in a ranking.
pub fn enough(figures: &[f64]) -> bool {
    figures.len() >= TRIALS_AT_LEAST
}

/// Whether more than one in ten of `trials` lack a percentile that only `with` of them have. A percentile of the others
/// would be that of the fast trials, since a slow one has fewer samples in the same time.
pub fn too_many_lack(with: usize, trials: usize) -> bool {
    with * 10 < trials * 9
}

/// What the intervals of medians over these numbers of trials are called, with how often they contain the true median:
/// `93 % interval`, or `87 to 93 % interval`. Percentages are rounded down.
pub fn interval_name(trials: impl IntoIterator<Item = usize>) -> String {
    let enough = trials.into_iter().filter(|n| *n >= TRIALS_AT_LEAST);
    let percents: Vec<u32> = enough.map(percent).collect();
    match (percents.iter().min(), percents.iter().max()) {
        (Some(least), Some(most)) if least == most => format!("{most} % interval"),
        (Some(least), Some(most)) => format!("{least} to {most} % interval"),
        _ => "interval".to_owned(),
    }
}

/// The coverage of an interval over `n` trials in per cent, rounded down.
fn percent(n: usize) -> u32 {
    (coverage(n) * 100.0).floor() as u32
}

/// The figures in ascending order; `None` if there are none or one is NaN.
pub fn sorted(figures: &[f64]) -> Option<Vec<f64>> {
    if figures.is_empty() || figures.iter().any(|x| x.is_nan()) {
        return None;
    }
    let mut sorted = figures.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Some(sorted)
}

/// The quantile `q` (`None` if that is not in 0..=1), interpolated linearly between the two nearest figures (Hyndman
/// and Fan's type 7, the default of R and NumPy).
pub fn quantile(figures: &[f64], q: f64) -> Option<f64> {
    let sorted = sorted(figures)?;
    (0.0..=1.0).contains(&q).then(|| quantile_of_sorted(&sorted, q))
}

/// The quantile `q` (0 to 1) of values in ascending order, interpolated between the two nearest; 0.0 is the minimum.
pub fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let at = q * (sorted.len() - 1) as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    // Equal neighbours are returned unchanged, so that infinities do not turn into NaN.
    if sorted[low] == sorted[high] {
        return sorted[low];
    }
    sorted[low] + (at - at.floor()) * (sorted[high] - sorted[low])
}

/// The median.
pub fn median(figures: &[f64]) -> Option<f64> {
    quantile(figures, 0.5)
}

/// The median absolute deviation from the median, not scaled.
pub fn mad(figures: &[f64]) -> Option<f64> {
    let middle = median(figures)?;
    median(&figures.iter().map(|x| (x - middle).abs()).collect::<Vec<_>>())
}

/// Indices of the figures with a modified z-score above 3.5 (Iglewicz and Hoaglin, 1993). Outliers are reported, never
/// removed. Fewer than five figures have no outliers, because so few do not show what is usual.
pub fn outliers(figures: &[f64]) -> Vec<usize> {
    const LIMIT: f64 = 3.5;
    let (Some(middle), Some(mad)) = (median(figures), mad(figures)) else { return Vec::new() };
    if figures.len() < TRIALS_AT_LEAST {
        return Vec::new();
    }
    // The factors make both scales equal the standard deviation for normal data. The second is used if more than half
    // of the figures are equal, which makes the MAD 0.
    let mean_deviation =
        figures.iter().map(|x| (x - middle).abs()).sum::<f64>() / figures.len() as f64;
    let scale = if mad > 0.0 { mad / 0.674_489_75 } else { mean_deviation * 1.253_314 };
    let far = |x: &f64| scale > 0.0 && (x - middle).abs() / scale > LIMIT;
    figures.iter().enumerate().filter(|(_, x)| far(x)).map(|(at, _)| at).collect()
}

/// Jain's fairness index of shares: 1 if all are equal, 1/n if one participant has everything; `None` if all shares are
/// 0.
pub fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// The probability of at least `k` successes in `n` independent attempts that each succeed with probability `p`.
pub fn binomial_tail(n: usize, k: usize, p: f64) -> f64 {
    // The probability of i successes, for each i from 0 to n, attempt by attempt.
    let mut exactly = vec![1.0];
    for _ in 0..n {
        let mut next = vec![0.0; exactly.len() + 1];
        for (i, share) in exactly.iter().enumerate() {
            next[i] += share * (1.0 - p);
            next[i + 1] += share * p;
        }
        exactly = next;
    }
    exactly.iter().skip(k).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_r_type_7() {
        // R: quantile(c(1,2,3,4), .25) = 1.75; quantile(1:11, .9) = 10.
        assert_eq!(quantile(&[4.0, 1.0, 3.0, 2.0], 0.25), Some(1.75));
        let eleven: Vec<f64> = (1..=11).map(f64::from).collect();
        assert_eq!(quantile(&eleven, 0.9), Some(10.0));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn nothing_and_nan_have_no_median() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, f64::NAN]), None);
        assert_eq!(quantile(&[1.0], 1.5), None);
        assert_eq!(quantile(&[f64::INFINITY, f64::INFINITY], 0.3), Some(f64::INFINITY));
        assert!(Summary::of(&[]).is_none());
    }

    #[test]
    fn mad_of_the_textbook_example() {
        // (1, 1, 2, 2, 4, 6, 9): median 2, deviations (1, 1, 0, 0, 2, 4, 7), their median 1.
        assert_eq!(mad(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]), Some(1.0));
    }

    #[test]
    fn outliers_are_found_by_position() {
        // Median 2.145; scale = 0.035 / 0.6745 = 0.0519; 2.9 is 14.5 scales away, 2.22 is 1.4.
        let figures = [2.1, 2.11, 2.13, 2.9, 2.16, 2.18, 2.22, 2.1];
        assert_eq!(outliers(&figures), [3]);
        assert_eq!(outliers(&[5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 9.0]), [7]);
        assert_eq!(outliers(&[5.0; 9]), Vec::<usize>::new());
        assert_eq!(outliers(&[1.0, 1.0, 1.0, 900.0]), Vec::<usize>::new());
    }

    #[test]
    fn jain_is_one_for_equals_and_one_nth_for_a_monopoly() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), Some(0.25));
        // (1+2+3)^2 / (3 * (1+4+9)) = 36/42.
        assert_eq!(jain(&[1.0, 2.0, 3.0]), Some(36.0 / 42.0));
        assert_eq!(jain(&[]), None);
        assert_eq!(jain(&[0.0, 0.0]), None);
    }

    #[test]
    fn intervals_are_called_by_their_coverage() {
        assert_eq!(interval_name([5, 5, 3]), "93 % interval");
        assert_eq!(interval_name([5, 7]), "87 to 93 % interval");
        assert_eq!(interval_name([4]), "interval");
    }
}
