//! The inputs of a case, fully resolved: enough to repeat it.

mod goals;
mod span;
mod workload;

use std::path::PathBuf;

pub use crossway_mech::{Access, Wait};
use serde::{Deserialize, Serialize};

pub use crate::testbed::Ends;
use crate::testbed::Testbed;
pub use goals::{GoalFigure, Goals};
pub use span::Span;
pub use workload::{
    Extent, Measure, Per, ReplayShape, Workload, WorkloadFacts, messages_per_burst,
};

/// Where the roles run, as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Both roles on one logical CPU.
    SameCore,
    /// Two hardware threads of one core.
    SmtSibling,
    /// Two cores that share the last-level cache.
    SharedCache,
    /// Two cores, preferably of one socket and without a shared last-level cache. If all cores share it, this is the
    /// same as `shared-cache`.
    OtherCore,
    /// Two cores on different sockets.
    CrossSocket,
    /// Exactly these two logical CPUs.
    Cpus {
        /// The first role's CPU (sender or client).
        a: u32,
        /// The second role's CPU (receiver or server).
        b: u32,
    },
    /// The scheduler chooses the CPUs.
    Unpinned,
}

impl Placement {
    /// The placement's text in case ids and in exports.
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

/// Background load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Load {
    /// Number of stress-ng CPU workers.
    #[serde(default)]
    pub cpu: u32,
    /// Number of stress-ng memory workers.
    #[serde(default)]
    pub memory: u32,
    /// Number of stress-ng I/O workers.
    #[serde(default)]
    pub io: u32,
}

impl Load {
    /// Whether there is no background load.
    pub fn is_idle(&self) -> bool {
        self.cpu == 0 && self.memory == 0 && self.io == 0
    }
}

/// A workload that runs concurrently with the measured one, with its own channel and processes. It starts before the
/// warm-up and ends after the measured part.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Beside {
    /// The mechanism's id.
    pub mechanism: String,
    /// The workload: throughput, ping-pong or paced.
    pub workload: Workload,
    /// Message size in bytes.
    pub size_bytes: u64,
    /// How the ends wait.
    pub wait: Wait,
    /// Where the workload's roles should run.
    pub placement: Placement,
    /// Logical CPUs chosen for the workload's first and second role; empty if the roles are not pinned.
    pub cpus: Vec<u32>,
}

impl Beside {
    /// The workload's text in case ids and in exports.
    pub fn word(&self) -> String {
        let Beside { mechanism, workload, size_bytes, wait, placement, .. } = self;
        let wait = match wait {
            Wait::Block => String::new(),
            Wait::Spin => "-spin".to_owned(),
            Wait::Hybrid { spin_us } => format!("-hybrid{spin_us}"),
        };
        format!("{mechanism}-{}-{size_bytes}{wait}-{}", workload.word(), placement.word())
    }

    /// The inputs of the workload's roles when it runs concurrently with a case that has the inputs `case`.
    pub fn inputs(&self, case: &Inputs) -> Inputs {
        Inputs {
            workload: self.workload,
            recording: None,
            recorded_channels: Vec::new(),
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

/// Every input of a trial. The record contains all of them, so that `crossway rerun` can repeat the trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Inputs {
    /// The testbed's name; null for this machine.
    #[serde(default)]
    pub testbed: Option<String>,
    /// Which hosts of the testbed the roles are on.
    #[serde(default)]
    pub ends: Ends,
    /// Description of the testbed from the plan (for `hosts`, from the command line); null without a testbed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub testbed_spec: Option<Testbed>,
    /// The workload.
    pub workload: Workload,
    /// The recording that is replayed, as named in the plan; null for other workloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<PathBuf>,
    /// The channels of the recording that are replayed, if they are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recorded_channels: Vec<u32>,
    /// Message size in bytes; of a replay, the largest message of the end that sends first, or of all of
    /// several channels.
    pub size_bytes: u64,
    /// Reply size in bytes, for round trips with replies of another size than the requests; null for the same size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_bytes: Option<u64>,
    /// How the ends wait.
    pub wait: Wait,
    /// How messages are written: copied, or in place.
    pub access: Access,
    /// Where the roles should run.
    pub placement: Placement,
    /// Logical CPU chosen for each role, in role order; empty if they are not pinned.
    pub cpus: Vec<u32>,
    /// Background load.
    pub load: Load,
    /// Workloads that run concurrently with this one; usually empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
    /// Requested SO_SNDBUF and SO_RCVBUF, bytes; null for the system's default.
    pub socket_buffer_bytes: Option<u64>,
    /// Requested capacity of the ring, pipe or queue, bytes; null for the mechanism's default.
    pub capacity_bytes: Option<u64>,
    /// Exact number of messages per trial (10,000 in the studies); null for as many as fit into `measure_ms`.
    pub messages: Option<u64>,
    /// The number of messages in the study that the plan repeats, if `messages` is a fraction of that number; else
    /// null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub study_messages: Option<u64>,
    /// Maximum warm-up in milliseconds.
    pub warmup_ms: u64,
    /// Measured time in milliseconds if `messages` is null.
    pub measure_ms: u64,
    /// Interval in milliseconds at which the interfaces' packet counters are sampled; null for no time series.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet_series_ms: Option<u32>,
    /// Goals that the case must meet; may be empty.
    #[serde(default, skip_serializing_if = "Goals::is_empty")]
    pub require: Goals,
    /// Number of this trial, from 0.
    pub trial: u32,
    /// Number of trials of this case in this run.
    pub trials: u32,
    /// Position in the interleaved order of the run, from 0.
    pub order: u32,
    /// Random seed of the order and of the payload.
    pub seed: u64,
}

impl Inputs {
    /// The inputs of one trial of this workload without load, by unpinned roles. Everything else is
    /// as by default, and the trial lasts for no time.
    pub fn of(workload: Workload, size_bytes: u64, wait: Wait) -> Inputs {
        Inputs {
            testbed: None,
            ends: Ends::Within,
            testbed_spec: None,
            workload,
            recording: None,
            recorded_channels: Vec::new(),
            size_bytes,
            reply_bytes: None,
            wait,
            access: Access::Copy,
            placement: Placement::Unpinned,
            cpus: Vec::new(),
            load: Load::default(),
            beside: Vec::new(),
            socket_buffer_bytes: None,
            capacity_bytes: None,
            messages: None,
            study_messages: None,
            warmup_ms: 0,
            measure_ms: 0,
            packet_series_ms: None,
            require: Goals::default(),
            trial: 0,
            trials: 1,
            order: 0,
            seed: 1,
        }
    }

    /// The larger of request and reply size in bytes: the largest message that the channel must be able to carry.
    pub fn largest_bytes(&self) -> u64 {
        self.size_bytes.max(self.reply_bytes.unwrap_or(0))
    }

    /// Size in bytes of the messages whose receipt counts: of the replies, if the workload has replies.
    pub fn arriving_bytes(&self) -> u64 {
        self.reply_bytes.unwrap_or(self.size_bytes)
    }

    /// Whether this trial was not planned, but repeats one that the machine had disturbed.
    pub fn is_repetition(&self) -> bool {
        self.trial >= self.trials
    }
}
