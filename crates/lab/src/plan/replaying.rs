//! The plan that replays a recording with every mechanism, for those who have no plan.

use std::path::Path;

use toml::{Table, Value};

use super::{Plan, PlanError, number, table};
use crate::replay::{AS_FAST_AS_POSSIBLE, Channels, Replay, ReplayError};

/// Longest part of a recording that each trial replays unless the user says otherwise, milliseconds: several mechanisms
/// and trials take their time one after the other.
const USUAL_MS: u64 = 500;
/// Longest warm-up of each trial, milliseconds.
const WARMUP_MS: u64 = 50;

impl Plan {
    /// The plan that replays channels of the recording `file` with every mechanism that can, on CPUs as near to each other as those of the recording.
    ///
    /// # Errors
    /// The recording cannot be read, or the channel cannot be replayed.
    pub fn replaying(
        file: &Path,
        channels: &Channels,
        speed_percent: u32,
    ) -> Result<Plan, ReplayingError> {
        let replay = Replay::load(file, channels, speed_percent)?;
        let name = file.to_string_lossy().into_owned();
        let numbers = replay.numbers();
        let mut group = Table::new();
        group.insert("mechanisms".into(), "all".into());
        let speed = match speed_percent {
            AS_FAST_AS_POSSIBLE => "as-fast-as-possible".into(),
            percent => Value::Float(f64::from(percent) / 100.0),
        };
        let workload =
            [("replay", name.clone().into()), ("channel", written(&numbers)), ("speed", speed)];
        group.insert("workload".into(), table(workload));
        let cpus = &replay.recorded.cpus;
        let one = cpus[0].is_some() && cpus.iter().all(|cpu| *cpu == cpus[0]);
        let placement = if one { "same-core" } else { "other-core" };
        group.insert("placement".into(), placement.into());
        group.insert("trials".into(), number(5));
        group.insert("warmup_ms".into(), number(WARMUP_MS));
        let span_ms = replay.recorded.span_ns / 1_000_000;
        group.insert("measure_ms".into(), number(span_ms.clamp(100, USUAL_MS)));
        let mut top = Table::new();
        let what = match &numbers[..] {
            [channel] => format!("channel {channel}"),
            several => format!("{} channels", several.len()),
        };
        top.insert("about".into(), format!("Replays {what} of {name}").into());
        top.insert("group".into(), table([("replay", Value::Table(group))]));
        Ok(Plan::parse("replay", "the recording's plan", &top.to_string())?)
    }

    /// What limits the recordings that the plan replays, one sentence each.
    pub fn replay_remarks(&self) -> Vec<String> {
        let mut remarks: Vec<String> = Vec::new();
        for remark in self.groups.iter().flat_map(|g| &g.replays).flat_map(|r| &r.remarks) {
            if !remarks.contains(remark) {
                remarks.push(remark.clone());
            }
        }
        remarks
    }
}

/// The channels of a replay in a plan.
pub(super) fn written(channels: &[u32]) -> Value {
    match channels {
        [channel] => number(u64::from(*channel)),
        several => Value::Array(several.iter().map(|c| number(u64::from(*c))).collect()),
    }
}

/// Why there is no plan for a recording.
#[derive(Debug, thiserror::Error)]
pub enum ReplayingError {
    /// The recording.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
}
