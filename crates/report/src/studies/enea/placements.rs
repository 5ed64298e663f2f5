//! The pipe beside other mechanisms, in each placement of the study's Figures 9 to 11 (items E13 to
//! E15).

use crossway_records::inputs::Placement;
use crossway_records::stats::Estimate;

use super::super::call::{above, all, at_all_sizes, equal, few_sizes, in_words, mostly};
use super::super::evidence::{rate, ratio};
use super::sizes::{LARGE, PLACE};
use super::{Call, Claim, Evidence, Figure, Finding, PLAN, WAYS, figures, idle, one_way, sizes_of};
use crate::units::{Quantity, size};

pub(super) fn findings(evidence: &Evidence<'_>) -> Vec<Finding> {
    vec![as_socket(evidence), siblings(evidence), same_core(evidence)]
}

/// For each size of Figures 9 to 11, returns the ratio of the throughput of mechanism `a` to that of `b`, without load
/// and in one placement.
fn alike(evidence: &Evidence<'_>, a: &str, b: &str, placement: Placement) -> Vec<(u64, Estimate)> {
    let of = |way: &str, bytes: u64| {
        figures(evidence, way, rate, |r| one_way(r, bytes, placement) && idle(r))
    };
    let sizes = sizes_of(evidence, placement).into_iter().filter(|s| (64..=LARGE).contains(s));
    sizes.filter_map(|s| Some((s, ratio(&of(a, s), &of(b, s))?))).collect()
}

fn shown(name: &str, ratios: &[(u64, Estimate)]) -> Vec<Figure> {
    let mut at = vec![0, ratios.len() / 2, ratios.len().saturating_sub(1)];
    at.dedup();
    let figure = |(bytes, r): &(u64, Estimate)| {
        Figure::new(format!("{name}, {}", size(*bytes)), Quantity::Number, *r)
    };
    at.into_iter().filter_map(|at| ratios.get(at)).map(figure).collect()
}

fn as_socket(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E13",
        title: "Pipe and unix up to 16,000 bytes",
        says: "Between two cores and up to 16,000 bytes the pipe is comparable to unix (Figure 9).",
        rule: "The ratio of the pipe's throughput to unix's. Confirmed: its interval lies within 0.8 to 1.25 at all \
               but at most one in twenty of the decided sizes. Not confirmed: it lies wholly outside at more of them. \
               Undecided: fewer than half of the sizes are decided, unless three contradict.",
    };
    let ratios = alike(evidence, "pipe", "unix", Placement::OtherCore);
    if ratios.is_empty() {
        return claim.without_records(evidence.missing("one-way trials up to 16,000 bytes", PLAN));
    }
    let calls: Vec<Call> = ratios.iter().map(|(_, r)| equal(r)).collect();
    let call = at_all_sizes(mostly(&calls), &calls);
    let why = format!(
        "the two throughputs are within 25 % of each other: {}{}",
        in_words(&calls, "at", "size", "sizes"),
        few_sizes(call, calls.len(), PLAN)
    );
    claim.judged(PLACE, shown("pipe / unix", &ratios), call, why)
}

fn siblings(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E14",
        title: "Two threads of one core",
        says: "Throughput is lower between two hardware threads of one core than between two cores, and the pipe is \
               comparable to tcp (Figure 10).",
        rule: "Ratios of throughputs on two threads of one core: pipe / tcp, and each mechanism's to its own on two \
               cores. Confirmed: pipe / tcp lies within 0.8 to 1.25 and the others lie below 1, in all but at most one \
               in twenty of the decided comparisons. Not confirmed: more of them contradict. Undecided: fewer than \
               half are decided, unless three contradict.",
    };
    let ratios = alike(evidence, "pipe", "tcp", Placement::SmtSibling);
    if ratios.is_empty() {
        let refused =
            evidence.run.records.iter().find(|r| r.inputs.placement == Placement::SmtSibling);
        let why = refused.and_then(|r| r.reason.clone());
        return claim.without_records(
            why.unwrap_or_else(|| evidence.missing("trials on two threads of one core", PLAN)),
        );
    }
    let mut calls: Vec<Call> = ratios.iter().map(|(_, r)| equal(r)).collect();
    for (way, _) in WAYS {
        for (bytes, _) in &ratios {
            let of = |placement| {
                figures(evidence, way, rate, |r| one_way(r, *bytes, placement) && idle(r))
            };
            let lower = ratio(&of(Placement::OtherCore), &of(Placement::SmtSibling));
            calls.extend(lower.map(|r| above(&r, 1.0)));
        }
    }
    let place = "this machine, two threads of one core";
    let (near, slower) = calls.split_at(ratios.len());
    let call = at_all_sizes(mostly(&calls), near);
    let why = format!(
        "the pipe's throughput is within 25 % of tcp's: {}; throughput is lower than on two cores: {}{}",
        in_words(near, "at", "size", "sizes"),
        in_words(slower, "in", "comparison", "comparisons"),
        few_sizes(call, ratios.len(), PLAN)
    );
    claim.judged(place, shown("pipe / tcp", &ratios), call, why)
}

fn same_core(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "E15",
        title: "Both ends on one core",
        says: "On one core mempipe is slower than shmem_pipe, mempipe_spin performs very poorly, and the pipe is \
               comparable to tcp (Figure 11).",
        rule: "Ratios of throughputs with both ends on one core. Confirmed: shmem_pipe / mempipe lies above 1 and pipe \
               / tcp within 0.8 to 1.25, each at all but at most one in twenty of the decided sizes. Not confirmed: at \
               more of them, one of the two contradicts. Undecided: fewer than half of the sizes are decided, unless \
               three contradict. mempipe_spin is not judged, because Crossway does not let \
               both ends spin on one core.",
    };
    let pipes = alike(evidence, "shmem_pipe", "mempipe", Placement::SameCore);
    let others = alike(evidence, "pipe", "tcp", Placement::SameCore);
    if pipes.is_empty() || others.is_empty() {
        return claim.without_records(evidence.missing("one-way trials on one core", PLAN));
    }
    let first: Vec<Call> = pipes.iter().map(|(_, r)| above(r, 1.0)).collect();
    let second: Vec<Call> = others.iter().map(|(_, r)| equal(r)).collect();
    let refused = evidence.run.records.iter().find(|r| {
        r.mechanism == "shm-spin" && r.inputs.placement == Placement::SameCore && r.reason.is_some()
    });
    let spin = refused
        .and_then(|r| r.reason.clone())
        .map_or(String::new(), |why| format!("; mempipe_spin is refused: {why}"));
    let call = all([&first, &second].map(|of| at_all_sizes(mostly(of), of)));
    let why = format!(
        "shmem_pipe is faster than mempipe: {}; the pipe's throughput is within 25 % of tcp's: {}{spin}{}",
        in_words(&first, "at", "size", "sizes"),
        in_words(&second, "at", "size", "sizes"),
        few_sizes(call, pipes.len().min(others.len()), PLAN)
    );
    let mut figures = shown("shmem_pipe / mempipe", &pipes);
    figures.extend(shown("pipe / tcp", &others));
    claim.judged("this machine, one core", figures, call, why)
}
