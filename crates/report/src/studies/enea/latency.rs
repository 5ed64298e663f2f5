//! The study's Figure 12 and Tables 1 and 2: round trips between pairs of CPUs (items E16 to E18).

use crossway_records::inputs::{Placement, Workload};
use crossway_records::record::Record;
use crossway_records::stats::Estimate;

use super::super::call::{above, all, equal, in_words, mostly};
use super::super::evidence::{inverse, ratio};
use super::published::COLUMNS;
use super::{Call, Claim, Evidence, Figure, Finding, PLAN, larger, plain, round_trip};
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

/// The round trips of a mechanism over all pairs together.
struct OverPairs {
    ns: Vec<f64>,
    /// Number of trials of the pair that has the fewest.
    trials_per_pair: usize,
}

impl OverPairs {
    /// Returns the ratio of the medians to those of `under`. Its number of trials is that of the pair with the fewest:
    /// many pairs with few trials each decide nothing.
    fn ratio(&self, under: &OverPairs) -> Option<Estimate> {
        let n = self.trials_per_pair.min(under.trials_per_pair);
        Some(Estimate { n, ..ratio(&self.ns, &under.ns)? })
    }
}

/// Returns the round trips over all pairs together, with both ends on one CPU or on two.
fn over_pairs(evidence: &Evidence<'_>, id: &str, one_cpu: bool, loaded: bool) -> OverPairs {
    let pairs = pairs(&evidence.run.records);
    let wanted = pairs.into_iter().filter(|(a, b)| (a == b) == one_cpu);
    let trips = wanted.map(|pair| trips(evidence, id, pair, loaded));
    let measured: Vec<Vec<f64>> = trips.filter(|trips| !trips.is_empty()).collect();
    let trials_per_pair = measured.iter().map(Vec::len).min().unwrap_or(0);
    OverPairs { ns: measured.concat(), trials_per_pair }
}

fn missing(claim: Claim, evidence: &Evidence<'_>) -> Finding {
    claim.without_records(evidence.missing("round trips between pairs of CPUs", PLAN))
}

fn one_core(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E16",
        title: "Pairs of cores",
        says: "A heat map of the latency through a flag in shared memory shows the NUMA nodes as a checkerboard. \
               Latency is far larger with both ends on one core (Figure 12).",
        rule: "The ratio of the round trips of shm-futex with both ends on one CPU to those between two CPUs; its ends \
               sleep, because spinning ends on one CPU are refused. Confirmed: the interval lies above 2. Not \
               confirmed: it lies below 2, or within 5 % of it.",
    };
    let of = |one_cpu| over_pairs(evidence, "shm-futex", one_cpu, false);
    let Some(r) = of(true).ratio(&of(false)) else { return missing(claim, evidence) };
    let figures = vec![Figure::new("shm-futex: one CPU / two CPUs", Quantity::Number, r)];
    let why = "the study's ends spin, so on one core each waits until the other's time slice ends; an end that sleeps \
               yields its core to the peer. The checkerboard is not judged; see the heat map in this report";
    claim.judged(PLACE, figures, above(&r, 2.0), why)
}

fn shortest(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E17 shm",
        title: "Shortest round trip",
        says: "Shared memory (spinning) has the shortest round trips: 0.13 to 0.58 µs against 4.8 to 36 µs (Table 1).",
        rule: "The ratios of the round trips of pipe, tcp and uds-stream between two CPUs to those of shm-spin. \
               Confirmed: all intervals lie above 1. Not confirmed: one lies below 1, or within 5 % of it.",
    };
    let shm = over_pairs(evidence, "shm-spin", false, false);
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    for (_, id) in COLUMNS.iter().skip(1) {
        let Some(r) = over_pairs(evidence, id, false, false).ratio(&shm) else { continue };
        figures.push(Figure::new(format!("{id} / shm-spin"), Quantity::Number, r));
        calls.push(above(&r, 1.0));
    }
    if calls.is_empty() {
        return missing(claim, evidence);
    }
    let why = format!(
        "shm-spin is faster than the other mechanism: {}",
        in_words(&calls, "for", "mechanism", "mechanisms")
    );
    claim.judged(PLACE, figures, all(calls), why)
}

fn tcp_longest(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E17 tcp",
        title: "Longest round trip",
        says: "tcp tends to have longer round trips than pipe and unix (Table 1).",
        rule: "The ratios of tcp's round trips to those of pipe and of uds-stream, for pairs of two CPUs and for each \
               CPU with itself. Confirmed: all intervals lie above 1. Not confirmed: one lies below 1, or within 5 % \
               of it.",
    };
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    // Round trips within a CPU are many times shorter than others, so that ratios over both together would mean
    // nothing.
    for (one_cpu, place) in [(false, "two CPUs"), (true, "one CPU")] {
        let of = |id: &str| over_pairs(evidence, id, one_cpu, false);
        for id in ["pipe", "uds-stream"] {
            let Some(r) = of("tcp").ratio(&of(id)) else { continue };
            figures.push(Figure::new(format!("tcp / {id}, {place}"), Quantity::Number, r));
            calls.push(above(&r, 1.0));
        }
    }
    if calls.len() < 2 {
        return missing(claim, evidence);
    }
    let why = format!(
        "the round trips of tcp are longer: {}; the ratios for two CPUs cover all such pairs together, those for one CPU all \
         pairs of a CPU with itself",
        in_words(&calls, "in", "comparison", "comparisons")
    );
    claim.judged(PLACE, figures, all(calls), why)
}

/// Returns the ratio of a mechanism's round trips under load to those without load.
fn slowed(evidence: &Evidence<'_>, id: &str, one_cpu: bool) -> Option<Estimate> {
    over_pairs(evidence, id, one_cpu, true).ratio(&over_pairs(evidence, id, one_cpu, false))
}

fn least_sensitive(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E18",
        title: "Round trips under load",
        says: "Shared memory is least sensitive to load. Pipe and unix show values of up to 110 and 116 µs, tcp does \
               not (Table 2).",
        rule: "The ratio of the round trips under load to those without load, between two CPUs. Confirmed: the \
               interval of each other mechanism lies above that of shm-spin. Not confirmed: one lies below it.",
    };
    let Some(shm) = slowed(evidence, "shm-spin", false) else { return missing(claim, evidence) };
    let mut figures =
        vec![Figure::new("shm-spin: under load / without load", Quantity::Number, shm)];
    let mut calls = Vec::new();
    for (_, id) in COLUMNS.iter().skip(1) {
        let Some(other) = slowed(evidence, id, false) else { continue };
        figures.push(Figure::new(
            format!("{id}: under load / without load"),
            Quantity::Number,
            other,
        ));
        calls.push(larger(&other, &shm));
    }
    if calls.is_empty() {
        return missing(claim, evidence);
    }
    let worst = |id: &str| {
        let all = over_pairs(evidence, id, false, true);
        all.ns.into_iter().fold(0.0, f64::max)
    };
    let told: Vec<String> = COLUMNS
        .iter()
        .map(|(_, id)| (id, worst(id)))
        .filter(|(_, ns)| *ns > 0.0)
        .map(|(id, ns)| format!("{id} {}", Quantity::Duration.show(ns)))
        .collect();
    let why = format!(
        "load lengthens the other mechanism's round trips by a larger factor than shm-spin's: {}; largest median round \
         trip of a trial under load: {}",
        in_words(&calls, "for", "mechanism", "mechanisms"),
        told.join(", ")
    );
    claim.judged(PLACE, figures, all(calls), why)
}

fn one_core_under_load(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E18 one core",
        title: "One core under load",
        says: "With both ends on one core the sensitivity to load tends to be low for pipe, tcp and unix (Tables 1 and \
               2).",
        rule: "The ratio of the round trips under load to those without load, with both ends on one CPU. Confirmed: \
               its interval lies within 0.8 to 1.25 for each of the three. Not confirmed: it lies wholly outside for \
               one.",
    };
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    for (_, id) in COLUMNS.iter().skip(1) {
        let Some(r) = slowed(evidence, id, true) else { continue };
        figures.push(Figure::new(format!("{id}: under load / without load"), Quantity::Number, r));
        calls.push(equal(&r));
    }
    if calls.is_empty() {
        return missing(claim, evidence);
    }
    let why = format!(
        "load changes the round trips by 25 % or less: {}; each figure covers all pairs of a CPU with itself",
        in_words(&calls, "for", "mechanism", "mechanisms")
    );
    claim.judged("this machine, one CPU", figures, all(calls), why)
}

fn faster_under_load(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E18 faster",
        title: "Faster under load",
        says: "Between two cores mempipe and tcp are faster under load than without (Tables 1 and 2). The study gives \
               no reason.",
        rule: "The ratio of the round trips under load to those without load, between two CPUs, for shm-spin (which \
               stands for the study's mempipe) and for tcp. Confirmed: both intervals lie below 1. Not confirmed: one \
               lies above 1, or within 5 % of it.",
    };
    let mut figures = Vec::new();
    let mut calls = Vec::new();
    for id in ["shm-spin", "tcp"] {
        let Some(r) = slowed(evidence, id, false) else { continue };
        figures.push(Figure::new(format!("{id}: under load / without load"), Quantity::Number, r));
        calls.push(above(&inverse(&r), 1.0));
    }
    if calls.len() < 2 {
        return missing(claim, evidence);
    }
    let reason = match calls.contains(&Call::Holds) {
        true => {
            "; the reason is unknown, because neither the processor's frequency nor its idle states were recorded with \
             these trials"
        }
        false => "",
    };
    let why = format!(
        "faster under load: {}{reason}",
        in_words(&calls, "for", "mechanism", "mechanisms")
    );
    claim.judged(PLACE, figures, all([mostly(&calls), all(calls.clone())]), why)
}
