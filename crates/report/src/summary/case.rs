//! A case: all trials with the same inputs, each figure with its interval over trials.

use std::collections::BTreeMap;

use crossway_records::awake::sleeps_per_msg;
use crossway_records::cases::{counts, good};
use crossway_records::figure::Figure;
use crossway_records::inputs::Workload;
use crossway_records::limits::bound::Readings;
use crossway_records::rank::WaitClass;
use crossway_records::record::{IfaceMeters, LOCAL, Latency, Record, Span};
use crossway_records::regimes::Regimes;
use crossway_records::stats::Estimate;

use super::{BesideSummary, Group};
use crate::wire::Wire;

/// Percentiles of a latency over the trials of a case, nanoseconds.
#[derive(Clone, Debug)]
pub struct LatencySummary {
    /// The span that is timed, such as a round trip.
    pub span: Span,
    /// Number of samples in all trials together.
    pub samples: u64,
    /// Smallest sample of all trials.
    pub min: u64,
    /// Median of each trial; the estimate is over the trials.
    pub p50: Estimate,
    /// 90th percentile of each trial; the estimate is over the trials.
    pub p90: Estimate,
    /// 99th percentile; `None` unless every trial has it.
    pub p99: Option<Estimate>,
    /// 99.9th percentile; `None` unless every trial has it.
    pub p999: Option<Estimate>,
    /// 99.99th percentile; `None` unless every trial has it.
    pub p9999: Option<Estimate>,
    /// Largest sample of all trials.
    pub max: u64,
    /// Histogram files, relative to the run directory.
    pub histograms: Vec<String>,
    /// Percentiles of all trials' samples together, where a single trial has too few for its 99th or 99.9th percentile;
    /// see [`Summary::pool`](super::Summary::pool).
    pub pooled: Option<Pooled>,
}

/// Percentiles of the samples of all trials of a case, each trial with the same weight. They have no interval, because
/// the variation between trials is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooled {
    /// Number of samples in all trials together.
    pub n: u64,
    /// 99th percentile, nanoseconds; `None` where fewer than ten samples lie beyond it.
    pub p99: Option<u64>,
    /// 99.9th percentile, nanoseconds; `None` where fewer than ten samples lie beyond it.
    pub p999: Option<u64>,
}

impl LatencySummary {
    fn of(span: Span, trials: &[&Latency]) -> Option<Self> {
        let estimate = |get: &dyn Fn(&Latency) -> Option<u64>| {
            let values: Option<Vec<f64>> =
                trials.iter().map(|l| get(l).map(|v| v as f64)).collect();
            values.and_then(|v| Estimate::of(&v))
        };
        Some(LatencySummary {
            span,
            samples: trials.iter().map(|l| l.n).sum(),
            min: trials.iter().map(|l| l.min).min()?,
            p50: estimate(&|l| Some(l.p50))?,
            p90: estimate(&|l| Some(l.p90))?,
            p99: estimate(&|l| l.p99),
            p999: estimate(&|l| l.p999),
            p9999: estimate(&|l| l.p9999),
            max: trials.iter().map(|l| l.max).max()?,
            histograms: trials.iter().filter_map(|l| l.histogram.clone()).collect(),
            pooled: None,
        })
    }
}

/// CPU use of the roles of one kind, as a share of one CPU.
#[derive(Clone, Debug)]
pub struct RoleShare {
    /// Kind of role: `sender`, `receiver`, `client` or `server`.
    pub role: String,
    /// CPU time over wall time; 1 is one CPU.
    pub share: Estimate,
}

/// Packets and bytes on one interface that carried a case, relative to its messages and their payload.
#[derive(Clone, Debug)]
pub struct Packets {
    /// Name of the interface.
    pub interface: String,
    /// Packets sent per message.
    pub tx_per_msg: Estimate,
    /// Packets received per message.
    pub rx_per_msg: Estimate,
    /// Bytes on the interface per byte of payload.
    pub bytes_per_payload_byte: Estimate,
}

/// How well a paced stream kept its pace, over the trials.
#[derive(Clone, Debug)]
pub struct PacingSummary {
    /// Rate requested by the plan, messages per second; a request with its reply is one message.
    pub intended_msgs_per_s: f64,
    /// Median delay with which the sender began its bursts, nanoseconds; it is included in the one-way latency.
    pub lateness_p50_ns: Option<Estimate>,
    /// Largest delay of a burst in any trial, nanoseconds.
    pub lateness_max_ns: Option<u64>,
    /// Share of the bursts of all trials that count together that began late.
    pub late_share: f64,
    /// Rate achieved over rate requested.
    pub reached_share: Estimate,
    /// Number of the trials that missed the rate.
    pub missed_trials: usize,
}

/// How evenly several roles shared the throughput, over the trials.
#[derive(Clone, Debug)]
pub struct FairnessSummary {
    /// Jain's fairness index: from 1/n, if one of n roles got everything, to 1, if all got the same.
    pub jain: Estimate,
    /// The index of the least fair trial.
    pub least_jain: f64,
    /// Mean share of each role in the throughput, from 0 to 1.
    pub shares: Vec<f64>,
    /// Longest wait of any role in any trial, nanoseconds.
    pub longest_wait_ns: u64,
    /// Lower bound on the number of the senders' wake-ups that found nothing to do, per message.
    pub wasted_wakeups_per_msg: Option<Estimate>,
}

/// All trials with the same inputs.
#[derive(Clone, Debug)]
pub struct Case {
    /// Index into [`Summary::contenders`](super::Summary::contenders).
    pub contender: usize,
    /// Index into [`Summary::settings`](super::Summary::settings).
    pub setting: usize,
    /// The workload.
    pub workload: Workload,
    /// Message size, bytes.
    pub size_bytes: u64,
    /// The case's name in the records; `crossway rerun` repeats a case by this name.
    pub name: String,
    /// The wait class within which the case is ranked.
    pub class: WaitClass,
    /// The two groups into which the trials fall, far apart; `None` if they do not. Such a case is shown, but has no
    /// figure that could be ranked.
    pub regimes: Option<Regimes>,
    /// Whether no trials count: all are disturbed, or the median one missed its rate. Such a case is shown and marked,
    /// but never ranked.
    pub degraded: bool,
    /// Messages per second.
    pub msgs_per_s: Option<Estimate>,
    /// Payload bytes per second.
    pub bytes_per_s: Option<Estimate>,
    /// Latencies, one per span.
    pub latencies: Vec<LatencySummary>,
    /// CPU-nanoseconds of all roles per message.
    pub cpu_ns_per_msg: Option<Estimate>,
    /// Why the last trial has no CPU time, if no trial has one.
    pub no_cpu_time: Option<String>,
    /// Payload bits per CPU-second.
    pub bits_per_cpu_s: Option<Estimate>,
    /// CPU share by kind of role.
    pub role_shares: Vec<RoleShare>,
    /// Voluntary context switches of all roles per message.
    pub switches_per_msg: Option<Estimate>,
    /// Packets per message, by interface.
    pub packets: Vec<Packets>,
    /// Load of the hosts and packets on the wire.
    pub wire: Wire,
    /// How well the pace was kept; paced streams only.
    pub pacing: Option<PacingSummary>,
    /// How evenly the roles shared the throughput; workloads with several senders or receivers only.
    pub fairness: Option<FairnessSummary>,
    /// Figures of the background workloads, in the order of the setting's list.
    pub beside: Vec<BesideSummary>,
    /// Whether the cores of the case's roles changed during the run or differ from those of competing cases, judged by
    /// the cache-line round trip. If so, the rank of the case may be due to the machine.
    pub cores_moved: bool,
    /// Readings between the trials of the loops that bound the case's figures.
    pub readings: Readings,
    /// Logical CPU of each role in the last trial.
    pub cpus: Vec<u32>,
    /// Values read back from the system in the last trial, by name.
    pub facts: BTreeMap<String, i64>,
}

impl Case {
    /// Returns the latency of a span, if it was timed.
    pub fn latency(&self, span: Span) -> Option<&LatencySummary> {
        self.latencies.iter().find(|l| l.span == span)
    }
}

/// The trials from which the figures of a case come: those that count. A case without such trials is degraded; its
/// figures come from the trials below its rate or, if there are none, from the disturbed ones.
pub(super) fn used<'a>(trials: &[&'a Record]) -> Vec<&'a Record> {
    let undisturbed = || trials.iter().copied().filter(|r| counts(r)).collect();
    [good(trials), undisturbed()]
        .into_iter()
        .find(|used| !used.is_empty())
        .unwrap_or(trials.to_vec())
}

pub(super) fn case(group: &Group<'_>) -> Case {
    let trials = &group.case.records;
    let inputs = &trials[0].inputs;
    let used = used(trials);
    let over = |get: &dyn Fn(&Record) -> Option<f64>| {
        let values: Vec<f64> = used.iter().filter_map(|r| get(r)).collect();
        Estimate::of(&values)
    };
    let figure = |figure: Figure| over(&|r| figure.of(r));
    let messages = |r: &Record| r.counts.map(|c| c.received as f64).filter(|n| *n > 0.0);

    let mut spans: Vec<Span> = Vec::new();
    for latency in used.iter().flat_map(|r| &r.latency_ns) {
        if !spans.contains(&latency.span) {
            spans.push(latency.span);
        }
    }
    let latencies = spans
        .into_iter()
        .filter_map(|span| {
            let trials: Vec<&Latency> =
                used.iter().flat_map(|r| r.latency_ns.iter().filter(|l| l.span == span)).collect();
            LatencySummary::of(span, &trials)
        })
        .collect();

    let last = used.last();
    let interfaces: Vec<(&str, &str)> = last
        .map(|r| r.net.iter().map(|i| (i.host.as_str(), i.name.as_str())).collect())
        .unwrap_or_default();
    let packets = interfaces
        .into_iter()
        .filter_map(|(host, name)| {
            let is_it = |i: &&IfaceMeters| i.name == name && i.host == host;
            let per_msg = |get: &dyn Fn(&IfaceMeters) -> u64| {
                over(&|r| {
                    let iface = r.net.iter().find(is_it)?;
                    Some(get(iface) as f64 / messages(r)?)
                })
            };
            Some(Packets {
                interface: match host {
                    LOCAL => name.to_owned(),
                    host => format!("{host}/{name}"),
                },
                tx_per_msg: per_msg(&|i| i.tx_packets)?,
                rx_per_msg: per_msg(&|i| i.rx_packets)?,
                bytes_per_payload_byte: over(&|r| {
                    let iface = r.net.iter().find(is_it)?;
                    let bytes = r.counts.map(|c| c.bytes as f64).filter(|b| *b > 0.0)?;
                    Some(iface.tx_bytes as f64 / bytes)
                })?,
            })
        })
        .collect();

    let fairness = last.and_then(|r| r.fairness.as_ref()).and_then(|f| {
        let n = f.shares.len();
        let with: Vec<_> = used
            .iter()
            .filter_map(|r| r.fairness.as_ref())
            .filter(|f| f.shares.len() == n)
            .collect();
        Some(FairnessSummary {
            jain: over(&|r| r.fairness.as_ref().map(|f| f.jain))?,
            least_jain: with.iter().map(|f| f.jain).fold(1.0, f64::min),
            shares: (0..n)
                .map(|i| with.iter().map(|f| f.shares[i]).sum::<f64>() / with.len() as f64)
                .collect(),
            longest_wait_ns: with.iter().map(|f| f.longest_wait_ns).max()?,
            wasted_wakeups_per_msg: over(&|r| r.fairness.as_ref()?.wasted_wakeups_per_msg),
        })
    });
    let pacing = last.and_then(|r| Some((r, r.pacing?))).and_then(|(r, p)| {
        Some(PacingSummary {
            intended_msgs_per_s: p.intended_msgs_per_s(r.inputs.arriving_bytes()),
            lateness_p50_ns: over(&|r| r.pacing?.lateness_ns.map(|l| l.p50 as f64)),
            lateness_max_ns: used.iter().filter_map(|r| r.pacing?.lateness_ns.map(|l| l.max)).max(),
            late_share: late_share(&used)?,
            reached_share: over(&|r| {
                r.pacing.filter(|p| p.intended_bits_per_s > 0.0).map(|p| p.reached_share())
            })?,
            missed_trials: used.iter().filter(|r| r.pacing.is_some_and(|p| p.missed())).count(),
        })
    });

    Case {
        contender: group.contender,
        setting: group.setting,
        workload: inputs.workload,
        size_bytes: inputs.size_bytes,
        name: trials[0].case.clone(),
        class: WaitClass::of_trials(&used).unwrap_or(WaitClass::of(&inputs.wait)),
        regimes: group.case.regimes(),
        degraded: group.case.trials() == 0,
        msgs_per_s: figure(Figure::MessageRate),
        bytes_per_s: figure(Figure::ByteRate),
        latencies,
        cpu_ns_per_msg: figure(Figure::cpu(inputs.workload.facts().measure)),
        no_cpu_time: last
            .filter(|_| used.iter().all(|r| r.cost.is_none()))
            .and_then(|r| r.nulls.get("cost").cloned()),
        bits_per_cpu_s: over(&|r| r.cost.map(|c| c.bits_per_cpu_s)),
        role_shares: role_shares(&used),
        switches_per_msg: over(&sleeps_per_msg),
        packets,
        wire: Wire::of(&used),
        pacing,
        fairness,
        beside: BesideSummary::all(&used),
        cores_moved: false,
        readings: Readings::of(&used),
        cpus: last.map(|r| r.inputs.cpus.clone()).unwrap_or_default(),
        facts: last.map(|r| r.facts.clone()).unwrap_or_default(),
    }
}

/// Returns the share of late bursts in all bursts of the trials. The median of the trials' own shares would hide the
/// late bursts of a minority of trials.
fn late_share(used: &[&Record]) -> Option<f64> {
    let (late, all) = used
        .iter()
        .filter_map(|r| r.pacing)
        .fold((0, 0), |(late, all), p| (late + p.late_bursts, all + p.bursts));
    (all > 0).then(|| late as f64 / all as f64)
}

fn role_shares(used: &[&Record]) -> Vec<RoleShare> {
    // `sender-0`, `sender-1` ... are one kind of role; their CPU time is summed.
    let kind = |role: &str| role.split('-').next().unwrap_or(role).to_owned();
    let mut by_kind: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    // A record without a CPU cost had too coarse a CPU clock for this figure.
    for record in used.iter().filter(|r| r.cost.is_some()) {
        let Some(wall) = record.throughput.map(|t| t.wall_ns as f64).filter(|w| *w > 0.0) else {
            continue;
        };
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for role in &record.roles {
            *sums.entry(kind(&role.role)).or_insert(0) += role.user_ns + role.system_ns;
        }
        if let Some(cpu_ns) = record.servers.iter().map(|s| s.cpu_ns).sum::<Option<u64>>()
            && !record.servers.is_empty()
        {
            sums.insert("tipcd".to_owned(), cpu_ns);
        }
        for (role, cpu_ns) in sums {
            by_kind.entry(role).or_default().push(cpu_ns as f64 / wall);
        }
    }
    by_kind
        .into_iter()
        .filter_map(|(role, shares)| Some(RoleShare { role, share: Estimate::of(&shares)? }))
        .collect()
}
