//! Enea 2014: mechanisms of the kernel within one machine, without load and under load (items E8 to E19 and E23).

mod colours;
mod latency;
mod others;
mod placements;
mod published;
mod reversals;
mod sizes;
mod table_3;
mod tables;
mod throughput;

use crossway_records::inputs::{Placement, Wait, Workload};
use crossway_records::limits::{ControlRate, RATES_TOO_LARGE};
use crossway_records::record::Record;
use crossway_records::stats::Estimate;

use super::call::{Call, in_a_word, larger};
use super::evidence::{Evidence, ratio};
use super::{Claim, Figure, Finding, Study, Verdict};
use crate::units::Quantity;

pub(crate) use tables::section;

pub(super) const PLAN: &str = "enea";

/// The names that the study gives to mechanisms, with the corresponding mechanisms here.
const WAYS: [(&str, &str); 6] = [
    ("mempipe", "shm-futex"),
    ("mempipe_spin", "shm-spin"),
    ("pipe", "pipe"),
    ("shmem_pipe", "shm-pipe"),
    ("tcp", "tcp"),
    ("unix", "uds-stream"),
];

/// Returns whether the study calls a mechanism by this name.
pub(super) fn is_way(name: &str) -> bool {
    WAYS.iter().any(|(way, _)| *way == name)
}

/// Explains why the pipe is not compared with other mechanisms.
const NOTHING_BESIDE: &str =
    "no mechanism besides the pipe was measured both without load and under load";

/// Returns all findings of the study.
pub(super) fn study(evidence: &Evidence<'_>) -> Study {
    let mut findings = vec![control_plane(evidence)];
    findings.extend(throughput::findings(evidence));
    findings.extend(sizes::findings(evidence));
    findings.extend(placements::findings(evidence));
    findings.extend(latency::findings(evidence));
    findings.push(layers(evidence));
    findings.push(table_3::finding(evidence.run));
    Study {
        plan: PLAN,
        trials: evidence.planned_trials(),
        title: "Enea, 2014: IPC mechanisms within one machine",
        setup: "Intel Core i5-3320M at 2.6 GHz with two cores of two hardware threads each, measured with ipc-bench. \
                The values plotted in the study's figures are lost; those of its tables are shown in the report of the \
                plan `enea`. The study's mempipe corresponds to shm-futex here, mempipe_spin to shm-spin, shmem_pipe \
                to shm-pipe, and unix to uds-stream.",
        findings,
    }
}

/// A figure of a trial; `None` if the trial lacks it.
type Of = fn(&Record) -> Option<f64>;

fn bits_per_cpu_s(record: &Record) -> Option<f64> {
    record.cost.map(|c| c.bits_per_cpu_s).filter(|b| *b > 0.0)
}

fn round_trip(record: &Record) -> Option<f64> {
    crossway_records::figure::Figure::ROUND_TRIP.of(record)
}

/// Returns whether a trial ran on this machine, with the mechanism's default way of waiting and default capacity.
fn plain(record: &Record) -> bool {
    let spins = record.mechanism == "shm-spin";
    let wait = record.inputs.wait;
    plain_but_for_waiting(record) && (wait == Wait::Block || spins && wait == Wait::Spin)
}

/// Returns the same as [`plain`], but accepts any way of waiting.
fn plain_but_for_waiting(record: &Record) -> bool {
    let i = &record.inputs;
    i.testbed.is_none() && i.capacity_bytes.is_none() && i.socket_buffer_bytes.is_none()
}

fn idle(record: &Record) -> bool {
    record.inputs.load.is_idle()
}

fn one_way(record: &Record, size: u64, placement: Placement) -> bool {
    let i = &record.inputs;
    i.workload == Workload::Throughput
        && i.size_bytes == size
        && i.placement == placement
        && plain(record)
}

/// Returns the figures of the trials of the study's mechanism `way` that satisfy `wanted`.
fn figures(
    evidence: &Evidence<'_>,
    way: &str,
    of: Of,
    wanted: impl Fn(&Record) -> bool,
) -> Vec<f64> {
    let id = WAYS.iter().find(|(name, _)| *name == way).map_or(way, |(_, id)| *id);
    evidence.of(id, wanted).into_iter().filter_map(of).collect()
}

/// Returns the figures of the one-way trials between two cores at a size.
fn at(evidence: &Evidence<'_>, way: &str, of: Of, size: u64, loaded: bool) -> Vec<f64> {
    let wanted = |r: &Record| one_way(r, size, Placement::OtherCore) && idle(r) != loaded;
    figures(evidence, way, of, wanted)
}

/// Returns the sizes that have one-way trials with this placement, in ascending order.
fn sizes_of(evidence: &Evidence<'_>, placement: Placement) -> Vec<u64> {
    let here = |r: &&Record| one_way(r, r.inputs.size_bytes, placement);
    let mut sizes: Vec<u64> =
        evidence.run.records.iter().filter(here).map(|r| r.inputs.size_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Returns the ratio of a mechanism's figure under load to its figure without load.
fn kept(evidence: &Evidence<'_>, way: &str, of: Of, size: u64) -> Option<Estimate> {
    ratio(&at(evidence, way, of, size, true), &at(evidence, way, of, size, false))
}

/// Judges the study's claim E5, about the control plane.
fn control_plane(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E5",
        title: "The control plane",
        says: "A kernel patch halved the time of a microbenchmark in which four threads make a million IPC_STAT calls \
               on System V shared memory.",
        rule: "Calls per second of one thread and of four, each with a System V object of its own. The claim is not \
               judged, because there is no kernel from before the patch to compare with.",
    };
    let limits = evidence.run.limits.0.as_ref();
    let rates = limits.map_or(&[][..], |limits| &limits.control);
    let figures: Vec<Figure> = rates
        .iter()
        .filter(|c| c.object.starts_with("sysv") && c.threads != 2 && !c.is_too_large())
        .map(|c| {
            let threads = if c.threads == 1 { "thread" } else { "threads" };
            let what = format!("{}, {}, {} {threads}", c.object, c.operation, c.threads);
            Figure::new(what, Quantity::CallRate, crate::limits::estimate(&c.per_s))
        })
        .collect();
    if figures.is_empty() {
        let why = "the run's limits.json is missing or has no rates of System V calls; `crossway measure enea` \
                   measures them";
        return claim.without_records(why.to_owned());
    }
    let mut why =
        "current kernels include the patch; the report lists the other rates under Physical limits"
            .to_owned();
    if rates.iter().any(ControlRate::is_too_large) {
        why = format!("{RATES_TOO_LARGE} They are left out. Besides, {why}");
    }
    claim.judged("this machine", figures, Verdict::NotMeasurable, why)
}

/// Judges the study's claim E19 (Figure 13), about the cost of the LINX API.
fn layers(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E19",
        title: "What the LINX API costs",
        says: "The LINX API on FIFOs and on UNIX sockets reduces throughput with small messages; with larger ones the \
               overhead shrinks. At the largest size, LINX on sockets is faster than Enea's own LINX for Linux.",
        rule: "The ratio of the throughput of each linx-* mechanism to that of the mechanism that it uses. Confirmed: \
               each ratio is below 1 at the smallest size, and larger at the largest size. Not confirmed: for one \
               mechanism, one of the two is false.",
    };
    let sizes = sizes_of(evidence, Placement::OtherCore);
    let has =
        |id: &str, size: u64| -> Vec<f64> { at(evidence, id, super::evidence::rate, size, false) };
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    let mut told = Vec::new();
    for (layer, below) in
        [("linx-fifo", "fifo"), ("linx-uds", "uds-stream"), ("linx-shm", "shm-futex")]
    {
        let both: Vec<u64> = sizes
            .iter()
            .copied()
            .filter(|s| !has(layer, *s).is_empty() && !has(below, *s).is_empty())
            .collect();
        let (Some(small), Some(large)) = (both.first(), both.last()) else { continue };
        let at = |size: u64| ratio(&has(layer, size), &has(below, size));
        let (Some(small_ratio), Some(large_ratio)) = (at(*small), at(*large)) else { continue };
        let figure = |size: &u64, r| {
            let what = format!("{layer} / {below}, {}", crate::units::size(*size));
            Figure::new(what, Quantity::Number, r)
        };
        let slower = super::call::above(&super::evidence::inverse(&small_ratio), 1.0);
        figures.push(figure(small, small_ratio));
        calls.push(slower);
        let words = format!(
            "{layer} is slower than {below} at {}: {}",
            crate::units::size(*small),
            in_a_word(slower)
        );
        if small == large {
            calls.push(Call::Lacking);
            told.push(format!("{words} (no other size was measured)"));
            continue;
        }
        let shrinks = larger(&large_ratio, &small_ratio);
        figures.push(figure(large, large_ratio));
        calls.push(shrinks);
        told.push(format!(
            "{words}, and its ratio is larger at {}: {}",
            crate::units::size(*large),
            in_a_word(shrinks)
        ));
    }
    if calls.is_empty() {
        let why = "this run has no trials of a linx-* mechanism and of the mechanism that it uses at the same size; \
                   `crossway measure enea` measures them";
        return claim.without_records(why.to_owned());
    }
    let call = super::call::all(calls);
    if call == Call::Lacking {
        told.push(format!("`crossway measure {PLAN}` measures more sizes"));
    }
    claim.judged("this machine", figures, call, told.join("; "))
}
