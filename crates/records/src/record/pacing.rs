//! Pacing of open-loop workloads, whose messages are sent at a fixed rate.

use serde::{Deserialize, Serialize};

use super::{Record, figure};
use crate::cases::Case;
use crate::stats;

/// Open-loop pacing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pacing {
    /// Number of bursts in the schedule.
    pub bursts: u64,
    /// Number of bursts that began later than intended by more than a millisecond or by more than a tenth of the
    /// period, whichever is less.
    pub late_bursts: u64,
    /// End of the last burst minus its intended start, nanoseconds.
    pub drift_ns: i64,
    /// Intended rate, payload bits per second. For requests, the bits of their replies count.
    #[serde(deserialize_with = "figure::one")]
    pub intended_bits_per_s: f64,
    /// Achieved rate, payload bits per second. For requests, the bits of their replies count.
    #[serde(deserialize_with = "figure::one")]
    pub reached_bits_per_s: f64,
    /// How late the sender itself was when it began its bursts, before it called the mechanism; null in records from
    /// before 0.1.0.
    #[serde(default)]
    pub lateness_ns: Option<Lateness>,
}

/// Delay with which a paced sender began its bursts, nanoseconds. It counts from the intended time or, if the previous
/// burst was still being sent then, from the end of that burst. It is part of the latency, which counts from the
/// intended time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lateness {
    /// Number of bursts.
    pub n: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile; null with fewer than 1,000 bursts.
    pub p99: Option<u64>,
    /// Maximum.
    pub max: u64,
}

/// A trial that achieves less than this fraction of its rate does not represent that rate.
pub const RATE_REACHED: f64 = 0.99;

impl Pacing {
    /// Whether less than [`RATE_REACHED`] of the rate was achieved.
    pub fn missed(&self) -> bool {
        self.reached_share() < RATE_REACHED
    }

    /// The achieved rate as a fraction of the intended one.
    pub fn reached_share(&self) -> f64 {
        self.reached_bits_per_s / self.intended_bits_per_s
    }

    /// The intended rate in messages per second. `arriving_bytes` is [`crate::inputs::Inputs::arriving_bytes`].
    pub fn intended_msgs_per_s(&self, arriving_bytes: u64) -> f64 {
        self.intended_bits_per_s / (arriving_bytes.max(1) * 8) as f64
    }
}

/// Offered and achieved rate of a trial or of the trials of a case, messages per second; a request with its reply counts
/// as one message.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Rate at which messages are due.
    pub offered_msgs_per_s: f64,
    /// Rate that was achieved.
    pub achieved_msgs_per_s: f64,
}

impl Rates {
    /// The rates of a trial; `None` unless its messages are sent at a fixed rate.
    pub fn of(record: &Record) -> Option<Rates> {
        let pacing = record.pacing?;
        let offered_msgs_per_s = pacing.intended_msgs_per_s(record.inputs.arriving_bytes());
        let achieved_msgs_per_s = offered_msgs_per_s * pacing.reached_share();
        Some(Rates { offered_msgs_per_s, achieved_msgs_per_s })
    }

    /// The offered rate of the trials that count, and the median of the achieved ones; `None` unless they have rates.
    pub fn of_case(case: &Case) -> Option<Rates> {
        let offered_msgs_per_s = case.good().find_map(Rates::of)?.offered_msgs_per_s;
        let achieved = case.figures(|r| Rates::of(r).map(|rates| rates.achieved_msgs_per_s));
        Some(Rates { offered_msgs_per_s, achieved_msgs_per_s: stats::median(&achieved)? })
    }

    /// The achieved rate as a fraction of the offered one.
    pub fn share(&self) -> f64 {
        self.achieved_msgs_per_s / self.offered_msgs_per_s
    }
}
