//! Ends that look for a moment before they sleep: the cheapest way to make a mechanism quicker, since waking a program takes
//! longer than most answers. `crossway run` does it for programs as they are; a program can do it itself.

use crossway_mech::Wait;
use serde::Serialize;

use crate::candidate::Candidate;
use crate::judge::{Judged, judge};
use crate::property::{Property, Wish};
use crate::question::{Pattern, Question, Site};
use crate::survey::Survey;
use crossway_records::stats::Estimate;

/// How long an end looks before it sleeps, in microseconds: as long as `crossway run` at most.
pub const LOOK_US: u32 = crossway_run::wishes::LONGEST_LOOK.as_micros() as u32;
/// Number of trials of each candidate.
pub(crate) const LOOKING_TRIALS: u32 = 5;
/// What most programs have already, and what `crossway run` makes of TCP.
const USUAL: &str = "uds-stream";

/// What ends would gain that look before they sleep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Looking {
    /// The mechanism.
    pub mechanism: String,
    /// How long its ends look, microseconds.
    pub look_us: u32,
    /// The cost to minimise, nanoseconds per message.
    pub cost_ns: Estimate,
    /// CPU time of both ends, nanoseconds per message.
    pub cpu_ns: Option<Estimate>,
}

/// The candidates whose ends are to look before they sleep: the chosen one, and the usual one. None if the question says
/// anything about ends that keep a CPU busy, or if no end waits for an answer.
pub(crate) fn lookers(
    question: &Question,
    chosen: &Candidate,
    candidates: &[Candidate],
) -> Vec<Candidate> {
    let wish = question.wishes.get(&Property::Spinning);
    let may_look = wish.is_none_or(|wish| *wish == Wish::NoPreference);
    if !may_look
        || question.pattern != Pattern::RequestReply
        || question.is_shared()
        || question.site != Site::SameHost
        || chosen.wait != Wait::Block
    {
        return Vec::new();
    }
    let usual = candidates.iter().filter(|c| c.mechanism == USUAL && **c != *chosen);
    [chosen]
        .into_iter()
        .chain(usual)
        .filter(|c| c.wait == Wait::Block && c.caps.can_spin && !c.contender)
        .map(|c| Candidate { wait: Wait::Hybrid { spin_us: LOOK_US }, ..c.clone() })
        .collect()
}

/// The best of the survey's candidates whose ends look, if it is clearly cheaper than `chosen`.
pub(crate) fn better(question: &Question, survey: &Survey, chosen: &Judged) -> Option<Looking> {
    let judged = survey.looking.iter().filter_map(|c| judge(question, c, survey.trials.iter()));
    let best = judged
        .filter(|j| {
            j.cost.high < chosen.cost.low && j.two_ways.is_none() && j.violations().is_empty()
        })
        .min_by(|a, b| a.cost.value.total_cmp(&b.cost.value))?;
    Some(Looking {
        mechanism: best.candidate.mechanism.to_owned(),
        look_us: LOOK_US,
        cost_ns: best.cost,
        cpu_ns: best.cpu,
    })
}
