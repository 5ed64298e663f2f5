//! Sizes of single calls: the largest receive of TCP (item C6 of the cluster study); TIPC's largest message and TCP's
//! large ones (C7).

use crossway_lab::catalogue::{self, Boundaries, Family, NodeKind};
use crossway_records::inputs::Ends;
use crossway_records::record::{Record, Status};
use crossway_records::stats::{Estimate, ratio_interval};

use super::super::call::{Call, enough};
use super::super::evidence::{Evidence, place, rate};
use super::super::{Claim, Figure, Finding, Verdict};
use super::{PLAN, exchange};
use crate::units::Quantity;

/// Judges the study's claim C6, about the number of bytes that one recv() returns.
pub(super) fn one_receive(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "C6",
        title: "Bytes returned by one recv()",
        says: "One recv() consistently returned at most 4344 bytes (3 x 1448, three segments), so larger messages need \
               a loop.",
        rule: "The most bytes that one recv() of TCP returned between two hosts, with messages of 8 KiB or more and \
               the default socket buffer. Confirmed: at most 4344 in each of at least five trials. Not confirmed: more \
               in one trial.",
    };
    let wanted = |r: &Record| {
        r.inputs.testbed.is_some()
            && r.inputs.ends == Ends::Between
            && r.inputs.size_bytes >= 8192
            // A small buffer would limit what a receive can return.
            && r.inputs.socket_buffer_bytes.is_none()
            && r.facts.contains_key("largest_recv_bytes")
    };
    let records = evidence.of("tcp", wanted);
    let largest: Vec<f64> = records
        .iter()
        .filter_map(|r| r.facts.get("largest_recv_bytes"))
        .map(|b| *b as f64)
        .collect();
    let (Some(first), Some(value)) = (records.first(), Estimate::of(&largest)) else {
        return claim.without_records(
            evidence.missing("TCP trials that recorded the largest recv()", PLAN),
        );
    };
    let most = largest.iter().copied().fold(0.0, f64::max);
    let figures = vec![Figure::new(
        "TCP: most bytes returned by one recv() in a trial",
        Quantity::Bytes,
        value,
    )];
    let call = if most > 4344.0 { Call::Fails } else { Call::open_unless_enough(&value) };
    let why = format!(
        "one recv() returned up to {most} bytes; a loop is still needed, because recv() may return fewer"
    );
    claim.judged(place(first), figures, call, why)
}

/// Judges the first part of the study's claim C7, about the largest TIPC message.
pub(super) fn one_call(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "C7 TIPC",
        title: "Largest TIPC message",
        says: "TIPC takes at most 66,000 bytes in one call.",
        rule: "A TIPC socket that preserves message boundaries is used. Confirmed: it carried 66,000 bytes, and \
               refused 66,001 because of their size. Not confirmed: it carried 66,001, or refused 66,000.",
    };
    let messages: Vec<&Record> = evidence
        .run
        .records
        .iter()
        .filter(|r| {
            catalogue::find(&r.mechanism).is_some_and(|entry| {
                entry.family() == Family::Tipc
                    && entry.carrier().is_some_and(|carrier| carrier.node != Some(NodeKind::Linx))
                    && entry.caps().boundaries == Boundaries::Message
            })
        })
        .collect();
    let carried = |bytes: u64| {
        messages.iter().find(|r| r.inputs.size_bytes == bytes && r.status == Status::Ok)
    };
    let refused = |bytes: u64| {
        messages.iter().find(|r| {
            r.inputs.size_bytes == bytes
                && r.status == Status::Skipped
                && r.reason.as_deref().is_some_and(|why| why.contains("largest message"))
        })
    };
    match (carried(66_000), refused(66_001)) {
        _ if carried(66_001).is_some() => claim.judged(
            "",
            Vec::new(),
            Verdict::NotConfirmed,
            "66,001 bytes were carried in one call",
        ),
        _ if refused(66_000).is_some() => {
            claim.judged("", Vec::new(), Verdict::NotConfirmed, "66,000 bytes were refused")
        }
        (Some(ok), Some(no)) => claim.judged(
            place(ok),
            Vec::new(),
            Verdict::Confirmed,
            format!(
                "{} carried 66,000 bytes in one call; 66,001 were refused without a call, because TIPC's limit is \
                 known (TIPC_MAX_USER_MSG_SIZE): {}",
                ok.mechanism,
                no.reason.as_deref().unwrap_or_default()
            ),
        ),
        _ => claim.without_records(evidence.missing("trials of TIPC with messages of 66,000 and 66,001 bytes", PLAN)),
    }
}

/// Judges the second part of the study's claim C7, about TCP messages above 16 KiB.
pub(super) fn large_tcp(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "C7 TCP",
        title: "TCP messages above 16 KiB",
        says: "TCP messages above 16 KB are split and reassembled, so the bandwidth no longer rises, or even falls.",
        rule: "The ratio of TCP's bandwidth in exchanges of 64 KiB to that in exchanges of 16 KiB. Confirmed: its \
               interval lies at 1.05 or below. Not confirmed: it lies above.",
    };
    let between = |r: &Record| exchange(r) && r.inputs.ends == Ends::Between;
    let records = evidence.of("tcp", between);
    let at = |bytes: u64| -> Vec<f64> {
        let here = records.iter().filter(|r| r.inputs.size_bytes == bytes);
        here.filter_map(|r| rate(r)).collect()
    };
    let (small, large) = (at(16_384), at(65_536));
    let (Some(interval), Some(first)) = (ratio_interval(&large, &small, 0.95), records.first())
    else {
        return claim.without_records(evidence.missing("TCP exchanges of 16 and 64 KiB", PLAN));
    };
    let (Some(a), Some(b)) = (Estimate::of(&small), Estimate::of(&large)) else {
        return claim.without_records(evidence.missing("TCP exchanges of 16 and 64 KiB", PLAN));
    };
    let ratio = Estimate {
        value: b.value / a.value,
        low: interval.low,
        high: interval.high,
        n: a.n.min(b.n),
    };
    let figures = vec![
        Figure::new("TCP, 16 KiB: bandwidth of exchanges", Quantity::ByteRate, a),
        Figure::new("TCP, 64 KiB: bandwidth of exchanges", Quantity::ByteRate, b),
        Figure::new("64 KiB / 16 KiB", Quantity::Number, ratio),
    ];
    let call = if !enough(&ratio) {
        Call::open(&ratio, &[])
    } else if interval.high <= 1.05 {
        Call::Holds
    } else if interval.low > 1.05 {
        Call::Fails
    } else {
        Call::open(&ratio, &[1.05])
    };
    let word = match call {
        Call::Holds => "the bandwidth no longer rises above 16 KiB",
        Call::Fails => "the bandwidth still rises above 16 KiB",
        Call::Open(_) | Call::Lacking => {
            "the trials do not decide whether the bandwidth still rises"
        }
    };
    claim.judged(place(first), figures, call, word)
}
