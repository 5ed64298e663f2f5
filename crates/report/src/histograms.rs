//! Percentile curves from the latency histograms of a run.

use std::path::{Path, PathBuf};

use crossway_records::histogram::{Archive, read_log};
use crossway_records::percentile::SAMPLES_BEYOND;
use crossway_records::record::Span;
use crossway_records::sorting::SortSmall;
use hdrhistogram::Histogram;
use hdrhistogram::iterators::IterationValue;

/// Maximum number of histogram files that are read for a report. If a run has more, the percentiles in its records are
/// drawn instead, so that the report does not have to wait for the disk.
const FILES_MAX: usize = 3000;
/// Tolerance for the rounding of sums of shares.
const ROUNDING: f64 = 1e-9;
/// Number of points on a curve for each factor of ten in the share of samples beyond them, for example between the 90th
/// and the 99th percentile.
const POINTS_PER_NINE: u32 = 8;

/// The location of a run's histograms.
#[derive(Clone, Debug, Default)]
pub struct Histograms {
    dir: Option<PathBuf>,
    archive: Archive,
}

impl Histograms {
    /// Returns the histograms in a run's directory. They are not used if `files`, the number of files that the records
    /// name, is 0 or too large.
    pub fn of_run(dir: &Path, files: usize) -> Histograms {
        let usable = files > 0 && files <= FILES_MAX;
        let archive = if usable { Archive::read(dir) } else { Archive::default() };
        Histograms { dir: usable.then(|| dir.to_owned()), archive }
    }

    /// Returns the sentence that states the source of the curves.
    pub fn note(&self) -> &'static str {
        match self.dir {
            Some(_) => {
                "Curves are drawn from the histograms of all trials, each trial with the same weight."
            }
            None => "The markers are the recorded percentiles, as medians over trials.",
        }
    }

    /// Returns quantiles with their latency in nanoseconds, over the samples of all trials; `None` if there are none or
    /// a file cannot be read.
    pub fn curve(&self, span: Span, files: &[String]) -> Option<Vec<(f64, f64)>> {
        let all = self.pooled(span, files)?;
        let steps = 0..=20 * POINTS_PER_NINE;
        let points = steps
            .map(|step| 1.0 - 10f64.powf(-f64::from(step) / f64::from(POINTS_PER_NINE)))
            .map_while(|q| Some((q, all.value_at(q)? as f64)));
        Some(points.collect())
    }

    /// Returns the samples of all trials; `None` if there are none or a file cannot be read.
    pub fn pooled(&self, span: Span, files: &[String]) -> Option<Distribution> {
        let dir = self.dir.as_ref()?;
        let mut trials = Vec::new();
        for file in files {
            // A record may only name files of its own run; anything else may be an attempt to read other files.
            let path = Path::new(file);
            if path.is_absolute() || path.components().any(|c| c.as_os_str() == "..") {
                return None;
            }
            let of_file = || {
                let text = std::fs::read(dir.join(path)).ok()?;
                Some(read_log(&text).into_iter().find(|(name, _)| name == span.key())?.1)
            };
            trials.push(self.archive.get(file, span).or_else(of_file)?);
        }
        Distribution::of(&trials)
    }
}

/// The distribution of the latencies of several trials, each of which has the same weight. If every sample had the same
/// weight, trials in which the mechanism was fast would decide, since they have more samples.
#[derive(Clone, Debug)]
pub struct Distribution {
    /// Number of samples.
    pub n: u64,
    /// Number of samples of equal weight that would determine percentiles as well as these do (Kish's effective sample
    /// size): the number of trials times the harmonic mean of their numbers of samples.
    effective: f64,
    /// Latencies in nanoseconds, in ascending order, each with the share of samples up to it.
    shares: Vec<(u64, f64)>,
}

impl Distribution {
    /// Combines the histograms of several trials; `None` without samples.
    fn of(trials: &[Histogram<u64>]) -> Option<Distribution> {
        let trials: Vec<&Histogram<u64>> = trials.iter().filter(|t| !t.is_empty()).collect();
        let k = trials.len() as f64;
        let mut shares: Vec<(u64, f64)> = Vec::new();
        for trial in &trials {
            let weight = 1.0 / (k * trial.len() as f64);
            let of_value = |v: IterationValue<u64>| {
                (v.value_iterated_to(), v.count_at_value() as f64 * weight)
            };
            shares.extend(trial.iter_recorded().map(of_value));
        }
        shares.sort_small_by_key(|(value, _)| *value);
        let mut up_to = 0.0;
        for (_, share) in &mut shares {
            up_to += *share;
            *share = up_to;
        }
        let effective = k * k / trials.iter().map(|t| 1.0 / t.len() as f64).sum::<f64>();
        let n = trials.iter().map(|t| t.len()).sum();
        (!shares.is_empty()).then_some(Distribution { n, effective, shares })
    }

    /// Returns the latency at a quantile, in nanoseconds; `None` if too few samples lie beyond it.
    pub fn value_at(&self, quantile: f64) -> Option<u64> {
        if self.effective * (1.0 - quantile) < SAMPLES_BEYOND - ROUNDING {
            return None;
        }
        let at = self.shares.partition_point(|(_, share)| *share < quantile - ROUNDING);
        self.shares.get(at).or(self.shares.last()).map(|(value, _)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crossway_records::histogram::empty;

    fn trial(samples: &[(u64, u64)]) -> Histogram<u64> {
        let mut histogram = empty();
        samples.iter().for_each(|(value, n)| histogram.record_n(*value, *n).expect("in range"));
        histogram
    }

    #[test]
    fn fast_trials_do_not_outweigh_slow_ones() {
        let fast = trial(&[(180, 200_000)]);
        let slow = trial(&[(50_000, 390), (900_000, 10)]);
        let all = [fast.clone(), fast, slow.clone(), slow.clone(), slow];
        let all = Distribution::of(&all).expect("samples");
        assert_eq!(all.n, 401_200);
        let at = |q| all.value_at(q).map(|ns| (ns as f64 / 1e3).round());
        assert_eq!((at(0.3), at(0.5), at(0.99)), (Some(0.0), Some(50.0), Some(900.0)));
        // Six hundredths of the weight of about 3,300 samples.
        assert_eq!(at(0.999), None);
    }

    #[test]
    fn equal_trials_give_the_percentiles_of_their_samples() {
        let one = trial(&[(1_000, 980), (5_000, 20)]);
        let all = Distribution::of(&[one.clone(), one]).expect("samples");
        assert_eq!(all.value_at(0.98).map(|ns| ns / 100), Some(10));
        assert_eq!(all.value_at(0.99).map(|ns| ns / 100), Some(50));
        assert!(Distribution::of(&[empty()]).is_none());
    }
}
