//! Packets on the wire: the additional packet (item T4 of the Toshiba study), packets of small messages (T5),
//! acknowledgements (T6).

use crossway_records::inputs::Workload;
use crossway_records::record::Record;
use crossway_records::stats::Estimate;
use crossway_records::steps::Cutting;

use super::super::call::{Call, all, enough};
use super::super::evidence::{Evidence, TIPC_IN_KERNEL, one_way, packets_each_way};
use super::super::{Claim, Figure, Finding, Verdict};
use super::{PLAN, pair};
use crate::steps::{Over, Shape};
use crate::units::{Quantity, size, three_digits};

/// The two sizes between which the study observed the additional packet. A group of the plan measures the sizes around
/// them byte by byte.
const EDGE: (u64, u64) = (2952, 2953);

/// Judges the study's claim T4, about a step where a message needs one more packet.
pub(super) fn step(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "T4",
        title: "A step where a message needs one more packet",
        says: "TIPC's throughput drops between 2952 and 2953 bytes: a packet carries 1500 - 24 = 1476 bytes of a \
               message, so 2952 bytes fill two packets and one more byte needs a third. TCP has no such step, because \
               it cuts the stream into full packets.",
        rule: "The packets on the wire are counted. Confirmed: TIPC sends at least 0.9 packets per message more at \
               2953 bytes than at 2952, its throughput has a significant step there, and TCP's has none. Not \
               confirmed: the packets per message differ by less than 0.1, TIPC's throughput has no step of at least \
               1.5 % there, or TCP's has one, too.",
    };
    let zoomed = |r: &Record| one_way(r) && r.inputs.size_bytes.abs_diff(EDGE.0) <= 300;
    let Some(pair) = pair(evidence, zoomed) else {
        return claim.without_records(
            evidence.missing("trials of both TIPC and TCP at 2952 and 2953 bytes", PLAN),
        );
    };
    let forward = |r: &Record| packets_each_way(r).map(|(there, _)| there);
    let (Some(before), Some(behind)) = (pair.at(EDGE.0, forward), pair.at(EDGE.1, forward)) else {
        return claim.without_records(
            "this run has no packet counts of both TIPC and TCP at 2952 and 2953 bytes".to_owned(),
        );
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
        format!("; TIPC's throughput drops {}", elsewhere.join(", "))
    };
    let today = Cutting::tipc(1500, true);
    if !enough(&before.ratio) || !enough(&behind.ratio) {
        let why = format!(
            "TIPC sends {} packets per message more at 2953 bytes than at 2952",
            three_digits(more)
        );
        return claim.judged(pair.place, figures, Call::open(&before.ratio, &[]), why);
    }
    match (at_edge(&tipc), at_edge(&tcp)) {
        _ if more.abs() < 0.1 => {
            let expected = if today.packets(EDGE.0) == today.packets(EDGE.1) {
                "; since Linux 5.5 a TIPC packet reserves room for a tunnel header and encryption, so messages are \
                 split at 1404, 2752, 4140 ... bytes instead"
            } else {
                ""
            };
            let why = format!("no additional packet is sent at 2953 bytes{elsewhere}{expected}");
            claim.judged(pair.place, figures, Verdict::NotConfirmed, why)
        }
        (Some(change), None) if more >= 0.9 => {
            let why = format!(
                "TIPC's throughput changes by {} % at 2953 bytes with one more packet; TCP's has no step there",
                three_digits(change * 100.0)
            );
            claim.judged(pair.place, figures, Verdict::Confirmed, why)
        }
        (None, _) if more >= 0.9 => {
            let why = format!(
                "one more packet is sent at 2953 bytes, but the throughput has no step of 1.5 % or more \
                 there{elsewhere}"
            );
            claim.judged(pair.place, figures, Verdict::NotConfirmed, why)
        }
        (Some(_), Some(_)) => {
            claim.judged(pair.place, figures, Verdict::NotConfirmed, "TCP's throughput has a step at 2953 bytes, too")
        }
        _ => claim.judged(
            pair.place,
            figures,
            Verdict::Undecided,
            format!(
                "TIPC's packets per message at 2952 and at 2953 bytes differ by {}, which is neither zero nor one",
                three_digits(more)
            ),
        ),
    }
}

/// Judges the study's claim T5, about the packets of small messages.
pub(super) fn coalescing(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "T5",
        title: "Packets of small messages",
        says: "16-byte messages: in 5 s TIPC sends about 280,000 packets, TCP about 20,000, because TCP puts several \
               messages into one packet and TIPC sends one packet per message.",
        rule: "Packets that the sender's host sends per message, at the smallest measured size of up to 512 bytes. \
               Confirmed: TCP's interval lies below 0.5 and TIPC's above 0.9. Not confirmed: one of them lies wholly \
               on the other side.",
    };
    let small = |r: &Record| one_way(r) && r.inputs.size_bytes <= 512;
    let Some(pair) = pair(evidence, small) else {
        return claim.without_records(evidence.missing(
            "one-way trials of both TIPC and TCP with messages of up to 512 bytes",
            PLAN,
        ));
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
                format!("{who}, {}: packets in 5 s at the measured rate", size(*bytes)),
                Quantity::Number,
                value,
            ));
        }
        in_five = format!(
            " At the measured rates of {} messages, TIPC sends {} times as many packets per second as TCP (the study, with \
             16-byte messages: 14).",
            size(*bytes),
            three_digits(c.ratio.value)
        );
    }
    let tcp = bound(&least.tcp, 0.5);
    let tipc = match bound(&least.tipc, 0.9) {
        Call::Holds => Call::Fails,
        Call::Fails => Call::Holds,
        open => open,
    };
    let mut why = match (tcp, tipc) {
        (Call::Holds, Call::Holds) => {
            "TCP puts several messages into a packet, TIPC one".to_owned()
        }
        (Call::Holds | Call::Open(_) | Call::Lacking, Call::Fails) => format!(
            "TIPC {}puts more than one message into a packet ({} on average): {} small messages of a stream as \
             Nagle's algorithm does",
            if tcp == Call::Holds { "also " } else { "" },
            three_digits(1.0 / least.tipc.value),
            if pair.tipc_id == TIPC_IN_KERNEL {
                "Linux 5.5 and later combine"
            } else {
                "Crossway's TIPC node in user space combines, like Linux 5.5 and later,"
            }
        ),
        (Call::Fails, _) => "TCP sends at least one packet for every two messages".to_owned(),
        _ => "the trials do not decide".to_owned(),
    };
    why.push('.');
    why.push_str(&in_five);
    claim.judged(pair.place, figures, all([tcp, tipc]), why)
}

/// Judges the claim that the figure is below `limit`.
fn bound(figure: &Estimate, limit: f64) -> Call {
    if !enough(figure) {
        Call::open(figure, &[])
    } else if figure.high < limit {
        Call::Holds
    } else if figure.low >= limit {
        Call::Fails
    } else {
        Call::open(figure, &[limit])
    }
}

/// Judges the study's claim T6, about acknowledgements.
pub(super) fn acknowledgements(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "T6",
        title: "Acknowledgements",
        says: "4096-byte messages: both send about 40,000 packets in 5 s. TCP's receiver sends back about half as many \
               packets as it receives, TIPC's far fewer.",
        rule: "Packets that the receiver's host sends back per packet that the sender's host sends. Confirmed: TCP's \
               interval lies within 0.35 to 0.65, and TIPC's upper end is below half of TCP's lower end. Not \
               confirmed: TCP's interval lies wholly outside, or TIPC's lower end is at least half of TCP's upper end.",
    };
    let Some(pair) = pair(evidence, |r| one_way(r) && r.inputs.size_bytes == 4096) else {
        return claim.without_records(
            evidence
                .missing("one-way trials of both TIPC and TCP with messages of 4096 bytes", PLAN),
        );
    };
    // If nothing is sent back the ratio is 0, by which nothing can be divided: use a tiny value instead.
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
        figures.push(Figure::new(
            "TCP: packets forward in 5 s at the measured rate",
            Quantity::Number,
            c.tcp,
        ));
        figures.push(Figure::new(
            "TIPC: packets forward in 5 s at the measured rate",
            Quantity::Number,
            c.tipc,
        ));
    }
    let (tcp, tipc) = (ratios.tcp, ratios.tipc);
    let half = if !enough(&tcp) {
        Call::open(&tcp, &[])
    } else if tcp.low >= 0.35 && tcp.high <= 0.65 {
        Call::Holds
    } else if tcp.low > 0.65 || tcp.high < 0.35 {
        Call::Fails
    } else {
        Call::open(&tcp, &[0.35, 0.65])
    };
    let fewer = if !enough(&tipc) {
        Call::open(&tipc, &[])
    } else if tipc.high < tcp.low / 2.0 {
        Call::Holds
    } else if tipc.low >= tcp.high / 2.0 {
        Call::Fails
    } else {
        Call::open(&tipc, &[tcp.value / 2.0])
    };
    let why = format!(
        "TCP's receiver sends back {} packets per packet received, TIPC's {}",
        three_digits(tcp.value),
        three_digits(tipc.value)
    );
    claim.judged(pair.place, figures, all([half, fewer]), why)
}
