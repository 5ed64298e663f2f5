//! A figure over trials: its median, interval and number of trials.

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::{TRIALS_AT_LEAST, median, median_interval};

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

#[cfg(test)]
mod tests {
    use super::*;

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
