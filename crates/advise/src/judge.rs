//! Chooses a candidate from trials: each candidate's figures, the goals, which candidates are equal, and the
//! confidence.

mod judged;
mod mix;

use std::collections::BTreeMap;

pub use judged::{Judged, TwoWays};
use mix::{Mix, Row};

use super::belief::within;
use super::candidate::Candidate;
use super::figure::JudgedGoal;
use super::property::{Property, Wish};
use super::question::{Percentile, Question};
use super::trials::{SurveyPart, Trial};
use crossway_records::figure::Figure;
use crossway_records::inputs::{Ends, Load};
pub use crossway_records::record::RATE_REACHED;
use crossway_records::sorting::SortSmall;
use crossway_records::stats::Estimate;
use crossway_records::stats::TRIALS_AT_LEAST;
use crossway_records::testbed::Testbed;

/// How much more than the best a choice may cost, as a fraction; smaller differences do not matter to a program.
pub const EQUAL_WITHIN: f64 = 0.05;
/// Two candidates are equal if their probabilities of costing at most [`EQUAL_WITHIN`] more than the best differ by no
/// more than this.
const AS_CERTAIN: f64 = 0.05;
/// A candidate whose median cost is more than this factor times the lowest cannot be the best, whatever the scatter.
const NO_RIVAL: f64 = 2.0;
/// Candidates that are less likely than this to be the best need no further trials.
const HARDLY: f64 = 0.02;
/// Minimum confidence for a recommendation.
pub const CONFIDENT: f64 = 0.6;
/// Confidence above which the time for more trials is better spent elsewhere.
const CERTAIN: f64 = 0.95;
/// Candidates are not equal if their medians differ by more than this fraction, however few trials there are.
const EQUAL_AT_MOST: f64 = 0.15;
/// Maximum number of trials of a case that are judged. The latest ones are used, because the machine may have changed.
pub(super) const LATEST_TRIALS: usize = 60;

/// The setting in which trials are looked up: the question's own, or a variation of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Factor by which every message size is multiplied.
    pub size_factor: f64,
    /// Factor by which the rate is multiplied.
    pub rate_factor: f64,
    /// Background load.
    pub load: Load,
}

impl Setting {
    /// The question's own setting.
    pub fn of(question: &Question) -> Setting {
        Setting { size_factor: 1.0, rate_factor: 1.0, load: question.load }
    }

    /// The question in this setting.
    pub fn apply(&self, question: &Question) -> Question {
        let mut varied = question.clone();
        for share in &mut varied.sizes {
            share.bytes = ((share.bytes as f64 * self.size_factor).round() as u64).max(1);
        }
        varied.rate_per_s = varied.rate_per_s.map(|r| r * self.rate_factor);
        varied.load = self.load;
        varied
    }
}

/// Whether a trial measured the candidate under the question's conditions, with messages of `bytes` bytes.
fn answers(trial: &Trial, question: &Question, bytes: u64, candidate: &Candidate) -> bool {
    let i = &trial.inputs;
    let testbed = question.testbed();
    trial.mechanism == candidate.mechanism
        && i.wait == candidate.wait
        && i.workload == question.workload(bytes)
        && i.size_bytes == bytes
        && i.reply_bytes == question.reply_bytes.filter(|r| *r != bytes)
        && i.access == crossway_mech::Access::Copy
        && i.placement == question.placement
        && i.load == question.load
        && i.beside.is_empty()
        && i.socket_buffer_bytes.is_none()
        && i.capacity_bytes.is_none()
        && i.testbed.is_some() == testbed.is_some()
        && testbed.is_none_or(|asked| {
            let named = |spec: &Testbed| Testbed { name: asked.name.clone(), ..spec.clone() };
            i.ends == Ends::Between && i.testbed_spec.as_ref().map(named) == Some(asked.clone())
        })
}

/// A candidate's figures for a question, from the trials that answer the question; `None` if any of the message sizes
/// has no such trials.
pub fn judge<'a>(
    question: &Question,
    candidate: &Candidate,
    trials: impl Iterator<Item = &'a Trial> + Clone,
) -> Option<Judged> {
    let mix = Mix::of(question, candidate, trials)?;
    let rows = mix.rows();
    let means = |rows: &[Row<'_>], figure: Figure| -> Vec<f64> {
        rows.iter().filter_map(|row| row.mean(figure)).collect()
    };
    let measure = question.workload(1).facts().measure;
    let cpu = Figure::cpu(measure);
    let percentile = question.percentile();
    let latency = |t: &Trial| t.latency_ns(percentile);
    let latency_rows = mix.rows_for(percentile);
    let cost_rows = if question.objective.percentile().is_some() { &latency_rows } else { &rows };
    let costs = means(cost_rows, question.objective);
    let latencies: Vec<f64> = latency_rows.iter().filter_map(|row| row.largest(latency)).collect();
    let cpus = means(&rows, cpu);
    let times = means(&rows, Figure::MessageRate);
    let mut goals: Vec<JudgedGoal> = question
        .goals
        .latency_us
        .iter()
        .map(|&(percentile, most)| {
            let us = |t: &Trial| Some(t.latency_ns(percentile)? / 1e3);
            if percentile == Percentile::Max {
                let largest: Vec<f64> = rows.iter().filter_map(|row| row.largest(us)).collect();
                let good: Vec<f64> = mix.trials().filter(|t| t.counts()).filter_map(us).collect();
                let name = percentile.name();
                return JudgedGoal::of_largest(name, most, "us", Estimate::of(&largest), &good);
            }
            JudgedGoal::of_percentiles(percentile.name(), most, "us", &mix.percentiles(percentile))
        })
        .collect();
    if let Some(most) = question.goals.cpu_percent {
        // At the stated rate, or at the rate that was achieved if that is lower.
        let stated_ns = question.rate_per_s.map_or(0.0, |rate| 1e9 / rate);
        let percent_of = |row: &Row<'_>| {
            let cpu_ns = row.mean(cpu)?;
            let per_message_ns = row.mean(Figure::MessageRate)?.max(stated_ns);
            // An end that does not sleep uses all the CPU time that it gets. If other programs took the CPU from it, it
            // used less, but on an idle machine it would not.
            let awake = row.trials().filter(|t| t.kept_awake());
            let at_least = awake.map(|t| 100.0 * t.ends() as f64).fold(0.0, f64::max);
            Some((cpu_ns / per_message_ns * 100.0).max(at_least))
        };
        let percent: Vec<f64> = rows.iter().filter_map(percent_of).collect();
        goals.push(JudgedGoal::of("CPU", most, "%", Estimate::of(&percent)));
    }
    if let Some(most) = question.goals.memory_bytes {
        let bytes: Vec<f64> = rows
            .iter()
            .filter_map(|row| row.largest(|t| t.buffer_bytes(&candidate.caps)))
            .collect();
        goals.push(JudgedGoal::of("buffers", most as f64, "bytes", Estimate::of(&bytes)));
    }
    let mut cases: Vec<String> = mix.trials().map(|t| t.case.clone()).collect();
    let mut runs: Vec<String> = mix.trials().map(|t| t.run.clone()).collect();
    let mut plain_runs: Vec<String> =
        mix.trials().filter(|t| t.survey_part().is_none()).map(|t| t.run.clone()).collect();
    for names in [&mut cases, &mut runs, &mut plain_runs] {
        names.sort_unstable();
        names.dedup();
    }
    let rates: Vec<f64> = times.iter().map(|ns| 1e9 / ns).collect();
    let shares: Vec<f64> = match question.rate_at_full_speed() {
        Some(rate) => rates.iter().map(|reached| (reached / rate).min(1.0)).collect(),
        None => Vec::new(),
    };
    let by_size_shares = mix.by_size().filter_map(|trials| {
        Estimate::of(&trials.iter().filter_map(|t| t.share_of_rate()).collect::<Vec<_>>())
    });
    let share_of_rate = by_size_shares.chain(Estimate::of(&shares)).min_by(by_shortfall);
    Some(Judged {
        candidate: candidate.clone(),
        cost: Estimate::of(&costs)?,
        costs,
        two_ways: two_ways(&rows, Figure::speed(measure, Percentile::P50)),
        latency: Estimate::of(&latencies),
        rate: Estimate::of(&rates),
        cpu: Estimate::of(&cpus),
        goals,
        share_of_rate,
        of_maxima: latency_rows.iter().any(|row| row.trials().any(|t| t.lacks(percentile))),
        has_server: mix.trials().any(|t| t.has_server()),
        kept_awake: candidate.wait == crossway_mech::Wait::Block
            && 2 * mix.trials().filter(|t| t.kept_awake()).count() > mix.trials().count(),
        must_sleep: question.wish(Property::Spinning) == Wish::Prohibit,
        part: part(mix.trials().map(|t| t.survey_part())),
        durations: mix.trials().map(|t| t.planned()).collect(),
        cases,
        runs,
        plain_runs,
        former: false,
    })
}

/// The two groups into which the trials of a run fall, if they do, by the same figure as in
/// [`crossway_records::regimes`], whatever is asked. Between two runs the machine may have changed.
fn two_ways(rows: &[Row<'_>], speed: Figure) -> Option<TwoWays> {
    let mut by_run: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for row in rows {
        let (Some(first), Some(ns)) = (row.trials().next(), row.mean(speed)) else { continue };
        by_run.entry(&first.run).or_default().push(ns);
    }
    by_run.into_values().filter_map(TwoWays::of).max_by_key(|two| two.trials[0] + two.trials[1])
}

/// How far a survey measured a candidate: `Last` if any of its trials is from the last stages; else `Early` if all of
/// them are from early stages (the candidate was dropped); else `OfOther` if any is from a survey for another question;
/// else `None`.
fn part(mut parts: impl Iterator<Item = Option<SurveyPart>>) -> Option<SurveyPart> {
    let mut to = parts.next()?;
    for part in parts {
        to = match (to, part) {
            (Some(SurveyPart::Last), _) | (_, Some(SurveyPart::Last)) => Some(SurveyPart::Last),
            (Some(SurveyPart::Early), Some(SurveyPart::Early)) => to,
            (Some(SurveyPart::OfOther), _) | (_, Some(SurveyPart::OfOther)) => {
                Some(SurveyPart::OfOther)
            }
            _ => None,
        };
    }
    to
}

/// Orders achieved shares of a rate: those that surely miss it come first, then undecided ones, then those that reach
/// it. Within each of these groups, the order is that of the medians.
fn by_shortfall(a: &Estimate, b: &Estimate) -> std::cmp::Ordering {
    let key = |f: &Estimate| match rate_reached(f) {
        Some(false) => 0,
        None => 1,
        Some(true) => 2,
    };
    key(a).cmp(&key(b)).then(a.value.total_cmp(&b.value))
}

/// Whether the stated rate counts as reached; `share` is the achieved share of it. As in reports and rankings, the median
/// of at least five trials must have reached it. `None` if [`RATE_REACHED`] lies within the interval of the trials below
/// such a median (or, with few trials, within their range).
fn rate_reached(share: &Estimate) -> Option<bool> {
    match share {
        f if f.low >= RATE_REACHED => Some(true),
        f if f.high < RATE_REACHED => Some(false),
        f if f.n >= TRIALS_AT_LEAST && f.value < RATE_REACHED => Some(false),
        _ => None,
    }
}

/// The choice among judged candidates.
#[derive(Clone, Debug)]
pub struct Choice<'a> {
    /// The recommended candidate.
    pub chosen: &'a Judged,
    /// The other candidates that are equal to the recommended one for this question.
    pub equal: Vec<&'a Judged>,
    /// The best of the other mechanisms.
    pub runner_up: Option<&'a Judged>,
    /// Probability, given all trials, that the choice costs at most [`EQUAL_WITHIN`] more than the best. 0 with fewer
    /// than [`TRIALS_AT_LEAST`] trials, since a handful of equal figures would suggest certainty.
    pub confidence: f64,
    /// The candidates among which the choice was made, including the chosen one: those that were measured to the end
    /// and that no trial speaks against.
    pub pursued: Vec<&'a Judged>,
    /// The candidates that may be the best or within [`EQUAL_WITHIN`] of it, including the choice.
    pub possible: Vec<&'a Judged>,
}

impl Choice<'_> {
    /// Whether the confidence is so high that no other candidate is likely to be better.
    pub fn is_certain(&self) -> bool {
        self.confidence >= CERTAIN
    }

    /// Whether more trials of the same length are unlikely to change the choice: the confidence is high enough, and the
    /// stated rate and every measured goal are decided, except goals that only longer trials could decide.
    pub fn is_settled(&self) -> bool {
        // Further trials that are as short cannot cure a lack of samples.
        let open = |g: &JudgedGoal| g.met.is_none() && g.measured.is_some() && !g.lacks_samples();
        self.is_certain()
            && !self.chosen.goals.iter().any(open)
            && self.chosen.open_rate().is_none()
    }
}

/// Chooses a candidate, by the criteria of `among`, among those about which there is as much evidence as about the others
/// (`at_equal_evidence`). `None` if none of these is admissible.
pub fn choose<'a>(question: &Question, judged: &'a [Judged]) -> Option<Choice<'a>> {
    let mut admissible = at_equal_evidence(judged);
    // The records of other runs do not name the stages. There, only runs with trials of both show that one was dropped
    // and the other was not.
    let first = among(question, admissible.clone())?.chosen;
    admissible.retain(|j| {
        let is_part =
            first.runs.len() > j.runs.len() && j.runs.iter().all(|r| first.runs.contains(r));
        matches!(j.part, Some(SurveyPart::Last | SurveyPart::OfOther)) || !is_part
    });
    among(question, admissible)
}

/// Chooses a candidate as [`choose`] does, but also among those that an earlier stage dropped.
pub(super) fn choose_of_all<'a>(question: &Question, judged: &'a [Judged]) -> Option<Choice<'a>> {
    among(question, admissible(judged))
}

/// The admissible candidates that were measured as well as those that are not admissible. A candidate does not win because
/// it was measured less: by trials of earlier runs if the others were measured now, by those of an early stage if the
/// others were measured to the end, or by trials with too few samples for a percentile if longer ones rule others out.
fn at_equal_evidence(judged: &[Judged]) -> Vec<&Judged> {
    let is_early = |j: &Judged| j.part == Some(SurveyPart::Early);
    let mut admissible = admissible(judged);
    if judged.iter().any(|j| !j.former) {
        admissible.retain(|j| !j.former);
    }
    let to_the_end = judged.iter().any(|j| j.part == Some(SurveyPart::Last) && !j.former);
    if to_the_end || !admissible.iter().all(|j| is_early(j)) {
        admissible.retain(|j| !is_early(j));
    }
    let missed = |at: usize| judged.iter().any(|j| j.goals.get(at).is_some_and(|g| g.by_samples));
    admissible.retain(|j| {
        let lacks = |(at, goal): (usize, &JudgedGoal)| goal.lacks_samples() && missed(at);
        !j.goals.iter().enumerate().any(lacks)
    });
    admissible
}

/// The admissible candidates that can be compared with each other.
fn admissible(judged: &[Judged]) -> Vec<&Judged> {
    let mut admissible: Vec<&Judged> = judged.iter().filter(|j| j.admissible()).collect();
    // Candidates dropped after a brief measurement have too few trials to be compared with those that were measured
    // thoroughly, and earlier runs may have met the machine in a different state.
    for better in [(|j| !j.former) as fn(&Judged) -> bool, |j| j.cost.n >= TRIALS_AT_LEAST] {
        if admissible.iter().any(|j| better(j)) {
            admissible.retain(|j| better(j));
        }
    }
    admissible
}

/// Chooses one of these candidates; `None` if there are none. The best candidate is the one that most probably costs at
/// most [`EQUAL_WITHIN`] more than the cheapest. Other candidates are equal to it if their medians are close, their
/// intervals overlap and their probabilities hardly differ. Among the best and its equals, the one with the fewest
/// undecided goals is chosen; then the one that satisfies the most preferences; then the one for which the program changes
/// least; then the simplest.
fn among<'a>(question: &Question, mut admissible: Vec<&'a Judged>) -> Option<Choice<'a>> {
    admissible.sort_small_by(|a, b| a.cost.value.total_cmp(&b.cost.value));
    let least = admissible.first()?.cost.value;
    let rivals: Vec<&Judged> =
        admissible.iter().copied().filter(|j| j.cost.value <= least * NO_RIVAL).collect();
    let costs: Vec<&[f64]> = rivals.iter().map(|j| j.costs.as_slice()).collect();
    let sure = within(&costs, EQUAL_WITHIN);
    let most = sure.iter().copied().fold(0.0, f64::max);
    let best = *rivals.iter().zip(&sure).find(|(_, p)| **p == most)?.0;
    let mut equal: Vec<(&Judged, f64)> = Vec::new();
    for (j, p) in rivals.iter().zip(&sure) {
        let near = j.cost.value <= best.cost.value * (1.0 + EQUAL_AT_MOST);
        if near && j.cost.overlaps(&best.cost) && *p >= most - AS_CERTAIN {
            equal.push((j, *p));
        }
    }
    equal.sort_small_by_key(|(j, _)| {
        let change = j.candidate.change_from(question.now);
        (j.undecided_goals(), -j.preferences(question), change, j.simplicity())
    });
    let (chosen, confidence) = equal.remove(0);
    let possible = rivals.iter().zip(&sure).filter(|(_, p)| **p >= HARDLY);
    let runner_up =
        admissible.iter().find(|j| j.candidate.mechanism != chosen.candidate.mechanism).copied();
    Some(Choice {
        chosen,
        equal: equal.into_iter().map(|(j, _)| j).collect(),
        runner_up,
        confidence: if chosen.cost.n < TRIALS_AT_LEAST { 0.0 } else { confidence },
        possible: possible.map(|(j, _)| *j).collect(),
        pursued: admissible,
    })
}
