//! The results of a concurrent workload (`beside`).

use serde::{Deserialize, Serialize};

use super::{Counts, Latency, Pacing, RoleMeters, Throughput};
use crate::inputs::Workload;

/// Figures of a workload that ran concurrently with the measured one, from its first message to its last. That includes
/// the warm-up, the measured part and the time between them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BesideFigures {
    /// The mechanism's id.
    pub mechanism: String,
    /// The workload.
    pub workload: Workload,
    /// Message size in bytes.
    pub size_bytes: u64,
    /// Messages and bytes transferred.
    pub counts: Counts,
    /// Throughput in one direction.
    pub throughput: Throughput,
    /// Latencies: round trips, or the one-way latency of a paced stream. Their histograms are not kept.
    pub latency_ns: Vec<Latency>,
    /// Pacing of a paced stream.
    pub pacing: Option<Pacing>,
    /// Resources used by each role. They are not included in the `cost` of the measured workload.
    pub roles: Vec<RoleMeters>,
}
