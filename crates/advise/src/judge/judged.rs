//! A candidate with its figures, and what the figures say for and against it.

use std::collections::BTreeSet;

use super::super::candidate::Candidate;
use super::super::figure::{JudgedGoal, Short};
use super::super::objection::Objection;
use super::super::property::{Property, Wish};
use super::super::question::Question;
use super::super::trials::SurveyPart;
use super::{RATE_REACHED, rate_reached};
use crossway_records::compare::durations::Planned;
use crossway_records::regimes;
use crossway_records::stats::Estimate;
use crossway_records::stats::TRIALS_AT_LEAST;
use serde::Serialize;

/// A candidate with its figures.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The candidate.
    pub candidate: Candidate,
    /// The cost to minimise in each trial, nanoseconds per message.
    pub costs: Vec<f64>,
    /// Summary of the costs.
    pub cost: Estimate,
    /// The two groups into which the trials fall, if they do: chance decides in which way the candidate works.
    pub two_ways: Option<TwoWays>,
    /// Latency at the question's percentile, nanoseconds.
    pub latency: Option<Estimate>,
    /// Messages per second.
    pub rate: Option<Estimate>,
    /// CPU time of all ends and of servers between them, per message, nanoseconds.
    pub cpu: Option<Estimate>,
    /// Verdicts on the goals.
    pub goals: Vec<JudgedGoal>,
    /// Fraction of the stated rate that was achieved; in a mix of sizes, by the size that falls furthest short. `None`
    /// if no rate was stated.
    pub share_of_rate: Option<Estimate>,
    /// Whether the candidate needs a process other than the two ends.
    pub has_server: bool,
    /// Whether the candidate's ends may block but hardly ever slept in most of the trials, so that each kept its CPU
    /// busy.
    pub kept_awake: bool,
    /// Whether `costs` and `latency` contain the largest samples of trials with too few samples for the percentile by
    /// which latency is judged.
    pub of_maxima: bool,
    /// Whether the question prohibits ends that keep their CPUs busy (`spinning` has the wish `prohibit`).
    pub must_sleep: bool,
    /// Ids of the cases of the trials.
    pub cases: Vec<String>,
    /// Names of the runs that contain these trials.
    pub runs: Vec<String>,
    /// Those of these runs that were not stages of a survey, which decides itself what it measures side by side.
    pub plain_runs: Vec<String>,
    /// How far a survey measured the candidate: `Last` if any of the trials is from the last stages; else `Early` if
    /// all of them are from early stages (the candidate was dropped); else `OfOther` if any is from a survey for
    /// another question; else `None`.
    pub part: Option<SurveyPart>,
    /// The planned durations of the trials.
    pub durations: BTreeSet<Planned>,
    /// Whether the trials are from earlier runs, although other candidates have trials measured for this question.
    pub former: bool,
}

/// Two groups of trials that are far apart ([`crossway_records::regimes`]).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TwoWays {
    /// Numbers of trials of the faster and of the slower group.
    pub trials: [usize; 2],
    /// Smallest and largest time per message of each group, microseconds.
    pub us: [(f64, f64); 2],
}

impl TwoWays {
    /// Divides trials by their typical times per message, nanoseconds; `None` if they do not fall into two groups.
    pub(super) fn of(mut times: Vec<f64>) -> Option<TwoWays> {
        times.retain(|ns| *ns > 0.0);
        times.sort_unstable_by(f64::total_cmp);
        let (fast, slow) = times.split_at(regimes::gap(&times)?);
        let range = |group: &[f64]| (group[0] / 1e3, group[group.len() - 1] / 1e3);
        Some(TwoWays { trials: [fast.len(), slow.len()], us: [range(fast), range(slow)] })
    }
}

impl Judged {
    /// Whether the candidate may be chosen: no measurement rules it out, or makes it so unlikely to suit that it is not
    /// pursued.
    pub fn admissible(&self) -> bool {
        self.failures().is_empty() && self.doubts().is_empty()
    }

    /// Whether there are enough trials to rule the candidate out by figures that vary between trials.
    fn is_decided(&self) -> bool {
        self.cost.n >= TRIALS_AT_LEAST
    }

    /// What the trials say against the candidate besides the goals.
    fn objections(&self) -> Vec<Objection> {
        let rate = self.missed_share().map(|share| Objection::MissedRate { share });
        let awake = (self.kept_awake && self.must_sleep).then_some(Objection::KeptAwake);
        let two = self.two_ways.map(Objection::WorksInTwoWays);
        rate.into_iter().chain(awake).chain(two).collect()
    }

    /// The median of the achieved shares of the stated rate; `None` unless the whole interval is below
    /// [`RATE_REACHED`].
    pub fn missed_share(&self) -> Option<f64> {
        self.share_of_rate.filter(|f| rate_reached(f) == Some(false)).map(|f| f.value)
    }

    /// Says in words that the trials do not decide whether the candidate reaches the stated rate; `None` if they do, or
    /// if no rate was stated.
    pub fn open_rate(&self) -> Option<String> {
        let share = self.share_of_rate.filter(|f| rate_reached(f).is_none())?;
        let percent = |share: f64| Short(share * 100.0);
        let (low, high) = (percent(share.low), percent(share.high));
        let whose = match share.n {
            n if n < TRIALS_AT_LEAST => format!("{n} trials are on both sides of"),
            n => format!("the interval of {n} trials contains"),
        };
        Some(format!(
            "undecided: {whose} {:.0} % of the stated rate ({low} to {high} %)",
            RATE_REACHED * 100.0
        ))
    }

    /// The reasons other than goals that rule the candidate out.
    pub fn violations(&self) -> Vec<Objection> {
        if self.is_decided() { self.objections() } else { Vec::new() }
    }

    /// Why the candidate is ruled out; empty if it is not.
    pub fn failures(&self) -> Vec<Objection> {
        let mut why = self.violations();
        why.extend(self.goals.iter().filter_map(Objection::of_goal));
        why
    }

    /// Why the candidate is not pursued although it has too few trials to be ruled out.
    pub fn doubts(&self) -> Vec<Objection> {
        let mut why = if self.is_decided() { Vec::new() } else { self.objections() };
        why.extend(self.goals.iter().filter_map(Objection::of_unlikely));
        why
    }

    /// Number of goals that the trials leave undecided, including the rate.
    pub(crate) fn undecided_goals(&self) -> usize {
        let goals = self.goals.iter().filter(|g| g.met.is_none()).count();
        goals + usize::from(self.open_rate().is_some())
    }

    /// The largest factor by which a goal or the rate is missed; 1 if all are met, infinite if a prohibition is
    /// violated.
    pub fn violation(&self) -> f64 {
        if self.kept_awake && self.must_sleep {
            return f64::INFINITY;
        }
        let rate = self.missed_share().map_or(1.0, |s| (RATE_REACHED / s.max(1e-9)).max(1.0));
        self.goals.iter().map(JudgedGoal::excess).fold(rate, f64::max)
    }

    /// Number of the question's preferences that the candidate satisfies, minus the number that it violates. Ends that
    /// hardly slept count as spinning.
    pub fn preferences(&self, question: &Question) -> i32 {
        // The candidate's own count assumes that ends that may block do sleep.
        let spinning = match question.wish(Property::Spinning) {
            _ if !self.kept_awake => 0,
            Wish::Avoid => -2,
            Wish::Prefer => 2,
            Wish::Require | Wish::NoPreference | Wish::Prohibit => 0,
        };
        self.candidate.preferences(question) + spinning
    }

    /// Sort key, simpler mechanisms first: no privilege or kernel module, no library beyond system calls, no process
    /// other than the ends, no spinning, a pollable descriptor, no memory that both ends write, and finally the
    /// registry's order.
    pub fn simplicity(&self) -> (bool, bool, bool, bool, bool, bool, usize) {
        let caps = &self.candidate.caps;
        (
            caps.privilege != crossway_mech::Privilege::None,
            self.candidate.contender,
            self.has_server,
            self.candidate.wait != crossway_mech::Wait::Block || self.kept_awake,
            !caps.waitable_fd,
            caps.in_place,
            self.candidate.order,
        )
    }
}
