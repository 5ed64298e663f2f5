//! What one case asks for, fully resolved: enough to repeat it.

pub use crossway_mech::{Access, Wait};
use serde::{Deserialize, Serialize};

use crate::goals::Goals;
pub use crate::testbed::Ends;
use crate::testbed::Testbed;

/// What the two (or more) processes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// One sends as fast as the other receives.
    Throughput,
    /// Request and reply, of the same size unless [`Inputs::reply_bytes`] says otherwise; the round trip is timed, and reported
    /// as a round trip.
    PingPong,
    /// Open loop: every `period_us` a burst of `burst_bytes`, cut into messages of the case's size, is due whatever
    /// happened before; latency counts from the intended instant. A message rate is a burst of one message.
    Paced {
        /// Bytes per burst.
        burst_bytes: u64,
        /// Microseconds between the starts of two bursts.
        period_us: u64,
    },
    /// Open loop: every `period_ns` a request is due whatever happened before; one that finds the former unanswered is sent as soon
    /// as the reply has come. The time from the due instant to the reply is reported as a round trip.
    Requests {
        /// Nanoseconds between two requests.
        period_ns: u64,
    },
    /// Connect, one request, one reply, close; set-up, exchange and tear-down are timed apart (study item C4).
    Exchange,
    /// So many independent pairs at once, each one way.
    Pairs {
        /// Number of pairs.
        pairs: u32,
    },
    /// So many senders into one receiver (T11, E25).
    FanIn {
        /// Number of senders.
        senders: u32,
        /// How slow the receiver is: microseconds of work on each message; 0: as fast as it can.
        #[serde(default, skip_serializing_if = "is_zero")]
        receiver_us: u32,
    },
    /// One sender to so many receivers in turn.
    FanOut {
        /// Number of receivers.
        receivers: u32,
    },
}

impl Workload {
    /// The word for it in names of cases and in exports.
    pub fn word(&self) -> String {
        match self {
            Self::Throughput => "throughput".to_owned(),
            Self::PingPong => "ping-pong".to_owned(),
            Self::Paced { burst_bytes, period_us } => format!("paced-{burst_bytes}B-{period_us}us"),
            Self::Requests { period_ns } => format!("requests-{period_ns}ns"),
            Self::Exchange => "exchange".to_owned(),
            Self::Pairs { pairs } => format!("pairs-{pairs}"),
            Self::FanIn { senders, receiver_us: 0 } => format!("fan-in-{senders}"),
            Self::FanIn { senders, receiver_us } => format!("fan-in-{senders}-slow{receiver_us}us"),
            Self::FanOut { receivers } => format!("fan-out-{receivers}"),
        }
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Where the roles run, as asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Both on one logical CPU.
    SameCore,
    /// Two hardware threads of one core.
    SmtSibling,
    /// Two cores that share the last-level cache.
    SharedCache,
    /// Two cores of one socket that share no cache but perhaps the last level; where all share it, as
    /// `shared-cache`.
    OtherCore,
    /// Two cores on different sockets.
    CrossSocket,
    /// Exactly these two logical CPUs.
    Cpus {
        /// The first role's (sender, or client).
        a: u32,
        /// The second role's (receiver, or server).
        b: u32,
    },
    /// Wherever the scheduler puts them.
    Unpinned,
}

impl Placement {
    /// The word for it in names of cases and in exports.
    pub fn word(&self) -> String {
        match self {
            Self::SameCore => "same-core".to_owned(),
            Self::SmtSibling => "smt-sibling".to_owned(),
            Self::SharedCache => "shared-cache".to_owned(),
            Self::OtherCore => "other-core".to_owned(),
            Self::CrossSocket => "cross-socket".to_owned(),
            Self::Cpus { a, b } => format!("cpus-{a}-{b}"),
            Self::Unpinned => "unpinned".to_owned(),
        }
    }
}

/// Work in the background.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Load {
    /// stress-ng CPU workers.
    #[serde(default)]
    pub cpu: u32,
    /// stress-ng memory workers.
    #[serde(default)]
    pub memory: u32,
    /// stress-ng I/O workers.
    #[serde(default)]
    pub io: u32,
}

impl Load {
    /// No background work.
    pub fn is_idle(&self) -> bool {
        self.cpu == 0 && self.memory == 0 && self.io == 0
    }
}

/// A workload that runs beside the measured one, over a channel and between processes of its own, from before the warm-up until the
/// measured part is over.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Beside {
    /// The mechanism's id.
    pub mechanism: String,
    /// What it does: throughput, ping-pong or paced.
    pub workload: Workload,
    /// Message size in bytes.
    pub size_bytes: u64,
    /// How waiting ends wait.
    pub wait: Wait,
    /// Where its roles should run.
    pub placement: Placement,
    /// Logical CPU of its first and its second role as resolved; empty when unpinned.
    pub cpus: Vec<u32>,
}

impl Beside {
    /// The word for it in names of cases and in exports.
    pub fn word(&self) -> String {
        let Beside { mechanism, workload, size_bytes, wait, placement, .. } = self;
        let wait = match wait {
            Wait::Block => String::new(),
            Wait::Spin => "-spin".to_owned(),
            Wait::Hybrid { spin_us } => format!("-hybrid{spin_us}"),
        };
        format!("{mechanism}-{}-{size_bytes}{wait}-{}", workload.word(), placement.word())
    }

    /// The inputs of its roles, beside a case with these.
    pub(crate) fn inputs(&self, case: &Inputs) -> Inputs {
        Inputs {
            workload: self.workload,
            size_bytes: self.size_bytes,
            reply_bytes: None,
            wait: self.wait,
            access: Access::Copy,
            placement: self.placement,
            cpus: self.cpus.clone(),
            socket_buffer_bytes: None,
            capacity_bytes: None,
            messages: None,
            study_messages: None,
            packet_series_ms: None,
            beside: Vec::new(),
            require: Goals::default(),
            ..case.clone()
        }
    }
}

/// Every input of a trial. The record carries it whole, so that `crossway rerun` can repeat it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inputs {
    /// The testbed's name; null: this machine.
    #[serde(default)]
    pub testbed: Option<String>,
    /// Where the roles are on it.
    #[serde(default)]
    pub ends: Ends,
    /// What the testbed is, as the plan (and for `hosts` the command line) said; null without a testbed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub testbed_spec: Option<Testbed>,
    /// What is done.
    pub workload: Workload,
    /// Message size in bytes.
    pub size_bytes: u64,
    /// Size of the reply in bytes, for round trips whose reply has another size than the request; null: the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_bytes: Option<u64>,
    /// How waiting ends wait.
    pub wait: Wait,
    /// Who writes where.
    pub access: Access,
    /// Where the roles should run.
    pub placement: Placement,
    /// Logical CPU per role as resolved, in role order; empty when unpinned.
    pub cpus: Vec<u32>,
    /// Background work.
    pub load: Load,
    /// Workloads that run beside this one; empty: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
    /// SO_SNDBUF / SO_RCVBUF asked for; null: the system's default.
    pub socket_buffer_bytes: Option<u64>,
    /// Ring, pipe or queue capacity asked for; null: the mechanism's default.
    pub capacity_bytes: Option<u64>,
    /// Exact number of messages per trial (studies: 10,000); null: as many as fit into `measure_ms`.
    pub messages: Option<u64>,
    /// The number that a source study took, where `messages` is a stated share of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub study_messages: Option<u64>,
    /// Longest warm-up in milliseconds.
    pub warmup_ms: u64,
    /// Measured time in milliseconds where `messages` is null.
    pub measure_ms: u64,
    /// Packets of the interfaces over time, sampled so many milliseconds apart; null: no series.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet_series_ms: Option<u32>,
    /// What the case must reach; empty: nothing is required.
    #[serde(default, skip_serializing_if = "Goals::is_empty")]
    pub require: Goals,
    /// This trial, from 0.
    pub trial: u32,
    /// Trials of this case in this run.
    pub trials: u32,
    /// Position in the interleaved order of the run, from 0.
    pub order: u32,
    /// Seed of the order and of the payload.
    pub seed: u64,
}

impl Inputs {
    /// The larger of request and reply: what the channel must be able to carry.
    pub fn largest_bytes(&self) -> u64 {
        self.size_bytes.max(self.reply_bytes.unwrap_or(0))
    }
}
