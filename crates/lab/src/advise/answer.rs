//! The answer to a question, complete enough to be printed, drawn or read by a program.

use serde::Serialize;

use super::Sources;
use super::candidate::{Candidate, Field, RuledOut};
use super::judge::{CONFIDENT, Choice, EQUAL_WITHIN, Figure, GoalVerdict, Judged, choose, judge};
use super::property::Wish;
use super::question::{Objective, Pattern, Question};
use super::survey::{Survey, describe};
use crate::stats::TRIALS_AT_LEAST;

/// A candidate in the decision table.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// Its label.
    pub candidate: String,
    /// The mechanism's id.
    pub mechanism: String,
    /// What is minimised, nanoseconds per message.
    pub cost_ns: Figure,
    /// Latency at the question's percentile, nanoseconds.
    pub latency_ns: Option<Figure>,
    /// Messages per second, one after the other or at full speed.
    pub rate_msgs_per_s: Option<Figure>,
    /// CPU time of both ends per message, nanoseconds.
    pub cpu_ns: Option<Figure>,
    /// Goals.
    pub goals: Vec<GoalVerdict>,
    /// `chosen`, `equal`, `admissible`, `not pursued` (a first look was enough), `fails`.
    pub verdict: &'static str,
    /// Cases of the trials behind it.
    pub cases: Vec<String>,
    /// Runs that they are from.
    pub runs: Vec<String>,
}

/// A setting in which the answer is another.
#[derive(Clone, Debug, Serialize)]
pub struct Flip {
    /// What differs from the question.
    pub variation: String,
    /// The choice there; `None`: no candidate keeps the goals.
    pub choice: Option<String>,
    /// Whether it differs from the answer, beyond what the trials leave open.
    pub differs: bool,
    /// The cost of each candidate that was compared, nanoseconds per message.
    pub costs_ns: Vec<(String, Figure)>,
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// The question's name.
    pub name: String,
    /// The question in one sentence.
    pub question: String,
    /// What is minimised.
    pub objective: Objective,
    /// The objective in words, with the percentile.
    pub objective_words: String,
    /// The recommended candidate's label; `None`: see `abstained`.
    pub choice: Option<String>,
    /// The mechanism behind it.
    pub mechanism: Option<String>,
    /// Why no choice is made.
    pub abstained: Option<String>,
    /// Candidates that are equal to the choice for this question.
    pub equal: Vec<String>,
    /// The best of the other mechanisms.
    pub runner_up: Option<String>,
    /// What it would take to prefer it.
    pub prefer_runner_up_if: Vec<String>,
    /// Share of resamples of the trials in which the choice costs at most 5 % more than the best.
    pub confidence: Option<f64>,
    /// What to set in the program.
    pub settings: Vec<String>,
    /// All candidates with figures, the least cost first.
    pub compared: Vec<Compared>,
    /// What was ruled out.
    pub ruled_out: Vec<RuledOut>,
    /// What would change the answer.
    pub flips: Vec<Flip>,
    /// Requirements that nothing answers, and other cautions.
    pub notes: Vec<String>,
    /// Seconds of measuring.
    pub measured_s: f64,
    /// The commands that measure the figures again.
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
        equal: Vec::new(),
        runner_up: None,
        prefer_runner_up_if: Vec::new(),
        confidence: None,
        settings: Vec::new(),
        compared: Vec::new(),
        ruled_out: field.ruled_out,
        flips: Vec::new(),
        notes: field.unanswered,
        measured_s: survey.took.as_secs_f64(),
        commands: Vec::new(),
    };
    if !question.wishes.contains_key(&super::property::Property::Spinning) {
        advice.notes.push(
            "spinning was not considered, since each end would occupy a CPU; `--no-preference spinning` allows it".to_owned(),
        );
    }
    advice.notes.extend(sources.library.warnings.iter().cloned());
    if field.candidates.is_empty() {
        let why = field.conflict.unwrap_or_else(|| "every mechanism was ruled out".to_owned());
        advice.abstained = Some(format!("no mechanism here is admissible: {why}"));
        return advice;
    }
    let judged = all_judged(question, &field.candidates, sources, survey, &mut advice);
    let choice = choose(question, &judged);
    enter_table(&mut advice, &judged, choice.as_ref());
    let mut runs: Vec<&String> = judged.iter().flat_map(|j| &j.runs).collect();
    runs.sort();
    runs.dedup();
    let plan = |run: &String| sources.folder.join(run).join("plan.toml");
    advice.commands =
        runs.iter().map(|run| format!("crossway measure {}", plan(run).display())).collect();
    match &choice {
        None => advice.abstained = Some(nothing_admissible(question, &judged, survey)),
        Some(choice) => enter_choice(&mut advice, question, choice, &judged, survey),
    }
    advice
}

/// Figures of every candidate that has them; those measured for this question stand before former ones, and other machines'
/// serve only where this one has none at all.
fn all_judged(
    question: &Question,
    candidates: &[Candidate],
    sources: &Sources<'_>,
    survey: &Survey,
    advice: &mut Advice,
) -> Vec<Judged> {
    let best_of = |c: &Candidate| {
        let fresh = judge(question, c, survey.trials.iter());
        fresh.or_else(|| judge(question, c, sources.library.own.iter()))
    };
    let mut judged: Vec<Judged> = candidates.iter().filter_map(best_of).collect();
    if judged.is_empty() && !sources.library.foreign.is_empty() {
        judged = candidates
            .iter()
            .filter_map(|c| judge(question, c, sources.library.foreign.iter()))
            .collect();
        if !judged.is_empty() {
            advice.notes.push(
                "these figures are from another machine: rankings turn from machine to machine, so measure here before you rely on them".to_owned(),
            );
        }
    }
    for candidate in candidates {
        if judged.iter().any(|j| j.candidate == *candidate) {
            continue;
        }
        let failed =
            survey.trials.iter().find(|t| t.mechanism == candidate.mechanism && t.reason.is_some());
        advice.ruled_out.push(match failed {
            Some(trial) => RuledOut {
                candidate: candidate.label(),
                why: trial.reason.clone().unwrap_or_default(),
                basis: format!("trials of {} in run {}", trial.case, trial.run),
            },
            None => RuledOut {
                candidate: candidate.label(),
                why: "no record answers this question".to_owned(),
                basis: "no record of this machine".to_owned(),
            },
        });
    }
    judged.sort_by(|a, b| a.cost.median.total_cmp(&b.cost.median));
    judged
}

fn enter_table(advice: &mut Advice, judged: &[Judged], choice: Option<&Choice<'_>>) {
    for j in judged {
        let same = |other: &Judged| std::ptr::eq(j, other);
        let verdict = match choice {
            Some(c) if same(c.chosen) => "chosen",
            Some(c) if c.equal.iter().any(|e| same(e)) => "equal",
            _ if !j.admissible() => "fails",
            Some(c) if c.chosen.cost.n >= TRIALS_AT_LEAST && j.cost.n < TRIALS_AT_LEAST => {
                "not pursued"
            }
            _ => "admissible",
        };
        for why in j.failures() {
            advice.ruled_out.push(RuledOut {
                candidate: j.candidate.label(),
                why,
                basis: format!("{} trials of {}", j.cost.n, j.cases.join(", ")),
            });
        }
        advice.compared.push(Compared {
            candidate: j.candidate.label(),
            mechanism: j.candidate.mechanism.to_owned(),
            cost_ns: j.cost,
            latency_ns: j.latency,
            rate_msgs_per_s: j.rate,
            cpu_ns: j.cpu,
            goals: j.goals.clone(),
            verdict,
            cases: j.cases.clone(),
            runs: j.runs.clone(),
        });
    }
}

fn enter_choice(
    advice: &mut Advice,
    question: &Question,
    choice: &Choice<'_>,
    judged: &[Judged],
    survey: &Survey,
) {
    let chosen = choice.chosen;
    let confidence = choice.confidence();
    advice.confidence = (chosen.cost.n >= TRIALS_AT_LEAST).then_some(confidence);
    advice.equal = choice.equal.iter().map(|j| j.candidate.label()).collect();
    advice.runner_up = choice.runner_up.map(|j| j.candidate.label());
    if let Some(other) = choice.runner_up {
        advice.prefer_runner_up_if = prefer_if(question, chosen, other);
    }
    let undecided: Vec<&GoalVerdict> = chosen.goals.iter().filter(|g| g.met.is_none()).collect();
    for goal in undecided {
        advice.notes.push(format!(
            "{}: whether {} keeps it is not decided by {} trials; allow more time with --time",
            goal.goal,
            chosen.candidate.label(),
            chosen.cost.n
        ));
    }
    if chosen.cost.n < TRIALS_AT_LEAST {
        advice.abstained = Some(format!(
            "{} has the least figures, but from {} trials; {TRIALS_AT_LEAST} are needed to tell it from the others: let advise measure, or allow more with --time",
            chosen.candidate.label(),
            chosen.cost.n
        ));
        return;
    }
    if confidence < CONFIDENT {
        let near: Vec<String> = judged
            .iter()
            .filter(|j| j.admissible() && j.cost.overlaps(&chosen.cost))
            .map(|j| j.candidate.label())
            .collect();
        advice.abstained = Some(format!(
            "the trials do not tell {} apart: repeated with the same spread, the same choice would be within 5 % of the best \
             in {:.0} % of cases; allow more time with --time, or end other work on this machine",
            near.join(", "),
            confidence * 100.0
        ));
        return;
    }
    advice.choice = Some(chosen.candidate.label());
    advice.mechanism = Some(chosen.candidate.mechanism.to_owned());
    advice.settings = settings(question, chosen);
    enter_flips(advice, question, judged, chosen, survey);
}

/// What a runner-up has that the choice has not.
fn prefer_if(question: &Question, chosen: &Judged, other: &Judged) -> Vec<String> {
    let mut reasons = Vec::new();
    let ratio = other.cost.median / chosen.cost.median;
    let unit = match question.objective {
        Objective::Latency => "latency",
        Objective::Throughput => "time per message",
        Objective::Cpu => "CPU time per message",
    };
    if other.cost.overlaps(&chosen.cost) {
        reasons.push(format!("it suits your code better: the intervals of its {unit} and of the choice's overlap (ratio {ratio:.2})"));
    } else {
        reasons.push(format!("you can accept {ratio:.2} times the {unit}"));
    }
    if let (Some(own), Some(its)) = (chosen.cpu, other.cpu)
        && its.high < own.low
        && question.objective != Objective::Cpu
    {
        reasons.push(format!(
            "CPU time counts more: it takes {:.0} % less per message",
            (1.0 - its.median / own.median) * 100.0
        ));
    }
    let (a, b) = (&chosen.candidate.caps, &other.candidate.caps);
    let gains: [(bool, &str); 6] = [
        (b.crosses_hosts && !a.crosses_hosts, "the peer may move to another host"),
        (b.waitable_fd && !a.waitable_fd, "you need a descriptor for poll or epoll"),
        (
            b.boundaries != a.boundaries && b.boundaries == crossway_mech::Boundaries::Message,
            "you need message boundaries",
        ),
        (b.in_place && !a.in_place, "the payload should be written in place"),
        (b.fan_in && !a.fan_in, "several senders share one receiver"),
        (b.reconnects && !a.reconnects, "the peers reconnect"),
    ];
    reasons.extend(gains.iter().filter(|(gains, _)| *gains).map(|(_, why)| (*why).to_owned()));
    reasons
}

fn settings(question: &Question, chosen: &Judged) -> Vec<String> {
    let mut settings = vec![match chosen.candidate.wait {
        crossway_mech::Wait::Block => "wait asleep: blocking calls, or poll before them".to_owned(),
        crossway_mech::Wait::Spin => "wait by spinning: give each end a CPU of its own".to_owned(),
        crossway_mech::Wait::Hybrid { spin_us } => format!("spin for {spin_us} us, then sleep"),
    }];
    if chosen.candidate.mechanism.ends_with("-nodelay") {
        settings.push("set TCP_NODELAY (SCTP_NODELAY) on both ends".to_owned());
    }
    settings.push("buffers: the system's defaults, with which it was measured".to_owned());
    settings.push(format!("placement: measured {}", question.placement.word()));
    settings
}

fn enter_flips(
    advice: &mut Advice,
    question: &Question,
    judged: &[Judged],
    chosen: &Judged,
    survey: &Survey,
) {
    let candidates: Vec<Candidate> = judged.iter().map(|j| j.candidate.clone()).collect();
    for variation in &survey.variations {
        let varied = variation.apply(question);
        let mut there: Vec<Judged> =
            candidates.iter().filter_map(|c| judge(&varied, c, survey.trials.iter())).collect();
        there.sort_by(|a, b| a.cost.median.total_cmp(&b.cost.median));
        let choice = choose(&varied, &there);
        let own = there.iter().find(|j| j.candidate == chosen.candidate);
        let differs = match (&choice, own) {
            (Some(c), Some(own)) => {
                c.chosen.candidate.mechanism != own.candidate.mechanism
                    && (!own.admissible()
                        || (!own.cost.overlaps(&c.chosen.cost)
                            && own.cost.median > c.chosen.cost.median * (1.0 + EQUAL_WITHIN)))
            }
            (Some(_), None) => true,
            (None, _) => false,
        };
        advice.flips.push(Flip {
            variation: describe(variation, question),
            choice: choice.map(|c| c.chosen.candidate.label()),
            differs,
            costs_ns: there.iter().map(|j| (j.candidate.label(), j.cost)).collect(),
        });
    }
}

/// The least violation first.
fn nothing_admissible(question: &Question, judged: &[Judged], survey: &Survey) -> String {
    let mut by_violation: Vec<&Judged> = judged.iter().collect();
    by_violation.sort_by(|a, b| a.violation().total_cmp(&b.violation()));
    let Some(nearest) = by_violation.first() else {
        return if survey.trials.is_empty() {
            "no record of this machine answers the question; let advise measure it, or measure its plan yourself".to_owned()
        } else {
            "no candidate could be measured; the table of what was ruled out says why".to_owned()
        };
    };
    let mut text = format!(
        "no candidate keeps every goal. The nearest is {}: {}",
        nearest.candidate.label(),
        nearest.failures().join("; ")
    );
    if let (Some(rate), Some(share), Pattern::Stream) =
        (question.rate_per_s, nearest.share_of_rate, question.pattern)
        && share < 1.0
    {
        text += &format!(
            ". At {:.0} messages per second it would; or send {} messages in one",
            rate * share,
            (1.0 / share.max(1e-6)).ceil() as u64
        );
    }
    text
}

fn objective_words(question: &Question) -> String {
    match (question.objective, question.pattern) {
        (Objective::Latency, Pattern::RequestReply) => {
            format!("round trip {}", question.percentile().name())
        }
        (Objective::Latency, Pattern::ConnectPerExchange) => {
            "connect, exchange and close, median".to_owned()
        }
        (Objective::Latency, _) => format!("one-way latency {}", question.percentile().name()),
        (Objective::Throughput, _) => "time per message".to_owned(),
        (Objective::Cpu, _) => "CPU time per message".to_owned(),
    }
}

impl Advice {
    /// What satisfied or offended preferences, for `--explain`.
    pub fn wishes(question: &Question) -> Vec<String> {
        let said = |wish: &Wish| *wish != Wish::NoPreference;
        question
            .wishes
            .iter()
            .filter(|(_, w)| said(w))
            .map(|(p, w)| format!("{} {}", w.word(), p.name()))
            .collect()
    }
}
