//! The study's Figures 7 and 8: throughput by message size (items E11 and E12).

use std::collections::BTreeSet;

use crossway_records::inputs::Placement;
use crossway_records::record::Record;
use crossway_records::sorting::CollectTree;
use crossway_records::stats::Estimate;

use super::super::call::{above, all, at_all_sizes, few_sizes, in_words, mostly};
use super::super::evidence::{inverse, rate, ratio};
use super::{
    Call, Claim, Evidence, Figure, Finding, NOTHING_BESIDE, PLAN, Verdict, WAYS, at, idle, kept,
    larger, one_way, sizes_of,
};
use crate::units::{Quantity, size};

pub(super) const PLACE: &str = "this machine, two cores";
/// Minimum size of a large message, bytes (Figure 9 ends here).
pub(super) const LARGE: u64 = 16_000;
/// Minimum ratio of the throughputs at two neighbouring sizes that counts as a drop in throughput.
const DROP: f64 = 1.1;

pub(super) fn findings(evidence: &Evidence<'_>) -> Vec<Finding> {
    vec![
        shape(evidence),
        order(evidence),
        pipe_drop(evidence, false),
        pipe_size(evidence),
        pipe_at_100k(evidence),
        pipe_drop(evidence, true),
        closer(evidence),
    ]
}

/// Returns the ratio of a mechanism's throughput at size `from` to that at size `to`.
fn step(evidence: &Evidence<'_>, way: &str, from: u64, to: u64, loaded: bool) -> Option<Estimate> {
    ratio(&at(evidence, way, rate, from, loaded), &at(evidence, way, rate, to, loaded))
}

/// Returns the ratio of the throughput of mechanism `a` to that of `b`.
fn pair(evidence: &Evidence<'_>, a: &str, b: &str, bytes: u64, loaded: bool) -> Option<Estimate> {
    ratio(&at(evidence, a, rate, bytes, loaded), &at(evidence, b, rate, bytes, loaded))
}

fn shape(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E11 shape",
        title: "Throughput by message size",
        says: "Throughput rises with the message size as long as messages are small, and levels off with large ones \
               (Figure 7).",
        rule: "Two claims per mechanism: throughput with 4000-byte messages is higher than with 64-byte messages, and \
               throughput with 256 KiB is 0.5 to 2 times that with 64 KiB. Confirmed: at most one in twenty of the \
               decided claims fails. Not confirmed: more fail. Undecided: fewer than half are decided, unless three \
               fail.",
    };
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    for (way, _) in WAYS {
        if let Some(rise) = step(evidence, way, 4000, 64, false) {
            figures.push(Figure::new(format!("{way}: 4000 B / 64 B"), Quantity::Number, rise));
            calls.push(above(&rise, 1.0));
        }
        if let Some(flat) = step(evidence, way, 262_144, 65_536, false) {
            let what = format!("{way}: 256 KiB / 64 KiB");
            figures.push(Figure::new(what, Quantity::Number, flat));
            calls.push(all([above(&flat, 0.5), above(&inverse(&flat), 0.5)]));
        }
    }
    if calls.is_empty() {
        return claim.without_records(
            evidence.missing("one-way trials of 64, 4000, 65,536 and 262,144 bytes", PLAN),
        );
    }
    let why = format!(
        "throughput rises and levels off as claimed: {}",
        in_words(&calls, "for", "claim", "claims")
    );
    claim.judged(PLACE, figures, mostly(&calls), why)
}

fn order(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E11 order",
        title: "Order of the mechanisms with large messages",
        says: "With larger messages the pipe is slower than tcp, tcp is slower than unix, and unix is slower than the \
               three mechanisms that use shared memory (Figure 7).",
        rule: "The throughput ratios tcp / pipe, unix / tcp, mempipe / unix, mempipe_spin / unix and shmem_pipe / \
               unix at sizes from 16,000 bytes on. Confirmed: each ratio's interval lies above 1 at all but at most one in twenty of the decided sizes. \
               Not confirmed: at more of them, one ratio's interval lies below 1 or within 5 % of it. Undecided: \
               fewer than half of the sizes are decided, unless three contradict.",
    };
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    let mut told = Vec::new();
    let mut unmeasured = Vec::new();
    let mut fewest = usize::MAX;
    for (a, b) in [
        ("tcp", "pipe"),
        ("unix", "tcp"),
        ("mempipe", "unix"),
        ("mempipe_spin", "unix"),
        ("shmem_pipe", "unix"),
    ] {
        let sizes = sizes_of(evidence, Placement::OtherCore);
        let ratios: Vec<(u64, Estimate)> = sizes
            .into_iter()
            .filter(|s| *s >= LARGE)
            .filter_map(|s| Some((s, pair(evidence, a, b, s, false)?)))
            .collect();
        let of: Vec<Call> = ratios.iter().map(|(_, r)| above(r, 1.0)).collect();
        let Some((bytes, r)) = ratios.get(ratios.len() / 2) else {
            unmeasured.push(format!("{a} and {b}"));
            continue;
        };
        fewest = fewest.min(of.len());
        figures.push(Figure::new(format!("{a} / {b}, {}", size(*bytes)), Quantity::Number, *r));
        told.push(format!("{a} is faster than {b}: {}", in_words(&of, "at", "size", "sizes")));
        calls.push(at_all_sizes(mostly(&of), &of));
    }
    if calls.is_empty() {
        return claim.without_records(evidence.missing("one-way trials of large messages", PLAN));
    }
    if !unmeasured.is_empty() {
        calls.push(Call::Lacking);
        told.push(format!(
            "not measured with messages of the same size: {}",
            unmeasured.join(", ")
        ));
    }
    let call = all(calls);
    let why = format!("{}{}", told.join("; "), few_sizes(call, fewest, PLAN));
    claim.judged(PLACE, figures, call, why)
}

fn pipe_drop(evidence: &Evidence<'_>, loaded: bool) -> Finding {
    let claim = Claim {
        id: if loaded { "E12 drop" } else { "E11 drop" },
        title: if loaded {
            "The pipe's drop near 64 KiB, under load"
        } else {
            "The pipe's drop near 64 KiB"
        },
        says: if loaded {
            "The drop of the pipe's throughput near 64 KiB remains under load (Figure 8)."
        } else {
            "The pipe's throughput drops abruptly near 64 KiB, the size of its buffer (Figure 7)."
        },
        rule: "The ratio of the pipe's throughput with messages of 56 KiB to that with 65 KiB. Confirmed: its interval \
               lies above 1.1. Not confirmed: it lies below 1.1, or within 5 % of it.",
    };
    let Some(drop) = step(evidence, "pipe", 57_344, 66_560, loaded) else {
        return claim
            .without_records(evidence.missing("one-way trials of the pipe around 64 KiB", PLAN));
    };
    let figures = vec![Figure::new("56 KiB / 65 KiB", Quantity::Number, drop)];
    claim.judged(PLACE, figures, above(&drop, DROP), pipe_buffer(evidence, loaded))
}

/// States the pipe's capacity in the trials with sizes around 64 KiB.
fn pipe_buffer(evidence: &Evidence<'_>, loaded: bool) -> String {
    let around = |r: &Record| {
        [57_344, 66_560].iter().any(|bytes| one_way(r, *bytes, Placement::OtherCore))
            && idle(r) != loaded
    };
    let trials = evidence.of("pipe", around);
    let recorded = trials.iter().filter_map(|r| u64::try_from(*r.facts.get("pipe_bytes")?).ok());
    let sizes: BTreeSet<u64> = recorded.collect_tree();
    let words: Vec<String> = sizes.into_iter().map(size).collect();
    match words.is_empty() {
        true => "the records do not say how much the pipe's buffer held".to_owned(),
        false => format!("the pipe's buffer held {}", words.join(" or ")),
    }
}

fn pipe_size(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E11 F_SETPIPE_SZ",
        title: "The pipe's drop and the size of its buffer",
        says: "The cause of the drop is that the pipe's buffer holds 64 KiB, so the drop must move with the buffer \
               size.",
        rule: "With buffers of 16 KiB and of 256 KiB: the ratio of the throughput with messages as large as the buffer \
               to that with messages 4 KiB larger. Confirmed: both intervals lie above 1.1. Not confirmed: one lies \
               below 1.1, or within 5 % of it.",
    };
    let with = |capacity: u64, bytes: u64| -> Vec<f64> {
        let wanted = |r: &Record| {
            let i = &r.inputs;
            i.testbed.is_none()
                && i.capacity_bytes == Some(capacity)
                && i.size_bytes == bytes
                && idle(r)
        };
        evidence.of("pipe", wanted).into_iter().filter_map(rate).collect()
    };
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    for capacity in [16_384, 262_144] {
        let Some(drop) = ratio(&with(capacity, capacity), &with(capacity, capacity + 4096)) else {
            continue;
        };
        let (below, above_it) = (size(capacity), size(capacity + 4096));
        let what = format!("buffer of {below}: messages of {below} / {above_it}");
        figures.push(Figure::new(what, Quantity::Number, drop));
        calls.push(above(&drop, DROP));
    }
    if calls.len() < 2 {
        return claim
            .without_records(evidence.missing("trials of the pipe with other buffer sizes", PLAN));
    }
    let why = format!(
        "the throughput drops where messages exceed the buffer: {} (set with F_SETPIPE_SZ)",
        in_words(&calls, "with", "buffer size", "buffer sizes")
    );
    claim.judged(PLACE, figures, all(calls), why)
}

fn pipe_at_100k(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E11 100K",
        title: "The pipe's second drop",
        says: "The pipe's throughput decreases again around 100 KB; profiling would be needed to find out why (Figure \
               7).",
        rule: "The ratio of the pipe's throughput with messages of 96 KiB to that with 104 KiB. Confirmed: its \
               interval lies above 1.1. Not confirmed: it lies below 1.1, or within 5 % of it.",
    };
    let Some(drop) = step(evidence, "pipe", 98_304, 106_496, false) else {
        return claim
            .without_records(evidence.missing("one-way trials of the pipe around 100 KiB", PLAN));
    };
    let figures = vec![Figure::new("96 KiB / 104 KiB", Quantity::Number, drop)];
    claim.judged(
        PLACE,
        figures,
        above(&drop, DROP),
        "messages larger than the buffer are written in parts",
    )
}

fn closer(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E12",
        title: "Large messages under load",
        says: "Load affects the pipe less than the others, particularly with large messages; tcp and unix come closer \
               to each other (Figure 8).",
        rule: "The ratio of the throughput under load to that without load, with 64 KiB messages. Confirmed: the \
               pipe's interval lies above that of each other mechanism, and the throughputs of unix and tcp differ by \
               a smaller factor under load than without. Not confirmed: one of these comparisons shows the opposite.",
    };
    const BYTES: u64 = 65_536;
    let Some(pipe) = kept(evidence, "pipe", rate, BYTES) else {
        return claim.without_records(
            evidence.missing("one-way trials of 64 KiB both without load and under load", PLAN),
        );
    };
    let mut figures = vec![Figure::new("pipe: under load / without load", Quantity::Number, pipe)];
    let mut calls = Vec::new();
    for (way, _) in WAYS.iter().filter(|(way, _)| *way != "pipe") {
        let Some(other) = kept(evidence, way, rate, BYTES) else { continue };
        figures.push(Figure::new(
            format!("{way}: under load / without load"),
            Quantity::Number,
            other,
        ));
        calls.push(larger(&pipe, &other));
    }
    let [quiet, busy] = [false, true].map(|loaded| pair(evidence, "unix", "tcp", BYTES, loaded));
    if let (Some(quiet), Some(busy)) = (quiet, busy) {
        figures.push(Figure::new("unix / tcp, without load", Quantity::Number, quiet));
        figures.push(Figure::new("unix / tcp, loaded", Quantity::Number, busy));
        let apart = |r: &Estimate| if r.value < 1.0 { inverse(r) } else { *r };
        calls.push(larger(&apart(&quiet), &apart(&busy)));
    }
    let why = format!("the claim holds: {}", in_words(&calls, "in", "comparison", "comparisons"));
    if calls.is_empty() {
        return claim.judged(PLACE, figures, Verdict::NotMeasurable, NOTHING_BESIDE);
    }
    claim.judged(PLACE, figures, all(calls), why)
}
