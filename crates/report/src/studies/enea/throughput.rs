//! The study's Figures 4 to 6: throughput between two cores, idle and loaded, and bits per CPU-second (items E8 to
//! E10).

use super::super::call::{above, all, enough, mostly};
use super::super::evidence::{inverse, rate, ratio};
use super::{
    Call, Claim, Evidence, Figure, Finding, PLAN, Verdict, WAYS, at, bits_per_cpu_s, kept, larger,
    reversals,
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
        rule: "Each mechanism at each of three sizes, loaded over idle. Confirmed: the interval lies below 1 in all but one in twenty of the decided cases.",
    };
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    for (way, _) in WAYS {
        for bytes in SIZES {
            let Some(kept) = kept(evidence, way, rate, bytes) else { continue };
            calls.push(above(&inverse(&kept), 1.0));
            if bytes == LARGEST {
                let what = format!("{way}, {}: loaded over idle", size(bytes));
                figures.push(Figure::new(what, Quantity::Number, kept));
            }
        }
    }
    if calls.is_empty() {
        return claim
            .without_records(evidence.missing("one-way trials with and without load", PLAN));
    }
    let lower = calls.iter().filter(|c| **c == Call::Holds).count();
    let why = format!(
        "lower under load in {lower} of {} cases measured both idle and loaded",
        calls.len()
    );
    claim.judged(PLACE, figures, mostly(&calls), why)
}

/// Judges the part of the study's claim E9 about reversed ranks.
fn reversed(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E9 ranks",
        title: "Ranks reversed by load",
        says: "At 8192 bytes load reverses the ranks of mempipe_spin and shmem_pipe, and of tcp and unix.",
        rule: "The ratio of the two throughputs, idle and loaded. Confirmed: for both pairs, one interval lies above 1 and the other below. Not confirmed: for \
               one pair, both lie on the same side.",
    };
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    for (a, b) in [("mempipe_spin", "shmem_pipe"), ("tcp", "unix")] {
        let of = |loaded: bool| {
            ratio(&at(evidence, a, rate, LARGEST, loaded), &at(evidence, b, rate, LARGEST, loaded))
        };
        let (Some(quiet), Some(busy)) = (of(false), of(true)) else { continue };
        figures.push(Figure::new(format!("{a} over {b}, idle"), Quantity::Number, quiet));
        figures.push(Figure::new(format!("{a} over {b}, loaded"), Quantity::Number, busy));
        let side = |r: &crate::estimate::Estimate| match () {
            () if !enough(r) => 0,
            () if r.low > 1.0 => 1,
            () if r.high < 1.0 => -1,
            () => 0,
        };
        calls.push(match side(&quiet) * side(&busy) {
            -1 => Call::Holds,
            1 => Call::Fails,
            // Both intervals must lie clear of 1.
            _ => all([quiet, busy].map(|r| match side(&r) {
                0 => Call::open(&r, &[1.0]),
                _ => Call::Holds,
            })),
        });
    }
    if calls.len() < 2 {
        return claim
            .without_records(evidence.missing("one-way trials with and without load", PLAN));
    }
    let why = reversals::in_words(&evidence.run.records);
    claim.judged(PLACE, figures, all(calls), why)
}

/// Judges the part of the study's claim E9 about the pipe.
fn pipe_keeps_most(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E9 pipe",
        title: "The pipe under load",
        says: "At the largest size the pipe is less sensitive to load than the others.",
        rule: "Throughput loaded over idle at 8192 bytes. Confirmed: the pipe's interval lies above that of each other mechanism. Not confirmed: it lies below that of one.",
    };
    let Some(pipe) = kept(evidence, "pipe", rate, LARGEST) else {
        return claim
            .without_records(evidence.missing("one-way trials with and without load", PLAN));
    };
    let mut figures = vec![Figure::new("pipe: loaded over idle", Quantity::Number, pipe)];
    let mut calls = Vec::new();
    for (way, _) in WAYS.iter().filter(|(way, _)| *way != "pipe") {
        let Some(other) = kept(evidence, way, rate, LARGEST) else { continue };
        figures.push(Figure::new(format!("{way}: loaded over idle"), Quantity::Number, other));
        calls.push(larger(&pipe, &other));
    }
    let why = format!(
        "the pipe retains a larger share of its throughput than {} of {} others",
        calls.iter().filter(|c| **c == Call::Holds).count(),
        calls.len()
    );
    if calls.is_empty() {
        return claim.judged(PLACE, figures, Verdict::NotMeasurable, why);
    }
    claim.judged(PLACE, figures, all(calls), why)
}

/// Judges the part of the study's claim E10 about the spinning ring.
fn spinning_costs(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E10 spin",
        title: "Bits per CPU-second of spinning",
        says: "Under load mempipe carries more bits per CPU-second than mempipe_spin at the two largest sizes: the throughput of spinning costs CPU time (Figure 6).",
        rule: "Payload bits per CPU-second of both roles, under load, at 1024 and 8192 bytes. Confirmed: the interval of mempipe over mempipe_spin lies above \
               1 at both.",
    };
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    for bytes in [1024, LARGEST] {
        let of = |way: &str| at(evidence, way, bits_per_cpu_s, bytes, true);
        let Some(r) = ratio(&of("mempipe"), &of("mempipe_spin")) else { continue };
        figures.push(Figure::new(
            format!("mempipe over mempipe_spin, {}", size(bytes)),
            Quantity::Number,
            r,
        ));
        calls.push(above(&r, 1.0));
    }
    if calls.len() < 2 {
        return claim.without_records(evidence.missing("one-way trials under load", PLAN));
    }
    claim.judged(
        PLACE,
        figures,
        all(calls),
        "bits per CPU-second of both roles together, under load",
    )
}

/// Judges the part of the study's claim E10 about the most efficient mechanism.
fn most_efficient(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E10 best",
        title: "Most bits per CPU-second",
        says: "Under load shmem_pipe carries the most bits per CPU-second at 8192 bytes (Figure 6).",
        rule: "Confirmed: the interval of shmem_pipe over each other mechanism lies above 1. Not confirmed: one of them does not.",
    };
    let of = |way: &str| at(evidence, way, bits_per_cpu_s, LARGEST, true);
    let best = of("shmem_pipe");
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    for (way, _) in WAYS.iter().filter(|(way, _)| *way != "shmem_pipe") {
        let Some(r) = ratio(&best, &of(way)) else { continue };
        figures.push(Figure::new(format!("shmem_pipe over {way}"), Quantity::Number, r));
        calls.push(above(&r, 1.0));
    }
    if calls.is_empty() {
        return claim.without_records(evidence.missing("one-way trials under load", PLAN));
    }
    let why = format!(
        "shmem_pipe is ahead of {} of {} others",
        calls.iter().filter(|c| **c == Call::Holds).count(),
        calls.len()
    );
    claim.judged(PLACE, figures, all(calls), why)
}
