//! The figures that are compared, and their form in a comparison's JSON.

use serde::{Serialize, Serializer};

use crate::figure::Figure;
use crate::inputs::{Measure, Per};
use crate::percentile::Percentile;
use crate::record::{Record, Span};

/// All figures that are compared, in display order.
pub(super) fn figures() -> Vec<Figure> {
    let spans = [Span::RoundTrip, Span::OneWay, Span::SetUp, Span::Exchange, Span::TearDown];
    let latencies = spans.into_iter().flat_map(|span| {
        [Percentile::P50, Percentile::P99].map(|percentile| Figure::Latency(span, percentile))
    });
    let cpu = [Per::Message, Per::RoundTrip, Per::Exchange].map(Figure::Cpu);
    std::iter::once(Figure::MessageRate).chain(latencies).chain(cpu).collect()
}

/// The figure of a trial. `None` if the trial does not have the figure, or if it would say nothing
/// new: the rate of a closed loop is the reciprocal of its round trip, and the rate of a paced
/// stream is fixed by its schedule.
pub(super) fn of(figure: Figure, record: &Record) -> Option<f64> {
    let says_it_all = record.inputs.workload.facts().measure == Measure::Rate;
    figure.of(record).filter(|_| figure != Figure::MessageRate || says_it_all)
}

/// The span of a latency at this percentile; `None` for other figures.
pub(super) fn span_at(figure: Figure, percentile: Percentile) -> Option<Span> {
    match figure {
        Figure::Latency(span, of) if of == percentile => Some(span),
        _ => None,
    }
}

/// Writes a figure as its kind in `figure` and, for a latency, its span in `span`.
pub(super) fn kind_and_span<S: Serializer>(figure: &Figure, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Named {
        figure: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        span: Option<Span>,
    }
    let (kind, span) = match figure {
        Figure::MessageRate => ("rate".to_owned(), None),
        Figure::Latency(span, percentile) => {
            (format!("latency-{}", percentile.word()), Some(*span))
        }
        Figure::Cpu(Per::Message) => ("cpu-per-message".to_owned(), None),
        Figure::Cpu(Per::RoundTrip) => ("cpu-per-round-trip".to_owned(), None),
        Figure::Cpu(Per::Exchange) => ("cpu-per-exchange".to_owned(), None),
        other => (other.key(), None),
    };
    Named { figure: kind, span }.serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_as_in_earlier_versions() {
        let written = |figure| {
            let mut text = Vec::new();
            kind_and_span(&figure, &mut serde_json::Serializer::new(&mut text)).expect("JSON");
            String::from_utf8(text).expect("text")
        };
        let texts: Vec<String> = figures().into_iter().map(written).collect();
        assert_eq!(texts.len(), 14);
        assert_eq!(texts[0], r#"{"figure":"rate"}"#);
        assert_eq!(texts[1], r#"{"figure":"latency-p50","span":"round-trip"}"#);
        assert_eq!(texts[10], r#"{"figure":"latency-p99","span":"tear-down"}"#);
        assert_eq!(texts[12], r#"{"figure":"cpu-per-round-trip"}"#);
    }
}
