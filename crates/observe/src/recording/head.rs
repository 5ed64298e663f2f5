//! The head of a recording: a TOML file for people and programs.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::VERSION;
use super::origin::{Origin, Renumbered};

/// Who talks to whom, how that was recorded, and what was lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The version of the format.
    pub version: u32,
    /// The program that wrote it.
    pub written_by: String,
    /// When the recording began, milliseconds since 1970 (UTC).
    pub began_unix_ms: u64,
    /// The release of the kernel on which it was recorded, if known.
    pub kernel: Option<String>,
    /// Number of CPUs of the machine on which it was recorded, if known.
    pub cpus: Option<u32>,
    /// Whether names, paths and addresses were left out.
    pub anonymous: bool,
    /// How it was recorded.
    pub method: Method,
    /// From when on the CPUs of the observed threads were kept from sleeping, nanoseconds since the first event; missing
    /// if they never were. See [`Recording::awake`](super::Recording::awake).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awake_from_ns: Option<i64>,
    /// Its totals. Missing if the recorder did not finish.
    pub totals: Option<Totals>,
    /// The processes.
    #[serde(default)]
    pub processes: Vec<RecordedProcess>,
    /// Which process each thread belongs to, as an index into `processes`, in the order of the threads' indices.
    #[serde(default)]
    pub threads: Vec<u32>,
    /// The CPU time of threads. Those that are missing ended unseen, or the method does not know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu: Vec<ThreadCpu>,
    /// The channels.
    #[serde(default)]
    pub channels: Vec<RecordedChannel>,
}

/// How calls were recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Method {
    /// `strace`, or the format of an imported file.
    pub name: String,
    /// What it cost the observed programs: nanoseconds per call, as measured; missing if it was not measured.
    pub cost_ns_per_call: Option<u64>,
    /// Why there is no cost, or how it was measured.
    pub cost_note: String,
    /// What the method cannot see.
    pub blind_to: String,
}

/// The totals of a recording that was finished.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Number of events.
    pub events: u64,
    /// Time between the first and the last event, nanoseconds.
    pub span_ns: u64,
    /// What was lost.
    pub lost: Lost,
}

/// What a recording lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Events that the recorder was too slow for.
    pub overrun: u64,
    /// Calls that moved bytes through something that is not a channel, such as a file, or that is not identified.
    pub not_a_channel: u64,
    /// Lines or packets that could not be understood.
    pub not_understood: u64,
    /// Times at which the clock went backwards; the event got the time of the one before it.
    pub clock_backwards: u64,
}

impl Lost {
    /// What was lost, in words; `None` if that is nothing.
    pub fn sentence(&self) -> Option<String> {
        let parts: Vec<String> = [
            (self.overrun, "events for which the recorder was too slow"),
            (self.not_a_channel, "calls on files and other things that are no channels"),
            (self.not_understood, "lines or records that were not understood"),
            (self.clock_backwards, "times at which the clock went backwards"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
        (!parts.is_empty()).then(|| format!("not recorded: {}", parts.join(", ")))
    }
}

/// A process of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedProcess {
    /// Its number.
    pub pid: u32,
    /// Its name; `process N` if it is unknown or left out.
    pub name: String,
    /// Where it comes from, and what it has in common with others. Missing if nothing of that is known, as in imports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// The CPU time of a thread between the begin and the end of a recording, or of its own life in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadCpu {
    /// The thread: its index in the head's list.
    pub thread: u32,
    /// Its CPU time, nanoseconds.
    pub ns: u64,
}

/// A channel of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedChannel {
    /// What carried it, in the terms of the map, e.g. `unix-stream`.
    pub carrier: String,
    /// Its path or address; empty if it has none or it is left out.
    pub name: String,
    /// The processes at its first end (indices): who sends, if it has one direction.
    pub from: BTreeSet<u32>,
    /// The processes at its second end.
    pub to: BTreeSet<u32>,
}

impl Head {
    /// The CPU time of each process while it was recorded, nanoseconds: that of all its threads. `None` if that of one of
    /// them is not known.
    pub fn process_cpu_ns(&self) -> Vec<Option<u64>> {
        let times: HashMap<u32, u64> = self.cpu.iter().map(|cpu| (cpu.thread, cpu.ns)).collect();
        let mut sums = vec![Some(0); self.processes.len()];
        for (thread, process) in (0_u32..).zip(&self.threads) {
            if let Some(sum) = sums.get_mut(*process as usize) {
                *sum = sum.zip(times.get(&thread)).map(|(sum, ns)| sum + ns);
            }
        }
        sums
    }

    /// The head of a recording that begins: nothing is recorded yet, and the machine is unknown. `began_unix_ms` is in
    /// milliseconds since 1970 (UTC).
    pub fn new(written_by: &str, began_unix_ms: u64, method: Method) -> Head {
        Head {
            version: VERSION,
            written_by: written_by.to_owned(),
            began_unix_ms,
            kernel: None,
            cpus: None,
            anonymous: false,
            method,
            awake_from_ns: None,
            totals: None,
            processes: Vec::new(),
            threads: Vec::new(),
            cpu: Vec::new(),
            channels: Vec::new(),
        }
    }

    /// Leaves out what could identify a program, a user or a host: names, paths, addresses and process numbers.
    pub fn anonymise(&mut self) {
        self.anonymous = true;
        let (mut pids, mut others) = (Renumbered::default(), Renumbered::default());
        for process in &mut self.processes {
            process.pid = pids.add(process.pid.into()) as u32;
            process.name = format!("process {}", process.pid);
        }
        for origin in self.processes.iter_mut().filter_map(|process| process.origin.as_mut()) {
            origin.renumber(&mut pids, &mut others);
        }
        for channel in &mut self.channels {
            channel.name.clear();
        }
    }
}
