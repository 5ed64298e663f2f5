//! The chart of the three parts of an exchange: set-up, exchange, tear-down (item C4 of the cluster study).

use crossway_records::record::Span;

use super::{Axis, Chart, ChartKind, Scale, Series, View};
use crate::summary::Summary;
use crate::units;

pub(super) fn parts(summary: &Summary) -> Option<Chart> {
    let mut views = Vec::new();
    for setting in super::settings_with(summary, |c| c.latency(Span::SetUp).is_some()) {
        for size in summary.sizes(|c| c.setting == setting && c.latency(Span::SetUp).is_some()) {
            let series: Vec<Series> = [
                (Span::SetUp, "set-up"),
                (Span::Exchange, "exchange"),
                (Span::TearDown, "tear-down"),
            ]
            .into_iter()
            .map(|(span, name)| {
                let mut series = Series::named(name);
                for case in
                    summary.cases.iter().filter(|c| c.setting == setting && c.size_bytes == size)
                {
                    if let Some(latency) = case.latency(span) {
                        series.push_for(case.contender, &latency.p50, 1e-9, case.degraded);
                    }
                }
                series
            })
            .filter(|s| !s.y.is_empty())
            .collect();
            views.push(View {
                label: format!("{}, {}", units::size(size), summary.settings[setting].label()),
                size_bytes: Some(size),
                series,
                ..View::default()
            });
        }
    }
    (!views.is_empty()).then(|| Chart {
        id: "exchange",
        title: "A connection for every exchange".to_owned(),
        findings: Vec::new(),
        reading: "Median times, stacked: to connect (set-up), to send one request and receive its reply (exchange), \
                  and to close the connection until the peer has closed it, too (tear-down). If set-up and tear-down \
                  take longer than the exchange, it pays to keep the connection open."
            .to_owned(),
        kind: ChartKind::Bars,
        x: Axis::new("Time", Scale::Linear, "s"),
        y: Axis::new("", Scale::Names, ""),
        views,
        initial: 0,
        workloads: &["exchange"],
    })
}
