//! Percentile curves from the latency histograms of a run.

use std::path::{Path, PathBuf};

use crossway_lab::histogram::{empty, read_log, tag};
use crossway_lab::record::Span;
use hdrhistogram::Histogram;

/// Maximum number of histogram files that are read for a report. If a run has more, the percentiles in its records are
/// drawn instead, so that the report does not have to wait for the disk.
const FILES_MAX: usize = 3000;
/// Number of samples that must lie beyond a percentile for it to be drawn.
const SAMPLES_BEYOND: f64 = 10.0;
/// Number of points on a curve for each factor of ten in the share of samples beyond them, for example between the 90th
/// and the 99th percentile.
const POINTS_PER_NINE: u32 = 8;

/// The location of a run's histograms.
#[derive(Clone, Debug, Default)]
pub struct Histograms {
    dir: Option<PathBuf>,
}

impl Histograms {
    /// Returns the histograms in a run's directory; `files` is the number of files that the records name.
    pub fn of_run(dir: &Path, files: usize) -> Histograms {
        Histograms { dir: (files > 0 && files <= FILES_MAX).then(|| dir.to_owned()) }
    }

    /// Returns the sentence that states the source of the curves.
    pub fn note(&self) -> &'static str {
        match self.dir {
            Some(_) => "Curves are drawn from the histograms of all trials together.",
            None => "The markers are the recorded percentiles, as medians over trials.",
        }
    }

    /// Returns quantiles with their latency in nanoseconds, over the samples of all trials together; `None` if a file
    /// cannot be read.
    pub fn curve(&self, span: Span, files: &[String]) -> Option<Vec<(f64, f64)>> {
        let all = self.pooled(span, files)?;
        let samples = all.len() as f64;
        let steps = 0..=20 * POINTS_PER_NINE;
        let points = steps
            .map(|step| 1.0 - 10f64.powf(-f64::from(step) / f64::from(POINTS_PER_NINE)))
            .take_while(|q| samples * (1.0 - q) >= SAMPLES_BEYOND)
            .map(|q| (q, all.value_at_quantile(q) as f64));
        Some(points.collect())
    }

    /// Returns the samples of all trials together; `None` if there are none or a file cannot be read.
    pub fn pooled(&self, span: Span, files: &[String]) -> Option<Histogram<u64>> {
        let dir = self.dir.as_ref()?;
        let mut all = empty();
        for file in files {
            // A record may only name files of its own run; anything else may be an attempt to read other files.
            let path = Path::new(file);
            if path.is_absolute() || path.components().any(|c| c.as_os_str() == "..") {
                return None;
            }
            let text = std::fs::read(dir.join(path)).ok()?;
            let found = read_log(&text).into_iter().find(|(name, _)| name == tag(span))?;
            all.add(&found.1).ok()?;
        }
        (!files.is_empty() && !all.is_empty()).then_some(all)
    }
}
