//! The evidence in a run that bears on a study: trials of TCP and of TIPC at the same place, and how they compare.

use crossway_lab::inputs::{Ends, Workload};
use crossway_lab::record::{Record, Status};
use crossway_lab::stats::{Interval, TRIALS_AT_LEAST, median, ratio_interval};

use crate::estimate::Estimate;
use crate::run::Run;
use crate::steps::Shapes;

/// The studies used TIPC's SOCK_STREAM, because it corresponds to TCP (T1). The user-space node is used if no kernel has TIPC.
const TIPC: [&str; 2] = ["tipc-kernel-stream", "tipc-node-stream"];
const TCP: &str = "tcp";
/// "Equal" means a ratio within this factor in either direction: about what curves that coincide in a printed figure allow.
const EQUAL_FACTOR: f64 = 1.25;
/// Maximum number of trials per case that is still practical.
const TRIALS_AT_MOST: f64 = 2000.0;
/// A relative difference below this is negligible.
const NEGLIGIBLE_FACTOR: f64 = 1.05;

/// The data that findings are judged by.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// The run.
    pub run: &'a Run,
    /// The steps found in the run's series.
    pub shapes: &'a Shapes,
}

/// Trials of both protocols at one place.
#[derive(Debug)]
pub(super) struct Pair<'a> {
    /// The place, in words.
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
    /// TIPC over TCP: ratio of the medians, 95 % bootstrap interval, number of trials of the side with fewer.
    pub(super) ratio: Estimate,
}

/// What an interval says about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// The claim holds.
    Holds,
    /// The claim does not hold.
    Fails,
    /// The trials do not decide it. Holds the number of trials per case that would, estimated from how fast intervals narrow; `None` if it cannot be estimated.
    Open(Option<u32>),
}

impl Call {
    /// An open call, because the interval contains one of `bounds`, the edges of the claim. An interval narrows with the square root of the
    /// number of trials, so the distance of the median from the nearest bound within the interval determines how many are needed.
    pub(super) fn open(figure: &Estimate, bounds: &[f64]) -> Call {
        if !enough(figure) {
            return Call::Open(Some(TRIALS_AT_LEAST as u32));
        }
        let needed =
            bounds.iter().filter(|b| figure.low <= **b && **b <= figure.high).map(|bound| {
                let reach = if *bound < figure.value {
                    figure.value - figure.low
                } else {
                    figure.high - figure.value
                };
                let distance = (figure.value - bound).abs();
                figure.n as f64 * (reach / distance).powi(2)
            });
        Call::open_until(needed.fold(0.0f64, f64::max), figure.n)
    }

    /// An open call with `n` trials that `needed` would decide: suggests at least one more trial than there are, and nothing
    /// beyond thousands, which is no practical advice.
    fn open_until(needed: f64, n: usize) -> Call {
        let decides = (1.0..=TRIALS_AT_MOST).contains(&needed);
        Call::Open(decides.then(|| (needed.ceil() as u32).max(n as u32 + 1)))
    }
}

impl<'a> Evidence<'a> {
    /// Trials of this mechanism that count and satisfy `wanted`.
    pub(super) fn of(&self, mechanism: &str, wanted: impl Fn(&Record) -> bool) -> Vec<&'a Record> {
        let all = self.run.records.iter();
        all.filter(|r| r.status == Status::Ok && r.mechanism == mechanism && wanted(r)).collect()
    }

    /// Maximum number of trials per case in the run's plan.
    pub(super) fn planned_trials(&self) -> u32 {
        self.run.records.iter().map(|r| r.inputs.trials).max().unwrap_or(0)
    }

    /// A place at which both protocols have trials that satisfy `wanted`. Of several, the one whose link has the study's rate comes first, then
    /// the one with the most trials.
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
        pairs.sort_by_key(|(as_study, p)| (!as_study, std::cmp::Reverse(p.tipc.len())));
        pairs.into_iter().map(|(_, pair)| pair).next()
    }

    /// Why there is no pair of trials, and which command would measure it.
    pub(super) fn missing(&self, what: &str, plan: &str) -> String {
        let told = self
            .run
            .summary
            .troubles
            .iter()
            .filter(|t| TIPC.contains(&t.mechanism.as_str()))
            .max_by_key(|t| t.trials);
        match told {
            Some(trouble) => format!(
                "{} has no {what} here: {}{}",
                trouble.mechanism,
                trouble.reason,
                trouble.remedy.as_ref().map_or(String::new(), |r| format!(" (remedy: {r})"))
            ),
            None => format!("this run has no {what}; `crossway measure {plan}` measures them"),
        }
    }
}

impl<'a> Pair<'a> {
    /// The sizes that both protocols have, ascending.
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

    /// Compares both protocols at every size that has the figure.
    pub(super) fn by_size(&self, figure: impl Fn(&Record) -> Option<f64>) -> Vec<(u64, Compared)> {
        self.sizes().into_iter().filter_map(|s| Some((s, self.at(s, &figure)?))).collect()
    }
}

fn compared(tcp: &[f64], tipc: &[f64]) -> Option<Compared> {
    Some(Compared { tcp: Estimate::of(tcp)?, tipc: Estimate::of(tipc)?, ratio: ratio(tipc, tcp)? })
}

/// The ratio of two medians, with its interval.
pub(super) fn ratio(over: &[f64], under: &[f64]) -> Option<Estimate> {
    let interval = ratio_interval(over, under, 0.95)?;
    Some(Estimate {
        value: median(over)? / median(under)?,
        low: interval.low,
        high: interval.high,
        n: over.len().min(under.len()),
    })
}

/// The inverse of a ratio.
pub(super) fn inverse(ratio: &Estimate) -> Estimate {
    Estimate { value: 1.0 / ratio.value, low: 1.0 / ratio.high, high: 1.0 / ratio.low, n: ratio.n }
}

/// The place where a trial ran, in words.
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

/// Whether there are enough trials for a meaningful interval.
pub(super) fn enough(figure: &Estimate) -> bool {
    figure.n >= TRIALS_AT_LEAST
}

/// Claim: the ratio is above `bound`. It fails if the whole interval is below the bound, or so close above it that the difference is negligible.
pub(super) fn above(ratio: &Estimate, bound: f64) -> Call {
    if !enough(ratio) {
        Call::open(ratio, &[])
    } else if ratio.low > bound {
        Call::Holds
    } else if ratio.high <= bound
        || (ratio.low >= bound / NEGLIGIBLE_FACTOR && ratio.high <= bound * NEGLIGIBLE_FACTOR)
    {
        Call::Fails
    } else {
        Call::open(ratio, &[bound])
    }
}

/// Claim: the first of two independent figures is the larger one.
pub(super) fn larger(a: &Estimate, b: &Estimate) -> Call {
    if !enough(a) || !enough(b) {
        Call::Open(Some(TRIALS_AT_LEAST as u32))
    } else if a.low > b.high {
        Call::Holds
    } else if a.high < b.low {
        Call::Fails
    } else {
        // The two intervals must shrink until the halves that face each other no longer meet.
        let (above, below) = if a.value > b.value { (a, b) } else { (b, a) };
        let reach = (above.value - above.low) + (below.high - below.value);
        let n = a.n.min(b.n);
        Call::open_until(n as f64 * (reach / (above.value - below.value)).powi(2), n)
    }
}

/// One claim that needs to hold in one case only.
pub(super) fn any(calls: &[Call]) -> Call {
    if calls.contains(&Call::Holds) {
        return Call::Holds;
    }
    let open =
        calls.iter().filter_map(|c| if let Call::Open(needed) = c { Some(*needed) } else { None });
    match open.reduce(|a, b| match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }) {
        Some(needed) => Call::Open(needed),
        None => Call::Fails,
    }
}

/// Claim: the two are equal, within a quarter.
pub(super) fn equal(ratio: &Estimate) -> Call {
    let bounds = Interval { low: 1.0 / EQUAL_FACTOR, high: EQUAL_FACTOR };
    if !enough(ratio) {
        Call::open(ratio, &[])
    } else if bounds.contains(ratio.low) && bounds.contains(ratio.high) {
        Call::Holds
    } else if ratio.low > bounds.high || ratio.high < bounds.low {
        Call::Fails
    } else {
        Call::open(ratio, &[bounds.low, bounds.high])
    }
}

/// Combines several claims: fails with the first that fails, holds if all hold.
pub(super) fn all(calls: impl IntoIterator<Item = Call>) -> Call {
    let mut whole = Call::Holds;
    for call in calls {
        match call {
            Call::Fails => return Call::Fails,
            Call::Open(needed) => whole = more_of(whole, needed),
            Call::Holds => {}
        }
    }
    whole
}

/// Combines two open calls: both need the larger number of trials; if one is unknown, so is the result.
fn more_of(call: Call, needed: Option<u32>) -> Call {
    match call {
        Call::Open(before) => Call::Open(before.zip(needed).map(|(a, b)| a.max(b))),
        _ => Call::Open(needed),
    }
}

/// One claim at many sizes: at most one in twenty of the decided sizes may contradict it (a 95 % interval errs that often).
pub(super) fn mostly(calls: &[Call]) -> Call {
    let count = |wanted: Call| calls.iter().filter(|c| **c == wanted).count();
    let (holds, fails) = (count(Call::Holds), count(Call::Fails));
    // The median of what the open sizes need would decide half of them, which is enough.
    let mut needed: Vec<u32> = calls
        .iter()
        .filter_map(|c| if let Call::Open(needed) = c { *needed } else { None })
        .collect();
    needed.sort_unstable();
    let open = Call::Open(needed.get(needed.len() / 2).copied());
    if holds == 0 && fails == 0 {
        open
    } else if fails * 20 <= holds + fails {
        // The undecided sizes must not be the majority.
        if holds * 2 >= calls.len() { Call::Holds } else { open }
    } else {
        Call::Fails
    }
}

// ---- figures of a trial ----

/// Payload bytes per second.
pub(super) fn rate(record: &Record) -> Option<f64> {
    record.throughput.map(|t| t.bytes_per_s).filter(|b| *b > 0.0)
}

/// Busy share of the CPUs of a role's host, soft interrupts included (T9), if the host's counters were read; else the
/// role's own CPU time over the wall time, which leaves out the kernel's protocol work in soft interrupts.
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

/// Packets per message sent by the host of the sender (or client), and by the other host; without loopback if there are two hosts.
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

/// Payload bytes per byte that the sender's host put on the wire, Ethernet headers included.
pub(super) fn efficiency(record: &Record) -> Option<f64> {
    let payload = record.counts.map(|c| c.bytes as f64).filter(|b| *b > 0.0)?;
    let host = &record.roles.first()?.host;
    let wires = record.net.iter().filter(|i| i.host == *host && i.name != "lo");
    let sent: f64 = wires.map(|i| i.tx_bytes as f64).sum();
    (sent > 0.0).then_some(payload / sent)
}

/// Whether it is a one-way trial.
pub(super) fn one_way(record: &Record) -> bool {
    record.inputs.workload == Workload::Throughput
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(value: f64, low: f64, high: f64, n: usize) -> Estimate {
        Estimate { value, low, high, n }
    }

    #[test]
    fn what_is_open_says_how_many_trials_would_decide() {
        // The interval reaches down by 0.4 and must reach less than 0.2: half the width needs four times the trials.
        let call = above(&ratio(1.2, 0.8, 1.6, 5), 1.0);
        assert_eq!(call, Call::Open(Some(20)));
        assert_eq!(above(&ratio(1.2, 0.8, 1.6, 4), 1.0), Call::Open(Some(5)));
        // If the median lies on the bound itself, no number of trials decides.
        assert_eq!(above(&ratio(1.0, 0.5, 1.5, 5), 1.0), Call::Open(None));
        assert_eq!(all([call, Call::Open(Some(7)), Call::Holds]), Call::Open(Some(20)));
        assert_eq!(all([call, Call::Open(None)]), Call::Open(None));
        assert_eq!(mostly(&[call, Call::Open(None)]), Call::Open(Some(20)));
        // Intervals that reach 0.4 towards each other and are 0.2 apart.
        assert_eq!(
            larger(&ratio(1.2, 1.0, 1.4, 5), &ratio(1.0, 0.8, 1.2, 9)),
            Call::Open(Some(20))
        );
        assert_eq!(
            larger(&ratio(1.0, 0.8, 1.2, 9), &ratio(1.2, 1.0, 1.4, 5)),
            Call::Open(Some(20))
        );
        assert_eq!(larger(&ratio(1.2, 1.1, 1.4, 5), &ratio(1.0, 0.9, 1.05, 5)), Call::Holds);
        assert_eq!(
            larger(&ratio(1.2, 1.1, 1.4, 3), &ratio(1.0, 0.9, 1.05, 5)),
            Call::Open(Some(5))
        );
        assert_eq!(any(&[call, Call::Open(Some(7)), Call::Fails]), Call::Open(Some(7)));
        assert_eq!(any(&[Call::Open(None), Call::Fails]), Call::Open(None));
        assert_eq!(any(&[Call::Fails, Call::Holds, call]), Call::Holds);
        assert_eq!(any(&[Call::Fails]), Call::Fails);
    }
}
