//! What a role saw in a window, as it tells the controller.

use serde::{Deserialize, Serialize};

/// What one role saw in one window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// First act on CLOCK_MONOTONIC, nanoseconds.
    pub start_ns: u64,
    /// The first receipt; null where it was not taken.
    pub first_receipt_ns: Option<u64>,
    /// Last act.
    pub end_ns: u64,
    /// Messages sent (round trips, exchanges).
    pub sent: u64,
    /// Messages received.
    pub received: u64,
    /// Payload bytes received.
    pub bytes: u64,
    /// Messages out of order.
    pub out_of_order: u64,
    /// Messages with wrong content.
    pub corrupt: u64,
    /// Messages that never came.
    pub missing: u64,
    /// User CPU time, nanoseconds.
    pub user_ns: u64,
    /// System CPU time, nanoseconds.
    pub system_ns: u64,
    /// Voluntary context switches.
    pub switches_voluntary: u64,
    /// Involuntary context switches.
    pub switches_involuntary: u64,
    /// Minor faults.
    pub faults_minor: u64,
    /// Major faults.
    pub faults_major: u64,
    /// Hardware counters.
    pub counters: Counters,
    /// The third process that works for the channel, where there is one.
    #[serde(default)]
    pub server: Option<ServerUse>,
    /// Histograms by span: HDR V2, base64, nanoseconds.
    pub histograms: Vec<(crate::record::Span, String)>,
    /// Instants on CLOCK_MONOTONIC that the controller pairs with the peer's: begin of closing at the client, end of
    /// closing at the server.
    pub stamps: Vec<u64>,
    /// Open-loop pacing.
    pub pacing: Option<PaceSeen>,
    /// Longest time between two messages, nanoseconds.
    pub longest_wait_ns: Option<u64>,
    /// Messages received per sender.
    pub shares: Vec<u64>,
    /// What the ends know once messages have gone through them.
    #[serde(default)]
    pub facts: crossway_mech::Facts,
}

/// What a process that works for both ends used during a role's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerUse {
    /// The process.
    pub pid: u32,
    /// Its CPU time, nanoseconds; null where it could not be read.
    pub cpu_ns: Option<u64>,
}

/// Hardware counters of a role; null where there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// CPU cycles.
    pub cycles: Option<u64>,
    /// Instructions.
    pub instructions: Option<u64>,
    /// Cache misses.
    pub cache_misses: Option<u64>,
    /// Why they are null.
    pub missing: Option<String>,
}

/// A paced sender's account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaceSeen {
    /// Bursts intended.
    pub bursts: u64,
    /// Bursts begun late.
    pub late_bursts: u64,
    /// End of the last burst minus its intended start.
    pub drift_ns: i64,
    /// Histogram of how late the sender began its bursts, as in [`Outcome::histograms`].
    pub lateness: String,
}
