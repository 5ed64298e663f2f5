//! The intervals that workloads measure.

use serde::{Deserialize, Serialize};

/// The interval that a latency measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Span {
    /// From sending the request to receiving the reply.
    RoundTrip,
    /// From the intended send time to the receipt, on one clock.
    OneWay,
    /// The time for connecting.
    SetUp,
    /// From sending the request to receiving the reply on a fresh connection.
    Exchange,
    /// From the start of closing until the peer has closed as well.
    TearDown,
}

impl Span {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Span::RoundTrip => "round trip",
            Span::OneWay => "one way",
            span => span.key(),
        }
    }

    /// The name in records, in the keys of figures and in interval logs.
    pub fn key(self) -> &'static str {
        match self {
            Span::RoundTrip => "round-trip",
            Span::OneWay => "one-way",
            Span::SetUp => "set-up",
            Span::Exchange => "exchange",
            Span::TearDown => "tear-down",
        }
    }
}
