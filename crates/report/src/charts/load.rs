//! The chart that compares figures under load with those without load, and the mechanisms whose order changes under
//! load.

use super::{Axis, Chart, ChartKind, Scale, Series, View};
use crate::ranking::Metric;
use crate::summary::{Summary, load_name};
use crate::units;
use crate::verdict::list;
use crossway_records::rank::{By, Reversal};

pub(super) fn against_idle(summary: &Summary) -> Option<Chart> {
    // An idle setting, with the loaded settings that differ from it in nothing else.
    let groups: Vec<(usize, Vec<usize>)> = (0..summary.settings.len())
        .filter(|s| summary.settings[*s].load.is_idle())
        .map(|idle| {
            let loaded = (0..summary.settings.len())
                .filter(|s| *s != idle && summary.settings[*s].idle() == summary.settings[idle])
                .collect::<Vec<_>>();
            (idle, loaded)
        })
        .filter(|(_, loaded)| !loaded.is_empty())
        .collect();

    let mut views = Vec::new();
    let mut findings = in_words(&summary.reversals);
    let mut faster: Vec<String> = Vec::new();
    for (metric, name, axis) in [
        (
            Metric::ROUND_TRIP_P50,
            "median round trip",
            Axis::new("Median round trip", Scale::Log, "s"),
        ),
        (
            Metric::ROUND_TRIP_P99,
            "99th percentile",
            Axis::new("99th-percentile round trip", Scale::Log, "s"),
        ),
        (Metric::BYTE_RATE, "throughput", Axis::new("Payload bytes per second", Scale::Log, "B/s")),
    ] {
        let factor = if metric == Metric::BYTE_RATE { 1.0 } else { 1e-9 };
        for (idle, loaded) in &groups {
            let sizes = summary.sizes(|c| c.setting == *idle && metric.of(c).is_some());
            for size in sizes {
                let series: Vec<Series> = std::iter::once(idle)
                    .chain(loaded)
                    .map(|&setting| {
                        let mut series = Series::named(&load_name(summary.settings[setting].load));
                        for case in &summary.cases {
                            if case.setting == setting
                                && case.size_bytes == size
                                && let Some(figure) = metric.of(case)
                            {
                                series.push_for(case.contender, &figure, factor, case.degraded);
                            }
                        }
                        series
                    })
                    .filter(|s| !s.y.is_empty())
                    .collect();
                if series.len() < 2 {
                    continue;
                }
                faster.extend(faster_under_load(metric, &series).map(|who| {
                    format!("{} ({name}, {})", summary.contenders[who].label(), units::size(size))
                }));
                let mut place = summary.settings[*idle].clone();
                place.load = Default::default();
                views.push(View {
                    label: format!("{name}, {}, {}", units::size(size), place.label()),
                    value_axis: Some(axis.clone()),
                    size_bytes: Some(size),
                    series,
                    ..View::default()
                });
            }
        }
    }
    if views.is_empty() {
        return None;
    }
    let reversals = findings.len();
    if findings.len() > 5 {
        let rest = findings.len() - 4;
        findings.truncate(4);
        findings.push(format!("{rest} further changes of order are in the chart's other views."));
    }
    if !faster.is_empty() {
        findings.push(format!(
            "Faster under load than without: {}. The records do not show why. Possible causes are idle cores that must \
             be woken or clocked up, and other work that ran during the idle trials: see the problems found before the \
             run.",
            list(faster.into_iter())
        ));
    }
    if reversals == 0 {
        findings.push(
            "No two mechanisms of the same class clearly change their order under load.".to_owned(),
        );
    }
    Some(Chart {
        id: "load",
        title: "With and without load".to_owned(),
        findings,
        reading: "For each mechanism, the chart shows the figure without added load and with load in the background. \
                  The further apart the markers, the more the load affects the mechanism. If a figure is better under \
                  load, check the frequency governor, the idle states and what else was running before you trust the \
                  idle figure."
            .to_owned(),
        kind: ChartKind::Dots,
        x: Axis::new("Median round trip", Scale::Log, "s"),
        y: Axis::new("", Scale::Names, ""),
        views,
        initial: 0,
        workloads: &["ping-pong", "throughput"],
    })
}

/// Returns the contenders that are faster under some load than without load, by figures whose intervals do not overlap.
/// The first series is the one without load.
fn faster_under_load(metric: Metric, series: &[Series]) -> impl Iterator<Item = usize> {
    let (idle, loaded) = series.split_at(1);
    idle.iter().flat_map(move |idle| {
        idle.who.iter().enumerate().filter_map(move |(at, who)| {
            let better = loaded.iter().any(|under| {
                under.who.iter().position(|w| w == who).is_some_and(|k| {
                    if metric.figure.more_is_better() {
                        under.lo[k] > idle.hi[at]
                    } else {
                        under.hi[k] < idle.lo[at]
                    }
                })
            });
            better.then_some(*who)
        })
    })
}

/// Describes reversals of speed in sentences, one for each setting, load and mechanism: the sentence names the
/// mechanisms that are slower than this one without load, but faster under the load.
fn in_words(reversals: &[Reversal]) -> Vec<String> {
    let mut groups: Vec<(&Reversal, Vec<String>)> = Vec::new();
    for reversal in reversals.iter().filter(|r| r.by == By::Speed) {
        let same = |r: &Reversal| {
            (&r.setting, &r.load, &r.better_idle)
                == (&reversal.setting, &reversal.load, &reversal.better_idle)
        };
        match groups.iter_mut().find(|(first, _)| same(first)) {
            Some((_, beaten)) => beaten.push(reversal.better_loaded.clone()),
            None => groups.push((reversal, vec![reversal.better_loaded.clone()])),
        }
    }
    groups
        .into_iter()
        .map(|(first, beaten)| {
            format!(
                "{}: {} is ahead of {} without added load, but behind under load ({}).",
                first.setting,
                first.better_idle,
                list(beaten.into_iter()),
                first.load
            )
        })
        .collect()
}
