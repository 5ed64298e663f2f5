//! The evidence in a run that bears on a study: trials of TCP and of TIPC at the same place, and how they compare.

use crossway_records::cases;
use crossway_records::inputs::{Ends, Workload};
use crossway_records::record::Record;
use crossway_records::sorting::SortSmall;
use crossway_records::stats::{Estimate, median, ratio_interval};

use crate::run::Run;
use crate::steps::Shapes;

/// The TIPC mechanisms; if both have equally many trials, the first is preferred. The studies used TIPC's SOCK_STREAM,
/// because it corresponds to TCP (item T1 of the Toshiba study). The mechanism over the user-space node serves runs in
/// which no kernel has TIPC.
const TIPC: [&str; 2] = [TIPC_IN_KERNEL, "tipc-node-stream"];
pub(super) const TIPC_IN_KERNEL: &str = "tipc-kernel-stream";
const TCP: &str = "tcp";

/// The data that findings are judged by.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// The run.
    pub run: &'a Run,
    /// The steps found in the run's series.
    pub shapes: &'a Shapes,
}

/// The trials of both protocols at one place.
#[derive(Debug)]
pub(super) struct Pair<'a> {
    /// The place, described for people.
    pub(super) place: String,
    /// Id of the TIPC mechanism.
    pub(super) tipc_id: &'a str,
    pub(super) tcp: Vec<&'a Record>,
    pub(super) tipc: Vec<&'a Record>,
}

/// TIPC compared with TCP by one figure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compared {
    pub(super) tcp: Estimate,
    pub(super) tipc: Estimate,
    /// Ratio of TIPC's median to TCP's, with the 95 % bootstrap interval and the number of trials of the protocol with
    /// fewer.
    pub(super) ratio: Estimate,
}

impl<'a> Evidence<'a> {
    /// Returns the trials of a mechanism that satisfy `wanted` and whose figures count.
    pub(super) fn of(&self, mechanism: &str, wanted: impl Fn(&Record) -> bool) -> Vec<&'a Record> {
        let all = self.run.records.iter();
        let cases = cases::group(all.filter(|r| r.mechanism == mechanism && wanted(r)));
        cases.iter().flat_map(cases::Case::good).collect()
    }

    /// Returns the maximum number of trials per case in the run's plan.
    pub(super) fn planned_trials(&self) -> u32 {
        self.run.records.iter().map(|r| r.inputs.trials).max().unwrap_or(0)
    }

    /// Returns the trials of both protocols that satisfy `wanted`, at one place. If there are several places with
    /// trials of both, one whose link has the study's rate is preferred, then the one with the most trials of TIPC.
    pub(super) fn pair(
        &self,
        study_bits_per_s: u64,
        ends: Ends,
        wanted: impl Fn(&Record) -> bool,
    ) -> Option<Pair<'a>> {
        let wanted = |r: &Record| r.inputs.testbed.is_some() && r.inputs.ends == ends && wanted(r);
        let mut pairs: Vec<(bool, Pair<'a>)> = Vec::new();
        for tipc_id in TIPC {
            let tipc = self.of(tipc_id, wanted);
            let tcp = self.of(TCP, wanted);
            let mut places: Vec<(&Option<String>, &str)> =
                tipc.iter().map(|r| (&r.inputs.testbed, r.host.as_str())).collect();
            places.sort_unstable();
            places.dedup();
            for (testbed, host) in places {
                let here = |all: &[&'a Record]| -> Vec<&'a Record> {
                    let there = |r: &&&Record| r.inputs.testbed == *testbed && r.host == host;
                    all.iter().filter(there).copied().collect()
                };
                let (tcp, tipc) = (here(&tcp), here(&tipc));
                let Some(first) = tipc.first().filter(|_| !tcp.is_empty()) else { continue };
                let rate = first.inputs.testbed_spec.as_ref().and_then(|t| t.rate);
                let as_study = rate.is_some_and(|rate| rate.bits_per_s == study_bits_per_s);
                pairs.push((as_study, Pair { place: place(first), tipc_id, tcp, tipc }));
            }
        }
        pairs.sort_small_by_key(|(as_study, p)| (!as_study, std::cmp::Reverse(p.tipc.len())));
        pairs.into_iter().map(|(_, pair)| pair).next()
    }

    /// Explains why there is no pair of trials, and which remedy or command would provide it.
    pub(super) fn missing(&self, what: &str, plan: &str) -> String {
        let told = self
            .run
            .summary
            .troubles
            .iter()
            // Enea's study does not use TIPC.
            .filter(|t| plan != super::enea::PLAN && TIPC.contains(&t.mechanism.as_str()))
            .max_by_key(|t| t.trials);
        match told {
            Some(trouble) => format!(
                "this run has no {what} ({}: {}{})",
                trouble.mechanism,
                trouble.reason,
                trouble.remedy.as_ref().map_or(String::new(), |r| format!("; remedy: {r}"))
            ),
            None => format!("this run has no {what}; `crossway measure {plan}` measures them"),
        }
    }
}

impl<'a> Pair<'a> {
    /// Returns whether the link between the ends is shaped to a rate.
    pub(super) fn is_shaped(&self) -> bool {
        let spec = |r: &&Record| r.inputs.testbed_spec.as_ref().is_some_and(|t| t.rate.is_some());
        self.tipc.iter().any(spec)
    }

    /// If a host's counters were not read in some trial, returns a remark that [`load`] is then the CPU time of the
    /// roles alone; otherwise an empty text.
    pub(super) fn uncounted(&self) -> &'static str {
        let counted = |r: &&Record| {
            r.roles.iter().all(|role| r.host_cpu.iter().any(|host| host.host == role.host))
        };
        if self.tcp.iter().chain(&self.tipc).all(counted) {
            return "";
        }
        "; the counters of a host were not read in every trial: without them, the CPU time is that of the process \
         alone, which leaves out soft interrupts"
    }

    /// Returns the sizes at which both protocols have trials, in ascending order.
    pub(super) fn sizes(&self) -> Vec<u64> {
        let of = |records: &[&Record]| {
            let mut sizes: Vec<u64> = records.iter().map(|r| r.inputs.size_bytes).collect();
            sizes.sort_unstable();
            sizes.dedup();
            sizes
        };
        let tcp = of(&self.tcp);
        of(&self.tipc).into_iter().filter(|s| tcp.contains(s)).collect()
    }

    /// Compares both protocols at one size; `None` if either has no such figure.
    pub(super) fn at(
        &self,
        size: u64,
        figure: impl Fn(&Record) -> Option<f64>,
    ) -> Option<Compared> {
        let of = |records: &[&Record]| -> Vec<f64> {
            let here = records.iter().filter(|r| r.inputs.size_bytes == size);
            here.filter_map(|r| figure(r)).collect()
        };
        compared(&of(&self.tcp), &of(&self.tipc))
    }

    /// Compares both protocols at every size at which both have the figure.
    pub(super) fn by_size(&self, figure: impl Fn(&Record) -> Option<f64>) -> Vec<(u64, Compared)> {
        self.sizes().into_iter().filter_map(|s| Some((s, self.at(s, &figure)?))).collect()
    }
}

fn compared(tcp: &[f64], tipc: &[f64]) -> Option<Compared> {
    Some(Compared { tcp: Estimate::of(tcp)?, tipc: Estimate::of(tipc)?, ratio: ratio(tipc, tcp)? })
}

/// Returns the ratio of two medians, with its interval.
pub(super) fn ratio(over: &[f64], under: &[f64]) -> Option<Estimate> {
    let interval = ratio_interval(over, under, 0.95)?;
    Some(Estimate {
        value: median(over)? / median(under)?,
        low: interval.low,
        high: interval.high,
        n: over.len().min(under.len()),
    })
}

/// Returns the inverse of a ratio.
pub(super) fn inverse(ratio: &Estimate) -> Estimate {
    Estimate { value: 1.0 / ratio.value, low: 1.0 / ratio.high, high: 1.0 / ratio.low, n: ratio.n }
}

/// Describes the place where a trial ran.
pub(super) fn place(record: &Record) -> String {
    let Some(spec) = &record.inputs.testbed_spec else { return "this machine".to_owned() };
    let rate = spec.rate.map_or("unshaped".to_owned(), |rate| rate.to_string());
    let where_ends = match record.inputs.ends {
        Ends::Between => record.host.clone(),
        Ends::Within => format!("within {}", record.host),
    };
    let kernel = record.hosts.first().map_or(String::new(), |h| format!(", Linux {}", h.kernel));
    format!(
        "{} ({}, {rate}, MTU {}), {where_ends}{kernel}",
        spec.name,
        spec.kind.name(),
        spec.mtu_bytes
    )
}

/// Returns the payload bytes per second of a trial.
pub(super) fn rate(record: &Record) -> Option<f64> {
    record.throughput.map(|t| t.bytes_per_s).filter(|b| *b > 0.0)
}

/// Returns the busy share of the CPUs of a role's host, including soft interrupts (item T9 of the Toshiba study). If
/// the host's counters were not read, it is the role's own CPU time over the wall time, which leaves out the kernel's
/// protocol work in soft interrupts. `None` if the share is too small to be measured.
pub(super) fn load(record: &Record, role: &str) -> Option<f64> {
    let wall = record.throughput.map(|t| t.wall_ns as f64).filter(|w| *w > 0.0)?;
    let meters = record.roles.iter().find(|r| r.role == role || r.role.starts_with(role))?;
    let share = match record.host_cpu.iter().find(|h| h.host == meters.host) {
        Some(host) => {
            let span = host.span_ns.map_or(wall, |ns| ns as f64).max(1.0);
            host.busy_ns as f64 / (span * f64::from(host.cpus.max(1)))
        }
        None => (meters.user_ns + meters.system_ns) as f64 / wall,
    };
    // A value near zero is below the resolution of the CPU clock; a ratio with it would be noise.
    (share > 1e-4).then_some(share)
}

/// Returns the packets per message sent by the host of the sender or client, and by the other host, without loopback;
/// `None` if both roles are on one host, or no packets or messages were counted.
pub(super) fn packets_each_way(record: &Record) -> Option<(f64, f64)> {
    let messages = record.counts.map(|c| c.received as f64).filter(|n| *n > 0.0)?;
    let (first, last) = (record.roles.first()?, record.roles.last()?);
    let sent = |host: &str| -> f64 {
        let wires = record.net.iter().filter(|i| i.host == host && i.name != "lo");
        wires.map(|i| i.tx_packets as f64).sum()
    };
    if first.host == last.host {
        return None;
    }
    let (there, back) = (sent(&first.host), sent(&last.host));
    (there > 0.0).then_some((there / messages, back / messages))
}

/// Returns the payload bytes per byte that the sender's host put on the wire, Ethernet headers included.
pub(super) fn efficiency(record: &Record) -> Option<f64> {
    let payload = record.counts.map(|c| c.bytes as f64).filter(|b| *b > 0.0)?;
    let host = &record.roles.first()?.host;
    let wires = record.net.iter().filter(|i| i.host == *host && i.name != "lo");
    let sent: f64 = wires.map(|i| i.tx_bytes as f64).sum();
    (sent > 0.0).then_some(payload / sent)
}

/// Returns whether this is a one-way trial.
pub(super) fn one_way(record: &Record) -> bool {
    record.inputs.workload == Workload::Throughput
}
