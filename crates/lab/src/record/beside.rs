//! What a workload that ran beside the measured one did.

use serde::{Deserialize, Serialize};

use super::{Counts, Latency, Pacing, RoleMeters, Throughput};
use crate::inputs::Workload;

/// The figures of a workload that ran beside the measured one, from its first message to its last: over the warm-up, the measured part
/// and what lies between.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BesideFigures {
    /// The mechanism's id.
    pub mechanism: String,
    /// What it did.
    pub workload: Workload,
    /// Message size in bytes.
    pub size_bytes: u64,
    /// What went over.
    pub counts: Counts,
    /// Speed.
    pub throughput: Throughput,
    /// Latencies: round trips, or one way of a paced stream. Their histograms are not kept.
    pub latency_ns: Vec<Latency>,
    /// Pacing of a paced stream.
    pub pacing: Option<Pacing>,
    /// Each role's use. It is not in the `cost` of the measured workload.
    pub roles: Vec<RoleMeters>,
}
