//! The study's Figure 12 and Tables 1 and 2: round trips between pairs of CPUs (items E16 to E18).

use crossway_lab::inputs::{Placement, Workload};
use crossway_lab::record::Record;

use super::super::call::{above, all, equal, mostly};
use super::super::evidence::{inverse, ratio};
use super::published::COLUMNS;
use super::{Call, Claim, Evidence, Figure, Finding, PLAN, larger, plain, round_trip};
use crate::estimate::Estimate;
use crate::units::Quantity;

const PLACE: &str = "this machine, every pair of CPUs";

pub(super) fn findings(evidence: &Evidence<'_>) -> Vec<Finding> {
    vec![
        one_core(evidence),
        shortest(evidence),
        tcp_longest(evidence),
        least_sensitive(evidence),
        one_core_under_load(evidence),
        faster_under_load(evidence),
    ]
}

/// Returns the pairs of CPUs that the run measured.
pub(super) fn pairs(records: &[Record]) -> Vec<(u32, u32)> {
    let mut pairs: Vec<(u32, u32)> = records
        .iter()
        .filter(|r| r.inputs.workload == Workload::PingPong && r.inputs.testbed.is_none())
        .filter_map(|r| match r.inputs.placement {
            Placement::Cpus { a, b } => Some((a, b)),
            _ => None,
        })
        .collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// Returns the round trips of a mechanism between two CPUs, one per trial.
pub(super) fn trips(
    evidence: &Evidence<'_>,
    id: &str,
    (a, b): (u32, u32),
    loaded: bool,
) -> Vec<f64> {
    let wanted = |r: &Record| {
        r.inputs.workload == Workload::PingPong
            && r.inputs.placement == Placement::Cpus { a, b }
            && r.inputs.load.is_idle() != loaded
            && plain(r)
    };
    evidence.of(id, wanted).into_iter().filter_map(round_trip).collect()
}

/// Returns the round trips over all pairs together, with both ends on one CPU or on two.
fn over_pairs(evidence: &Evidence<'_>, id: &str, one_cpu: bool, loaded: bool) -> Vec<f64> {
    let pairs = pairs(&evidence.run.records);
    let wanted = pairs.into_iter().filter(|(a, b)| (a == b) == one_cpu);
    wanted.flat_map(|pair| trips(evidence, id, pair, loaded)).collect()
}

fn missing(claim: Claim, evidence: &Evidence<'_>) -> Finding {
    claim.without_records(evidence.missing("round trips between pairs of CPUs", PLAN))
}

fn one_core(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E16",
        title: "Pairs of cores",
        says: "Latency through a flag in shared memory shows a checkerboard of NUMA nodes, and is far larger with both ends on one core (Figure 12).",
        rule: "Round trips through shared memory with sleeping ends: both ends on one CPU over those on two; spinning ends on one CPU are refused. Confirmed: \
               the interval lies above 2.",
    };
    let of = |one_cpu| over_pairs(evidence, "shm-futex", one_cpu, false);
    let Some(r) = ratio(&of(true), &of(false)) else { return missing(claim, evidence) };
    let figures = vec![Figure::new("shm-futex: one CPU over two", Quantity::Number, r)];
    let why = "the study's ends spin, so on one core each waits for the other's time slice to end; an end that sleeps yields its core to the peer. The heat map shows \
               NUMA nodes and clusters";
    claim.judged(PLACE, figures, above(&r, 2.0), why)
}

fn shortest(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E17 shm",
        title: "Shortest round trip",
        says: "Shared memory (spinning) has the shortest round trips: 0.13 to 0.58 us against 4.8 to 36 us (Table 1).",
        rule: "Pairs of two CPUs. Confirmed: the interval of each other mechanism over shm-spin lies above 1.",
    };
    let shm = over_pairs(evidence, "shm-spin", false, false);
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    for (_, id) in COLUMNS.iter().skip(1) {
        let Some(r) = ratio(&over_pairs(evidence, id, false, false), &shm) else { continue };
        figures.push(Figure::new(format!("{id} over shm-spin"), Quantity::Number, r));
        calls.push(above(&r, 1.0));
    }
    if calls.is_empty() {
        return missing(claim, evidence);
    }
    claim.judged(
        PLACE,
        figures,
        all(calls),
        "the study's figures are shown beside ours in Table 1 below",
    )
}

fn tcp_longest(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E17 tcp",
        title: "Longest round trip",
        says: "tcp tends to have longer round trips than pipe and unix (Table 1).",
        rule: "Pairs of two CPUs, and one CPU with itself. Confirmed: the intervals of tcp over pipe and over unix lie above 1 in both.",
    };
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    // Round trips within a CPU are many times shorter than others, so that ratios over both together would mean
    // nothing.
    for (one_cpu, place) in [(false, "two CPUs"), (true, "one CPU")] {
        let of = |id: &str| over_pairs(evidence, id, one_cpu, false);
        for id in ["pipe", "uds-stream"] {
            let Some(r) = ratio(&of("tcp"), &of(id)) else { continue };
            figures.push(Figure::new(format!("tcp over {id}, {place}"), Quantity::Number, r));
            calls.push(above(&r, 1.0));
        }
    }
    if calls.len() < 2 {
        return missing(claim, evidence);
    }
    claim.judged(PLACE, figures, all(calls), "pairs of two CPUs together, and each CPU with itself")
}

/// Returns the ratio of a mechanism's round trips under load to those when idle.
fn slowed(evidence: &Evidence<'_>, id: &str, one_cpu: bool) -> Option<Estimate> {
    ratio(&over_pairs(evidence, id, one_cpu, true), &over_pairs(evidence, id, one_cpu, false))
}

fn least_sensitive(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E18",
        title: "Round trips under load",
        says: "Shared memory is least sensitive to load; pipe and unix show values up to 110 and 116 us, tcp does not (Table 2).",
        rule: "Pairs of two CPUs, loaded over idle. Confirmed: the interval of each other mechanism lies above that of shm-spin.",
    };
    let Some(shm) = slowed(evidence, "shm-spin", false) else { return missing(claim, evidence) };
    let mut figures = vec![Figure::new("shm-spin: loaded over idle", Quantity::Number, shm)];
    let mut calls = Vec::new();
    for (_, id) in COLUMNS.iter().skip(1) {
        let Some(other) = slowed(evidence, id, false) else { continue };
        figures.push(Figure::new(format!("{id}: loaded over idle"), Quantity::Number, other));
        calls.push(larger(&other, &shm));
    }
    if calls.is_empty() {
        return missing(claim, evidence);
    }
    let worst = |id: &str| {
        let all = over_pairs(evidence, id, false, true);
        all.into_iter().fold(0.0, f64::max)
    };
    let told: Vec<String> = COLUMNS
        .iter()
        .map(|(_, id)| format!("{id} {}", Quantity::Duration.show(worst(id))))
        .collect();
    claim.judged(
        PLACE,
        figures,
        all(calls),
        format!("largest median of a trial under load: {}", told.join(", ")),
    )
}

fn one_core_under_load(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E18 one core",
        title: "One core under load",
        says: "With both ends on one core the sensitivity to load tends to be low for pipe, tcp and unix (Tables 1 and 2).",
        rule: "Confirmed: the interval of loaded over idle lies within 0.8 to 1.25 for each of the three.",
    };
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    for (_, id) in COLUMNS.iter().skip(1) {
        let Some(r) = slowed(evidence, id, true) else { continue };
        figures.push(Figure::new(format!("{id}: loaded over idle"), Quantity::Number, r));
        calls.push(equal(&r));
    }
    if calls.is_empty() {
        return missing(claim, evidence);
    }
    claim.judged("this machine, one CPU", figures, all(calls), "each CPU with itself")
}

fn faster_under_load(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E18 faster",
        title: "Faster under load",
        says: "Between two cores mempipe and tcp are faster under load than without (Tables 1 and 2). The study gives no reason.",
        rule: "Pairs of two CPUs, loaded over idle. Confirmed: both intervals lie below 1.",
    };
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    for id in ["shm-spin", "tcp"] {
        let Some(r) = slowed(evidence, id, false) else { continue };
        figures.push(Figure::new(format!("{id}: loaded over idle"), Quantity::Number, r));
        calls.push(above(&inverse(&r), 1.0));
    }
    if calls.len() < 2 {
        return missing(claim, evidence);
    }
    let faster = calls.contains(&Call::Holds);
    let why = if faster {
        "the reason is unknown: neither the processor's frequency nor its idle states were recorded with these trials"
    } else {
        "nothing was faster under load, so there is nothing to explain"
    };
    claim.judged(PLACE, figures, all([mostly(&calls), all(calls.clone())]), why)
}
