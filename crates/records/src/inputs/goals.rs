//! Goals: bounds that a case must meet, by figure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::percentile::Percentile;

/// A figure that a goal bounds. A latency is that of a round trip, of a paced message from its
/// intended time to its receipt, or of one exchange with connecting and closing. The bound is a
/// minimum for the two rates and a maximum for all other figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum GoalFigure {
    /// A percentile of the latency of a trial, microseconds; of the maximum, the largest of all
    /// trials counts.
    Latency(Percentile),
    /// Number of messages received per second.
    MsgsPerS,
    /// Number of payload bytes received per second.
    BytesPerS,
    /// CPU time per message of all roles and of servers such as a `tipcd`, microseconds.
    CpuUsPerMsg,
}

impl GoalFigure {
    /// All figures, in display order.
    pub const ALL: [GoalFigure; 9] = [
        GoalFigure::Latency(Percentile::P50),
        GoalFigure::Latency(Percentile::P90),
        GoalFigure::Latency(Percentile::P99),
        GoalFigure::Latency(Percentile::P999),
        GoalFigure::Latency(Percentile::P9999),
        GoalFigure::Latency(Percentile::Max),
        GoalFigure::MsgsPerS,
        GoalFigure::BytesPerS,
        GoalFigure::CpuUsPerMsg,
    ];

    /// The key in plans and records; the suffix is the unit.
    pub fn key(self) -> &'static str {
        match self {
            GoalFigure::Latency(percentile) => percentile.key(),
            GoalFigure::MsgsPerS => "msgs_per_s",
            GoalFigure::BytesPerS => "bytes_per_s",
            GoalFigure::CpuUsPerMsg => "cpu_us_per_msg",
        }
    }

    /// Whether the bound is a maximum; otherwise it is a minimum.
    pub fn at_most(self) -> bool {
        !matches!(self, GoalFigure::MsgsPerS | GoalFigure::BytesPerS)
    }
}

impl From<GoalFigure> for &'static str {
    fn from(figure: GoalFigure) -> &'static str {
        figure.key()
    }
}

impl TryFrom<String> for GoalFigure {
    type Error = String;

    fn try_from(key: String) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|figure| figure.key() == key);
        found.ok_or_else(|| {
            let keys = Self::ALL.map(GoalFigure::key).join(", ");
            format!("there is no figure '{key}' to bound; there are {keys}")
        })
    }
}

/// The goals of a case: bounds by figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Goals(pub BTreeMap<GoalFigure, f64>);

impl Goals {
    /// Whether nothing is required.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
