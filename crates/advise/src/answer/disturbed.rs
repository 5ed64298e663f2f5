//! Describes what disturbed the machine before and during the runs whose trials answer a question.

use std::collections::BTreeSet;

use super::super::Sources;
use super::super::judge::Judged;
use super::super::survey::Survey;
use super::super::trials::Trial;
use crossway_lab::other_work::{OtherWork, other_cpus, warning_about};
use crossway_lab::preflight::{self, Finding};
use crossway_records::compare::durations::{CHANGES_FIGURES, Planned, names};
use crossway_records::sorting::{CollectTree, SortSmall};

/// Describes what disturbed the machine before and during these runs, in one sentence for each kind of disturbance.
pub(super) fn disturbances(
    sources: &Sources<'_>,
    survey: &Survey,
    runs: &[&String],
) -> Vec<String> {
    before(sources, runs).into_iter().chain(during(sources, survey, runs)).collect()
}

/// Says that the trials that gave the figures had different planned durations; `None` if all had the same.
pub(super) fn durations(judged: &[Judged]) -> Option<String> {
    let current = judged.iter().filter(|j| !j.former);
    let all: BTreeSet<Planned> = current.flat_map(|j| j.durations.iter().copied()).collect_tree();
    (all.len() > 1).then(|| {
        format!("the trials have different durations ({}), {CHANGES_FIGURES}", names(&all))
    })
}

/// Describes what the checks before the runs found: one sentence per subject, with the first finding and the number of
/// runs that have a finding on this subject.
fn before(sources: &Sources<'_>, runs: &[&String]) -> Vec<String> {
    let mut found: Vec<(Finding, usize)> = Vec::new();
    for run in runs {
        let dir = sources.run_dir(run);
        let mut of_run: Vec<Finding> = Vec::new();
        // Several CPUs of one run may be busy, and a resumed run was checked several times.
        for finding in preflight::warnings_beside(&dir).unwrap_or_default() {
            if !of_run.iter().any(|known| known.about == finding.about) {
                of_run.push(finding);
            }
        }
        for finding in of_run {
            match found.iter_mut().find(|(known, _)| known.about == finding.about) {
                Some((_, times)) => *times += 1,
                None => found.push((finding, 1)),
            }
        }
    }
    let note = |(finding, times): (Finding, usize)| {
        let what = finding.what;
        match (times, finding.continued) {
            (1, false) => format!("before a run that gave these figures: {what}"),
            (1, true) => format!("before a run that gave these figures was continued: {what}"),
            (n, false) => format!("before {n} runs that gave these figures, for example: {what}"),
            (n, true) => {
                format!(
                    "before {n} runs that gave these figures were started or continued, for example: {what}"
                )
            }
        }
    };
    found.into_iter().map(note).collect()
}

/// A sentence about the run during which other programs kept the CPUs busiest; `None` if they disturbed none of the
/// runs.
fn during(sources: &Sources<'_>, survey: &Survey, runs: &[&String]) -> Option<String> {
    let library = sources.library;
    let trials = || survey.trials.iter().chain(&library.own).chain(&library.foreign);
    let of_run = |run: &&&String| -> Vec<OtherWork> {
        trials().filter(|t| t.run == ***run).filter_map(Trial::other_work).collect()
    };
    let mut busy: Vec<(f64, &String, String)> = runs
        .iter()
        .filter_map(|run| {
            let work = of_run(&run);
            Some((other_cpus(&work)?, *run, warning_about(&work)?))
        })
        .collect();
    busy.sort_small_by(|a, b| b.0.total_cmp(&a.0));
    let (_, run, warning) = busy.first()?;
    Some(match busy.len() {
        1 => format!("in {run}, {warning}"),
        n => format!("in {n} runs that gave these figures, most of all in {run}: {warning}"),
    })
}
