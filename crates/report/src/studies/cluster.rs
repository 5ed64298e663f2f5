//! Sun, Jin and Yin: TIPC against TCP on a cluster (items C1, C3 to C9 and C12 of the cluster study).

mod limits;
mod moves;
mod mpi;

use std::collections::BTreeMap;

use crossway_records::fit::{self, Point};
use crossway_records::inputs::{Ends, Workload};
use crossway_records::record::Record;
use crossway_records::stats::{Estimate, Interval, TRIALS_AT_LEAST, median, ratio_interval};

use super::call::{Call, above, all, any, enough, in_a_word, in_words, larger, mostly};
use super::evidence::{Compared, Evidence, one_way, place, rate};
use super::{Claim, Figure, Finding, Study, Verdict};
use crate::units::{Quantity, size, three_digits};

const PLAN: &str = "cluster";
const LINK_BITS_PER_S: u64 = 1_000_000_000;
/// The study measured exchanges of messages smaller than this many bytes.
const SMALL: u64 = 4096;

/// Returns all findings of the study.
pub(super) fn study(evidence: &Evidence<'_>) -> Study {
    Study {
        plan: PLAN,
        trials: evidence.planned_trials(),
        title: "Sun, Jin and Yin: TIPC and TCP on a cluster",
        setup: "Blades with two Xeon E5410 each, 1000Base-T, Kerrighed 3.0.0 on Linux 2.6.30; measured with iperf, and \
                with an exchange that connects, sends once, receives once and closes.",
        findings: vec![
            cost_model(evidence),
            buffers(evidence),
            exchange_between(evidence),
            packets_per_exchange(evidence),
            limits::one_receive(evidence),
            limits::one_call(evidence),
            limits::large_tcp(evidence),
            exchange_within(evidence),
            moves::transparency(evidence),
            mpi::over_tipc(evidence),
        ],
    }
}

fn exchange(record: &Record) -> bool {
    record.inputs.workload == Workload::Exchange
}

/// Judges the study's claim C1, about the cost of communication.
fn cost_model(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "C1",
        title: "Cost of communication",
        says: "Communication time is determined by a start-up time, the packet size and the bandwidth.",
        rule: "A straight line is fitted to the time of an exchange as a function of its size, for TCP and for TIPC. \
               Confirmed: no size's median deviates from its line by 25 % or more. Not confirmed: one does, and the \
               line lies outside that size's interval.",
    };
    let Some(pair) = evidence.pair(LINK_BITS_PER_S, Ends::Between, exchange) else {
        return claim.without_records(evidence.missing("exchanges of both TIPC and TCP", PLAN));
    };
    let mut figures = Vec::new();
    let mut worst: f64 = 0.0;
    let mut calls = Vec::new();
    for (who, records) in [("TCP", &pair.tcp), ("TIPC", &pair.tipc)] {
        let points: Vec<Point> = records
            .iter()
            .filter_map(|r| {
                let time_ns = 1e9 / r.throughput.filter(|t| t.msgs_per_s > 0.0)?.msgs_per_s;
                Some(Point { size_bytes: r.inputs.size_bytes as f64, time_ns })
            })
            .collect();
        let Some(fit) = fit::fit(&points) else {
            return claim.without_records(
                "fitting a line needs exchanges of at least three sizes".to_owned(),
            );
        };
        let estimate = |value: f64, interval: Option<Interval>| Estimate {
            value,
            low: interval.map_or(value, |i| i.low),
            high: interval.map_or(value, |i| i.high),
            n: fit.trials_per_size,
        };
        figures.push(Figure::new(
            format!("{who}: start-up"),
            Quantity::Duration,
            estimate(fit.startup_ns, fit.startup_interval_ns),
        ));
        let interval = fit.bandwidth_interval_bytes_per_s;
        let few = fit.trials_per_size < TRIALS_AT_LEAST;
        if let Some(bandwidth) = fit.bandwidth_bytes_per_s.filter(|_| few || interval.is_some()) {
            figures.push(Figure::new(
                format!("{who}: bandwidth beyond the start-up"),
                Quantity::ByteRate,
                estimate(bandwidth, interval),
            ));
        }
        // If a size deviates because its trials scatter, the line may still be right.
        let here: Vec<f64> = points
            .iter()
            .filter(|p| p.size_bytes == fit.worst_at_bytes)
            .map(|p| p.time_ns)
            .collect();
        let line = fit.startup_ns + fit.per_byte_ns * fit.worst_at_bytes;
        let scatters = Estimate::of(&here).is_some_and(|e| e.low <= line && line <= e.high);
        calls.push(match (fit.worst_relative_residual < 0.25, scatters) {
            _ if few => Call::Open(Some(TRIALS_AT_LEAST as u32)),
            (true, _) => Call::Holds,
            (false, true) => Call::Lacking,
            (false, false) => Call::Fails,
        });
        worst = worst.max(fit.worst_relative_residual);
    }
    let call = all(calls);
    let noise =
        if call == Call::Lacking { ", but its trials lie on both sides of the line" } else { "" };
    let why = format!(
        "the size farthest from its line deviates from it by {} %{noise}",
        three_digits(worst * 100.0)
    );
    claim.judged(pair.place, figures, call, why)
}

/// Throughputs of the trials with one message length, by size of the socket buffer.
type Curve = BTreeMap<u64, Vec<f64>>;

/// Judges the study's claim C3, about message length and socket buffer.
fn buffers(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "C3",
        title: "Message length L and socket buffer W",
        says: "TCP with iperf, L of 1 to 16 KiB, W from 2 KiB on: throughput rises with W, and jumps where W reaches \
               L. The peak is 937 of 1000 Mbit/s.",
        rule: "The rule applies to each message length L that was measured with W = L and with a smaller W. Confirmed: \
               for each, the interval of the ratio of the throughput at W = L to that at the next smaller W lies above \
               1.1, and the throughput at W = L reaches nine tenths of the plateau (the best with this L). Not \
               confirmed: for one L, one of the two is certainly false. W is the requested size; the kernel doubles \
               it, and the size that the kernel reports is shown as \"actual size\".",
    };
    let wanted = |r: &Record| one_way(r) && r.inputs.socket_buffer_bytes.is_some();
    let records = evidence.of("tcp", wanted);
    let Some(first) = records.first() else {
        return claim
            .without_records(evidence.missing("TCP trials with a set socket buffer size", PLAN));
    };
    let here: Vec<&Record> = records
        .iter()
        .filter(|r| r.inputs.testbed == first.inputs.testbed && r.host == first.host)
        .copied()
        .collect();
    let mut curves: BTreeMap<u64, Curve> = BTreeMap::new();
    let mut read_back: BTreeMap<u64, i64> = BTreeMap::new();
    for record in &here {
        if let (Some(w), Some(rate)) = (record.inputs.socket_buffer_bytes, rate(record)) {
            curves.entry(record.inputs.size_bytes).or_default().entry(w).or_default().push(rate);
            if let Some(bytes) = record.facts.get("so_sndbuf_bytes") {
                read_back.insert(w, *bytes);
            }
        }
    }
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    let mut told = Vec::new();
    let mut peak: Option<Estimate> = None;
    for (&length, curve) in &curves {
        let levels: Vec<(u64, Estimate)> =
            curve.iter().filter_map(|(w, rates)| Some((*w, Estimate::of(rates)?))).collect();
        let Some(plateau) =
            levels.iter().map(|(_, e)| *e).max_by(|a, b| a.value.total_cmp(&b.value))
        else {
            continue;
        };
        if peak.is_none_or(|p| plateau.value > p.value) {
            peak = Some(plateau);
        }
        // The smallest W from which on the throughput stays above nine tenths of the plateau.
        let below = levels.iter().rposition(|(_, e)| e.value < 0.9 * plateau.value);
        if let Some((w, at)) = levels.get(below.map_or(0, |at| at + 1)) {
            let read = read_back.get(w).and_then(|b| u64::try_from(*b).ok());
            figures.push(Figure::new(
                format!(
                    "L {}: throughput at W {}{}, buffer / message = {}; from this W on it stays above nine tenths of \
                     the plateau",
                    size(length),
                    size(*w),
                    read.map_or(String::new(), |b| format!(" (actual size {})", size(b))),
                    three_digits(*w as f64 / length as f64)
                ),
                Quantity::ByteRate,
                *at,
            ));
        }
        let (Some(at), Some((_, under))) = (curve.get(&length), curve.range(..length).next_back())
        else {
            continue;
        };
        let Some(interval) = ratio_interval(at, under, 0.95) else { continue };
        let (Some(m), Some(u)) = (median(at), median(under)) else { continue };
        let jump = Estimate {
            value: m / u,
            low: interval.low,
            high: interval.high,
            n: at.len().min(under.len()),
        };
        // The plateau is the best of several medians and so a little too high: the claim fails only if the throughput
        // is certainly below nine tenths of the plateau's lower end.
        let Some(here) = Estimate::of(at) else { continue };
        let reaches = if !enough(&here) || !enough(&plateau) {
            Call::open(&jump, &[])
        } else if m >= 0.9 * plateau.value {
            Call::Holds
        } else if here.high < 0.9 * plateau.low {
            Call::Fails
        } else {
            Call::Lacking
        };
        calls.push(all([above(&jump, 1.1), reaches]));
        told.push(format!(
            "L {}: the throughput at W = L is {} times that at the next smaller W, and {} % of the plateau",
            size(length),
            three_digits(jump.value),
            three_digits(m / plateau.value * 100.0)
        ));
    }
    if let (Some(peak), Some(spec)) = (peak, &first.inputs.testbed_spec)
        && let Some(rate) = spec.rate
    {
        let of_link = 8.0 / rate.bits_per_s as f64;
        let share = Estimate {
            value: peak.value * of_link,
            low: peak.low * of_link,
            high: peak.high * of_link,
            n: peak.n,
        };
        figures.push(Figure::new(
            "peak as a share of the link's rate (the study: 93.7 %)",
            Quantity::Share,
            share,
        ));
    }
    if calls.is_empty() {
        let why =
            "no message length was measured both with a socket buffer of the same size and with a smaller one"
                .to_owned();
        return claim.judged(place(first), figures, Verdict::NotMeasurable, why);
    }
    claim.judged(place(first), figures, all(calls), told.join("; "))
}

/// Compares the bandwidth of exchanges by size: payload divided by the time to connect, exchange and close.
fn by_size(evidence: &Evidence<'_>, ends: Ends) -> Option<(String, Vec<(u64, Compared)>)> {
    let small = |r: &Record| exchange(r) && r.inputs.size_bytes < SMALL;
    let pair = evidence.pair(LINK_BITS_PER_S, ends, small)?;
    let by_size = pair.by_size(|r| r.throughput.map(|t| t.msgs_per_s).filter(|m| *m > 0.0));
    (!by_size.is_empty()).then_some((pair.place, by_size))
}

fn exchange_figures(by_size: &[(u64, Compared)]) -> Vec<Figure> {
    let mut figures: Vec<Figure> = by_size
        .iter()
        .map(|(bytes, c)| {
            Figure::new(format!("TIPC / TCP, {}", size(*bytes)), Quantity::Number, c.ratio)
        })
        .collect();
    if let Some((bytes, c)) = by_size.first() {
        let what = |who: &str| format!("{who}, {}: exchanges of one message", size(*bytes));
        figures.push(Figure::new(what("TCP"), Quantity::MessageRate, c.tcp));
        figures.push(Figure::new(what("TIPC"), Quantity::MessageRate, c.tipc));
    }
    figures
}

/// Judges the study's claim C4, about exchanges between nodes.
fn exchange_between(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "C4",
        title: "Exchanges between nodes",
        says: "Each exchange connects, sends and receives once, and closes; messages are smaller than 4 KiB. TIPC's \
               bandwidth is at least 15 % higher than TCP's, and at best more than twice as high. Its lead is larger \
               for smaller messages.",
        rule: "The ratio of TIPC's exchanges per second to TCP's. Confirmed: its interval lies above 1.15 at each size \
               and above 2 at one, and the interval at the smallest size lies above that at the largest. Not \
               confirmed: it lies below 1.15 (or within 5 % of it) at one size, below 2 (or within 5 % of it) at all, \
               or the interval at the smallest size lies below that at the largest.",
    };
    let Some((place, by_size)) = by_size(evidence, Ends::Between) else {
        return claim.without_records(evidence.missing("exchanges of both TIPC and TCP", PLAN));
    };
    let wider: Vec<Call> = by_size.iter().map(|(_, c)| above(&c.ratio, 1.15)).collect();
    let twice: Vec<Call> = by_size.iter().map(|(_, c)| above(&c.ratio, 2.0)).collect();
    let best = any(&twice);
    let (first, last) = (&by_size[0], &by_size[by_size.len() - 1]);
    let falls = larger(&first.1.ratio, &last.1.ratio);
    let why = format!(
        "TIPC's bandwidth is at least 15 % higher: {}; at best more than twice: {}; lead larger for smaller messages: \
         {}",
        in_words(&wider, "at", "size", "sizes"),
        in_a_word(best),
        in_a_word(falls)
    );
    let figures = exchange_figures(&by_size);
    claim.judged(place, figures, all([mostly_or_all(&wider), best, falls]), why)
}

/// Requires every size to agree if there are fewer than 20; with more, one in twenty may contradict.
fn mostly_or_all(calls: &[Call]) -> Call {
    if calls.len() < 20 { all(calls.iter().copied()) } else { mostly(calls) }
}

/// Judges the study's claim C5, about the packets of an exchange.
fn packets_per_exchange(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "C5",
        title: "Packets of an exchange",
        says: "An exchange takes at least seven handshake packets with TCP and two with TIPC.",
        rule: "Packets that both hosts send per exchange, at the smallest size; two of them carry the messages. \
               Confirmed: TCP's interval lies at 9 or above (with a tolerance of 0.1), and TIPC's at 4.5 or below (4 \
               with a tolerance of 0.5). Not confirmed: one of them lies wholly on the other side.",
    };
    let Some(pair) = evidence.pair(LINK_BITS_PER_S, Ends::Between, exchange) else {
        return claim.without_records(evidence.missing("exchanges of both TIPC and TCP", PLAN));
    };
    let both =
        pair.by_size(|r| super::evidence::packets_each_way(r).map(|(there, back)| there + back));
    let Some((bytes, c)) = both.first() else {
        return claim.without_records("no packets were counted".to_owned());
    };
    let what = |who: &str| format!("{who}, {}: packets per exchange", size(*bytes));
    let figures = vec![
        Figure::new(what("TCP"), Quantity::Number, c.tcp),
        Figure::new(what("TIPC"), Quantity::Number, c.tipc),
    ];
    // The study's handshake packets and the two messages. Other packets (link supervision, neighbour discovery) are
    // counted, too.
    const TCP_LEAST: f64 = 7.0 + 2.0 - 0.1;
    const TIPC_MOST: f64 = 2.0 + 2.0 + 0.5;
    let tcp = match () {
        () if enough(&c.tcp) && c.tcp.low >= TCP_LEAST => Call::Holds,
        () if enough(&c.tcp) && c.tcp.high < TCP_LEAST => Call::Fails,
        () => Call::open(&c.tcp, &[TCP_LEAST]),
    };
    let tipc = match () {
        () if enough(&c.tipc) && c.tipc.high <= TIPC_MOST => Call::Holds,
        () if enough(&c.tipc) && c.tipc.low > TIPC_MOST => Call::Fails,
        () => Call::open(&c.tipc, &[TIPC_MOST]),
    };
    let why = format!(
        "TCP takes {} packets, TIPC {}, including the two that carry the messages",
        three_digits(c.tcp.value),
        three_digits(c.tipc.value)
    );
    claim.judged(pair.place, figures, all([tcp, tipc]), why)
}

/// Judges the study's claim C8, about exchanges within a node.
fn exchange_within(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "C8",
        title: "Exchanges within a node",
        says: "With the same exchange within one node, TIPC's bandwidth is more than twice TCP's.",
        rule: "The ratio of TIPC's exchanges per second to TCP's. Confirmed: its interval lies above 2 at each size. \
               Not confirmed: it lies below 2, or within 5 % of it, at one size.",
    };
    let Some((place, by_size)) = by_size(evidence, Ends::Within) else {
        return claim.without_records(
            evidence.missing("exchanges of both TIPC and TCP within a host", PLAN),
        );
    };
    let calls: Vec<Call> = by_size.iter().map(|(_, c)| above(&c.ratio, 2.0)).collect();
    let ratios: Vec<f64> = by_size.iter().map(|(_, c)| c.ratio.value).collect();
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let high = ratios.iter().copied().fold(0.0, f64::max);
    let why = format!(
        "TIPC makes {} to {} times as many exchanges per second as TCP; more than twice as many: {}",
        three_digits(low),
        three_digits(high),
        in_words(&calls, "at", "size", "sizes")
    );
    claim.judged(place, exchange_figures(&by_size), mostly_or_all(&calls), why)
}
