//! Measures what a question needs, within a time budget.
//!
//! The survey uses successive halving: all candidates are measured briefly, and then the better half of them longer,
//! until few remain. Each stage is a separate plan whose trials are interleaved in a seeded random order; its records
//! are stored like those of any run. Candidates that cannot be distinguished at the end are measured again. The last
//! part of the budget is spent on variations of the question (other sizes, rates, loads), which show where the answer
//! changes.

mod plan;
mod stage;
mod variations;

use std::time::{Duration, Instant};

pub use plan::plan;
pub(super) use plan::{FOR_ADVISE, about};
pub(super) use stage::least_time;
pub use variations::describe;
use variations::variations;

use super::AdviseError;
use super::candidate::Candidate;
use super::figure::JudgedGoal;
use super::judge::{CONFIDENT, Judged, LATEST_TRIALS, Setting, choose, choose_of_all, judge};
use super::looking::{LOOKING_TRIALS, lookers};
use super::question::{Question, Site};
use super::trials::{SurveyPart, Trial};
use crossway_lab::plan::Plan;
use crossway_records::sorting::SortSmall;
use crossway_records::stats::TRIALS_AT_LEAST;

/// Assumed time for starting, verifying and closing a trial, until the survey has measured this time.
const OVERHEAD: Duration = Duration::from_millis(80);
/// Number of trials per candidate in the first stage.
const FIRST_TRIALS: u32 = 3;
/// Minimum number of trials for each of the last candidates; more if time permits.
const LAST_TRIALS: u32 = 7;
const MOST_TRIALS: u32 = 24;
/// Maximum number of additional trials per round for candidates that cannot be distinguished.
const AGAIN_TRIALS: u32 = 12;
/// Maximum number of candidates in the last stage.
const LAST_CANDIDATES: usize = 4;
/// Maximum number of candidates that are measured again at once.
const POSSIBLE_AT_MOST: usize = 8;
/// Number of candidates that are compared in variations.
const VARIED_CANDIDATES: usize = 3;
const VARIED_TRIALS: u32 = 5;
/// Fraction of the budget for the first stage. `CHOICE_SHARE` is the fraction for the whole choice; the rest is for
/// variations.
const FIRST_SHARE: f64 = 0.4;
const CHOICE_SHARE: f64 = 0.75;

/// Purpose of a stage whose trials are longer than usual.
const LONG_ENOUGH: &str = "the best, in trials long enough for the percentiles of the goals";

/// Runs a plan and returns its trials.
pub trait Bench {
    /// Measures every case of the plan.
    ///
    /// # Errors
    /// The run could not be created, or was interrupted.
    fn run(&mut self, plan: &Plan) -> Result<Vec<Trial>, AdviseError>;

    /// The current time on the clock that the budget refers to; a simulated bench has its own clock.
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// A stage of measuring, for display.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Purpose of the stage.
    pub purpose: String,
    /// Number of candidates.
    pub candidates: usize,
    /// Number of trials of each candidate.
    pub trials: usize,
    /// Estimated duration.
    pub about: Duration,
}

/// The trials of a survey, and the settings that it varied.
#[derive(Debug, Default)]
pub struct Survey {
    /// All trials.
    pub trials: Vec<Trial>,
    /// Settings other than the question's own.
    pub variations: Vec<Setting>,
    /// The candidates that are compared in these settings.
    pub varied: Vec<Candidate>,
    /// Candidates whose ends were made to look before they sleep.
    pub looking: Vec<Candidate>,
    /// Time spent measuring.
    pub took: Duration,
}

impl Survey {
    /// A candidate's figures: from the survey's own trials if there are any, since they are interleaved with those of
    /// the other candidates, and otherwise from `known`, the trials of earlier runs. `None` without trials.
    pub(super) fn judge(
        &self,
        question: &Question,
        candidate: &Candidate,
        known: &[Trial],
    ) -> Option<Judged> {
        judge(question, candidate, self.trials.iter()).or_else(|| {
            let former = !self.trials.is_empty();
            Some(Judged { former, ..judge(question, candidate, known.iter())? })
        })
    }
}

struct Surveyor<'a> {
    question: &'a Question,
    bench: &'a mut dyn Bench,
    tell: &'a mut dyn FnMut(&Stage),
    begun: Instant,
    budget: Duration,
    /// Mean time that a trial takes in addition to its warm-up and measured part, as observed so far.
    overhead: Duration,
    seed: u64,
    survey: Survey,
}

/// Measures the candidates for the question and its variations within the budget. Candidates that are covered by
/// `known`, the trials of earlier runs, skip the first stage.
///
/// # Errors
/// A run could not be created, or was interrupted.
pub fn survey(
    question: &Question,
    candidates: &[Candidate],
    known: &[Trial],
    budget: Duration,
    bench: &mut dyn Bench,
    tell: &mut dyn FnMut(&Stage),
) -> Result<Survey, AdviseError> {
    let mut surveyor = Surveyor {
        question,
        begun: bench.now(),
        bench,
        tell,
        budget,
        overhead: OVERHEAD,
        seed: 1,
        survey: Survey::default(),
    };
    let finalists = surveyor.halve(candidates, known)?;
    // Without a recommendation, variations of the question have no answer to be compared with.
    if !surveyor.is_answered(candidates, known) {
        surveyor.settle(candidates, known, 1.0)?;
    }
    if surveyor.is_answered(candidates, known) {
        surveyor.look(candidates, known)?;
        surveyor.vary(&finalists)?;
    }
    surveyor.survey.took = surveyor.elapsed();
    Ok(surveyor.survey)
}

impl Surveyor<'_> {
    /// Time since the survey began.
    fn elapsed(&self) -> Duration {
        self.bench.now() - self.begun
    }

    /// Halves the set of candidates repeatedly until few remain and these have been measured thoroughly; returns those
    /// to compare in variations.
    fn halve(
        &mut self,
        candidates: &[Candidate],
        known: &[Trial],
    ) -> Result<Vec<Candidate>, AdviseError> {
        let own = Setting::of(self.question);
        let open = |c: &&Candidate| !is_covered(self.question, c, known);
        let unknown: Vec<Candidate> = candidates.iter().filter(open).cloned().collect();
        let mut left = candidates.to_vec();
        if !unknown.is_empty() {
            let time = self.budget.mul_f64(FIRST_SHARE);
            let trials = self.affordable(unknown.len(), time).clamp(1, FIRST_TRIALS);
            // Between hosts, a mechanism that does not work there fails only after its deadline: one trial shows that.
            let first = if self.question.site == Site::OtherHost { 1 } else { trials };
            self.stage(
                "all candidates briefly",
                Some(SurveyPart::Early),
                &unknown,
                &own,
                first,
                None,
            )?;
            if first < trials {
                let works =
                    |c: &Candidate| judge(self.question, c, self.survey.trials.iter()).is_some();
                let working: Vec<Candidate> = unknown.into_iter().filter(works).collect();
                self.stage(
                    "the candidates that work between the hosts",
                    Some(SurveyPart::Early),
                    &working,
                    &own,
                    trials - first,
                    None,
                )?;
            }
        }
        loop {
            left = self.better_half(left, known);
            let last = left.len() <= LAST_CANDIDATES;
            let time = self.budget.mul_f64(CHOICE_SHARE).saturating_sub(self.elapsed());
            let share = if last { time } else { time / 2 };
            let trials = self.affordable(left.len(), share).min(MOST_TRIALS);
            if last {
                let part = Some(SurveyPart::Last);
                let judged = self.judged(&left, known);
                let suited: Vec<&Judged> = judged.iter().filter(|j| j.admissible()).collect();
                let of = if suited.is_empty() { judged.iter().collect() } else { suited };
                if let Some((ms, trials)) = self.longer(&of, left.len(), time) {
                    self.stage(LONG_ENOUGH, part, &left, &own, trials, Some(ms))?;
                } else {
                    let trials = trials.max(LAST_TRIALS);
                    self.stage("the best candidates at length", part, &left, &own, trials, None)?;
                }
                self.settle(candidates, known, CHOICE_SHARE)?;
                return Ok(self.finalists(candidates, left, known));
            }
            if trials == 0 {
                left.truncate(LAST_CANDIDATES);
                continue;
            }
            let trials = trials.min(LAST_TRIALS);
            self.stage("the better half", Some(SurveyPart::Early), &left, &own, trials, None)?;
        }
    }

    /// The candidates to compare in variations, beginning with the chosen one. The chosen one need not have the lowest
    /// cost, since simplicity decides among equals.
    fn finalists(
        &self,
        candidates: &[Candidate],
        last: Vec<Candidate>,
        known: &[Trial],
    ) -> Vec<Candidate> {
        let judged = self.judged(candidates, known);
        let chosen = choose(self.question, &judged).map(|choice| choice.chosen.candidate.clone());
        let others = self.better_half(last, known).into_iter();
        chosen.iter().cloned().chain(others.filter(|c| Some(c) != chosen.as_ref())).collect()
    }

    /// Whether the trials so far give a recommendation.
    fn is_answered(&self, candidates: &[Candidate], known: &[Trial]) -> bool {
        let judged = self.judged(candidates, known);
        choose(self.question, &judged).is_some_and(|choice| choice.confidence >= CONFIDENT)
    }

    /// Repeats the measurements of the candidates that may be the best, until the choice is settled or this share of the
    /// budget is used up.
    fn settle(
        &mut self,
        candidates: &[Candidate],
        known: &[Trial],
        share: f64,
    ) -> Result<(), AdviseError> {
        let own = Setting::of(self.question);
        let mut looked_at = self.judged(candidates, &[]);
        // Those that earlier runs cover were not measured now, and have to be before one of them is chosen.
        if !looked_at.iter().any(Judged::admissible) {
            looked_at = self.judged(candidates, known);
        }
        // Those with few trials were dropped. They return if the trials speak against all others.
        let is_measured = |j: &Judged| j.cost.n >= TRIALS_AT_LEAST;
        if looked_at.iter().any(|j| is_measured(j) && j.admissible()) {
            looked_at.retain(is_measured);
        }
        let left: Vec<Candidate> = looked_at.into_iter().map(|j| j.candidate).collect();
        loop {
            let judged = self.judged(&left, known);
            let Some(choice) = choose_of_all(self.question, &judged) else { return Ok(()) };
            let possible = &choice.possible[..choice.possible.len().min(POSSIBLE_AT_MOST)];
            let open: Vec<Candidate> = possible.iter().map(|j| j.candidate.clone()).collect();
            let measured = possible.iter().filter(|j| !j.former);
            let most = measured.map(|j| j.cost.n).max().unwrap_or(0);
            if most >= LATEST_TRIALS {
                return Ok(());
            }
            let time = self.budget.mul_f64(share).saturating_sub(self.elapsed());
            if let Some((ms, trials)) = self.longer(possible, open.len(), time) {
                self.stage(LONG_ENOUGH, Some(SurveyPart::Last), &open, &own, trials, Some(ms))?;
                continue;
            }
            // A candidate that an earlier stage dropped, or that only earlier runs measured, may return, but then it needs
            // trials beside the others.
            let returns = choice.chosen.former || choice.chosen.part == Some(SurveyPart::Early);
            if choice.is_settled() && !returns {
                return Ok(());
            }
            let purpose = match choice.is_certain() {
                _ if returns => "those that were measured less",
                true => "the best, to decide its goals",
                false => "candidates that are still tied",
            };
            let trials = self.affordable(open.len(), time).min(AGAIN_TRIALS);
            if trials < FIRST_TRIALS {
                return Ok(());
            }
            self.stage(purpose, Some(SurveyPart::Last), &open, &own, trials, None)?;
        }
    }

    /// The length in milliseconds of the next trials, and their number for each of these candidates. `None` unless the
    /// trials so far are too short for the percentile of a goal and at least [`TRIALS_AT_LEAST`] longer ones fit in
    /// `time`.
    fn longer(&self, of: &[&Judged], candidates: usize, time: Duration) -> Option<(u64, u32)> {
        let goals = of.iter().flat_map(|j| &j.goals);
        let ms = goals.filter_map(JudgedGoal::longer_ms).max()?;
        let trials = self.affordable_of(candidates, time, ms).min(LAST_TRIALS);
        (trials as usize >= TRIALS_AT_LEAST).then_some((ms, trials))
    }

    /// The figures of those candidates that have trials.
    fn judged(&self, candidates: &[Candidate], known: &[Trial]) -> Vec<Judged> {
        candidates.iter().filter_map(|c| self.survey.judge(self.question, c, known)).collect()
    }

    /// The better half of the candidates that have trials, or all of these if they are few. The admissible ones come
    /// first, ordered by cost, then the others, ordered by how far they miss the goals.
    fn better_half(&self, candidates: Vec<Candidate>, known: &[Trial]) -> Vec<Candidate> {
        let mut judged = self.judged(&candidates, known);
        judged.sort_small_by(|a, b| {
            let key = |j: &Judged| {
                (!j.admissible(), if j.admissible() { j.cost.value } else { j.violation() })
            };
            let ((x, p), (y, q)) = (key(a), key(b));
            x.cmp(&y).then(p.total_cmp(&q))
        });
        let keep =
            if judged.len() <= LAST_CANDIDATES { judged.len() } else { judged.len().div_ceil(2) };
        judged.truncate(keep);
        judged.into_iter().map(|j| j.candidate).collect()
    }

    /// Lets the ends of a few candidates look before they sleep, if the time permits.
    fn look(&mut self, candidates: &[Candidate], known: &[Trial]) -> Result<(), AdviseError> {
        let judged = self.judged(candidates, known);
        let Some(choice) = choose(self.question, &judged) else { return Ok(()) };
        let lookers = lookers(self.question, &choice.chosen.candidate, candidates);
        let left = self.budget.saturating_sub(self.elapsed());
        if self.affordable(lookers.len(), left) < LOOKING_TRIALS {
            return Ok(());
        }
        let own = Setting::of(self.question);
        let purpose = "ends that look before they sleep";
        self.stage(purpose, None, &lookers, &own, LOOKING_TRIALS, None)?;
        self.survey.looking = lookers;
        Ok(())
    }

    /// Varies sizes, rate and load, starting with the smallest changes, as far as the time permits.
    fn vary(&mut self, finalists: &[Candidate]) -> Result<(), AdviseError> {
        let finalists = &finalists[..finalists.len().min(VARIED_CANDIDATES)];
        if finalists.len() < 2 {
            return Ok(());
        }
        self.survey.varied = finalists.to_vec();
        for variation in variations(self.question) {
            // What runs at full speed is measured in the same way whatever the stated rate.
            if variation.rate_factor != 1.0 && self.question.rate_at_full_speed().is_some() {
                self.survey.variations.push(variation);
                continue;
            }
            let left = self.budget.saturating_sub(self.elapsed());
            if self.affordable(finalists.len(), left) < VARIED_TRIALS {
                continue;
            }
            let purpose = format!("variation: {}", describe(&variation, self.question));
            self.stage(&purpose, None, finalists, &variation, VARIED_TRIALS, None)?;
            self.survey.variations.push(variation);
        }
        Ok(())
    }
}

/// Whether earlier trials of this candidate are enough to skip the first stage.
fn is_covered(question: &Question, candidate: &Candidate, known: &[Trial]) -> bool {
    judge(question, candidate, known.iter()).is_some_and(|j| j.costs.len() >= FIRST_TRIALS as usize)
}
