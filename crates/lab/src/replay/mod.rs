//! Recordings as workloads: what recorded channels carried, message by message, for roles to repeat.
//!
//! `roles` finds out who repeats what; `compile` turns the calls of a recording into the [`Script`] of the roles; `crossway_loops` performs it;
//! `fidelity` says how far the result is from the recording. docs/OBSERVE.md explains what is repeated and what not.

mod calls;
mod compile;
pub(crate) mod fidelity;
mod roles;
#[cfg(test)]
mod tests;
mod unseen;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crossway_observe::recording::{Recording, RecordingError};
use crossway_records::inputs::{Inputs, ReplayShape, Wait, Workload};
use crossway_records::shell;
use crossway_sys::Obstacle;

pub use calls::{AWAKE, first_directions};
pub use compile::Unplayable;
pub use crossway_loops::{Exchange, RoleScript, Script, Step, When};
pub use fidelity::same_as;
use roles::Cast;
pub use roles::{Channels, MOST_CHANNELS};

/// Speed in per cent of the recorded one at which pauses vanish.
pub const AS_FAST_AS_POSSIBLE: u32 = 0;
/// The fastest speed with pauses, in per cent.
pub const MOST_PERCENT: u32 = 100_000;

/// Recorded channels, ready to be replayed.
#[derive(Debug, PartialEq)]
pub struct Replay {
    /// The recording, as it was named.
    pub file: PathBuf,
    /// The workload that it is in plans and records.
    pub workload: Workload,
    /// What the roles do.
    pub script: Script,
    /// What was recorded, to compare the replay with.
    pub recorded: Recorded,
    /// What a reader of the results should know about the recording.
    pub remarks: Vec<String>,
}

/// What was recorded. Lists by message are in the order of the sends.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// The channels, in the order of the script.
    pub channels: Vec<RecordedChannel>,
    /// When each message is sent at the replay's speed, nanoseconds since the first one.
    pub sent_ns: Vec<u64>,
    /// The sizes of the messages, bytes.
    pub sizes: Vec<u32>,
    /// The channel of each message, and whether the role that connects sends it.
    pub ways: Vec<(u16, bool)>,
    /// What the method cost of the exchanges, as a fraction; `None` if that is unknown.
    pub method_share: Option<f64>,
    /// Time from the first send to the end of the last call at the replay's speed, nanoseconds.
    pub span_ns: u64,
    /// The CPU on which each role ran most; `None` if unknown.
    pub cpus: Vec<Option<u32>>,
}

/// What was recorded on one channel.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedChannel {
    /// Its number in the recording.
    pub number: u32,
    /// What carried it, in the terms of the map.
    pub carrier: String,
    /// The times of its exchanges without what the method cost, nanoseconds, ascending; empty if an end was not recorded.
    pub exchanges_ns: Vec<u64>,
    /// Whether they are begun by a role that serves nobody itself.
    pub by_client: bool,
}

/// Why a recorded channel cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The recording has no such channel.
    #[error(
        "{file} has no channel {channel}; it has {channels}: crossway observe --recording {} lists them",
        shell::word(file)
    )]
    NoChannel {
        /// The recording.
        file: String,
        /// The number that was asked for.
        channel: u32,
        /// How many it has, in words.
        channels: String,
    },
    /// The channel cannot be replayed.
    #[error("channel {channel} of {file} cannot be replayed: {why}")]
    Unplayable {
        /// The recording.
        file: String,
        /// The channel.
        channel: u32,
        /// Why not.
        why: Unplayable,
    },
    /// It has no channel that can be replayed.
    #[error(
        "{file} has no channel that carried a message{}; record for longer, or while the programs work",
        because(defects)
    )]
    Silent {
        /// The recording.
        file: String,
        /// What is wrong with the recording.
        defects: Vec<String>,
    },
}

fn because(defects: &[String]) -> String {
    if defects.is_empty() { String::new() } else { format!(" ({})", defects.join("; ")) }
}

impl Replay {
    /// Reads channels of a recording. `speed_percent` is the speed relative to the recorded one, or
    /// [`AS_FAST_AS_POSSIBLE`].
    ///
    /// # Errors
    /// There is no such recording or channel, or the channels cannot be replayed.
    pub fn load(
        file: &Path,
        channels: &Channels,
        speed_percent: u32,
    ) -> Result<Arc<Replay>, ReplayError> {
        let recording = Recording::read(file)?;
        Self::of(&recording, file, channels, speed_percent).map(Arc::new)
    }

    /// The same from a recording in memory, which was read from `file`.
    ///
    /// # Errors
    /// Those of [`Replay::load`].
    pub fn of(
        recording: &Recording,
        file: &Path,
        channels: &Channels,
        speed_percent: u32,
    ) -> Result<Replay, ReplayError> {
        let named = || file.display().to_string();
        let silent = || ReplayError::Silent { file: named(), defects: recording.defects.clone() };
        let (numbers, left_out) = match channels {
            Channels::These(numbers) => (numbers.clone(), None),
            Channels::Busiest => (vec![busiest(recording).ok_or_else(silent)?], None),
            Channels::All => match roles::all(recording) {
                // Without two processes that were recorded, there is still one to replay.
                (none, _) if none.is_empty() => {
                    (vec![busiest(recording).ok_or_else(silent)?], None)
                }
                all => all,
            },
        };
        let known = recording.head.channels.len();
        if let Some(channel) = numbers.iter().copied().find(|channel| *channel as usize >= known) {
            let channels = match known {
                0 => "none".to_owned(),
                1 => "channel 0".to_owned(),
                n => format!("channels 0 to {}", n - 1),
            };
            return Err(ReplayError::NoChannel { file: named(), channel, channels });
        }
        let unplayable = |(channel, why): (u32, Unplayable)| ReplayError::Unplayable {
            file: named(),
            channel,
            why,
        };
        let cast = match numbers[..] {
            [channel] => Cast::of_one(recording, channel).map_err(|why| (channel, why)),
            _ => Cast::of_several(recording, &numbers),
        };
        let cast = cast.map_err(unplayable)?;
        let compiled = compile::compile(recording, &cast, speed_percent)
            .map_err(|why| unplayable((numbers[0], why)))?;
        let mut remarks = recording.remarks();
        remarks.extend(left_out);
        remarks.extend(compiled.remarks);
        let shape = match compiled.shape {
            ReplayShape::Stream if speed_percent == AS_FAST_AS_POSSIBLE => ReplayShape::Bulk,
            shape => shape,
        };
        Ok(Replay {
            file: file.to_owned(),
            workload: Workload::Replay {
                recording: compiled.script.fingerprint(),
                channel: numbers[0],
                channels: numbers.len() as u32,
                speed_percent,
                shape,
            },
            script: compiled.script,
            recorded: compiled.recorded,
            remarks,
        })
    }

    /// The reason why a case cannot replay it; `None` if there is none.
    pub(crate) fn impossible(&self, inputs: &Inputs) -> Option<Obstacle> {
        let no = |why: &str, remedy: &str| {
            Some(Obstacle { why: why.to_owned(), remedy: remedy.to_owned() })
        };
        let roles = self.script.roles.len();
        if roles > 2 && inputs.testbed.is_some() {
            let why = "several channels with more than two roles are replayed on this machine only";
            return no(why, "omit the testbed, or replay one channel");
        }
        if roles > 2 && inputs.wait == Wait::Spin {
            let why = "more roles would spin than the placement has CPUs, and use up each other's time slices";
            return no(why, "use a mechanism that can block, or replay one channel");
        }
        None
    }

    /// The largest message of the end that sends first and, if it differs, of the other end, bytes. With several
    /// channels, a role may be both, so it is the largest one of all.
    pub fn sizes(&self) -> (u64, Option<u64>) {
        let [there, back] = self.script.largest().map(u64::from);
        if self.script.channels.len() > 1 {
            return (there.max(back), None);
        }
        let replies = self.workload.facts().has_replies && back != there;
        (there, replies.then_some(back))
    }

    /// What the roles compute for a message on average, nanoseconds.
    pub fn computing_ns(&self) -> f64 {
        let steps = self.script.roles.iter().flatten();
        let computing = steps.map(|step| match step.when {
            Some(When::Busy(ns)) => ns,
            _ => 0,
        });
        computing.sum::<u64>() as f64 / f64::from(self.script.messages.max(1))
    }

    /// The channels' numbers in the recording, ascending.
    pub fn numbers(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = self.recorded.channels.iter().map(|c| c.number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Number of messages that are due within `ms` milliseconds of the replay, up to the begin of an exchange; at least
    /// one exchange. A recording that is shorter is repeated.
    pub(crate) fn messages_in(&self, ms: u64) -> u64 {
        let Recorded { sent_ns, span_ns, .. } = &self.recorded;
        let (ns, span) = (ms.saturating_mul(1_000_000), (*span_ns).max(1));
        let (rounds, rest) = (ns / span, ns % span);
        let part = sent_ns.partition_point(|at| *at < rest) as u64;
        let all = u64::from(self.script.messages);
        if rounds == 0 {
            return self.script.whole_exchanges(part.max(1));
        }
        // A part of a round that is not a whole exchange is left out.
        let part = if rest * 10 < span { 0 } else { self.script.whole_exchanges(part) };
        rounds.saturating_mul(all) + part
    }

    /// The rate at which messages were sent at the replay's speed, per second.
    pub(crate) fn rate(&self) -> f64 {
        f64::from(self.script.messages) * 1e9 / self.recorded.span_ns.max(1) as f64
    }
}

/// The channel with the most messages.
fn busiest(recording: &Recording) -> Option<u32> {
    let mut counts = vec![0u64; recording.head.channels.len()];
    for event in recording.events.iter().filter(|e| e.size_bytes > 0) {
        if let Some(count) = event.channel.and_then(|c| counts.get_mut(c as usize)) {
            *count += 1;
        }
    }
    let most = counts.iter().enumerate().max_by_key(|(at, n)| (**n, std::cmp::Reverse(*at)))?;
    (*most.1 > 0).then_some(most.0 as u32)
}
