//! What a role observed in a window, in the form in which the role reports it to the controller.

use serde::{Deserialize, Serialize};

/// Results of one role in one window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Start of the first operation on CLOCK_MONOTONIC, nanoseconds.
    pub start_ns: u64,
    /// Time of the first receipt on CLOCK_MONOTONIC, nanoseconds; null if it was not measured.
    pub first_receipt_ns: Option<u64>,
    /// End of the last operation on CLOCK_MONOTONIC, nanoseconds.
    pub end_ns: u64,
    /// Messages sent (round trips, exchanges).
    pub sent: u64,
    /// Messages received.
    pub received: u64,
    /// Payload bytes received.
    pub bytes: u64,
    /// Messages that arrived out of order.
    pub out_of_order: u64,
    /// Messages with wrong content.
    pub corrupt: u64,
    /// Messages that never arrived.
    pub missing: u64,
    /// User CPU time, nanoseconds.
    pub user_ns: u64,
    /// System CPU time, nanoseconds.
    pub system_ns: u64,
    /// Voluntary context switches.
    pub switches_voluntary: u64,
    /// Involuntary context switches.
    pub switches_involuntary: u64,
    /// Minor page faults.
    pub faults_minor: u64,
    /// Major page faults.
    pub faults_major: u64,
    /// Hardware counters.
    pub counters: Counters,
    /// CPU time of the process between the two ends that serves the channel, such as a tipcd; `None` if there is none.
    #[serde(default)]
    pub server: Option<ServerUse>,
    /// Histograms by span, in nanoseconds: HDR V2 in base64.
    pub histograms: Vec<(crossway_records::inputs::Span, String)>,
    /// Times on CLOCK_MONOTONIC, nanoseconds: when the client began to close each connection, or when the server had
    /// closed it. The controller pairs them.
    pub stamps: Vec<u64>,
    /// Time by which messages of a paced stream took longer than those sent one period earlier, as a fraction of the
    /// period, by least squares: 0.05 if 100 messages arrive in the time of 105 periods. `None` unless this role received
    /// such a stream, or with a single send time.
    #[serde(default)]
    pub latency_growth: Option<f64>,
    /// How the sender kept its pace; `None` unless this role sent a paced stream.
    pub pacing: Option<PaceSeen>,
    /// How a replayed recording was kept; `None` for other workloads.
    #[serde(default)]
    pub replayed: Option<Replayed>,
    /// Longest time between two messages, nanoseconds.
    pub longest_wait_ns: Option<u64>,
    /// Messages received per sender.
    pub shares: Vec<u64>,
    /// Values that the ends know only after messages have passed.
    #[serde(default)]
    pub facts: crossway_mech::Facts,
}

/// The process that serves both ends, and the CPU time that it used during a role's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerUse {
    /// The server's process id.
    pub pid: u32,
    /// The server's CPU time, nanoseconds; null if it could not be read.
    pub cpu_ns: Option<u64>,
}

/// Hardware counters of a role; all null on machines without them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// CPU cycles.
    pub cycles: Option<u64>,
    /// Instructions.
    pub instructions: Option<u64>,
    /// Cache misses.
    pub cache_misses: Option<u64>,
    /// Why counters are null.
    pub missing: Option<String>,
}

/// Pacing as observed by the sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaceSeen {
    /// Number of intended bursts.
    pub bursts: u64,
    /// Number of bursts that began late; see [`Pacing::late_bursts`](crossway_records::record::Pacing::late_bursts).
    pub late_bursts: u64,
    /// End of the last burst minus its intended start, nanoseconds.
    pub drift_ns: i64,
    /// Histogram of the delays with which the sender began its bursts, encoded as in [`Outcome::histograms`].
    pub lateness: String,
}

/// How a role kept to the recording that it replays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// Number of messages in both directions of the window.
    pub messages: u64,
    /// Times from the begin of one send of this role to that of the next one, nanoseconds: a histogram, encoded as in
    /// [`Outcome::histograms`].
    pub gaps: String,
    /// CPU time in which the role stood in for what the program computed, nanoseconds; it is not part of `user_ns`.
    pub computed_ns: u64,
    /// The same of each of this role's channels; empty if the replay has only one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<LineSeen>,
}

/// How a role kept to the recording of one of several channels: histograms, encoded as in [`Outcome::histograms`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineSeen {
    /// The channel's number in the script.
    pub channel: u16,
    /// Times from the begin of one send of this role to that of the next one, nanoseconds.
    pub gaps: String,
    /// Times of the exchanges that this role began, nanoseconds.
    pub exchanges: String,
}
