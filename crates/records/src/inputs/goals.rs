//! Goals: bounds that a case must meet, by figure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A figure that a goal bounds. A latency is that of a round trip, of a paced message from its intended time to its
/// receipt, or of one exchange. The bound is a minimum for the two rates and a maximum for all other figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GoalFigure {
    /// Median latency of a trial, microseconds.
    P50Us,
    /// 90th percentile of the latency of a trial, microseconds.
    P90Us,
    /// 99th percentile of the latency of a trial, microseconds.
    P99Us,
    /// 99.9th percentile of the latency of a trial, microseconds.
    P999Us,
    /// 99.99th percentile of the latency of a trial, microseconds.
    P9999Us,
    /// Largest latency in any trial, microseconds.
    MaxUs,
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
        GoalFigure::P50Us,
        GoalFigure::P90Us,
        GoalFigure::P99Us,
        GoalFigure::P999Us,
        GoalFigure::P9999Us,
        GoalFigure::MaxUs,
        GoalFigure::MsgsPerS,
        GoalFigure::BytesPerS,
        GoalFigure::CpuUsPerMsg,
    ];

    /// The key in plans and records; the suffix is the unit.
    pub fn key(self) -> &'static str {
        match self {
            GoalFigure::P50Us => "p50_us",
            GoalFigure::P90Us => "p90_us",
            GoalFigure::P99Us => "p99_us",
            GoalFigure::P999Us => "p999_us",
            GoalFigure::P9999Us => "p9999_us",
            GoalFigure::MaxUs => "max_us",
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
