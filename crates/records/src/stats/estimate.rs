//! A figure over trials: its median, interval and number of trials.

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use super::{Interval, TRIALS_AT_LEAST, mad, median, median_interval, outliers, sorted};

/// The median over trials, with its interval ([`median_interval`] at a level of 95 %).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Median over the trials.
    pub value: f64,
    /// Lower end of the interval; see [`Estimate::has_interval`].
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Number of trials.
    pub n: usize,
}

impl Estimate {
    /// Computes the estimate from one value per trial; `None` if there are no values.
    pub fn of(values: &[f64]) -> Option<Estimate> {
        let interval = median_interval(values, 0.95)?;
        Some(Estimate {
            value: median(values)?,
            low: interval.low,
            high: interval.high,
            n: values.len(),
        })
    }

    /// Returns whether there are enough trials for an interval. With fewer than five, `low` and `high` are only the
    /// range of the values and do not predict the next trial.
    pub fn has_interval(&self) -> bool {
        self.n >= TRIALS_AT_LEAST
    }

    /// Returns the interval; `None` with fewer than five trials.
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.has_interval().then_some((self.low, self.high))
    }

    /// Returns the ends of the error bar in a chart; without an interval the bar has no length.
    pub fn bar(&self) -> (f64, f64) {
        self.interval().unwrap_or((self.value, self.value))
    }

    /// Returns half the interval's width relative to the median, which is the noise of the figure. `None` with fewer
    /// than five trials, or if the median is 0.
    pub fn noise(&self) -> Option<f64> {
        (self.has_interval() && self.value != 0.0)
            .then(|| (self.high - self.low) / 2.0 / self.value.abs())
    }

    /// Returns whether the two are statistically tied: their intervals overlap or touch.
    pub fn overlaps(&self, other: &Estimate) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    /// Returns whether the whole interval is below that of `other`.
    pub fn is_below(&self, other: &Estimate) -> bool {
        self.high < other.low
    }
}

impl Serialize for Estimate {
    /// Serializes `value`, `low`, `high` and `n`; without an interval, `low` and `high` are null.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let interval = self.interval();
        let mut fields = serializer.serialize_struct("Estimate", 4)?;
        fields.serialize_field("value", &self.value)?;
        fields.serialize_field("low", &interval.map(|(low, _)| low))?;
        fields.serialize_field("high", &interval.map(|(_, high)| high))?;
        fields.serialize_field("n", &self.n)?;
        fields.end()
    }
}

/// An estimate, and how the trials scatter around it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The median with its interval; in JSON `n`, `median` and `interval`, which is null without
    /// one.
    #[serde(flatten, serialize_with = "n_median_interval")]
    pub estimate: Estimate,
    /// Median absolute deviation from the median.
    pub mad: f64,
    /// Smallest figure.
    pub min: f64,
    /// Largest figure.
    pub max: f64,
    /// Number of outliers.
    pub outliers: usize,
}

impl Summary {
    /// Summarises these figures; `None` if there are none or one is NaN.
    pub fn of(figures: &[f64]) -> Option<Summary> {
        let sorted = sorted(figures)?;
        Some(Summary {
            estimate: Estimate::of(&sorted)?,
            mad: mad(&sorted)?,
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            outliers: outliers(&sorted).len(),
        })
    }
}

fn n_median_interval<S: Serializer>(estimate: &Estimate, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Named {
        n: usize,
        median: f64,
        interval: Option<Interval>,
    }
    let interval = estimate.interval().map(|(low, high)| Interval { low, high });
    Named { n: estimate.n, median: estimate.value, interval }.serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_keys_of_earlier_versions() {
        let text = |figures: &[f64]| serde_json::to_string(&Summary::of(figures)).expect("JSON");
        assert_eq!(
            text(&[5.0, 1.0, 3.0, 4.0, 2.0]),
            r#"{"n":5,"median":3.0,"interval":{"low":1.0,"high":5.0},"mad":1.0,"min":1.0,"max":5.0,"outliers":0}"#
        );
        let four = text(&[5.0, 1.0, 3.0, 4.0]);
        assert!(four.starts_with(r#"{"n":4,"median":3.5,"interval":null,"#), "{four}");
        assert_eq!(text(&[]), "null");
    }

    #[test]
    fn four_trials_have_neither_interval_nor_noise() {
        let four = Estimate::of(&[1.0, 2.0, 3.0, 4.0]).expect("figures");
        assert_eq!((four.value, four.interval(), four.noise()), (2.5, None, None));
        let text = serde_json::to_string(&four).expect("JSON");
        assert_eq!(text, r#"{"value":2.5,"low":null,"high":null,"n":4}"#);
        let five = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).expect("figures");
        assert_eq!(five.interval(), Some((1.0, 5.0)));
    }
}
