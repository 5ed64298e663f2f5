//! The study's Figures 4 to 6: throughput between two cores, without load and under load, and bits per CPU-second
//! (items E8 to E10).

use super::super::call::{above, all, enough, in_a_word, in_words, mostly};
use super::super::evidence::{inverse, rate, ratio};
use super::{
    Call, Claim, Evidence, Figure, Finding, NOTHING_BESIDE, PLAN, Verdict, WAYS, at,
    bits_per_cpu_s, kept, larger, reversals,
};
use crate::units::{Quantity, size};

/// The message sizes of Figure 4 in bytes; the study states only the last.
const SIZES: [u64; 3] = [128, 1024, 8192];
const LARGEST: u64 = 8192;
const PLACE: &str = "this machine, two cores";

pub(super) fn findings(evidence: &Evidence<'_>) -> Vec<Finding> {
    vec![
        lower_under_load(evidence),
        reversed(evidence),
        pipe_keeps_most(evidence),
        spinning_costs(evidence),
        most_efficient(evidence),
    ]
}

/// Judges the study's claims E8 and E9 that throughput is lower under load (Figures 4 and 5).
fn lower_under_load(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E9 load",
        title: "Throughput under load",
        says: "With CPU, memory and I/O load all throughputs are lower, by different amounts (Figures 4 and 5).",
        rule: "The ratio of each mechanism's throughput under load to that without load, at three sizes. Confirmed: \
               the interval lies below 1 in all but at most one in twenty of the decided cases. Not confirmed: in more \
               of them, it lies above 1 or within 5 % of it. Undecided: fewer than half are decided, unless three \
               contradict.",
    };
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    for (way, _) in WAYS {
        for bytes in SIZES {
            let Some(kept) = kept(evidence, way, rate, bytes) else { continue };
            calls.push(above(&inverse(&kept), 1.0));
            if bytes == LARGEST {
                let what = format!("{way}, {}: under load / without load", size(bytes));
                figures.push(Figure::new(what, Quantity::Number, kept));
            }
        }
    }
    if calls.is_empty() {
        return claim.without_records(
            evidence.missing("one-way trials both without load and under load", PLAN),
        );
    }
    let why = format!(
        "throughput is lower under load: {}, each a mechanism and a size",
        in_words(&calls, "in", "case", "cases")
    );
    claim.judged(PLACE, figures, mostly(&calls), why)
}

/// Judges one part of the study's claim E9: reversed ranks.
fn reversed(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E9 ranks",
        title: "Ranks reversed by load",
        says: "At 8192 bytes load reverses the ranks of mempipe_spin and shmem_pipe, and of tcp and unix.",
        rule: "For each pair, the ratio of the two throughputs, without load and under load. Confirmed: for both \
               pairs, one of the two intervals lies above 1 and the other below. Not confirmed: for one pair, both lie \
               on the same side of 1.",
    };
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    let mut told = Vec::new();
    for (a, b) in [("mempipe_spin", "shmem_pipe"), ("tcp", "unix")] {
        let of = |loaded: bool| {
            ratio(&at(evidence, a, rate, LARGEST, loaded), &at(evidence, b, rate, LARGEST, loaded))
        };
        let (Some(quiet), Some(busy)) = (of(false), of(true)) else { continue };
        figures.push(Figure::new(format!("{a} / {b}, without load"), Quantity::Number, quiet));
        figures.push(Figure::new(format!("{a} / {b}, loaded"), Quantity::Number, busy));
        let side = |r: &crossway_records::stats::Estimate| match () {
            () if !enough(r) => 0,
            () if r.low > 1.0 => 1,
            () if r.high < 1.0 => -1,
            () => 0,
        };
        let call = match side(&quiet) * side(&busy) {
            -1 => Call::Holds,
            1 => Call::Fails,
            // Both intervals must lie clear of 1.
            _ => all([quiet, busy].map(|r| match side(&r) {
                0 => Call::open(&r, &[1.0]),
                _ => Call::Holds,
            })),
        };
        told.push(format!("load reverses the ranks of {a} and {b}: {}", in_a_word(call)));
        calls.push(call);
    }
    if calls.len() < 2 {
        return claim.without_records(
            evidence.missing("one-way trials both without load and under load", PLAN),
        );
    }
    told.push(reversals::in_words(&evidence.run.records));
    let why = told.join("; ");
    claim.judged(PLACE, figures, all(calls), why)
}

/// Judges one part of the study's claim E9: the pipe.
fn pipe_keeps_most(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E9 pipe",
        title: "The pipe under load",
        says: "At the largest size the pipe is less sensitive to load than the others.",
        rule: "The ratio of the throughput under load to that without load, with 8192-byte messages. Confirmed: the \
               pipe's interval lies above that of each other mechanism. Not confirmed: it lies below that of one.",
    };
    let Some(pipe) = kept(evidence, "pipe", rate, LARGEST) else {
        return claim.without_records(
            evidence.missing("one-way trials both without load and under load", PLAN),
        );
    };
    let mut figures = vec![Figure::new("pipe: under load / without load", Quantity::Number, pipe)];
    let mut calls = Vec::new();
    for (way, _) in WAYS.iter().filter(|(way, _)| *way != "pipe") {
        let Some(other) = kept(evidence, way, rate, LARGEST) else { continue };
        figures.push(Figure::new(
            format!("{way}: under load / without load"),
            Quantity::Number,
            other,
        ));
        calls.push(larger(&pipe, &other));
    }
    let why = format!(
        "the pipe retains a larger share of its throughput than the other mechanism: {}",
        in_words(&calls, "for", "mechanism", "mechanisms")
    );
    if calls.is_empty() {
        return claim.judged(PLACE, figures, Verdict::NotMeasurable, NOTHING_BESIDE);
    }
    claim.judged(PLACE, figures, all(calls), why)
}

/// Judges one part of the study's claim E10: the spinning ring.
fn spinning_costs(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E10 spin",
        title: "Bits per CPU-second, spinning and sleeping",
        says: "Under load mempipe carries more bits per CPU-second than mempipe_spin at the two largest sizes: \
               spinning buys throughput with CPU time (Figure 6).",
        rule: "The ratio of mempipe's payload bits per CPU-second to mempipe_spin's, under load, at 1024 and 8192 \
               bytes. Confirmed: its interval lies above 1 at both sizes. Not confirmed: it lies below 1, or within 5 \
               % of it, at one size.",
    };
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    for bytes in [1024, LARGEST] {
        let of = |way: &str| at(evidence, way, bits_per_cpu_s, bytes, true);
        let Some(r) = ratio(&of("mempipe"), &of("mempipe_spin")) else { continue };
        figures.push(Figure::new(
            format!("mempipe / mempipe_spin, {}", size(bytes)),
            Quantity::Number,
            r,
        ));
        calls.push(above(&r, 1.0));
    }
    if calls.len() < 2 {
        return claim.without_records(evidence.missing("one-way trials under load", PLAN));
    }
    let why = format!(
        "mempipe carries more bits per CPU-second: {}; CPU time is that of sender and receiver together",
        in_words(&calls, "at", "size", "sizes")
    );
    claim.judged(PLACE, figures, all(calls), why)
}

/// Judges one part of the study's claim E10: the most efficient mechanism.
fn most_efficient(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E10 best",
        title: "Most bits per CPU-second",
        says: "Under load shmem_pipe carries the most bits per CPU-second at 8192 bytes (Figure 6).",
        rule: "The ratio of shmem_pipe's bits per CPU-second to those of each other mechanism. Confirmed: all \
               intervals lie above 1. Not confirmed: one lies below 1, or within 5 % of it.",
    };
    let of = |way: &str| at(evidence, way, bits_per_cpu_s, LARGEST, true);
    let best = of("shmem_pipe");
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    for (way, _) in WAYS.iter().filter(|(way, _)| *way != "shmem_pipe") {
        let Some(r) = ratio(&best, &of(way)) else { continue };
        figures.push(Figure::new(format!("shmem_pipe / {way}"), Quantity::Number, r));
        calls.push(above(&r, 1.0));
    }
    if calls.is_empty() {
        return claim.without_records(evidence.missing("one-way trials under load", PLAN));
    }
    let why = format!(
        "shmem_pipe carries more bits per CPU-second than the other mechanism: {}",
        in_words(&calls, "for", "mechanism", "mechanisms")
    );
    claim.judged(PLACE, figures, all(calls), why)
}
