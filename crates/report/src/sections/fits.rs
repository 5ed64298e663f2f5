//! The section on start-up cost and bandwidth: a straight line fitted to time over message size.

use std::collections::BTreeMap;

use crossway_records::figure::Figure;
use crossway_records::fit::{self, Point};
use crossway_records::inputs::Workload;
use crossway_records::record::Status;
use crossway_records::stats::Interval;

use crate::run::Run;
use crate::section::Section;
use crate::sheet::{Cell, Row, Sheet};
use crate::units::{self, Quantity, three_digits};

/// Maximum number of settings for which lines are fitted; a fit for each setting of a sweep over core pairs would fill
/// the page.
const FIT_SETTINGS_MAX: usize = 1;

pub(super) fn fits(run: &Run) -> Option<Section> {
    let mut points: BTreeMap<(usize, bool, usize), Vec<Point>> = BTreeMap::new();
    for record in run.records.iter().filter(|r| r.status == Status::Ok) {
        let round_trip = record.inputs.workload == Workload::PingPong;
        if !round_trip && record.inputs.workload != Workload::Throughput {
            continue;
        }
        let Some((contender, setting)) = run.summary.place_of(record) else { continue };
        if setting >= FIT_SETTINGS_MAX {
            continue;
        }
        let figure = if round_trip { Figure::ROUND_TRIP } else { Figure::MessageRate };
        if let Some(time_ns) = figure.ns(record) {
            points
                .entry((setting, !round_trip, contender))
                .or_default()
                .push(Point { size_bytes: record.inputs.size_bytes as f64, time_ns });
        }
    }
    let mut tables: Vec<Sheet> = Vec::new();
    let (mut thinned_any, mut sure_any, mut unsure_any) = (false, false, false);
    for ((setting, one_way, contender), points) in &points {
        let used = thinned(points);
        thinned_any |= used.len() < points.len();
        let Some(fit) = fit::fit(&used) else { continue };
        let title = format!(
            "{}, {}",
            if *one_way { "One way" } else { "Round trip" },
            run.summary.settings[*setting].label()
        );
        if tables.last().is_none_or(|t| t.title != title) {
            tables.push(Sheet {
                title,
                heads: ["Mechanism", "Start-up", "Per KiB", "Bandwidth", "Worst residual"]
                    .map(str::to_owned)
                    .to_vec(),
                rows: Vec::new(),
                sortable: true,
                notes: Vec::new(),
            });
        }
        let is_sure = fit.startup_interval_ns.is_some();
        (sure_any, unsure_any) = (sure_any || is_sure, unsure_any || !is_sure);
        let with = |quantity: Quantity, value: f64, interval: Option<Interval>| Cell {
            text: quantity.show(value),
            note: Some(match interval {
                Some(i) => quantity.show_interval(value, i.low, i.high),
                None => units::count(fit.trials_per_size, "trial", "trials"),
            }),
            sort: Some(value),
            ..Cell::default()
        };
        let per_kib = |interval: Interval| Interval {
            low: interval.low * 1024.0,
            high: interval.high * 1024.0,
        };
        let bandwidth = match (fit.bandwidth_bytes_per_s, fit.bandwidth_interval_bytes_per_s) {
            (Some(b), interval) if interval.is_some() || !is_sure => {
                with(Quantity::ByteRate, b, interval)
            }
            _ => Cell::text("undetermined"),
        };
        let row = Row {
            class: None,
            cells: vec![
                Cell::text(run.summary.contenders[*contender].label()),
                with(Quantity::Duration, fit.startup_ns, fit.startup_interval_ns),
                with(
                    Quantity::Duration,
                    fit.per_byte_ns * 1024.0,
                    fit.per_byte_interval_ns.map(per_kib),
                ),
                bandwidth,
                Cell {
                    text: format!("{} %", three_digits(fit.worst_relative_residual * 100.0)),
                    note: Some(format!("at {}", units::size(fit.worst_at_bytes as u64))),
                    sort: Some(fit.worst_relative_residual),
                    ..Cell::default()
                },
            ],
        };
        if let Some(table) = tables.last_mut() {
            table.rows.push(row);
        }
    }
    let rule = thinned_any.then(|| {
        format!(
            "To keep large reports quick, a line is fitted to at most {FIT_SIZES_MAX} sizes, spread over those measured, and the \
             first {FIT_TRIALS_MAX} trials of each."
        )
    });
    (!tables.is_empty()).then(|| Section {
        id: "fits",
        title: "Start-up cost and bandwidth",
        paragraphs: [
            Some(format!(
                "A straight line is fitted to time over message size; it gives the fixed cost of a message and the cost \
                 of each byte. {}{}Where the worst residual is above 25 %, a straight line does not describe the data \
                 (for example because the messages outgrow a cache or a buffer), and the chart says more than the fit.",
                if sure_any { "The ranges in small print are 95 % bootstrap intervals. " } else { "" },
                if unsure_any {
                    "A fit has no interval if one of its sizes has fewer than five good trials; the small print then \
                     shows the smallest number of trials of a size. "
                } else {
                    ""
                },
            )),
            rule,
        ]
        .into_iter()
        .flatten()
        .collect(),
        tables,
        ..Section::default()
    })
}

/// Maximum number of sizes in a fit, and of trials per size. To resample a few hundred points a thousand times for
/// every contender takes a second; with thousands of points it takes half a minute.
const FIT_SIZES_MAX: usize = 16;
const FIT_TRIALS_MAX: usize = 8;

/// Thins out the points: keeps at most [`FIT_SIZES_MAX`] sizes, evenly spread and including the smallest and the
/// largest, and at most [`FIT_TRIALS_MAX`] trials of each.
fn thinned(points: &[Point]) -> Vec<Point> {
    let mut by_size: BTreeMap<u64, Vec<Point>> = BTreeMap::new();
    for point in points {
        by_size.entry(point.size_bytes as u64).or_default().push(*point);
    }
    let sizes: Vec<Vec<Point>> = by_size.into_values().collect();
    let kept = sizes.len().min(FIT_SIZES_MAX);
    (0..kept)
        .map(|at| if kept > 1 { at * (sizes.len() - 1) / (kept - 1) } else { 0 })
        .flat_map(|at| sizes[at].iter().take(FIT_TRIALS_MAX).copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_is_given_a_bounded_number_of_points_and_both_ends_of_the_sizes() {
        let points: Vec<Point> = (1..=100u64)
            .flat_map(|n| {
                (0..20).map(move |_| Point { size_bytes: (n * 512) as f64, time_ns: 1.0 })
            })
            .collect();
        let used = thinned(&points);
        assert_eq!(used.len(), FIT_SIZES_MAX * FIT_TRIALS_MAX);
        assert_eq!(used[0].size_bytes, 512.0);
        assert_eq!(used[used.len() - 1].size_bytes, 51_200.0);
        // A small number of points is used as it is.
        assert_eq!(thinned(&points[..40]).len(), 16);
        assert_eq!(thinned(&points[..5]), &points[..5]);
    }
}
