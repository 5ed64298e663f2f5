//! A figure over trials: median, interval, number of trials.

use crossway_lab::stats::{median, median_interval};
use serde::Serialize;

/// The median over trials with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Median over the trials.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Trials.
    pub n: usize,
}

impl Estimate {
    /// From one value per trial; `None` without any.
    pub fn of(values: &[f64]) -> Option<Estimate> {
        let interval = median_interval(values, 0.95)?;
        Some(Estimate {
            value: median(values)?,
            low: interval.low,
            high: interval.high,
            n: values.len(),
        })
    }

    /// Half the interval's width relative to the median: the noise of the figure. `None` with one trial.
    pub fn noise(&self) -> Option<f64> {
        (self.n > 1 && self.value != 0.0).then(|| (self.high - self.low) / 2.0 / self.value.abs())
    }

    /// Whether the two cannot be told apart: their intervals touch.
    pub fn overlaps(&self, other: &Estimate) -> bool {
        self.low <= other.high && other.low <= self.high
    }
}
