//! The plan that replays a recording with every mechanism, for those who have no plan.

use std::path::Path;

use toml::{Table, Value};

use super::{Plan, PlanError, number, table};
use crate::replay::{AS_FAST_AS_POSSIBLE, Replay, ReplayError};
use crossway_records::inputs::Workload;

/// Longest part of a recording that each trial replays unless the user says otherwise, milliseconds: several mechanisms
/// and trials take their time one after the other.
const USUAL_MS: u64 = 500;
/// Longest warm-up of each trial, milliseconds.
const WARMUP_MS: u64 = 50;

impl Plan {
    /// The plan that replays a channel of the recording `file`, by default the busiest one, with every mechanism that
    /// can, on CPUs as near to each other as those of the recording.
    ///
    /// # Errors
    /// The recording cannot be read, or the channel cannot be replayed.
    pub fn replaying(
        file: &Path,
        channel: Option<u32>,
        speed_percent: u32,
    ) -> Result<Plan, ReplayingError> {
        let replay = Replay::load(file, channel, speed_percent)?;
        let Workload::Replay { channel, .. } = replay.workload else {
            return Err(ReplayingError::Plan(PlanError::Unknown { name: "replay".to_owned() }));
        };
        let name = file.to_string_lossy().into_owned();
        let mut group = Table::new();
        group.insert("mechanisms".into(), "all".into());
        let speed = match speed_percent {
            AS_FAST_AS_POSSIBLE => "as-fast-as-possible".into(),
            percent => Value::Float(f64::from(percent) / 100.0),
        };
        let workload = [
            ("replay", name.clone().into()),
            ("channel", number(u64::from(channel))),
            ("speed", speed),
        ];
        group.insert("workload".into(), table(workload));
        let placement = match replay.recorded.cpus {
            [Some(a), Some(b)] if a == b => "same-core",
            _ => "other-core",
        };
        group.insert("placement".into(), placement.into());
        group.insert("trials".into(), number(5));
        group.insert("warmup_ms".into(), number(WARMUP_MS));
        let span_ms = replay.recorded.span_ns / 1_000_000;
        group.insert("measure_ms".into(), number(span_ms.clamp(100, USUAL_MS)));
        let mut top = Table::new();
        top.insert("about".into(), format!("Replays channel {channel} of {name}").into());
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
