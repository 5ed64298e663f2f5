//! What advice takes from a record.

use std::ops::Deref;

use crossway_mech::{Caps, Wait};
use serde::Deserialize;

use super::question::Percentile;
use crossway_lab::other_work::OtherWork;
use crossway_records::awake;
use crossway_records::cases::{self, wait_name};
use crossway_records::compare::durations::Planned;
use crossway_records::figure::Figure;
use crossway_records::inputs::Workload;
use crossway_records::record::{Record, Status};
use crossway_records::records_io::{self, Identity};

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

/// A trial, as advice sees it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Trial {
    pub(super) record: Record,
    /// Whether the trial is from a survey for another question.
    #[serde(skip)]
    pub(super) of_other_question: bool,
}

impl Deref for Trial {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.record
    }
}

impl Trial {
    /// A trial that was measured for this question.
    pub fn of(record: &Record) -> Trial {
        Trial { record: record.clone(), of_other_question: false }
    }

    /// Whether the trial counts: nothing disturbed it. One that only missed its rate counts: its
    /// figures show by how much.
    pub(super) fn counts(&self) -> bool {
        cases::counts(&self.record)
    }

    /// Whether the trial has status `ok` but no counts, which means that its record is damaged.
    pub(super) fn lacks_counts(&self) -> bool {
        self.status == Status::Ok && self.record.counts.is_none()
    }

    /// What identifies the trial.
    pub(super) fn identity(&self) -> Identity {
        records_io::identity(&self.record)
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
        let value = figure.at_most(&self.record)?;
        let ns = if figure.more_is_better() { 1e9 / value } else { value };
        ns.is_finite().then_some(ns)
    }

    /// How long the trial would have to be to have enough samples for the percentile, milliseconds, at the rate of its
    /// samples; `None` for a trial with a fixed number of messages, or without samples.
    pub(super) fn ms_needed(&self, percentile: Percentile) -> Option<f64> {
        let (i, needed) = (&self.inputs, percentile.samples_needed() as f64);
        let fewest = self.record.latency_ns.iter().map(|l| l.n).min().filter(|n| *n > 0)?;
        i.messages.is_none().then(|| i.measure_ms as f64 * needed / fewest as f64)
    }

    /// Number of timed messages; `None` if none was timed.
    pub(super) fn samples(&self) -> Option<u64> {
        self.record.latency_ns.iter().map(|l| l.n).max()
    }

    /// Whether the trial has too few samples for the percentile, so that its maximum is used instead.
    pub fn lacks(&self, percentile: Percentile) -> bool {
        self.record.latency_ns.iter().any(|l| percentile.of(l).is_none())
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
        Some(self.both_ways_bytes()? * self.channels(caps))
    }

    /// The total size of one channel's buffers in bytes, both directions together; `None` if none
    /// is known.
    fn both_ways_bytes(&self) -> Option<f64> {
        let fact = |name: &str| self.facts.get(name).copied();
        let messages = fact("queue_messages").zip(fact("max_message_bytes"));
        let one_way: Vec<i64> = [
            "so_sndbuf_bytes",
            "so_rcvbuf_bytes",
            "pipe_bytes",
            "pool_bytes",
            "ring_bytes",
            "queue_bytes",
        ]
        .into_iter()
        .map(fact)
        .chain([messages.map(|(n, bytes)| n * bytes)])
        .flatten()
        .collect();
        (!one_way.is_empty()).then(|| 2.0 * one_way.iter().sum::<i64>() as f64)
    }

    /// The number by which the buffers of one channel between two processes are multiplied: usually the number of
    /// channels. If several senders can share the receiver's end, that end is counted once.
    fn channels(&self, caps: &Caps) -> f64 {
        match self.inputs.workload {
            Workload::FanIn { senders, .. } if caps.fan_in => {
                match self.facts.get("so_rcvbuf_bytes") {
                    // Each process has a socket.
                    Some(_) => (f64::from(senders) + 1.0) / 2.0,
                    // All have the same queue.
                    None => 1.0,
                }
            }
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
        match self.inputs.wait {
            Wait::Spin => true,
            Wait::Block => awake::is_busy(&[&self.record]),
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
