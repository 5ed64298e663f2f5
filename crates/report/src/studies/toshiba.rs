//! Toshiba 2011: TIPC against TCP between two embedded SoCs (items T3 to T8, T14 and T15).

mod packets;

use crossway_records::inputs::{Ends, Workload};
use crossway_records::record::Record;

use super::call::{Call, above, all, at_all_sizes, enough, equal, few_sizes, in_words, mostly};
use super::evidence::{Compared, Evidence, Pair, efficiency, inverse, load, one_way, rate};
use super::{Claim, Figure, Finding, Study, Verdict};
use crate::units::{Quantity, count, size, three_digits};

const PLAN: &str = "toshiba";
const LINK_BITS_PER_S: u64 = 100_000_000;
/// Minimum number of decided sizes from which the report concludes that there is no crossover.
const SWEEP_SIZES: usize = 8;
/// For this conclusion, the largest of the decided sizes must also be at least this many times the smallest.
const SWEEP_FACTOR: u64 = 16;

/// Returns all findings of the study.
pub(super) fn study(evidence: &Evidence<'_>) -> Study {
    let mut findings = vec![
        crossover(evidence),
        cpu_load(evidence),
        packets::step(evidence),
        packets::coalescing(evidence),
        packets::acknowledgements(evidence),
        latency(evidence),
        streaming(evidence),
    ];
    findings.push(conclusions(&findings));
    findings.push(headers(evidence));
    Study {
        plan: PLAN,
        trials: evidence.planned_trials(),
        title: "Toshiba, 2011: TIPC and TCP between two embedded systems",
        setup: "Two boards with a MIPS 24K at 533 MHz each, 100 Mbit/s Ethernet, Linux 2.6.20.19, TIPC 1.7.7-rc1, \
                SOCK_STREAM.",
        findings,
    }
}

fn pair<'a>(evidence: &Evidence<'a>, wanted: impl Fn(&Record) -> bool) -> Option<Pair<'a>> {
    evidence.pair(LINK_BITS_PER_S, Ends::Between, wanted)
}

/// Returns whether a trial belongs to the study's sweep of sizes, which are multiples of 512 bytes.
fn of_sweep(record: &Record) -> bool {
    one_way(record) && record.inputs.size_bytes.is_multiple_of(512)
}

/// Returns figures of both protocols at the smallest, a middle and the largest size.
fn spread(by_size: &[(u64, Compared)], quantity: Quantity, what: &str) -> Vec<Figure> {
    let mut at = vec![0, by_size.len() / 2, by_size.len().saturating_sub(1)];
    at.dedup();
    at.into_iter()
        .filter_map(|at| by_size.get(at))
        .flat_map(|(bytes, c)| {
            [
                Figure::new(format!("TCP, {}: {what}", size(*bytes)), quantity, c.tcp),
                Figure::new(format!("TIPC, {}: {what}", size(*bytes)), quantity, c.tipc),
            ]
        })
        .collect()
}

/// Judges one part of the study's claim T3: throughput.
fn crossover(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "T3",
        title: "Throughput by message size",
        says: "One way, 512 to 40,448 bytes: above a certain size TIPC is faster than TCP, below it TCP is faster.",
        rule: "At each size, the ratio of TIPC's throughput to TCP's has an interval above 1 (TIPC leads), below 1 \
               (TCP leads), or containing 1 (undecided). Confirmed: there is a size below which TCP leads at some \
               sizes and above which TIPC leads at some, and at most one in twenty of the decided sizes contradict. \
               Not confirmed: there is no such size, although at least eight sizes are decided and the largest of them \
               is at least 16 times the smallest. Undecided: fewer than a quarter of the sizes are decided, or the \
               decided ones cannot show that there is no such size.",
    };
    let Some(pair) = pair(evidence, of_sweep) else {
        return claim.without_records(
            evidence.missing("one-way trials of both TIPC and TCP at multiples of 512 bytes", PLAN),
        );
    };
    let by_size = pair.by_size(rate);
    let signs: Vec<(u64, i32)> = by_size
        .iter()
        .filter(|(_, c)| enough(&c.ratio))
        .map(|(bytes, c)| (*bytes, i32::from(c.ratio.low > 1.0) - i32::from(c.ratio.high < 1.0)))
        .filter(|(_, sign)| *sign != 0)
        .collect();
    let mut figures = spread(&by_size, Quantity::ByteRate, "throughput");
    let ahead = signs.iter().filter(|(_, sign)| *sign > 0).count();
    let behind = signs.len() - ahead;
    if signs.len() * 4 < by_size.len() {
        let why = format!(
            "the trials do not show whether TIPC or TCP is faster at {} of {}",
            by_size.len() - signs.len(),
            count(by_size.len(), "size", "sizes")
        );
        return claim.judged(pair.place, figures, Verdict::Undecided, why);
    }
    // The size from which on TIPC leads, with the fewest exceptions.
    let wrong =
        |from: u64| signs.iter().filter(|(bytes, sign)| (*bytes >= from) != (*sign > 0)).count();
    let best = signs.iter().map(|(bytes, _)| *bytes).min_by_key(|bytes| wrong(*bytes));
    let parted = best.filter(|from| {
        let right = |sign: i32, above: bool| {
            signs.iter().any(|(bytes, s)| *s == sign && (*bytes >= *from) == above)
        };
        wrong(*from) * 20 <= signs.len() && right(1, true) && right(-1, false)
    });
    let counts = format!(
        "TIPC leads at {ahead} of {}, TCP at {behind}, and {} undecided",
        count(by_size.len(), "size", "sizes"),
        count(by_size.len() - signs.len(), "is", "are")
    );
    if let Some((bytes, c)) = best.and_then(|from| by_size.iter().find(|(bytes, _)| *bytes == from))
    {
        figures.push(Figure::new(
            format!("TIPC / TCP at {}", size(*bytes)),
            Quantity::Number,
            c.ratio,
        ));
    }
    // The crossover may lie beyond the sizes that were measured.
    let reach = signs.iter().map(|(bytes, _)| *bytes);
    let covers = signs.len() >= SWEEP_SIZES
        && reach.clone().max() >= reach.min().map(|least| least * SWEEP_FACTOR);
    match parted {
        None if !covers => claim.judged(
            pair.place,
            figures,
            Verdict::Undecided,
            format!(
                "{counts}. This is too little to conclude that there is no size above which TIPC leads: that takes at \
                 least {SWEEP_SIZES} decided sizes, the largest at least {SWEEP_FACTOR} times the smallest; `crossway \
                 measure {PLAN}` measures 512 B to 39.5 KiB"
            ),
        ),
        Some(from) => claim.judged(
            pair.place,
            figures,
            Verdict::Confirmed,
            format!("TIPC leads from {} on: {counts}", size(from)),
        ),
        None => claim.judged(
            pair.place,
            figures,
            Verdict::NotConfirmed,
            format!("there is no size above which TIPC leads and below which TCP does: {counts}"),
        ),
    }
}

/// Judges one part of the study's claim T3: CPU load.
fn cpu_load(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "T3 CPU",
        title: "CPU load at full speed",
        says: "TIPC's CPU load is lower than TCP's on the sending and on the receiving side.",
        rule: "CPU time of the host per payload byte, soft interrupts included (of the process alone if the host's \
               counters were not read), at sizes from 8 KiB on. Confirmed: on \
               both sides, the interval of the ratio of TIPC's to TCP's lies below 1 at all but at most one in twenty \
               of the decided sizes. Not confirmed: on one side, it lies above 1 or within 5 % of it at more of them. \
               Undecided: fewer than half of the sizes are decided, unless three contradict.",
    };
    let Some(pair) = pair(evidence, |r| of_sweep(r) && r.inputs.size_bytes >= 8192) else {
        return claim.without_records(
            evidence.missing(
                "one-way trials of both TIPC and TCP with messages of 8 KiB or more",
                PLAN,
            ),
        );
    };
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    let mut told = Vec::new();
    for role in ["sender", "receiver"] {
        // Per byte, because the faster protocol does more work in the same time.
        let by_size = pair.by_size(|r| Some(load(r, role)? / rate(r)? * 1e9));
        // The claim is TIPC < TCP, so the inverse ratio is above 1.
        let of: Vec<Call> = by_size.iter().map(|(_, c)| above(&inverse(&c.ratio), 1.0)).collect();
        calls.push(mostly(&of));
        told.push(format!("at the {role}: {}", in_words(&of, "at", "size", "sizes")));
        if let Some((bytes, c)) = by_size.get(by_size.len() / 2) {
            let what = |who: &str| format!("{who}, {role}, {}: CPU per payload byte", size(*bytes));
            figures.push(Figure::new(what("TCP"), Quantity::Duration, c.tcp));
            figures.push(Figure::new(what("TIPC"), Quantity::Duration, c.tipc));
        }
    }
    let why = format!("TIPC's CPU time per byte is lower than TCP's {}", told.join("; "))
        + pair.uncounted();
    claim.judged(pair.place, figures, all(calls), why)
}

/// Judges the study's claim T7, about latency.
fn latency(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "T7",
        title: "Latency",
        says: "Ping-pong: the round trips of TCP and TIPC are nearly equal at all sizes.",
        rule: "The ratio of TIPC's median round trip to TCP's. Confirmed: its interval lies within 0.8 to 1.25 at all \
               but at most one in twenty of the decided sizes. Not confirmed: it lies wholly outside at more of them. \
               Undecided: fewer than half of the sizes are decided, unless three contradict.",
    };
    let Some(pair) = pair(evidence, |r| r.inputs.workload == Workload::PingPong) else {
        return claim
            .without_records(evidence.missing("ping-pong trials of both TIPC and TCP", PLAN));
    };
    let by_size = pair.by_size(|r| crossway_records::figure::Figure::ROUND_TRIP.of(r));
    let calls: Vec<Call> = by_size.iter().map(|(_, c)| equal(&c.ratio)).collect();
    let mut figures = spread(&by_size, Quantity::Duration, "round trip p50");
    let worst = by_size.iter().max_by(|a, b| {
        let far = |c: &Compared| c.ratio.value.ln().abs();
        far(&a.1).total_cmp(&far(&b.1))
    });
    let call = at_all_sizes(mostly(&calls), &calls);
    let mut why = format!(
        "the round trips are equal within 25 %: {}",
        in_words(&calls, "at", "size", "sizes")
    );
    if let Some((bytes, c)) = worst {
        figures.push(Figure::new(
            format!("TIPC / TCP, {} (farthest apart)", size(*bytes)),
            Quantity::Number,
            c.ratio,
        ));
        why.push_str(&format!(
            "; they are farthest apart at {}, where TIPC takes {} times as long as TCP",
            size(*bytes),
            three_digits(c.ratio.value)
        ));
    }
    why.push_str(&few_sizes(call, by_size.len(), PLAN));
    if pair.is_shaped() {
        why.push_str(
            ". The link's rate is limited by a token bucket, which does not delay frames within its burst. A real link \
             of this rate would add transmission time to both round trips, and so bring their ratio closer to 1",
        );
    }
    claim.judged(pair.place, figures, call, why)
}

/// Judges the study's claim T8, about the CPU load of a steady stream.
fn streaming(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "T8",
        title: "CPU load of a steady stream",
        says: "256 KiB every 80 ms (26.2 Mbit/s): the sender's CPU is busy 9.16 % with TCP and 5.18 % with TIPC, the \
               receiver's 19.25 % and 10.25 %.",
        rule: "Busy share of each host's CPUs, soft interrupts included (the process's CPU time alone if the host's \
               counters were not read). Confirmed: on both sides, the interval of the \
               ratio of TIPC's to TCP's lies below 1. Not confirmed: on one side it lies above 1, or within 5 % of it.",
    };
    let stream = Workload::Paced { burst_bytes: 262_144, period_us: 80_000 };
    let Some(pair) = pair(evidence, |r| r.inputs.workload == stream) else {
        return claim.without_records(
            evidence.missing("trials of both TIPC and TCP with 256 KiB every 80 ms", PLAN),
        );
    };
    let Some(bytes) = pair.sizes().last().copied() else {
        return claim.without_records(
            "TIPC and TCP were measured with writes of different sizes".to_owned(),
        );
    };
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    let mut differences = Vec::new();
    for role in ["sender", "receiver"] {
        let Some(c) = pair.at(bytes, |r| load(r, role)) else {
            return claim.without_records(format!("no CPU load was measured at the {role}"));
        };
        figures.push(Figure::new(format!("TCP, {role}"), Quantity::Share, c.tcp));
        figures.push(Figure::new(format!("TIPC, {role}"), Quantity::Share, c.tipc));
        calls.push(above(&inverse(&c.ratio), 1.0));
        differences
            .push(format!("{role} {} points", three_digits((c.tcp.value - c.tipc.value) * 100.0)));
    }
    let why = format!(
        "TCP's CPU load minus TIPC's: {} (in the study: 3.98 and 9.00 points)",
        differences.join(", ")
    ) + pair.uncounted();
    claim.judged(pair.place, figures, all(calls), why)
}

/// Judges the study's item T14: the conclusions that the study draws from its other findings.
fn conclusions(findings: &[Finding]) -> Finding {
    let claim = Claim {
        id: "T14",
        title: "Conclusions",
        says: "TIPC is faster than TCP, except for small messages. Its CPU load is lower, and it sends fewer \
               acknowledgements. It is useful for streaming in embedded systems.",
        rule: "Confirmed if T3, T3 CPU, T6 and T8 are all confirmed; not confirmed if one of them is not confirmed.",
    };
    let parts: Vec<&Finding> =
        findings.iter().filter(|f| ["T3", "T3 CPU", "T6", "T8"].contains(&f.id)).collect();
    let call = all(parts.iter().map(|f| match f.verdict {
        Verdict::Confirmed => Call::Holds,
        Verdict::NotConfirmed => Call::Fails,
        Verdict::Undecided if f.on_bound || f.trials_needed.is_some() => {
            Call::Open(f.trials_needed)
        }
        Verdict::Undecided | Verdict::NotMeasurable => Call::Lacking,
    }));
    let why = parts.iter().map(|f| format!("{} {}", f.id, f.verdict.name())).collect::<Vec<_>>();
    let place = parts.iter().map(|f| f.place.as_str()).find(|p| !p.is_empty()).unwrap_or_default();
    let unmeasured = parts.iter().any(|f| f.verdict == Verdict::NotMeasurable);
    if unmeasured && call != Call::Fails {
        return claim.judged(place, Vec::new(), Verdict::NotMeasurable, why.join(", "));
    }
    claim.judged(place, Vec::new(), call, why.join(", "))
}

/// Judges the study's claim T15, about header sizes.
fn headers(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "T15",
        title: "Header sizes",
        says: "TIPC's header has 24 bytes, TCP/IP's 40: at MTU 1500 a packet carries 1476 bytes against 1460, so \
               TIPC's transfer is more efficient.",
        rule: "Payload bytes per byte on the wire (Ethernet headers included), at the largest message size. Confirmed: \
               the interval of the ratio of TIPC's to TCP's lies above 1. Not confirmed: it does not.",
    };
    let Some(pair) = pair(evidence, |r| one_way(r) && r.inputs.size_bytes >= 16_384) else {
        return claim.without_records(
            evidence.missing(
                "one-way trials of both TIPC and TCP with messages of 16 KiB or more",
                PLAN,
            ),
        );
    };
    let by_size = pair.by_size(efficiency);
    let Some((bytes, c)) = by_size.last() else {
        return claim.without_records("no bytes were counted on the wire".to_owned());
    };
    let what = |who: &str| format!("{who}, {}: payload per byte on the wire", size(*bytes));
    let mut figures = vec![
        Figure::new(what("TCP"), Quantity::Share, c.tcp),
        Figure::new(what("TIPC"), Quantity::Share, c.tipc),
    ];
    if let Some(speed) = pair.at(*bytes, rate) {
        figures.push(Figure::new("TCP: throughput", Quantity::ByteRate, speed.tcp));
        figures.push(Figure::new("TIPC: throughput", Quantity::ByteRate, speed.tipc));
    }
    // Counted bytes have almost no noise: a thousandth is a real difference.
    let call = if !enough(&c.ratio) {
        Call::open(&c.ratio, &[])
    } else if c.ratio.low > 1.0 {
        Call::Holds
    } else {
        Call::Fails
    };
    let why = format!(
        "the largest share of payload in a full packet: TCP 1460/1514 = {} % (with timestamps 1448/1514 = {} %), the \
         study's TIPC 1476/1514 = {} %, TIPC since Linux 5.5 with encryption built in 1388/1442 = {} %",
        three_digits(146_000.0 / 1514.0),
        three_digits(144_800.0 / 1514.0),
        three_digits(147_600.0 / 1514.0),
        three_digits(138_800.0 / 1442.0)
    );
    claim.judged(pair.place, figures, call, why)
}
