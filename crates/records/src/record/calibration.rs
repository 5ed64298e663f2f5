//! What the measuring instruments and the machine were like around a trial.

use serde::{Deserialize, Serialize};

use crate::limits::cores_moved;

/// Properties of the measuring instruments and of the machine around this trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Cost of reading the clock, nanoseconds.
    pub clock_read_ns: f64,
    /// Smallest step of the clock, nanoseconds.
    pub clock_step_ns: f64,
    /// Cost of the empty measuring loop per message, nanoseconds.
    pub empty_loop_ns: f64,
    /// Smallest step in which the kernel counts CPU time, nanoseconds; null if unknown.
    #[serde(default)]
    pub cpu_clock_step_ns: Option<f64>,
    /// Cache-line round trip between the roles' cores before the trial, nanoseconds.
    pub cache_line_before_ns: Option<f64>,
    /// Cache-line round trip after the trial, nanoseconds.
    pub cache_line_after_ns: Option<f64>,
    /// Round trip of a minimal exchange between two threads on the roles' CPUs that sleep while they wait, nanoseconds:
    /// the reference for blocking round trips. Measured between the trials.
    #[serde(default)]
    pub blocking_exchange_ns: Option<f64>,
    /// Payload bytes per second that a single copy of messages of this size achieves between the roles' CPUs. Measured
    /// between the trials.
    #[serde(default)]
    pub one_copy_bytes_per_s: Option<f64>,
    /// Payload bytes per second with two copies, measured in the same way.
    #[serde(default)]
    pub two_copies_bytes_per_s: Option<f64>,
    /// The harness's own cost for messages of this size.
    #[serde(default)]
    pub harness: Option<HarnessCost>,
}

impl Calibration {
    /// Whether the cache-line round trips show that the distance between the CPUs changed during the trial: the hypervisor
    /// moved the virtual CPUs to other cores, or other programs used them.
    pub fn cores_moved(&self) -> bool {
        self.readings().is_some_and(|(before, after)| cores_moved(before, after))
    }

    /// The cache-line round trips before and after the trial, nanoseconds; `None` if one is missing.
    pub fn readings(&self) -> Option<(f64, f64)> {
        self.cache_line_before_ns.zip(self.cache_line_after_ns)
    }
}

/// What Crossway itself adds to each message, in nanoseconds per message, compared with a loop that touches no data.
/// The cost is measured without a mechanism. A round trip includes the costs of both ends twice, and one clock reading.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HarnessCost {
    /// At the sending end: numbering the message, and reading it from a working set larger than the private caches
    /// instead of from a single buffer in the cache. With access `in-place`: writing the message.
    pub sender_ns_per_msg: f64,
    /// At the receiving end: reading and checking every byte.
    pub receiver_ns_per_msg: f64,
    /// Reading the clock and storing the value, per sample of a round trip.
    pub clock_ns_per_sample: f64,
}
