//! What a recording says about a program, and what the program would gain from another mechanism.
//!
//! A [`Flow`] is everything that two processes exchange by the same kind of channel, such as the fifty connections of a
//! client to its server. [`Flow::question`] is the question that `crossway advise` answers for it; [`gain`] predicts by
//! how much the whole program gets faster. Pure functions of a recording and of records, apart from the trials.

mod flows;
pub mod gain;
#[cfg(test)]
mod meeting_tests;
mod question;
mod rounds;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::BTreeMap;
use std::path::Path;

pub use flows::flows;

use crossway_lab::replay::{AWAKE, Channels, Replay, same_as};
use crossway_observe::recording::{Kinship, Namespaces, Recording};
use crossway_records::inputs::ReplayShape;

/// Everything that two processes exchange by the same kind of channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// The channels, as indices in the recording, that with the most messages first.
    pub channels: Vec<u32>,
    /// What carries them, in the terms of the map.
    pub carrier: String,
    /// The process that sends first, and the other one, as indices; `None` if it was not recorded.
    pub ends: [Option<u32>; 2],
    /// Their names.
    pub names: [String; 2],
    /// Whether the two processes can inherit descriptors from each other or from one parent.
    pub kinship: Kinship,
    /// The namespaces of the two processes, if both are known.
    pub namespaces: Option<[Namespaces; 2]>,
    /// What the messages are.
    pub shape: ReplayShape,
    /// Number of exchanges or, of a stream, of messages.
    pub exchanges: u64,
    /// Bytes of each exchange from the end that sends first, with the number of such exchanges; of a stream, of each
    /// message.
    pub requests: BTreeMap<u64, u64>,
    /// Bytes of each exchange from the other end; empty for a stream.
    pub replies: BTreeMap<u64, u64>,
    /// From the first call to the last return of the flow, nanoseconds.
    pub span_ns: u64,
    /// Time from the begin of an exchange to its end, all exchanges together, nanoseconds; `None` if the end that sends
    /// first was not recorded.
    pub open_ns: Option<u64>,
    /// Calls that each end made for the flow, also the waits before its receives.
    pub calls: [u64; 2],
    /// Time that each end's threads spent in these calls, nanoseconds; contains what the method cost.
    pub in_calls_ns: [u64; 2],
    /// Of that time, what they spent without a CPU: asleep, or waiting for one; `None` if it is unknown.
    pub off_cpu_ns: [Option<u64>; 2],
    /// CPUs on which the ends ran most.
    pub cpus: [Option<u32>; 2],
    /// The part of the time that the ends compute in which they compute the same on CPUs that do not sleep, from 0 to 1;
    /// 1 if that is not known: see [`Flow::compare_awake`].
    pub awake: f64,
}

impl Flow {
    /// How many exchanges are open at the same time, on average. `None` if it is unknown.
    pub fn concurrency(&self) -> Option<f64> {
        let open_ns = self.open_ns.filter(|_| self.shape == ReplayShape::Exchanges)?;
        Some(open_ns as f64 / self.span_ns.max(1) as f64)
    }

    /// Whether the end that sends first waits for each answer before it goes on, so that the time of an exchange counts;
    /// otherwise several exchanges are open at once, and the work of an end decides how many there are.
    pub fn is_in_turn(&self) -> bool {
        self.channels.len() == 1 || self.concurrency().is_some_and(|open| open <= 1.2)
    }

    /// Whether both ends ask again and again for the next message instead of sleeping until it comes, as MPI's ranks do.
    pub fn never_sleeps(&self) -> bool {
        let slept = |ns: u64| ns as f64 > AWAKE * self.span_ns as f64;
        self.is_in_turn() && self.off_cpu_ns.iter().all(|ns| ns.is_some_and(|ns| !slept(ns)))
    }

    /// Learns from the part of the recording in which CPUs were kept awake how much faster the ends compute there: a CPU
    /// that has slept wakes up with cold caches.
    pub fn compare_awake(&mut self, recording: &Recording) {
        let channel = Channels::These(self.channels.iter().take(1).copied().collect());
        let computing_ns = |recording: &Recording| {
            let replay = Replay::of(recording, Path::new("recording"), &channel, 100).ok()?;
            Some(replay.computing_ns()).filter(|ns| *ns > 0.0)
        };
        let awake = recording.awake_part().and_then(|part| computing_ns(&part));
        let part = awake.zip(computing_ns(recording)).map(|(awake, slept)| awake / slept);
        self.awake = part.map_or(1.0, |part| part.min(1.0));
    }

    /// The largest part of an end's time that went into the calls of the flow, from 0 to 1 (1 of several threads, too).
    /// No channel can gain more than that.
    pub fn share_of_time(&self) -> f64 {
        let most = self.in_calls_ns.into_iter().max().unwrap_or(0);
        (most as f64 / self.span_ns.max(1) as f64).min(1.0)
    }

    /// The mechanism that works as the recorded channel does; `None` if Crossway does not measure it.
    pub fn mechanism(&self) -> Option<&'static str> {
        // Programs that exchange small messages over TCP switch Nagle's algorithm off.
        match (self.carrier.as_str(), self.shape) {
            ("tcp-local", ReplayShape::Exchanges) => Some("tcp-nodelay"),
            (carrier, _) => same_as(carrier).first().copied(),
        }
    }

    /// The two ends and the channels in words.
    pub fn words(&self) -> String {
        let channels = match self.channels[..] {
            [one] => format!("channel {one}"),
            ref several => format!("{} channels", several.len()),
        };
        format!("{} and {}, {channels} of {}", self.names[0], self.names[1], self.carrier)
    }
}

/// The typical value of a distribution: the median by number.
fn median(counts: &BTreeMap<u64, u64>) -> Option<u64> {
    let all: u64 = counts.values().sum();
    let mut seen = 0;
    counts.iter().find_map(|(value, count)| {
        seen += count;
        (seen * 2 >= all).then_some(*value)
    })
}

/// The shape of a channel; `None` if it cannot be replayed.
fn shape(replay: &Replay) -> Option<ReplayShape> {
    match replay.workload {
        crossway_records::inputs::Workload::Replay { shape, .. } => Some(shape),
        _ => None,
    }
}
