//! The figures of a trial: what each one is, whether more of it is better, and how it is written.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::inputs::{Measure, Per};
use crate::percentile::Percentile;
use crate::record::{Latency, Record, Span};

/// A figure of a trial, by which trials are ranked, compared, judged and chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Figure {
    /// Messages received per second.
    MessageRate,
    /// Payload bytes received per second.
    ByteRate,
    /// A percentile of the latency of a span, nanoseconds.
    Latency(Span, Percentile),
    /// The sum of a percentile of set-up, of exchange and of tear-down, nanoseconds. Between hosts
    /// with different clocks, no trial has a tear-down, and the sum is that of the other two.
    WholeExchange(Percentile),
    /// CPU time of all roles and servers, nanoseconds. Each unit has a figure of its own, because a
    /// round trip takes several times the CPU time of a message by the same mechanism.
    Cpu(Per),
}

impl Figure {
    /// The median round trip.
    pub const ROUND_TRIP: Figure = Figure::Latency(Span::RoundTrip, Percentile::P50);

    /// The latency for which a program waits if its workload is of this kind: of an exchange, that
    /// of connecting, request, reply and closing together. `None` if messages are not timed one by
    /// one.
    pub fn latency(measure: Measure, percentile: Percentile) -> Option<Figure> {
        match measure {
            Measure::Exchange => Some(Figure::WholeExchange(percentile)),
            measure => measure.span().map(|span| Figure::Latency(span, percentile)),
        }
    }

    /// The figure that says how fast a workload of this kind was: a latency or, if messages are not
    /// timed one by one, their rate.
    pub fn speed(measure: Measure, percentile: Percentile) -> Figure {
        Figure::latency(measure, percentile).unwrap_or(Figure::MessageRate)
    }

    /// The CPU time of workloads of this kind.
    pub fn cpu(measure: Measure) -> Figure {
        Figure::Cpu(measure.per())
    }

    /// The figure of a trial; `None` if the trial does not have it, for example because it has too
    /// few samples for the percentile.
    pub fn of(self, trial: &Record) -> Option<f64> {
        self.value(trial, Percentile::of)
    }

    /// The figure of a trial as a time in nanoseconds: of a rate, the time for each message or
    /// byte.
    pub fn ns(self, trial: &Record) -> Option<f64> {
        self.of(trial).map(|value| if self.more_is_better() { 1e9 / value } else { value })
    }

    /// Like [`Figure::of`], but with the largest sample, which is never smaller, in place of a
    /// percentile for which the trial has too few samples.
    pub fn at_most(self, trial: &Record) -> Option<f64> {
        self.value(trial, |percentile, latency| Some(percentile.of(latency).unwrap_or(latency.max)))
    }

    fn value(self, trial: &Record, of: fn(Percentile, &Latency) -> Option<u64>) -> Option<f64> {
        let latency = |span| trial.latency_ns.iter().find(|l| l.span == span);
        let ns = |span, percentile| of(percentile, latency(span)?).map(|ns| ns as f64);
        match self {
            Figure::MessageRate => trial.throughput.map(|t| t.msgs_per_s),
            Figure::ByteRate => trial.throughput.map(|t| t.bytes_per_s),
            Figure::Latency(span, percentile) => ns(span, percentile),
            Figure::WholeExchange(percentile) => {
                let closing = match latency(Span::TearDown) {
                    Some(_) => ns(Span::TearDown, percentile)?,
                    None => 0.0,
                };
                Some(ns(Span::SetUp, percentile)? + ns(Span::Exchange, percentile)? + closing)
            }
            Figure::Cpu(per) => {
                let cost =
                    trial.cost.filter(|_| trial.inputs.workload.facts().measure.per() == per);
                cost.map(|c| c.cpu_ns_per_msg)
            }
        }
    }

    /// The percentile of a latency; `None` for other figures.
    pub fn percentile(self) -> Option<Percentile> {
        match self {
            Figure::Latency(_, percentile) | Figure::WholeExchange(percentile) => Some(percentile),
            Figure::MessageRate | Figure::ByteRate | Figure::Cpu(_) => None,
        }
    }

    /// Whether this is a CPU time.
    pub fn is_cpu(self) -> bool {
        matches!(self, Figure::Cpu(_))
    }

    /// Whether a larger value is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Figure::MessageRate | Figure::ByteRate)
    }

    /// The field of a record that has the figure or, under `nulls`, the reason why the record lacks
    /// it.
    pub fn field(self) -> &'static str {
        match self {
            Figure::MessageRate | Figure::ByteRate => "throughput",
            Figure::Latency(..) | Figure::WholeExchange(_) => "latency_ns",
            Figure::Cpu(_) => "cost",
        }
    }

    /// The figure's key in JSON; the suffix is the unit.
    pub fn key(self) -> String {
        match self {
            Figure::MessageRate => "msgs-per-s".to_owned(),
            Figure::ByteRate => "bytes-per-s".to_owned(),
            Figure::Latency(span, percentile) => format!("{}-{}-ns", span.key(), percentile.word()),
            Figure::WholeExchange(Percentile::P50) => "whole-exchange-ns".to_owned(),
            Figure::WholeExchange(percentile) => format!("whole-exchange-{}-ns", percentile.word()),
            Figure::Cpu(per) => format!("cpu-per-{}-ns", per.name().replace(' ', "-")),
        }
    }

    /// The figure in the title of a table, such as `median round trip`.
    pub fn title(self) -> String {
        match self {
            Figure::MessageRate => "messages per second".to_owned(),
            Figure::ByteRate => "bytes per second".to_owned(),
            Figure::Latency(Span::RoundTrip, percentile) => {
                format!("{} round trip", percentile.words())
            }
            Figure::Latency(span, percentile) => format!("{}, {}", span.name(), percentile.words()),
            Figure::WholeExchange(percentile) => {
                format!("{} of the whole exchange", percentile.words())
            }
            Figure::Cpu(per) => format!("CPU time per {}", per.name()),
        }
    }
}

impl fmt::Display for Figure {
    /// Writes the figure as the head of a row or column, such as `round trip p99`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Figure::MessageRate => write!(f, "messages/s"),
            Figure::ByteRate => write!(f, "bytes/s"),
            Figure::Latency(span, percentile) => write!(f, "{} {}", span.name(), percentile.name()),
            Figure::WholeExchange(percentile) => write!(f, "whole exchange {}", percentile.name()),
            Figure::Cpu(Per::RoundTrip) => write!(f, "CPU/RTT"),
            Figure::Cpu(per) => write!(f, "CPU/{}", per.name()),
        }
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn an_exchange_takes_as_long_as_its_parts_together() {
        let mut record = samples::exchanges("tcp", &[100]).remove(0);
        let figure = |record: &Record, percentile| {
            let whole = Figure::latency(Measure::Exchange, percentile).expect("timed one by one");
            (whole.of(record), whole.at_most(record))
        };
        assert_eq!(figure(&record, Percentile::P50), (Some(600.0), Some(600.0)));
        assert_eq!(figure(&record, Percentile::P99), (Some(1800.0), Some(1800.0)));
        record.latency_ns[0].p99 = None;
        let with_largest = Some(3000.0 + 300.0 + 600.0);
        assert_eq!(figure(&record, Percentile::P99), (None, with_largest), "too few samples");
        record.latency_ns.pop();
        assert_eq!(figure(&record, Percentile::P50).0, Some(400.0), "the ends have two clocks");
        record.latency_ns.pop();
        assert_eq!(figure(&record, Percentile::P50).0, None);
    }

    #[test]
    fn cpu_times_of_different_units_are_different_figures() {
        let record = samples::ping_pong("pipe", 64, 0, 1000, 7.0);
        assert_eq!(Figure::cpu(Measure::RoundTrip).of(&record), Some(7.0));
        assert_eq!(Figure::cpu(Measure::OneWay).of(&record), None);
    }

    #[test]
    fn keys_and_words_are_those_of_earlier_versions() {
        let median = |measure| Figure::speed(measure, Percentile::P50);
        let written = |figure: Figure| (figure.key(), figure.title(), figure.to_string());
        for (figure, key, title, head) in [
            (median(Measure::Rate), "msgs-per-s", "messages per second", "messages/s"),
            (
                median(Measure::RoundTrip),
                "round-trip-p50-ns",
                "median round trip",
                "round trip p50",
            ),
            (median(Measure::OneWay), "one-way-p50-ns", "one way, median", "one way p50"),
            (
                Figure::Latency(Span::OneWay, Percentile::P99),
                "one-way-p99-ns",
                "one way, 99th percentile",
                "one way p99",
            ),
            (
                median(Measure::Exchange),
                "whole-exchange-ns",
                "median of the whole exchange",
                "whole exchange p50",
            ),
        ] {
            assert_eq!(written(figure), (key.to_owned(), title.to_owned(), head.to_owned()));
        }
    }
}
