//! The reasons in an answer: what was ruled out and why, when to prefer the runner-up, what would change the choice,
//! and why no mechanism was chosen.

use std::path::Path;

use serde::Serialize;

use super::super::judge::{EQUAL_WITHIN, Judged, choose, judge};
use super::super::objection::{NoChoice, joined};
use super::super::property::Wish;
use super::super::question::{Pattern, Percentile, Question};
use super::super::survey::{Survey, describe};
use super::{Advice, Flip, Sources};
use crossway_lab::faults::FAULTS;
use crossway_lab::run::Folder;
use crossway_records::figure::Figure;
use crossway_records::record::Span;
use crossway_records::runs::{OUT, QUESTION};
use crossway_records::shell;
use crossway_records::sorting::SortSmall;

/// Candidates that were ruled out for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason<'a> {
    /// Labels of the candidates.
    pub candidates: Vec<&'a str>,
    /// The reason.
    pub why: &'a str,
    /// The evidence for the reason.
    pub basis: &'a str,
}

impl Advice {
    /// The ruled-out candidates grouped by reason, in the order in which the reasons first appear.
    pub fn reasons(&self) -> Vec<Reason<'_>> {
        let mut reasons: Vec<Reason<'_>> = Vec::new();
        for out in &self.ruled_out {
            match reasons.iter_mut().find(|r| r.why == out.why && r.basis == out.basis) {
                Some(reason) => reason.candidates.push(&out.candidate),
                None => reasons.push(Reason {
                    candidates: vec![&out.candidate],
                    why: &out.why,
                    basis: &out.basis,
                }),
            }
        }
        reasons
    }

    /// The question's wishes other than `no-preference`, in words.
    pub fn wishes(question: &Question) -> Vec<String> {
        let said = |wish: &Wish| *wish != Wish::NoPreference;
        question
            .wishes
            .iter()
            .filter(|(_, w)| said(w))
            .map(|(p, w)| format!("{} {}", w.word(), question.property_words(*p)))
            .collect()
    }
}

/// Conditions under which to prefer the runner-up, `other`, to the choice, in words.
pub(super) fn prefer_if(question: &Question, chosen: &Judged, other: &Judged) -> Vec<String> {
    let mut reasons = Vec::new();
    for (own, its) in chosen.goals.iter().zip(&other.goals) {
        if own.met.is_none() && its.met == Some(true) {
            reasons.push(format!(
                "“{}” must be certain: its trials meet it ({}), those of the choice leave it undecided",
                own.goal,
                its.shown()
            ));
        }
    }
    if chosen.open_rate().is_some() && other.share_of_rate.is_some() && other.open_rate().is_none()
    {
        reasons.push(
            "the rate must be certain: its trials reach it, those of the choice leave it undecided"
                .to_owned(),
        );
    }
    let ratio = other.cost.value / chosen.cost.value;
    let unit = match question.objective.percentile() {
        Some(_) => "latency".to_owned(),
        None => objective_words(question),
    };
    if other.cost.overlaps(&chosen.cost) {
        reasons.push(format!(
            "it suits your code better: its {unit} may be equal, since the two intervals overlap (ratio {ratio:.2})"
        ));
    } else {
        reasons.push(format!("you can accept {ratio:.2} times the {unit}"));
    }
    if let (Some(own), Some(its)) = (chosen.cpu, other.cpu)
        && its.high < own.low
        && !question.objective.is_cpu()
    {
        reasons.push(format!(
            "CPU time matters more: the runner-up takes {:.0} % less per message",
            (1.0 - its.value / own.value) * 100.0
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

pub(super) fn settings(question: &Question, chosen: &Judged) -> Vec<String> {
    let mut settings = vec![match chosen.candidate.wait {
        crossway_mech::Wait::Block => "waiting: use blocking calls, or call poll first".to_owned(),
        crossway_mech::Wait::Spin => "waiting: spin, and give each end a CPU of its own".to_owned(),
        crossway_mech::Wait::Hybrid { spin_us } => {
            format!("waiting: spin for {spin_us} us, then sleep")
        }
    }];
    if chosen.candidate.mechanism.ends_with("-nodelay") {
        settings.push("set TCP_NODELAY (for SCTP: SCTP_NODELAY) on both ends".to_owned());
    }
    settings.push("buffers: the system's defaults, as measured".to_owned());
    settings.push(format!("placement: {}, as measured", question.placement.word()));
    settings
}

pub(super) fn enter_flips(
    advice: &mut Advice,
    question: &Question,
    chosen: &Judged,
    survey: &Survey,
) {
    for variation in &survey.variations {
        let varied = variation.apply(question);
        let mut there: Vec<Judged> =
            survey.varied.iter().filter_map(|c| judge(&varied, c, survey.trials.iter())).collect();
        there.sort_small_by(|a, b| a.cost.value.total_cmp(&b.cost.value));
        let choice = choose(&varied, &there);
        let own = there.iter().find(|j| j.candidate == chosen.candidate);
        let differs = match (&choice, own) {
            (Some(c), Some(own)) => {
                c.chosen.candidate.mechanism != own.candidate.mechanism
                    && (!own.admissible()
                        || (!own.cost.overlaps(&c.chosen.cost)
                            && own.cost.value > c.chosen.cost.value * (1.0 + EQUAL_WITHIN)))
            }
            (Some(_), None) | (None, _) => true,
        };
        // Of the candidates that are as good as the better one, those that are better for the same reason.
        let is_clear =
            |j: &&&Judged| own.is_none_or(|own| !own.admissible() || !own.cost.overlaps(&j.cost));
        let against = match &choice {
            Some(_) => own.filter(|own| differs && !own.admissible()),
            None => there.iter().min_by(|a, b| a.violation().total_cmp(&b.violation())),
        };
        let against = against.map(|j| format!("{}: {}", j.candidate.label(), objections(j)));
        advice.flips.push(Flip {
            variation: describe(variation, question),
            against,
            open_rate: own.and_then(Judged::open_rate),
            equal: choice
                .iter()
                .flat_map(|c| &c.equal)
                .filter(|j| is_clear(j))
                .map(|j| j.candidate.label())
                .collect(),
            choice: choice.map(|c| c.chosen.candidate.label()),
            differs,
            costs_ns: there.iter().map(|j| (j.candidate.label(), j.cost)).collect(),
        });
    }
}

/// What the trials say against a candidate that is not admissible, in words.
fn objections(j: &Judged) -> String {
    let failures = j.failures();
    if failures.is_empty() { not_pursued(j).join("; ") } else { joined(&failures) }
}

/// The number of trials in words: `1 trial`, `5 trials`.
pub(super) fn trials_words(n: usize) -> String {
    format!("{n} {}", if n == 1 { "trial" } else { "trials" })
}

/// Why a candidate's trials caused it not to be pursued, with the number of these trials; empty if the trials say
/// nothing against it.
pub(super) fn not_pursued(j: &Judged) -> Vec<String> {
    let doubts = j.doubts();
    if doubts.is_empty() {
        return Vec::new();
    }
    vec![format!("after {} ({})", trials_words(j.cost.n), joined(&doubts))]
}

/// The step that would decide what the trials leave undecided, in words.
pub(super) fn remedy(sources: &Sources<'_>, foreign: bool) -> &'static str {
    match (sources.budget, foreign) {
        (Some(_), _) => "allow more time with --time, or stop other work on this machine",
        (None, false) => "to measure the candidates now, repeat the command without --no-measure",
        (None, true) => {
            "to measure the candidates now, repeat the command without --no-measure, on this machine or on \
             the one that the records are from"
        }
    }
}

/// Explains why there is no choice; describes the candidate that comes closest to meeting the goals.
pub(super) fn nothing_admissible(
    question: &Question,
    sources: &Sources<'_>,
    judged: &[Judged],
    survey: &Survey,
) -> (NoChoice, String) {
    let less: Vec<String> =
        judged.iter().filter(|j| j.admissible()).map(|j| j.candidate.label()).collect();
    let mut by_violation: Vec<&Judged> = judged.iter().collect();
    // Trials of earlier runs may have met the machine in a different state.
    if by_violation.iter().any(|j| !j.former) {
        by_violation.retain(|j| !j.former);
    }
    by_violation.sort_small_by(|a, b| a.violation().total_cmp(&b.violation()));
    let Some(nearest) = by_violation.iter().find(|j| !j.admissible()).or(by_violation.first())
    else {
        let why = if survey.trials.is_empty() {
            "no record of this machine answers the question; repeat the command without --no-measure"
        } else {
            "no candidate could be measured; `--explain` gives the reasons"
        };
        return (NoChoice::NothingMeasured, why.to_owned());
    };
    let dropped = judged.iter().any(|j| j.failures().is_empty());
    let whose = if dropped { "no candidate that was measured to the end" } else { "no candidate" };
    let why = match nearest.failures() {
        failures if failures.is_empty() => {
            format!("not pursued {}", not_pursued(nearest).join("; "))
        }
        failures => joined(&failures),
    };
    let label = nearest.candidate.label();
    let mut text = format!("{whose} meets every requirement. The closest is {label}: {why}");
    if let (Some(rate), Some(share)) = (question.rate_per_s, nearest.missed_share()) {
        let remedy = match question.pattern {
            Pattern::RequestReply => {
                "keep several requests outstanding, or combine several into one"
            }
            Pattern::FanIn | Pattern::FanOut => {
                "use fewer peers, or combine several messages into one"
            }
            _ => "combine several messages into one",
        };
        text += &format!(
            ". At most about {:.0} messages per second are achieved here; state a rate clearly below that, or {remedy}",
            rate * share
        );
    }
    if less.is_empty() {
        return (NoChoice::NoneMeets, text);
    }
    let (named, more) = less.split_at(less.len().min(LESS_NAMED));
    let mut names = named.join(", ");
    if !more.is_empty() {
        names += &format!(" and {} more", more.len());
    }
    text += &format!(
        ". {names} may meet them, but had fewer or shorter trials, or earlier ones, so they cannot be compared with it; \
         {}",
        match sources.budget {
            Some(_) => "measure again when the machine is idle, or with more --time",
            None => "measure again, without --no-measure, when the machine is idle",
        }
    );
    (NoChoice::MeasuredLess, text)
}

/// Maximum number of candidates that were measured less that an answer names.
const LESS_NAMED: usize = 3;

pub(crate) fn objective_words(question: &Question) -> String {
    match question.objective {
        Figure::WholeExchange(Percentile::P50) => {
            "median time to connect, exchange and close".to_owned()
        }
        Figure::WholeExchange(percentile) => {
            format!("{} time to connect, exchange and close", percentile.name())
        }
        Figure::Latency(Span::OneWay, percentile) => {
            format!("one-way latency {}", percentile.name())
        }
        Figure::Latency(..) => question.objective.to_string(),
        Figure::MessageRate | Figure::ByteRate => "time per message".to_owned(),
        Figure::Cpu(_) => "CPU time per message".to_owned(),
    }
}

/// The commands that repeat the runs that gave the figures.
pub(super) fn commands(
    question: &Question,
    sources: &Sources<'_>,
    runs: &[&String],
) -> Vec<String> {
    // The plan that is kept with a run does not name hosts.
    let hosts =
        question.hosts.as_ref().map_or(String::new(), |h| format!(" --hosts {}", shell::word(h)));
    let one = |run: &&String| {
        let dir = sources.run_dir(run);
        let filters = Folder::info(&dir).map(|info| info.filters).unwrap_or_default();
        let filters: String =
            filters.iter().map(|f| format!(" --filter {}", shell::word(f))).collect();
        // The repetition belongs beside the run or the answer, where a question that names the folder finds it.
        let answer = dir.parent().filter(|folder| folder.join(QUESTION).is_file());
        let beside = match answer.unwrap_or(&dir).parent() {
            Some(folder) if folder == Path::new(OUT) => String::new(),
            Some(folder) if folder == Path::new("") => " -o .".to_owned(),
            Some(folder) => format!(" -o {}", shell::word(folder)),
            None => String::new(),
        };
        format!("crossway measure {}{beside}{filters}{hosts}", shell::word(dir.join("plan.toml")))
    };
    runs.iter().map(one).collect()
}

/// Maximum number of mechanisms that [`fault_tests`] names; the command for more of them tests all mechanisms.
const NAMED: usize = 8;

/// The command that tests the faults of these mechanisms and stores the records where this question finds them; `None`
/// if there are no such mechanisms.
pub(super) fn fault_tests(untested: &[&str], sources: &Sources<'_>) -> Option<String> {
    let (of, named) = match untested.len() {
        0 => return None,
        1..=NAMED => (untested.join(", "), format!(" {}", untested.join(" "))),
        n => (format!("{n} candidates"), String::new()),
    };
    let file = shell::word(sources.folder.join(FAULTS));
    Some(format!(
        "there are no fault records of {of} on this machine; to test their faults, run `crossway faults{named} --save \
         {file}`, then ask again"
    ))
}
