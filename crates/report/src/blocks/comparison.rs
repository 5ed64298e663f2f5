//! Tables in which each contender has one row: those of round trips and streams, one per size, and
//! that of the figures by which a run is judged.

use std::collections::BTreeSet;

use crossway_records::rank::{MOVED, WaitClass};
use crossway_records::record::Span;
use crossway_records::sorting::{CollectTree, SortSmall};
use crossway_records::stats::Estimate;

use super::footnotes::{TWO_REGIMES, marks_explained, two_regimes, without_cpu_time};
use super::{
    DEGRADED, NOISE, beyond, chosen_sizes, duration, leave_out_empty_noise, marks, noise_cell,
    pooled, row,
};
use crate::contender::Contender;
use crate::ranking::{Metric, Ranking};
use crate::sheet::{Cell, Row, Sheet};
use crate::summary::{Case, Summary, workload_name};
use crate::units::{self, Quantity};

/// The columns of the tables of round trips and streams, with the metric of each.
const COLUMNS: [(&str, Metric); 5] = [
    ("Round trip p50", Metric::ROUND_TRIP_P50),
    ("p99", Metric::ROUND_TRIP_P99),
    ("Throughput", Metric::BYTE_RATE),
    ("Messages", Metric::MESSAGE_RATE),
    ("CPU / message", Metric::CPU_PER_MESSAGE),
];
/// Head of the column with the CPU time per round trip.
pub(super) const CPU_ROUND_TRIP: &str = "CPU / round trip";

/// A column of figures.
struct Column {
    head: String,
    shows: Shows,
    size: u64,
}

/// What a column shows.
#[derive(Clone, Copy, PartialEq)]
enum Shows {
    Figure(Metric),
    /// The longest round trip.
    Longest,
    Noise,
}

impl Column {
    fn metric(&self) -> Option<Metric> {
        match self.shows {
            Shows::Figure(metric) => Some(metric),
            Shows::Longest | Shows::Noise => None,
        }
    }
}

/// Returns the tables of round trips and streams: one per size, with blocking mechanisms first,
/// then hybrid, busy and spinning ones, each class from fast to slow.
pub(super) fn comparison(summary: &Summary, setting: usize) -> Vec<Sheet> {
    let figures = |case: &Case| COLUMNS.iter().any(|(_, metric)| metric.of(case).is_some());
    let sizes = chosen_sizes(&summary.sizes(|c| c.setting == setting && figures(c)));
    let sheet = |size: u64| {
        let columns = columns(summary, setting, size);
        let mut heads = heads(&columns);
        let mut rows = entries(summary, setting, &columns);
        leave_out_empty_noise(&mut heads, &mut rows);
        let shown = |c: &&Case| c.setting == setting && c.size_bytes == size && figures(c);
        let mut notes = marks_explained(&heads, &mut rows);
        notes.extend(two_regimes(summary, summary.cases.iter().filter(shown)));
        notes.extend(without_cpu_time(summary, summary.cases.iter().filter(shown)));
        let title = format!("{} messages", units::size(size));
        Sheet { title, heads, rows, sortable: true, notes }
    };
    sizes.into_iter().map(sheet).collect()
}

fn columns(summary: &Summary, setting: usize, size: u64) -> Vec<Column> {
    let has = |metric: Metric| {
        let of_size = |c: &&Case| c.setting == setting && c.size_bytes == size;
        summary.cases.iter().filter(of_size).any(|c| metric.of(c).is_some())
    };
    let mut columns: Vec<(&str, Shows)> = Vec::new();
    for (head, metric) in COLUMNS {
        // Without a percentile of their own, trials may have one together.
        let timed = has(Metric::ROUND_TRIP_P50);
        if has(metric) || metric == Metric::ROUND_TRIP_P99 && timed {
            columns.push((head, Shows::Figure(metric)));
        }
        if metric == Metric::ROUND_TRIP_P99 && timed {
            columns.push(("max", Shows::Longest));
            columns.push((CPU_ROUND_TRIP, Shows::Figure(Metric::CPU_PER_ROUND_TRIP)));
        }
    }
    columns.push((NOISE, Shows::Noise));
    let column = |(head, shows): (&str, Shows)| Column { head: head.to_owned(), shows, size };
    columns.into_iter().map(column).collect()
}

fn heads(columns: &[Column]) -> Vec<String> {
    let own = columns.iter().map(|column| column.head.clone());
    std::iter::once("Mechanism".to_owned()).chain(own).collect()
}

/// The figures by which the first setting is judged (`compared`), as one table with a row per
/// contender; `None` if there are none.
pub(super) fn of_compared(summary: &Summary, compared: &[(Metric, u64)]) -> Option<Sheet> {
    let column = |&(metric, size): &(Metric, u64)| Column {
        head: short_head(metric, size),
        shows: Shows::Figure(metric),
        size,
    };
    let columns: Vec<Column> = compared.iter().map(column).collect();
    let mut rows = entries(summary, 0, &columns);
    let heads = heads(&columns);
    let notes = marks_explained(&heads, &mut rows);
    let title = summary.settings.first()?.label();
    let sheet = Sheet { title, heads, rows, sortable: false, notes };
    (!sheet.rows.is_empty()).then_some(sheet)
}

/// The head of a column of the short table, in two lines.
fn short_head(metric: Metric, size: u64) -> String {
    let name = match metric {
        Metric::ROUND_TRIP_P50 => "round trip".to_owned(),
        Metric::BYTE_RATE => "throughput".to_owned(),
        Metric::MESSAGE_RATE => "messages".to_owned(),
        Metric::CPU_PER_MESSAGE => "CPU/message".to_owned(),
        other => format!("{}, {}", other.figure.title(), workload_name(other.workload, size)),
    };
    format!("{name}\n{}", units::size(size))
}

/// Returns the rows of the contenders that have a figure in one of the columns, by class, and from
/// fast to slow by the first column that they have.
fn entries(summary: &Summary, setting: usize, columns: &[Column]) -> Vec<Row> {
    // The best of each class: a mechanism may be busy in round trips and block in streams.
    let best_of = |class: WaitClass, metric: Metric, size: u64| -> Vec<usize> {
        Ranking::of(summary, metric, setting, size, class)
            .filter(|r| r.entries.len() > 1)
            .map(|r| r.leaders().iter().map(|e| e.contender).collect())
            .unwrap_or_default()
    };
    let leaders: Vec<Vec<usize>> = columns
        .iter()
        .map(|column| {
            let of_class = |metric| {
                let class = |class| best_of(class, metric, column.size);
                WaitClass::ALL.into_iter().flat_map(class).collect()
            };
            column.metric().map_or(Vec::new(), of_class)
        })
        .collect();
    let sizes: BTreeSet<u64> = columns.iter().map(|column| column.size).collect_tree();
    let place = |class: WaitClass| WaitClass::ALL.iter().position(|c| *c == class);
    let mut entries: Vec<((Option<usize>, f64), Row)> = Vec::new();
    for (index, contender) in summary.contenders.iter().enumerate() {
        let cases: Vec<&Case> = summary
            .cases
            .iter()
            .filter(|c| c.contender == index && c.setting == setting)
            .filter(|c| sizes.contains(&c.size_bytes))
            .collect();
        let of_size = |size: u64| -> Vec<&Case> {
            cases.iter().copied().filter(|c| c.size_bytes == size).collect()
        };
        let value = |column: &Column| {
            let metric = column.metric()?;
            let figure = of_size(column.size).into_iter().find_map(|c| metric.of(c))?;
            Some(if metric.figure.more_is_better() { -figure.value } else { figure.value })
        };
        let Some(order) = columns.iter().find_map(value) else { continue };
        let mut cells = vec![Cell::text(contender.label())];
        let mut used: Vec<&Case> = Vec::new();
        for (column, leaders) in columns.iter().zip(&leaders) {
            let cases = of_size(column.size);
            cells.push(cell(column, contender, &cases, leaders.contains(&index)));
            let of_column = column.metric().and_then(|metric| case_of(metric, &cases));
            used.extend(of_column);
        }
        let (good, degraded): (Vec<&Case>, Vec<&Case>) = used.iter().partition(|c| !c.degraded);
        let words = [
            (MOVED, good.iter().any(|c| c.cores_moved)),
            (TWO_REGIMES, good.iter().any(|c| c.regimes.is_some())),
        ];
        let class = class_of(contender, &cases);
        let row = row(class, cells, good.is_empty() && !degraded.is_empty(), &words);
        entries.push(((place(class), order), row));
    }
    entries.sort_small_by(|(a, _), (b, _)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    entries.into_iter().map(|(_, row)| row).collect()
}

/// Returns the case that a figure comes from; `None` if there is none.
fn case_of<'a>(metric: Metric, cases: &[&'a Case]) -> Option<&'a Case> {
    cases.iter().copied().find(|c| metric.of(c).is_some())
}

/// Returns the wait class under which a mechanism is listed: that of its round trips, if it has
/// any, because only in them can it be busy.
fn class_of(contender: &Contender, cases: &[&Case]) -> WaitClass {
    case_of(Metric::ROUND_TRIP_P50, cases).map_or(contender.discipline(), |case| case.class)
}

/// Returns the cell of a contender in a column. `cases` are those of the column's size.
fn cell(column: &Column, contender: &Contender, cases: &[&Case], leads: bool) -> Cell {
    let Some((mut cell, degraded)) = shown(column.shows, cases) else { return Cell::text("–") };
    cell.best = leads && !degraded;
    if let Some(metric) = column.metric() {
        cell.marks.push_str(&marks(metric, contender, cases));
        note_limit(&mut cell, metric, contender, cases);
        if let Some(case) = case_of(metric, cases).filter(|c| c.regimes.is_some())
            && let Some(figure) = metric.of(case)
        {
            show_range(&mut cell, metric.quantity(), &figure);
        }
    }
    if degraded {
        cell.note = Some(DEGRADED.to_owned());
    }
    cell
}

/// Returns the cell of a mechanism in a column, and whether its case is degraded; `None` if there
/// is no figure.
fn shown(shows: Shows, cases: &[&Case]) -> Option<(Cell, bool)> {
    // Requests at a rate have round trips, too, but a table of their own.
    let timed = || {
        let case = case_of(Metric::ROUND_TRIP_P50, cases)?;
        Some((case.latency(Span::RoundTrip)?, case.degraded))
    };
    let metric = match shows {
        Shows::Longest => {
            return timed().map(|(latency, degraded)| (duration(latency.max), degraded));
        }
        Shows::Noise => {
            let measured =
                |metric: Metric| cases.iter().filter(|c| !c.degraded).find_map(|c| metric.of(c));
            let figures = [Metric::ROUND_TRIP_P50, Metric::BYTE_RATE].map(measured);
            return Some((noise_cell(figures), false));
        }
        Shows::Figure(metric) => metric,
    };
    if metric == Metric::ROUND_TRIP_P99
        && let Some((latency, degraded)) = timed().filter(|(latency, _)| latency.p99.is_none())
        && let Some(cell) = pooled(latency, |all| all.p99)
    {
        return Some((cell, degraded));
    }
    let case = case_of(metric, cases)?;
    Some((Cell::figure(metric.quantity(), metric.of(case)), case.degraded))
}

/// Shows a figure of a case with two regimes as a range, since its median says little.
fn show_range(cell: &mut Cell, quantity: Quantity, figure: &Estimate) {
    cell.text = quantity.show_interval(figure.value, figure.low, figure.high);
    cell.short = Some(TWO_REGIMES.to_owned());
    cell.note = Some(TWO_REGIMES.to_owned());
    (cell.trials, cell.few_trials) = (None, None);
}

/// Notes the limit that a figure lies beyond.
fn note_limit(cell: &mut Cell, metric: Metric, contender: &Contender, cases: &[&Case]) {
    if let Some((name, limit)) = beyond(metric, contender, cases) {
        let limit = match metric {
            Metric::ROUND_TRIP_P50 => Quantity::Duration.show(limit.value),
            _ => Quantity::ByteRate.show(limit.value),
        };
        let note = cell.note.take().unwrap_or_default();
        cell.note = Some(format!("{note}, beyond its limit: {name}, {limit}"));
    }
}
