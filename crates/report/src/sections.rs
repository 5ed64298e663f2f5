//! The page's sections of words and tables: fits, machine, what was asked, what did not run, method.

use std::collections::BTreeMap;

use crossway_lab::fit::{self, Point};
use crossway_lab::inputs::Workload;
use crossway_lab::record::{Record, Span, Status};
use serde::Serialize;

use crate::limits;
use crate::run::{Run, count};
use crate::sheet::{Cell, Row, Sheet};
use crate::steps::{self, Shapes};
use crate::summary::workload_name;
use crate::units::{self, Quantity, three_digits};

/// Text that is folded away.
#[derive(Clone, Debug, Serialize)]
pub struct Block {
    /// Its heading.
    pub title: String,
    /// The text.
    pub text: String,
}

/// A section.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Section {
    /// Anchor on the page.
    pub id: &'static str,
    /// Heading.
    pub title: &'static str,
    /// Words.
    pub paragraphs: Vec<String>,
    /// Tables.
    pub tables: Vec<Sheet>,
    /// Folded text.
    pub blocks: Vec<Block>,
}

/// All for which there is something to say, in the order of the page.
pub fn all(run: &Run, shapes: &Shapes) -> Vec<Section> {
    [
        steps::section(run, shapes),
        limits::section(run),
        fits(run),
        troubles(run),
        asked(run),
        run.machine.section(),
        Some(method(run)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Settings beyond the first get no fit: a sweep over core pairs would fill the page.
const FIT_SETTINGS_MAX: usize = 1;

fn fits(run: &Run) -> Option<Section> {
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
        let time_ns = if round_trip {
            record.latency_ns.iter().find(|l| l.span == Span::RoundTrip).map(|l| l.p50 as f64)
        } else {
            record.throughput.map(|t| 1e9 / t.msgs_per_s)
        };
        if let Some(time_ns) = time_ns {
            points
                .entry((setting, !round_trip, contender))
                .or_default()
                .push(Point { size_bytes: record.inputs.size_bytes as f64, time_ns });
        }
    }
    let mut tables: Vec<Sheet> = Vec::new();
    let mut thinned_any = false;
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
                heads: ["Mechanism", "Start-up", "Per KiB", "Bandwidth", "Worst misfit"]
                    .map(str::to_owned)
                    .to_vec(),
                rows: Vec::new(),
                sortable: true,
            });
        }
        let with = |quantity: Quantity, value: f64, low: f64, high: f64| Cell {
            text: quantity.show(value),
            note: Some(quantity.show_interval(value, low, high)),
            sort: Some(value),
            ..Cell::default()
        };
        let (start, byte) = (fit.startup_interval_ns, fit.per_byte_interval_ns);
        let bandwidth = match (fit.bandwidth_bytes_per_s, fit.bandwidth_interval_bytes_per_s) {
            (Some(b), Some(i)) => with(Quantity::ByteRate, b, i.low, i.high),
            _ => Cell::text("not resolved"),
        };
        let row = Row {
            class: None,
            cells: vec![
                Cell::text(run.summary.contenders[*contender].label()),
                with(Quantity::Duration, fit.startup_ns, start.low, start.high),
                with(
                    Quantity::Duration,
                    fit.per_byte_ns * 1024.0,
                    byte.low * 1024.0,
                    byte.high * 1024.0,
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
        paragraphs: [Some(
            "Time as a straight line over the message size: what a message costs before its first byte, and what each further byte \
             costs. Small intervals hold 95 %. Where the worst misfit is above a quarter, a straight line is the wrong form (a \
             cache ends, a buffer fills), and the chart tells more than the fit."
                .to_owned()),
            rule,
        ]
        .into_iter()
        .flatten()
        .collect(),
        tables,
        ..Section::default()
    })
}

/// Sizes and trials that a fit is given at most: resampling a few hundred points a thousand times for every contender takes a
/// second, thousands of points half a minute.
const FIT_SIZES_MAX: usize = 16;
const FIT_TRIALS_MAX: usize = 8;

/// At most so many of the sizes, spread evenly with the least and the greatest among them, and of the trials of each.
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

fn troubles(run: &Run) -> Option<Section> {
    let mut tables = Vec::new();
    for (status, title) in [
        (Status::Failed, "Failed"),
        (Status::Degraded, "Degraded: kept, not averaged in where others are clean"),
        (Status::Skipped, "Skipped"),
    ] {
        let rows: Vec<Row> = run
            .summary
            .troubles
            .iter()
            .filter(|t| t.status == status)
            .map(|t| Row {
                class: None,
                cells: vec![
                    Cell::text(&t.mechanism),
                    Cell::text(&t.reason),
                    Cell::text(t.remedy.as_deref().unwrap_or("–")),
                    Cell {
                        text: t.cases.to_string(),
                        sort: Some(t.cases as f64),
                        ..Cell::default()
                    },
                    Cell {
                        text: t.trials.to_string(),
                        sort: Some(t.trials as f64),
                        ..Cell::default()
                    },
                ],
            })
            .collect();
        if !rows.is_empty() {
            tables.push(Sheet {
                title: title.to_owned(),
                heads: ["Mechanism", "Why", "Remedy", "Cases", "Trials"]
                    .map(str::to_owned)
                    .to_vec(),
                rows,
                sortable: false,
            });
        }
    }
    (!tables.is_empty()).then(|| Section {
        id: "troubles",
        title: "Skipped, failed, degraded",
        paragraphs: vec![
            "A figure that is missing has a reason. `crossway doctor` checks the same things on this machine and prints the line \
             that mends each."
                .replace('`', ""),
        ],
        tables,
        ..Section::default()
    })
}

fn asked(run: &Run) -> Option<Section> {
    let pair = |name: &str, value: String| Row {
        class: None,
        cells: vec![Cell::text(name), Cell::text(value)],
    };
    let first = run.records.first()?;
    let distinct = |get: &dyn Fn(&Record) -> String| {
        let mut seen: Vec<String> = Vec::new();
        for record in &run.records {
            let value = get(record);
            if !seen.contains(&value) {
                seen.push(value);
                if seen.len() > 12 {
                    seen.truncate(12);
                    seen.push("…".to_owned());
                    break;
                }
            }
        }
        seen.join(", ")
    };
    let summary = &run.summary;
    let sizes = summary.sizes(|_| true);
    let sizes = match sizes.len() {
        0 => "none".to_owned(),
        n if n > 12 => {
            format!("{n} from {} to {}", units::size(sizes[0]), units::size(sizes[n - 1]))
        }
        _ => sizes.iter().map(|s| units::size(*s)).collect::<Vec<_>>().join(", "),
    };
    let mut rows = vec![
        pair("Command", run.command(&[])),
        pair("Plan", run.plan_name().to_owned()),
        pair("Run", first.run.clone()),
        pair("Workloads", distinct(&|r| workload_name(r.inputs.workload, r.inputs.size_bytes))),
        pair("Message sizes", sizes),
        pair("Settings", {
            let mut labels: Vec<String> =
                summary.settings.iter().take(8).map(|s| s.label()).collect();
            if summary.settings.len() > 8 {
                labels.push(format!("{} more", summary.settings.len() - 8));
            }
            labels.join("; ")
        }),
        pair("Trials per case", distinct(&|r| r.inputs.trials.to_string())),
        pair("Measured time", {
            distinct(&|r| match r.inputs.messages {
                Some(n) => format!("{n} messages"),
                None => format!("{} ms", r.inputs.measure_ms),
            })
        }),
        pair("Warm-up at most", distinct(&|r| format!("{} ms", r.inputs.warmup_ms))),
        pair("Seed", distinct(&|r| r.inputs.seed.to_string())),
    ];
    rows.push(pair("Trials", {
        let parts: Vec<String> = summary
            .trials_by_status
            .iter()
            .map(|(status, n)| format!("{n} {}", status_name(*status)))
            .collect();
        parts.join(", ")
    }));
    Some(Section {
        id: "asked",
        title: "What was asked",
        tables: vec![Sheet { rows, ..Sheet::default() }],
        blocks: run
            .plan
            .iter()
            .map(|plan| Block { title: "The plan".to_owned(), text: plan.clone() })
            .collect(),
        ..Section::default()
    })
}

/// A status in a word.
pub fn status_name(status: Status) -> &'static str {
    match status {
        Status::Ok => "ok",
        Status::Degraded => "degraded",
        Status::Failed => "failed",
        Status::Skipped => "skipped",
    }
}

fn method(run: &Run) -> Section {
    let mut paragraphs: Vec<String> = [
        "The two ends are processes of their own, pinned where the setting says, and share nothing but what the mechanism needs. \
         The sender writes every byte of every message and the receiver reads every byte; number, order and content are checked, \
         and a trial that fails the check gives no figure.",
        "The unit of statistics is the trial, not the message. Trials of competing cases are interleaved in a seeded random \
         order, so that a drift of the machine hits all alike. A figure is the median over trials; its interval is the 95 % \
         bootstrap interval of that median, which with five trials is their whole range. Two figures whose intervals touch are \
         not ranked against each other.",
        "Round trips are reported as round trips. Paced workloads count latency from the intended instant, so that a stall is not \
         hidden. A percentile is given only where ten samples lie beyond it. CPU time is user plus system time of the roles.",
    ]
    .map(str::to_owned)
    .to_vec();
    let calibrations: Vec<_> = run.records.iter().filter(|r| r.status == Status::Ok).collect();
    let over = |get: &dyn Fn(&Record) -> f64| {
        let values: Vec<f64> =
            calibrations.iter().map(|r| get(r)).filter(|v| *v > 0.0).take(10_000).collect();
        crossway_lab::stats::median(&values)
    };
    if let (Some(read), Some(step), Some(empty)) = (
        over(&|r| r.calibration.clock_read_ns),
        over(&|r| r.calibration.clock_step_ns),
        over(&|r| r.calibration.empty_loop_ns),
    ) {
        paragraphs.push(format!(
            "The instruments here: reading the clock costs {}, its step is {}, the empty measuring loop costs {} per message.",
            Quantity::Duration.show(read),
            Quantity::Duration.show(step),
            Quantity::Duration.show(empty)
        ));
    }
    let mut tables = Vec::new();
    let warning_rows: Vec<Row> = run
        .summary
        .warnings
        .iter()
        .take(40)
        .map(|(warning, trials)| Row {
            class: None,
            cells: vec![Cell::text(warning), Cell::text(count(*trials, "trial", "trials"))],
        })
        .collect();
    if !warning_rows.is_empty() {
        tables.push(Sheet {
            title: "Warnings".to_owned(),
            heads: ["Warning", "Carried by"].map(str::to_owned).to_vec(),
            rows: warning_rows,
            sortable: false,
        });
    }
    let mut nulls: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for record in &run.records {
        for (field, reason) in &record.nulls {
            *nulls.entry((field, reason)).or_insert(0) += 1;
        }
    }
    if !nulls.is_empty() {
        tables.push(Sheet {
            title: "Not measurable here".to_owned(),
            heads: ["Field", "Why", "Trials"].map(str::to_owned).to_vec(),
            rows: nulls
                .into_iter()
                .take(40)
                .map(|((field, reason), n)| Row {
                    class: None,
                    cells: vec![Cell::text(field), Cell::text(reason), Cell::text(n.to_string())],
                })
                .collect(),
            sortable: false,
        });
    }
    Section { id: "method", title: "Method", paragraphs, tables, ..Section::default() }
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
        // Few points are all used.
        assert_eq!(thinned(&points[..40]).len(), 16);
        assert_eq!(thinned(&points[..5]), &points[..5]);
    }
}
