//! Presents the features that were found: as a table, as lines on a terminal, and as marks in the charts.

use crossway_records::inputs::{Measure, Workload};
use crossway_records::sorting::SortSmall;

use super::find::{Found, Shape, Shapes};
use super::series::Over;
use crate::charts::{Chart, Mark};
use crate::run::Run;
use crate::section::Section;
use crate::sheet::{Cell, Row, Sheet};
use crate::summary::{Summary, workload_name};
use crate::units::{self, Quantity, three_digits};

/// Maximum number of rows of the table; the most significant features are kept.
const ROWS_MAX: usize = 60;
/// Maximum number of lines on a terminal.
const LINES_MAX: usize = 8;

/// Returns the section; `None` if no series was long enough to examine.
pub fn section(run: &Run, shapes: &Shapes) -> Option<Section> {
    if shapes.series == 0 {
        return None;
    }
    let mut paragraphs = vec![format!(
        "{} of this run {} enough points to look for three features: jumps that a smooth curve does not explain \
         (steps), equal steps at the distance that a page or packet size predicts (staircases), and the buffer size \
         from which throughput stays above nine tenths of its plateau (knees). A series is one mechanism's figures \
         over message size or buffer size. A feature is listed only if the probability that noise alone produces such \
         a feature anywhere in the run is below 1 %.",
        crate::units::count(shapes.series, "series", "series"),
        if shapes.series == 1 { "has" } else { "have" }
    )];
    if shapes.found.is_empty() {
        paragraphs.push(
            "Nothing was found: as far as these trials show, all curves are smooth.".to_owned(),
        );
    }
    let all = shapes.found.len();
    if all > ROWS_MAX {
        paragraphs
            .push(format!("The table lists the {ROWS_MAX} most significant of {all} features."));
    }
    let table = sheet(&run.summary, shapes);
    Some(Section {
        id: "steps",
        title: "Steps and knees",
        paragraphs,
        tables: if table.rows.is_empty() { Vec::new() } else { vec![table] },
        ..Section::default()
    })
}

/// Returns the table of features.
pub fn sheet(summary: &Summary, shapes: &Shapes) -> Sheet {
    let rows = strongest(shapes, ROWS_MAX)
        .into_iter()
        .map(|found| Row { class: None, cells: cells(summary, found) })
        .collect();
    Sheet {
        title: String::new(),
        heads: [
            "Mechanism",
            "Series",
            "Feature",
            "Where",
            "How much",
            "Probability of noise",
            "Cause",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows,
        sortable: true,
        notes: Vec::new(),
    }
}

/// Returns the `most` most significant features, in their original order.
fn strongest(shapes: &Shapes, most: usize) -> Vec<&Found> {
    let mut order: Vec<usize> = (0..shapes.found.len()).collect();
    order.sort_small_by(|a, b| shapes.found[*a].p.total_cmp(&shapes.found[*b].p));
    order.truncate(most);
    order.sort_unstable();
    order.into_iter().map(|at| &shapes.found[at]).collect()
}

fn cells(summary: &Summary, found: &Found) -> Vec<Cell> {
    let (what, place, amount) = words(found);
    let chance = if found.p < 1e-6 {
        "< 0.0001 %".to_owned()
    } else {
        format!("{} %", three_digits(found.p * 100.0))
    };
    let mut why = Cell::text(found.cause.clone().unwrap_or_else(|| "unexplained".to_owned()));
    why.note = packets_note(found);
    vec![
        Cell::text(summary.contenders[found.contender].label()),
        Cell::text(series_name(summary, found)),
        Cell::text(what),
        Cell { text: place, sort: Some(place_of(&found.shape)), ..Cell::default() },
        Cell::text(amount),
        Cell { text: chance, sort: Some(found.p), ..Cell::default() },
        why,
    ]
}

fn place_of(shape: &Shape) -> f64 {
    match shape {
        Shape::Step { at_x, .. } => *at_x,
        Shape::Staircase { period, .. } => *period,
        Shape::Knee { x, .. } => *x,
    }
}

fn series_name(summary: &Summary, found: &Found) -> String {
    let setting = &summary.settings[found.setting];
    let doing = workload_name(found.workload, found.size_bytes.unwrap_or(0));
    match (found.over, found.size_bytes) {
        (Over::Size, _) => format!("{doing}, {}", setting.label()),
        (over, Some(size)) => {
            format!("{doing} over {}, {} messages", over.name(), units::size(size))
        }
        (over, None) => format!("{doing} over {}", over.name()),
    }
}

/// Returns what kind of feature it is, where it is, and how large.
fn words(found: &Found) -> (&'static str, String, String) {
    let size = |x: f64| units::size(x as u64);
    match &found.shape {
        Shape::Step { after_x, at_x, change, error, .. } => {
            let place = if at_x - after_x <= 1.0 {
                format!("at {}", size(*at_x))
            } else {
                format!("between {} and {}", size(*after_x), size(*at_x))
            };
            let figure = match (found.over, found.workload.facts().measure) {
                (Over::Size, Measure::Exchange) => "exchange",
                (Over::Size, Measure::RoundTrip | Measure::OneWay) => "round trip",
                (Over::Size, Measure::Rate) | (Over::SocketBuffer | Over::Capacity, _) => {
                    "throughput"
                }
            };
            let amount = format!(
                "{figure} {}{} ± {} %",
                if *change < 0.0 { "−" } else { "+" },
                three_digits(change.abs() * 100.0),
                three_digits(error * 100.0)
            );
            (if *change < 0.0 { "step down" } else { "step up" }, place, amount)
        }
        Shape::Staircase { period, height_ns, error_ns } => (
            "staircase",
            format!("every {}", size(*period)),
            format!(
                "{} ± {} per step",
                Quantity::Duration.show(*height_ns),
                Quantity::Duration.show(*error_ns)
            ),
        ),
        Shape::Knee { x, before_x, plateau, read_back, .. } => {
            let mut place = format!(
                "between {} and {}, where throughput reaches 90 % of its plateau",
                size(*before_x),
                size(*x)
            );
            if let Some(bytes) = read_back.and_then(|b| u64::try_from(b).ok()) {
                place.push_str(&format!(" (actual size {})", units::size(bytes)));
            }
            let mut amount = format!("plateau {}", Quantity::ByteRate.show(*plateau));
            if let Some(message) = found.size_bytes.filter(|m| *m > 0) {
                amount.push_str(&format!(
                    "; buffer / message = {}",
                    three_digits(x / message as f64)
                ));
            }
            ("knee", place, amount)
        }
    }
}

fn packets_note(found: &Found) -> Option<String> {
    match &found.shape {
        Shape::Step { packets: Some((before, behind)), .. } => Some(format!(
            "packets per message: {} before, {} after",
            three_digits(*before),
            three_digits(*behind)
        )),
        _ => None,
    }
}

/// Returns one sentence for each of the most significant features.
pub fn lines(summary: &Summary, shapes: &Shapes) -> Vec<String> {
    let mut lines: Vec<String> =
        strongest(shapes, LINES_MAX).into_iter().map(|found| line(summary, found)).collect();
    let more = shapes.found.len().saturating_sub(lines.len());
    if more > 0 {
        let more = units::count(more, "more feature is", "more features are");
        lines.push(format!("{more} in the report."));
    }
    lines
}

/// Returns a sentence that describes a feature.
fn line(summary: &Summary, found: &Found) -> String {
    let (what, place, amount) = words(found);
    let why = found.cause.as_deref().unwrap_or("not explained by the known facts");
    format!(
        "{}, {}: {what} {place}, {amount} ({why}).",
        summary.contenders[found.contender].label(),
        series_name(summary, found)
    )
}

/// Adds the features to the charts that show their series: steps by message size as marks in the lines, and features by
/// socket buffer as sentences among the findings.
pub fn mark(charts: &mut [Chart], summary: &Summary, shapes: &Shapes) {
    let over_buffers = shapes.found.iter().filter(|f| f.over == Over::SocketBuffer);
    for found in over_buffers.take(LINES_MAX) {
        for chart in charts.iter_mut().filter(|c| c.id == "socket-buffer") {
            chart.findings.push(line(summary, found));
        }
    }
    for found in shapes.found.iter().filter(|f| f.over == Over::Size) {
        let chart_id = match found.workload {
            Workload::Throughput => "throughput",
            Workload::PingPong => "round-trip",
            _ => continue,
        };
        let Shape::Step { at_x, .. } = found.shape else { continue };
        let (x, label) = (at_x, format!("step at {}", units::size(at_x as u64)));
        for chart in charts.iter_mut().filter(|c| c.id == chart_id) {
            for view in chart.views.iter_mut().filter(|v| v.setting == Some(found.setting)) {
                view.marks.push(Mark { contender: found.contender, x, label: label.clone() });
            }
        }
    }
}
