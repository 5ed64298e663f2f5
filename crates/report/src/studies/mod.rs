//! Compares the findings of the source studies with a run's records ("Study says / measured here").
//!
//! Each finding is judged by a rule that is stated with it. A claim is *confirmed* if the 95 % bootstrap interval over
//! at least five trials lies entirely on the claim's side of the bound; *not confirmed* if the interval lies entirely
//! on the other side, or so close to the bound that the difference is negligible; *undecided* if the trials leave it
//! open, with the number of trials that would decide it; and *not measurable here* if there are no trials. If today's
//! kernel disagrees with a study, that is a result; no figure is adjusted to match a study.

mod call;
mod cluster;
pub(crate) mod enea;
mod evidence;
mod show;
mod toshiba;

use serde::Serialize;

use crate::run::Run;
use crate::steps::Shapes;
use crate::units::Quantity;
use crossway_records::stats::Estimate;

pub use evidence::Evidence;
pub(crate) use show::brief;
pub use show::{headline, json, lines, markdown, section};

use call::Call;

/// The verdict on a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The records agree with the study.
    Confirmed,
    /// The records disagree with the study.
    NotConfirmed,
    /// There are records, but too few trials or too much noise to decide.
    Undecided,
    /// There are no records that bear on the finding.
    NotMeasurable,
}

impl Verdict {
    /// Returns the verdict's human-readable name.
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
            Call::Open(_) | Call::Lacking => Verdict::Undecided,
        }
    }
}

/// A measured figure that bears on a finding.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Name of the figure.
    pub what: String,
    /// The quantity, which decides the unit.
    pub quantity: Quantity,
    /// Median over trials, with its interval.
    pub value: Estimate,
}

impl Figure {
    fn new(what: impl Into<String>, quantity: Quantity, value: Estimate) -> Figure {
        Figure { what: what.into(), quantity, value }
    }
}

/// A finding of a study, with the verdict of this run on it.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Number of the finding in the list of the studies' items, such as `T4`.
    pub id: &'static str,
    /// Subject of the finding.
    pub title: &'static str,
    /// What the study says, with its figures.
    pub says: &'static str,
    /// Where the run measured the finding; empty if it did not.
    pub place: String,
    /// The measured figures that bear on the finding.
    pub figures: Vec<Figure>,
    /// The verdict.
    pub verdict: Verdict,
    /// If undecided, about how many trials per case would decide it; `None` if that cannot be estimated.
    pub trials_needed: Option<u32>,
    /// Whether the finding is undecided because a median lies so close to the bound that no practical number of trials
    /// would decide it.
    pub on_bound: bool,
    /// The reason for the verdict.
    pub why: String,
    /// The rule by which the claim was judged.
    pub rule: &'static str,
}

impl Finding {
    /// Returns whether one of the finding's figures has too few trials to decide anything.
    fn lacks_trials(&self) -> bool {
        self.figures.iter().any(|figure| !call::enough(&figure.value))
    }
}

/// A verdict, with the number of trials that an undecided one needs.
struct Outcome {
    verdict: Verdict,
    trials_needed: Option<u32>,
    on_bound: bool,
}

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Outcome {
        Outcome { verdict, trials_needed: None, on_bound: false }
    }
}

impl From<Call> for Outcome {
    fn from(call: Call) -> Outcome {
        let trials_needed = if let Call::Open(needed) = call { needed } else { None };
        Outcome { verdict: call.into(), trials_needed, on_bound: call == Call::Open(None) }
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
        let Outcome { verdict, trials_needed, on_bound } = verdict.into();
        Finding {
            id: self.id,
            title: self.title,
            says: self.says,
            place: place.into(),
            figures,
            verdict,
            trials_needed,
            on_bound,
            why: why.into(),
            rule: self.rule,
        }
    }

    fn without_records(self, why: String) -> Finding {
        self.judged("", Vec::new(), Verdict::NotMeasurable, why)
    }
}

/// A study and its findings.
#[derive(Clone, Debug)]
pub struct Study {
    /// Name of the plan that repeats the study; also the anchor on the page.
    pub plan: &'static str,
    /// Maximum number of trials per case in this run's plan.
    pub trials: u32,
    /// Title of the study.
    pub title: &'static str,
    /// What the study measured, and on which hardware and software.
    pub setup: &'static str,
    /// The findings, in the order of their numbers.
    pub findings: Vec<Finding>,
}

/// Returns the studies that this run bears on. If the run's plan is that of a study, this is that study alone.
/// Otherwise, these are the studies of which the run decides at least one finding, without the findings that are not
/// measurable here.
pub fn all(run: &Run, shapes: &Shapes) -> Vec<Study> {
    let evidence = Evidence { run, shapes };
    let studies = [toshiba::study(&evidence), cluster::study(&evidence), enea::study(&evidence)];
    let plan = run.study_plan();
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
