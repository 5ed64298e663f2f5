//! The record of a trial: one line of `results.jsonl`. docs/RECORDS.md explains each field and its unit.
//!
//! `null` means "could not be measured here" and is not the same as 0. [`Record::nulls`] gives the reason by field
//! name.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crossway_mech::Obstacle;
use serde::{Deserialize, Serialize};

use crate::inputs::Inputs;
pub use crate::inputs::Span;
pub use crate::testbed::LOCAL;

mod beside;
mod calibration;
pub mod figure;
mod hosts;
mod pacing;
mod replay;

pub use beside::BesideFigures;
pub use calibration::{Calibration, HarnessCost};
pub use hosts::{
    HostMeters, IfaceMeters, PacketSample, PacketSeries, Packets, Retransmissions, Transport,
};
pub use pacing::{Lateness, Pacing, RATE_REACHED, Rates};
pub use replay::{Quantiles, ReplayFigures, ReplayedChannel, distance};

/// Version of the schema; readers reject newer ones.
pub const SCHEMA: u32 = 2;

fn local() -> String {
    LOCAL.to_owned()
}

/// Status of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Count, order and content were verified, and no disturbance was detected.
    Ok,
    /// Verified, but unreliable, or not at the rate of the plan; `reason` says why. The record is kept and marked. Which
    /// of these trials figures include, [`cases::counts`](crate::cases::counts) decides.
    Degraded,
    /// The trial failed; `reason` says how.
    Failed,
    /// The trial cannot run here; `reason` says why, `remedy` how to make it run.
    Skipped,
}

impl Status {
    /// The name in records and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Degraded => "degraded",
            Status::Failed => "failed",
            Status::Skipped => "skipped",
        }
    }
}

/// Messages and bytes transferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Messages sent in the measured part.
    pub sent: u64,
    /// Number of those messages that were received.
    pub received: u64,
    /// Payload bytes received.
    pub bytes: u64,
    /// Number of messages that arrived out of order.
    pub out_of_order: u64,
    /// Number of messages with wrong content.
    pub corrupt: u64,
    /// Number of messages used for the warm-up.
    pub warmup: u64,
}

/// Throughput in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Time from the first send to the last receipt, nanoseconds. If the hosts have different clocks, it is the
    /// receiver's own interval, from the first to the last receipt.
    pub wall_ns: u64,
    /// Messages received per second.
    #[serde(deserialize_with = "figure::one")]
    pub msgs_per_s: f64,
    /// Payload bytes received per second.
    #[serde(deserialize_with = "figure::one")]
    pub bytes_per_s: f64,
    /// The sender's own interval from the first to the last send, nanoseconds, if the hosts have different clocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_wall_ns: Option<u64>,
}

/// Summary of a latency distribution. Percentiles without enough samples
/// ([`Percentile::samples_needed`]) are null.
///
/// [`Percentile::samples_needed`]: crate::percentile::Percentile::samples_needed
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The interval that was measured.
    pub span: Span,
    /// Number of samples.
    pub n: u64,
    /// Minimum, nanoseconds; all following figures are in nanoseconds, too.
    pub min: u64,
    /// Arithmetic mean.
    #[serde(deserialize_with = "figure::one")]
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: Option<u64>,
    /// 99.9th percentile.
    pub p999: Option<u64>,
    /// 99.99th percentile.
    pub p9999: Option<u64>,
    /// Maximum.
    pub max: u64,
    /// Messages per sample; above 1 if the clock is too coarse to time a single message.
    pub batch: u32,
    /// Path, within the run's folder, of the HDR interval log with the whole distribution, which
    /// [`crate::histogram::read_log`] reads; null if the distribution was not kept.
    pub histogram: Option<String>,
}

/// Resources used by one role in the measured part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleMeters {
    /// `sender`, `receiver`, `client` or `server`, followed by `-0`, `-1` ... if there are several.
    pub role: String,
    /// The host on which the role ran.
    #[serde(default = "local")]
    pub host: String,
    /// The logical CPU to which the role was pinned; null if it was not pinned.
    pub cpu: Option<u32>,
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
    /// CPU cycles; null without hardware counters.
    pub cycles: Option<u64>,
    /// Instructions; null without hardware counters.
    pub instructions: Option<u64>,
    /// Cache misses; null without hardware counters.
    pub cache_misses: Option<u64>,
    /// Number of messages that this role sent or received.
    pub messages: u64,
    /// Longest time between two messages of this role, nanoseconds; null if it was not measured.
    pub longest_wait_ns: Option<u64>,
}

/// CPU time, in the measured part, of a process that works on behalf of the ends, such as a `tipcd`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerMeters {
    /// The host on which the process ran.
    pub host: String,
    /// The process id.
    pub pid: u32,
    /// CPU time in user and kernel mode, nanoseconds; null if it could not be read.
    pub cpu_ns: Option<u64>,
}

/// CPU cost of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// CPU nanoseconds of all roles and servers per message (a round trip counts as one).
    #[serde(deserialize_with = "figure::one")]
    pub cpu_ns_per_msg: f64,
    /// Payload bits per CPU-second of all roles and servers (the Mbpc/s of item E10 of Enea's study, in bits).
    #[serde(deserialize_with = "figure::one")]
    pub bits_per_cpu_s: f64,
    /// Busy time of the whole host per message, nanoseconds; includes soft interrupts and unrelated processes.
    #[serde(default, deserialize_with = "figure::or_null")]
    pub host_ns_per_msg: Option<f64>,
}

/// How evenly several roles shared the channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fairness {
    /// Each role's share of the messages; the shares add up to 1.
    #[serde(deserialize_with = "figure::list")]
    pub shares: Vec<f64>,
    /// Jain's index: 1 if all shares are equal, 1/n if one role has everything.
    #[serde(deserialize_with = "figure::one")]
    pub jain: f64,
    /// Longest time that a role waited between two messages, nanoseconds.
    pub longest_wait_ns: u64,
    /// Voluntary context switches of the senders per message sent, i.e. how often a sender went to sleep.
    #[serde(default, deserialize_with = "figure::or_null")]
    pub sleeps_per_msg: Option<f64>,
    /// Lower bound on the number of wasted wake-ups per message sent. A useful wake-up is followed by a message, so
    /// voluntary context switches beyond one per message were wasted.
    #[serde(default, deserialize_with = "figure::or_null")]
    pub wasted_wakeups_per_msg: Option<f64>,
}

/// A host of a testbed that took part in the trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRef {
    /// The host's name: `a` or `b` on testbeds created on this machine, otherwise the command prefix as written.
    pub name: String,
    /// The kind of the host's command prefix: `local` (this machine), `netns`, `guest`, `ssh`, `mpirun` ...
    pub prefix_kind: String,
    /// Release of the host's kernel.
    pub kernel: String,
    /// The host's machine id, the key of its fingerprint under `hosts` in `env.json`.
    pub environment: String,
}

/// The facts about a contender in a record, in addition to its id and the version of its library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContenderNote {
    /// The family with which charts group the contender.
    pub family: String,
    /// The file with the contender's declaration.
    pub file: PathBuf,
    /// Version of the contender protocol.
    pub protocol: u32,
}

/// The record of one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Version of the schema, [`SCHEMA`].
    pub schema: u32,
    /// Name of the run: its start in UTC and a random suffix.
    pub run: String,
    /// The plan's name.
    pub plan: String,
    /// The group in the plan.
    pub group: String,
    /// The readable id of the case, identical for all its trials and in every run with the same inputs.
    pub case: String,
    /// The mechanism's id.
    pub mechanism: String,
    /// Version of what provides the mechanism.
    pub mechanism_version: Option<String>,
    /// Facts about a contender; null for Crossway's own mechanisms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contender: Option<ContenderNote>,
    /// `local` for this machine; on a testbed, the host's name or `A to B`.
    pub host: String,
    /// The hosts that took part; empty without a testbed.
    #[serde(default)]
    pub hosts: Vec<HostRef>,
    /// All inputs of the trial.
    pub inputs: Inputs,
    /// Status of the trial.
    pub status: Status,
    /// Why the trial was skipped, failed or degraded; null if its status is `ok`.
    pub reason: Option<String>,
    /// Remedy: the command or step that avoids the problem; null if there is none.
    pub remedy: Option<String>,
    /// Start, milliseconds since 1970 UTC.
    pub started_unix_ms: u64,
    /// Messages and bytes transferred.
    pub counts: Option<Counts>,
    /// Throughput in one direction.
    pub throughput: Option<Throughput>,
    /// Latencies by span.
    pub latency_ns: Vec<Latency>,
    /// Pacing of open-loop workloads.
    pub pacing: Option<Pacing>,
    /// How far a replay was from its recording; null for other workloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayFigures>,
    /// Resources used by each role.
    pub roles: Vec<RoleMeters>,
    /// CPU time of processes that work on behalf of the ends; empty if only the kernel and the roles do.
    #[serde(default)]
    pub servers: Vec<ServerMeters>,
    /// CPU time of each host. In schema 1, this was a single entry without the host's name instead of a list.
    #[serde(default, deserialize_with = "hosts::one_or_several")]
    pub host_cpu: Vec<HostMeters>,
    /// CPU cost of the messages.
    pub cost: Option<Cost>,
    /// Counters of the interfaces that carried the traffic, on every host; empty if the mechanism does not use
    /// interfaces.
    pub net: Vec<IfaceMeters>,
    /// Packets per message, computed from the counters.
    #[serde(default)]
    pub packets: Option<Packets>,
    /// Packets over time, if the plan requests it.
    #[serde(default)]
    pub packet_series: Vec<PacketSeries>,
    /// Retransmissions by the transport protocol of each host.
    #[serde(default)]
    pub retransmissions: Vec<Retransmissions>,
    /// How evenly several roles shared the channel.
    pub fairness: Option<Fairness>,
    /// Results of the concurrent workloads, in the order of `inputs.beside`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<BesideFigures>,
    /// Properties of the measuring instruments.
    pub calibration: Calibration,
    /// Values that the system reports after the channel was opened, such as buffer sizes, by name with unit.
    pub facts: BTreeMap<String, i64>,
    /// The reason for each null field, by field name.
    pub nulls: BTreeMap<String, String>,
    /// Remarks for the reader of the record.
    pub warnings: Vec<String>,
}

impl Record {
    /// The record of a trial on this machine, without names and without anything that a trial
    /// shows.
    pub fn of(mechanism: &str, inputs: Inputs) -> Record {
        Record {
            schema: SCHEMA,
            run: String::new(),
            plan: String::new(),
            group: String::new(),
            case: String::new(),
            mechanism: mechanism.to_owned(),
            mechanism_version: None,
            contender: None,
            host: local(),
            hosts: Vec::new(),
            inputs,
            status: Status::Ok,
            reason: None,
            remedy: None,
            started_unix_ms: 0,
            counts: None,
            throughput: None,
            latency_ns: Vec::new(),
            pacing: None,
            replay: None,
            roles: Vec::new(),
            servers: Vec::new(),
            host_cpu: Vec::new(),
            cost: None,
            net: Vec::new(),
            packets: None,
            packet_series: Vec::new(),
            retransmissions: Vec::new(),
            fairness: None,
            beside: Vec::new(),
            calibration: Calibration::default(),
            facts: BTreeMap::new(),
            nulls: BTreeMap::new(),
            warnings: Vec::new(),
        }
    }

    /// Notes that the trial was not run.
    pub fn skip(&mut self, obstacle: Obstacle) {
        self.status = Status::Skipped;
        (self.reason, self.remedy) = (Some(obstacle.why), Some(obstacle.remedy));
    }
}
