//! The figures that are compared, and what each of them is in a record.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cases::latency;
use crate::inputs::Measure;
use crate::record::{Record, Span};

/// The figure being compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "figure")]
pub enum Figure {
    /// Messages per second.
    Rate,
    /// Median latency of a span, nanoseconds.
    LatencyP50 {
        /// The span.
        span: Span,
    },
    /// 99th percentile of the latency of a span, nanoseconds.
    LatencyP99 {
        /// The span.
        span: Span,
    },
    /// CPU time of all roles and servers per message of a one-way workload, nanoseconds.
    CpuPerMessage,
    /// CPU time of all roles and servers per round trip, nanoseconds.
    CpuPerRoundTrip,
    /// CPU time of all roles and servers per exchange with connecting and closing, nanoseconds.
    CpuPerExchange,
}

/// All figures, in display order.
pub const FIGURES: [Figure; 14] = [
    Figure::Rate,
    Figure::LatencyP50 { span: Span::RoundTrip },
    Figure::LatencyP99 { span: Span::RoundTrip },
    Figure::LatencyP50 { span: Span::OneWay },
    Figure::LatencyP99 { span: Span::OneWay },
    Figure::LatencyP50 { span: Span::SetUp },
    Figure::LatencyP99 { span: Span::SetUp },
    Figure::LatencyP50 { span: Span::Exchange },
    Figure::LatencyP99 { span: Span::Exchange },
    Figure::LatencyP50 { span: Span::TearDown },
    Figure::LatencyP99 { span: Span::TearDown },
    Figure::CpuPerMessage,
    Figure::CpuPerRoundTrip,
    Figure::CpuPerExchange,
];

impl Figure {
    /// The figure of a trial. `None` if the trial does not have the figure, or if it would say nothing new: the rate of
    /// a closed loop is the reciprocal of its round trip, and the rate of a paced stream is fixed by its schedule.
    pub fn of(&self, record: &Record) -> Option<f64> {
        let measure = record.inputs.workload.facts().measure;
        match self {
            Figure::Rate => match measure {
                Measure::Rate => record.throughput.map(|t| t.msgs_per_s),
                Measure::RoundTrip | Measure::OneWay | Measure::Exchange => None,
            },
            Figure::LatencyP50 { span } => latency(record, *span).map(|l| l.p50 as f64),
            Figure::LatencyP99 { span } => {
                latency(record, *span).and_then(|l| l.p99).map(|p| p as f64)
            }
            Figure::CpuPerMessage | Figure::CpuPerRoundTrip | Figure::CpuPerExchange => {
                record.cost.filter(|_| *self == Figure::cpu(measure)).map(|c| c.cpu_ns_per_msg)
            }
        }
    }

    /// The span of a median latency; `None` for other figures.
    pub(super) fn p50_of(self) -> Option<Span> {
        if let Figure::LatencyP50 { span } = self { Some(span) } else { None }
    }

    /// The span of a 99th percentile; `None` for other figures.
    pub(super) fn p99_of(self) -> Option<Span> {
        if let Figure::LatencyP99 { span } = self { Some(span) } else { None }
    }

    /// The figure that expresses the CPU time of workloads with this measure. Each measure has a figure of its own,
    /// because a round trip takes several times the CPU time of a message by the same mechanism.
    fn cpu(measure: Measure) -> Figure {
        match measure {
            Measure::Rate | Measure::OneWay => Figure::CpuPerMessage,
            Measure::RoundTrip => Figure::CpuPerRoundTrip,
            Measure::Exchange => Figure::CpuPerExchange,
        }
    }

    /// Whether a larger value is better.
    pub fn more_is_better(&self) -> bool {
        matches!(self, Figure::Rate)
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span_name = |span: &Span| match span {
            Span::RoundTrip => "round trip",
            Span::OneWay => "one way",
            Span::SetUp => "set-up",
            Span::Exchange => "exchange",
            Span::TearDown => "tear-down",
        };
        match self {
            Figure::Rate => write!(f, "messages/s"),
            Figure::LatencyP50 { span } => write!(f, "{} p50", span_name(span)),
            Figure::LatencyP99 { span } => write!(f, "{} p99", span_name(span)),
            Figure::CpuPerMessage => write!(f, "CPU/message"),
            Figure::CpuPerRoundTrip => write!(f, "CPU/RTT"),
            Figure::CpuPerExchange => write!(f, "CPU/exchange"),
        }
    }
}
