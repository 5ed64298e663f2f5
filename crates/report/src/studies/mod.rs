//! "Study says / measured here": the findings of the source studies held against a run's records.
//!
//! Each finding is judged by a rule that is stated with it. A claim is *confirmed* where the 95 % bootstrap interval over trials lies
//! wholly on its side (of at least five trials), *not confirmed* where the interval lies wholly on the other or so near to the bound that there is nothing to speak of, and
//! *undecided* where the trials leave it open, with the number of trials that would decide, and
//! *not measurable here* where there are none. Where today's kernel disagrees with a study, that is
//! a result; no figure is bent towards one.

mod cluster;
pub(crate) mod enea;
mod evidence;
mod show;
mod toshiba;

use serde::Serialize;

use crate::estimate::Estimate;
use crate::run::Run;
use crate::steps::Shapes;
use crate::units::Quantity;

pub use evidence::Evidence;
pub use show::{headline, json, lines, markdown, section};

use evidence::Call;

/// What came of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The records say what the study says.
    Confirmed,
    /// They say something else.
    NotConfirmed,
    /// There are records, and their trials leave it open.
    Undecided,
    /// There are no records of it.
    NotMeasurable,
}

impl Verdict {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Confirmed => "confirmed",
            Verdict::NotConfirmed => "not confirmed",
            Verdict::Undecided => "undecided",
            Verdict::NotMeasurable => "not measurable here",
        }
    }
}

impl From<Call> for Verdict {
    fn from(call: Call) -> Verdict {
        match call {
            Call::Holds => Verdict::Confirmed,
            Call::Fails => Verdict::NotConfirmed,
            Call::Open(_) => Verdict::Undecided,
        }
    }
}

/// A measured figure that bears on a finding.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What it is.
    pub what: String,
    /// Its unit.
    pub quantity: Quantity,
    /// Median over trials with its interval.
    pub value: Estimate,
}

impl Figure {
    fn new(what: impl Into<String>, quantity: Quantity, value: Estimate) -> Figure {
        Figure { what: what.into(), quantity, value }
    }
}

/// A finding of a study and what became of it here.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its number in the list of the studies' items: `T4`.
    pub id: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// What the study says, with its figure.
    pub says: &'static str,
    /// Where it was measured here; empty where it was not.
    pub place: String,
    /// The figures.
    pub figures: Vec<Figure>,
    /// What came of it.
    pub verdict: Verdict,
    /// Of an undecided one: about how many trials a case would decide it; null where that cannot be said.
    pub trials_needed: Option<u32>,
    /// Why.
    pub why: String,
    /// By which rule.
    pub rule: &'static str,
}

/// A verdict with what an undecided one lacks.
struct Outcome {
    verdict: Verdict,
    trials_needed: Option<u32>,
}

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Outcome {
        Outcome { verdict, trials_needed: None }
    }
}

impl From<Call> for Outcome {
    fn from(call: Call) -> Outcome {
        let trials_needed = if let Call::Open(needed) = call { needed } else { None };
        Outcome { verdict: call.into(), trials_needed }
    }
}

/// The part of a finding that does not depend on a run.
#[derive(Clone, Copy, Debug)]
struct Claim {
    id: &'static str,
    title: &'static str,
    says: &'static str,
    rule: &'static str,
}

impl Claim {
    fn judged(
        self,
        place: impl Into<String>,
        figures: Vec<Figure>,
        verdict: impl Into<Outcome>,
        why: impl Into<String>,
    ) -> Finding {
        let Outcome { verdict, trials_needed } = verdict.into();
        Finding {
            id: self.id,
            title: self.title,
            says: self.says,
            place: place.into(),
            figures,
            verdict,
            trials_needed,
            why: why.into(),
            rule: self.rule,
        }
    }

    fn without_records(self, why: String) -> Finding {
        self.judged("", Vec::new(), Verdict::NotMeasurable, why)
    }
}

/// A study with its findings.
#[derive(Clone, Debug)]
pub struct Study {
    /// Anchor and the plan that measures it.
    pub plan: &'static str,
    /// What it is.
    pub title: &'static str,
    /// What was measured there, and on what.
    pub setup: &'static str,
    /// Its findings, in the order of their numbers.
    pub findings: Vec<Finding>,
}

/// The studies that this run bears on: the one whose plan it ran; for any other plan those of which it decides a finding, with what it
/// can say of them and no more.
pub fn all(run: &Run, shapes: &Shapes) -> Vec<Study> {
    let evidence = Evidence { run, shapes };
    let studies = [toshiba::study(&evidence), cluster::study(&evidence), enea::study(&evidence)];
    let plan = run.plan_name();
    if let Some(own) = studies.iter().find(|study| study.plan == plan) {
        return vec![own.clone()];
    }
    let decided = |f: &Finding| matches!(f.verdict, Verdict::Confirmed | Verdict::NotConfirmed);
    let mut touched: Vec<Study> =
        studies.into_iter().filter(|study| study.findings.iter().any(decided)).collect();
    for study in &mut touched {
        study.findings.retain(|f| f.verdict != Verdict::NotMeasurable);
    }
    touched
}
