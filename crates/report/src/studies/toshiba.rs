//! Toshiba 2011: TIPC against TCP between two embedded SoCs (items T3 to T8, T14, T15).

use crossway_lab::inputs::{Ends, Workload};
use crossway_lab::record::{Record, Span};
use crossway_lab::steps::Cutting;

use super::evidence::{
    Call, Compared, Evidence, Pair, above, all, efficiency, enough, equal, load, mostly, one_way,
    packets_each_way, rate,
};
use super::{Claim, Figure, Finding, Study, Verdict};
use crate::estimate::Estimate;
use crate::steps::{Over, Shape};
use crate::units::{Quantity, size, three_digits};

const PLAN: &str = "toshiba";
const LINK_BITS_PER_S: u64 = 100_000_000;
/// The group of the plan that goes byte by byte; others have other sizes.
const EDGE: (u64, u64) = (2952, 2953);

/// All of its findings.
pub(super) fn study(evidence: &Evidence<'_>) -> Study {
    let mut findings = vec![
        crossover(evidence),
        cpu_load(evidence),
        step(evidence),
        coalescing(evidence),
        acknowledgements(evidence),
        latency(evidence),
        streaming(evidence),
    ];
    findings.push(conclusions(&findings));
    findings.push(headers(evidence));
    Study {
        plan: PLAN,
        title: "Toshiba, 2011: TIPC and TCP between two embedded systems",
        setup: "Two boards with a MIPS 24K at 533 MHz, 100 Mbit/s Ethernet, Linux 2.6.20.19, TIPC 1.7.7-rc1, SOCK_STREAM.",
        findings,
    }
}

fn pair<'a>(evidence: &Evidence<'a>, wanted: impl Fn(&Record) -> bool) -> Option<Pair<'a>> {
    evidence.pair(LINK_BITS_PER_S, Ends::Between, wanted)
}

/// Sizes of the study's sweep: 512 n.
fn of_sweep(record: &Record) -> bool {
    one_way(record) && record.inputs.size_bytes.is_multiple_of(512)
}

/// Both protocols at the least, a middle and the greatest size.
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

/// T3, throughput.
fn crossover(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "T3",
        title: "Throughput over message size",
        says: "512 to 40448 bytes one way: TIPC is faster than TCP above a size, TCP is faster below it.",
        rule: "At each size the interval of TIPC's throughput over TCP's lies above 1, below 1, or holds it. Confirmed: a size \
               parts the sizes so that TCP is ahead at some below and TIPC at some above, with at most one in twenty of the sizes \
               that tell on the wrong side. Not confirmed: the sizes that tell do not part so. Not measurable: fewer than a quarter of the sizes tell.",
    };
    let Some(pair) = pair(evidence, of_sweep) else {
        return claim.without_records(evidence.missing("one-way trials beside TCP's", PLAN));
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
            "at {} of {} sizes do the trials tell which is faster",
            if signs.is_empty() { "none".to_owned() } else { format!("only {}", signs.len()) },
            by_size.len()
        );
        return claim.judged(pair.place, figures, Verdict::NotMeasurable, why);
    }
    // The size from which on TIPC is ahead, with the fewest exceptions.
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
        "of {} sizes TIPC is ahead at {ahead}, TCP at {behind}, {} do not tell",
        by_size.len(),
        by_size.len() - signs.len()
    );
    if let Some((bytes, c)) = best.and_then(|from| by_size.iter().find(|(bytes, _)| *bytes == from))
    {
        figures.push(Figure::new(
            format!("TIPC over TCP at {}", size(*bytes)),
            Quantity::Number,
            c.ratio,
        ));
    }
    match parted {
        Some(from) => claim.judged(
            pair.place,
            figures,
            Verdict::Confirmed,
            format!("TIPC is ahead from {} on: {counts}", size(from)),
        ),
        None => claim.judged(
            pair.place,
            figures,
            Verdict::NotConfirmed,
            format!("no size parts the two: {counts}"),
        ),
    }
}

/// T3, CPU load.
fn cpu_load(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "T3 CPU",
        title: "CPU load at full speed",
        says: "TIPC's CPU load is lower than TCP's on the sending and on the receiving side.",
        rule: "Host CPU per payload byte, soft interrupts included, at sizes from 8 KiB on. Confirmed: on both sides the interval of TIPC over \
               TCP lies below 1 at the sizes that tell, but for one in twenty.",
    };
    let Some(pair) = pair(evidence, |r| of_sweep(r) && r.inputs.size_bytes >= 8192) else {
        return claim.without_records(
            evidence.missing("one-way trials of 8 KiB and more beside TCP's", PLAN),
        );
    };
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    for role in ["sender", "receiver"] {
        // Per byte, because the faster protocol may work more in the same time.
        let by_size = pair.by_size(|r| Some(load(r, role)? / rate(r)? * 1e9));
        // The claim is TIPC < TCP: its inverse is above 1.
        let of: Vec<Call> = by_size.iter().map(|(_, c)| above(&inverse(&c.ratio), 1.0)).collect();
        calls.push(mostly(&of));
        if let Some((bytes, c)) = by_size.get(by_size.len() / 2) {
            let what = |who: &str| format!("{who}, {role}, {}: CPU per payload byte", size(*bytes));
            figures.push(Figure::new(what("TCP"), Quantity::Duration, c.tcp));
            figures.push(Figure::new(what("TIPC"), Quantity::Duration, c.tipc));
        }
    }
    let whole = all(calls.iter().copied());
    let side = |call: Call| match call {
        Call::Holds => "lower",
        Call::Fails => "not lower",
        Call::Open => "not told apart",
    };
    let why = format!(
        "TIPC's load per byte is {} at the sender and {} at the receiver",
        side(calls[0]),
        side(calls[1])
    );
    claim.judged(pair.place, figures, whole, why)
}

fn inverse(ratio: &Estimate) -> Estimate {
    Estimate { value: 1.0 / ratio.value, low: 1.0 / ratio.high, high: 1.0 / ratio.low, n: ratio.n }
}

/// T4.
fn step(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "T4",
        title: "A step where a message needs one packet more",
        says: "Between 2952 and 2953 bytes TIPC's throughput drops: 2 x (1500 - 24) = 2952, one byte more needs a third packet. TCP has no \
               such step, because the stream is cut into full packets again.",
        rule: "Packets are counted: confirmed if at 2953 bytes TIPC sends at least 0.9 packets per message more than at 2952, its \
               throughput has a significant step there and TCP's has none. Not confirmed if the packets per message differ by less than \
               0.1, or if there is no step of at least 1.5 %.",
    };
    let zoomed = |r: &Record| one_way(r) && r.inputs.size_bytes.abs_diff(EDGE.0) <= 300;
    let Some(pair) = pair(evidence, zoomed) else {
        return claim.without_records(evidence.missing("trials of 2952 and 2953 bytes", PLAN));
    };
    let forward = |r: &Record| packets_each_way(r).map(|(there, _)| there);
    let (Some(before), Some(behind)) = (pair.at(EDGE.0, forward), pair.at(EDGE.1, forward)) else {
        return claim.without_records("no packets were counted at 2952 and 2953 bytes".to_owned());
    };
    let figures = vec![
        Figure::new("TIPC, 2952 B: packets per message", Quantity::Number, before.tipc),
        Figure::new("TIPC, 2953 B: packets per message", Quantity::Number, behind.tipc),
        Figure::new("TCP, 2952 B: packets per message", Quantity::Number, before.tcp),
        Figure::new("TCP, 2953 B: packets per message", Quantity::Number, behind.tcp),
    ];
    let more = behind.tipc.value - before.tipc.value;
    let steps_of = |mechanism: &str| -> Vec<(f64, f64, Option<&String>)> {
        evidence
            .shapes
            .found
            .iter()
            .filter(|f| f.over == Over::Size && f.workload == Workload::Throughput)
            .filter(|f| evidence.run.summary.contenders[f.contender].mechanism == mechanism)
            .filter_map(|f| match f.shape {
                Shape::Step { after_x, at_x, change, .. }
                    if at_x - after_x <= 1.0
                        && change < 0.0
                        && at_x.max(2652.0) == at_x
                        && at_x <= 3252.0 =>
                {
                    Some((at_x, change, f.cause.as_ref()))
                }
                _ => None,
            })
            .collect()
    };
    let at_edge = |steps: &[(f64, f64, Option<&String>)]| {
        steps.iter().find(|(x, _, _)| *x == EDGE.1 as f64).map(|(_, change, _)| *change)
    };
    let (tipc, tcp) = (steps_of(pair.tipc_id), steps_of("tcp"));
    let elsewhere: Vec<String> = tipc
        .iter()
        .filter(|(x, _, _)| *x != EDGE.1 as f64)
        .map(|(x, change, cause)| {
            format!(
                "at {} B ({} %{})",
                x,
                three_digits(change * 100.0),
                cause.map_or(String::new(), |c| format!(": {c}"))
            )
        })
        .collect();
    let elsewhere = if elsewhere.is_empty() {
        String::new()
    } else {
        format!("; its steps here are {}", elsewhere.join(", "))
    };
    let today = Cutting::tipc(1500, true);
    match (at_edge(&tipc), at_edge(&tcp)) {
        _ if more.abs() < 0.1 => {
            let expected = if today.packets(EDGE.0) == today.packets(EDGE.1) {
                "; since Linux 5.5 a TIPC packet keeps room for a tunnel's header and encryption, so that messages are cut at \
                 1404, 2752, 4140 ... bytes instead"
            } else {
                ""
            };
            let why = format!("no packet more is sent at 2953 bytes{elsewhere}{expected}");
            claim.judged(pair.place, figures, Verdict::NotConfirmed, why)
        }
        (Some(change), None) if more >= 0.9 => {
            let why = format!(
                "{} % throughput at 2953 bytes with one packet more, and none in TCP",
                three_digits(change * 100.0)
            );
            claim.judged(pair.place, figures, Verdict::Confirmed, why)
        }
        (None, _) if more >= 0.9 => {
            let why = format!(
                "a packet more is sent at 2953 bytes, but no step of 1.5 % or more is seen in the throughput{elsewhere}"
            );
            claim.judged(pair.place, figures, Verdict::NotConfirmed, why)
        }
        (Some(_), Some(_)) => {
            claim.judged(pair.place, figures, Verdict::NotConfirmed, "TCP has a step there, too")
        }
        _ => claim.judged(
            pair.place,
            figures,
            Verdict::NotMeasurable,
            format!(
                "packets per message differ by {}, which is neither none nor one",
                three_digits(more)
            ),
        ),
    }
}

/// T5.
fn coalescing(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "T5",
        title: "Packets of small messages",
        says: "16-byte messages: in 5 s TIPC sends about 280,000 packets, TCP about 20,000, because TCP puts several messages into \
               one packet and TIPC sends one packet a message.",
        rule: "Packets from the sender per message at the smallest size up to 512 bytes. Confirmed: TCP's interval lies below 0.5, TIPC's above \
               0.9. Not confirmed: one of them lies wholly on the other side.",
    };
    let small = |r: &Record| one_way(r) && r.inputs.size_bytes <= 512;
    let Some(pair) = pair(evidence, small) else {
        return claim
            .without_records(evidence.missing("one-way trials of 16 bytes beside TCP's", PLAN));
    };
    let by_size = pair.by_size(|r| packets_each_way(r).map(|(there, _)| there));
    let Some((_, least)) = by_size.first() else {
        return claim.without_records("no packets were counted".to_owned());
    };
    let mut figures = Vec::new();
    for (bytes, c) in &by_size {
        for (who, value) in [("TCP", c.tcp), ("TIPC", c.tipc)] {
            figures.push(Figure::new(
                format!("{who}, {}: packets per message", size(*bytes)),
                Quantity::Number,
                value,
            ));
        }
    }
    let per_second = |r: &Record| {
        Some(packets_each_way(r)?.0 * r.throughput.filter(|t| t.msgs_per_s > 0.0)?.msgs_per_s * 5.0)
    };
    let mut in_five = String::new();
    if let Some((bytes, c)) = pair.by_size(per_second).first() {
        for (who, value) in [("TCP", c.tcp), ("TIPC", c.tipc)] {
            figures.push(Figure::new(
                format!("{who}, {}: packets in 5 s", size(*bytes)),
                Quantity::Number,
                value,
            ));
        }
        in_five = format!(
            " In 5 s TIPC sends {} times as many packets as TCP (the study: 14).",
            three_digits(c.ratio.value)
        );
    }
    let tcp = bound(&least.tcp, 0.5);
    let tipc = match bound(&least.tipc, 0.9) {
        Call::Holds => Call::Fails,
        Call::Fails => Call::Holds,
        Call::Open => Call::Open,
    };
    let mut why = match (tcp, tipc) {
        (Call::Holds, Call::Holds) => {
            "TCP puts several messages into a packet, TIPC one".to_owned()
        }
        (Call::Holds, Call::Fails) => format!(
            "TIPC puts several messages into a packet, too ({}): Linux 5.5 and later collect small messages of a stream as Nagle's \
             algorithm does",
            three_digits(1.0 / least.tipc.value)
        ),
        (Call::Fails, _) => "TCP sends a packet or more for every two messages".to_owned(),
        _ => "the trials do not tell".to_owned(),
    };
    why.push('.');
    why.push_str(&in_five);
    claim.judged(pair.place, figures, all([tcp, tipc]), why)
}

/// Claim: the figure is below `limit`.
fn bound(figure: &Estimate, limit: f64) -> Call {
    if !enough(figure) {
        Call::Open
    } else if figure.high < limit {
        Call::Holds
    } else if figure.low >= limit {
        Call::Fails
    } else {
        Call::Open
    }
}

/// T6.
fn acknowledgements(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "T6",
        title: "Acknowledgements",
        says: "4096-byte messages: both send about 40,000 packets in 5 s. TCP's receiver sends back about half as many packets as it \
               receives, TIPC's far fewer.",
        rule: "Packets back per packet forward. Confirmed: TCP's interval lies within 0.35 to 0.65 and TIPC's upper end is below half of \
               TCP's lower end. Not confirmed: one of them lies wholly outside.",
    };
    let Some(pair) = pair(evidence, |r| one_way(r) && r.inputs.size_bytes == 4096) else {
        return claim
            .without_records(evidence.missing("one-way trials of 4096 bytes beside TCP's", PLAN));
    };
    // Nothing at all sent back is a ratio of 0, of which no ratio can be taken: a hair stands for it.
    let back = |r: &Record| packets_each_way(r).map(|(there, back)| (back / there).max(1e-6));
    let Some(ratios) = pair.at(4096, back) else {
        return claim.without_records("no packets were counted".to_owned());
    };
    let mut figures = vec![
        Figure::new("TCP: packets back per packet forward", Quantity::Number, ratios.tcp),
        Figure::new("TIPC: packets back per packet forward", Quantity::Number, ratios.tipc),
    ];
    let in_five = |r: &Record| Some(packets_each_way(r)?.0 * r.throughput?.msgs_per_s * 5.0);
    if let Some(c) = pair.at(4096, in_five) {
        figures.push(Figure::new("TCP: packets forward in 5 s", Quantity::Number, c.tcp));
        figures.push(Figure::new("TIPC: packets forward in 5 s", Quantity::Number, c.tipc));
    }
    let (tcp, tipc) = (ratios.tcp, ratios.tipc);
    let half = if !enough(&tcp) {
        Call::Open
    } else if tcp.low >= 0.35 && tcp.high <= 0.65 {
        Call::Holds
    } else if tcp.low > 0.65 || tcp.high < 0.35 {
        Call::Fails
    } else {
        Call::Open
    };
    let fewer = if !enough(&tipc) {
        Call::Open
    } else if tipc.high < tcp.low / 2.0 {
        Call::Holds
    } else if tipc.low >= tcp.high / 2.0 {
        Call::Fails
    } else {
        Call::Open
    };
    let why = format!(
        "TCP's receiver sends back {} packets per packet, TIPC's {}",
        three_digits(tcp.value),
        three_digits(tipc.value)
    );
    claim.judged(pair.place, figures, all([half, fewer]), why)
}

/// T7.
fn latency(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "T7",
        title: "Latency",
        says: "Ping-pong: the round trips of TCP and TIPC are nearly equal at all sizes.",
        rule: "Confirmed: at each size the interval of TIPC's median round trip over TCP's lies within 0.8 to 1.25, one size in twenty \
               excepted. Not confirmed: it lies wholly outside at more of them.",
    };
    let Some(pair) = pair(evidence, |r| r.inputs.workload == Workload::PingPong) else {
        return claim.without_records(evidence.missing("ping-pong trials beside TCP's", PLAN));
    };
    let by_size = pair
        .by_size(|r| r.latency_ns.iter().find(|l| l.span == Span::RoundTrip).map(|l| l.p50 as f64));
    let calls: Vec<Call> = by_size.iter().map(|(_, c)| equal(&c.ratio)).collect();
    let mut figures = spread(&by_size, Quantity::Duration, "round trip p50");
    let worst = by_size.iter().max_by(|a, b| {
        let far = |c: &Compared| c.ratio.value.ln().abs();
        far(&a.1).total_cmp(&far(&b.1))
    });
    let mut why = format!(
        "equal within a quarter at {} of {} sizes",
        calls.iter().filter(|c| **c == Call::Holds).count(),
        calls.len()
    );
    if let Some((bytes, c)) = worst {
        figures.push(Figure::new(
            format!("TIPC over TCP, {}, farthest apart", size(*bytes)),
            Quantity::Number,
            c.ratio,
        ));
        why.push_str(&format!(
            "; farthest apart at {}: TIPC takes {} times TCP's time",
            size(*bytes),
            three_digits(c.ratio.value)
        ));
    }
    claim.judged(pair.place, figures, mostly(&calls), why)
}

/// T8.
fn streaming(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "T8",
        title: "CPU load of a steady stream",
        says: "256 KiB every 80 ms (26.2 Mbit/s): the sender's CPU is busy 9.16 % with TCP and 5.18 % with TIPC, the receiver's \
               19.25 % and 10.25 %.",
        rule: "Busy share of each host's CPU, soft interrupts included. Confirmed: on both sides the interval of TIPC over TCP lies \
               below 1. Not confirmed: on one side it lies above 1, or within 5 % around it.",
    };
    let stream = Workload::Paced { burst_bytes: 262_144, period_us: 80_000 };
    let Some(pair) = pair(evidence, |r| r.inputs.workload == stream) else {
        return claim
            .without_records(evidence.missing("trials of 256 KiB every 80 ms beside TCP's", PLAN));
    };
    let Some(bytes) = pair.sizes().last().copied() else {
        return claim.without_records("the two were measured with different writes".to_owned());
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
    let why = format!("TCP - TIPC: {} (the study: 3.98 and 9.00 points)", differences.join(", "));
    claim.judged(pair.place, figures, all(calls), why)
}

/// T14: what the study concludes from the rest.
fn conclusions(findings: &[Finding]) -> Finding {
    let claim = Claim {
        id: "T14",
        title: "Conclusions",
        says: "TIPC is faster than TCP, TCP is faster for small messages, TIPC's CPU load is lower, its acknowledgements are fewer; it is \
               useful for streaming in embedded systems.",
        rule: "Confirmed if T3, T3 CPU, T6 and T8 are; not confirmed if one of them is not.",
    };
    let parts: Vec<&Finding> =
        findings.iter().filter(|f| ["T3", "T3 CPU", "T6", "T8"].contains(&f.id)).collect();
    let call = all(parts.iter().map(|f| match f.verdict {
        Verdict::Confirmed => Call::Holds,
        Verdict::NotConfirmed => Call::Fails,
        Verdict::NotMeasurable => Call::Open,
    }));
    let why = parts.iter().map(|f| format!("{} {}", f.id, f.verdict.name())).collect::<Vec<_>>();
    let place = parts.iter().map(|f| f.place.as_str()).find(|p| !p.is_empty()).unwrap_or_default();
    claim.judged(place, Vec::new(), call, why.join(", "))
}

/// T15.
fn headers(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "T15",
        title: "Header sizes",
        says: "TIPC's header has 24 bytes, TCP/IP's 40: at MTU 1500 a packet carries 1476 bytes against 1460, so TIPC's transfer is more \
               efficient.",
        rule: "Payload per byte on the wire (Ethernet header included) at the largest messages. Confirmed: TIPC's over TCP's lies above \
               1. Not confirmed: it does not.",
    };
    let Some(pair) = pair(evidence, |r| one_way(r) && r.inputs.size_bytes >= 16_384) else {
        return claim.without_records(
            evidence.missing("one-way trials of 16 KiB and more beside TCP's", PLAN),
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
    // Counted bytes have no noise to speak of: a thousandth is a difference.
    let call = if c.ratio.low > 1.0 { Call::Holds } else { Call::Fails };
    let why = format!(
        "a full packet can carry: TCP 1460/1514 = {} % (1448 with timestamps: {} %), TIPC of the study 1476/1514 = {} %, TIPC since \
         Linux 5.5 with encryption built in 1388/1442 = {} %",
        three_digits(146_000.0 / 1514.0),
        three_digits(144_800.0 / 1514.0),
        three_digits(147_600.0 / 1514.0),
        three_digits(138_800.0 / 1442.0)
    );
    claim.judged(pair.place, figures, call, why)
}
