//! What speaks against a candidate, and why nothing is chosen: typed, and put into words here only.

use std::fmt;

use crossway_mech::Meeting;
use crossway_records::testbed::Share;
use crossway_sys::Obstacle;
use serde::Serialize;

use super::figure::{JudgedGoal, Short};
use super::judge::TwoWays;
use super::property::{Property, Wish};

/// What speaks against a candidate. As text, a clause of which the candidate is the subject.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Objection {
    /// A contender whose program was not built.
    NotBuilt,
    /// It does not work on this machine.
    NotHere(Obstacle),
    /// It can only spin, which the question does not allow.
    OnlySpins {
        /// The question's wish for spinning; `None` if it has none.
        wish: Option<Wish>,
    },
    /// It cannot spin, which the question requires.
    CannotSpin,
    /// The two programs have nothing in common by which the ends could meet.
    CannotMeet {
        /// What the ends need, any one of these.
        needs: Vec<Meeting>,
        /// What the programs, or their containers, have in common.
        shares: Vec<Share>,
        /// Whether the programs were started apart.
        apart: bool,
    },
    /// It lacks a required property, or has a prohibited one.
    Property {
        /// The property.
        property: Property,
        /// The property with the value that the question names.
        asked: String,
        /// Whether the property is required; otherwise it is prohibited.
        required: bool,
        /// Whether that is known; if not, there is no evidence about it here, but other candidates are known to be good.
        known: bool,
    },
    /// It cannot carry the question's messages under the question's conditions.
    Impossible {
        /// Why, with the remedy if a question can follow it.
        why: String,
    },
    /// Its trials failed.
    Failed {
        /// The error.
        why: String,
    },
    /// Its trials have no figure to compare.
    NoFigure {
        /// The figure that is compared, in words.
        figure: String,
        /// Why the records lack it, if they say so.
        why: Option<String>,
    },
    /// No record was taken under the conditions of the question.
    NoRecord,
    /// It does not reach the stated rate.
    MissedRate {
        /// The achieved fraction of the stated rate.
        share: f64,
    },
    /// Its ends hardly ever slept, and spinning is prohibited.
    KeptAwake,
    /// Its trials fall into two groups, so that no single figure is true of it.
    WorksInTwoWays(TwoWays),
    /// It misses a goal.
    MissedGoal {
        /// The goal, in words.
        goal: String,
        /// The figures that show it, in words.
        shown: String,
    },
    /// Its trials leave a goal undecided, but none of them suggests that it is met.
    UnlikelyGoal {
        /// The goal, in words.
        goal: String,
        /// The figures that show it, in words.
        shown: String,
    },
}

impl Objection {
    /// That the trials make it unlikely that an undecided goal is met; `None` if they do not.
    pub(super) fn of_unlikely(goal: &JudgedGoal) -> Option<Objection> {
        let shown = match (goal.none_meets_from, goal.lacking) {
            _ if goal.far_beyond => goal.shown(),
            (Some(least), Some(l)) => format!(
                "no trial shows that it is met; the smallest figure of the {} trials with enough samples is {} {}",
                l.of - l.trials,
                Short(least),
                goal.unit
            ),
            _ => return None,
        };
        Some(Objection::UnlikelyGoal { goal: goal.goal.clone(), shown })
    }

    /// That a goal is missed; `None` if it is met or undecided.
    pub(super) fn of_goal(goal: &JudgedGoal) -> Option<Objection> {
        if goal.met != Some(false) {
            return None;
        }
        let shown = match goal.measured {
            Some(f) if goal.largest.is_none() && !goal.of_maxima => {
                let counted = goal.lacking.map_or(String::new(), |l| {
                    format!(" in the {} trials that have enough samples", l.of - l.trials)
                });
                let (low, high) = (Short(f.low), Short(f.high));
                format!("{} ({low} to {high}) {}{counted}", Short(f.value), goal.unit)
            }
            _ => goal.shown(),
        };
        Some(Objection::MissedGoal { goal: goal.goal.clone(), shown })
    }
}

impl Objection {
    /// The kind of the objection in a few words, as after a number of candidates: `2 spinning only`.
    pub fn brief(&self) -> String {
        match self {
            Objection::NotBuilt => "not built".to_owned(),
            Objection::NotHere(_) => "not working here".to_owned(),
            Objection::OnlySpins { .. } => "spinning only".to_owned(),
            Objection::CannotSpin => "unable to spin".to_owned(),
            Objection::CannotMeet { needs, apart: true, .. }
                if needs[..] == [Meeting::Descriptor] =>
            {
                "needing a common parent".to_owned()
            }
            Objection::CannotMeet { .. } => "unable to meet there".to_owned(),
            Objection::Property { asked, known: false, .. } => {
                format!("without evidence for {asked}")
            }
            Objection::Property { asked, required: true, .. } => format!("without {asked}"),
            Objection::Property { asked, .. } => format!("with {asked}"),
            Objection::Impossible { .. } => "unable to carry it".to_owned(),
            Objection::Failed { .. } => "failed".to_owned(),
            Objection::NoFigure { .. } | Objection::NoRecord => "not measured".to_owned(),
            Objection::MissedRate { .. } => "too slow for the rate".to_owned(),
            Objection::KeptAwake => "hardly sleeping".to_owned(),
            Objection::WorksInTwoWays(_) => "working in one of two ways".to_owned(),
            Objection::MissedGoal { .. } | Objection::UnlikelyGoal { .. } => {
                "missing a goal".to_owned()
            }
        }
    }
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Objection::NotBuilt => {
                f.write_str("it is not built; build it with `crossway contender build NAME`")
            }
            Objection::NotHere(obstacle) => obstacle.fmt(f),
            Objection::OnlySpins { wish } => f.write_str(match wish {
                Some(Wish::Prohibit) => "spinning is prohibited, and it can only spin",
                Some(Wish::Avoid) => "spinning is to be avoided, and it can only spin",
                _ => {
                    "it can only spin, and spinning was not allowed; allow it with `--no-preference spinning`"
                }
            }),
            Objection::CannotSpin => f.write_str("spinning is required, and it cannot spin"),
            Objection::CannotMeet { needs, shares, apart } => {
                f.write_str(&cannot_meet(needs, shares, *apart))
            }
            Objection::Property { asked, required, known, .. } => {
                let adjective = if *required { "required" } else { "prohibited" };
                match (known, required) {
                    (false, _) => write!(
                        f,
                        "no evidence here shows whether it has the {adjective} property {asked}"
                    ),
                    (true, true) => write!(f, "it lacks the {adjective} property {asked}"),
                    (true, false) => write!(f, "it has the {adjective} property {asked}"),
                }
            }
            Objection::Impossible { why } | Objection::Failed { why } => f.write_str(why),
            Objection::NoFigure { figure, why: None } => write!(f, "its trials have no {figure}"),
            Objection::NoFigure { figure, why: Some(why) } => {
                write!(f, "its trials have no {figure}: {why}")
            }
            Objection::NoRecord => {
                f.write_str("no record was taken under the conditions of this question")
            }
            Objection::MissedRate { share } => {
                write!(f, "achieves {} % of the stated rate", percent_below(*share))
            }
            Objection::KeptAwake => write!(
                f,
                "spinning is prohibited, and its ends {}",
                crossway_records::awake::SLEPT
            ),
            Objection::WorksInTwoWays(TwoWays { trials, us }) => {
                let range = |(low, high): (f64, f64)| format!("{} to {}", Short(low), Short(high));
                write!(
                    f,
                    "chance decides how fast it is: {} trials took {} us per message, {} took {}",
                    trials[0],
                    range(us[0]),
                    trials[1],
                    range(us[1])
                )
            }
            Objection::MissedGoal { goal, shown } | Objection::UnlikelyGoal { goal, shown } => {
                write!(f, "{goal}: {shown}")
            }
        }
    }
}

/// Why ends that need one of `needs` cannot meet, and what to say if they can.
fn cannot_meet(needs: &[Meeting], shares: &[Share], apart: bool) -> String {
    let ways = Meeting::any_of(needs);
    if apart && needs == [Meeting::Descriptor] {
        return format!(
            "its ends meet by {ways}, and the two programs were started apart; if one starts the other, or one program \
             starts both, say so: `--started together`"
        );
    }
    let whose = if apart { "programs, which were started apart," } else { "containers" };
    let in_common: Vec<&str> = shares.iter().map(|share| share.name()).collect();
    let in_common = match in_common.is_empty() {
        true => "nothing".to_owned(),
        false => format!("only {}", in_common.join(", ")),
    };
    let missing = Share::ALL.iter().filter(|share| !shares.contains(share));
    let remedies: Vec<String> = missing
        .filter(|share| needs.iter().any(|way| Share::let_meet(&[**share], *way)))
        .map(|share| format!("`--shares {}`", share.name()))
        .collect();
    let remedy = match remedies.is_empty() {
        true => String::new(),
        false => format!("; if yours share more, say so: {}", remedies.join(" or ")),
    };
    format!("its ends meet by {ways}, and the {whose} share {in_common}{remedy}")
}

/// Puts objections into one clause.
pub(super) fn joined(objections: &[Objection]) -> String {
    objections.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Formats a fraction in per cent. From 90 % on, the number has one decimal and is rounded down, so that a fraction
/// just below [`super::judge::RATE_REACHED`] does not appear to have reached it.
fn percent_below(share: f64) -> String {
    let percent = share * 100.0;
    if share < 0.9 {
        format!("{percent:.0}")
    } else {
        format!("{:.1}", (percent * 10.0).floor() / 10.0)
    }
}

/// Why an answer has no choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoChoice {
    /// No mechanism meets the requirements, or none that does can be measured.
    NoCandidate,
    /// No trial answers the question.
    NothingMeasured,
    /// The trials speak against every candidate.
    NoneMeets,
    /// The trials speak against every candidate that was measured enough; the others were measured less.
    MeasuredLess,
    /// The best candidate has too few trials.
    FewTrials,
    /// The trials do not tell the best candidates apart.
    Undistinguished,
}
