//! Plans: what to measure, as a TOML file. docs/PLANS.md explains the format.
//!
//! A plan has groups; each group is a cross product of axes. An unknown key or value is an error that names the file,
//! the key and the allowed values.

mod at;
mod axes;
mod beside;
mod mechanisms;
mod repeat;
mod replaying;
mod require;
mod sizes;
mod syntax;
mod testbeds;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crossway_mech::{Access, Wait};

use crate::replay::Replay;
use crossway_records::goals::Goals;
use crossway_records::inputs::{Ends, Load, Placement, Workload};
use crossway_records::testbed::Testbed;

pub use at::At;
pub use axes::{load, placement};
pub use repeat::{load_value, number, table, value};
pub use replaying::ReplayingError;
pub use sizes::bytes as size_bytes;
pub use testbeds::{HostsError, share, written as testbed_table};

/// The plans that come with the program, by name.
pub const PRESETS: &[(&str, &str)] = &[
    ("quick", include_str!("../../../../plans/quick.toml")),
    ("full", include_str!("../../../../plans/full.toml")),
    ("paced", include_str!("../../../../plans/paced.toml")),
    ("exchange", include_str!("../../../../plans/exchange.toml")),
    ("fairness", include_str!("../../../../plans/fairness.toml")),
    ("buffers", include_str!("../../../../plans/buffers.toml")),
    ("cores", include_str!("../../../../plans/cores.toml")),
    ("contenders", include_str!("../../../../plans/contenders.toml")),
    ("containers", include_str!("../../../../plans/containers.toml")),
    ("kernels", include_str!("../../../../plans/kernels.toml")),
    ("toshiba", include_str!("../../../../plans/toshiba.toml")),
    ("cluster", include_str!("../../../../plans/cluster.toml")),
    ("mpi", include_str!("../../../../plans/mpi.toml")),
    ("enea", include_str!("../../../../plans/enea.toml")),
];

/// Keys at the top of a plan whose values override those of all groups.
pub const OVERRIDES: [&str; 3] = ["trials", "warmup_ms", "measure_ms"];

/// Maximum number of trials per case in a plan.
pub const MOST_TRIALS: u32 = 1_000;

/// A plan, parsed and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The plan's name: the file name without extension, or with it if the plan differs from the preset of that name.
    pub name: String,
    /// The plan's purpose; `None` if the plan does not state it.
    pub about: Option<String>,
    /// Seed of the order of trials and of the payload.
    pub seed: u64,
    /// Whether the fault matrix is run for the plan's mechanisms after the trials.
    pub faults: bool,
    /// Whether trials with a process that moves between nodes are run after the other trials.
    pub moves: bool,
    /// Whether MPI is run over TCP and over TIPC after the other trials.
    pub mpi: bool,
    /// Testbeds on which cases run, in addition to this machine.
    pub testbeds: Vec<Testbed>,
    /// The plan's groups, in the order of the file.
    pub groups: Vec<Group>,
    /// The text of the plan as read, which is stored with the results.
    pub text: String,
}

/// A group of cases: the cross product of its mechanisms, workloads, sizes and other lists.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The group's name.
    pub name: String,
    /// The question that the group answers; `None` if the plan does not state it.
    pub about: Option<String>,
    /// Ids of mechanisms and contenders, in the order of the catalogue.
    pub mechanisms: Vec<&'static str>,
    /// Names of testbeds; `None` for this machine.
    pub testbeds: Vec<Option<String>>,
    /// Which hosts of a testbed the roles are on.
    pub ends: Vec<Ends>,
    /// The workloads.
    pub workloads: Vec<Workload>,
    /// The recordings of those workloads that replay one.
    pub replays: Vec<Arc<Replay>>,
    /// Message sizes in bytes, ascending, without duplicates; empty if all workloads are replays.
    pub sizes: Vec<u64>,
    /// Reply sizes in bytes; `None` for the size of the request.
    pub replies: Vec<Option<u64>>,
    /// How the ends wait; `None` for the mechanism's default (blocking if the mechanism supports that, otherwise
    /// spinning).
    pub waits: Vec<Option<Wait>>,
    /// How messages are written: copied, or in place.
    pub accesses: Vec<Access>,
    /// Placements of the roles; `None` for the default, which is `other-core` on this machine and `unpinned` on a
    /// testbed.
    pub placements: Option<Vec<PlacementAxis>>,
    /// Background loads.
    pub loads: Vec<Load>,
    /// Concurrent workloads of each case, one list per value of the axis; an empty list means none.
    pub besides: Vec<Vec<BesideAxis>>,
    /// SO_SNDBUF and SO_RCVBUF in bytes; `None` for the system's default.
    pub socket_buffers: Vec<Option<u64>>,
    /// Capacities in bytes; `None` for the mechanism's default.
    pub capacities: Vec<Option<u64>>,
    /// Number of messages per trial; `None` for as many as fit into `measure_ms`.
    pub messages: Option<u64>,
    /// The number of messages in the study that the plan repeats, if `messages` is a fraction of that number; else
    /// `None`.
    pub study_messages: Option<u64>,
    /// Interval in milliseconds at which the interfaces' packet counters are sampled; `None` for no series.
    pub packet_series_ms: Option<u32>,
    /// Number of trials per case.
    pub trials: u32,
    /// Maximum warm-up, milliseconds.
    pub warmup_ms: u64,
    /// Measured time in milliseconds, if `messages` is `None`.
    pub measure_ms: u64,
    /// Goals that each case must meet.
    pub require: Goals,
}

/// A concurrent workload as written in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BesideAxis {
    /// The mechanism; `None` for that of the case.
    pub mechanism: Option<&'static str>,
    /// The workload.
    pub workload: Workload,
    /// Message size in bytes.
    pub size_bytes: u64,
    /// How the workload's ends wait; `None` for the mechanism's default.
    pub wait: Option<Wait>,
    /// Placement of the workload's roles; `None` for that of the case.
    pub placement: Option<Placement>,
}

/// A placement as written in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementAxis {
    /// One placement.
    One(Placement),
    /// Every ordered pair of different logical CPUs.
    EveryPair,
    /// Every ordered pair of logical CPUs, including each CPU with itself.
    EveryPairAndSelf,
}

/// The reason why a plan cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// There is no such preset or file.
    #[error("there is no plan '{name}': give a path, or one of: {}", presets())]
    Unknown {
        /// The name as given.
        name: String,
    },
    /// The file cannot be read.
    #[error("cannot read the plan {}: {cause}; give the path of a readable TOML file, or one of: {}", path.display(), presets())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause. It is part of the message and not the error's `source`, because a printed error chain would
        /// repeat the cause.
        cause: std::io::Error,
    },
    /// The text is not valid TOML.
    #[error("{file}: not TOML: {why}")]
    NotToml {
        /// The file.
        file: String,
        /// The parser's message.
        why: String,
    },
    /// A key is unknown, missing, or has an invalid value.
    #[error("{file}: {key}: {why}")]
    Bad {
        /// The file.
        file: String,
        /// The key with its path, e.g. `group.basic.wait`.
        key: String,
        /// What is wrong, and what is allowed.
        why: String,
    },
}

fn presets() -> String {
    PRESETS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

fn preset(name: &str) -> Option<&'static str> {
    PRESETS.iter().find(|(preset, _)| *preset == name).map(|(_, text)| *text)
}

/// Whether a stored plan is the preset of this name, apart from values given on the command line, which are stored at
/// its top.
pub fn is_preset(name: &str, text: &str) -> bool {
    let own = |text: &str| -> Vec<String> {
        let lines = without_at_top(text, &OVERRIDES).filter(|line| !syntax::sets("scale", line));
        lines.map(str::to_owned).collect()
    };
    preset(name).is_some_and(|preset| own(preset) == own(text))
}

/// The lines of a plan, except those before its first table that set one of these keys.
fn without_at_top<'a>(text: &'a str, keys: &[&str]) -> impl Iterator<Item = &'a str> {
    let mut top = true;
    text.lines().filter(move |line| {
        top &= !line.trim_start().starts_with('[');
        !(top && keys.iter().any(|key| syntax::sets(key, line)))
    })
}

impl Plan {
    /// Loads a preset by its name, or else the file at that path.
    pub fn load(name_or_path: &str) -> Result<Plan, PlanError> {
        if let Some(text) = preset(name_or_path) {
            return Plan::parse(name_or_path, &format!("preset {name_or_path}"), text);
        }
        let path = Path::new(name_or_path);
        if !path.exists() && path.components().count() == 1 && path.extension().is_none() {
            return Err(PlanError::Unknown { name: name_or_path.to_owned() });
        }
        let text = crossway_sys::text_file::read(path)
            .map_err(|cause| PlanError::Unreadable { path: path.to_owned(), cause })?;
        let mut name = path.file_stem().map_or("plan".into(), |stem| stem.to_string_lossy());
        // Another plan in a file with the name of a preset is not the preset.
        if preset(&name).is_some_and(|preset| preset != text)
            && let Some(whole) = path.file_name()
        {
            name = whole.to_string_lossy();
        }
        Plan::parse(&name, name_or_path, &text)
    }

    /// Returns the plan with another fraction of the studies' numbers of messages; 1 sends all of them.
    ///
    /// # Errors
    /// The plan does not use the number of messages of a study, or the fraction is invalid.
    pub fn scaled(&self, file: &str, scale: f64) -> Result<Plan, PlanError> {
        if !self.groups.iter().any(|g| g.study_messages.is_some()) {
            return Err(PlanError::Bad {
                file: file.to_owned(),
                key: "scale".to_owned(),
                why: "no group has `messages = { study, scale }`, so there is nothing to scale"
                    .to_owned(),
            });
        }
        // The text is stored with the results and must describe what was done.
        let lines = self.text.lines().filter(|line| !syntax::sets("scale", line));
        let text = lines.fold(format!("scale = {scale:?}\n"), |text, line| text + line + "\n");
        Plan::parse(&self.name, file, &text)
    }

    /// The largest number of trials per case of any group.
    pub fn most_trials(&self) -> u32 {
        self.groups.iter().map(|group| group.trials).max().unwrap_or(0)
    }

    /// Returns the plan with other values for all groups, e.g. `("trials", 3)`; see [`OVERRIDES`].
    ///
    /// # Errors
    /// A value is out of range.
    pub fn overridden(&self, file: &str, values: &[(&str, u64)]) -> Result<Plan, PlanError> {
        // The text is stored with the results and must describe what was done.
        let keys: Vec<&str> = values.iter().map(|(key, _)| *key).collect();
        let mut text: String =
            values.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        for line in without_at_top(&self.text, &keys) {
            text.push_str(line);
            text.push('\n');
        }
        Plan::parse(&self.name, file, &text)
    }

    /// Parses and checks the text of a plan called `name`; `file` is what error messages call the plan's file.
    pub fn parse(name: &str, file: &str, text: &str) -> Result<Plan, PlanError> {
        syntax::parse(name, file, text)
    }
}

#[cfg(test)]
mod testbed_tests;
#[cfg(test)]
mod tests;
