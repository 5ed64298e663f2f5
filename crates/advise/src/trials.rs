//! The part of a record that advice needs.

mod buffers;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use buffers::Buffers;
use crossway_mech::{Access, Caps, Wait};
use serde::Deserialize;

use super::question::Percentile;
use crossway_lab::other_work::OtherWork;
use crossway_records::awake::hardly_slept;
use crossway_records::cases::{Circumstances, steal_share, wait_name};
use crossway_records::compare::durations::Planned;
use crossway_records::figure::{Figure, Measured};
use crossway_records::inputs::{Beside, Ends, Load, Placement, Workload};
use crossway_records::limits::cores_moved;
use crossway_records::record::{
    Cost, HostMeters, Latency, Pacing, Record, Status, Throughput, one_or_several,
};
use crossway_records::records_io::Identity;
use crossway_records::testbed::Testbed;

/// The inputs that determine whether a trial answers a question, how long it lasts, and its number.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TrialInputs {
    /// The testbed's name.
    #[serde(default)]
    pub testbed: Option<String>,
    /// The testbed's definition.
    #[serde(default)]
    pub testbed_spec: Option<Testbed>,
    /// Which hosts of the testbed the roles are on.
    #[serde(default)]
    pub ends: Ends,
    /// The workload.
    pub workload: Workload,
    /// Message size in bytes.
    pub size_bytes: u64,
    /// Reply size in bytes; `None` if it equals the message size.
    #[serde(default)]
    pub reply_bytes: Option<u64>,
    /// How the ends waited.
    pub wait: Wait,
    /// Whether messages were copied or written in place.
    pub access: Access,
    /// Placement of the roles.
    pub placement: Placement,
    /// Background load.
    pub load: Load,
    /// Concurrent workloads.
    #[serde(default)]
    pub beside: Vec<Beside>,
    /// Requested socket buffer in bytes.
    pub socket_buffer_bytes: Option<u64>,
    /// Requested capacity in bytes.
    pub capacity_bytes: Option<u64>,
    /// Fixed number of messages; `None` if the trial lasts for a fixed time.
    #[serde(default)]
    pub messages: Option<u64>,
    /// Duration of the warm-up.
    pub warmup_ms: u64,
    /// Duration of the measured part.
    pub measure_ms: u64,
    /// Number of the trial in its case.
    pub trial: u32,
}

/// The part of a survey that a trial belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurveyPart {
    /// A stage after which candidates are dropped.
    Early,
    /// The stages that the last candidates go through.
    Last,
    /// Any stage of a survey for another question, in which candidates were dropped for other reasons.
    OfOther,
}

/// The name of a group in the plans of a survey. It contains the part (if the trials are for the choice), how the
/// candidates wait, and the message size in bytes.
pub(super) fn survey_group(part: Option<SurveyPart>, wait: Wait, size_bytes: u64) -> String {
    let prefix = match part {
        Some(SurveyPart::Early) => "early-",
        Some(SurveyPart::Last) => "last-",
        Some(SurveyPart::OfOther) | None => "",
    };
    format!("{prefix}{}-{size_bytes}", wait_name(&wait))
}

/// The pacing of a concurrent workload.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
struct PaceBeside {
    pacing: Option<Pacing>,
}

/// The part of a role's meters that advice uses.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
struct Role {
    user_ns: u64,
    system_ns: u64,
    switches_voluntary: u64,
}

/// The part of a server's meters that advice uses.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
struct Server {
    cpu_ns: Option<u64>,
}

/// The cache-line round trips around the trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
struct CacheLines {
    cache_line_before_ns: Option<f64>,
    cache_line_after_ns: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
struct Received {
    received: u64,
}

/// The part of a trial that advice uses.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Trial {
    /// The run's name.
    pub run: String,
    /// The plan's group.
    pub group: String,
    /// The readable id of the trial's case.
    pub case: String,
    /// The mechanism's id.
    pub mechanism: String,
    /// The inputs.
    pub inputs: TrialInputs,
    /// Status of the trial.
    pub status: Status,
    /// Why the status is not `ok`; `None` if it is.
    pub reason: Option<String>,
    latency_ns: Vec<Latency>,
    throughput: Option<Throughput>,
    pacing: Option<Pacing>,
    cost: Option<Cost>,
    #[serde(default)]
    facts: Buffers,
    counts: Option<Received>,
    roles: Vec<Role>,
    #[serde(default)]
    nulls: BTreeMap<String, String>,
    #[serde(default)]
    servers: Vec<Server>,
    #[serde(default, deserialize_with = "one_or_several")]
    host_cpu: Vec<HostMeters>,
    #[serde(default)]
    beside: Vec<PaceBeside>,
    #[serde(default)]
    calibration: CacheLines,
    /// Whether the trial is from a survey for another question.
    #[serde(skip)]
    pub(super) of_other_question: bool,
}

impl<'a> From<&'a Trial> for Measured<'a> {
    fn from(trial: &'a Trial) -> Self {
        Measured {
            workload: trial.inputs.workload,
            latency_ns: &trial.latency_ns,
            throughput: trial.throughput,
            cost: trial.cost,
        }
    }
}

impl Trial {
    /// Extracts the trial from a complete record.
    pub fn of(record: &Record) -> Trial {
        let i = &record.inputs;
        Trial {
            run: record.run.clone(),
            group: record.group.clone(),
            case: record.case.clone(),
            mechanism: record.mechanism.clone(),
            inputs: TrialInputs {
                testbed: i.testbed.clone(),
                testbed_spec: i.testbed_spec.clone(),
                ends: i.ends,
                workload: i.workload,
                size_bytes: i.size_bytes,
                reply_bytes: i.reply_bytes,
                wait: i.wait,
                access: i.access,
                placement: i.placement,
                load: i.load,
                beside: i.beside.clone(),
                socket_buffer_bytes: i.socket_buffer_bytes,
                capacity_bytes: i.capacity_bytes,
                messages: i.messages,
                warmup_ms: i.warmup_ms,
                measure_ms: i.measure_ms,
                trial: i.trial,
            },
            status: record.status,
            reason: record.reason.clone(),
            latency_ns: record.latency_ns.clone(),
            throughput: record.throughput,
            pacing: record.pacing,
            beside: record.beside.iter().map(|b| PaceBeside { pacing: b.pacing }).collect(),
            facts: Buffers::of(&record.facts),
            cost: record.cost,
            counts: record.counts.map(|c| Received { received: c.received }),
            roles: record
                .roles
                .iter()
                .map(|r| Role {
                    user_ns: r.user_ns,
                    system_ns: r.system_ns,
                    switches_voluntary: r.switches_voluntary,
                })
                .collect(),
            nulls: record.nulls.clone(),
            servers: record.servers.iter().map(|s| Server { cpu_ns: s.cpu_ns }).collect(),
            host_cpu: record.host_cpu.clone(),
            calibration: CacheLines {
                cache_line_before_ns: record.calibration.cache_line_before_ns,
                cache_line_after_ns: record.calibration.cache_line_after_ns,
            },
            of_other_question: false,
        }
    }

    /// Whether the trial counts, by the rule of [`crossway_records::cases::counts`]: nothing disturbed it. One that only
    /// missed its rate counts: its figures show by how much.
    pub(super) fn counts(&self) -> bool {
        let CacheLines { cache_line_before_ns, cache_line_after_ns } = self.calibration;
        let lines = cache_line_before_ns.zip(cache_line_after_ns);
        let stolen = self.throughput.and_then(|t| steal_share(&self.host_cpu, t.wall_ns));
        let circumstances = Circumstances {
            missed_rate: self.pacing.is_some_and(|p| p.missed()),
            beside_missed_rate: self.beside.iter().any(|b| b.pacing.is_some_and(|p| p.missed())),
            cores_moved: lines.is_some_and(|(before, after)| cores_moved(before, after)),
            stolen: stolen.is_some(),
        };
        self.status == Status::Ok || circumstances.only_missed_rate(self.status)
    }

    /// Whether the trial has status `ok` but no counts, which means that its record is damaged.
    pub(super) fn lacks_counts(&self) -> bool {
        self.status == Status::Ok && self.counts.is_none()
    }

    /// What identifies the trial, as in [`crossway_records::records_io`].
    pub(super) fn identity(&self) -> Identity {
        (self.run.clone(), self.group.clone(), self.case.clone(), self.inputs.trial)
    }

    /// The part of a survey that the trial belongs to. `None` if the trial is not from a survey, measured a variation,
    /// or is from a survey of an earlier version.
    pub(super) fn survey_part(&self) -> Option<SurveyPart> {
        let i = &self.inputs;
        let of = |part: &SurveyPart| self.group == survey_group(Some(*part), i.wait, i.size_bytes);
        let part = [SurveyPart::Early, SurveyPart::Last].into_iter().find(of);
        part.map(|part| if self.of_other_question { SurveyPart::OfOther } else { part })
    }

    /// How long the trial was planned to last.
    pub(super) fn planned(&self) -> Planned {
        let i = &self.inputs;
        (i.warmup_ms, i.messages.is_none().then_some(i.measure_ms))
    }

    /// Latency at a percentile in nanoseconds: of a round trip, of one way (from the intended send time), or of a whole
    /// exchange (the sum of the percentiles of its parts). If the trial has too few samples for the percentile, this is
    /// the maximum, which is never smaller than the percentile. `None` if the latency was not measured.
    pub fn latency_ns(&self, percentile: Percentile) -> Option<f64> {
        self.cost_ns(Figure::latency(self.inputs.workload.facts().measure, percentile)?)
    }

    /// What a message costs by this figure, nanoseconds: the figure itself or, of a rate, the time
    /// per message. If the trial has too few samples for a percentile, this is the maximum. `None`
    /// if the trial does not have the figure.
    pub fn cost_ns(&self, figure: Figure) -> Option<f64> {
        let value = figure.at_most(self)?;
        let ns = if figure.more_is_better() { 1e9 / value } else { value };
        ns.is_finite().then_some(ns)
    }

    /// How long the trial would have to be to have enough samples for the percentile, milliseconds, at the rate of its
    /// samples; `None` for a trial with a fixed number of messages, or without samples.
    pub(super) fn ms_needed(&self, percentile: Percentile) -> Option<f64> {
        let (i, needed) = (&self.inputs, percentile.samples_needed() as f64);
        let fewest = self.latency_ns.iter().map(|l| l.n).min().filter(|n| *n > 0)?;
        i.messages.is_none().then(|| i.measure_ms as f64 * needed / fewest as f64)
    }

    /// Number of timed messages; `None` if none was timed.
    pub(super) fn samples(&self) -> Option<u64> {
        self.latency_ns.iter().map(|l| l.n).max()
    }

    /// Whether the trial has too few samples for the percentile, so that its maximum is used instead.
    pub fn lacks(&self, percentile: Percentile) -> bool {
        self.latency_ns.iter().any(|l| percentile.of(l).is_none())
    }

    /// Why the trial does not have the figure, as its record states; `None` if the record does not
    /// say.
    pub(super) fn why_none(&self, figure: Figure) -> Option<&str> {
        self.nulls.get(figure.field()).map(String::as_str)
    }

    /// Fraction of the offered rate that was achieved; `None` if no rate was offered.
    pub fn share_of_rate(&self) -> Option<f64> {
        self.pacing.map(|p| p.reached_share())
    }

    /// Maximum size of the buffers in bytes, both directions of all pairs of processes together, as reported by the
    /// system when the channels were opened; `None` if the system reports nothing. `caps` are the mechanism's
    /// capabilities.
    pub fn buffer_bytes(&self, caps: &Caps) -> Option<f64> {
        Some(self.facts.both_ways()? * self.channels(caps))
    }

    /// The number by which the buffers of one channel between two processes are multiplied: usually the number of
    /// channels. If several senders can share the receiver's end, that end is counted once.
    fn channels(&self, caps: &Caps) -> f64 {
        match self.inputs.workload {
            Workload::FanIn { senders, .. } if caps.fan_in => match self.facts.so_rcvbuf_bytes {
                // Each process has a socket.
                Some(_) => (f64::from(senders) + 1.0) / 2.0,
                // All have the same queue.
                None => 1.0,
            },
            Workload::FanIn { senders, .. } => f64::from(senders),
            Workload::FanOut { receivers: peers, .. }
            | Workload::Clients { clients: peers, .. } => f64::from(peers),
            _ => 1.0,
        }
    }

    /// Number of processes at the ends of the channel.
    pub fn ends(&self) -> usize {
        self.roles.len()
    }

    /// Whether the ends spun, or hardly ever slept although they may block: each then uses all the CPU time that it
    /// gets.
    pub fn kept_awake(&self) -> bool {
        let received = self.counts.map_or(0, |counts| counts.received) as f64;
        let switches: u64 = self.roles.iter().map(|role| role.switches_voluntary).sum();
        match self.inputs.wait {
            Wait::Spin => true,
            Wait::Block if self.roles.is_empty() || received == 0.0 => false,
            Wait::Block => hardly_slept(self.inputs.workload, switches as f64 / received),
            Wait::Hybrid { .. } => false,
        }
    }

    /// CPU time that neither the ends nor their servers used; `None` if it is unknown, or if the case has a background
    /// load or concurrent workloads.
    pub fn other_work(&self) -> Option<OtherWork> {
        let is_measured = matches!(self.status, Status::Ok | Status::Degraded);
        if !is_measured || !self.inputs.load.is_idle() || !self.inputs.beside.is_empty() {
            return None;
        }
        let roles_ns = self.roles.iter().map(|role| role.user_ns + role.system_ns).sum();
        let servers_ns = self.servers.iter().map(|server| server.cpu_ns).sum();
        OtherWork::of(&self.host_cpu, roles_ns, servers_ns)
    }

    /// Whether the channel needs a process other than the two ends.
    pub fn has_server(&self) -> bool {
        !self.servers.is_empty()
    }
}
