//! A variation of the question, and what it says in an answer.

use serde::Serialize;

use crossway_records::stats::Estimate;

/// A variation of the question, and how it changes the answer.
#[derive(Clone, Debug, Serialize)]
pub struct Flip {
    /// How the variation differs from the question.
    pub variation: String,
    /// Label of the candidate chosen for this variation; `None` if no candidate meets the goals.
    pub choice: Option<String>,
    /// Candidates that are as good as that one in the variation and, like it, clearly better than the candidate chosen
    /// for the question.
    pub equal: Vec<String>,
    /// Whether the variation changes the answer: no candidate meets the goals, or another mechanism is chosen because
    /// the one chosen for the question fails, costs clearly more or has no trials in the variation.
    pub differs: bool,
    /// What the trials of the variation say against the candidate chosen for the question, or, if none meets the goals,
    /// against the candidate that comes closest, in words: `pipe: max at most 500 us: 612 us`.
    pub against: Option<String>,
    /// Why the trials of the variation do not decide whether the candidate chosen for the question reaches the stated
    /// rate, in words; `None` if they do, or if no rate was stated.
    pub open_rate: Option<String>,
    /// The cost of each candidate that was compared, nanoseconds per message.
    pub costs_ns: Vec<(String, Estimate)>,
}

impl Flip {
    /// Describes in words whether the variation changes the choice; `answer` is the label of the candidate chosen for
    /// the question.
    pub fn outcome(&self, answer: Option<&str>) -> String {
        let open = self.open_rate.as_ref().map(|open| match answer {
            Some(answer) => format!("{answer}: rate {open}"),
            None => format!("rate {open}"),
        });
        let against = self.against.as_ref().or(open.as_ref());
        let because = against.map(|why| format!(" [{why}]")).unwrap_or_default();
        match (&self.choice, self.differs) {
            (Some(other), true) if self.equal.is_empty() => format!("{other} is better{because}"),
            (Some(other), true) => {
                format!("{other}, {} are better{because}", self.equal.join(", "))
            }
            (None, true) if self.costs_ns.is_empty() => "no candidate could be measured".to_owned(),
            (None, true) => format!("no candidate meets every requirement{because}"),
            _ if open.is_some() => open.unwrap_or_default(),
            (Some(other), false) if answer.is_some_and(|answer| answer != other) => {
                "no clear change".to_owned()
            }
            (_, false) => "no change".to_owned(),
        }
    }
}
