//! The answer to a question, complete enough to be printed, drawn or read by a program.

mod disturbed;
mod entering;
mod flip;
mod reasons;
mod runs;

use crossway_mech::Meeting;
use disturbed::{disturbances, durations};
use entering::{abstain, enter_choice, enter_table};
pub use flip::Flip;
pub use reasons::Reason;
pub(crate) use reasons::objective_words;
use reasons::{
    commands, enter_flips, fault_tests, not_pursued, nothing_admissible, prefer_if, remedy,
    settings, trials_words,
};
use runs::{against_earlier, side_by_side, why_no_confidence};
use serde::{Serialize, Serializer};

use super::Sources;
use super::candidate::{Candidate, Field, RuledOut, may_spin};
use super::figure::JudgedGoal;
use super::judge::{CONFIDENT, Choice, Judged, choose, judge};
use super::looking::{self, Looking};
use super::objection::{NoChoice, Objection};
use super::property::Property;
use super::question::{Question, Site};
use super::survey::Survey;
use super::trials::Trial;
use crossway_records::figure::Figure;
use crossway_records::sorting::SortSmall;
use crossway_records::stats::{Estimate, TRIALS_AT_LEAST};

/// A row of the decision table.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// The candidate's label.
    pub candidate: String,
    /// The mechanism's id.
    pub mechanism: String,
    /// The figure to minimise, nanoseconds per message.
    pub cost_ns: Estimate,
    /// Latency at the question's percentile, nanoseconds.
    pub latency_ns: Option<Estimate>,
    /// Messages per second: of successive round trips, or of a stream at full speed.
    pub rate_msgs_per_s: Option<Estimate>,
    /// CPU time of all ends and of servers between them, per message, nanoseconds.
    pub cpu_ns: Option<Estimate>,
    /// Whether the ends may block but hardly slept; each of them then kept a CPU busy, as spinning ends do.
    pub kept_awake: bool,
    /// Whether each goal of the question is met.
    pub goals: Vec<JudgedGoal>,
    /// Why the trials do not decide whether the candidate reaches the stated rate, in words; `None` if they decide it,
    /// or if no rate was stated.
    pub open_rate: Option<String>,
    /// Reasons for the verdict, in words: a missed rate, prohibited spinning, or why the candidate was not pursued.
    /// Missed goals are in `goals`.
    pub why: Vec<String>,
    /// One of `chosen`, `equal` (as good as the choice), `admissible`, `not pursued` (dropped after an earlier stage,
    /// or has only records of earlier runs) and `fails` (ruled out by its trials).
    pub verdict: &'static str,
    /// Ids of the cases whose trials gave these figures.
    pub cases: Vec<String>,
    /// Names of the runs that the trials are from.
    pub runs: Vec<String>,
}

impl Compared {
    /// Whether the candidate was measured to the end and no trial speaks against it.
    pub fn is_pursued(&self) -> bool {
        matches!(self.verdict, "chosen" | "equal" | "admissible")
    }
}

/// Writes an objective as questions do.
fn objective_key<S: Serializer>(objective: &Figure, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(match objective {
        Figure::MessageRate | Figure::ByteRate => "throughput",
        Figure::Latency(..) | Figure::WholeExchange(_) => "latency",
        Figure::Cpu(_) => "cpu",
    })
}

/// The answer to a question.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// The question's name.
    pub name: String,
    /// The question in one sentence.
    pub question: String,
    /// The figure that is minimised.
    #[serde(serialize_with = "objective_key")]
    pub objective: Figure,
    /// The objective in words, with the percentile.
    pub objective_words: String,
    /// Label of the recommended candidate; `None` if there is no recommendation, for the reason in `abstained`.
    pub choice: Option<String>,
    /// The mechanism of the recommended candidate.
    pub mechanism: Option<String>,
    /// Why there is no recommendation, in words; `None` if there is one.
    pub abstained: Option<String>,
    /// The kind of the reason in `abstained`.
    pub no_choice: Option<NoChoice>,
    /// Whether the two programs were started apart, so that only what needs no common parent was a candidate.
    pub started_apart: bool,
    /// What both ends of the recommended candidate need to meet, any one of these; empty for contenders, of which it is not
    /// known, and without a recommendation.
    pub meets: Vec<Meeting>,
    /// Candidates that are as good as the choice for this question.
    pub equal: Vec<String>,
    /// The best of the other mechanisms.
    pub runner_up: Option<String>,
    /// What is clearly quicker than the choice if its ends look before they sleep.
    pub looking: Option<Looking>,
    /// Conditions under which to prefer the runner-up.
    pub prefer_runner_up_if: Vec<String>,
    /// Probability, given all trials, that the choice costs at most 5 % more than the best of the admissible candidates
    /// that were measured to the end. `None` with too few trials, or if the choice is the only such candidate.
    pub confidence: Option<f64>,
    /// Why no confidence is stated although there are trials of several candidates; otherwise `None`.
    pub no_confidence: Option<String>,
    /// Settings to make in the program.
    pub settings: Vec<String>,
    /// All candidates with figures, lowest cost first.
    pub compared: Vec<Compared>,
    /// Mechanisms that were ruled out, each with the reason.
    pub ruled_out: Vec<RuledOut>,
    /// Variations of the question, and the choice in each.
    pub flips: Vec<Flip>,
    /// What may have distorted the figures: disturbances of the machine before and during the trials, and different
    /// durations of trials.
    pub warnings: Vec<String>,
    /// Requirements about which there is no evidence for any candidate, and so none for the choice: `the required
    /// property crash-survival`.
    pub open_requirements: Vec<String>,
    /// Why there is no evidence for requirements, how to obtain it, and other remarks.
    pub notes: Vec<String>,
    /// Whether the figures were measured on another machine.
    pub foreign: bool,
    /// Time spent measuring, seconds.
    pub measured_s: f64,
    /// Commands that reproduce the figures.
    pub commands: Vec<String>,
}

pub(super) fn put_together(
    question: &Question,
    field: Field,
    sources: &Sources<'_>,
    survey: &Survey,
) -> Advice {
    let mut advice = Advice {
        name: question.name.clone(),
        question: question.sentence(),
        objective: question.objective,
        objective_words: objective_words(question),
        choice: None,
        mechanism: None,
        abstained: None,
        no_choice: None,
        started_apart: question.apart,
        meets: Vec::new(),
        equal: Vec::new(),
        runner_up: None,
        looking: None,
        prefer_runner_up_if: Vec::new(),
        confidence: None,
        no_confidence: None,
        settings: Vec::new(),
        compared: Vec::new(),
        ruled_out: field.ruled_out,
        flips: Vec::new(),
        warnings: Vec::new(),
        open_requirements: field.open_requirements,
        notes: field.unanswered,
        foreign: false,
        measured_s: survey.took.as_secs_f64(),
        commands: Vec::new(),
    };
    advice.notes.extend(fault_tests(&field.untested, sources));
    if !may_spin(question) && !question.wishes.contains_key(&Property::Spinning) {
        advice.notes.push(
            "spinning was not considered, since each end would occupy a CPU; `--no-preference spinning` allows it".to_owned(),
        );
    }
    advice.warnings.extend(question.unknown_languages());
    if question.site == Site::OtherContainer {
        advice.notes.push(
            "the measured containers are created by root, without a user namespace, a seccomp filter or dropped \
             capabilities; yours may have all three. If yours share a volume, /dev/shm, or a network, IPC or PID \
             namespace, say so with --shares"
                .to_owned(),
        );
    }
    if sources.budget.is_none() {
        let empty = sources.library.empty.iter();
        advice.notes.extend(
            empty.map(|folder| format!("the folder {} contains no runs", folder.display())),
        );
    }
    advice.notes.extend(sources.library.warnings.iter().cloned());
    if field.candidates.is_empty() {
        let why = field
            .conflict
            .unwrap_or_else(|| "each was ruled out; see the reasons under 'Ruled out'".to_owned());
        let why = format!("no mechanism here meets the requirements: {why}");
        abstain(&mut advice, NoChoice::NoCandidate, why);
        return advice;
    }
    let judged = all_judged(question, &field.candidates, sources, survey, &mut advice);
    let choice = choose(question, &judged);
    if question.objective.percentile().is_some() && judged.iter().any(|j| j.of_maxima) {
        advice.objective_words += " or maximum";
        advice.notes.push(format!(
            "where fewer than {TRIALS_AT_LEAST} trials of a candidate have enough samples for the {}, the largest \
             sample of a trial takes the place of the percentile that it lacks",
            question.percentile().name()
        ));
    }
    enter_table(&mut advice, &judged, choice.as_ref());
    let mut runs: Vec<&String> = judged.iter().flat_map(|j| &j.runs).collect();
    runs.sort_unstable();
    runs.dedup();
    if survey.trials.is_empty() && runs.len() > 1 {
        advice.notes.push(format!(
            "The figures come from {} runs at different times, so a difference between candidates may be due to the \
             machine. Without --no-measure, the candidates are measured now, with interleaved trials.",
            runs.len()
        ));
    }
    advice.warnings.extend(disturbances(sources, survey, &runs));
    advice.warnings.extend(durations(&judged));
    advice.commands = commands(question, sources, &runs);
    match &choice {
        None => {
            let (kind, why) = nothing_admissible(question, sources, &judged, survey);
            abstain(&mut advice, kind, why);
        }
        Some(choice) => enter_choice(&mut advice, question, sources, choice, survey),
    }
    advice
}

/// The figures of every candidate that has trials. Trials of other machines are used only if there are none of this
/// machine. Adds candidates without figures to the list of those that were ruled out.
fn all_judged(
    question: &Question,
    candidates: &[Candidate],
    sources: &Sources<'_>,
    survey: &Survey,
    advice: &mut Advice,
) -> Vec<Judged> {
    let best_of = |c: &Candidate| survey.judge(question, c, &sources.library.own);
    let mut judged: Vec<Judged> = candidates.iter().filter_map(best_of).collect();
    if survey.trials.is_empty() {
        side_by_side(question, &mut judged, sources, advice);
    }
    if judged.is_empty() && !sources.library.foreign.is_empty() {
        judged = candidates
            .iter()
            .filter_map(|c| judge(question, c, sources.library.foreign.iter()))
            .collect();
        if !judged.is_empty() {
            advice.foreign = true;
            advice.notes.push(
                "these figures are from another machine: rankings differ between machines, so measure here before you rely on them".to_owned(),
            );
        }
    }
    for candidate in candidates {
        if judged.iter().any(|j| j.candidate == *candidate) {
            continue;
        }
        let of = |t: &&Trial| t.mechanism == candidate.mechanism;
        let failed = survey.trials.iter().filter(of).find(|t| t.reason.is_some());
        let of_trial = |trial: &Trial| format!("trials of {} in run {}", trial.case, trial.run);
        let (objection, basis) = match (failed, survey.trials.iter().find(of)) {
            (Some(trial), _) => {
                let why = trial.reason.clone().unwrap_or_default();
                (Objection::Failed { why }, of_trial(trial))
            }
            (None, Some(trial)) => {
                let figure = objective_words(question);
                let why = trial.why_none(question.objective).map(str::to_owned);
                (Objection::NoFigure { figure, why }, of_trial(trial))
            }
            (None, None) => (Objection::NoRecord, "the existing records".to_owned()),
        };
        advice.ruled_out.push(RuledOut::new(candidate.label(), objection, basis));
    }
    judged.sort_small_by(|a, b| a.cost.value.total_cmp(&b.cost.value));
    // The commands that repeat the runs measure all candidates, so the slowest one decides how long the trials must be.
    for at in 0..question.goals.latency_us.len() {
        let of = |j: &Judged| j.goals.get(at)?.lacking?.measure_ms;
        let longest = judged.iter().filter(|j| j.admissible()).filter_map(of).max();
        for lacking in judged.iter_mut().filter_map(|j| j.goals.get_mut(at)?.lacking.as_mut()) {
            lacking.measure_ms =
                lacking.measure_ms.max(longest.filter(|_| lacking.measure_ms.is_some()));
        }
    }
    judged
}
