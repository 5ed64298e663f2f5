//! How far a replay was from the recording that it replays.

use serde::{Deserialize, Serialize};

use super::figure;

/// A replay deviates from its recording if the time of an exchange differs by more than this fraction.
const EXCHANGE_TOLERANCE: f64 = 0.10;

/// A replay that falls behind the recorded rate by more than this fraction does not represent it.
const RATE_TOLERANCE: f64 = 0.05;

/// What was recorded and what the trial made of it. Sizes are of all messages, in both directions; gaps are the times
/// from the begin of one send to the begin of the next one in the same direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayFigures {
    /// What carried the recorded channel, in the terms of `crossway observe`; of several channels, all of these.
    pub carrier: String,
    /// Whether the trial's mechanism is what carried it, so that both can be expected to take the same time.
    pub same_mechanism: bool,
    /// Number of messages that were replayed, in both directions.
    pub messages: u64,
    /// Sizes in the whole recording, bytes.
    pub size_bytes_recorded: Quantiles,
    /// Sizes in the replay, which may be a part of the recording, bytes.
    pub size_bytes_replayed: Quantiles,
    /// Largest difference between the two distribution functions of the sizes, from 0 (equal) to 1.
    #[serde(deserialize_with = "figure::one")]
    pub size_distance: f64,
    /// Recorded gaps, of the part that was replayed and at the replay's speed, nanoseconds; null with a single message.
    pub gap_ns_recorded: Option<Quantiles>,
    /// Gaps in the replay, nanoseconds.
    pub gap_ns_replayed: Option<Quantiles>,
    /// Largest difference between the two distribution functions of the gaps, from 0 (equal) to 1; null without gaps.
    #[serde(default, deserialize_with = "figure::or_null")]
    pub gap_distance: Option<f64>,
    /// Recorded messages per second in that part, at the replay's speed; null if it has no duration, as when replaying
    /// as fast as possible.
    #[serde(default, deserialize_with = "figure::or_null")]
    pub msgs_per_s_recorded: Option<f64>,
    /// Messages per second in the replay.
    #[serde(deserialize_with = "figure::one")]
    pub msgs_per_s_replayed: f64,
    /// Median time of a recorded exchange without the method's cost, nanoseconds; null without exchanges, or if not both
    /// ends were recorded. With several channels, of the exchanges that begin at a role which serves nobody itself.
    pub exchange_ns_recorded: Option<u64>,
    /// The part of a recorded exchange that the method of recording took, as far as it is known: 0.2 means that a fifth
    /// of the time was the recorder's.
    #[serde(default, deserialize_with = "figure::or_null")]
    pub method_share: Option<f64>,
    /// CPU time with which the roles stood in for what the programs computed between two calls, nanoseconds; not part
    /// of the roles' CPU time.
    pub computed_ns: u64,
    /// The same of each channel, in the order of their numbers; empty if the replay has only one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<ReplayedChannel>,
}

/// What was recorded on one of several channels and what the trial made of it. For the meaning of the figures, see
/// [`ReplayFigures`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayedChannel {
    /// Its number in the recording.
    pub channel: u32,
    /// What carried it.
    pub carrier: String,
    /// Number of its messages in the recording, in both directions.
    pub messages_recorded: u64,
    /// Recorded gaps, of the part that was replayed.
    pub gap_ns_recorded: Option<Quantiles>,
    /// Gaps in the replay.
    pub gap_ns_replayed: Option<Quantiles>,
    /// Largest difference between the two distribution functions of the gaps.
    #[serde(default, deserialize_with = "figure::or_null")]
    pub gap_distance: Option<f64>,
    /// Median time of a recorded exchange; null without exchanges. Of channels that answer each other, the first one has
    /// the time.
    pub exchange_ns_recorded: Option<u64>,
    /// Median time of an exchange in the replay.
    pub exchange_ns_replayed: Option<u64>,
}

/// Quantiles of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Maximum.
    pub max: u64,
}

impl Quantiles {
    /// The quantiles of sorted values; `None` without any.
    pub fn of_sorted(values: &[u64]) -> Option<Quantiles> {
        let at = |share: f64| {
            let rank = (share * values.len() as f64).ceil() as usize;
            values.get(rank.saturating_sub(1)).copied()
        };
        Some(Quantiles { p50: at(0.5)?, p99: at(0.99)?, max: *values.last()? })
    }
}

/// The largest difference between the distribution functions of two sorted lists (the statistic of Kolmogorov and
/// Smirnov): 0 if they are equal, 1 if they do not overlap, `None` if one is empty.
pub fn distance(a: &[u64], b: &[u64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let (mut i, mut j, mut most) = (0, 0, 0.0f64);
    while i < a.len() && j < b.len() {
        let value = a[i].min(b[j]);
        while a.get(i) == Some(&value) {
            i += 1;
        }
        while b.get(j) == Some(&value) {
            j += 1;
        }
        let apart = (i as f64 / a.len() as f64 - j as f64 / b.len() as f64).abs();
        most = most.max(apart);
    }
    Some(most)
}

impl ReplayFigures {
    /// Why the trial does not represent its recording; `None` if it does. `exchange_ns` is the median time of an
    /// exchange in the trial, `paced` whether each message has its time.
    pub fn deviates(&self, exchange_ns: Option<u64>, paced: bool) -> Option<String> {
        if let (true, Some(recorded)) = (paced, self.msgs_per_s_recorded)
            && self.msgs_per_s_replayed < recorded * (1.0 - RATE_TOLERANCE)
        {
            return Some(format!(
                "the replay fell behind: {:.0} of {recorded:.0} messages/s",
                self.msgs_per_s_replayed
            ));
        }
        let (here, there) = exchange_ns.zip(self.exchange_ns_recorded)?;
        let known = self.method_share.is_some_and(|share| share <= EXCHANGE_TOLERANCE);
        let apart = here as f64 / there as f64 - 1.0;
        (self.same_mechanism && known && apart.abs() > EXCHANGE_TOLERANCE).then(|| {
            format!(
                "an exchange takes {:.1} us here and took {:.1} us in the recording",
                here as f64 / 1e3,
                there as f64 / 1e3
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_is_the_largest_between_the_distribution_functions() {
        assert_eq!(distance(&[1, 2, 3], &[1, 2, 3]), Some(0.0));
        assert_eq!(distance(&[1, 2], &[3, 4]), Some(1.0));
        assert_eq!(distance(&[1, 1, 1, 9], &[1, 9, 9, 9]), Some(0.5));
        assert_eq!(distance(&[], &[1]), None);
    }

    #[test]
    fn a_replay_deviates_if_it_is_slower_than_what_it_repeats() {
        let mut figures = crate::samples::replayed();
        assert_eq!(figures.deviates(Some(21_000), true), None);
        assert!(figures.deviates(Some(23_000), false).unwrap().contains("20.0 us"));
        // What the recorder itself took cannot be told from what the mechanism took.
        figures.method_share = Some(0.6);
        assert_eq!(figures.deviates(Some(23_000), false), None);
        figures.method_share = Some(0.05);
        figures.same_mechanism = false;
        assert_eq!(figures.deviates(Some(23_000), false), None);
        figures.msgs_per_s_replayed = 900.0;
        assert!(figures.deviates(None, true).unwrap().contains("900 of 1000"));
        assert_eq!(figures.deviates(None, false), None);
    }
}
