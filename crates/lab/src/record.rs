//! One trial's record: one line of `results.jsonl`. docs/RECORDS.md explains each field with its unit.
//!
//! `null` means "could not be measured here", never 0; [`Record::nulls`] gives the reason by field name.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::contender::{self, Contender};
use crate::inputs::Inputs;
pub use crate::testbed::LOCAL;

mod beside;
mod hosts;

pub use beside::BesideFigures;
pub use hosts::{
    HostMeters, IfaceMeters, PacketSample, PacketSeries, Packets, Retransmissions, Transport,
};

/// The schema's version; a reader refuses a larger one.
pub const SCHEMA: u32 = 2;

fn local() -> String {
    LOCAL.to_owned()
}

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Count, order and content verified; nothing spoiled it.
    Ok,
    /// Verified, but something spoils the figure (a warning says what): kept, marked, not averaged in.
    Degraded,
    /// It went wrong; `reason` says how.
    Failed,
    /// It cannot run here; `reason` and `remedy` say why and what mends it.
    Skipped,
}

/// What went over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Messages sent in the measured part.
    pub sent: u64,
    /// Messages received of those.
    pub received: u64,
    /// Payload bytes received.
    pub bytes: u64,
    /// Messages that came out of order.
    pub out_of_order: u64,
    /// Messages whose content was wrong.
    pub corrupt: u64,
    /// Messages spent on warming up.
    pub warmup: u64,
}

/// Speed one way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// First send to last receive, nanoseconds. Between hosts whose clocks are not the same: the receiver's own interval,
    /// first to last receipt.
    pub wall_ns: u64,
    /// Messages received per second.
    pub msgs_per_s: f64,
    /// Payload bytes received per second.
    pub bytes_per_s: f64,
    /// The sender's own interval, first to last send, where the clocks are not the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_wall_ns: Option<u64>,
}

/// What a latency spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Span {
    /// Request sent to reply received.
    RoundTrip,
    /// Intended send instant to receipt, on one clock.
    OneWay,
    /// Connecting.
    SetUp,
    /// Request sent to reply received on a fresh connection.
    Exchange,
    /// Closing, until the peer has closed too.
    TearDown,
}

/// A latency distribution's summary. Percentiles for which there are too few samples are null: p99.9 needs 10,000,
/// p99.99 100,000 (ten samples beyond it).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// What is timed.
    pub span: Span,
    /// Samples.
    pub n: u64,
    /// Least, nanoseconds, as all below.
    pub min: u64,
    /// Arithmetic mean.
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
    /// Largest.
    pub max: u64,
    /// Messages per sample, above 1 where the clock is too coarse for one.
    pub batch: u32,
    /// File with the HDR interval log that holds the whole distribution, beside `results.jsonl`;
    /// [`crate::histogram::read_log`] reads it.
    pub histogram: Option<String>,
}

/// Open-loop pacing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pacing {
    /// Bursts intended.
    pub bursts: u64,
    /// Bursts that began more than a tenth of the period, or a millisecond if that is less, after their instant.
    pub late_bursts: u64,
    /// End of the last burst minus its intended start, nanoseconds.
    pub drift_ns: i64,
    /// Rate intended, payload bits per second.
    pub intended_bits_per_s: f64,
    /// Rate reached.
    pub reached_bits_per_s: f64,
    /// How late the sender itself began its bursts, before the mechanism had anything to do; null in records of before 0.1.0.
    #[serde(default)]
    pub lateness_ns: Option<Lateness>,
}

/// How long after their instants a paced sender began its bursts, nanoseconds. It is a part of the one-way latency, which counts
/// from the instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lateness {
    /// Bursts.
    pub n: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile; null below 1,000 bursts.
    pub p99: Option<u64>,
    /// Largest.
    pub max: u64,
}

impl Pacing {
    /// The rate reached as a share of the one intended.
    pub fn reached_share(&self) -> f64 {
        self.reached_bits_per_s / self.intended_bits_per_s
    }
}

/// What one role used in the measured part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleMeters {
    /// `sender`, `receiver`, `client`, `server`, with `-0`, `-1` ... where there are several.
    pub role: String,
    /// The host that it ran on.
    #[serde(default = "local")]
    pub host: String,
    /// The logical CPU it was pinned to.
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
    /// Messages this role sent or received.
    pub messages: u64,
    /// Longest time between two messages of this role, nanoseconds; null where it was not taken.
    pub longest_wait_ns: Option<u64>,
}

/// What a process that works for the ends beside them, such as a `tipcd`, used in the measured part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerMeters {
    /// The host that it ran on.
    pub host: String,
    /// Its process number.
    pub pid: u32,
    /// Its CPU time in user and kernel mode, nanoseconds; null where it could not be read.
    pub cpu_ns: Option<u64>,
}

/// What the roles' CPU time bought.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// CPU-nanoseconds of all roles and servers per message (round trips count as one).
    pub cpu_ns_per_msg: f64,
    /// Payload bits per CPU-second of all roles and servers (E10's Mbpc/s, in bits).
    pub bits_per_cpu_s: f64,
    /// Busy time of the whole host per message, nanoseconds; includes soft interrupts and strangers.
    pub host_ns_per_msg: Option<f64>,
}

/// How several roles shared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fairness {
    /// Share of each, summing to 1.
    pub shares: Vec<f64>,
    /// Jain's index: 1 when all are equal, 1/n when one has all.
    pub jain: f64,
    /// Longest time one role waited between two messages, nanoseconds.
    pub longest_wait_ns: u64,
    /// Voluntary context switches of the senders per message sent: how often one of them went to sleep.
    #[serde(default)]
    pub sleeps_per_msg: Option<f64>,
    /// Of these, those that cannot have ended in a message, because the sender slept more often than it sent: woken in
    /// vain at least so often, per message sent.
    #[serde(default)]
    pub wasted_wakeups_per_msg: Option<f64>,
}

/// The instruments and the machine around this trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Cost of reading the clock, nanoseconds.
    pub clock_read_ns: f64,
    /// Smallest step of the clock, nanoseconds.
    pub clock_step_ns: f64,
    /// Cost of the empty measuring loop per message, nanoseconds.
    pub empty_loop_ns: f64,
    /// Smallest step in which the kernel counts CPU time, nanoseconds; null where it was not found.
    #[serde(default)]
    pub cpu_clock_step_ns: Option<f64>,
    /// Cache-line round trip between the roles' cores before the run, nanoseconds.
    pub cache_line_before_ns: Option<f64>,
    /// The same after the run.
    pub cache_line_after_ns: Option<f64>,
    /// The bare exchange of two threads on the roles' CPUs that sleep while they wait, nanoseconds: what a blocking round trip is
    /// measured against. Taken between the trials.
    #[serde(default)]
    pub blocking_exchange_ns: Option<f64>,
    /// What one copy of messages of this size carries between the roles' CPUs, payload bytes per second. Taken between the trials.
    #[serde(default)]
    pub one_copy_bytes_per_s: Option<f64>,
    /// The same with two copies.
    #[serde(default)]
    pub two_copies_bytes_per_s: Option<f64>,
    /// What the harness itself costs for messages of this size.
    #[serde(default)]
    pub harness: Option<HarnessCost>,
}

/// What Crossway does with a message that a loop which touches nothing does not do, nanoseconds per message, measured without a
/// mechanism. A round trip holds twice what both ends pay, and a reading of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HarnessCost {
    /// At the sending end: numbering the message and taking it from a working set larger than the private caches instead of from one hot
    /// buffer; with `in-place`, writing it.
    pub sender_ns_per_msg: f64,
    /// At the receiving end: reading and checking every byte.
    pub receiver_ns_per_msg: f64,
    /// Reading the clock and storing what it says, per sample of a round trip.
    pub clock_ns_per_sample: f64,
}

/// A host of a testbed that took part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRef {
    /// Its name: `a`, `b` on testbeds of this machine, else the prefix's own words.
    pub name: String,
    /// How it is reached: `none` (this machine), `ip`, `guest`, `ssh`, `mpirun` ..., the first word of its prefix.
    pub prefix_kind: String,
    /// Its kernel's release.
    pub kernel: String,
    /// Its machine id, under which its fingerprint stands in `env.json`'s `hosts`.
    pub environment: String,
}

/// What a record tells of a contender besides its id and its library's version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContenderNote {
    /// With what it is drawn.
    pub family: String,
    /// The declaration that it came from.
    pub file: PathBuf,
    /// The protocol's version.
    pub protocol: u32,
}

impl ContenderNote {
    /// Of a contender.
    pub fn of(contender: &Contender) -> ContenderNote {
        ContenderNote {
            family: contender.family.clone(),
            file: contender.file.clone(),
            protocol: contender::protocol::VERSION,
        }
    }
}

/// One trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The run: its start in UTC and a random suffix.
    pub run: String,
    /// The plan's name.
    pub plan: String,
    /// The group of the plan.
    pub group: String,
    /// The case: readable, the same for all its trials and in every run of the same inputs.
    pub case: String,
    /// The mechanism's id.
    pub mechanism: String,
    /// What provides it, with version.
    pub mechanism_version: Option<String>,
    /// Null for Crossway's own mechanisms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contender: Option<ContenderNote>,
    /// `local` for this machine; the host's name, or `A to B`, on a testbed.
    pub host: String,
    /// The hosts that took part; empty without a testbed.
    #[serde(default)]
    pub hosts: Vec<HostRef>,
    /// Everything that was asked.
    pub inputs: Inputs,
    /// How it ended.
    pub status: Status,
    /// Why it was skipped, failed or degraded.
    pub reason: Option<String>,
    /// What mends it.
    pub remedy: Option<String>,
    /// Start, milliseconds since 1970 UTC.
    pub started_unix_ms: u64,
    /// What went over.
    pub counts: Option<Counts>,
    /// Speed.
    pub throughput: Option<Throughput>,
    /// Latencies by span.
    pub latency_ns: Vec<Latency>,
    /// Pacing of open-loop workloads.
    pub pacing: Option<Pacing>,
    /// Each role's use.
    pub roles: Vec<RoleMeters>,
    /// Processes that work for the roles' channels; empty where the kernel or the roles themselves do all of it.
    #[serde(default)]
    pub servers: Vec<ServerMeters>,
    /// Each host's CPU time; schema 1 had one entry, without a list and without the host's name.
    #[serde(default, deserialize_with = "hosts::one_or_several")]
    pub host_cpu: Vec<HostMeters>,
    /// What the CPU time bought.
    pub cost: Option<Cost>,
    /// Interfaces that carried the traffic, of every host; empty where the mechanism uses none.
    pub net: Vec<IfaceMeters>,
    /// What the packets amount to.
    #[serde(default)]
    pub packets: Option<Packets>,
    /// Packets over time, where the plan asks for it.
    #[serde(default)]
    pub packet_series: Vec<PacketSeries>,
    /// What each host's transport protocol sent again.
    #[serde(default)]
    pub retransmissions: Vec<Retransmissions>,
    /// How several roles shared.
    pub fairness: Option<Fairness>,
    /// What ran beside it, in the order of `inputs.beside`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<BesideFigures>,
    /// The instruments.
    pub calibration: Calibration,
    /// Values read back from the system.
    pub facts: BTreeMap<String, i64>,
    /// Reason by field name for what is null.
    pub nulls: BTreeMap<String, String>,
    /// What a reader should know.
    pub warnings: Vec<String>,
}
