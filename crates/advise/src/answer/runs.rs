//! What follows from the runs that trials are from: whether candidates were measured side by side, with the machine in one
//! state, and whether earlier runs speak against a choice.

use std::collections::{BTreeMap, BTreeSet};

use super::Advice;
use crate::Sources;
use crate::judge::{Choice, Judged, judge};
use crate::objection::joined;
use crate::question::Question;
use crossway_lab::run::Folder;
use crossway_records::sorting::CollectTree;

/// Leaves out the trials of runs with at most half of these candidates, where a candidate also has others: the machine
/// may have been in another state in such a run, which would then count for some candidates and not for the others.
pub(super) fn side_by_side(
    question: &Question,
    judged: &mut [Judged],
    sources: &Sources<'_>,
    advice: &mut Advice,
) {
    let mut candidates_of: BTreeMap<&str, usize> = BTreeMap::new();
    for run in judged.iter().flat_map(|j| &j.plain_runs) {
        *candidates_of.entry(run).or_default() += 1;
    }
    let of_few = |(run, n): (&str, usize)| (2 * n <= judged.len()).then(|| run.to_owned());
    let few: BTreeSet<String> = candidates_of.into_iter().filter_map(of_few).collect_tree();
    let mut left_out: BTreeSet<&String> = BTreeSet::new();
    for j in judged {
        let (of_few, of_most): (Vec<&String>, Vec<_>) =
            j.runs.iter().partition(|run| few.contains(*run));
        if of_few.is_empty() || of_most.is_empty() {
            continue;
        }
        let trials = sources.library.own.iter().filter(|t| !few.contains(&t.run));
        if let Some(fewer) = judge(question, &j.candidate, trials) {
            left_out.extend(few.iter().filter(|run| j.runs.contains(run)));
            *j = fewer;
        }
    }
    if !left_out.is_empty() {
        let runs: Vec<&str> = left_out.into_iter().map(String::as_str).collect();
        advice.notes.push(format!(
            "left out, because at most half of the candidates were measured in it: {}",
            runs.join(", ")
        ));
    }
}

/// Says that trials of earlier runs speak against a choice that was measured now; `None` if they do not.
pub(super) fn against_earlier(
    question: &Question,
    sources: &Sources<'_>,
    chosen: &Judged,
) -> Option<String> {
    let earlier = judge(question, &chosen.candidate, sources.library.own.iter())?;
    let why = earlier.failures();
    (!chosen.former && !why.is_empty()).then(|| {
        format!(
            "earlier trials of {} speak against it ({}; in {}). The answer uses the trials of this survey only, since \
             those of all candidates are interleaved",
            chosen.candidate.label(),
            joined(&why),
            earlier.runs.join(", ")
        )
    })
}

/// Why no confidence can be stated for a choice from earlier runs; `None` if nothing speaks against it.
pub(super) fn why_no_confidence(sources: &Sources<'_>, choice: &Choice<'_>) -> Option<String> {
    let why = if let Some(minutes) = minutes_between_runs(sources, &choice.pursued) {
        format!("the trials of these candidates were taken up to {minutes} minutes apart, and")
    } else if choice.pursued.iter().any(|j| j.plain_runs != choice.chosen.plain_runs) {
        "these candidates were not all measured in the same runs, between which".to_owned()
    } else {
        return None;
    };
    Some(format!(
        "No confidence is stated, because {why} the machine may have changed; without --no-measure, they are measured \
         side by side"
    ))
}

/// Minutes between the first and the last of the runs with trials of these candidates; `None` if these runs began so
/// close to each other that they can be parts of one survey.
fn minutes_between_runs(sources: &Sources<'_>, candidates: &[&Judged]) -> Option<u64> {
    const ONE_SURVEY_MINUTES: u64 = 10;
    let runs: BTreeSet<&String> = candidates.iter().flat_map(|j| &j.runs).collect_tree();
    let begun: Vec<u64> = runs
        .into_iter()
        .filter_map(|run| Some(Folder::info(&sources.run_dir(run)).ok()?.started_unix_ms))
        .collect();
    let minutes = (begun.iter().max()? - begun.iter().min()?) / 60_000;
    (minutes > ONE_SURVEY_MINUTES).then_some(minutes)
}
